package wire

import (
	"encoding/binary"
	"fmt"

	"pmnbd/persist"
)

// Bad asks for places of the data extent that the target's medium has lost. The initiator sends it on lane 0
// when OPENED has OpenedBad.
//
//	 16    24     32
//	+-----+------+
//	| seq | from |
//	+-----+------+
type Bad struct {
	Seq uint64
	// From is the offset in the data extent from which on places are wanted.
	From uint64
}

// BadPlaces answers a Bad.
//
//	 16    24      28      30           32           32+16n
//	+-----+-------+-------+------------+------------+
//	| seq | flags | count | reserved   | off, len … |
//	+-----+-------+-------+------------+------------+
type BadPlaces struct {
	Seq uint64
	// More: there are places behind the last one. Ask from where that ends.
	More bool
	// Clears: a ZERO of whole blocks makes them good again.
	Clears bool
	// Places are the first ones that end behind From, at most MaxBadPlaces.
	Places persist.BadPlaces
}

const (
	badSize         = 32
	badPlacesHeader = 32
	badMore         = 1
	badClears       = 2
	// MaxBadPlaces is how many places a BadPlaces has at most.
	MaxBadPlaces = (MaxMessage - badPlacesHeader) / rangeSize
)

// Append appends the message to b.
func (m *Bad) Append(b []byte) []byte {
	b = appendHeader(b, TypeBad, badSize)
	b = binary.BigEndian.AppendUint64(b, m.Seq)
	return binary.BigEndian.AppendUint64(b, m.From)
}

// Decode reads the message from b.
func (m *Bad) Decode(b []byte) error {
	if err := expect(b, TypeBad, badSize); err != nil {
		return err
	}
	m.Seq, m.From = binary.BigEndian.Uint64(b[16:]), binary.BigEndian.Uint64(b[24:])
	return nil
}

// Append appends the message to b.
func (m *BadPlaces) Append(b []byte) []byte {
	b = appendHeader(b, TypeBadPlaces, badPlacesHeader+rangeSize*len(m.Places))
	b = binary.BigEndian.AppendUint64(b, m.Seq)
	var flags uint32
	if m.More {
		flags = badMore
	}
	if m.Clears {
		flags |= badClears
	}
	b = binary.BigEndian.AppendUint32(b, flags)
	b = binary.BigEndian.AppendUint16(b, uint16(len(m.Places)))
	b = binary.BigEndian.AppendUint16(b, 0)
	for _, g := range m.Places {
		b = binary.BigEndian.AppendUint64(b, g.Off)
		b = binary.BigEndian.AppendUint64(b, g.Len)
	}
	return b
}

// Decode reads the message from b. The places are whole blocks, in order, and do not touch. The caller must
// check that they lie in the extent.
func (m *BadPlaces) Decode(b []byte) error {
	if len(b) < badPlacesHeader {
		return fmt.Errorf("%w: BAD_PLACES of %d bytes", ErrMalformed, len(b))
	}
	count := int(binary.BigEndian.Uint16(b[28:]))
	if err := expect(b, TypeBadPlaces, badPlacesHeader+rangeSize*count); err != nil {
		return err
	}
	flags := binary.BigEndian.Uint32(b[24:])
	m.Seq, m.More, m.Clears = binary.BigEndian.Uint64(b[16:]), flags&badMore != 0, flags&badClears != 0
	m.Places = nil
	next := uint64(0) // where the next one may begin
	for p := b[badPlacesHeader:]; len(p) > 0; p = p[rangeSize:] {
		g := persist.Range{Off: binary.BigEndian.Uint64(p), Len: binary.BigEndian.Uint64(p[8:])}
		if g.Off < next || g.Len == 0 || g.Off%persist.BadBlock != 0 || g.Len%persist.BadBlock != 0 || g.Off+g.Len < g.Off {
			return fmt.Errorf("%w: bad place of %d bytes at %d", ErrMalformed, g.Len, g.Off)
		}
		next = g.End() + 1
		m.Places = append(m.Places, g)
	}
	if m.More && count == 0 {
		return fmt.Errorf("%w: BAD_PLACES has none, and more", ErrMalformed)
	}
	return nil
}
