package wire

import (
	"encoding/binary"
	"fmt"

	"pmnbd/persist"
)

// A record, as OPENED, REFUSED and RECORD carry it (mirror §2).
//
//	 0     16     17           18      19  20      21         24           56        216       1496      1512
//	+-----+------+------------+-------+---+-------+----------+------------+---------+---------+---------+
//	| set | slot | min copies | flags | F | async | reserved | generation | members | lineage | follows |
//	+-----+------+------------+-------+---+-------+----------+------------+---------+---------+---------+
//
// A generation is life (8), count (8) and nonce (16). Each of the 4 members, by slot, is
// UUID (16), contents id (16) and epoch (8). Each of the 32 ancestors of the lineage is a
// generation (32), F (1) and 0 (7). What an asynchronous member has followed to is a barrier (8) and
// a time (8).
const (
	recordSize   = 1512
	recordOwn    = 24
	recordOthers = 56
	recordLine   = 216
	recordPoint  = 1496
	memberSize   = 40
	ancestorSize = 40

	flagTorn    = 1
	flagArbiter = 2

	// allMembers has every slot.
	allMembers persist.Members = 1<<persist.MaxMembers - 1
)

func appendRecord(b []byte, r *persist.Record) []byte {
	b = append(b, r.Set[:]...)
	var flags byte
	if r.Torn {
		flags |= flagTorn
	}
	if r.Arbiter {
		flags |= flagArbiter
	}
	b = append(b, r.Slot, r.MinCopies, flags, byte(r.F), byte(r.Async), 0, 0, 0)
	b = appendGeneration(b, &r.Generation)
	for i := range r.Members {
		m := &r.Members[i]
		b = append(b, m.UUID[:]...)
		b = append(b, m.Contents[:]...)
		b = binary.BigEndian.AppendUint64(b, m.Epoch)
	}
	for i := range r.Lineage {
		a := &r.Lineage[i]
		b = appendGeneration(b, &a.Generation)
		b = append(b, byte(a.F), 0, 0, 0, 0, 0, 0, 0)
	}
	b = binary.BigEndian.AppendUint64(b, r.Follows.Barrier)
	return binary.BigEndian.AppendUint64(b, uint64(r.Follows.At))
}

// decodeRecord reads a record from the first recordSize bytes of b. It fails if no mirror
// can have the record.
func decodeRecord(r *persist.Record, b []byte) error {
	copy(r.Set[:], b)
	r.Slot, r.MinCopies, r.F = b[16], b[17], persist.Members(b[19])
	r.Torn, r.Arbiter = b[18]&flagTorn != 0, b[18]&flagArbiter != 0
	r.Async = persist.Members(b[20])
	r.Follows = persist.Point{Barrier: binary.BigEndian.Uint64(b[recordPoint:]), At: int64(binary.BigEndian.Uint64(b[recordPoint+8:]))}
	decodeGeneration(&r.Generation, b[recordOwn:])
	for i := range r.Members {
		m, b := &r.Members[i], b[recordOthers+memberSize*i:]
		copy(m.UUID[:], b)
		copy(m.Contents[:], b[16:])
		m.Epoch = binary.BigEndian.Uint64(b[32:])
	}
	for i := range r.Lineage {
		a, b := &r.Lineage[i], b[recordLine+ancestorSize*i:]
		decodeGeneration(&a.Generation, b)
		a.F = persist.Members(b[32])
	}
	if err := r.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}

func appendGeneration(b []byte, g *persist.Generation) []byte {
	b = binary.BigEndian.AppendUint64(b, g.Life)
	b = binary.BigEndian.AppendUint64(b, g.Count)
	return append(b, g.Nonce[:]...)
}

func decodeGeneration(g *persist.Generation, b []byte) {
	g.Life, g.Count = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	copy(g.Nonce[:], b[16:])
}

// Record asks the target to replace the region's record. The initiator sends it on lane 0.
//
//	 16    24     25         32       1544
//	+-----+------+----------+--------+
//	| seq | fill | reserved | record |
//	+-----+------+----------+--------+
type Record struct {
	Seq uint64
	// Fill has the members whose bits the target sets, all of them, before the record is
	// durable. It clears the bits of the members in the record's F, also if Fill has them.
	Fill persist.Members
	// Record is what the region is to persist. The zero Record ends its membership.
	Record persist.Record
}

// Recorded answers a Record: the record and the bits are durable.
//
//	 16    24         32
//	+-----+----------+
//	| seq | reserved |
//	+-----+----------+
type Recorded struct{ Seq uint64 }

const (
	recordMessageSize = 32 + recordSize
	recordedSize      = 32
)

// Append appends the message to b.
func (m *Record) Append(b []byte) []byte {
	b = appendHeader(b, TypeRecord, recordMessageSize)
	b = binary.BigEndian.AppendUint64(b, m.Seq)
	b = append(b, byte(m.Fill), 0, 0, 0, 0, 0, 0, 0)
	return appendRecord(b, &m.Record)
}

// Decode reads the message from b.
func (m *Record) Decode(b []byte) error {
	if err := expect(b, TypeRecord, recordMessageSize); err != nil {
		return err
	}
	m.Seq = binary.BigEndian.Uint64(b[16:])
	if m.Fill = persist.Members(b[24]); m.Fill&^allMembers != 0 {
		return fmt.Errorf("%w: RECORD that fills the bits of members %#x", ErrMalformed, uint8(m.Fill))
	}
	return decodeRecord(&m.Record, b[32:])
}

// Append appends the message to b.
func (m *Recorded) Append(b []byte) []byte {
	return appendOne(b, TypeRecorded, recordedSize, m.Seq)
}

// Decode reads the message from b.
func (m *Recorded) Decode(b []byte) (err error) {
	m.Seq, err = one(b, TypeRecorded, recordedSize)
	return err
}
