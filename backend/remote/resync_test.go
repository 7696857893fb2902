package remote

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/rdma/rdmafake"
)

// inSync waits until all members have everything, and compares them.
func (s pairs) inSync(t testing.TB, d *Device) {
	t.Helper()
	all := persist.Members(1<<len(s) - 1)
	require.Eventually(t, func() bool {
		c := &d.core.commit
		c.mu.Lock()
		defer c.mu.Unlock()
		v := &d.core.copies.view
		return v.Flushes() && v.Active == all && v.Equal == all
	}, 10*time.Minute, 10*time.Millisecond)
	require.NoError(t, d.Sync(t.Context()))
	for i, p := range s {
		require.Equal(t, all, s.record(i).F)
		require.False(t, s.record(i).Torn)
		require.True(t, bytes.Equal(s[0].region.Data(), p.region.Data()), "member %d differs", i)
		for j := range s {
			require.Zero(t, p.region.BitsSet(j), "bits of %d at %d", j, i)
		}
	}
}

// resyncing is the resync of leg i, or nil.
func (d *Device) resyncing(i int) *resync {
	d.core.commit.mu.Lock()
	defer d.core.commit.mu.Unlock()
	return d.legs[i].copying
}

// A leg that was let go gets what it lacks when it comes back, and is in F again (mirror §5).
func TestResync(t *testing.T) {
	for _, lost := range []int{0, 1} {
		t.Run(persist.Member(lost).String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testResync(t, lost) })
		})
	}
}

func testResync(t *testing.T, lost int) {
	s := fakes(t, 2, rdmafake.Config{})
	d := s.dialImpatient(t, 2)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	s.network(lost).Down()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 2), 0), c.Write(2*stripe+100, backendtest.Pattern(3*block, 3), 0), c.Write(5*stripe, backendtest.Pattern(block, 4), 0), c.Flush()))
	require.NoError(t, c.Do(c.Zero(5*stripe, block/2), c.Flush()))
	require.EqualValues(t, 3, s[1-lost].region.BitsSet(lost))
	s.network(lost).Up()
	s.inSync(t, d)
	require.NoError(t, c.Do(c.Write(stripe, backendtest.Pattern(block, 5), 0), c.Flush()))
	s.network(1 - lost).Down()
	read := c.Read(2*stripe+100, block, 0)
	require.NoError(t, c.Do(read), "it comes from the leg that was resynchronized")
	require.Equal(t, backendtest.Pattern(3*block, 3)[:block], read.Got)
	s.network(1 - lost).Up()
	time.Sleep(time.Minute)
	s.inSync(t, d)
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// A leg that lost its contents gets everything, whatever the bits were (mirror §3.6).
func TestResyncOfAll(t *testing.T) { synctest.Test(t, testResyncOfAll) }

func testResyncOfAll(t *testing.T) {
	s := fakes(t, 2, rdmafake.Config{})
	d := s.dialImpatient(t, 2)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Write(3*stripe, backendtest.Pattern(100*block, 2), 0), c.Flush()))
	s.network(1).Down()
	require.NoError(t, c.Do(c.Write(5*stripe, backendtest.Pattern(block, 4), 0), c.Flush()))
	require.EqualValues(t, 1, s[0].region.BitsSet(1))
	s.loseContents(t, 1)
	s.network(1).Up()
	s.inSync(t, d)
	require.Equal(t, s[1].region.Superblock().Contents, s.record(0).Members[1].Contents)
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// loseContents has the region of leg i come back with other contents, as memory does after a boot.
func (s pairs) loseContents(t testing.TB, i int) {
	clear(s[i].region.Data())
	require.NoError(t, s[i].region.Update(func(sb *region.Superblock) error {
		sb.Contents[0]++
		return nil
	}))
}

// A load writes to a device and reads back, in an order that the seed decides. The shadow has what the
// device must have.
type load struct {
	client *backendtest.Client
	rng    *rand.Rand
	shadow []byte
}

func newLoad(t testing.TB, d *Device, seed uint64) *load {
	t.Logf("seed %d", seed)
	return &load{backendtest.NewClient(t, d), rand.New(rand.NewPCG(seed, 13)), make([]byte, regionSize)}
}

// step does some requests, at places near each other, so that they overlap.
func (l *load) step(t testing.TB) {
	c := l.client
	n := 1 + l.rng.IntN(4)
	near := l.rng.IntN(regionSize - 4*pieceSize)
	for range n {
		off, size := near+l.rng.IntN(pieceSize), 1+l.rng.IntN(pieceSize)
		if l.rng.IntN(2) == 0 {
			size = 1 + l.rng.IntN(2*block)
		}
		switch l.rng.IntN(8) {
		case 0:
			require.NoError(t, c.Do(c.Flush()))
		case 1:
			c.Submit(c.Zero(uint64(off), uint64(size)))
			clear(l.shadow[off : off+size])
		case 2, 3:
			read := c.Read(uint64(off), size, 0)
			require.NoError(t, c.Do(read))
			require.True(t, bytes.Equal(l.shadow[off:off+size], read.Got), "READ of %d bytes at %d", size, off)
		default:
			data := backendtest.Pattern(size, l.rng.Uint32())
			require.NoError(t, c.Do(c.Write(uint64(off), data, 0)))
			copy(l.shadow[off:], data)
		}
	}
}

// Legs are lost and come back under load, also in the middle of a resync, the source and the one that
// is copied to: READs are right all the time, and in the end all have everything.
func TestResyncUnderLoad(t *testing.T) {
	for name, tt := range map[string]struct {
		legs, lanes int
		minCopies   uint8
		cfg         rdmafake.Config
	}{
		"two legs":              {legs: 2, lanes: 2, minCopies: 1},
		"three legs":            {legs: 3, lanes: 1, minCopies: 1},
		"three legs, two count": {legs: 3, lanes: 2, minCopies: 2},
		"tiny queues":           {legs: 2, lanes: 1, minCopies: 1, cfg: rdmafake.Config{MaxSendWR: 2, MaxReads: 1}},
		"placed late":           {legs: 2, lanes: 2, minCopies: 1, cfg: rdmafake.Config{PlacesByDMA: true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				testResyncUnderLoad(t, fakesOf(t, tt.legs, tt.minCopies, tt.cfg), tt.lanes, rand.Uint64())
			})
		})
	}
}

func testResyncUnderLoad(t *testing.T, s pairs, lanes int, seed uint64) {
	d := s.slowly(t, lanes, 4<<20)
	l := newLoad(t, d, seed)
	rng := rand.New(rand.NewPCG(seed, 14))
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(l.rng.IntN(60)) * time.Millisecond):
				l.step(t)
			}
		}
	}()
	for range 25 {
		i := rng.IntN(len(s))
		switch rng.IntN(3) {
		case 0:
			s.network(i).Cut()
		case 1:
			s.network(i).Pause()
			time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
			s.network(i).Resume()
		default:
			s.network(i).Down()
			time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
			s.network(i).Up()
		}
		time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond) // about as long as a leg stays away
	}
	close(stop)
	<-ended
	s.inSync(t, d)
	require.True(t, bytes.Equal(l.shadow, s[0].region.Data()), "the copies are equal, and wrong")
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// slowly opens a device that copies so many bytes a second.
func (s pairs) slowly(t testing.TB, lanes int, rate uint64) *Device {
	cfg := s.config(t)
	cfg.Lanes, cfg.LegTimeout, cfg.ResyncRate = lanes, 1, rate
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	return d
}

// What a resync had under way when it was interrupted is nothing to the next one: the member may have
// lost what it had not made durable.
func TestResyncForgetsWhatWasUnderWay(t *testing.T) { synctest.Test(t, testResyncForgets) }

func testResyncForgets(t *testing.T) {
	s := fakes(t, 2, rdmafake.Config{})
	d := s.slowly(t, 1, 1<<20)
	s.behind(t, d, s.network(1))
	require.Eventually(t, func() bool { return d.legs[1].resyncProgress().Done > 0 }, patience, tick)
	s.network(1).Pause()
	st := d.core.streams[0]
	require.Eventually(t, func() bool {
		st.mu.Lock()
		defer st.mu.Unlock()
		return len(st.copying) > 0
	}, patience, tick)
	s.network(1).Down()
	require.Eventually(t, func() bool { return d.resyncing(1) == nil }, patience, tick)
	for i := range d.core.copies.pieces {
		require.Equal(t, pieceFree, d.core.copies.pieces[i].state, "piece %d", i)
	}
	s.network(1).Resume()
	s.network(1).Up()
	s.inSync(t, d)
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// A member that was put back from a copy of the session before its last one lacks everything, however
// late it is reached (mirror §3.6).
func TestRestoredMemberComesLate(t *testing.T) { synctest.Test(t, testRestoredMember) }

func testRestoredMember(t *testing.T) {
	s := fakes(t, 2, rdmafake.Config{})
	d := s.dialImpatient(t, 1)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	copied := append([]byte(nil), s[1].region.Data()...)
	require.NoError(t, d.Close())
	d = s.dialImpatient(t, 1)
	c = backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(2*stripe, backendtest.Pattern(block, 2), 0), c.Flush()))
	s.network(1).Down()
	require.NoError(t, c.Do(c.Write(4*stripe, backendtest.Pattern(block, 3), 0), c.Flush()))
	require.NoError(t, d.Close())
	copy(s[1].region.Data(), copied)
	r := s.record(0) // a region does not go back in a test, so the others say that it was one further
	r.Members[1].Epoch = s[1].region.Superblock().Epoch + 1
	require.NoError(t, s[0].region.SetRecord(r, 0))
	d = s.dialImpatient(t, 1)
	s.network(1).Up()
	s.inSync(t, d)
	require.NoError(t, d.Close())
}

// Nothing is written to a member that went its own way, not even that this life has opened it
// (mirror §4.6).
func TestOwnWayStaysAsItIs(t *testing.T) { synctest.Test(t, testOwnWayStays) }

func testOwnWayStays(t *testing.T) {
	s := fakes(t, 2, rdmafake.Config{})
	d := s.dialImpatient(t, 1)
	s.network(1).Down()
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	require.NoError(t, d.Close())
	d = s.dialImpatient(t, 1)
	r := s.record(1) // somebody began with it alone
	copy(r.Lineage[1:], r.Lineage[:])
	r.Lineage[0] = r.Ancestor
	r.Generation, r.F = persist.Generation{Life: 2, Count: 7, Nonce: [16]byte{9}}, 2
	require.NoError(t, s[1].region.SetRecord(r, 0))
	left := s[1].region.Superblock()
	s.network(1).Up()
	time.Sleep(time.Minute)
	require.Equal(t, left, s[1].region.Superblock())
	require.Equal(t, LegOwnWay, d.Snapshot().Mirror.Legs[1].State)
	require.NoError(t, d.Close())
}
