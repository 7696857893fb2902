package iwarp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// The start-up frames (RFC 5044 §7.1, RFC 6581 §4), and behind the reply the
// framing of the stream into FPDUs (RFC 5044 §4).
//
//	 0                   1                   2                   3
//	+---------------------------------------------------------------+
//	|             Key: "MPA ID Req Frame", "MPA ID Rep Frame"       | 16 bytes
//	+-+-+-+-+-------+---------------+-------------------------------+
//	|M|C|R|S|  Res  |      Rev      |           PD_Length           |
//	+-+-+-+-+-------+---------------+-------------------------------+
//	|A|B|            IRD            |C|D|            ORD            | if S, revision 2
//	+-+-+---------------------------+-+-+---------------------------+
//	|                 Private data, PD_Length less 4 if S           |
//	+---------------------------------------------------------------+
const (
	requestKey = "MPA ID Req Frame"
	replyKey   = "MPA ID Rep Frame"

	mpaFlagsAt   = 16
	mpaRevAt     = 17
	mpaLengthAt  = 18
	mpaHeaderLen = 20
	mpaReadsLen  = 4 // the word of IRD and ORD

	flagMarkers  = 0x80
	flagCRC      = 0x40
	flagReject   = 0x20
	flagEnhanced = 0x10

	// In the words of IRD and ORD (RFC 6581 §4.1).
	readsMask   = 0x3fff
	readsUnsaid = 0x3fff // "not negotiated"
	ctlPeer     = 0x8000 // A: peer-to-peer model, the initiator's first FPDU is an RTR
	ctlEmpty    = 0x4000 // B: the RTR is an FPDU of length 0
	ctlWrite    = 0x8000 // C: … a zero-length RDMA Write
	ctlRead     = 0x4000 // D: … a zero-length RDMA Read

	// maxMPAPrivate bounds PD_Length (RFC 5044 §7.1).
	maxMPAPrivate = 512
)

// An mpaFrame is a start-up frame, a request or a reply.
type mpaFrame struct {
	Markers, CRC, Reject bool
	Rev                  uint8
	// Enhanced means that the frame has IRD and ORD, with their control bits.
	Enhanced bool
	IRD, ORD uint16
	Private  []byte
}

var errMPA = errors.New("not an MPA start-up frame")

// append appends f to b. key says whether it is a request or a reply.
func (f *mpaFrame) append(b []byte, key string) []byte {
	var flags byte
	for _, bit := range []struct {
		set  bool
		flag byte
	}{{f.Markers, flagMarkers}, {f.CRC, flagCRC}, {f.Reject, flagReject}, {f.Enhanced, flagEnhanced}} {
		if bit.set {
			flags |= bit.flag
		}
	}
	n := len(f.Private)
	if f.Enhanced {
		n += mpaReadsLen
	}
	b = append(b, key...)
	b = append(b, flags, f.Rev)
	b = binary.BigEndian.AppendUint16(b, uint16(n))
	if f.Enhanced {
		b = binary.BigEndian.AppendUint16(b, f.IRD)
		b = binary.BigEndian.AppendUint16(b, f.ORD)
	}
	return append(b, f.Private...)
}

// decodeMPAHeader decodes b, the first mpaHeaderLen bytes of a frame, and returns how many
// bytes follow.
func decodeMPAHeader(b []byte, key string) (f mpaFrame, rest int, err error) {
	if string(b[:mpaFlagsAt]) != key {
		return f, 0, errMPA
	}
	flags := b[mpaFlagsAt]
	f.Markers = flags&flagMarkers != 0
	f.CRC = flags&flagCRC != 0
	f.Reject = flags&flagReject != 0
	f.Rev = b[mpaRevAt]
	if f.Rev != 1 && f.Rev != 2 {
		return f, 0, fmt.Errorf("%w: revision %d", errMPA, f.Rev)
	}
	f.Enhanced = f.Rev == 2 && flags&flagEnhanced != 0
	rest = int(binary.BigEndian.Uint16(b[mpaLengthAt:]))
	if rest > maxMPAPrivate {
		return f, 0, fmt.Errorf("%w: %d bytes of private data", errMPA, rest)
	}
	if f.Enhanced && rest < mpaReadsLen {
		return f, 0, fmt.Errorf("%w: no room for IRD and ORD", errMPA)
	}
	return f, rest, nil
}

// decodeRest decodes b, what follows the header. f.Private then refers to b.
func (f *mpaFrame) decodeRest(b []byte) {
	if f.Enhanced {
		f.IRD = binary.BigEndian.Uint16(b)
		f.ORD = binary.BigEndian.Uint16(b[2:])
		b = b[mpaReadsLen:]
	}
	f.Private = b
}

// An FPDU without markers (RFC 5044 §4.1); its length is a multiple of 4.
//
//	+---------------+------------------------------- … ------+-----+---------+
//	| ULPDU_Length  |                 ULPDU                  | PAD | CRC32C  |
//	+---------------+------------------------------- … ------+-----+---------+
//	       2                     ULPDU_Length                  0–3      4
const (
	fpduLengthLen = 2
	fpduCRCLen    = 4
	// maxFPDU is the longest FPDU that the length field permits, in bytes.
	maxFPDU = (fpduLengthLen+1<<16-1+3)&^3 + fpduCRCLen
	// minMULPDU is the least that RFC 5044 §5.1 lets a sender assume.
	minMULPDU = 128
)

// The CRC is iSCSI's (RFC 3720 §12.1). It covers everything before it in the FPDU and
// goes out lowest byte first.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// mulpduFor returns the length of the longest ULPDU whose FPDU fits a TCP segment of mss
// bytes.
func mulpduFor(mss int) int {
	return min(max(mss&^3-fpduLengthLen-fpduCRCLen, minMULPDU), 1<<16-1)
}

// fpduTrailer returns the length of the pad and the CRC that follow n bytes of length
// field and ULPDU.
func fpduTrailer(n int) int { return -n&3 + fpduCRCLen }

// putTrailer fills in the trailer t. crc is the CRC of the FPDU's bytes before t.
func putTrailer(t []byte, crc uint32) {
	pad := len(t) - fpduCRCLen
	clear(t[:pad])
	if pad > 0 {
		crc = updateCRC(crc, t[:pad])
	}
	binary.LittleEndian.PutUint32(t[pad:], crc)
}

// nextFPDU returns the ULPDU of the first FPDU in b, and the FPDU's length n, which is 0
// if b does not have all of it yet. If crc is false, the CRC field is there but means
// nothing (RFC 5044 §4.4).
func nextFPDU(b []byte, crc bool) (ulpdu []byte, n int, bad *violation) {
	if len(b) < fpduLengthLen {
		return nil, 0, nil
	}
	end := fpduLengthLen + int(binary.BigEndian.Uint16(b))
	n = end + fpduTrailer(end)
	if len(b) < n {
		return nil, 0, nil
	}
	covered := n - fpduCRCLen
	if crc && updateCRC(0, b[:covered]) != binary.LittleEndian.Uint32(b[covered:]) {
		return nil, n, &badCRC
	}
	return b[fpduLengthLen:end], n, nil
}
