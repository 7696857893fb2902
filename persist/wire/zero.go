package wire

import "encoding/binary"

// Zero asks the target's CPU to store zeroes, in the order of its lane. They are not
// durable until a barrier covers the Zero.
//
//	 16    24    32    40         48
//	+-----+-----+-----+----------+
//	| seq | off | len | reserved |
//	+-----+-----+-----+----------+
type Zero struct {
	Seq uint64
	// Off and Len are bytes of the data extent. Len is at most MaxZero.
	Off, Len uint64
}

// ZeroAck says that the target has stored the zeroes: they overwrite nothing that is
// written from now on.
//
//	 16    24         32
//	+-----+----------+
//	| seq | reserved |
//	+-----+----------+
type ZeroAck struct{ Seq uint64 }

const (
	// MaxZero is the most bytes of one Zero. Storing them takes well under a millisecond,
	// which the lane can wait for.
	MaxZero = 1 << 20
	// ZeroSize and zeroAckSize are the sizes in bytes of the messages.
	ZeroSize    = 48
	zeroAckSize = 32
)

// Append appends the message to b.
func (m *Zero) Append(b []byte) []byte {
	b = appendHeader(b, TypeZero, ZeroSize)
	b = binary.BigEndian.AppendUint64(b, m.Seq)
	b = binary.BigEndian.AppendUint64(b, m.Off)
	b = binary.BigEndian.AppendUint64(b, m.Len)
	return binary.BigEndian.AppendUint64(b, 0)
}

// Decode reads the message from b. The caller must check the range: it comes from the
// peer.
func (m *Zero) Decode(b []byte) error {
	if err := expect(b, TypeZero, ZeroSize); err != nil {
		return err
	}
	m.Seq = binary.BigEndian.Uint64(b[16:])
	m.Off = binary.BigEndian.Uint64(b[24:])
	m.Len = binary.BigEndian.Uint64(b[32:])
	return nil
}

// Append appends the message to b.
func (m *ZeroAck) Append(b []byte) []byte {
	return appendOne(b, TypeZeroAck, zeroAckSize, m.Seq)
}

// Decode reads the message from b.
func (m *ZeroAck) Decode(b []byte) (err error) {
	m.Seq, err = one(b, TypeZeroAck, zeroAckSize)
	return err
}
