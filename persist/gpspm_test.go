package persist

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

func newHalf(credits int) *GPSPM {
	mem := &rdma.MemoryRegion{Mem: make([]byte, credits*wire.MaxMessage)}
	return NewGPSPM(mem, credits, wire.MaxMessage, 100)
}

// appendPart appends a part and returns the ID and the message of its work request.
func (g *GPSPM) appendPart(t *testing.T, seq uint64, ranges []Range, last bool) (id uint64, m wire.Barrier) {
	wrs, ok := g.Append(nil, seq, ranges, last)
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
			id, m := g.appendPart(t, 7, []Range{{Off: 4096, Len: 10}}, true)
			require.Equal(t, wire.Barrier{Seq: 7, Last: true, Ranges: []Range{{Off: 4096, Len: 10}}}, m)
			ack := func() bool {
				done, err := g.Acked(wire.BarrierAck{Seq: 7, Last: true})
				require.NoError(t, err)
				return done
			}
			if ackFirst {
				require.False(t, ack(), "the Send has not completed")
				require.True(t, g.Sent(id))
			} else {
				require.False(t, g.Sent(id), "the target has not answered")
				require.True(t, ack())
			}
		})
	}
}

// Parts take a credit each, wait when there is none, and only the last one's
// answer ends the barrier.
func TestPartsKeepCredits(t *testing.T) {
	g := newHalf(2)
	a, _ := g.appendPart(t, 1, nil, false)
	b, _ := g.appendPart(t, 1, nil, false)
	_, ok := g.Append(nil, 1, nil, true)
	require.False(t, ok, "no credit is left")
	require.False(t, g.Sent(a))
	_, ok = g.Append(nil, 1, nil, true)
	require.False(t, ok, "a Send that left is not a credit that came back")
	done, err := g.Acked(wire.BarrierAck{Seq: 1})
	require.NoError(t, err)
	require.False(t, done)
	c, _ := g.appendPart(t, 1, nil, true)
	require.False(t, g.Sent(b))
	require.False(t, g.Sent(c))
	done, err = g.Acked(wire.BarrierAck{Seq: 1})
	require.NoError(t, err)
	require.False(t, done)
	done, err = g.Acked(wire.BarrierAck{Seq: 1, Last: true})
	require.NoError(t, err)
	require.True(t, done)
}

func TestAcksThatDoNotFit(t *testing.T) {
	for name, ack := range map[string]wire.BarrierAck{
		"of an older barrier":   {Seq: 4, Last: true},
		"of a newer barrier":    {Seq: 6, Last: true},
		"of a part, not of all": {Seq: 5},
	} {
		t.Run(name, func(t *testing.T) {
			g := newHalf(1)
			g.appendPart(t, 5, nil, true)
			_, err := g.Acked(ack)
			require.ErrorIs(t, err, rdma.ErrLost)
		})
	}
	_, err := newHalf(1).Acked(wire.BarrierAck{})
	require.ErrorIs(t, err, rdma.ErrLost, "nobody waits")
}

func TestCoalesce(t *testing.T) {
	run := func(off, n uint64) Range { return Range{Off: off, Len: n} }
	for name, c := range map[string]struct{ in, want []Range }{
		"apart":            {[]Range{run(0, 4), run(8, 4)}, []Range{run(0, 4), run(8, 4)}},
		"behind":           {[]Range{run(0, 4), run(4, 4)}, []Range{run(0, 8)}},
		"in front":         {[]Range{run(4, 4), run(0, 4)}, []Range{run(0, 8)}},
		"overlap":          {[]Range{run(0, 6), run(4, 4)}, []Range{run(0, 8)}},
		"inside":           {[]Range{run(0, 9), run(4, 4)}, []Range{run(0, 9)}},
		"around":           {[]Range{run(4, 1), run(0, 9)}, []Range{run(0, 9)}},
		"only the last":    {[]Range{run(0, 4), run(8, 4), run(4, 4)}, []Range{run(0, 4), run(4, 8)}},
		"one byte between": {[]Range{run(0, 4), run(5, 4)}, []Range{run(0, 4), run(5, 4)}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []Range
			for _, r := range c.in {
				var ok bool
				got, ok = Coalesce(got, r, 8)
				require.True(t, ok)
			}
			require.Equal(t, c.want, got)
		})
	}
	full := []Range{run(0, 4), run(8, 4)}
	got, ok := Coalesce(full, run(20, 4), 2)
	require.False(t, ok)
	require.Equal(t, full, got)
	_, ok = Coalesce(full, run(12, 4), 2)
	require.True(t, ok, "widening needs no place")
}
