package remote

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/persist/target"
	"pmnbd/rdma/rdmafake"
)

// syncTimeout is that of the mirrors here.
const syncTimeout = 30 * time.Second

// dialSyncing opens a device that waits so long for a disk, and for ever for a target that is away.
func (s pairs) dialSyncing(t testing.TB) *Device {
	cfg := s.config(t)
	cfg.SyncTimeout, cfg.Jitter = syncTimeout, func() float64 { return 0 }
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	return d
}

// late is for how long the others have waited for leg i.
func (d *Device) late(i int) time.Duration { return d.Snapshot().Mirror.Legs[i].late() }

func (l *LegSnapshot) late() time.Duration { return time.Duration(l.Late * float64(time.Second)) }

// A member whose disk hangs answers heartbeats. It is let go all the same, once it has kept the others
// waiting for long, and comes back when its disk does (mirror §3.3).
func TestHungDiskIsLetGo(t *testing.T) {
	for name, tt := range map[string]struct {
		legs      int
		minCopies uint8
		hang      persist.Members
	}{
		"the first of two":         {2, 1, 1},
		"the second of two":        {2, 1, 2},
		"one of three":             {3, 2, 4},
		"two of three, one is due": {3, 1, 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testHungDisk(t, beating(t, tt.legs, tt.minCopies), tt.hang) })
		})
	}
}

func testHungDisk(t *testing.T, s pairs, hang persist.Members) {
	d := s.dialSyncing(t)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	all := s.record(0).F
	var releases []func()
	for i := range s {
		if hang.Has(i) {
			releases = append(releases, s[i].sync.blockData())
			defer releases[len(releases)-1]()
		}
	}
	flush := c.Flush()
	c.Submit(c.Write(0, backendtest.Pattern(block, 2), 0), flush)
	time.Sleep(syncTimeout / 2)
	require.False(t, flush.Completed())
	for i := range s {
		require.Equal(t, hang.Has(i), d.late(i) > syncTimeout/3, "leg %d: %v", i, d.late(i))
	}
	// The record without one is an acknowledgement of the other that hangs.
	require.Eventually(t, flush.Completed, time.Duration(hang.Count())*syncTimeout, time.Second)
	require.NoError(t, c.Wait(flush))
	for i := range s {
		if !hang.Has(i) {
			require.Equal(t, all&^hang, s.record(i).F)
			continue
		}
		l := d.Snapshot().Mirror.Legs[i]
		require.Equal(t, LegAway, l.State)
		require.Contains(t, l.Cause, "its disk hangs")
	}
	for _, release := range releases {
		release()
	}
	for range len(s[0].sync.began) {
		<-s[0].sync.began
	}
	s.inSync(t, d)
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// A disk that is slow and moves is waited for, however much slower than the others it is, and so are
// disks that all hang.
func TestSlowDiskIsNotLetGo(t *testing.T) {
	for name, slow := range map[string][2]time.Duration{
		"one is slow":      {0, syncTimeout - 5*time.Second},
		"both are slow":    {4 * syncTimeout, 4*syncTimeout + syncTimeout/2},
		"the other before": {3 * syncTimeout, 3*syncTimeout - syncTimeout/2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := beating(t, 2, 1)
				d := s.dialSyncing(t)
				c := backendtest.NewClient(t, d)
				for i := range s {
					s[i].sync.mu.Lock()
					s[i].sync.slow = slow[i]
					s[i].sync.mu.Unlock()
				}
				for i := range uint32(5) {
					flush := c.Flush()
					c.Submit(c.Write(0, backendtest.Pattern(block, i), 0), flush)
					require.Eventually(t, flush.Completed, time.Hour, time.Second)
					require.NoError(t, c.Wait(flush))
				}
				require.Equal(t, persist.Members(3), s.record(0).F)
				require.Equal(t, persist.Members(3), s.record(1).F)
				require.Zero(t, d.Snapshot().Recoveries)
				require.NoError(t, d.Close())
			})
		})
	}
}

// A member that M needs is not let go, and its session stays: a new one would make all pages dirty again.
func TestHungDiskBelowMin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := beating(t, 2, 2)
		d := s.dialSyncing(t)
		c := backendtest.NewClient(t, d)
		release := s[1].sync.blockData()
		defer release()
		flush := c.Flush()
		c.Submit(c.Write(0, backendtest.Pattern(block, 1), 0), flush)
		time.Sleep(time.Hour)
		require.False(t, flush.Completed())
		require.Zero(t, d.Snapshot().Recoveries)
		require.InDelta(t, time.Hour.Seconds(), d.late(1).Seconds(), 10)
		require.Zero(t, d.late(0))
		release()
		require.NoError(t, c.Wait(flush))
		require.Equal(t, persist.Members(3), s.record(0).F)
		require.NoError(t, d.Close())
	})
}

// --loss-timeout bounds the wait for a member that hangs, and that the mirror cannot do without.
func TestHungDiskAndLossTimeout(t *testing.T) {
	for name, hang := range map[string]persist.Members{"one that M needs": 2, "all": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := beating(t, 2, uint8(3-hang.Count()))
				cfg := s.config(t)
				cfg.SyncTimeout, cfg.LossTimeout = syncTimeout, 5*time.Minute
				d, err := Dial(t.Context(), cfg)
				require.NoError(t, err)
				c := backendtest.NewClient(t, d)
				for i := range s {
					if hang.Has(i) {
						defer s[i].sync.blockData()()
					}
				}
				flush := c.Flush()
				c.Submit(c.Write(0, backendtest.Pattern(block, 1), 0), flush)
				time.Sleep(4 * time.Minute)
				require.False(t, flush.Completed())
				require.Equal(t, StateOpen, d.Snapshot().State)
				time.Sleep(2 * time.Minute)
				require.ErrorIs(t, c.Wait(flush), backend.ErrFailed)
				require.Contains(t, d.Snapshot().Cause, "the loss timeout is 5m0s")
				require.Error(t, d.Close())
			})
		})
	}
}

// A member that hangs at the record of a new generation is let go, too.
func TestHungRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := beating(t, 3, 1)
		cfg := s.config(t)
		cfg.SyncTimeout, cfg.LegTimeout = syncTimeout, 1
		d, err := Dial(t.Context(), cfg)
		require.NoError(t, err)
		c := backendtest.NewClient(t, d)
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
		release := s[0].sync.block()
		defer release()
		s.network(1).Down()
		flush := c.Flush()
		c.Submit(c.Write(0, backendtest.Pattern(block, 2), 0), flush)
		<-s[0].sync.began
		time.Sleep(syncTimeout / 2)
		require.False(t, flush.Completed())
		require.Positive(t, d.late(0))
		time.Sleep(syncTimeout)
		require.NoError(t, c.Wait(flush))
		require.Equal(t, persist.Member(2), s.record(2).F)
		release()
		s.network(1).Up()
		s.inSync(t, d)
		require.NoError(t, d.Close())
	})
}

// A member that hangs while it is being copied to keeps FLUSH waiting, too (mirror §5.4). It stays out
// for longer each time.
func TestHungResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := beating(t, 2, 1)
		cfg := s.config(t)
		cfg.SyncTimeout, cfg.LegTimeout, cfg.ResyncRate = syncTimeout, 1, 1<<20
		d, err := Dial(t.Context(), cfg)
		require.NoError(t, err)
		c := backendtest.NewClient(t, d)
		s.network(1).Down()
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(stripe, 1), 0), c.Write(3*stripe, backendtest.Pattern(stripe, 1), 0), c.Flush()))
		release := s[1].sync.blockData()
		defer func() { release() }()
		s.network(1).Up()
		for i := range uint32(3) {
			require.Eventually(t, func() bool { return d.Snapshot().Mirror.Legs[1].State == LegResync }, 2*time.Hour, time.Second)
			began := time.Now()
			flush := c.Flush()
			c.Submit(c.Write(0, backendtest.Pattern(block, i), 0), flush)
			require.Eventually(t, flush.Completed, time.Hour, time.Second)
			require.Less(t, time.Since(began), 2*syncTimeout)
			require.Equal(t, LegTorn, d.Snapshot().Mirror.Legs[1].State)
			d.core.commit.mu.Lock()
			require.Equal(t, syncTimeout<<i, d.legs[1].sits.pause)
			d.core.commit.mu.Unlock()
			release()
			release = s[1].sync.blockData()
			<-s[1].sync.began
		}
		release()
		s.inSync(t, d)
		require.NoError(t, d.Close())
	})
}

// A leg that stays out comes back at once if the mirror cannot go on without it.
func TestSittingOutEndsWhenItIsNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := beating(t, 3, 2)
		d := s.dialSyncing(t)
		c := backendtest.NewClient(t, d)
		release := s[2].sync.blockData()
		flush := c.Flush()
		c.Submit(c.Write(0, backendtest.Pattern(block, 1), 0), flush)
		require.Eventually(t, flush.Completed, time.Hour, time.Second)
		release()
		require.Equal(t, persist.Members(3), s.record(0).F)
		s.network(1).Down()
		flush = c.Flush()
		c.Submit(c.Write(0, backendtest.Pattern(block, 2), 0), flush)
		require.Eventually(t, func() bool { return d.legs[2].up.Load() }, syncTimeout/2, time.Second)
		s.network(1).Up()
		require.NoError(t, c.Wait(flush))
		s.inSync(t, d)
		require.NoError(t, d.Close())
	})
}

// A member that stays out hears at once that it was removed, and its place is free for another one.
func TestRemoveAMemberThatSitsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := beating(t, 4, 2)
		d := s.dialSyncing(t)
		c := backendtest.NewClient(t, d)
		release := s[3].sync.blockData()
		defer release()
		flush := c.Flush()
		c.Submit(c.Write(0, backendtest.Pattern(block, 1), 0), flush)
		require.Eventually(t, flush.Completed, time.Hour, time.Second)
		require.Equal(t, persist.Members(7), s.record(0).F)
		g := d.legs[3]
		d.core.commit.mu.Lock()
		g.sits.until = time.Now().Add(maxSitting) // as after some times
		d.core.commit.mu.Unlock()
		release()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // of pmnbd mirror remove
		defer cancel()
		told, err := d.RemoveMember(ctx, 3)
		require.NoError(t, err)
		require.NoError(t, told)
		require.Zero(t, s.record(3))
		d.core.commit.mu.Lock()
		require.Zero(t, g.sits, "what it did says nothing of the next one")
		d.core.commit.mu.Unlock()
		s = append(s, newPair(t, rdmafake.New(rdmafake.Config{}), "fake:new", "", target.Config{}))
		cfg := s[4:].config(t)
		p, err := PrepareMember(t.Context(), cfg, s.record(0).Set, regionSize, false)
		require.NoError(t, err)
		slot, err := d.AddMember(t.Context(), cfg.Members[0], p)
		require.NoError(t, err)
		require.Equal(t, 3, slot)
		require.Eventually(t, func() bool { return d.equal() == 15 }, patience, tick)
		require.NoError(t, d.Close())
	})
}
