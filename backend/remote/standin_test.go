package remote

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/rdma/rdmafake"
)

// dialWritten opens a device, and flushes a block that all members get.
func (s pairs) dialWritten(t *testing.T, cfg Config) (*Device, *backendtest.Client) {
	t.Helper()
	d, err := Dial(t.Context(), cfg)
	require.NoError(t, err)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	return d, c
}

// letsGo takes member i away, and flushes a block that it does not get. So the mirror lets it go.
func (s pairs) letsGo(t *testing.T, c *backendtest.Client, i int) {
	t.Helper()
	s.network(i).Down()
	require.NoError(t, c.Do(c.Write(2*stripe, backendtest.Pattern(block, 3), 0), c.Flush()))
	require.False(t, s.record((i+1)%len(s)).F.Has(i))
}

// A member outside F stands in for one that is lost and that the mirror cannot do without, whenever it comes. It gets
// everything before a FLUSH succeeds (mirror §3.3).
func TestMemberStandsIn(t *testing.T) {
	for name, c := range map[string]struct {
		first bool // it comes back before the other one is lost
		lost  bool // it has lost its contents
		back  bool // the other one comes back in the end
	}{
		"it comes back": {},
		"it comes back, and so does the other one": {back: true},
		"it comes back without its contents":       {lost: true},
		"it was copied to already":                 {first: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakesOf(t, 3, 2, rdmafake.Config{})
				cfg := s.config(t)
				cfg.Lanes, cfg.LegTimeout = 1, 1
				if c.first {
					cfg.ResyncRate = 1
				}
				d, client := s.dialWritten(t, cfg)
				defer d.inVain()
				s.letsGo(t, client, 2)
				if c.lost {
					s.wipe(t, 2)
				}
				if c.first {
					s.up(2)
					time.Sleep(time.Minute)
				}
				s.network(0).Down()
				if c.first {
					flush := client.Flush()
					client.Submit(client.Write(stripe, backendtest.Pattern(block, 2), 0), flush)
					require.NoError(t, client.Wait(flush))
				} else {
					goesOn := s.waits(t, client)
					s.up(2)
					goesOn(6)
				}
				require.Equal(t, persist.Members(6), s.record(1).F)
				require.Equal(t, s[2].region.Superblock().Contents, new(s.record(1)).Members[2].Contents)
				want := persist.Members(6)
				if c.back {
					s.up(0)
					time.Sleep(ages)
					want = 7
				}
				require.Equal(t, want, d.equal())
				backendtest.AllBack(t, d)
				require.NoError(t, d.Close())
				require.True(t, bytes.Equal(s[1].region.Data(), s[2].region.Data()))
				if c.back {
					require.True(t, bytes.Equal(s[0].region.Data(), s[1].region.Data()))
				}
				s.up(0)
				d = s.dial(t, 1)
				require.True(t, d.equal()&2 != 0)
				require.NoError(t, d.Close())
			})
		})
	}
}

// The next run of a life that was killed has a member stand in, too.
func TestMemberStandsInAfterAKill(t *testing.T) {
	h := newMirrorHostOf(t, 3, 2)
	h.cfg.LegTimeout = time.Second
	d, c := h.run()
	h.write(c, 0, block)
	require.NoError(t, c.Do(c.Flush()))
	h.network(2).Down()
	require.Eventually(t, func() bool { return h.record(0).F == 3 && h.record(1).F == 3 }, patience, tick)
	h.write(c, stripe, block)
	require.NoError(t, c.Do(c.Flush()))
	h.write(c, 2*stripe, block)
	h.kill(d)
	h.network(0).Down()
	h.up(2)
	d, c = h.run()
	h.readsAll(c)
	require.Equal(t, persist.Members(6), d.equal())
	h.up(0)
	require.Eventually(t, func() bool { return d.equal() == 7 }, patience, tick)
	require.NoError(t, d.Close())
	h.has(h.all())
}

// A member that was put back from a copy, and that another one stands in for, lacks what the copy lacks. Its contents id
// does not tell that, so its bits have to (mirror §3.6).
func TestStandInForARestoredMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakesOf(t, 3, 2, rdmafake.Config{})
		cfg := s.config(t)
		cfg.LegTimeout = time.Second
		old := bytes.Clone(s[0].region.Data()[:block])
		d, c := s.dialWritten(t, cfg)
		defer d.inVain()
		s.letsGo(t, c, 2)
		s.network(0).Down()
		copy(s[0].region.Data(), old)
		d.legs[0].mark.Add(1) // the copy's mark is lower by one, and its epoch the same
		s.up(0)
		time.Sleep(time.Minute)
		s.network(0).Down() // its target refuses nothing that comes after this
		s.up(2)
		time.Sleep(ages)
		require.Equal(t, persist.Members(6), s.record(1).F)
		require.NoError(t, c.Do(c.Flush()))
		backendtest.AllBack(t, d)
		require.NoError(t, d.Close())
		s.up(0)
		d = s.dial(t, 1)
		s.inSync(t, d)
		require.NoError(t, d.Close())
		require.True(t, bytes.Equal(s[0].region.Data(), s[1].region.Data()))
	})
}

// If the others are lost while everything is copied to a member that stands in, an operator begins with the one that it
// stands in for. The one that stood in has nothing of its own, and is copied to (mirror §4.6).
func TestDegradedStartBehindAStandIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := beating(t, 3, 2)
		cfg := s.config(t)
		cfg.Lanes, cfg.LegTimeout, cfg.ResyncRate = 1, 1, 1
		d, client := s.dialWritten(t, cfg)
		s.letsGo(t, client, 2)
		s.network(0).Down()
		time.Sleep(time.Minute)
		s.up(2)
		time.Sleep(time.Minute)
		require.Equal(t, persist.Members(6), s.record(1).F)
		require.Equal(t, persist.Members(6), s.record(2).F)
		s.network(1).Down()
		d.inVain()
		s.up(0)
		cfg = s.config(t)
		cfg.Lanes, cfg.LegTimeout = 1, 1
		cfg.Degraded, cfg.AcceptLoss = true, true
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		d, err := Dial(ctx, cfg)
		require.NoError(t, err)
		client = backendtest.NewClient(t, d)
		require.NoError(t, client.Do(client.Write(stripe, backendtest.Pattern(block, 5), 0), client.Flush()))
		require.Equal(t, persist.Members(5), d.equal())
		backendtest.AllBack(t, d)
		require.NoError(t, d.Close())
		require.True(t, bytes.Equal(s[0].region.Data(), s[2].region.Data()))
	})
}

// With an arbiter it stands in, too, also one that came without its contents. The arbiter is asked before its session is
// over: it comes again when the answer is old.
func TestMemberStandsInWithAnArbiter(t *testing.T) {
	for name, lost := range map[string]bool{"with its contents": false, "without them": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := beating(t, 3, 2)
				cfg := s.config(t)
				cfg.Arbiter, cfg.LegTimeout = newFakeArbiter(), time.Second
				d, c := s.dialWritten(t, cfg)
				defer d.inVain()
				s.letsGo(t, c, 2)
				if lost {
					s.wipe(t, 2)
				}
				s.network(0).Down()
				goesOn := s.waits(t, c)
				s.up(2)
				goesOn(6)
				backendtest.AllBack(t, d)
				require.NoError(t, d.Close())
				s.up(0)
			})
		})
	}
}

// A member is let go, and the one that is needed instead hangs at the RECORD. The first one is taken back.
func TestHungRecordBelowMin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := beating(t, 3, 2)
		cfg := s.config(t)
		cfg.Lanes, cfg.LegTimeout, cfg.SyncTimeout = 1, time.Second, time.Minute
		d, c := s.dialWritten(t, cfg)
		release := s[2].sync.block()
		defer release()
		s.network(0).Down()
		<-s[2].sync.began // its record, without A
		s.up(0)
		flush := c.Flush()
		c.Submit(c.Write(stripe, backendtest.Pattern(block, 2), 0), flush)
		time.Sleep(time.Hour)
		done := flush.Completed()
		release()
		d.inVain()
		require.True(t, done, "A and B are there")
	})
}

// A member hangs while it stands in for another one, which is back then. The mirror goes on with that (mirror §3.3).
func TestStandInHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := beating(t, 3, 2)
		cfg := s.config(t)
		cfg.Lanes, cfg.LegTimeout, cfg.SyncTimeout, cfg.ResyncRate = 1, time.Second, time.Minute, 1
		d, c := s.dialWritten(t, cfg)
		s.letsGo(t, c, 2)
		s.network(0).Down()
		time.Sleep(time.Minute)
		s.up(2)
		time.Sleep(2 * time.Minute)
		f := s.record(1).F
		release := s[2].sync.block()
		defer release()
		flush := c.Flush()
		c.Submit(c.Write(stripe, backendtest.Pattern(block, 4), 0), flush)
		time.Sleep(time.Minute)
		s.up(0)
		time.Sleep(time.Hour)
		require.Equal(t, persist.Members(6), f)
		require.Equal(t, persist.Members(3), s.record(1).F)
		release()
		d.inVain()
	})
}

// Two hang at the same time, and one member is there that could stand in for either of them, but not for both. They are
// not both left out: once their disks answer again, the mirror goes on (mirror §3.3).
func TestTwoHangAndOneCouldStandIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := beating(t, 4, 3)
		cfg := s.config(t)
		cfg.Lanes, cfg.LegTimeout, cfg.SyncTimeout, cfg.ResyncRate = 1, time.Second, time.Minute, 1
		d, err := Dial(t.Context(), cfg)
		require.NoError(t, err)
		defer d.inVain()
		c := backendtest.NewClient(t, d)
		s.network(3).Down()
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(4*stripe, 1), 0), c.Flush())) // D is let go, and copied to slowly
		s.up(3)
		time.Sleep(time.Minute)
		require.Equal(t, persist.Members(7), s.record(0).F)
		one, two := s[1].sync.block(), s[2].sync.block()
		defer one()
		defer two()
		flush := c.Flush()
		c.Submit(c.Write(stripe, backendtest.Pattern(block, 2), 0), flush)
		time.Sleep(ages)
		one()
		two()
		time.Sleep(time.Hour)
		require.True(t, flush.Completed(), "A, B and C are there")
		require.NoError(t, c.Wait(flush))
	})
}

// A needed member is to be replaced because it hangs, and the arbiter does not answer. Until it does another member is
// lost, so nobody can replace the first one any more. That comes back when its disk answers, also if the arbiter answered
// before (mirror §3.3).
func TestNobodyReplacesOneThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := beating(t, 3, 2)
		a := newFakeArbiter()
		cfg := s.config(t)
		cfg.Arbiter, cfg.Lanes, cfg.LegTimeout, cfg.SyncTimeout, cfg.ResyncRate = a, 1, time.Second, time.Minute, 1
		d, err := Dial(t.Context(), cfg)
		require.NoError(t, err)
		defer d.inVain()
		c := backendtest.NewClient(t, d)
		s.network(1).Down()
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(4*stripe, 1), 0), c.Flush())) // B is let go, and copied to slowly
		s.up(1)
		time.Sleep(time.Minute)
		require.Equal(t, persist.Members(5), s.record(0).F)
		release := s[2].sync.block()
		defer release()
		flush := c.Flush()
		c.Submit(c.Write(stripe, backendtest.Pattern(block, 2), 0), flush)
		time.Sleep(time.Minute)
		a.cutOff(true) // the lease lasts until the session of C is ended
		time.Sleep(ages)
		s.network(0).Down()
		time.Sleep(time.Minute)
		a.cutOff(false)
		time.Sleep(time.Minute)
		release()
		time.Sleep(time.Hour)
		require.Equal(t, persist.Members(6), s.record(2).F, "B and C are there")
		s.up(0)
	})
}

// A member does not stand in while another one is away that the generation would need: whichever of the two that are away
// comes back, the mirror goes on with it (mirror §3.3).
func TestStandInWithTwoAway(t *testing.T) {
	for name, back := range map[string]int{"the first comes back": 0, "the last comes back": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakesOf(t, 4, 2, rdmafake.Config{})
				cfg := s.config(t)
				cfg.Lanes, cfg.LegTimeout = 1, 10*time.Second
				d, c := s.dialWritten(t, cfg)
				defer d.inVain()
				s.network(2).Down()
				s.letsGo(t, c, 3)
				require.Equal(t, persist.Members(3), s.record(0).F)
				s.network(0).Down()
				time.Sleep(5 * time.Second)
				s.network(1).Down()
				s.up(2)
				goesOn := s.waits(t, c)
				s.up(back)
				goesOn(persist.Member(back) | 4)
				for i := range s {
					s.up(i)
				}
				time.Sleep(ages)
				require.Equal(t, persist.Members(15), d.equal())
				backendtest.AllBack(t, d)
				require.NoError(t, d.Close())
			})
		})
	}
}
