// Package wire encodes and decodes the messages of the NBD protocol, only for this module; it
// promises nothing to other programs.
//
// It does no I/O and keeps no state. A decoder takes a slice with the whole message. It
// allocates nothing by a length that it has not checked, and returns an error that wraps
// ErrMagic or ErrMalformed. An encoder whose name begins with Append appends to a slice;
// one whose name begins with Put writes to the beginning of a slice that is large enough.
// All numbers on the wire are big-endian.
//
// The reference is the NBD project's doc/proto.md, and for extended headers the same file
// of the branch extension-ext-header. Names are those of proto.md without the prefix NBD_.
//
// The package has both directions of every message, because the server, the client and
// their tests share it.
package wire

import (
	"errors"
	"fmt"
)

// Magic numbers.
const (
	MagicInit            uint64 = 0x4e42444d41474943 // "NBDMAGIC"
	MagicOption          uint64 = 0x49484156454f5054 // "IHAVEOPT"
	MagicOptionReply     uint64 = 0x0003e889045565a9
	MagicRequest         uint32 = 0x25609513
	MagicExtendedRequest uint32 = 0x21e41c71
	MagicSimpleReply     uint32 = 0x67446698
	MagicStructuredReply uint32 = 0x668e33ef
	MagicExtendedReply   uint32 = 0x6e8a278c
)

// MaxString is the greatest length in bytes of a string of the protocol, such as the name
// of an export (proto.md, "Conventions").
const MaxString = 4096

// Errors of decoders.
var (
	// ErrMagic: a message does not begin with its magic number. The rest of the stream
	// cannot be decoded.
	ErrMagic = errors.New("bad magic number")
	// ErrMalformed: the lengths in a message contradict each other, or the message is
	// too short.
	ErrMalformed = errors.New("malformed message")
)

// HandshakeFlags are the flags of the server in the greeting.
type HandshakeFlags uint16

// Handshake flags.
const (
	FlagFixedNewstyle HandshakeFlags = 1 << 0
	FlagNoZeroes      HandshakeFlags = 1 << 1
)

// ClientFlags are the client's reply to the greeting.
type ClientFlags uint32

// Client flags.
const (
	ClientFixedNewstyle ClientFlags = 1 << 0
	ClientNoZeroes      ClientFlags = 1 << 1
)

// TransmissionFlags say which requests an export takes.
type TransmissionFlags uint16

// Transmission flags.
const (
	FlagHasFlags           TransmissionFlags = 1 << 0
	FlagReadOnly           TransmissionFlags = 1 << 1
	FlagSendFlush          TransmissionFlags = 1 << 2
	FlagSendFUA            TransmissionFlags = 1 << 3
	FlagRotational         TransmissionFlags = 1 << 4
	FlagSendTrim           TransmissionFlags = 1 << 5
	FlagSendWriteZeroes    TransmissionFlags = 1 << 6
	FlagSendDF             TransmissionFlags = 1 << 7
	FlagCanMultiConn       TransmissionFlags = 1 << 8
	FlagSendCache          TransmissionFlags = 1 << 10
	FlagSendFastZero       TransmissionFlags = 1 << 11
	FlagBlockStatusPayload TransmissionFlags = 1 << 12
)

// Option is what a client asks for before transmission.
type Option uint32

// Options.
const (
	OptExportName      Option = 1
	OptAbort           Option = 2
	OptList            Option = 3
	OptStartTLS        Option = 5
	OptInfo            Option = 6
	OptGo              Option = 7
	OptStructuredReply Option = 8
	OptListMetaContext Option = 9
	OptSetMetaContext  Option = 10
	OptExtendedHeaders Option = 11
)

func (o Option) String() string {
	switch o {
	case OptExportName:
		return "EXPORT_NAME"
	case OptAbort:
		return "ABORT"
	case OptList:
		return "LIST"
	case OptStartTLS:
		return "STARTTLS"
	case OptInfo:
		return "INFO"
	case OptGo:
		return "GO"
	case OptStructuredReply:
		return "STRUCTURED_REPLY"
	case OptListMetaContext:
		return "LIST_META_CONTEXT"
	case OptSetMetaContext:
		return "SET_META_CONTEXT"
	case OptExtendedHeaders:
		return "EXTENDED_HEADERS"
	}
	return fmt.Sprintf("option %d", uint32(o))
}

// ReplyType is the kind of a reply to an option.
type ReplyType uint32

// Reply types. Those with the top bit set are errors, and their data is a text.
const (
	RepAck         ReplyType = 1
	RepServer      ReplyType = 2
	RepInfo        ReplyType = 3
	RepMetaContext ReplyType = 4

	repError         ReplyType = 1 << 31
	RepErrUnsup      ReplyType = repError + 1
	RepErrPolicy     ReplyType = repError + 2
	RepErrInvalid    ReplyType = repError + 3
	RepErrPlatform   ReplyType = repError + 4
	RepErrTLSReqd    ReplyType = repError + 5
	RepErrUnknown    ReplyType = repError + 6
	RepErrShutdown   ReplyType = repError + 7
	RepErrBlockSize  ReplyType = repError + 8
	RepErrTooBig     ReplyType = repError + 9
	RepErrExtHdrReqd ReplyType = repError + 10
)

// IsError reports whether t refuses an option.
func (t ReplyType) IsError() bool { return t&repError != 0 }

func (t ReplyType) String() string {
	switch t {
	case RepAck:
		return "ACK"
	case RepServer:
		return "SERVER"
	case RepInfo:
		return "INFO"
	case RepMetaContext:
		return "META_CONTEXT"
	case RepErrUnsup:
		return "ERR_UNSUP"
	case RepErrPolicy:
		return "ERR_POLICY"
	case RepErrInvalid:
		return "ERR_INVALID"
	case RepErrPlatform:
		return "ERR_PLATFORM"
	case RepErrTLSReqd:
		return "ERR_TLS_REQD"
	case RepErrUnknown:
		return "ERR_UNKNOWN"
	case RepErrShutdown:
		return "ERR_SHUTDOWN"
	case RepErrBlockSize:
		return "ERR_BLOCK_SIZE_REQD"
	case RepErrTooBig:
		return "ERR_TOO_BIG"
	case RepErrExtHdrReqd:
		return "ERR_EXT_HEADER_REQD"
	}
	return fmt.Sprintf("reply type %#x", uint32(t))
}

// InfoType is a kind of information about an export.
type InfoType uint16

// Information types.
const (
	InfoExport      InfoType = 0
	InfoName        InfoType = 1
	InfoDescription InfoType = 2
	InfoBlockSize   InfoType = 3
)

// Command is the type of a request.
type Command uint16

// Commands.
const (
	CmdRead        Command = 0
	CmdWrite       Command = 1
	CmdDisc        Command = 2
	CmdFlush       Command = 3
	CmdTrim        Command = 4
	CmdCache       Command = 5
	CmdWriteZeroes Command = 6
	CmdBlockStatus Command = 7
)

// CommandFlags modify a request.
type CommandFlags uint16

// Command flags.
const (
	CmdFlagFUA        CommandFlags = 1 << 0
	CmdFlagNoHole     CommandFlags = 1 << 1
	CmdFlagDF         CommandFlags = 1 << 2
	CmdFlagReqOne     CommandFlags = 1 << 3
	CmdFlagFastZero   CommandFlags = 1 << 4
	CmdFlagPayloadLen CommandFlags = 1 << 5 // with extended headers only
)
