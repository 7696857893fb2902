package wire

import (
	"crypto/sha256"
	"encoding/binary"
)

// Digest asks for the SHA-256 of bytes of the data extent, in the order of its lane: with
// every Write and zero ahead of it, and none behind it. They need not be durable.
//
//	 16    24    32    40
//	+-----+-----+-----+
//	| seq | off | len |
//	+-----+-----+-----+
type Digest struct {
	Seq uint64
	// Off and Len are bytes of the data extent. Len is at most MaxDigest.
	Off, Len uint64
}

// Digested answers a Digest.
//
//	 16    24    56
//	+-----+-----+
//	| seq | sum |
//	+-----+-----+
type Digested struct {
	Seq uint64
	Sum [sha256.Size]byte
}

const (
	// MaxDigest is the most bytes of one Digest. The lane waits while the target sums
	// them, about a millisecond.
	MaxDigest = 1 << 20
	// MaxDigests is how many unanswered Digests a lane may have.
	MaxDigests = 8
	digestSize = 40
	// DigestedSize is the size in bytes of a Digested.
	DigestedSize = 56
)

// Append appends the message to b.
func (m *Digest) Append(b []byte) []byte {
	b = appendHeader(b, TypeDigest, digestSize)
	b = binary.BigEndian.AppendUint64(b, m.Seq)
	b = binary.BigEndian.AppendUint64(b, m.Off)
	return binary.BigEndian.AppendUint64(b, m.Len)
}

// Decode reads the message from b. The caller must check the range: it comes from the
// peer.
func (m *Digest) Decode(b []byte) error {
	if err := expect(b, TypeDigest, digestSize); err != nil {
		return err
	}
	m.Seq = binary.BigEndian.Uint64(b[16:])
	m.Off = binary.BigEndian.Uint64(b[24:])
	m.Len = binary.BigEndian.Uint64(b[32:])
	return nil
}

// Append appends the message to b.
func (m *Digested) Append(b []byte) []byte {
	b = appendHeader(b, TypeDigested, DigestedSize)
	b = binary.BigEndian.AppendUint64(b, m.Seq)
	return append(b, m.Sum[:]...)
}

// Decode reads the message from b.
func (m *Digested) Decode(b []byte) error {
	if err := expect(b, TypeDigested, DigestedSize); err != nil {
		return err
	}
	m.Seq = binary.BigEndian.Uint64(b[16:])
	copy(m.Sum[:], b[24:])
	return nil
}
