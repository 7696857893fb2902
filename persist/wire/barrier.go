package wire

import (
	"encoding/binary"
	"fmt"

	"pmnbd/persist"
)

// Heartbeat shows that the initiator lives. The initiator sends it by its own clock, also
// while a barrier is slow.
//
//	 16    24         32
//	+-----+----------+
//	| seq | reserved |
//	+-----+----------+
type Heartbeat struct{ Seq uint64 }

// HeartbeatAck answers a Heartbeat.
//
//	 16    24        32                40           44      48     56
//	+-----+---------+-----------------+------------+-------+------+
//	| seq | barrier | bytes of doubt  | flags      |  0    | mark |
//	+-----+---------+-----------------+------------+-------+------+
type HeartbeatAck struct {
	Seq uint64
	// Barrier is the barrier that the target is working on, or 0.
	Barrier uint64
	// DoubtLeft is how many bytes the flush of the whole extent still has to write back.
	DoubtLeft uint64
	Doubt     bool
	// Mark is the region's persisted mark.
	Mark uint64
}

// Barrier asks the target to make ranges durable: all writes in them that were posted
// ahead of it on its lane. A barrier with more ranges than fit one message comes in
// parts. Each part takes a credit, and only the acknowledgement of the last one says that
// everything is durable (design §4.6).
//
// On a member of a mirror it also sets bits, and clears some (mirror §3.4, §3.5). count
// is how many ranges are to flush, clears how many come behind them.
//
//	 16    24      26      28       30     31      32       40                16*(count+clears)+32
//	+-----+-------+-------+--------+------+-------+--------+--------+---
//	| seq | flags | count | clears | slot | fills | off[0] | len[0] | ...
//	+-----+-------+-------+--------+------+-------+--------+--------+---
type Barrier struct {
	Seq  uint64
	Last bool
	// Ranges lie in the data extent.
	Ranges []persist.Range
	// Clear has ranges of the data extent that the member in slot ClearSlot no longer
	// lacks: it has acknowledged a barrier behind the copies of them. The target clears
	// that member's bits of the chunks that lie in one of the ranges as a whole. Then it
	// sets the bits for Ranges.
	Clear     []persist.Range
	ClearSlot uint8
	// Fills counts, modulo 256, the RECORDs of this session that the initiator had sent and that set
	// all bits of a member. The target clears nothing if it has carried out another number: a barrier
	// can be overtaken by a RECORD on lane 0, and what that set must stay. For the same reason it clears
	// nothing of a slot whose member has left in this session.
	Fills uint8
}

// BarrierAck answers a part of a Barrier. With Last, everything that the barrier covers
// is durable. Without Last it only returns the part's credit.
//
//	 16    24      26         32
//	+-----+-------+----------+
//	| seq | flags | reserved |
//	+-----+-------+----------+
type BarrierAck struct {
	Seq  uint64
	Last bool
}

// BarrierFail answers a Barrier whose writes the target could not make durable.
//
//	 16    24     26         32     288
//	+-----+------+----------+------+
//	| seq | code | reserved | text |
//	+-----+------+----------+------+
type BarrierFail struct {
	Seq  uint64
	Code Code
	Text string
}

const (
	heartbeatSize    = 32
	heartbeatAckSize = 56
	barrierHeader    = 32
	rangeSize        = 16
	barrierFailSize  = 288
	// BarrierAckSize is the size in bytes of a BarrierAck.
	BarrierAckSize = 32

	flagLast = 1
)

// MaxRanges is how many ranges fit a message of size bytes, those to clear included.
func MaxRanges(size uint32) int {
	return int(max(min(size, MaxMessage), barrierHeader)-barrierHeader) / rangeSize
}

// Append appends the message to b.
func (m *Heartbeat) Append(b []byte) []byte {
	b = appendHeader(b, TypeHeartbeat, heartbeatSize)
	b = binary.BigEndian.AppendUint64(b, m.Seq)
	return binary.BigEndian.AppendUint64(b, 0)
}

// Decode reads the message from b.
func (m *Heartbeat) Decode(b []byte) error {
	if err := expect(b, TypeHeartbeat, heartbeatSize); err != nil {
		return err
	}
	m.Seq = binary.BigEndian.Uint64(b[16:])
	return nil
}

// Append appends the message to b.
func (m *HeartbeatAck) Append(b []byte) []byte {
	b = appendHeader(b, TypeHeartbeatAck, heartbeatAckSize)
	b = binary.BigEndian.AppendUint64(b, m.Seq)
	b = binary.BigEndian.AppendUint64(b, m.Barrier)
	b = binary.BigEndian.AppendUint64(b, m.DoubtLeft)
	var flags uint32
	if m.Doubt {
		flags = 1
	}
	b = binary.BigEndian.AppendUint32(b, flags)
	b = binary.BigEndian.AppendUint32(b, 0)
	return binary.BigEndian.AppendUint64(b, m.Mark)
}

// Decode reads the message from b.
func (m *HeartbeatAck) Decode(b []byte) error {
	if err := expect(b, TypeHeartbeatAck, heartbeatAckSize); err != nil {
		return err
	}
	m.Seq = binary.BigEndian.Uint64(b[16:])
	m.Barrier = binary.BigEndian.Uint64(b[24:])
	m.DoubtLeft = binary.BigEndian.Uint64(b[32:])
	m.Doubt = binary.BigEndian.Uint32(b[40:])&1 != 0
	m.Mark = binary.BigEndian.Uint64(b[48:])
	return nil
}

// Append appends the message to b. There are at most MaxRanges(MaxMessage) ranges, those
// of Clear included.
func (m *Barrier) Append(b []byte) []byte {
	b = appendHeader(b, TypeBarrier, barrierHeader+rangeSize*(len(m.Ranges)+len(m.Clear)))
	b = binary.BigEndian.AppendUint64(b, m.Seq)
	b = appendLast(b, m.Last)
	b = binary.BigEndian.AppendUint16(b, uint16(len(m.Ranges)))
	b = binary.BigEndian.AppendUint16(b, uint16(len(m.Clear)))
	b = append(b, m.ClearSlot, m.Fills)
	return appendRanges(appendRanges(b, m.Ranges), m.Clear)
}

func appendRanges(b []byte, ranges []persist.Range) []byte {
	for _, r := range ranges {
		b = binary.BigEndian.AppendUint64(b, r.Off)
		b = binary.BigEndian.AppendUint64(b, r.Len)
	}
	return b
}

// Decode reads the message from b. It appends to m.Ranges[:0], so a caller that provides
// room for MaxRanges(MaxMessage) allocates nothing. Clear lies in the same memory, behind
// Ranges. The caller must check the ranges: they come from the peer.
func (m *Barrier) Decode(b []byte) error {
	if len(b) < barrierHeader {
		return fmt.Errorf("%w: BARRIER of %d bytes", ErrMalformed, len(b))
	}
	count, clears := int(binary.BigEndian.Uint16(b[26:])), int(binary.BigEndian.Uint16(b[28:]))
	if err := expect(b, TypeBarrier, barrierHeader+rangeSize*(count+clears)); err != nil {
		return err
	}
	m.Seq = binary.BigEndian.Uint64(b[16:])
	m.Last = last(b)
	m.Fills = b[31]
	if m.ClearSlot = b[30]; m.ClearSlot >= persist.MaxMembers {
		return fmt.Errorf("%w: BARRIER that clears bits of slot %d", ErrMalformed, m.ClearSlot)
	}
	all := m.Ranges[:0]
	for r := b[barrierHeader:]; len(r) > 0; r = r[rangeSize:] {
		all = append(all, persist.Range{Off: binary.BigEndian.Uint64(r), Len: binary.BigEndian.Uint64(r[8:])})
	}
	m.Ranges, m.Clear = all[:count], nil
	if clears > 0 {
		m.Clear = all[count:]
	}
	return nil
}

// Append appends the message to b.
func (m *BarrierAck) Append(b []byte) []byte {
	b = appendHeader(b, TypeBarrierAck, BarrierAckSize)
	b = binary.BigEndian.AppendUint64(b, m.Seq)
	b = appendLast(b, m.Last)
	return append(b, 0, 0, 0, 0, 0, 0)
}

// Decode reads the message from b.
func (m *BarrierAck) Decode(b []byte) error {
	if err := expect(b, TypeBarrierAck, BarrierAckSize); err != nil {
		return err
	}
	m.Seq = binary.BigEndian.Uint64(b[16:])
	m.Last = last(b)
	return nil
}

// Append appends the message to b.
func (m *BarrierFail) Append(b []byte) []byte {
	b = appendHeader(b, TypeBarrierFail, barrierFailSize)
	b = binary.BigEndian.AppendUint64(b, m.Seq)
	b = binary.BigEndian.AppendUint16(b, uint16(m.Code))
	b = append(b, 0, 0, 0, 0, 0, 0)
	return appendText(b, m.Text)
}

// Decode reads the message from b.
func (m *BarrierFail) Decode(b []byte) error {
	if err := expect(b, TypeBarrierFail, barrierFailSize); err != nil {
		return err
	}
	m.Seq = binary.BigEndian.Uint64(b[16:])
	m.Code = Code(binary.BigEndian.Uint16(b[24:]))
	m.Text = text(b[32:barrierFailSize])
	return nil
}

func appendLast(b []byte, last bool) []byte {
	var flags uint16
	if last {
		flags = flagLast
	}
	return binary.BigEndian.AppendUint16(b, flags)
}

// last reads the flags of a Barrier or BarrierAck.
func last(b []byte) bool { return binary.BigEndian.Uint16(b[24:])&flagLast != 0 }
