package wire

import (
	"encoding/binary"
	"fmt"
)

// RequestSize is the length of a request without its payload, in bytes.
const RequestSize = 28

// Request is what a client wants done. The payload of a WRITE, Len bytes, follows.
//
//	 0       4       6       8               16              24      28
//	+-------+-------+-------+---------------+---------------+-------+
//	| magic | flags | type  | cookie        | offset        | length|
//	+-------+-------+-------+---------------+---------------+-------+
type Request struct {
	Flags   CommandFlags
	Command Command
	Cookie  uint64
	Off     uint64 // in the export, bytes
	Len     uint32 // bytes
}

// AppendRequest appends r.
func AppendRequest(b []byte, r Request) []byte {
	b = append(b, make([]byte, RequestSize)...)
	PutRequest(b[len(b)-RequestSize:], r)
	return b
}

// PutRequest writes r to the first RequestSize bytes of b.
func PutRequest(b []byte, r Request) {
	_ = b[RequestSize-1]
	binary.BigEndian.PutUint32(b, MagicRequest)
	binary.BigEndian.PutUint16(b[4:], uint16(r.Flags))
	binary.BigEndian.PutUint16(b[6:], uint16(r.Command))
	binary.BigEndian.PutUint64(b[8:], r.Cookie)
	binary.BigEndian.PutUint64(b[16:], r.Off)
	binary.BigEndian.PutUint32(b[24:], r.Len)
}

// DecodeRequest decodes a request.
func DecodeRequest(b []byte) (Request, error) {
	if len(b) < RequestSize {
		return Request{}, fmt.Errorf("request of %d bytes: %w", len(b), ErrMalformed)
	}
	if binary.BigEndian.Uint32(b) != MagicRequest {
		return Request{}, fmt.Errorf("request: %w", ErrMagic)
	}
	return Request{
		Flags:   CommandFlags(binary.BigEndian.Uint16(b[4:])),
		Command: Command(binary.BigEndian.Uint16(b[6:])),
		Cookie:  binary.BigEndian.Uint64(b[8:]),
		Off:     binary.BigEndian.Uint64(b[16:]),
		Len:     binary.BigEndian.Uint32(b[24:]),
	}, nil
}
