package wire

import "encoding/binary"

// Zero asks the target's CPU to store zeroes, in the order of its lane. It is not
// durable until a barrier covers it.
//
//	 16    24    32    40         48
//	+-----+-----+-----+----------+
//	| seq | off | len | reserved |
//	+-----+-----+-----+----------+
type Zero struct {
	Seq uint64
	// Off and Len are bytes of the data extent; Len is at most MaxZero.
	Off, Len uint64
}

// ZeroAck says that a Zero is stored: what is written there from now on stays.
//
//	 16    24         32
//	+-----+----------+
//	| seq | reserved |
//	+-----+----------+
type ZeroAck struct{ Seq uint64 }

const (
	// MaxZero is the most that one Zero may ask for, in bytes: well under a
	// millisecond of storing, which the lane can wait for.
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

// Decode reads the message from b. The range comes from the
// peer, and the caller has to check it.
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
