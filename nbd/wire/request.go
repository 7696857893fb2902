package wire

import (
	"encoding/binary"
	"fmt"
)

// Lengths of a request without its payload, in bytes.
const (
	RequestSize         = 28
	ExtendedRequestSize = 32
)

// Request is a request of a client. Len bytes of payload follow a WRITE.
//
//	 0       4       6       8               16              24      28
//	+-------+-------+-------+---------------+---------------+-------+
//	| magic | flags | type  | cookie        | offset        | length|
//	+-------+-------+-------+---------------+---------------+-------+
//
// With extended headers, the length has 8 bytes. If the flags have CmdFlagPayloadLen, a
// payload follows and Len is its length.
type Request struct {
	Flags   CommandFlags
	Command Command
	Cookie  uint64
	Off     uint64 // in the export, bytes
	Len     uint64 // bytes, less than 4 GiB without extended headers
}

// AppendRequest appends r.
func AppendRequest(b []byte, r Request) []byte {
	b = append(b, make([]byte, RequestSize)...)
	PutRequest(b[len(b)-RequestSize:], r)
	return b
}

// PutRequest writes r to the first RequestSize bytes of b.
func PutRequest(b []byte, r Request) {
	putRequest(b, MagicRequest, r)
	binary.BigEndian.PutUint32(b[24:], uint32(r.Len))
}

// PutExtendedRequest writes r to the first ExtendedRequestSize bytes of b.
func PutExtendedRequest(b []byte, r Request) {
	putRequest(b, MagicExtendedRequest, r)
	binary.BigEndian.PutUint64(b[24:], r.Len)
}

func putRequest(b []byte, magic uint32, r Request) {
	_ = b[RequestSize-1]
	binary.BigEndian.PutUint32(b, magic)
	binary.BigEndian.PutUint16(b[4:], uint16(r.Flags))
	binary.BigEndian.PutUint16(b[6:], uint16(r.Command))
	binary.BigEndian.PutUint64(b[8:], r.Cookie)
	binary.BigEndian.PutUint64(b[16:], r.Off)
}

// DecodeRequest decodes a request.
func DecodeRequest(b []byte) (Request, error) {
	if len(b) < RequestSize {
		return Request{}, fmt.Errorf("request of %d bytes: %w", len(b), ErrMalformed)
	}
	if binary.BigEndian.Uint32(b) != MagicRequest {
		return Request{}, fmt.Errorf("request: %w", ErrMagic)
	}
	r := decodeRequest(b)
	r.Len = uint64(binary.BigEndian.Uint32(b[24:]))
	return r, nil
}

// DecodeExtendedRequest decodes a request with an extended header.
func DecodeExtendedRequest(b []byte) (Request, error) {
	if len(b) < ExtendedRequestSize {
		return Request{}, fmt.Errorf("extended request of %d bytes: %w", len(b), ErrMalformed)
	}
	if binary.BigEndian.Uint32(b) != MagicExtendedRequest {
		return Request{}, fmt.Errorf("extended request: %w", ErrMagic)
	}
	r := decodeRequest(b)
	r.Len = binary.BigEndian.Uint64(b[24:])
	return r, nil
}

// decodeRequest decodes the fields that both headers have.
func decodeRequest(b []byte) Request {
	return Request{
		Flags:   CommandFlags(binary.BigEndian.Uint16(b[4:])),
		Command: Command(binary.BigEndian.Uint16(b[6:])),
		Cookie:  binary.BigEndian.Uint64(b[8:]),
		Off:     binary.BigEndian.Uint64(b[16:]),
	}
}

// StatusPayloadSize is the length in bytes of a BLOCK_STATUS payload that names one context.
const StatusPayloadSize = 12

// DecodeStatusPayload decodes the payload of a BLOCK_STATUS that names one context.
//
//	 0               8       12
//	+---------------+-------+
//	| length        | id    |
//	+---------------+-------+
func DecodeStatusPayload(b []byte) (length uint64, id uint32, err error) {
	if len(b) != StatusPayloadSize {
		return 0, 0, fmt.Errorf("BLOCK_STATUS payload of %d bytes: %w", len(b), ErrMalformed)
	}
	return binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:]), nil
}

// AppendStatusPayload appends the payload of a BLOCK_STATUS.
func AppendStatusPayload(b []byte, length uint64, ids ...uint32) []byte {
	b = binary.BigEndian.AppendUint64(b, length)
	for _, id := range ids {
		b = binary.BigEndian.AppendUint32(b, id)
	}
	return b
}
