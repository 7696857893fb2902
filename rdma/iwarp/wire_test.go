package iwarp

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/rdma"
)

// Headers worked out from RFC 5041 figures 2 and 3 and RFC 5040 figures 3 and 4.
var segmentVectors = map[string]struct {
	seg  segment
	wire string
}{
	"write": {segment{Tagged: true, Last: true, Op: opWrite, STag: 0x01020304, TO: 0x1112131415161718, Payload: []byte("data")},
		"c1 40 01020304 1112131415161718 64617461"},
	"read response, not the last": {segment{Tagged: true, Op: opReadResponse, STag: 5, TO: 6, Payload: []byte{}},
		"81 42 00000005 0000000000000006"},
	"send": {segment{Last: true, Op: opSend, MSN: 7, MO: 8, Payload: []byte{1}},
		"41 43 00000000 00000000 00000007 00000008 01"},
	"send with invalidate": {segment{Last: true, Op: opSendInvalidate, Invalidate: 0xa0b0c0d0, MSN: 1, Payload: []byte{}},
		"41 44 a0b0c0d0 00000000 00000001 00000000"},
	"send, solicited": {segment{Last: true, Op: opSendSE, MSN: 1, Payload: []byte{}},
		"41 45 00000000 00000000 00000001 00000000"},
	"send, solicited, invalidate": {segment{Last: true, Op: opSendSEInvalidate, Invalidate: 9, MSN: 1, Payload: []byte{}},
		"41 46 00000009 00000000 00000001 00000000"},
	"terminate": {segment{Last: true, Op: opTerminate, QN: 2, MSN: 1, Payload: []byte{0x11, 1, 0, 0}},
		"41 47 00000000 00000002 00000001 00000000 11010000"},
}

func TestSegmentVectors(t *testing.T) {
	for name, tt := range segmentVectors {
		t.Run(name, func(t *testing.T) {
			wire := unhex(t, tt.wire)
			require.Equal(t, wire, appendSegment(&tt.seg))
			var got segment
			require.Nil(t, decodeSegment(wire, &got))
			require.Equal(t, tt.seg, got)
		})
	}
}

func appendSegment(s *segment) []byte {
	var b []byte
	if s.Tagged {
		b = appendTagged(b, s.Op, s.Last, s.STag, s.TO)
	} else {
		b = appendUntagged(b, s.Op, s.Last, s.QN, s.MSN, s.MO)
		be.PutUint32(b[2:], s.Invalidate)
	}
	return append(b, s.Payload...)
}

// RFC 5040 figure 5.
func TestReadRequestVector(t *testing.T) {
	wire := unhex(t, `41 41 00000000 00000001 00000003 00000000
		a1a2a3a4 b1b2b3b4b5b6b7b8 00001000 c1c2c3c4 d1d2d3d4d5d6d7d8`)
	req := readRequest{0xa1a2a3a4, 0xb1b2b3b4b5b6b7b8, 4096, 0xc1c2c3c4, 0xd1d2d3d4d5d6d7d8}
	require.Equal(t, wire, req.append(appendUntagged(nil, opReadRequest, true, queueRead, 3, 0)))
	var s segment
	require.Nil(t, decodeSegment(wire, &s))
	require.Equal(t, segment{Last: true, Op: opReadRequest, QN: queueRead, MSN: 3, Payload: wire[untaggedLen:]}, s)
	require.Equal(t, req, decodeReadRequest(s.Payload))
}

var badSegments = map[string]struct {
	wire string
	want *violation
}{
	"empty":                        {"", &badLength},
	"too short":                    {"c1 40 01020304 11121314151617", &badLength},
	"untagged, too short":          {"41 43 00000000 00000000 00000007 000000", &badLength},
	"DDP version 0, tagged":        {"c0 40 01020304 1112131415161718", &badVersionTagged},
	"DDP version 2, untagged":      {"42 43 00000000 00000000 00000007 00000008", &badVersionUntagged},
	"RDMAP version 0":              {"c1 00 01020304 1112131415161718", &badRDMAPVersion},
	"RDMAP version 2":              {"c1 80 01020304 1112131415161718", &badRDMAPVersion},
	"tagged send":                  {"c1 43 01020304 1112131415161718", &badOpcode},
	"tagged terminate":             {"c1 47 01020304 1112131415161718", &badOpcode},
	"untagged write":               {"41 40 00000000 00000000 00000001 00000000", &badOpcode},
	"untagged read response":       {"41 42 00000000 00000000 00000001 00000000", &badOpcode},
	"opcode 8 (immediate data)":    {"41 48 00000000 00000000 00000001 00000000", &badOpcode},
	"opcode 15":                    {"c1 4f 01020304 1112131415161718", &badOpcode},
	"send on the read queue":       {"41 43 00000000 00000001 00000001 00000000", &badOpcode},
	"read request on queue 0":      {"41 41 00000000 00000000 00000001 00000000", &badOpcode},
	"terminate on the send queue":  {"41 47 00000000 00000000 00000001 00000000", &badOpcode},
	"queue 3 (atomics)":            {"41 43 00000000 00000003 00000001 00000000", &badQueue},
	"queue of the highest number":  {"41 43 00000000 ffffffff 00000001 00000000", &badQueue},
	"all bits set":                 {"ff ff ffffffff ffffffffffffffff ffffffff", &badVersionTagged},
	"all bits clear but too short": {"00 00 00000000 0000000000000000", &badLength},
}

func TestSegmentsRefused(t *testing.T) {
	for name, tt := range badSegments {
		t.Run(name, func(t *testing.T) {
			require.Same(t, tt.want, decodeSegment(unhex(t, tt.wire), new(segment)))
		})
	}
}

func FuzzSegment(f *testing.F) {
	for _, v := range segmentVectors {
		f.Add(unhex(f, v.wire))
	}
	for _, v := range badSegments {
		f.Add(unhex(f, v.wire))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var s, again segment
		if decodeSegment(b, &s) == nil {
			require.Nil(t, decodeSegment(appendSegment(&s), &again))
			require.Equal(t, s, again)
		}
		if len(b) >= readRequestLen {
			r := decodeReadRequest(b)
			require.Equal(t, b[:readRequestLen], r.append(nil))
		}
		_ = terminated(b)
		require.LessOrEqual(t, len(appendTerminate(nil, &badSTag, b)), maxTerminateLen)
	})
}

// RFC 5040 figure 10, with the headers of the segment at fault.
func TestTerminateVectors(t *testing.T) {
	write := unhex(t, "c1 40 01020304 1112131415161718 64617461")
	read := unhex(t, `41 41 00000000 00000001 00000003 00000000
		a1a2a3a4 b1b2b3b4b5b6b7b8 00001000 c1c2c3c4 d1d2d3d4d5d6d7d8`)
	for name, tt := range map[string]struct {
		v    *violation
		at   []byte
		wire string
	}{
		"CRC":                    {&badCRC, nil, "20 02 00 00"},
		"bounds of a write":      {&badBounds, write, "11 01 c0 00 0012 c140010203041112131415161718"},
		"right missing, read":    {&noAccess, read, "01 02 e0 00 002e" + "4141000000000000000100000003 00000000 a1a2a3a4 b1b2b3b4b5b6b7b8 00001000 c1c2c3c4 d1d2d3d4d5d6d7d8"},
		"no receive for a send":  {&noBuffer, unhex(t, "41 43 00000000 00000000 00000007 00000000 01"), "12 02 c0 00 0013 41430000000000000000 00000007 00000000"},
		"shorter than a header":  {&badLength, write[:5], "20 03 00 00"},
		"a read request cut off": {&badReadRequest, read[:30], "02 ff c0 00 001e 4141000000000000000100000003 00000000"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, unhex(t, tt.wire), appendTerminate(nil, tt.v, tt.at))
		})
	}
}

func TestTerminateMeans(t *testing.T) {
	kinds := []error{rdma.ErrRemoteAccess, rdma.ErrRemoteOp, rdma.ErrLost}
	for _, tt := range []struct {
		name string
		v    violation
		want error
	}{
		{"write, STag", badSTag, rdma.ErrRemoteAccess},
		{"write, bounds", badBounds, rdma.ErrRemoteAccess},
		{"write, wrap", badWrap, rdma.ErrRemoteAccess},
		{"read, STag", badReadSTag, rdma.ErrRemoteAccess},
		{"access", noAccess, rdma.ErrRemoteAccess},
		{"invalidate", badInvalidate, rdma.ErrRemoteAccess},
		{"no buffer", noBuffer, rdma.ErrRemoteOp},
		{"too long", tooLong, rdma.ErrRemoteOp},
		{"opcode", badOpcode, rdma.ErrRemoteOp},
		{"local catastrophic", violation{Layer: layerRDMAP, Type: rdmapCatastrophic}, rdma.ErrRemoteOp},
		{"CRC", badCRC, rdma.ErrLost},
		{"MSN", badMSN, rdma.ErrLost},
		{"unknown layer", violation{Layer: 7}, rdma.ErrLost},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := terminated(appendTerminate(nil, &tt.v, nil))
			require.ErrorIs(t, err, tt.want)
			n := 0
			for _, kind := range kinds {
				if errors.Is(err, kind) {
					n++
				}
			}
			require.Equal(t, 1, n, "one kind: %v", err)
		})
	}
	require.ErrorIs(t, terminated(nil), rdma.ErrLost)
}

func TestKeysAreFresh(t *testing.T) {
	seen := make(map[uint32]bool)
	for range 10_000 {
		k, err := newKey()
		require.NoError(t, err)
		require.NotZero(t, k)
		require.False(t, seen[k])
		seen[k] = true
	}
}
