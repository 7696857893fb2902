package iwarp

import (
	"encoding/binary"
	"fmt"

	"pmnbd/rdma"
)

// A violation is something that a peer did wrong, with the codes of its Terminate.
type violation struct {
	Layer, Type, Code uint8
	text              string
}

func (v *violation) Error() string { return v.text }

// Layers and error types of a Terminate (RFC 5040 §4.8, RFC 5041 §8, RFC 5044 §8).
const (
	layerRDMAP = 0
	layerDDP   = 1
	layerMPA   = 2

	rdmapCatastrophic = 0
	rdmapProtection   = 1
	rdmapOperation    = 2

	ddpCatastrophic = 0
	ddpTaggedError  = 1
	ddpUntagged     = 2

	ddpNoBuffer = 2
	ddpTooLong  = 5
)

// The violations that this end detects.
var (
	badCRC    = violation{layerMPA, 0, 2, "the CRC of an FPDU is wrong"}
	badLength = violation{layerMPA, 0, 3, "an FPDU is too short for its header"}

	badSTag          = violation{layerDDP, ddpTaggedError, 0, "invalid STag"}
	badBounds        = violation{layerDDP, ddpTaggedError, 1, "outside the bounds of the STag"}
	badWrap          = violation{layerDDP, ddpTaggedError, 3, "the tagged offset wraps"}
	badVersionTagged = violation{layerDDP, ddpTaggedError, 4, "unknown DDP version"}

	badQueue           = violation{layerDDP, ddpUntagged, 1, "invalid queue number"}
	noBuffer           = violation{layerDDP, ddpUntagged, ddpNoBuffer, "a message met no receive"}
	badMSN             = violation{layerDDP, ddpUntagged, 3, "message sequence number out of order"}
	badMO              = violation{layerDDP, ddpUntagged, 4, "message offset out of order"}
	tooLong            = violation{layerDDP, ddpUntagged, ddpTooLong, "a message is longer than its receive"}
	badVersionUntagged = violation{layerDDP, ddpUntagged, 6, "unknown DDP version"}

	badMemory       = violation{layerRDMAP, rdmapCatastrophic, 0, "memory of this end is broken"}
	badReadSTag     = violation{layerRDMAP, rdmapProtection, 0, "Read of an invalid STag"}
	badReadBounds   = violation{layerRDMAP, rdmapProtection, 1, "Read outside the bounds of the STag"}
	noAccess        = violation{layerRDMAP, rdmapProtection, 2, "the STag does not grant this access"}
	badReadWrap     = violation{layerRDMAP, rdmapProtection, 4, "the tagged offset of a Read wraps"}
	badInvalidate   = violation{layerRDMAP, rdmapProtection, 9, "the STag cannot be invalidated"}
	badRDMAPVersion = violation{layerRDMAP, rdmapOperation, 5, "unknown RDMAP version"}
	badOpcode       = violation{layerRDMAP, rdmapOperation, 6, "unexpected opcode"}
	badReadRequest  = violation{layerRDMAP, rdmapOperation, 0xff, "malformed Read Request"}
)

// The payload of a Terminate (RFC 5040 §4.8). The headers in it are those of the segment
// at fault.
//
//	+-------+-------+---------------+-+-+-+-------------------------+
//	| Layer | EType |  Error Code   |M|D|R|        Reserved         |
//	+-------+-------+---------------+-+-+-+-------------------------+
//	| DDP segment length (M) 2 | DDP header (D) 14, 18 | RDMAP header (R) 28 |
//
// R is set for a Read Request only.
const (
	terminateControlLen = 4
	maxTerminateLen     = terminateControlLen + 2 + untaggedLen + readRequestLen
	termLength          = 0x80
	termDDP             = 0x40
	termRDMAP           = 0x20
)

// appendTerminate appends the payload of a Terminate for v to b. ulpdu is the segment at
// fault, or nil.
func appendTerminate(b []byte, v *violation, ulpdu []byte) []byte {
	var flags byte
	header := 0
	var s segment
	// Only whole headers go out, including those that decodeSegment refuses.
	if len(ulpdu) >= taggedLen {
		if bad := decodeSegment(ulpdu, &s); bad != &badLength {
			header, flags = s.header(), termLength|termDDP
			if s.Op == opReadRequest && !s.Tagged && len(s.Payload) >= readRequestLen {
				flags |= termRDMAP
				header += readRequestLen
			}
		}
	}
	b = append(b, v.Layer<<4|v.Type, v.Code, flags, 0)
	if flags&termLength != 0 {
		b = binary.BigEndian.AppendUint16(b, uint16(len(ulpdu)))
		b = append(b, ulpdu[:header]...)
	}
	return b
}

// terminated returns the meaning of a Terminate with payload b, as an error.
func terminated(b []byte) error {
	if len(b) < terminateControlLen {
		return fmt.Errorf("the peer terminated without a reason: %w", rdma.ErrLost)
	}
	v := violation{Layer: b[0] >> 4, Type: b[0] & 0xf, Code: b[1]}
	kind := rdma.ErrLost
	switch {
	case v.Layer == layerRDMAP && v.Type == rdmapProtection,
		v.Layer == layerDDP && v.Type == ddpTaggedError:
		kind = rdma.ErrRemoteAccess
	case v.Layer == layerRDMAP && (v.Type == rdmapOperation || v.Type == rdmapCatastrophic),
		v.Layer == layerDDP && v.Type == ddpCatastrophic,
		v.Layer == layerDDP && v.Type == ddpUntagged && (v.Code == ddpNoBuffer || v.Code == ddpTooLong):
		kind = rdma.ErrRemoteOp
	}
	return fmt.Errorf("the peer terminated (layer %d, type %d, code %#x): %w", v.Layer, v.Type, v.Code, kind)
}
