package persist

import (
	"fmt"

	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// GPSPM is the initiator's half of the gpspm method on one lane: a barrier is a
// Send behind the Writes that names their ranges, and done when the target has
// answered it and the Send's own completion was polled. What one message cannot
// name goes in parts (design §4.6).
//
// It keeps the lane's credits: each part takes a message buffer, and gets it back
// with its answer. The lane's mutex guards it.
type GPSPM struct {
	mem     *rdma.MemoryRegion
	tag     uint64
	perPart int
	parts   []part
	free    []int // buffers, which are indices of parts
	unacked []int // buffers in the order in which they were sent
}

type part struct {
	seq         uint64
	last        bool
	sent, acked bool
}

// NewGPSPM makes the half of one lane. mem holds a message of wire.MaxMessage for
// each credit that barriers may use; maxMessage is the target's limit in bytes.
// Work requests carry tag plus the number of their buffer as ID.
func NewGPSPM(mem *rdma.MemoryRegion, credits int, maxMessage uint32, tag uint64) *GPSPM {
	g := &GPSPM{mem: mem, tag: tag, perPart: wire.MaxRanges(maxMessage), parts: make([]part, credits)}
	for i := range g.parts {
		g.free = append(g.free, i)
	}
	g.unacked = make([]int, 0, credits)
	return g
}

// PerPart is how many ranges a part names at most.
func (g *GPSPM) PerPart() int { return g.perPart }

// Append appends the work request of a part of barrier seq: the ranges, at most
// PerPart, of which last says that they are the barrier's last. It reports false,
// and changes nothing, while no credit is there.
func (g *GPSPM) Append(wrs []rdma.WorkRequest, seq uint64, ranges []Range, last bool) ([]rdma.WorkRequest, bool) {
	if len(g.free) == 0 {
		return wrs, false
	}
	i := g.free[len(g.free)-1]
	g.free = g.free[:len(g.free)-1]
	g.parts[i] = part{seq: seq, last: last}
	g.unacked = append(g.unacked, i)
	off := uint64(i) * wire.MaxMessage
	msg := wire.Barrier{Seq: seq, Last: last, Ranges: ranges}
	b := msg.Append(g.mem.Mem[off : off : off+wire.MaxMessage])
	return append(wrs, rdma.WorkRequest{
		ID: g.tag + uint64(i), Op: rdma.OpSend, Signaled: true,
		Local: rdma.SGE{Region: g.mem, Off: off, Len: uint32(len(b))},
	}), true
}

// Sent takes the completion of a part's Send, by its ID. done says that the whole
// barrier is.
func (g *GPSPM) Sent(id uint64) (done bool) {
	i := int(id - g.tag)
	g.parts[i].sent = true
	return g.settle(i)
}

// Acked takes the target's answer to the oldest part that has none. done says
// that the whole barrier is. An answer that does not fit is an error: the peer
// does not speak the protocol, and the connection is as good as lost.
func (g *GPSPM) Acked(ack wire.BarrierAck) (done bool, err error) {
	if len(g.unacked) == 0 {
		return false, fmt.Errorf("%w: an ack of barrier %d that nobody waits for", rdma.ErrLost, ack.Seq)
	}
	i := g.unacked[0]
	if p := g.parts[i]; p.seq != ack.Seq || p.last != ack.Last {
		return false, fmt.Errorf("%w: an ack of barrier %d (last part: %t) where %d (%t) is due", rdma.ErrLost, ack.Seq, ack.Last, p.seq, p.last)
	}
	g.unacked = append(g.unacked[:0], g.unacked[1:]...)
	g.parts[i].acked = true
	return g.settle(i), nil
}

func (g *GPSPM) settle(i int) (done bool) {
	p := g.parts[i]
	if !p.sent || !p.acked {
		return false
	}
	g.free = append(g.free, i)
	return p.last
}

// Coalesce appends r to ranges, or widens the last range where r touches it. It
// reports false when that needs a place beyond limit.
func Coalesce(ranges []Range, r Range, limit int) ([]Range, bool) {
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
