package wire

import (
	"encoding/binary"
	"fmt"
)

// AppendServer appends the reply SERVER to LIST: one export.
//
//	 0       4             4+n
//	+-------+-------------+-----------------
//	| n     | export name | description ...
//	+-------+-------------+-----------------
func AppendServer(b []byte, name, description string) []byte {
	b = appendReplyHeader(b, OptList, RepServer, 4+len(name)+len(description))
	b = binary.BigEndian.AppendUint32(b, uint32(len(name)))
	b = append(b, name...)
	return append(b, description...)
}

// DecodeServer decodes the data of a reply SERVER.
func DecodeServer(b []byte) (name, description string, err error) {
	if len(b) < 4 {
		return "", "", fmt.Errorf("server reply of %d bytes: %w", len(b), ErrMalformed)
	}
	n := binary.BigEndian.Uint32(b)
	if uint64(n) > uint64(len(b)-4) {
		return "", "", fmt.Errorf("export name of %d bytes in %d bytes of data: %w", n, len(b), ErrMalformed)
	}
	return string(b[4 : 4+n]), string(b[4+n:]), nil
}
