package remote

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/persist"
)

// dialSyncing opens a device that waits so long for a disk.
func (a *arbitrated) dialSyncing(t *testing.T) (*Device, *backendtest.Client) {
	t.Helper()
	a.cfg.SyncTimeout, a.cfg.Jitter = syncTimeout, func() float64 { return 0 }
	return a.dial(t)
}

// hang has member i hang, and submits a FLUSH that waits for it.
func (a *arbitrated) hang(c *backendtest.Client, i int) (flush *backendtest.Request, release func()) {
	release = a.pairs[i].sync.blockData()
	flush = c.Flush()
	c.Submit(c.Write(0, backendtest.Pattern(block, 2), 0), flush)
	return flush, release
}

// While the arbiter does not answer, nobody can let a member go that hangs. FLUSHes and READs go on when its disk does,
// whether its session was ended before anybody knew that the arbiter is away, or not (mirror §3.3, §4.8).
func TestHungDiskWhileTheArbiterIsAway(t *testing.T) {
	for name, after := range map[string]time.Duration{
		"the arbiter is lost first":                            0,
		"the arbiter is lost just before the session is ended": syncTimeout + 3*time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newArbitrated(t)
				d, c := a.dialSyncing(t)
				flush, release := a.hang(c, 1)
				defer release()
				defer d.inVain()
				time.Sleep(after)
				require.False(t, flush.Completed())
				a.cutOff(true)
				time.Sleep(ages)
				require.False(t, flush.Completed())
				ended := LegInSync
				if after != 0 {
					ended = LegAway
				}
				require.Equal(t, ended, d.Snapshot().Mirror.Legs[1].State)
				release()
				time.Sleep(time.Minute)
				require.True(t, flush.Completed(), "its disk answers")
				require.NoError(t, c.Wait(flush))
				read := c.Read(0, block, 0)
				c.Submit(read)
				time.Sleep(time.Minute)
				require.True(t, read.Completed(), "all members in sync are heard")
				require.Equal(t, persist.Members(3), a.record(0).F)
				a.cutOff(false)
				require.NoError(t, d.Close())
			})
		})
	}
}

// A member that still hangs when the arbiter is back is let go.
func TestHungDiskWhenTheArbiterIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArbitrated(t)
		d, c := a.dialSyncing(t)
		flush, release := a.hang(c, 1)
		defer d.inVain()
		defer release()
		a.cutOff(true)
		time.Sleep(ages)
		require.False(t, flush.Completed())
		a.cutOff(false)
		time.Sleep(time.Minute)
		require.True(t, flush.Completed())
		require.NoError(t, c.Wait(flush))
		require.Equal(t, persist.Members(1), a.record(0).F)
		release()
		a.inSync(t, d)
		require.NoError(t, d.Close())
	})
}

// An arbiter that did not answer once, and that nobody has asked since, is asked before a member that hangs is taken for
// one that nobody can let go.
func TestHungDiskLongAfterTheArbiterWasAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArbitrated(t)
		d, c := a.dialSyncing(t)
		defer d.inVain()
		a.cutOff(true)
		a.network(1).Down()
		time.Sleep(3 * time.Second) // the lease lasts
		a.network(1).Up()
		require.Eventually(t, d.legs[1].up.Load, time.Minute, 10*time.Millisecond)
		a.cutOff(false)
		a.inSync(t, d)
		require.NotEmpty(t, d.Snapshot().Mirror.Arbiter.Cause)
		flush, release := a.hang(c, 1)
		defer release()
		time.Sleep(2 * syncTimeout)
		require.True(t, flush.Completed())
		require.Equal(t, persist.Members(1), a.record(0).F)
		release()
		a.inSync(t, d)
	})
}

// --loss-timeout bounds the wait for one that nobody can let go, too.
func TestHungDiskWithoutAnArbiterAndLossTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArbitrated(t)
		a.cfg.LossTimeout = 5 * time.Minute
		d, c := a.dialSyncing(t)
		flush, release := a.hang(c, 1)
		defer release()
		a.cutOff(true)
		time.Sleep(4 * time.Minute)
		require.False(t, flush.Completed())
		time.Sleep(2 * time.Minute)
		require.True(t, flush.Completed())
		require.ErrorIs(t, c.Wait(flush), backend.ErrFailed)
		require.Error(t, d.Close())
	})
}

// The same holds where another member would stand in for one that hangs and is needed: it comes back while the arbiter
// does not answer.
func TestNobodyStandsInWhileTheArbiterIsAway(t *testing.T) {
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
		release := s[2].sync.blockData()
		defer release()
		flush := c.Flush()
		c.Submit(c.Write(stripe, backendtest.Pattern(block, 2), 0), flush)
		time.Sleep(time.Minute)
		a.cutOff(true)
		time.Sleep(ages)
		require.False(t, flush.Completed())
		require.Equal(t, persist.Members(5), s.record(0).F)
		release()
		time.Sleep(time.Minute)
		require.True(t, flush.Completed(), "A and C are there")
		require.NoError(t, c.Wait(flush))
	})
}

// An answer of the arbiter that did not come, long ago, does not have the device fail at once when the others get through
// after the loss timeout: the arbiter is asked first.
func TestHungDiskBesideASlowOneAndLossTimeout(t *testing.T) {
	for _, after := range []time.Duration{500 * time.Millisecond, time.Second, 1500 * time.Millisecond, 1900 * time.Millisecond} { // before the next heartbeat of both
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newArbitrated(t)
				a.cfg.LossTimeout = 5 * time.Minute
				d, c := a.dialSyncing(t)
				defer d.inVain()
				a.cutOff(true)
				a.network(1).Down()
				time.Sleep(3 * time.Second)
				a.network(1).Up()
				time.Sleep(time.Second)
				a.cutOff(false)
				a.inSync(t, d)
				time.Sleep(time.Minute)
				require.NotEmpty(t, d.Snapshot().Mirror.Arbiter.Cause, "nobody has asked it since")
				a.pairs[0].sync.takes(a.cfg.LossTimeout + after)
				flush, release := a.hang(c, 1)
				defer release()
				time.Sleep(time.Minute)
				a.pairs[0].sync.takes(0)
				time.Sleep(10 * time.Minute)
				require.True(t, flush.Completed())
				require.NoError(t, c.Wait(flush))
				require.Equal(t, persist.Members(1), a.record(0).F)
			})
		})
	}
}
