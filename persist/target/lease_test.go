package target

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

func TestLease(t *testing.T) {
	path := onDisk(t)
	t.Run("another id waits while the lease runs", func(t *testing.T) {
		s := serveRegion(t, path, nil, Config{})
		s.connect(t).open(alice)
		r := s.connect(t).refused(bob, 0)
		require.Equal(t, wire.CodeBusy, r.Code)
		require.Equal(t, alice.ID, r.Holder)
		require.InDelta(t, Lease.Seconds(), float64(r.Seconds), 5)
	})
	t.Run("the owner's own id is told how long, and need not wait", func(t *testing.T) {
		s := serveRegion(t, path, nil, Config{})
		p := s.connect(t)
		o := p.open(alice)
		r := s.connect(t).refused(alice, 0)
		require.Equal(t, wire.CodeEpoch, r.Code)
		require.InDelta(t, Lease.Seconds(), float64(r.Seconds), 5)
		var closed wire.Closed
		p.ask(&wire.Close{Epoch: o.Epoch}, &closed)
		require.Zero(t, s.connect(t).refused(alice, 0).Seconds)
		s.connect(t).open(alice)
		s.connect(t).open(alice)
	})
	t.Run("another id waits as long after the target's start", func(t *testing.T) {
		s := serveRegion(t, path, nil, Config{})
		require.Equal(t, wire.CodeBusy, s.connect(t).refused(bob, 0).Code)
		s.connect(t).open(alice) // the persisted owner's id need not wait
	})
	t.Run("it ends by itself", func(t *testing.T) {
		s := serveRegion(t, path, nil, Config{Lease: time.Nanosecond})
		s.connect(t).open(alice)
		s.connect(t).open(bob)
	})
	t.Run("a lost connection does not end it", func(t *testing.T) {
		s := serveRegion(t, path, nil, Config{})
		p := s.connect(t)
		p.open(bob)
		require.NoError(t, p.conn.Close())
		require.Equal(t, wire.CodeBusy, s.connect(t).refused(alice, 0).Code)
	})
	t.Run("CLOSE does, in doubt too", func(t *testing.T) {
		var hold atomic.Bool
		began, proceed := make(chan struct{}), make(chan struct{})
		s := serveWith(t, region.PathMemfd, regiontest.Medium{Data: func(_, _ uint64) {
			if hold.Swap(false) {
				began <- struct{}{}
				<-proceed
			}
		}}, Config{})
		s.connect(t).open(bob)
		hold.Store(true)
		p := s.connect(t)
		o := p.open(bob)
		<-began
		var closed wire.Closed
		p.ask(&wire.Close{Epoch: o.Epoch}, &closed)
		require.False(t, s.region.Superblock().Clean)
		s.connect(t).open(alice)
		close(proceed)
	})
	t.Run("CLOSE does", func(t *testing.T) {
		s := serveRegion(t, path, nil, Config{})
		p := s.connect(t)
		o := p.open(bob)
		var closed wire.Closed
		p.ask(&wire.Close{Epoch: o.Epoch}, &closed)
		s.connect(t).open(alice)
	})
}

// A heartbeat extends the lease, as every message does.
func TestHeartbeatExtendsTheLease(t *testing.T) {
	s := newSite(t)
	p := s.connect(t)
	p.open(alice)
	session := s.server.served()["log"].session
	old := clock() - int64(Lease) - 1
	session.heard.Store(old)
	var hb wire.HeartbeatAck
	p.ask(&wire.Heartbeat{Seq: 1}, &hb)
	require.Greater(t, session.heard.Load(), old)
	require.Equal(t, wire.CodeBusy, s.connect(t).refused(bob, 0).Code)
}

// Data that arrive extend the lease, too: on a slow network heartbeats come behind them.
// Data that arrived long ago do not.
func TestDataExtendTheLease(t *testing.T) {
	s := serveRegion(t, onDisk(t), unix.Fdatasync, Config{Heartbeat: time.Millisecond})
	p := s.connect(t)
	o := p.open(alice)
	session := s.server.served()["log"].session
	for range 3 {
		old := clock() - int64(Lease) - 1
		session.heard.Store(old)
		p.post(rdma.WorkRequest{Op: rdma.OpWrite, Local: rdma.SGE{Region: p.mr, Len: 8}, Remote: rdma.Remote{Key: o.Key, Addr: o.Base}})
		require.Eventually(t, func() bool { return session.heard.Load() > old }, patience, tick)
	}
	session.mu.Lock()
	session.looks.Stop()
	session.mu.Unlock()
	session.look(time.Hour) // another look may have been under way
	old := clock() - int64(Lease) - 1
	session.heard.Store(old)
	session.look(time.Hour)
	require.Equal(t, old, session.heard.Load(), "nothing has arrived since")
	require.NoError(t, p.conn.Close())
	<-session.conn.done
	session.looks.Stop()
	session.look(time.Hour)
	require.False(t, session.looks.Stop(), "nothing can arrive any more")
}
