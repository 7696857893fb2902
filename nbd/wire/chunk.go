package wire

import (
	"encoding/binary"
	"fmt"
)

// Lengths of a reply chunk without its payload, in bytes.
const (
	StructuredReplySize = 20
	ExtendedReplySize   = 32
)

// ReplyFlags modify a reply chunk.
type ReplyFlags uint16

// ReplyFlagDone marks the last chunk of a reply.
const ReplyFlagDone ReplyFlags = 1 << 0

// ChunkType is what a reply chunk carries.
type ChunkType uint16

// Types of reply chunks. Those with the top bit set are errors.
const (
	ChunkNone           ChunkType = 0
	ChunkOffsetData     ChunkType = 1
	ChunkOffsetHole     ChunkType = 2
	ChunkBlockStatus    ChunkType = 5
	ChunkBlockStatusExt ChunkType = 6

	chunkError       ChunkType = 1 << 15
	ChunkError       ChunkType = chunkError + 1
	ChunkErrorOffset ChunkType = chunkError + 2
)

// IsError reports whether t makes its reply a failure.
func (t ChunkType) IsError() bool { return t&chunkError != 0 }

// Chunk is the header of a part of a structured reply. Len bytes of payload follow it.
//
//	 0       4       6       8               16      20
//	+-------+-------+-------+---------------+-------+
//	| magic | flags | type  | cookie        | length|
//	+-------+-------+-------+---------------+-------+
//
// With extended headers:
//
//	 0       4       6       8               16              24              32
//	+-------+-------+-------+---------------+---------------+---------------+
//	| magic | flags | type  | cookie        | offset        | length        |
//	+-------+-------+-------+---------------+---------------+---------------+
type Chunk struct {
	Flags  ReplyFlags
	Type   ChunkType
	Cookie uint64
	Off    uint64 // the offset of the request, only with extended headers
	Len    uint64 // of the payload, bytes
}

// PutStructuredReply writes c to the first StructuredReplySize bytes of b.
func PutStructuredReply(b []byte, c Chunk) {
	_ = b[StructuredReplySize-1]
	binary.BigEndian.PutUint32(b, MagicStructuredReply)
	binary.BigEndian.PutUint16(b[4:], uint16(c.Flags))
	binary.BigEndian.PutUint16(b[6:], uint16(c.Type))
	binary.BigEndian.PutUint64(b[8:], c.Cookie)
	binary.BigEndian.PutUint32(b[16:], uint32(c.Len))
}

// PutExtendedReply writes c to the first ExtendedReplySize bytes of b.
func PutExtendedReply(b []byte, c Chunk) {
	_ = b[ExtendedReplySize-1]
	binary.BigEndian.PutUint32(b, MagicExtendedReply)
	binary.BigEndian.PutUint16(b[4:], uint16(c.Flags))
	binary.BigEndian.PutUint16(b[6:], uint16(c.Type))
	binary.BigEndian.PutUint64(b[8:], c.Cookie)
	binary.BigEndian.PutUint64(b[16:], c.Off)
	binary.BigEndian.PutUint64(b[24:], c.Len)
}

// DecodeStructuredReply decodes the header of a structured reply's chunk.
func DecodeStructuredReply(b []byte) (Chunk, error) {
	if len(b) < StructuredReplySize {
		return Chunk{}, fmt.Errorf("structured reply of %d bytes: %w", len(b), ErrMalformed)
	}
	if binary.BigEndian.Uint32(b) != MagicStructuredReply {
		return Chunk{}, fmt.Errorf("structured reply: %w", ErrMagic)
	}
	return Chunk{
		Flags:  ReplyFlags(binary.BigEndian.Uint16(b[4:])),
		Type:   ChunkType(binary.BigEndian.Uint16(b[6:])),
		Cookie: binary.BigEndian.Uint64(b[8:]),
		Len:    uint64(binary.BigEndian.Uint32(b[16:])),
	}, nil
}

// DecodeExtendedReply decodes the extended header of a reply's chunk.
func DecodeExtendedReply(b []byte) (Chunk, error) {
	if len(b) < ExtendedReplySize {
		return Chunk{}, fmt.Errorf("extended reply of %d bytes: %w", len(b), ErrMalformed)
	}
	if binary.BigEndian.Uint32(b) != MagicExtendedReply {
		return Chunk{}, fmt.Errorf("extended reply: %w", ErrMagic)
	}
	return Chunk{
		Flags:  ReplyFlags(binary.BigEndian.Uint16(b[4:])),
		Type:   ChunkType(binary.BigEndian.Uint16(b[6:])),
		Cookie: binary.BigEndian.Uint64(b[8:]),
		Off:    binary.BigEndian.Uint64(b[16:]),
		Len:    binary.BigEndian.Uint64(b[24:]),
	}, nil
}

// OffsetSize is the length in bytes of the offset in the export that precedes the data in
// the payload of ChunkOffsetData.
const OffsetSize = 8

// PutOffset writes off to the first OffsetSize bytes of b.
func PutOffset(b []byte, off uint64) { binary.BigEndian.PutUint64(b, off) }

// ErrorSize is the length of an error chunk's payload without its text, in bytes.
const ErrorSize = 6

// PutError writes to the first ErrorSize bytes of b. A text of n bytes follows them; n is
// at most MaxString.
//
//	 0       4       6
//	+-------+-------+---------
//	| error | n     | text ...
//	+-------+-------+---------
func PutError(b []byte, errno uint32, n int) {
	binary.BigEndian.PutUint32(b, errno)
	binary.BigEndian.PutUint16(b[4:], uint16(n))
}

// DecodeError decodes the payload of an error chunk. It ignores the offset that follows the
// text of a ChunkErrorOffset.
func DecodeError(b []byte) (errno uint32, text []byte, err error) {
	if len(b) < ErrorSize || len(b)-ErrorSize < int(binary.BigEndian.Uint16(b[4:])) {
		return 0, nil, fmt.Errorf("error chunk of %d bytes: %w", len(b), ErrMalformed)
	}
	return binary.BigEndian.Uint32(b), b[ErrorSize:][:binary.BigEndian.Uint16(b[4:])], nil
}

// An Extent is a run of bytes that have the same status in a metadata context.
type Extent struct {
	Len    uint64 // bytes
	Status uint64
}

// Lengths of the payloads with one Extent, in bytes.
const (
	BlockStatusSize    = 4 + 8
	BlockStatusExtSize = 8 + 16
)

// PutBlockStatus writes the payload of ChunkBlockStatus with one Extent.
//
//	 0       4       8       12
//	+-------+-------+-------+
//	| id    | length| status|
//	+-------+-------+-------+
func PutBlockStatus(b []byte, id uint32, e Extent) {
	_ = b[BlockStatusSize-1]
	binary.BigEndian.PutUint32(b, id)
	binary.BigEndian.PutUint32(b[4:], uint32(e.Len))
	binary.BigEndian.PutUint32(b[8:], uint32(e.Status))
}

// PutBlockStatusExt writes the payload of ChunkBlockStatusExt with one Extent.
//
//	 0       4       8               16              24
//	+-------+-------+---------------+---------------+
//	| id    | 1     | length        | status        |
//	+-------+-------+---------------+---------------+
func PutBlockStatusExt(b []byte, id uint32, e Extent) {
	_ = b[BlockStatusExtSize-1]
	binary.BigEndian.PutUint32(b, id)
	binary.BigEndian.PutUint32(b[4:], 1)
	binary.BigEndian.PutUint64(b[8:], e.Len)
	binary.BigEndian.PutUint64(b[16:], e.Status)
}

// DecodeBlockStatus decodes the payload of ChunkBlockStatus with one Extent.
func DecodeBlockStatus(b []byte) (id uint32, e Extent, err error) {
	if len(b) != BlockStatusSize {
		return 0, e, fmt.Errorf("block status of %d bytes: %w", len(b), ErrMalformed)
	}
	e = Extent{Len: uint64(binary.BigEndian.Uint32(b[4:])), Status: uint64(binary.BigEndian.Uint32(b[8:]))}
	return binary.BigEndian.Uint32(b), e, nil
}

// DecodeBlockStatusExt decodes the payload of ChunkBlockStatusExt with one Extent.
func DecodeBlockStatusExt(b []byte) (id uint32, e Extent, err error) {
	if len(b) != BlockStatusExtSize || binary.BigEndian.Uint32(b[4:]) != 1 {
		return 0, e, fmt.Errorf("extended block status of %d bytes: %w", len(b), ErrMalformed)
	}
	e = Extent{Len: binary.BigEndian.Uint64(b[8:]), Status: binary.BigEndian.Uint64(b[16:])}
	return binary.BigEndian.Uint32(b), e, nil
}
