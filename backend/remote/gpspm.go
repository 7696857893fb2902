package remote

import (
	"fmt"

	"pmnbd/persist"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// gpspm is the initiator's half of the method gpspm on one lane: a barrier is a Send
// behind the Writes that names their ranges. It is done when the target has
// answered it and the Send's own completion was polled. A barrier of more ranges
// than one message can name goes in parts (design §4.6).
//
// It keeps the lane's credits: each part takes a message buffer, and its answer
// brings the buffer back. The lane's mutex guards it.
type gpspm struct {
	mem     *rdma.MemoryRegion
	tag     uint64
	perPart int // ranges that a part names at most
	parts   []part
	free    []int // buffers, which are indices of parts
	unacked []int // buffers in the order in which they were sent
}

type part struct {
	seq         uint64
	last        bool
	sent, acked bool
}

// newGPSPM makes the half of one lane. mem holds a message of wire.MaxMessage for
// each credit that barriers may use; maxMessage is the target's limit in bytes.
// Work requests carry tag plus the number of their buffer as ID.
func newGPSPM(mem *rdma.MemoryRegion, credits int, maxMessage uint32, tag uint64) *gpspm {
	g := &gpspm{mem: mem, tag: tag, perPart: wire.MaxRanges(maxMessage), parts: make([]part, credits)}
	for i := range g.parts {
		g.free = append(g.free, i)
	}
	g.unacked = make([]int, 0, credits)
	return g
}

// appendPart appends the work request of a part of barrier seq that names ranges, at
// most perPart; last says that they are the barrier's last. It reports false, and
// changes nothing, while no credit is there.
func (g *gpspm) appendPart(wrs []rdma.WorkRequest, seq uint64, ranges []persist.Range, last bool) ([]rdma.WorkRequest, bool) {
	return g.appendClearing(wrs, seq, ranges, nil, &carried{}, last)
}

// appendClearing is appendPart with ranges in which the target clears the bits of x's member.
func (g *gpspm) appendClearing(wrs []rdma.WorkRequest, seq uint64, ranges, clear []persist.Range, x *carried, last bool) ([]rdma.WorkRequest, bool) {
	if len(g.free) == 0 {
		return wrs, false
	}
	i := g.free[len(g.free)-1]
	g.free = g.free[:len(g.free)-1]
	g.parts[i] = part{seq: seq, last: last}
	g.unacked = append(g.unacked, i)
	off := uint64(i) * wire.MaxMessage
	msg := wire.Barrier{Seq: seq, Last: last, Ranges: ranges, Clear: clear, ClearSlot: x.slot, Fills: x.fills}
	b := msg.Append(g.mem.Mem[off : off : off+wire.MaxMessage])
	return append(wrs, rdma.WorkRequest{
		ID: g.tag + uint64(i), Op: rdma.OpSend, Signaled: true,
		Local: rdma.SGE{Region: g.mem, Off: off, Len: uint32(len(b))},
	}), true
}

// sent takes the completion of a part's Send, by its ID. It returns the barrier that is done with
// it, or 0.
func (g *gpspm) sent(id uint64) (done uint64) {
	i := int(id - g.tag)
	g.parts[i].sent = true
	return g.finish(i)
}

// acked takes the target's answer to the oldest part that has none. It returns the barrier that is
// done with it, or 0. An answer that does not fit is an error: the peer does not speak the protocol,
// and the connection is as good as lost.
func (g *gpspm) acked(ack wire.BarrierAck) (done uint64, err error) {
	if len(g.unacked) == 0 {
		return 0, fmt.Errorf("%w: an ack of barrier %d that nobody waits for", rdma.ErrLost, ack.Seq)
	}
	i := g.unacked[0]
	if p := g.parts[i]; p.seq != ack.Seq || p.last != ack.Last {
		return 0, fmt.Errorf("%w: an ack of barrier %d (last part: %t) where %d (%t) is due", rdma.ErrLost, ack.Seq, ack.Last, p.seq, p.last)
	}
	g.unacked = append(g.unacked[:0], g.unacked[1:]...)
	g.parts[i].acked = true
	return g.finish(i), nil
}

// finish frees buffer i once its part was both sent and answered. It returns the barrier if that
// was its last part, else 0.
func (g *gpspm) finish(i int) (done uint64) {
	p := g.parts[i]
	if !p.sent || !p.acked {
		return 0
	}
	g.free = append(g.free, i)
	if !p.last {
		return 0
	}
	return p.seq
}

// coalesce appends r to ranges, or widens the last range where r touches it. It
// reports false when that needs a place beyond limit.
func coalesce(ranges []persist.Range, r persist.Range, limit int) ([]persist.Range, bool) {
	if n := len(ranges); n > 0 {
		l := &ranges[n-1]
		if r.Off <= l.Off+l.Len && l.Off <= r.Off+r.Len {
			end := max(l.Off+l.Len, r.Off+r.Len)
			l.Off = min(l.Off, r.Off)
			l.Len = end - l.Off
			return ranges, true
		}
	}
	if len(ranges) == limit {
		return ranges, false
	}
	return append(ranges, r), true
}
