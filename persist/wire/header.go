// Package wire turns the control messages of a session into bytes and back, only for this
// module; it promises nothing to other programs. The layouts are fixed, big-endian, and
// the same over every transport (design §5). docs/protocol.md shows them byte by byte.
//
// It exists so that neither end's logic knows an offset. It owns the layouts and the
// version, does no I/O and keeps no state. Encoders append to the caller's slice.
// Decoders check every length before they use it, allocate nothing but texts, and escape
// what is not plain in them.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"

	"pmnbd/internal/plain"
)

// Every message begins with
//
//	 0               4       6       8              12              16
//	+---------------+-------+-------+---------------+---------------+
//	| magic "PMND"  |version| type  | length, bytes | reserved, 0   |
//	+---------------+-------+-------+---------------+---------------+
//
// length counts the whole message. A target answers
// initiators of the version before its own, too: there is none yet.
const (
	// magic is the first word of every message.
	magic = 0x504d4e44
	// Version is the version that this end speaks.
	Version = 3
	// headerSize is the size of the header in bytes.
	headerSize = 16
	// MaxMessage is the size in bytes of the largest message. Receives have this size.
	MaxMessage = 4096
)

// A Type is the type of a message.
type Type uint16

// The messages. An even type answers the odd type before it.
const (
	TypeOpen         Type = 1
	TypeOpened       Type = 2
	TypeResume       Type = 3 // answered by OPENED or REFUSED
	TypeRefused      Type = 4 // answers OPEN, RESUME or JOIN
	TypeJoin         Type = 5
	TypeJoined       Type = 6
	TypeClose        Type = 7
	TypeClosed       Type = 8
	TypeHeartbeat    Type = 9
	TypeHeartbeatAck Type = 10
	TypeBarrier      Type = 11
	TypeBarrierAck   Type = 12
	TypeBarrierFail  Type = 14 // answers BARRIER, too
	TypeZero         Type = 15
	TypeZeroAck      Type = 16
	TypeChallenge    Type = 18 // answers the first OPEN or RESUME, if the target asks for keys
	TypeRecord       Type = 19
	TypeRecorded     Type = 20
	TypeBits         Type = 21
	TypeBitmap       Type = 22
	TypeDigest       Type = 23
	TypeDigested     Type = 24
	TypeBad          Type = 25
	TypeBadPlaces    Type = 26
)

func (t Type) String() string {
	if name, ok := typeNames[t]; ok {
		return name
	}
	return fmt.Sprintf("message type %d", uint16(t))
}

var typeNames = map[Type]string{
	TypeOpen: "OPEN", TypeOpened: "OPENED", TypeResume: "RESUME", TypeRefused: "REFUSED",
	TypeJoin: "JOIN", TypeJoined: "JOINED", TypeClose: "CLOSE", TypeClosed: "CLOSED",
	TypeHeartbeat: "HEARTBEAT", TypeHeartbeatAck: "HEARTBEAT_ACK",
	TypeBarrier: "BARRIER", TypeBarrierAck: "BARRIER_ACK", TypeBarrierFail: "BARRIER_FAIL",
	TypeZero: "ZERO", TypeZeroAck: "ZERO_ACK", TypeChallenge: "CHALLENGE",
	TypeRecord: "RECORD", TypeRecorded: "RECORDED", TypeBits: "BITS", TypeBitmap: "BITMAP",
	TypeDigest: "DIGEST", TypeDigested: "DIGESTED", TypeBad: "BAD", TypeBadPlaces: "BAD_PLACES",
}

// ErrMalformed says that the bytes are not a valid message of the expected type.
var ErrMalformed = errors.New("malformed control message")

// A VersionError says that the peer speaks a version that this end does not speak.
type VersionError struct{ Ours, Theirs uint16 }

func (e *VersionError) Error() string {
	return fmt.Sprintf("the peer speaks version %d of the control protocol, and this end speaks version %d: upgrade the target first, by one version at a time (docs/compatibility.md)", e.Theirs, e.Ours)
}

// TypeOf checks the header of message b, including its length, and returns the type. It
// fails with ErrMalformed or a *VersionError.
func TypeOf(b []byte) (Type, error) {
	if len(b) < headerSize {
		return 0, fmt.Errorf("%w: %d bytes are less than a header", ErrMalformed, len(b))
	}
	if m := binary.BigEndian.Uint32(b); m != magic {
		return 0, fmt.Errorf("%w: magic %#x", ErrMalformed, m)
	}
	if v := binary.BigEndian.Uint16(b[4:]); v != Version {
		return 0, &VersionError{Ours: Version, Theirs: v}
	}
	if n := binary.BigEndian.Uint32(b[8:]); uint64(n) != uint64(len(b)) || n > MaxMessage {
		return 0, fmt.Errorf("%w: length %d in a message of %d bytes", ErrMalformed, n, len(b))
	}
	return Type(binary.BigEndian.Uint16(b[6:])), nil
}

// appendHeader appends the header of a message of size bytes.
func appendHeader(b []byte, t Type, size int) []byte {
	b = binary.BigEndian.AppendUint32(b, magic)
	b = binary.BigEndian.AppendUint16(b, Version)
	b = binary.BigEndian.AppendUint16(b, uint16(t))
	b = binary.BigEndian.AppendUint32(b, uint32(size))
	return binary.BigEndian.AppendUint32(b, 0)
}

// expect checks that b is one message of type t, size bytes long.
func expect(b []byte, t Type, size int) error {
	got, err := TypeOf(b)
	if err != nil {
		return err
	}
	if got != t || len(b) != size {
		return fmt.Errorf("%w: %v of %d bytes instead of %v of %d", ErrMalformed, got, len(b), t, size)
	}
	return nil
}

// A text is one byte of length and up to 255 bytes, padded with zeroes to textSize.
const (
	textSize = 256
	// MaxText is the length in bytes of the longest name or reason.
	MaxText = textSize - 1
)

func appendText(b []byte, s string) []byte {
	s = fit(s)
	b = append(b, byte(len(s)))
	b = append(b, s...)
	var zero [textSize]byte
	return append(b, zero[1+len(s):]...)
}

// text reads a text for people. The peer that sent it may have proven nothing, so text
// escapes everything that is not plain.
func text(b []byte) string { return fit(plain.Text(string(b[1 : 1+int(b[0])]))) }

// fit cuts s to at most MaxText bytes, and never inside a character.
func fit(s string) string {
	if len(s) <= MaxText {
		return s
	}
	n := MaxText
	for n > MaxText-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
