package wire

import (
	"encoding/binary"

	"pmnbd/persist"
)

// Open asks for a session.
//
//	 16   32      48      56    58      59  60      62      64      96      128    384    392    400
//	+----+-------+-------+-----+-------+---+-------+-------+-------+-------+------+------+------+
//	| id | nonce | epoch |flags|methods| 0 |credits| lanes | nonce | proof | name | mark | life |
//	+----+-------+-------+-----+-------+---+-------+-------+-------+-------+------+------+------+
type Open struct {
	Owner persist.Owner
	// Epoch is the epoch in which the initiator expects the region. The target refuses 0
	// always: its refusal names the persisted epoch, and a fresh process then asks again
	// with that.
	Epoch uint64
	Flags OpenFlags
	// Methods are those that the initiator has, or the only one that it accepts.
	Methods persist.Methods
	// Credits is how many receives the initiator keeps posted on a lane.
	Credits uint16
	// Lanes is how many connections the initiator wants for the session.
	Lanes uint16
	// Nonce is the initiator's part of the secret. Proof shows that the initiator has the
	// key (Secret.SignRequest). Both are zero without a key.
	Nonce Nonce
	Proof [32]byte
	// Region is the region's name, at most MaxText bytes.
	Region string
	// Mark is the highest mark of the region that the target told the initiator. OPEN has
	// 0.
	Mark uint64
	// Life is the number of the initiator's life (mirror §2). It must be larger than every
	// life that has opened the region. 0 stands for an initiator of a single region. The
	// target ignores it in RESUME, because the owner's life has not changed.
	Life uint64
}

// OpenFlags qualify an Open.
type OpenFlags uint16

const (
	// OpenAllowVolatile permits a region of class volatile.
	OpenAllowVolatile OpenFlags = 1 << iota
	// OpenTakeover ends the lease of another id. RESUME never sets it.
	OpenTakeover
	// OpenSingle opens a member of a mirror whose contents are to count as lost to the mirror: as a single
	// region with life 0, because it was put back from a copy, or because others copy to it than its record says.
	OpenSingle
	// OpenJoin opens a region that is no member with a life other than 0. A RECORD then
	// makes it a member.
	OpenJoin
)

const (
	openSize    = 400
	openedSize  = 1712
	refusedSize = 1880
	joinSize    = 80
	joinedSize  = 80
	closeSize   = 32
	closedSize  = 32
)

// Append appends the message to b.
func (m *Open) Append(b []byte) []byte { return m.appendAs(b, TypeOpen) }

func (m *Open) appendAs(b []byte, t Type) []byte {
	b = appendHeader(b, t, openSize)
	b = append(b, m.Owner.ID[:]...)
	b = append(b, m.Owner.Nonce[:]...)
	b = binary.BigEndian.AppendUint64(b, m.Epoch)
	b = binary.BigEndian.AppendUint16(b, uint16(m.Flags))
	b = append(b, byte(m.Methods), 0)
	b = binary.BigEndian.AppendUint16(b, m.Credits)
	b = binary.BigEndian.AppendUint16(b, m.Lanes)
	b = append(b, m.Nonce[:]...)
	b = append(b, m.Proof[:]...)
	b = appendText(b, m.Region)
	b = binary.BigEndian.AppendUint64(b, m.Mark)
	return binary.BigEndian.AppendUint64(b, m.Life)
}

// Decode reads the message from b.
func (m *Open) Decode(b []byte) error { return m.decodeAs(b, TypeOpen) }

func (m *Open) decodeAs(b []byte, t Type) error {
	if err := expect(b, t, openSize); err != nil {
		return err
	}
	copy(m.Owner.ID[:], b[16:])
	copy(m.Owner.Nonce[:], b[32:])
	m.Epoch = binary.BigEndian.Uint64(b[48:])
	m.Flags, m.Methods = OpenFlags(binary.BigEndian.Uint16(b[56:])), persist.Methods(b[58])
	m.Credits = binary.BigEndian.Uint16(b[60:])
	m.Lanes = binary.BigEndian.Uint16(b[62:])
	copy(m.Nonce[:], b[64:])
	copy(m.Proof[:], b[96:])
	m.Region = text(b[128:384])
	m.Mark = binary.BigEndian.Uint64(b[384:])
	m.Life = binary.BigEndian.Uint64(b[392:])
	return nil
}

// Opened grants a session.
//
//	 16      32     40    41      42      44    48     56      64           80
//	+-------+------+-----+-------+-------+-----+------+-------+------------+
//	| uuid  | size |class|methods| flags | key | base | epoch | contents id|
//	+-------+------+-----+-------+-------+-----+------+-------+------------+
//	 80      112     114     116     120     124         128         132     133 136     168  176       192
//	+-------+-------+-------+-------+-------+-----------+-----------+-------+---+-------+----+---------+
//	| token |credits| lanes | max   |heart- | lease, ms | why not,  |method | 0 | proof |mark| durable |
//	|       |       |       |message|beat,ms|           | by method |       |   |       |    |         |
//	+-------+-------+-------+-------+-------+-----------+-----------+-------+---+-------+----+---------+
//	 192    200      1712
//	+------+--------+
//	| life | record |
//	+------+--------+
type Opened struct {
	// UUID, Size (bytes of the data extent) and Class describe the region.
	UUID  [16]byte
	Size  uint64
	Class persist.Class
	// Methods are those that are sound for this session.
	Methods persist.Methods
	Flags   OpenedFlags
	// Key and Base address byte 0 of the data extent.
	Key  uint32
	Base uint64
	// Epoch is the epoch of the session.
	Epoch uint64
	// ContentsID changes when readable contents may have been lost.
	ContentsID [16]byte
	// Token is the secret by which further lanes JOIN if there is no key; otherwise 0.
	Token Secret
	// Credits is how many receives the target keeps posted on a lane.
	Credits uint16
	// Lanes is how many connections the session may have.
	Lanes uint16
	// MaxMessage is the size in bytes of the largest message that the target receives.
	MaxMessage uint32
	// Heartbeat is the interval of heartbeats and Lease that of the lease, in
	// milliseconds.
	Heartbeat, Lease uint32
	// WhyNot has, at index m-1, the reason why method m is not sound, or 0 if it is.
	WhyNot [4]persist.Reason
	// Method is the session's method: the best one that is sound and that the initiator
	// has.
	Method persist.Method
	// Proof shows that the target has the key (Secret.SignAnswer). It is zero without a
	// key.
	Proof [32]byte
	// Mark is the region's persisted mark.
	Mark uint64
	// Durable names the last barrier of a lane that became durable, even if the target
	// never sent its acknowledgement. Barrier counts within Epoch, the session in which
	// the barrier came, because another run of an initiator counts anew. Durable is zero
	// if the target knows of no such barrier, for example after its restart, or for a new
	// owner.
	Durable Durable
	// Life is the highest life that has opened the region, this session's too. Record is
	// what the region persists of its mirror. Both are zero for a region that never was a
	// member.
	Life   uint64
	Record persist.Record
}

// Durable names the last barrier of a lane that became durable, even if the target never
// sent its acknowledgement. Barrier counts within Epoch, the session in which the barrier
// came: each session counts anew. Durable is zero if the target knows of no such barrier,
// for example after its restart, or for a new owner.
type Durable struct{ Epoch, Barrier uint64 }

func (m Durable) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, m.Epoch)
	return binary.BigEndian.AppendUint64(b, m.Barrier)
}

func (m *Durable) decode(b []byte) {
	m.Epoch, m.Barrier = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
}

// OpenedFlags qualify an Opened.
type OpenedFlags uint16

const (
	// OpenedDoubt: somebody may have read bytes that are not durable (design §3.8).
	OpenedDoubt OpenedFlags = 1 << iota
	// OpenedUnclean: the previous owner did not close.
	OpenedUnclean
	// OpenedBad: the medium has lost places of the region. The initiator asks which (Bad), and reads none
	// of them. One that does not know the flag finds out by reading.
	OpenedBad
)

// Append appends the message to b.
func (m *Opened) Append(b []byte) []byte {
	b = appendHeader(b, TypeOpened, openedSize)
	b = append(b, m.UUID[:]...)
	b = binary.BigEndian.AppendUint64(b, m.Size)
	b = append(b, byte(m.Class), byte(m.Methods))
	b = binary.BigEndian.AppendUint16(b, uint16(m.Flags))
	b = binary.BigEndian.AppendUint32(b, m.Key)
	b = binary.BigEndian.AppendUint64(b, m.Base)
	b = binary.BigEndian.AppendUint64(b, m.Epoch)
	b = append(b, m.ContentsID[:]...)
	b = append(b, m.Token[:]...)
	b = binary.BigEndian.AppendUint16(b, m.Credits)
	b = binary.BigEndian.AppendUint16(b, m.Lanes)
	b = binary.BigEndian.AppendUint32(b, m.MaxMessage)
	b = binary.BigEndian.AppendUint32(b, m.Heartbeat)
	b = binary.BigEndian.AppendUint32(b, m.Lease)
	for _, why := range m.WhyNot {
		b = append(b, byte(why))
	}
	b = append(b, byte(m.Method), 0, 0, 0)
	b = append(b, m.Proof[:]...)
	b = binary.BigEndian.AppendUint64(b, m.Mark)
	b = m.Durable.append(b)
	b = binary.BigEndian.AppendUint64(b, m.Life)
	return appendRecord(b, &m.Record)
}

// Decode reads the message from b.
func (m *Opened) Decode(b []byte) error {
	if err := expect(b, TypeOpened, openedSize); err != nil {
		return err
	}
	copy(m.UUID[:], b[16:])
	m.Size = binary.BigEndian.Uint64(b[32:])
	m.Class, m.Methods = persist.Class(b[40]), persist.Methods(b[41])
	m.Flags = OpenedFlags(binary.BigEndian.Uint16(b[42:]))
	m.Key = binary.BigEndian.Uint32(b[44:])
	m.Base = binary.BigEndian.Uint64(b[48:])
	m.Epoch = binary.BigEndian.Uint64(b[56:])
	copy(m.ContentsID[:], b[64:])
	copy(m.Token[:], b[80:])
	m.Credits = binary.BigEndian.Uint16(b[112:])
	m.Lanes = binary.BigEndian.Uint16(b[114:])
	m.MaxMessage = binary.BigEndian.Uint32(b[116:])
	m.Heartbeat = binary.BigEndian.Uint32(b[120:])
	m.Lease = binary.BigEndian.Uint32(b[124:])
	for i := range m.WhyNot {
		m.WhyNot[i] = persist.Reason(b[128+i])
	}
	m.Method = persist.Method(b[132])
	copy(m.Proof[:], b[136:])
	m.Mark = binary.BigEndian.Uint64(b[168:])
	m.Durable.decode(b[176:])
	m.Life = binary.BigEndian.Uint64(b[192:])
	return decodeRecord(&m.Record, b[200:])
}

// Resume asks to continue a session whose connections were lost. Its layout is that of
// Open. Its epoch is the last one that the owner was granted.
type Resume Open

// Append appends the message to b.
func (m *Resume) Append(b []byte) []byte { return (*Open)(m).appendAs(b, TypeResume) }

// Decode reads the message from b.
func (m *Resume) Decode(b []byte) error { return (*Open)(m).decodeAs(b, TypeResume) }

// Close ends the lease. The initiator sends it only if a barrier has covered every write.
//
//	 16      24         32
//	+-------+----------+
//	| epoch | reserved |
//	+-------+----------+
type Close struct{ Epoch uint64 }

// Append appends the message to b.
func (m *Close) Append(b []byte) []byte {
	return appendOne(b, TypeClose, closeSize, m.Epoch)
}

// Decode reads the message from b.
func (m *Close) Decode(b []byte) (err error) {
	m.Epoch, err = one(b, TypeClose, closeSize)
	return err
}

// Closed answers a Close: the region is durably marked clean.
//
//	 16      24     32
//	+-------+------+
//	| epoch | mark |
//	+-------+------+
type Closed struct {
	Epoch uint64
	// Mark is the region's mark, which CLOSE has advanced.
	Mark uint64
}

// Append appends the message to b.
func (m *Closed) Append(b []byte) []byte {
	b = appendHeader(b, TypeClosed, closedSize)
	b = binary.BigEndian.AppendUint64(b, m.Epoch)
	return binary.BigEndian.AppendUint64(b, m.Mark)
}

// Decode reads the message from b.
func (m *Closed) Decode(b []byte) error {
	if err := expect(b, TypeClosed, closedSize); err != nil {
		return err
	}
	m.Epoch, m.Mark = binary.BigEndian.Uint64(b[16:]), binary.BigEndian.Uint64(b[24:])
	return nil
}

// appendOne appends a message whose only field is x.
func appendOne(b []byte, t Type, size int, x uint64) []byte {
	b = appendHeader(b, t, size)
	b = binary.BigEndian.AppendUint64(b, x)
	return binary.BigEndian.AppendUint64(b, 0)
}

func one(b []byte, t Type, size int) (uint64, error) {
	if err := expect(b, t, size); err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(b[16:]), nil
}
