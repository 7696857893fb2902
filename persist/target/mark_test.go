package target

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/wire"
)

const (
	patience = 30 * time.Second
	tick     = time.Millisecond
)

// beat sends a heartbeat and returns the mark in its answer.
func (p *peer) beat(seq uint64) uint64 {
	p.t.Helper()
	var ack wire.HeartbeatAck
	p.ask(&wire.Heartbeat{Seq: seq}, &ack)
	return ack.Mark
}

// marking reports whether the mark of region log is about to advance. The target decides
// that before it answers a heartbeat.
func (s *site) marking() bool {
	y := s.server.served()["log"].syncer
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.marking
}

// passed makes the syncer believe that an interval has passed.
func (s *site) passed() {
	y := s.server.served()["log"].syncer
	y.mu.Lock()
	defer y.mu.Unlock()
	y.markedAt -= int64(s.server.cfg.MarkInterval)
}

// The mark advances by one while a session makes writes durable, at most once an
// interval, and with CLOSE. It does not advance while the session is idle.
func TestMark(t *testing.T) {
	s := serveRegion(t, onDisk(t), nil, Config{MarkInterval: time.Hour})
	mark := func() uint64 { return s.region.Superblock().Mark }
	p := s.connect(t)
	o := p.open(alice)
	require.Zero(t, o.Mark)

	s.passed()
	p.beat(1)
	require.False(t, s.marking(), "nothing was made durable")
	p.durable(1)
	p.beat(2)
	require.Eventually(t, func() bool { return mark() == 1 && !s.marking() }, patience, tick)
	require.EqualValues(t, 1, p.beat(3))

	p.durable(2)
	p.beat(4)
	require.False(t, s.marking(), "the interval has not passed")
	s.passed()
	p.beat(5)
	require.Eventually(t, func() bool { return mark() == 2 && !s.marking() }, patience, tick)
	s.passed()
	p.beat(6)
	require.False(t, s.marking(), "idle")

	var closed wire.Closed
	p.ask(&wire.Close{Epoch: o.Epoch}, &closed)
	require.Equal(t, wire.Closed{Epoch: o.Epoch, Mark: 3}, closed)
	require.EqualValues(t, 3, mark())
	require.EqualValues(t, 3, p.refused(bob, 0).Mark)
	require.EqualValues(t, 3, s.connect(t).open(bob).Mark, "the mark stays with a new owner")
}

// Under the methods without the target's CPU, the target does not see barriers. So the
// mark advances once in each interval.
func TestMarkWithoutBarriers(t *testing.T) {
	s := serveWith(t, onDisk(t), regiontest.EADR, Config{MarkInterval: time.Hour})
	p := s.connect(t)
	o := p.open(alice)
	require.NotEqual(t, uint8(persist.MethodGPSPM), o.Method)
	for want := range uint64(3) {
		require.Equal(t, want, p.beat(want))
		require.False(t, s.marking())
		s.passed()
		p.beat(want)
		require.Eventually(t, func() bool { return s.region.Superblock().Mark == want+1 && !s.marking() }, patience, tick)
	}
}

// The target tells an initiator a mark only when a power failure cannot revert it.
func TestMarkIsDurableBeforeItIsTold(t *testing.T) {
	began, hold := make(chan struct{}, 8), make(chan struct{})
	var blocked atomic.Bool
	s := serveRegion(t, onDisk(t), func(fd int) error {
		if blocked.Load() {
			began <- struct{}{}
			<-hold
		}
		return unix.Fdatasync(fd)
	}, Config{MarkInterval: 1})
	t.Cleanup(func() { close(hold) })
	p := s.connect(t)
	p.open(alice)
	p.durable(1)
	blocked.Store(true)
	p.beat(1)
	for range 3 { // the steps of an update
		<-began
		require.Zero(t, p.beat(2), "the mark is not durable yet")
		hold <- struct{}{}
	}
	require.Eventually(t, func() bool { return !s.marking() }, patience, tick)
	require.EqualValues(t, 1, p.beat(3))
}

// If the target cannot write the mark, the region fails.
func TestMarkFails(t *testing.T) {
	var fail atomic.Bool
	s := serveRegion(t, onDisk(t), func(fd int) error {
		if fail.Load() {
			return unix.EIO
		}
		return unix.Fdatasync(fd)
	}, Config{MarkInterval: 1})
	p := s.connect(t)
	p.open(alice)
	p.durable(1)
	fail.Store(true)
	p.beat(1)
	require.Eventually(t, func() bool { return s.region.Failed() != nil }, patience, tick)
	var failed wire.BarrierFail
	p.ask(&wire.Barrier{Seq: 2, Last: true}, &failed)
	require.Equal(t, wire.CodeFailed, failed.Code)
	require.Zero(t, p.beat(2))
}

// RESUME names the highest mark that its owner was told. A region that has not reached
// that mark was restored from a copy. The target refuses, and destroys nothing.
func TestResumeNamesTheMark(t *testing.T) {
	s := newSite(t)
	p := s.connect(t)
	o := p.open(alice)
	require.NoError(t, s.region.Update(func(sb *region.Superblock) error { sb.Mark = 7; return nil }))
	resume := wire.Resume{Methods: everyMethod, Owner: alice, Epoch: o.Epoch, Mark: 8, Region: "log", Flags: wire.OpenAllowVolatile}
	late := s.connect(t)
	var r wire.Refused
	late.ask(&resume, &r)
	require.Equal(t, wire.CodeRestored, r.Code)
	require.EqualValues(t, 7, r.Mark)
	resume.Mark, resume.Epoch = 7, o.Epoch+1
	late.ask(&resume, &r)
	require.Equal(t, wire.CodeRestored, r.Code)
	require.NoError(t, p.write(o, 1, 0, []byte("on")))
	resume.Epoch = o.Epoch
	late.ask(&resume, &o)
	require.EqualValues(t, 7, o.Mark)
	require.NoError(t, late.write(o, 1, 0, []byte("on")))
}

// Once an interval, a heartbeat makes the syncer check whether another process changed
// the superblock. If so, the target acknowledges and grants nothing more, and the session
// ends.
func TestForeignSuperblock(t *testing.T) {
	s := serveRegion(t, onDisk(t), nil, Config{MarkInterval: 1})
	p := s.connect(t)
	p.open(alice)
	p.beat(1)
	s.foreign(t)
	p.send((&wire.Heartbeat{Seq: 2}).Append(nil))
	p.ended()
	require.ErrorContains(t, s.region.Failed(), region.ErrForeign.Error())
	require.Equal(t, wire.CodeFailed, s.connect(t).refused(alice, 0).Code)
}

// Under the methods without the target's CPU, no barrier reports that the region failed.
// So the session ends, also if it was the mark that failed.
func TestMarkFailsWithoutBarriers(t *testing.T) {
	s := serveWith(t, onDisk(t), regiontest.EADR, Config{MarkInterval: time.Hour})
	p := s.connect(t)
	o := p.open(alice)
	require.NotEqual(t, uint8(persist.MethodGPSPM), o.Method)
	s.foreign(t)
	s.passed()
	p.send((&wire.Heartbeat{Seq: 1}).Append(nil))
	p.ended()
	require.ErrorContains(t, s.region.Failed(), region.ErrForeign.Error())
	require.Equal(t, wire.CodeFailed, s.connect(t).refused(alice, 0).Code)
}

// foreign changes the superblock as another process would.
func (s *site) foreign(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile(s.path, os.O_RDWR, 0)
	require.NoError(t, err)
	generation := []byte{0}
	for _, at := range []int64{8, region.CopySize + 8} {
		_, err = f.ReadAt(generation, at)
		require.NoError(t, err)
		generation[0] += 2
		_, err = f.WriteAt(generation, at)
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
}

// ended returns when the target has ended the connection.
func (p *peer) ended() {
	p.t.Helper()
	for {
		if _, err := p.receive(); err != nil {
			return
		}
	}
}
