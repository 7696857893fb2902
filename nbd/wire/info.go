package wire

import (
	"encoding/binary"
	"fmt"
)

// InfoRequest is the data of INFO and GO.
//
//	 0       4             4+n     6+n
//	+-------+-------------+-------+-------+-------+---
//	| n     | export name | count | type  | type  | ...
//	+-------+-------------+-------+-------+-------+---
//
// Its fields refer to the message.
type InfoRequest struct {
	Name  []byte
	types []byte
}

// Wants reports whether the client asked for t.
func (r InfoRequest) Wants(t InfoType) bool {
	for i := 0; i+2 <= len(r.types); i += 2 {
		if InfoType(binary.BigEndian.Uint16(r.types[i:])) == t {
			return true
		}
	}
	return false
}

// AppendInfoRequest appends the data of INFO or GO.
func AppendInfoRequest(b []byte, name string, types ...InfoType) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(name)))
	b = append(b, name...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(types)))
	for _, t := range types {
		b = binary.BigEndian.AppendUint16(b, uint16(t))
	}
	return b
}

// DecodeInfoRequest decodes the whole data of INFO or GO.
func DecodeInfoRequest(b []byte) (InfoRequest, error) {
	if len(b) < 6 {
		return InfoRequest{}, fmt.Errorf("information request of %d bytes: %w", len(b), ErrMalformed)
	}
	n := binary.BigEndian.Uint32(b)
	if uint64(n) > uint64(len(b)-6) {
		return InfoRequest{}, fmt.Errorf("export name of %d bytes in %d bytes of data: %w", n, len(b), ErrMalformed)
	}
	name, rest := b[4:4+n], b[4+n:]
	if count, types := binary.BigEndian.Uint16(rest), rest[2:]; len(types) != 2*int(count) {
		return InfoRequest{}, fmt.Errorf("%d information types in %d bytes: %w", count, len(types), ErrMalformed)
	}
	return InfoRequest{Name: name, types: rest[2:]}, nil
}

// AppendInfoExport appends the reply INFO with INFO_EXPORT.
//
//	+-------+---------------+-------+
//	| 0     | size          | flags |
//	+-------+---------------+-------+
func AppendInfoExport(b []byte, o Option, e Export) []byte {
	b = appendInfo(b, o, InfoExport, ExportReplySize)
	return AppendExport(b, e)
}

// AppendInfoText appends the reply INFO with INFO_NAME or INFO_DESCRIPTION.
//
//	+-------+---------
//	| 1, 2  | text ...
//	+-------+---------
func AppendInfoText(b []byte, o Option, t InfoType, text string) []byte {
	b = appendInfo(b, o, t, len(text))
	return append(b, text...)
}

// BlockSizes are the size constraints of an export, in bytes: the smallest unit of a
// request, the best unit, and the largest payload.
type BlockSizes struct {
	Min, Preferred, MaxPayload uint32
}

// AppendInfoBlockSize appends the reply INFO with INFO_BLOCK_SIZE.
//
//	+-------+-------+-----------+-------------+
//	| 3     | min   | preferred | max payload |
//	+-------+-------+-----------+-------------+
func AppendInfoBlockSize(b []byte, o Option, s BlockSizes) []byte {
	b = appendInfo(b, o, InfoBlockSize, 12)
	b = binary.BigEndian.AppendUint32(b, s.Min)
	b = binary.BigEndian.AppendUint32(b, s.Preferred)
	return binary.BigEndian.AppendUint32(b, s.MaxPayload)
}

func appendInfo(b []byte, o Option, t InfoType, n int) []byte {
	b = appendReplyHeader(b, o, RepInfo, 2+n)
	return binary.BigEndian.AppendUint16(b, uint16(t))
}

// DecodeInfo splits the data of a reply INFO into its type and its body.
func DecodeInfo(b []byte) (InfoType, []byte, error) {
	if len(b) < 2 {
		return 0, nil, fmt.Errorf("information of %d bytes: %w", len(b), ErrMalformed)
	}
	return InfoType(binary.BigEndian.Uint16(b)), b[2:], nil
}

// DecodeBlockSizes decodes the body of INFO_BLOCK_SIZE.
func DecodeBlockSizes(b []byte) (BlockSizes, error) {
	if len(b) != 12 {
		return BlockSizes{}, fmt.Errorf("block sizes of %d bytes: %w", len(b), ErrMalformed)
	}
	return BlockSizes{
		Min:        binary.BigEndian.Uint32(b),
		Preferred:  binary.BigEndian.Uint32(b[4:]),
		MaxPayload: binary.BigEndian.Uint32(b[8:]),
	}, nil
}
