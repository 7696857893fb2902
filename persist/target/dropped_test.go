package target

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/wire"
)

// The owner resumes a session while the syncer writes back a part of a barrier, which that ends. The barrier does not
// count as durable, although its last part names nothing.
func TestDroppedPartIsNotDurable(t *testing.T) {
	for name, serve := range written {
		t.Run(name, func(t *testing.T) { droppedPartIsNotDurable(t, newGateOf(t, serve)) })
	}
}

func droppedPartIsNotDurable(t *testing.T, g *gate) {
	p := g.connect(t)
	o := p.open(alice)
	p.send((&wire.Barrier{Seq: 5, Last: true, Ranges: large(odd)}).Append(nil))
	require.EqualValues(t, odd, <-g.arrived)
	p.send((&wire.Barrier{Seq: 6, Ranges: append(large(2*odd), persist.Range{Off: size / 2, Len: step})}).Append(nil))
	p.send((&wire.Barrier{Seq: 6, Last: true}).Append(nil))
	beat(t, p, 5) // the syncer has both parts, and takes them at the same time
	g.proceed <- struct{}{}
	var ack wire.BarrierAck
	require.NoError(t, p.decode(&ack))
	require.EqualValues(t, 2*odd, <-g.arrived)

	c := g.server.served()["log"].session.conn
	q := g.connect(t)
	q.send((&wire.Resume{Methods: everyMethod, Owner: alice, Epoch: o.Epoch, Region: "log", Flags: wire.OpenAllowVolatile}).Append(nil))
	require.Eventually(t, c.dead.Load, patience, tick)
	g.proceed <- struct{}{}
	var again wire.Opened
	require.NoError(t, q.decode(&again))
	require.Equal(t, durable(o, 5), again.Durable)
}
