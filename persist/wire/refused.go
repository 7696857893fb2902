package wire

import (
	"encoding/binary"

	"pmnbd/persist"
)

// A Code says why the target refused a request or failed a barrier.
type Code uint16

// The codes.
const (
	// CodeUnknownRegion: the target serves no region of that name.
	CodeUnknownRegion Code = iota + 1
	// CodeBusy: another id holds the lease, or a grant is under way. Ask again.
	CodeBusy
	// CodeEpoch: the region is in another epoch than the request names. Refused.Epoch has
	// the epoch.
	CodeEpoch
	// CodeFailed: the region failed. Only an operator can clear that.
	CodeFailed
	// CodeSuspect: the platform lost power without saving. Only an operator can clear
	// that.
	CodeSuspect
	// CodeVolatile: the region is of class volatile, which the initiator did not allow.
	CodeVolatile
	// CodeNotSupported: this release does not implement the request.
	CodeNotSupported
	// CodeVersion: the versions are too far apart.
	CodeVersion
	// CodeInvalid: the request breaks the protocol.
	CodeInvalid
	// CodeNotOwner: somebody who does not hold the region sent RESUME or JOIN.
	CodeNotOwner
	// CodeMethod: none of the methods in Open.Methods is sound.
	CodeMethod
	// CodeNotAllowed: the operator allows the region to other initiators only.
	CodeNotAllowed
	// CodeAuth: the initiator has not proven that it has a key of its id. The refusal
	// says no more than that, and has no proof.
	CodeAuth
	// CodeRestored: RESUME names an epoch or a mark that the region has not reached, so
	// somebody restored the region from a copy.
	CodeRestored
	// CodeLife: a life of this number, or a later one, has opened the region. Refused.Life
	// has its number.
	CodeLife
	// CodeMember: the region is a member of a mirror, and the request has life 0 without
	// OpenSingle.
	CodeMember
	// CodeNoMember: the region is no member of a mirror, and the request has a life without
	// OpenJoin.
	CodeNoMember
	// CodeClear: the region demands an encrypted connection.
	CodeClear
)

func (c Code) String() string {
	if int(c) < len(codeNames) && c > 0 {
		return codeNames[c]
	}
	return "unknown reason"
}

var codeNames = [...]string{
	CodeUnknownRegion: "unknown region", CodeBusy: "region busy", CodeEpoch: "other epoch",
	CodeFailed: "region failed", CodeSuspect: "region suspect", CodeVolatile: "region is volatile",
	CodeNotSupported: "not supported yet", CodeVersion: "protocol version", CodeInvalid: "invalid request",
	CodeNotOwner: "not the owner", CodeMethod: "no sound method", CodeNotAllowed: "initiator not allowed",
	CodeAuth: "authentication refused", CodeRestored: "region restored from a copy",
	CodeLife: "opened by a later life", CodeMember: "region is a member of a mirror",
	CodeNoMember: "region is no member of a mirror", CodeClear: "connection not encrypted",
}

// Refused answers an Open, Resume or Join that the target refuses.
//
//	 16     18         20        24      32       48     64     320     352    360    368      1880
//	+------+----------+---------+-------+--------+------+------+-------+------+------+--------+
//	| code | flags    | seconds | epoch | holder | uuid | text | proof | mark | life | record |
//	+------+----------+---------+-------+--------+------+------+-------+------+------+--------+
type Refused struct {
	Code Code
	// Flags has OpenedUnclean if the previous owner did not close.
	Flags OpenedFlags
	// Seconds is how long the holder's lease still runs, whether the holder is another initiator
	// or the one that asks.
	Seconds uint32
	// Epoch is the persisted epoch.
	Epoch uint64
	// Holder is the id that holds the region, or the last one that held it.
	Holder [16]byte
	// UUID is the region's. With it the initiator locks the region against other
	// processes of its id before it asks again.
	UUID [16]byte
	// Text says more, for people.
	Text string
	// Proof shows that the target has the key (Secret.SignAnswer). It is zero without a
	// key.
	Proof [32]byte
	// Mark is the persisted mark.
	Mark uint64
	// Life is the highest life that has opened the region, and Record what the region
	// persists of its mirror. Both are zero if UUID is.
	Life   uint64
	Record persist.Record
}

// Append appends the message to b.
func (m *Refused) Append(b []byte) []byte {
	b = appendHeader(b, TypeRefused, refusedSize)
	b = binary.BigEndian.AppendUint16(b, uint16(m.Code))
	b = binary.BigEndian.AppendUint16(b, uint16(m.Flags))
	b = binary.BigEndian.AppendUint32(b, m.Seconds)
	b = binary.BigEndian.AppendUint64(b, m.Epoch)
	b = append(b, m.Holder[:]...)
	b = append(b, m.UUID[:]...)
	b = appendText(b, m.Text)
	b = append(b, m.Proof[:]...)
	b = binary.BigEndian.AppendUint64(b, m.Mark)
	b = binary.BigEndian.AppendUint64(b, m.Life)
	return appendRecord(b, &m.Record)
}

// Decode reads the message from b.
func (m *Refused) Decode(b []byte) error {
	if err := expect(b, TypeRefused, refusedSize); err != nil {
		return err
	}
	m.Code, m.Flags = Code(binary.BigEndian.Uint16(b[16:])), OpenedFlags(binary.BigEndian.Uint16(b[18:]))
	m.Seconds = binary.BigEndian.Uint32(b[20:])
	m.Epoch = binary.BigEndian.Uint64(b[24:])
	copy(m.Holder[:], b[32:])
	copy(m.UUID[:], b[48:])
	m.Text = text(b[64:320])
	copy(m.Proof[:], b[320:])
	m.Mark = binary.BigEndian.Uint64(b[352:])
	m.Life = binary.BigEndian.Uint64(b[360:])
	return decodeRecord(&m.Record, b[368:])
}
