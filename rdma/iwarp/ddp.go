package iwarp

import "encoding/binary"

// The headers of DDP (RFC 5041 §4). RDMAP's control byte is in the field that DDP
// reserves for its upper layer (RFC 5040 §4.1).
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

// A segment is a decoded DDP segment.
type segment struct {
	Tagged, Last bool
	Op           opcode

	// Tagged segments only.
	STag uint32
	TO   uint64
	// Untagged segments only.
	Invalidate, QN, MSN, MO uint32

	Payload []byte
}

// header returns the length of s's header in bytes.
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

// appendTagged appends the header of a tagged segment to b.
func appendTagged(b []byte, op opcode, last bool, stag uint32, to uint64) []byte {
	b = appendControl(b, ddpTagged, last, op)
	b = binary.BigEndian.AppendUint32(b, stag)
	return binary.BigEndian.AppendUint64(b, to)
}

// appendUntagged appends the header of an untagged segment to b. This end invalidates
// nothing, so the Invalidate STag is 0.
func appendUntagged(b []byte, op opcode, last bool, qn, msn, mo uint32) []byte {
	b = appendControl(b, 0, last, op)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, qn)
	b = binary.BigEndian.AppendUint32(b, msn)
	return binary.BigEndian.AppendUint32(b, mo)
}

// decodeSegment decodes the ULPDU b into s, whose Payload then refers to b. It checks
// the versions, and that the opcode goes with the kind of segment and the queue.
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
