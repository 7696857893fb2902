package wire

import "encoding/binary"

// Join makes a further connection a lane of a session.
//
//	 16      24     26         32      48       80
//	+-------+------+----------+-------+--------+
//	| epoch | lane | reserved | nonce | proof  |
//	+-------+------+----------+-------+--------+
type Join struct {
	Epoch uint64
	Lane  uint16
	Nonce [16]byte
	// Proof is made with the session's secret (Secret.SignRequest).
	Proof [32]byte
}

// Append appends the message to b.
func (m *Join) Append(b []byte) []byte {
	b = appendHeader(b, TypeJoin, joinSize)
	b = binary.BigEndian.AppendUint64(b, m.Epoch)
	b = binary.BigEndian.AppendUint16(b, m.Lane)
	b = append(b, 0, 0, 0, 0, 0, 0)
	b = append(b, m.Nonce[:]...)
	return append(b, m.Proof[:]...)
}

// Decode reads the message from b.
func (m *Join) Decode(b []byte) error {
	if err := expect(b, TypeJoin, joinSize); err != nil {
		return err
	}
	m.Epoch = binary.BigEndian.Uint64(b[16:])
	m.Lane = binary.BigEndian.Uint16(b[24:])
	copy(m.Nonce[:], b[32:])
	copy(m.Proof[:], b[48:])
	return nil
}

// JoinHint is the private data in the connection request of a further lane. The target
// must create the connection in the session's protection domain, before any message can
// arrive; by the hint it finds the session.
//
//	 0               4      6          8       16     32               56
//	+---------------+------+----------+-------+------+----------------+
//	| magic "PMNJ"  | lane | reserved | epoch | uuid | proof          |
//	+---------------+------+----------+-------+------+----------------+
type JoinHint struct {
	Lane  uint16
	Epoch uint64
	// Region is the region's UUID.
	Region [16]byte
	// Proof is made with the session's secret (Secret.Sign).
	Proof [24]byte
}

const (
	joinMagic    = 0x504d4e4a
	joinHintSize = 56
)

// Append appends the private data to b.
func (m *JoinHint) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, joinMagic)
	b = binary.BigEndian.AppendUint16(b, m.Lane)
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint64(b, m.Epoch)
	b = append(b, m.Region[:]...)
	return append(b, m.Proof[:]...)
}

// Decode reads the private data from b, which the transport may have padded. It reports
// false if they are not those of a lane.
func (m *JoinHint) Decode(b []byte) bool {
	if len(b) < joinHintSize || binary.BigEndian.Uint32(b) != joinMagic {
		return false
	}
	m.Lane = binary.BigEndian.Uint16(b[4:])
	m.Epoch = binary.BigEndian.Uint64(b[8:])
	copy(m.Region[:], b[16:])
	copy(m.Proof[:], b[32:])
	return true
}

// Joined answers a Join: the connection is a lane from now on.
//
//	 16      24     26        28         32      64        80
//	+-------+------+---------+----------+-------+---------+
//	| epoch | lane | credits | reserved | proof | durable |
//	+-------+------+---------+----------+-------+---------+
type Joined struct {
	Epoch   uint64
	Lane    uint16
	Credits uint16
	// Proof is made with the session's secret (Secret.SignAnswer). It shows that the lane
	// ends at the same target as the session.
	Proof [32]byte
	// Durable is the last durable barrier of the lane with this number (see
	// Opened.Durable).
	Durable Durable
}

// Append appends the message to b.
func (m *Joined) Append(b []byte) []byte {
	b = appendHeader(b, TypeJoined, joinedSize)
	b = binary.BigEndian.AppendUint64(b, m.Epoch)
	b = binary.BigEndian.AppendUint16(b, m.Lane)
	b = binary.BigEndian.AppendUint16(b, m.Credits)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = append(b, m.Proof[:]...)
	return m.Durable.append(b)
}

// Decode reads the message from b.
func (m *Joined) Decode(b []byte) error {
	if err := expect(b, TypeJoined, joinedSize); err != nil {
		return err
	}
	m.Epoch = binary.BigEndian.Uint64(b[16:])
	m.Lane = binary.BigEndian.Uint16(b[24:])
	m.Credits = binary.BigEndian.Uint16(b[26:])
	copy(m.Proof[:], b[32:])
	m.Durable.decode(b[64:])
	return nil
}
