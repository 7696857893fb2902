package wire

import (
	"encoding/binary"
	"fmt"
)

// SimpleReplySize is the length of a simple reply without its data, in bytes.
const SimpleReplySize = 16

// SimpleReply is the simple form of a reply. If Errno is 0, the data of a READ follows.
//
//	 0       4       8               16
//	+-------+-------+---------------+
//	| magic | error | cookie        |
//	+-------+-------+---------------+
type SimpleReply struct {
	Errno  uint32
	Cookie uint64
}

// PutSimpleReply writes r to the first SimpleReplySize bytes of b.
func PutSimpleReply(b []byte, r SimpleReply) {
	_ = b[SimpleReplySize-1]
	binary.BigEndian.PutUint32(b, MagicSimpleReply)
	binary.BigEndian.PutUint32(b[4:], r.Errno)
	binary.BigEndian.PutUint64(b[8:], r.Cookie)
}

// AppendSimpleReply appends r.
func AppendSimpleReply(b []byte, r SimpleReply) []byte {
	b = append(b, make([]byte, SimpleReplySize)...)
	PutSimpleReply(b[len(b)-SimpleReplySize:], r)
	return b
}

// DecodeSimpleReply decodes a simple reply.
func DecodeSimpleReply(b []byte) (SimpleReply, error) {
	if len(b) < SimpleReplySize {
		return SimpleReply{}, fmt.Errorf("simple reply of %d bytes: %w", len(b), ErrMalformed)
	}
	if binary.BigEndian.Uint32(b) != MagicSimpleReply {
		return SimpleReply{}, fmt.Errorf("simple reply: %w", ErrMagic)
	}
	return SimpleReply{Errno: binary.BigEndian.Uint32(b[4:]), Cookie: binary.BigEndian.Uint64(b[8:])}, nil
}
