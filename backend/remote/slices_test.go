package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist/target"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// A frailConn breaks when so many bytes of Writes have been posted.
type frailConn struct {
	rdma.Conn
	left, posted *atomic.Int64 // posted is of all connections
	broke        func()
}

func (c *frailConn) Post(wrs []rdma.WorkRequest) (int, error) {
	for i, wr := range wrs {
		if wr.Op != rdma.OpWrite {
			continue
		}
		if n := int64(wr.Local.Len); c.left.Add(-n) < 0 {
			if n, err := c.Conn.Post(wrs[:i]); err != nil {
				return n, err
			}
			c.broke()
			return i, fmt.Errorf("so many bytes are too many: %w", rdma.ErrLost)
		}
		c.posted.Add(int64(wr.Local.Len))
	}
	return c.Conn.Post(wrs)
}

// frail makes a network of which each connection carries so many bytes of Writes.
func frail(network *rdmafake.Provider, bytes, posted *atomic.Int64, broke func()) wrapped {
	return wrapped{network, func(c rdma.Conn) rdma.Conn {
		var left atomic.Int64
		left.Store(bytes.Load())
		return &frailConn{Conn: c, left: &left, posted: posted, broke: broke}
	}}
}

const plenty = 1 << 40

// A full window gets to the target by a network that breaks after a part of it, again and again,
// and a FLUSH is answered although others write on.
func TestReplayOverABreakingNetwork(t *testing.T) {
	for _, tt := range []struct {
		name   string
		lanes  int
		writes bool // others
	}{{"one lane", 1, false}, {"two lanes", 2, false}, {"others write on", 1, true}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := rdmafake.New(rdmafake.Config{})
				var carries, posted, breaks atomic.Int64
				carries.Store(plenty)
				p := newPair(t, frail(network, &carries, &posted, func() {
					if breaks.Add(1) > 100 {
						carries.Store(plenty) // it would never end
					}
				}), "", "", target.Config{})
				d := p.dialPatient(t, tt.lanes)
				c := backendtest.NewClient(t, d)
				network.Pause()
				const size = 12 << 20
				want := make([]byte, regionSize)
				for i := range size >> 18 {
					data := backendtest.Pattern(256<<10, uint32(i))
					off := i << 18 % regionSize
					copy(want[off:], data)
					require.NoError(t, c.Do(c.Write(uint64(off), data, 0)))
				}
				clear(want[1<<20-5000:][:20000])
				require.NoError(t, c.Do(c.Zero(1<<20-5000, 20000)))
				carries.Store(1 << 20)
				posted.Store(0)
				network.Cut()
				network.Resume()
				flush := c.Flush()
				c.Submit(flush)
				var others sync.WaitGroup
				if tt.writes {
					others.Go(func() {
						o := backendtest.NewClient(t, d)
						for i := uint32(0); !flush.Completed() && breaks.Load() <= 100; i++ {
							assert.NoError(t, o.Do(o.Write(regionSize-256<<10, backendtest.Pattern(256<<10, i), 0)))
						}
					})
				}
				require.NoError(t, c.Wait(flush))
				require.LessOrEqual(t, breaks.Load(), int64(100), "it comes no further")
				require.Greater(t, breaks.Load(), int64(2), "it broke on the way")
				if !tt.writes {
					require.Less(t, posted.Load(), int64(3*size), "what was covered is not sent again")
				}
				others.Wait()
				carries.Store(plenty)
				require.NoError(t, c.Do(c.Flush()))
				require.True(t, string(want[:regionSize-256<<10]) == string(p.region.Data()[:regionSize-256<<10]))
				require.Zero(t, d.Unflushed())
				backendtest.AllBack(t, d)
				require.NoError(t, d.Close())
			})
		})
	}
}

// During a replay writes are taken, and land behind it. A READ sees all that it came after, and
// a FLUSH is answered when all that it came after is covered: not before, and not later for
// those who write on.
func TestRequestsDuringReplay(t *testing.T) {
	for _, lanes := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d lanes", lanes), func(t *testing.T) {
			p := fake(t, rdmafake.Config{})
			network := p.provider.(*rdmafake.Provider)
			d := p.dialPatient(t, lanes)
			c := backendtest.NewClient(t, d)
			network.Pause()
			want := make([]byte, regionSize)
			write := func(off int, data []byte) {
				copy(want[off:], data)
				require.NoError(t, c.Do(c.Write(uint64(off), data, 0)))
			}
			for i := range 16 {
				write(i<<18, backendtest.Pattern(256<<10, uint32(i)))
			}
			before := c.Read(15<<18, block, 0)
			c.Submit(before)
			network.Cut()
			release := p.sync.blockData()
			defer func() { release() }()
			network.Resume()
			<-p.sync.began // of the first slice
			require.False(t, before.Completed())
			require.Equal(t, make([]byte, 256<<10), p.region.Data()[15<<18:16<<18], "it waits for its slice")
			write(100, backendtest.Pattern(block, 100))
			write(15<<18+100, backendtest.Pattern(block, 101))
			clear(want[3<<20-1000:][:5000])
			require.NoError(t, c.Do(c.Zero(3<<20-1000, 5000)))
			after, flush := c.Read(15<<18, block, 0), c.Flush()
			fua := c.Write(5<<20, backendtest.Pattern(block, 102), 0)
			expected := string(want[15<<18:][:block])
			var heads []uint64
			for _, l := range d.legs[0].lanes {
				heads = append(heads, l.ring.Head())
			}
			c.Submit(after, flush)
			c.Submit(fua)
			require.NoError(t, c.Wait(fua))
			copy(want[5<<20:], backendtest.Pattern(block, 102))

			answered := make(chan error, 1)
			go func() { answered <- c.Wait(flush) }()
			for slices := 1; ; {
				next := p.sync.blockData()
				release()
				release = next
				select {
				case <-p.sync.began:
					slices++
					writes := d.legs[0].owes
					writes.reads = make([]uint64, lanes)
					require.False(t, slices == 2 && d.core.answered(&writes), "the outage is not over with the first one")
					require.LessOrEqual(t, slices, 10, "who writes on does not keep it back")
					write(6<<20+slices*block, backendtest.Pattern(block, uint32(200+slices)))
					continue
				case err := <-answered:
					require.NoError(t, err)
					require.Greater(t, slices, 3)
				}
				break
			}
			for i, l := range d.legs[0].lanes {
				require.GreaterOrEqual(t, l.ring.Covered(), heads[i], "lane %d: a FLUSH was answered too early", i)
			}
			release()
			require.NoError(t, c.Wait(before, after))
			require.True(t, string(after.Got) == expected)
			require.True(t, d.core.answered(&d.legs[0].owes))
			require.NoError(t, c.Do(c.Flush()))
			require.True(t, string(want) == string(p.region.Data()))
			require.Zero(t, d.Unflushed())
			backendtest.AllBack(t, d)
			require.NoError(t, d.Close())
		})
	}
}

// A run that is killed while it replays what another left leaves the rest to the next.
func TestAdoptionGoesOnWhereItWas(t *testing.T) {
	network := rdmafake.New(rdmafake.Config{})
	var carries, posted atomic.Int64
	carries.Store(plenty)
	broke := make(chan struct{}, 1)
	p := newPair(t, frail(network, &carries, &posted, func() {
		network.Down()
		broke <- struct{}{}
	}), "", "", target.Config{})
	cfg := p.config(t)
	cfg.WindowDir, cfg.LossTimeout = inMemory(t), 0
	h := &host{&farm{t: t, region: p.region}, cfg}
	d, c := h.run()
	network.Pause()
	const size = 4 << 20
	for i := range size >> 18 {
		require.NoError(t, c.Do(c.Write(uint64(i)<<18, backendtest.Pattern(256<<10, uint32(i)), 0)))
	}
	h.kill(d)
	network.Resume()

	covered := int64(0)
	for range 2 {
		carries.Store(1 << 20) // three slices of an entry, and a half of the fourth
		ctx, kill := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { _, err := Dial(ctx, h.cfg); ended <- err }()
		<-broke
		kill()
		err := <-ended
		require.ErrorIs(t, err, context.Canceled)
		require.False(t, errors.As(err, new(*LossError)))
		network.Up()
		covered += 3 * 256 << 10
	}
	carries.Store(plenty)
	posted.Store(0)
	d, _ = h.run()
	require.Equal(t, size-covered, posted.Load(), "what was covered is not sent again")
	require.NoError(t, d.Close())
	for i := range size >> 18 {
		require.True(t, string(backendtest.Pattern(256<<10, uint32(i))) == string(p.region.Data()[i<<18:(i+1)<<18]), "piece %d", i)
	}
}
