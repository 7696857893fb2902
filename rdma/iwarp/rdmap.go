package iwarp

import "encoding/binary"

// An opcode is one of RDMAP (RFC 5040 §4.3). This end accepts every kind of Send and sends
// only opSend.
type opcode uint8

const (
	opWrite opcode = iota
	opReadRequest
	opReadResponse
	opSend
	opSendInvalidate
	opSendSE
	opSendSEInvalidate
	opTerminate
)

// queue returns the untagged queue that op travels on; ok is false for a tagged op.
func (op opcode) queue() (qn uint32, ok bool) {
	switch op {
	case opSend, opSendInvalidate, opSendSE, opSendSEInvalidate:
		return queueSend, true
	case opReadRequest:
		return queueRead, true
	case opTerminate:
		return queueTerminate, true
	}
	return 0, false
}

// A readRequest is the payload of a Read Request (RFC 5040 §4.4).
//
//	| Sink STag 4 | Sink TO 8 | Read Message Size 4 | Source STag 4 | Source TO 8 |
type readRequest struct {
	SinkSTag   uint32
	SinkTO     uint64
	Size       uint32
	SourceSTag uint32
	SourceTO   uint64
}

const readRequestLen = 28

// append appends r to b.
func (r *readRequest) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, r.SinkSTag)
	b = binary.BigEndian.AppendUint64(b, r.SinkTO)
	b = binary.BigEndian.AppendUint32(b, r.Size)
	b = binary.BigEndian.AppendUint32(b, r.SourceSTag)
	return binary.BigEndian.AppendUint64(b, r.SourceTO)
}

// decodeReadRequest decodes b, which has readRequestLen bytes.
func decodeReadRequest(b []byte) readRequest {
	return readRequest{
		SinkSTag:   binary.BigEndian.Uint32(b),
		SinkTO:     binary.BigEndian.Uint64(b[4:]),
		Size:       binary.BigEndian.Uint32(b[12:]),
		SourceSTag: binary.BigEndian.Uint32(b[16:]),
		SourceTO:   binary.BigEndian.Uint64(b[20:]),
	}
}
