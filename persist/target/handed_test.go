package target

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/wire"
)

// A gate is a region whose write-backs the test can stop. The syncer writes back the parts that
// name more than half a step.
type gate struct {
	*site
	arrived chan uint64   // the offset at which a write-back stops
	proceed chan struct{} // lets one of them go on
	open    func()        // lets everything through from now on
}

// stops is the length of a piece that stops at the gate. No flush of the whole extent has one.
const stops = step - odd

// large returns ranges that the lane hands to the syncer, and at which that stops.
func large(off uint64) []persist.Range {
	return []persist.Range{{Off: off, Len: stops}}
}

func newGate(t *testing.T) *gate { return newGateOf(t, written["of one class"]) }

func newGateOf(t *testing.T, serve func(*testing.T, regiontest.Medium, Config) *site) *gate {
	g := &gate{arrived: make(chan uint64), proceed: make(chan struct{})}
	g.site = serve(t, regiontest.Medium{Data: func(off, n uint64) {
		if n != stops {
			return
		}
		select {
		case g.arrived <- off:
			<-g.proceed
		case <-g.proceed:
		}
	}}, Config{step: step, lanePart: step / 2})
	g.open = sync.OnceFunc(func() { close(g.proceed) })
	t.Cleanup(g.open) // before the server is stopped
	return g
}

// Every answer gives a credit back, while the syncer still has others of the same batch.
func TestAnswersGiveCreditsBack(t *testing.T) {
	g := newGate(t)
	p := g.connect(t)
	p.open(alice)
	const answered = 3
	sent, acked := uint64(0), uint64(0)
	send := func(n int) {
		for range n {
			p.send((&wire.Barrier{Seq: sent, Last: true, Ranges: large(sent * odd)}).Append(nil))
			sent++
		}
	}
	ack := func() {
		var ack wire.BarrierAck
		require.NoError(t, p.decode(&ack))
		require.Equal(t, wire.BarrierAck{Seq: acked, Last: true}, ack)
		acked++
	}
	send(1)
	require.EqualValues(t, 0, <-g.arrived)
	send(credits - 1) // one batch
	beat(t, p, 0)
	g.proceed <- struct{}{}
	ack()
	for range answered - 1 {
		require.Equal(t, acked*odd, <-g.arrived)
		g.proceed <- struct{}{}
		ack()
	}
	require.Equal(t, acked*odd, <-g.arrived)
	send(answered)
	beat(t, p, acked)
}

// beat sends a heartbeat, whose answer names barrier.
func beat(t *testing.T, p *peer, barrier uint64) {
	t.Helper()
	var hb wire.HeartbeatAck
	p.ask(&wire.Heartbeat{Seq: 1}, &hb)
	require.Equal(t, barrier, hb.Barrier)
}

// A lane whose parts have their answers goes on by itself, while the syncer writes back those of
// another lane.
func TestAnsweredLaneGoesOn(t *testing.T) {
	g := newGate(t)
	p := g.connect(t)
	o := p.open(alice)
	l, err := g.connectLane(t, o, 1, nil)
	require.NoError(t, err)
	var joined wire.Joined
	l.send(signed(&o.Token, &wire.Join{Epoch: o.Epoch, Lane: 1}))
	require.NoError(t, l.decode(&joined))
	acked := func(seq uint64) {
		var ack wire.BarrierAck
		require.NoError(t, p.decode(&ack))
		require.Equal(t, wire.BarrierAck{Seq: seq, Last: true}, ack)
	}
	p.send((&wire.Barrier{Seq: 1, Last: true, Ranges: large(0)}).Append(nil))
	require.EqualValues(t, 0, <-g.arrived)
	p.send((&wire.Barrier{Seq: 2, Last: true, Ranges: large(odd)}).Append(nil))
	beat(t, p, 1) // it has been queued
	l.send((&wire.Barrier{Seq: 3, Last: true, Ranges: large(2 * odd)}).Append(nil))
	beat(t, l, 1)
	g.proceed <- struct{}{}
	acked(1)
	require.EqualValues(t, odd, <-g.arrived)
	g.proceed <- struct{}{}
	acked(2)
	require.EqualValues(t, 2*odd, <-g.arrived)
	p.send((&wire.Barrier{Seq: 4, Last: true, Ranges: []persist.Range{{Len: odd}}}).Append(nil))
	acked(4)
	beat(t, p, 3)
}

// When the write-back of a part fails, so do the parts behind it, also those that name nothing,
// and what comes later on the lane.
func TestWriteBackFails(t *testing.T) {
	g := newGate(t)
	p := g.connect(t)
	p.open(alice)
	parts := []wire.Barrier{
		{Seq: 1, Ranges: large(0)}, {Seq: 1, Ranges: []persist.Range{{Len: odd}}}, {Seq: 1, Last: true},
		{Seq: 2, Last: true, Ranges: large(0)}, {Seq: 3, Last: true},
	}
	for _, m := range parts {
		p.send(m.Append(nil))
	}
	require.EqualValues(t, 0, <-g.arrived)
	beat(t, p, 1)
	_ = g.region.Fail(errors.New("the medium is broken"))
	g.open()
	late := wire.Barrier{Seq: 4, Last: true}
	p.send(late.Append(nil))
	for _, m := range append(parts, late) {
		var fail wire.BarrierFail
		require.NoError(t, p.decode(&fail))
		require.Equal(t, m.Seq, fail.Seq)
		require.Equal(t, wire.CodeFailed, fail.Code)
		require.Contains(t, fail.Text, "the medium is broken")
	}
	require.Zero(t, g.server.Snapshot()[0].Barriers)
	require.Zero(t, g.server.served()["log"].lastDurable(0))
}

// CLOSE, like a grant, waits for the step that is being written back, and not for all that was
// handed over. Until it is done nobody else gets the region.
func TestCloseDuringAWriteBack(t *testing.T) {
	g := newGate(t)
	p := g.connect(t)
	o := p.open(alice)
	y := g.server.served()["log"].syncer
	everything := append(large(0), amplified(persist.Range{Off: step, Len: size - step})[1:]...)
	for seq := range uint64(3) {
		p.send((&wire.Barrier{Seq: seq, Last: true, Ranges: everything}).Append(nil))
	}
	require.EqualValues(t, 0, <-g.arrived)
	beat(t, p, 0)
	p.send((&wire.Close{Epoch: o.Epoch}).Append(nil))
	c := g.server.served()["log"].session.conn
	require.Eventually(t, c.leaves.Load, patience, tick)
	g.open()
	var closed wire.Closed
	require.NoError(t, p.decode(&closed))
	require.False(t, y.has(c))
	require.Equal(t, alice.ID, g.region.Superblock().Owner.ID)
	next := p.open(bob) // on the same connection
	require.Equal(t, o.Epoch+1, next.Epoch)
	var ack wire.BarrierAck
	p.ask(&wire.Barrier{Seq: 9, Last: true, Ranges: everything}, &ack)
	require.Equal(t, wire.BarrierAck{Seq: 9, Last: true}, ack)
}
