package remote

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/target"
	"pmnbd/persist/wire"
	"pmnbd/rdma/rdmafake"
)

// A life begins behind one that had no end. Its clients read from the source what the life before had not flushed. Until
// the source's target has settled its doubt, a power failure there could take that back, so no FLUSH succeeds before
// (mirror §4.4). The life serves meanwhile: a target of persistent memory keeps a record without settling its doubt first.
func TestSourceInDoubt(t *testing.T) {
	for name, tt := range map[string]struct {
		legs   int  // if there is a B, the life before let it go, and it stays away
		writes bool // clients write before the FLUSH
	}{
		"nothing is dirty": {2, false},
		"the method of the session goes past the CPU": {1, true}, // no member is out, so no barrier sets bits
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cpu := make(chan struct{}, 1) // while it is full, A's target writes nothing back
				s := pairs{flushing(t, rdmafake.Config{}, func(_, _ uint64) { cpu <- struct{}{}; <-cpu })}
				for range tt.legs - 1 {
					s = append(s, flushing(t, rdmafake.Config{}, nil))
				}
				s.join(t, 1)
				cfg := s.config(t)
				cfg.LegTimeout, cfg.Takeover = 1, true // the lease has tests of its own
				d, c := s.dialWritten(t, cfg)
				if tt.legs > 1 {
					s.letsGo(t, c, 1)
				}
				read := func() {
					t.Helper()
					r := c.Read(0, block, 0)
					require.NoError(t, c.Do(r))
					require.Equal(t, backendtest.Pattern(block, 2), r.Got)
				}
				require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 2), 0)))
				read() // it comes behind the write, so A has that
				s.die(t, d)
				require.False(t, s[0].region.Superblock().Doubt)

				cpu <- struct{}{}
				release := sync.OnceFunc(func() { <-cpu })
				t.Cleanup(release)
				d, err := Dial(t.Context(), cfg)
				require.NoError(t, err)
				defer d.inVain()
				c = backendtest.NewClient(t, d)
				require.Equal(t, persist.Member(0), s.record(0).F)
				require.Equal(t, persist.MethodFlush, d.legs[0].method)
				require.NotZero(t, d.legs[0].granted.Flags&wire.OpenedDoubt)
				read()
				flush := c.Flush()
				if tt.writes {
					c.Submit(c.Write(stripe, backendtest.Pattern(block, 4), 0))
				}
				c.Submit(flush)
				time.Sleep(ages)
				require.True(t, s[0].region.Superblock().Doubt)
				require.False(t, flush.Completed(), "what was read is not durable")
				release()
				require.NoError(t, c.Wait(flush))
				require.False(t, s[0].region.Superblock().Doubt)
				require.False(t, d.Snapshot().Doubt)
				require.NoError(t, d.Close())
			})
		})
	}
}

// A life that copies first reads from a source in doubt, which is away before it has acknowledged any barrier. The others
// have got its bytes, and FLUSHes succeed without it. It comes back with nothing to copy, and in doubt still, so what was
// flushed may not be durable there. The mirror takes it in once its target has settled the doubt (mirror §5.5). If that
// hangs, nobody waits for longer than for any other barrier.
func TestMemberInDoubtIsNotTakenIn(t *testing.T) {
	for name, hangs := range map[string]bool{"it settles its doubt": false, "it hangs": true} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testMemberInDoubt(t, hangs) }) })
	}
}

func testMemberInDoubt(t *testing.T, hangs bool) {
	var s pairs
	cpu := make(chan struct{}, 1) // while it is full, B's target writes nothing back
	for i := range 3 {
		medium := regiontest.Medium{PMem: region.DomainMemory, Data: regiontest.Discard}
		if i == 1 {
			medium.Data = func(_, _ uint64) { cpu <- struct{}{}; <-cpu }
		}
		s = append(s, newPairOn(t, rdmafake.New(rdmafake.Config{PersistentFlush: true}), "", inMemory(t), target.Config{Heartbeat: 2 * time.Second, Lease: 10 * time.Second}, medium))
	}
	s.join(t, 2)
	release := sync.OnceFunc(func() { <-cpu })
	begun := s.copyingFirst(t, func(cfg *Config) {
		cfg.LegTimeout = 10 * time.Second
		if hangs {
			cfg.SyncTimeout = syncTimeout
		}
		slices.Reverse(cfg.Members) // bits come from C, which knows that B lacks nothing
		cpu <- struct{}{}
	})
	t.Cleanup(release)
	time.Sleep(time.Hour)
	require.Equal(t, persist.Members(3), s.record(2).F, "C has everything, and no barrier has succeeded")
	s.network(1).Down()
	time.Sleep(5 * time.Second)
	s.network(1).Up()
	d, err := begun()
	require.NoError(t, err)
	defer d.inVain()
	c := backendtest.NewClient(t, d)
	reads := func() {
		t.Helper()
		r := c.Read(0, block, 0)
		require.NoError(t, c.Do(r))
		require.Equal(t, backendtest.Pattern(3*stripe, 1)[:block], r.Got)
	}
	reads()
	require.Equal(t, persist.Members(6), s.record(2).F)
	flush := c.Flush()
	c.Submit(flush)
	time.Sleep(time.Minute)
	require.False(t, flush.Completed(), "what was read is not durable at B")
	s.network(1).Down()
	s.network(0).Up() // it stands in
	time.Sleep(time.Hour)
	require.True(t, flush.Completed())
	require.Equal(t, persist.Members(5), s.record(2).F)

	s.network(1).Up()
	time.Sleep(10 * time.Second)
	require.True(t, d.legs[1].up.Load())
	require.Equal(t, persist.Members(5), s.record(2).F, "what was flushed is not durable at B")
	flush = c.Flush()
	c.Submit(c.Write(stripe, backendtest.Pattern(block, 2), 0), flush)
	time.Sleep(2 * syncTimeout)
	require.Equal(t, hangs, flush.Completed())
	require.True(t, s[1].region.Superblock().Doubt)
	require.Equal(t, persist.Members(5), s.record(2).F)
	reads()
	release()
	time.Sleep(time.Hour)
	require.True(t, flush.Completed())
	require.False(t, s[1].region.Superblock().Doubt)
	require.Equal(t, persist.Members(7), s.record(2).F)
	require.NoError(t, d.Close())
}

// A member that follows is in no F. It need not have settled its doubt before, and no FLUSH waits for that.
func TestFollowerInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cpu := make(chan struct{}, 1) // while it is full, B's target writes nothing back
		s := pairs{flushing(t, rdmafake.Config{}, nil), flushing(t, rdmafake.Config{}, func(_, _ uint64) { cpu <- struct{}{}; <-cpu })}
		s.joinFollowed(t, 1)
		d := s.dialAsync(t, 1, nil)
		s.follows(t, d, 1)
		s.network(1).Down()
		require.NoError(t, d.Close())
		require.NoError(t, s[0].region.ClearBits(1, []persist.Range{{Len: regionSize}})) // as barriers do in time

		s.network(1).Up()
		cpu <- struct{}{}
		release := sync.OnceFunc(func() { <-cpu })
		t.Cleanup(release)
		d = s.dialAsync(t, 1, nil)
		defer d.inVain()
		s.follows(t, d, 1)
		c := backendtest.NewClient(t, d)
		require.NoError(t, c.Do(c.Flush()))
		require.True(t, s[1].region.Superblock().Doubt)
		release()
		require.NoError(t, d.Close())
	})
}
