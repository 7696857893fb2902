package iwarp

import "encoding/binary"

// The headers of DDP (RFC 5041 §4), with RDMAP's control byte in the ULP's place
// (RFC 5040 §4.1).
//
//	 0               1               2               3
//	+-+-+-------+---+---+---+-------+-------------------------------+
//	|T|L| Rsvd  |DV |RV |Rsv| Opcode|                               |
//	+-+-+-------+---+---+---+-------+ tagged (T): STag, TO
//	                                  untagged: Invalidate STag, QN, MSN, MO
//
//	tagged:   control 2 | STag 4 | TO 8                             = 14
//	untagged: control 2 | Invalidate STag 4 | QN 4 | MSN 4 | MO 4   = 18
const (
	taggedLen   = 14
	untaggedLen = 18

	ddpTagged  = 0x80
	ddpLast    = 0x40
	ddpVersion = 0x01
	ddpVMask   = 0x03

	rdmapVersion = 0x40
	rdmapVMask   = 0xc0
	opcodeMask   = 0x0f
)

// The untagged queues of RDMAP (RFC 5040 §4.1).
const (
	queueSend = iota
	queueRead
	queueTerminate
	queues
)

// A segment is a DDP segment.
type segment struct {
	Tagged, Last bool
	Op           opcode

	// Of a tagged segment.
	STag uint32
	TO   uint64
	// Of an untagged segment.
	Invalidate, QN, MSN, MO uint32

	Payload []byte
}

// header is the length of s's header.
func (s *segment) header() int {
	if s.Tagged {
		return taggedLen
	}
	return untaggedLen
}

func appendControl(b []byte, first byte, last bool, op opcode) []byte {
	first |= ddpVersion
	if last {
		first |= ddpLast
	}
	return append(b, first, rdmapVersion|byte(op))
}

// appendTagged encodes the header of a tagged segment behind b.
func appendTagged(b []byte, op opcode, last bool, stag uint32, to uint64) []byte {
	b = appendControl(b, ddpTagged, last, op)
	b = binary.BigEndian.AppendUint32(b, stag)
	return binary.BigEndian.AppendUint64(b, to)
}

// appendUntagged encodes the header of an untagged segment behind b.
func appendUntagged(b []byte, op opcode, last bool, invalidate, qn, msn, mo uint32) []byte {
	b = appendControl(b, 0, last, op)
	b = binary.BigEndian.AppendUint32(b, invalidate)
	b = binary.BigEndian.AppendUint32(b, qn)
	b = binary.BigEndian.AppendUint32(b, msn)
	return binary.BigEndian.AppendUint32(b, mo)
}

// decodeSegment decodes a ULPDU. It checks what a header can say by itself:
// versions, and that the opcode, the kind of segment and the queue go together.
// Payload refers to b.
func decodeSegment(b []byte, s *segment) *violation {
	if len(b) < taggedLen {
		return &badLength
	}
	*s = segment{Tagged: b[0]&ddpTagged != 0, Last: b[0]&ddpLast != 0, Op: opcode(b[1] & opcodeMask)}
	if !s.Tagged && len(b) < untaggedLen {
		return &badLength
	}
	if b[0]&ddpVMask != ddpVersion {
		if s.Tagged {
			return &badVersionTagged
		}
		return &badVersionUntagged
	}
	if b[1]&rdmapVMask != rdmapVersion {
		return &badRDMAPVersion
	}
	s.Payload = b[s.header():]
	if s.Tagged {
		s.STag = binary.BigEndian.Uint32(b[2:])
		s.TO = binary.BigEndian.Uint64(b[6:])
		if s.Op != opWrite && s.Op != opReadResponse {
			return &badOpcode
		}
		return nil
	}
	s.Invalidate = binary.BigEndian.Uint32(b[2:])
	s.QN = binary.BigEndian.Uint32(b[6:])
	s.MSN = binary.BigEndian.Uint32(b[10:])
	s.MO = binary.BigEndian.Uint32(b[14:])
	if s.QN >= queues {
		return &badQueue
	}
	if qn, ok := s.Op.queue(); !ok || qn != s.QN {
		return &badOpcode
	}
	return nil
}
