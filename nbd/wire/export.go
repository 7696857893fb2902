package wire

import (
	"encoding/binary"
	"fmt"
)

// The lengths of the reply to EXPORT_NAME, in bytes: without and with its zeroes.
const (
	ExportReplySize       = 10
	ExportReplyZeroesSize = ExportReplySize + 124
)

// Export describes an export to a client. It is the reply to EXPORT_NAME and the body of
// INFO_EXPORT.
//
//	 0               8       10            134
//	+---------------+-------+-----------------+
//	| size          | flags | zeroes, if any  |
//	+---------------+-------+-----------------+
type Export struct {
	Size  uint64 // bytes
	Flags TransmissionFlags
}

// AppendExport appends e, without the zeroes.
func AppendExport(b []byte, e Export) []byte {
	b = binary.BigEndian.AppendUint64(b, e.Size)
	return binary.BigEndian.AppendUint16(b, uint16(e.Flags))
}

// AppendExportZeroes appends e for a client that did not negotiate NO_ZEROES.
func AppendExportZeroes(b []byte, e Export) []byte {
	b = AppendExport(b, e)
	return append(b, make([]byte, ExportReplyZeroesSize-ExportReplySize)...)
}

// DecodeExport decodes an Export. It ignores the zeroes that may follow.
func DecodeExport(b []byte) (Export, error) {
	if len(b) < ExportReplySize {
		return Export{}, fmt.Errorf("export of %d bytes: %w", len(b), ErrMalformed)
	}
	return Export{
		Size:  binary.BigEndian.Uint64(b),
		Flags: TransmissionFlags(binary.BigEndian.Uint16(b[8:])),
	}, nil
}
