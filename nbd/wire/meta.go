package wire

import (
	"encoding/binary"
	"fmt"
	"iter"
)

// ContextAllocation is the metadata context that says which blocks are allocated
// (proto.md, "base:allocation metadata context").
const ContextAllocation = "base:allocation"

// MetaRequest is the data of LIST_META_CONTEXT and SET_META_CONTEXT.
//
//	 0       4             4+n     8+n
//	+-------+-------------+-------+-------+-----------+---
//	| n     | export name | count | length| query ... | ...
//	+-------+-------------+-------+-------+-----------+---
//
// Its fields refer to the message.
type MetaRequest struct {
	Name    []byte
	Count   uint32 // of queries
	queries []byte
}

// Queries returns the metadata contexts that the client asks for.
func (r MetaRequest) Queries() iter.Seq[string] {
	return func(yield func(string) bool) {
		for b := r.queries; len(b) > 0; {
			n := binary.BigEndian.Uint32(b)
			if !yield(string(b[4 : 4+n])) {
				return
			}
			b = b[4+n:]
		}
	}
}

// DecodeMetaRequest decodes the whole data of LIST_META_CONTEXT or
// SET_META_CONTEXT.
func DecodeMetaRequest(b []byte) (r MetaRequest, err error) {
	rest, err := r.decodeName(b)
	if err != nil {
		return r, err
	}
	if len(rest) < 4 {
		return r, fmt.Errorf("the number of queries is missing: %w", ErrMalformed)
	}
	r.Count, r.queries = binary.BigEndian.Uint32(rest), rest[4:]
	rest = r.queries
	for i := range r.Count {
		if len(rest) < 4 || uint64(binary.BigEndian.Uint32(rest)) > uint64(len(rest)-4) {
			return r, fmt.Errorf("query %d of %d reaches past the end of the data: %w", i+1, r.Count, ErrMalformed)
		}
		n := binary.BigEndian.Uint32(rest)
		if n > MaxString {
			return r, fmt.Errorf("query of %d bytes: %w", n, ErrMalformed)
		}
		rest = rest[4+n:]
	}
	if len(rest) > 0 {
		return r, fmt.Errorf("%d bytes after %d queries: %w", len(rest), r.Count, ErrMalformed)
	}
	return r, nil
}

func (r *MetaRequest) decodeName(b []byte) (rest []byte, err error) {
	if len(b) < 4 || uint64(binary.BigEndian.Uint32(b)) > uint64(len(b)-4) {
		return nil, fmt.Errorf("export name in %d bytes of data: %w", len(b), ErrMalformed)
	}
	n := binary.BigEndian.Uint32(b)
	r.Name = b[4 : 4+n]
	return b[4+n:], nil
}

// AppendMetaRequest appends the data of LIST_META_CONTEXT or SET_META_CONTEXT.
func AppendMetaRequest(b []byte, name string, queries ...string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(name)))
	b = append(b, name...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(queries)))
	for _, q := range queries {
		b = binary.BigEndian.AppendUint32(b, uint32(len(q)))
		b = append(b, q...)
	}
	return b
}

// AppendMetaContext appends the reply META_CONTEXT.
//
//	 0       4
//	+-------+---------
//	| id    | name ...
//	+-------+---------
func AppendMetaContext(b []byte, o Option, id uint32, name string) []byte {
	b = appendReplyHeader(b, o, RepMetaContext, 4+len(name))
	b = binary.BigEndian.AppendUint32(b, id)
	return append(b, name...)
}

// DecodeMetaContext decodes the data of the reply META_CONTEXT.
func DecodeMetaContext(b []byte) (id uint32, name string, err error) {
	if len(b) < 4 {
		return 0, "", fmt.Errorf("metadata context of %d bytes: %w", len(b), ErrMalformed)
	}
	return binary.BigEndian.Uint32(b), string(b[4:]), nil
}
