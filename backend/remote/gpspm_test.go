package remote

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

func newHalf(credits int) *gpspm {
	mem := &rdma.MemoryRegion{Mem: make([]byte, credits*wire.MaxMessage)}
	return newGPSPM(mem, credits, wire.MaxMessage, 100)
}

// mustAppend appends a part and returns the ID and the message of its work request.
func (g *gpspm) mustAppend(t *testing.T, seq uint64, ranges []persist.Range, last bool) (id uint64, m wire.Barrier) {
	wrs, ok := g.appendPart(nil, seq, ranges, last)
	require.True(t, ok)
	require.Len(t, wrs, 1)
	wr := wrs[0]
	require.Equal(t, rdma.OpSend, wr.Op)
	require.True(t, wr.Signaled)
	require.NoError(t, m.Decode(g.mem.Mem[wr.Local.Off:][:wr.Local.Len]))
	return wr.ID, m
}

func TestBarrierNeedsAckAndSend(t *testing.T) {
	for name, ackFirst := range map[string]bool{"ack first": true, "send first": false} {
		t.Run(name, func(t *testing.T) {
			g := newHalf(2)
			id, m := g.mustAppend(t, 7, []persist.Range{{Off: 4096, Len: 10}}, true)
			require.Equal(t, wire.Barrier{Seq: 7, Last: true, Ranges: []persist.Range{{Off: 4096, Len: 10}}}, m)
			ack := func() uint64 {
				done, err := g.acked(wire.BarrierAck{Seq: 7, Last: true})
				require.NoError(t, err)
				return done
			}
			if ackFirst {
				require.Zero(t, ack(), "the Send has not completed")
				require.EqualValues(t, 7, g.sent(id))
			} else {
				require.Zero(t, g.sent(id), "the target has not answered")
				require.EqualValues(t, 7, ack())
			}
		})
	}
}

// Parts take a credit each, wait when there is none, and only the last one's
// answer ends the barrier.
func TestPartsKeepCredits(t *testing.T) {
	g := newHalf(2)
	a, _ := g.mustAppend(t, 1, nil, false)
	b, _ := g.mustAppend(t, 1, nil, false)
	_, ok := g.appendPart(nil, 1, nil, true)
	require.False(t, ok, "no credit is left")
	require.Zero(t, g.sent(a))
	_, ok = g.appendPart(nil, 1, nil, true)
	require.False(t, ok, "a Send that left is not a credit that came back")
	done, err := g.acked(wire.BarrierAck{Seq: 1})
	require.NoError(t, err)
	require.Zero(t, done)
	c, _ := g.mustAppend(t, 1, nil, true)
	require.Zero(t, g.sent(b))
	require.Zero(t, g.sent(c))
	done, err = g.acked(wire.BarrierAck{Seq: 1})
	require.NoError(t, err)
	require.Zero(t, done)
	done, err = g.acked(wire.BarrierAck{Seq: 1, Last: true})
	require.NoError(t, err)
	require.EqualValues(t, 1, done)
}

func TestAcksThatDoNotFit(t *testing.T) {
	for name, ack := range map[string]wire.BarrierAck{
		"of an older barrier":   {Seq: 4, Last: true},
		"of a newer barrier":    {Seq: 6, Last: true},
		"of a part, not of all": {Seq: 5},
	} {
		t.Run(name, func(t *testing.T) {
			g := newHalf(1)
			g.mustAppend(t, 5, nil, true)
			_, err := g.acked(ack)
			require.ErrorIs(t, err, rdma.ErrLost)
		})
	}
	_, err := newHalf(1).acked(wire.BarrierAck{})
	require.ErrorIs(t, err, rdma.ErrLost, "nobody waits")
}

func TestCoalesce(t *testing.T) {
	run := func(off, n uint64) persist.Range { return persist.Range{Off: off, Len: n} }
	for name, c := range map[string]struct{ in, want []persist.Range }{
		"apart":            {[]persist.Range{run(0, 4), run(8, 4)}, []persist.Range{run(0, 4), run(8, 4)}},
		"behind":           {[]persist.Range{run(0, 4), run(4, 4)}, []persist.Range{run(0, 8)}},
		"in front":         {[]persist.Range{run(4, 4), run(0, 4)}, []persist.Range{run(0, 8)}},
		"overlap":          {[]persist.Range{run(0, 6), run(4, 4)}, []persist.Range{run(0, 8)}},
		"inside":           {[]persist.Range{run(0, 9), run(4, 4)}, []persist.Range{run(0, 9)}},
		"around":           {[]persist.Range{run(4, 1), run(0, 9)}, []persist.Range{run(0, 9)}},
		"only the last":    {[]persist.Range{run(0, 4), run(8, 4), run(4, 4)}, []persist.Range{run(0, 4), run(4, 8)}},
		"one byte between": {[]persist.Range{run(0, 4), run(5, 4)}, []persist.Range{run(0, 4), run(5, 4)}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []persist.Range
			for _, r := range c.in {
				var ok bool
				got, ok = coalesce(got, r, 8)
				require.True(t, ok)
			}
			require.Equal(t, c.want, got)
		})
	}
	full := []persist.Range{run(0, 4), run(8, 4)}
	got, ok := coalesce(full, run(20, 4), 2)
	require.False(t, ok)
	require.Equal(t, full, got)
	_, ok = coalesce(full, run(12, 4), 2)
	require.True(t, ok, "widening needs no place")
}
