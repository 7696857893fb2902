package remote

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/internal/testhost"
	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/target"
	"pmnbd/persist/wire"
	"pmnbd/rdma/iwarp"
	"pmnbd/rdma/rdmafake"
)

// inMemory is a path for a file in memory: nothing waits for a disk.
func inMemory(t testing.TB) string {
	dir := testhost.Memory(t)
	return filepath.Join(dir, "region")
}

// eADR serves a region of class pmem whose CPU caches are persistent, so that apm is
// sound, also on transports that place with CPU stores.
func eADR(t testing.TB, cfg rdmafake.Config) *pair {
	return newPairOn(t, rdmafake.New(cfg), "", inMemory(t), target.Config{}, regiontest.EADR)
}

// flushing serves a region of class pmem by devices that have native FLUSH. lines is
// told what the target's CPU writes back.
func flushing(t testing.TB, cfg rdmafake.Config, lines func(off, n uint64)) *pair {
	cfg.PersistentFlush = true
	if lines == nil {
		lines = regiontest.Discard
	}
	return newPairOn(t, rdmafake.New(cfg), "", inMemory(t), target.Config{}, regiontest.Medium{PMem: region.DomainMemory, Data: lines})
}

// eADROverTCP is eADR by the software transport.
func eADROverTCP(t testing.TB) *pair {
	return newPairOn(t, iwarp.New(iwarp.Config{}), "127.0.0.1:0", inMemory(t), target.Config{}, regiontest.EADR)
}

func TestMethodsConform(t *testing.T) {
	for name, c := range map[string]struct {
		pair  func(*testing.T) *pair
		lanes int
		want  persist.Method
	}{
		"apm":   {func(t *testing.T) *pair { return eADR(t, rdmafake.Config{}) }, 1, persist.MethodAPM},
		"flush": {func(t *testing.T) *pair { return flushing(t, rdmafake.Config{}, nil) }, 1, persist.MethodFlush},
		"apm, tiny queues, three lanes": {func(t *testing.T) *pair {
			return eADR(t, rdmafake.Config{MaxSendWR: 2, MaxReads: 1})
		}, 3, persist.MethodAPM},
		"flush, tiny queues, three lanes": {func(t *testing.T) *pair {
			return flushing(t, rdmafake.Config{MaxSendWR: 2, MaxReads: 1}, nil)
		}, 3, persist.MethodFlush},
		"apm over TCP": {func(t *testing.T) *pair { return eADROverTCP(t) }, 2, persist.MethodAPM},
	} {
		t.Run(name, func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) backend.Device {
				d := c.pair(t).dialLanes(t, c.lanes)
				require.Equal(t, c.want, d.legs[0].method)
				return d
			})
		})
	}
}

// A log is what was made durable, in order: runs of the region's bytes.
type log struct {
	mu   sync.Mutex
	runs []persist.Range
}

func (l *log) note(off uint64, n uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs = append(l.runs, persist.Range{Off: off, Len: uint64(n)})
}

// written notes what the target's CPU writes back.
func (l *log) written(off, n uint64) { l.note(off, uint32(n)) }

// take returns and forgets them.
func (l *log) take() []persist.Range {
	l.mu.Lock()
	defer l.mu.Unlock()
	runs := l.runs
	l.runs = nil
	return runs
}

// Under apm a barrier is a Read behind the Writes, on the lanes that carried one: the
// target's CPU does nothing for it. A FLUSH with nothing dirty needs none.
func TestAPM(t *testing.T) {
	p := eADR(t, rdmafake.Config{})
	d := p.dialLanes(t, 2)
	c := backendtest.NewClient(t, d)
	for i := range uint64(5) {
		require.NoError(t, c.Do(c.Write(i*4096, backendtest.Pattern(4096, uint32(i)), 0)))
		before := [2]uint64{d.legs[0].lanes[0].out.requests, d.legs[0].lanes[1].out.requests}
		require.NoError(t, c.Do(c.Flush()))
		require.Equal(t, [2]uint64{before[0] + 2, before[1]}, [2]uint64{d.legs[0].lanes[0].out.requests, d.legs[0].lanes[1].out.requests}, "the Write, the Read, on one lane")
	}
	require.EqualValues(t, 5, d.Barriers())
	require.NoError(t, c.Do(c.Flush()))
	require.EqualValues(t, 5, d.Barriers())
	require.Zero(t, p.targetBarriers(), "none is the target's")
	require.Equal(t, "apm", p.server.Snapshot()[0].Session.Method)
	require.Equal(t, "apm", d.Snapshot().Method)
	require.Equal(t, "not flush: the target's device lacks native persistent FLUSH", d.Snapshot().MethodWhy)
	require.NoError(t, d.Close())
}

// Under flush a barrier names every byte that was written, zeroes too, and no barrier
// succeeds without.
func TestFlushNamesWhatWasWritten(t *testing.T) {
	var l log
	cfg := rdmafake.Config{Flushed: l.note}
	for _, slots := range []int{2, 128} {
		t.Run(fmt.Sprint(slots, " send slots"), func(t *testing.T) {
			cfg.MaxSendWR = slots
			p := flushing(t, cfg, nil)
			d := p.dial(t)
			c := backendtest.NewClient(t, d)
			write := func(off, n int) *backendtest.Request { return c.Write(uint64(off), backendtest.Pattern(n, 1), 0) }
			require.NoError(t, c.Do(write(0, 4096), write(4096, 4096), write(1<<20-100, 200), write(3<<20, 1), c.Zero(5<<20, 8192)))
			require.Empty(t, l.take())
			require.NoError(t, c.Do(c.Flush()))
			require.Equal(t, []persist.Range{{Off: 0, Len: 8192}, {Off: 1<<20 - 100, Len: 200}, {Off: 3 << 20, Len: 1}, {Off: 5 << 20, Len: 8192}}, l.take())
			require.NoError(t, c.Do(c.Flush()))
			require.Empty(t, l.take(), "nothing is dirty")
			require.Zero(t, p.targetBarriers())
			require.NoError(t, d.Close())
		})
	}
}

// Of many FLUSHes some are signalled for the sake of their slots; only the last one's
// completion says that all is durable.
func TestLastFlushEndsTheBarrier(t *testing.T) {
	l := &lane{}
	l.placed.push(placed{seq: 7})
	require.Zero(t, l.endPlacedLocked(tagPlaced))
	require.Zero(t, l.endPlacedLocked(tagPlaced))
	require.EqualValues(t, 7, l.endPlacedLocked(tagPlaced|placedLast))
	require.Zero(t, l.placedDoneLocked(), "once")
}

// Another leg that is lost cuts a barrier off. The next one then comes behind it on this lane, and
// each ends with its own last request, and with the zeroes ahead of it.
func TestBarriersBehindOneThatWasCutOff(t *testing.T) {
	l := &lane{}
	l.placed.push(placed{seq: 7})
	l.placed.push(placed{seq: 8, zeroes: 1})
	_, ok := l.zeroes.message(&backend.Entry{Off: 0, Len: block})
	require.True(t, ok)
	require.EqualValues(t, 7, l.endPlacedLocked(tagPlaced|placedLast))
	require.Zero(t, l.endPlacedLocked(tagPlaced|placedLast), "a zero ahead of it is not acknowledged")
	require.NoError(t, l.zeroes.acked(wire.ZeroAck{Seq: 1}))
	require.EqualValues(t, 8, l.placedDoneLocked())
}

// The target's CPU stores zeroes. Where no barrier names ranges to it, it writes them
// back before it acknowledges them, and a barrier succeeds only then (design §4.7).
func TestZeroesWithoutTheTargetsBarrier(t *testing.T) {
	for want, cfg := range map[persist.Method]rdmafake.Config{
		persist.MethodFlush: {PersistentFlush: true},
		persist.MethodAPM:   {PlacesByDMA: true},
	} {
		t.Run(want.String(), func(t *testing.T) {
			var writes atomic.Bool // since the session was opened
			began, hold := make(chan persist.Range, 1), make(chan struct{})
			release := sync.OnceFunc(func() { close(hold) })
			p := newPairOn(t, rdmafake.New(cfg), "", inMemory(t), target.Config{DirectWrite: true}, regiontest.Medium{
				PMem: region.DomainMemory,
				Data: func(off, n uint64) {
					if writes.Load() {
						began <- persist.Range{Off: off, Len: n}
						<-hold
					}
				},
			})
			t.Cleanup(release)
			d := p.dial(t)
			require.Equal(t, want, d.legs[0].method)
			c := backendtest.NewClient(t, d)
			require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(8192, 1), 0)))
			writes.Store(true)
			zero, flush := c.Zero(4096, 4096), c.Flush()
			c.Submit(zero, flush)
			flushed := make(chan error, 1)
			go func() { flushed <- c.Wait(flush) }()
			select {
			case r := <-began:
				require.Equal(t, persist.Range{Off: 4096, Len: 4096}, r)
			case err := <-flushed:
				require.FailNow(t, "flushed, and the zero was never written back", "%v", err)
			}
			require.NoError(t, c.Wait(zero))
			d.legs[0].lanes[0].mu.Lock()
			require.True(t, d.legs[0].lanes[0].zeroes.due(1))
			d.legs[0].lanes[0].mu.Unlock()
			require.False(t, flush.Completed(), "the zero is not durable")
			writes.Store(false)
			release()
			require.NoError(t, <-flushed)
			require.NoError(t, d.Close())
		})
	}
}

// A method is chosen among those that are sound; one that was asked for and is not
// sound is refused with the reason, before anything is granted.
func TestMethodAskedFor(t *testing.T) {
	for _, tt := range []struct {
		name   string
		method persist.Method
		pmem   region.Domain
		flush  bool
		cfg    target.Config
		want   persist.Method
		says   string
	}{
		{"gpspm where apm is sound", persist.MethodGPSPM, region.DomainCaches, false, target.Config{}, persist.MethodGPSPM, ""},
		{"apm where it is sound", persist.MethodAPM, region.DomainCaches, true, target.Config{}, persist.MethodAPM, ""},
		{"the best", 0, region.DomainCaches, true, target.Config{}, persist.MethodFlush, ""},
		{"apm without eADR", persist.MethodAPM, region.DomainMemory, true, target.Config{}, 0, "apm is not sound here: the target's CPU caches are not persistent, and direct-write-to-pmem is not declared"},
		{"apm, declared for CPU stores", persist.MethodAPM, region.DomainMemory, false, target.Config{DirectWrite: true}, 0, "apm is not sound here: the target's adapter places with CPU stores"},
		{"flush without a device", persist.MethodFlush, region.DomainCaches, false, target.Config{}, 0, "the RDMA device of this machine lacks native FLUSH"},
		{"flush of class file", persist.MethodFlush, "", true, target.Config{}, 0, "flush is not sound here: only class pmem"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := ""
			if tt.pmem != "" {
				path = inMemory(t)
			}
			p := newPairOn(t, rdmafake.New(rdmafake.Config{PersistentFlush: tt.flush}), "", path, tt.cfg, regiontest.Medium{PMem: tt.pmem})
			cfg := p.config(t)
			cfg.Method = tt.method
			epoch := p.region.Superblock().Epoch
			d, err := Dial(context.Background(), cfg)
			if tt.want == 0 {
				require.ErrorContains(t, err, tt.says)
				require.Equal(t, epoch, p.region.Superblock().Epoch, "nothing was granted")
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, d.legs[0].method)
			require.Equal(t, d.legs[0].granted.Method, d.legs[0].method)
			require.NoError(t, d.Close())
		})
	}
}

// A target that chooses what it was not offered, or does not call sound, is not
// believed: no silent downgrade.
func TestNoSilentDowngrade(t *testing.T) {
	g := wire.Opened{Size: 4096, Class: 3, Methods: persist.Methods(0).With(1).With(2), Method: 3, Credits: 8, MaxMessage: 4096, Heartbeat: 1000, Lease: 5000}
	require.ErrorIs(t, check(&g), wire.ErrMalformed)
	g.Method = 2
	require.NoError(t, check(&g))
	require.ErrorContains(t, chosen(persist.Methods(0).With(1), &g), "was not offered")
	require.NoError(t, chosen(persist.Methods(0).With(2), &g))
}

// An inherited doubt is settled by the target alone: until a barrier has succeeded
// they go through it, whatever the method (design §3.8).
func TestDoubtIsSettledByTheTarget(t *testing.T) {
	for name, dirty := range map[string]bool{"nothing is dirty": false, "behind a write": true} {
		t.Run(name, func(t *testing.T) {
			p := eADR(t, rdmafake.Config{})
			left := p.dial(t)
			cfg := p.config(t)
			cfg.StateDir = t.TempDir() // as after kill -9: the lock is free
			d, err := Dial(context.Background(), cfg)
			require.NoError(t, err)
			require.Error(t, left.Close())
			require.Equal(t, persist.MethodAPM, d.legs[0].method)
			require.NotZero(t, d.legs[0].granted.Flags&wire.OpenedDoubt)
			c := backendtest.NewClient(t, d)
			if dirty {
				require.NoError(t, c.Do(c.Write(0, make([]byte, 512), 0)))
			}
			require.NoError(t, c.Do(c.Flush()))
			require.EqualValues(t, 1, p.targetBarriers())
			require.NoError(t, c.Do(c.Write(0, make([]byte, 512), 0)))
			require.NoError(t, c.Do(c.Flush()))
			require.EqualValues(t, 1, p.targetBarriers())
			require.EqualValues(t, 2, d.Barriers())
			require.NoError(t, d.Close())
		})
	}
}

func TestAPMAllocatesNothing(t *testing.T) {
	for _, name := range []string{"write+flush", "32write+flush", "fua"} {
		t.Run(name, func(t *testing.T) {
			p := eADROverTCP(t)
			cfg := p.config(t)
			cfg.Log = slog.New(slog.DiscardHandler)
			d, err := Dial(context.Background(), cfg)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, d.Close()) })
			x := newDriver(t, d, paths[name]()...)
			for range 200 {
				x.run(t) // queues grow to their size
			}
			require.Zero(t, testing.AllocsPerRun(200, func() { x.run(t) }))
		})
	}
}
