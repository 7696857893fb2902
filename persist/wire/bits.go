package wire

import (
	"encoding/binary"
	"fmt"

	"pmnbd/persist"
)

// Bits asks for a part of the bits that the region keeps for another member of its mirror.
// The initiator sends it on lane 0.
//
//	 16    24     32     33         40
//	+-----+------+------+----------+
//	| seq | from | slot | reserved |
//	+-----+------+------+----------+
type Bits struct {
	Seq uint64
	// From is the number of the first chunk, a multiple of 8.
	From uint64
	// Slot is the member's.
	Slot uint8
}

// Bitmap answers a Bits.
//
//	 16    24     32     33  34      36      40      40+count
//	+-----+------+------+---+-------+-------+-------+
//	| seq | from | slot | 0 | count | chunk | bits  |
//	+-----+------+------+---+-------+-------+-------+
type Bitmap struct {
	Seq uint64
	// From and Slot are those of the Bits.
	From uint64
	Slot uint8
	// Chunk is how many bytes of the data extent a bit stands for: a power of two from
	// MinChunk to MaxChunk.
	Chunk uint32
	// Bits has the bits from chunk From on, eight in a byte, the first one in bit 0. It
	// ends with the byte of the extent's last chunk, or is MaxBitmap bytes long. A bit is
	// set if the member may lack the chunk.
	Bits []byte
}

const (
	bitsSize     = 40
	bitmapHeader = 40
	// MaxBitmap is how many bytes of bits a Bitmap has at most.
	MaxBitmap = 3968
	// MinChunk and MaxChunk bound the size of a chunk in bytes.
	MinChunk = 64 << 10
	MaxChunk = 1 << 20
)

// Append appends the message to b.
func (m *Bits) Append(b []byte) []byte {
	b = appendHeader(b, TypeBits, bitsSize)
	return appendPlace(b, m.Seq, m.From, m.Slot, 0, 0)
}

// Decode reads the message from b. The caller must check From: it comes from the peer.
func (m *Bits) Decode(b []byte) (err error) {
	if err := expect(b, TypeBits, bitsSize); err != nil {
		return err
	}
	m.Seq, m.From, m.Slot, err = decodePlace(b)
	return err
}

// Append appends the message to b. There are at most MaxBitmap bytes of bits.
func (m *Bitmap) Append(b []byte) []byte {
	b = appendHeader(b, TypeBitmap, bitmapHeader+len(m.Bits))
	b = appendPlace(b, m.Seq, m.From, m.Slot, uint16(len(m.Bits)), m.Chunk)
	return append(b, m.Bits...)
}

// Decode reads the message from b. It appends to m.Bits[:0], so a caller that provides
// room for MaxBitmap bytes allocates nothing.
func (m *Bitmap) Decode(b []byte) (err error) {
	if len(b) < bitmapHeader {
		return fmt.Errorf("%w: BITMAP of %d bytes", ErrMalformed, len(b))
	}
	count := int(binary.BigEndian.Uint16(b[34:]))
	if err := expect(b, TypeBitmap, bitmapHeader+count); err != nil {
		return err
	}
	if m.Seq, m.From, m.Slot, err = decodePlace(b); err != nil {
		return err
	}
	m.Chunk = binary.BigEndian.Uint32(b[36:])
	if count > MaxBitmap || m.Chunk < MinChunk || m.Chunk > MaxChunk || m.Chunk&(m.Chunk-1) != 0 {
		return fmt.Errorf("%w: BITMAP of %d bytes for chunks of %d", ErrMalformed, count, m.Chunk)
	}
	m.Bits = append(m.Bits[:0], b[bitmapHeader:]...)
	return nil
}

func appendPlace(b []byte, seq, from uint64, slot uint8, count uint16, chunk uint32) []byte {
	b = binary.BigEndian.AppendUint64(b, seq)
	b = binary.BigEndian.AppendUint64(b, from)
	b = append(b, slot, 0)
	b = binary.BigEndian.AppendUint16(b, count)
	return binary.BigEndian.AppendUint32(b, chunk)
}

// decodePlace reads what BITS and BITMAP have in common.
func decodePlace(b []byte) (seq, from uint64, slot uint8, err error) {
	seq, from, slot = binary.BigEndian.Uint64(b[16:]), binary.BigEndian.Uint64(b[24:]), b[32]
	if slot >= persist.MaxMembers || from%8 != 0 {
		return 0, 0, 0, fmt.Errorf("%w: bits of slot %d from chunk %d", ErrMalformed, slot, from)
	}
	return seq, from, slot, nil
}
