package target

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/wire"
)

// On class volatile a barrier writes back the lines of all its ranges before the target
// acknowledges it. The flush that settles doubt does the same.
func TestVolatileFlushesLines(t *testing.T) {
	var flushed []persist.Range
	s := serveWith(t, region.PathMemfd, regiontest.Medium{Data: func(off, n uint64) {
		flushed = append(flushed, persist.Range{Off: off, Len: n})
	}}, Config{})
	p := s.connect(t)
	p.open(alice)
	for seq, ranges := range [][]persist.Range{{{Off: 4096, Len: 100}, {Off: 0, Len: 1}}, {{Off: size - 1, Len: 1}}, nil} {
		flushed = nil
		var ack wire.BarrierAck
		p.ask(&wire.Barrier{Seq: uint64(seq), Last: true, Ranges: ranges}, &ack)
		require.Equal(t, ranges, flushed)
	}
	require.EqualValues(t, 3, s.server.Snapshot()[0].Barriers)
	flushed = nil
	p = s.connect(t)
	p.open(alice)
	p.durable(1)
	require.Equal(t, []persist.Range{{Off: 0, Len: size}}, flushed, "what the previous session left")
}

// The acknowledgement of a barrier follows a sync that began after the barrier arrived,
// also if another sync was under way. The target answers heartbeats in the meantime.
func TestAckAfterItsSync(t *testing.T) {
	began, proceed := make(chan struct{}, 16), make(chan struct{})
	hold := false
	s := serveRegion(t, onDisk(t), func(fd int) error {
		if hold {
			began <- struct{}{}
			<-proceed
		}
		return unix.Fdatasync(fd)
	}, Config{})
	p := s.connect(t)
	p.open(alice)
	hold = true
	p.send((&wire.Barrier{Seq: 1, Last: true}).Append(nil))
	<-began
	p.send((&wire.Barrier{Seq: 2, Last: true}).Append(nil))
	var hb wire.HeartbeatAck
	p.ask(&wire.Heartbeat{Seq: 1}, &hb)
	require.EqualValues(t, 1, hb.Barrier, "barrier 1 is in progress and not acknowledged")
	proceed <- struct{}{}
	var ack wire.BarrierAck
	msg, err := p.receive()
	require.NoError(t, err)
	require.NoError(t, ack.Decode(msg))
	require.EqualValues(t, 1, ack.Seq)
	<-began // barrier 2 gets another sync
	p.ask(&wire.Heartbeat{Seq: 2}, &hb)
	require.EqualValues(t, 2, hb.Barrier)
	close(proceed)
	msg, err = p.receive()
	require.NoError(t, err)
	require.NoError(t, ack.Decode(msg))
	require.EqualValues(t, 2, ack.Seq)
	require.EqualValues(t, 2, s.server.Snapshot()[0].Barriers)
}

// A sync that fails after its lane has gone does no harm. The target does not send the
// answer, whose memory is the lane's.
func TestSyncFailsAfterTheLaneIsGone(t *testing.T) {
	began, proceed := make(chan struct{}, 1), make(chan struct{})
	var fail atomic.Bool
	path := onDisk(t)
	s := serveRegion(t, path, func(fd int) error {
		if fail.Swap(false) {
			began <- struct{}{}
			<-proceed
			return unix.EIO
		}
		return unix.Fdatasync(fd)
	}, Config{})
	p := s.connect(t)
	p.open(alice)
	fail.Store(true)
	p.send((&wire.Barrier{Seq: 1, Last: true}).Append(nil))
	<-began
	require.NoError(t, p.conn.Close())
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = s.server.Close() // waits for the sync
	}()
	close(proceed)
	<-closed
	require.Error(t, s.region.Failed())
}

// CLOSE waits for a sync in progress, and so does a grant. Nothing of the session is
// under way when the region is marked clean or granted to another owner.
func TestCloseWaitsForSyncs(t *testing.T) {
	for name, end := range map[string]func(s *site, p *peer, o wire.Opened) chan struct{}{
		"CLOSE": func(s *site, p *peer, o wire.Opened) chan struct{} {
			p.send((&wire.Close{Epoch: o.Epoch}).Append(nil))
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range 2 { // BARRIER_ACK and CLOSED
					_, _ = p.receive()
				}
			}()
			return done
		},
		"another grant": func(s *site, p *peer, o wire.Opened) chan struct{} {
			next := s.connect(p.t)
			done := make(chan struct{})
			go func() {
				defer close(done)
				next.open(alice)
			}()
			return done
		},
	} {
		t.Run(name, func(t *testing.T) {
			began, proceed := make(chan struct{}, 1), make(chan struct{})
			var hold atomic.Bool
			s := serveRegion(t, onDisk(t), func(fd int) error {
				if hold.Swap(false) {
					began <- struct{}{}
					<-proceed
				}
				return unix.Fdatasync(fd)
			}, Config{})
			p := s.connect(t)
			o := p.open(alice)
			hold.Store(true)
			p.send((&wire.Barrier{Seq: 1, Last: true}).Append(nil))
			<-began
			done := end(s, p, o)
			require.False(t, s.region.Superblock().Clean)
			require.Equal(t, o.Epoch, s.region.Superblock().Epoch)
			select {
			case <-done:
				t.Fatal("it did not wait")
			default:
			}
			close(proceed)
			<-done
		})
	}
}
