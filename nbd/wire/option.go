package wire

import (
	"encoding/binary"
	"fmt"
)

// OptionHeaderSize is the length of an OptionHeader in bytes.
const OptionHeaderSize = 16

// OptionHeader precedes an option's data.
//
//	 0               8       12      16
//	+---------------+-------+-------+-----------
//	| "IHAVEOPT"    | option| length| data ...
//	+---------------+-------+-------+-----------
type OptionHeader struct {
	Option Option
	Len    uint32 // of the data, bytes
}

// AppendOption appends an option with its data.
func AppendOption(b []byte, o Option, data []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, MagicOption)
	b = binary.BigEndian.AppendUint32(b, uint32(o))
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	return append(b, data...)
}

// DecodeOptionHeader decodes an OptionHeader.
func DecodeOptionHeader(b []byte) (OptionHeader, error) {
	if len(b) < OptionHeaderSize {
		return OptionHeader{}, fmt.Errorf("option header of %d bytes: %w", len(b), ErrMalformed)
	}
	if binary.BigEndian.Uint64(b) != MagicOption {
		return OptionHeader{}, fmt.Errorf("option header: %w", ErrMagic)
	}
	return OptionHeader{
		Option: Option(binary.BigEndian.Uint32(b[8:])),
		Len:    binary.BigEndian.Uint32(b[12:]),
	}, nil
}

// OptionReplySize is the length of an OptionReplyHeader in bytes.
const OptionReplySize = 20

// OptionReplyHeader precedes the data of a reply to an option.
//
//	 0               8       12      16      20
//	+---------------+-------+-------+-------+-----------
//	| magic         | option| type  | length| data ...
//	+---------------+-------+-------+-------+-----------
type OptionReplyHeader struct {
	Option Option
	Type   ReplyType
	Len    uint32 // of the data, bytes
}

// AppendOptionReply appends a reply to o with its data. The data of an error is a text for
// people.
func AppendOptionReply[T string | []byte](b []byte, o Option, t ReplyType, data T) []byte {
	b = appendReplyHeader(b, o, t, len(data))
	return append(b, data...)
}

func appendReplyHeader(b []byte, o Option, t ReplyType, n int) []byte {
	b = binary.BigEndian.AppendUint64(b, MagicOptionReply)
	b = binary.BigEndian.AppendUint32(b, uint32(o))
	b = binary.BigEndian.AppendUint32(b, uint32(t))
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

// DecodeOptionReply decodes an OptionReplyHeader.
func DecodeOptionReply(b []byte) (OptionReplyHeader, error) {
	if len(b) < OptionReplySize {
		return OptionReplyHeader{}, fmt.Errorf("option reply of %d bytes: %w", len(b), ErrMalformed)
	}
	if binary.BigEndian.Uint64(b) != MagicOptionReply {
		return OptionReplyHeader{}, fmt.Errorf("option reply: %w", ErrMagic)
	}
	return OptionReplyHeader{
		Option: Option(binary.BigEndian.Uint32(b[8:])),
		Type:   ReplyType(binary.BigEndian.Uint32(b[12:])),
		Len:    binary.BigEndian.Uint32(b[16:]),
	}, nil
}
