package target

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/wire"
)

// A predecessor that did not close leaves doubt. The grant costs one update of the
// superblock, as any grant does. In the background the target flushes the whole extent
// and settles the doubt. Every barrier waits for that, also one that covers nothing.
func TestDoubt(t *testing.T) {
	var syncs atomic.Int64
	s := serveRegion(t, onDisk(t), func(fd int) error {
		syncs.Add(1)
		return unix.Fdatasync(fd)
	}, Config{})
	p := s.connect(t)
	syncs.Store(0)
	o := p.open(alice)
	update := syncs.Load()
	require.Zero(t, o.Flags&(wire.OpenedUnclean|wire.OpenedDoubt))
	syncs.Store(0)
	p.durable(1)
	require.EqualValues(t, 1, syncs.Load())

	p = s.connect(t)
	syncs.Store(0)
	o = p.open(alice)
	require.Equal(t, wire.OpenedUnclean|wire.OpenedDoubt, o.Flags)
	p.durable(1)
	require.False(t, s.region.Superblock().Doubt)
	require.GreaterOrEqual(t, syncs.Load(), 2*update+1, "two updates, and the barrier's own sync; the first update's sync may cover the whole extent")
	var hb wire.HeartbeatAck
	p.ask(&wire.Heartbeat{Seq: 1}, &hb)
	require.False(t, hb.Doubt)
	require.Zero(t, hb.DoubtLeft)
}

// A flush of the whole extent that fails leaves the doubt, and the region fails.
func TestDoubtThatCannotBeSettled(t *testing.T) {
	var fail atomic.Bool
	s := serveRegion(t, onDisk(t), func(fd int) error {
		if fail.Load() {
			return unix.EIO
		}
		return unix.Fdatasync(fd)
	}, Config{})
	s.connect(t).open(alice)
	p := s.connect(t)
	fail.Store(true)
	r := p.refused(alice, 0)
	p.ask(&wire.Open{Methods: everyMethod, Owner: alice, Epoch: r.Epoch, Region: "log"}, &r)
	require.Equal(t, wire.CodeFailed, r.Code)
	require.Error(t, s.region.Failed())
}

// The flush of the whole extent runs in the background. Heartbeats report it and barriers
// wait for it. CLOSE does not clear the doubt. A session that ends does not wait for it
// (model F5). A grant to a new owner starts the flush again: one that began before the
// old session was joined clears nothing (model F2).
func TestDoubtInTheBackground(t *testing.T) {
	began, proceed := make(chan struct{}, 16), make(chan struct{})
	var hold atomic.Bool
	s := serveWith(t, region.PathMemfd, regiontest.Medium{Data: func(_, _ uint64) {
		if hold.Load() {
			began <- struct{}{}
			<-proceed
		}
	}}, Config{})
	s.connect(t).open(alice)
	hold.Store(true)
	p := s.connect(t)
	o := p.open(alice)
	require.NotZero(t, o.Flags&wire.OpenedDoubt, "the grant does not wait for the flush")
	<-began
	p.send((&wire.Barrier{Seq: 1, Last: true}).Append(nil))
	var hb wire.HeartbeatAck
	p.ask(&wire.Heartbeat{Seq: 1}, &hb)
	require.Equal(t, wire.HeartbeatAck{Seq: 1, Barrier: 1, Doubt: true, DoubtLeft: size}, hb, "barrier 1 is not acknowledged")
	var closed wire.Closed
	p.ask(&wire.Close{Epoch: o.Epoch}, &closed)
	sb := s.region.Superblock()
	require.True(t, sb.Doubt)
	require.False(t, sb.Clean, "a region closed in doubt is not clean")

	next := s.connect(t)
	o = next.open(alice) // although the flush stands still
	require.NotZero(t, o.Flags&wire.OpenedDoubt)
	proceed <- struct{}{} // the first flush ends
	<-began               // and starts again
	require.True(t, s.region.Superblock().Doubt, "a flush that began before the grant settles nothing")
	hold.Store(false)
	proceed <- struct{}{}
	next.durable(1)
	require.False(t, s.region.Superblock().Doubt)
	next.ask(&wire.Close{Epoch: o.Epoch}, &closed)
	require.True(t, s.region.Superblock().Clean)
}

// Doubt survives a restart of the target, which then settles it by itself.
func TestDoubtAcrossARestart(t *testing.T) {
	path := onDisk(t)
	s := serveRegion(t, path, nil, Config{})
	require.NoError(t, s.region.Update(func(sb *region.Superblock) error {
		sb.Doubt = true
		return nil
	}))
	s.stop()
	s = serveRegion(t, path, nil, Config{})
	p := s.connect(t)
	p.open(alice)
	p.durable(1)
	require.False(t, s.region.Superblock().Doubt)
}

// TestServeProtectedInDoubt: the syncer settles a doubt from the start on, and finds out whether a save forbids it. The
// race detector sees if the region is not complete by then.
func TestServeProtectedInDoubt(t *testing.T) {
	r, err := region.Open(onDisk(t), region.OpenOptions{Name: "log", CreateSize: size, AllowVolatile: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	for range 10 {
		require.NoError(t, r.Update(func(sb *region.Superblock) error {
			sb.Doubt = true
			return nil
		}))
		require.NoError(t, New(Config{image: new(fakeImage).of}, []*region.Region{r}).Close())
	}
}
