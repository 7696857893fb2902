package remote

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist/target"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// One outage is one patience, until the session has shown that it lives.
func TestOutage(t *testing.T) {
	began := time.Now()
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	for _, tt := range []struct {
		name             string
		lived            int    // seconds, when it was lost again
		barriers         uint64 // that had succeeded then
		waited, answered bool
		over             bool
	}{
		{name: "lost at once, nobody waited", lived: 1, barriers: 7, answered: true},
		{name: "it lasted, nobody waited", lived: 11, barriers: 7, answered: true, over: true},
		{name: "a barrier succeeded, nobody waited", lived: 1, barriers: 8, answered: true, over: true},
		{name: "what waited was answered", lived: 1, barriers: 8, waited: true, answered: true, over: true},
		{name: "it lasted, what waited was not answered", lived: 11, barriers: 7, waited: true},
		{name: "a barrier succeeded, a READ waits still", lived: 11, barriers: 8, waited: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var o outage
			o.lost(at(0), 7, false, true)
			require.Equal(t, outage{since: at(0), barriers: 7}, o)
			o.attempts, o.back = 3, at(1)
			now := at(1 + tt.lived)
			o.lost(now, tt.barriers, tt.waited, tt.answered)
			if tt.over {
				require.Equal(t, outage{since: now, barriers: tt.barriers}, o)
				return
			}
			require.Equal(t, outage{since: at(0), barriers: 7, attempts: 3, back: at(1)}, o)
		})
	}
}

// What waits for a session is owed until it is answered, and nothing that comes later.
func TestDebt(t *testing.T) {
	for _, tt := range []struct {
		name string
		wait func(c *backendtest.Client) // submits, and waits for what need not wait
		owes bool
	}{
		{"nothing", func(*backendtest.Client) {}, false},
		{"a write that was acknowledged", func(c *backendtest.Client) {
			require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 2), 0)))
		}, true},
		{"a FLUSH", func(c *backendtest.Client) { c.Submit(c.Write(0, backendtest.Pattern(block, 2), 0), c.Flush()) }, true},
		{"a READ", func(c *backendtest.Client) { c.Submit(c.Read(0, block, 0)) }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := fake(t, rdmafake.Config{})
			network := p.provider.(*rdmafake.Provider)
			d := p.dialPatient(t, 2)
			c := backendtest.NewClient(t, d)
			require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush(), c.Read(0, block, 0)))
			network.Pause()
			tt.wait(c)
			d.core.commit.mu.Lock()
			owes := d.core.owedLocked()
			d.core.commit.mu.Unlock()
			require.Equal(t, tt.owes, owes.any())
			require.Equal(t, !tt.owes, d.core.answered(&owes))
			later := c.Read(block, block, 0)
			c.Submit(later)
			require.Equal(t, !tt.owes, d.core.answered(&owes))
			network.Resume()
			require.NoError(t, c.Do(c.Flush()))
			require.NoError(t, c.Wait(later))
			require.True(t, d.core.answered(&owes))
			require.NoError(t, d.Close())
		})
	}
}

// A session that comes back again and again, and each time carries heartbeats and
// nothing else, is away: --loss-timeout ends it, however long it lived in between.
func TestBackForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed atomic.Bool
		narrow := wrapped{rdmafake.New(rdmafake.Config{}), func(c rdma.Conn) rdma.Conn { return &narrowConn{Conn: c, closed: &closed} }}
		p := newPair(t, narrow, "", "", target.Config{Heartbeat: 2 * time.Second, Lease: 10 * time.Second})
		cfg := p.config(t)
		cfg.LossTimeout = 11 * time.Second // it lives for 12 each time, longer than lasts
		d, err := Dial(t.Context(), cfg)
		require.NoError(t, err)
		c := backendtest.NewClient(t, d)
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
		closed.Store(true)
		require.ErrorContains(t, c.Do(c.Write(0, backendtest.Pattern(block, 2), 0), c.Flush()), "away for 11s")
		require.Positive(t, d.legs[0].generation.Load(), "it came back")
		require.Error(t, d.Close())
	})
}

// A narrowConn lets no Write pass once its network is closed, nor what comes behind one.
type narrowConn struct {
	rdma.Conn
	closed *atomic.Bool
	stuck  atomic.Bool
}

func (c *narrowConn) Post(wrs []rdma.WorkRequest) (int, error) {
	for _, wr := range wrs {
		if wr.Op == rdma.OpWrite && c.closed.Load() {
			c.stuck.Store(true)
		}
	}
	if c.stuck.Load() {
		return len(wrs), nil
	}
	return c.Conn.Post(wrs)
}
