package iwarp

import (
	"bytes"
	"encoding/hex"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.NewReplacer(" ", "", "\n", "", "\t", "").Replace(s))
	require.NoError(t, err)
	return b
}

// The examples of RFC 3720 appendix B.4, in the byte order of the wire.
func TestCRCVectors(t *testing.T) {
	up, down := make([]byte, 32), make([]byte, 32)
	for i := range up {
		up[i], down[i] = byte(i), byte(31-i)
	}
	for name, tt := range map[string]struct {
		data []byte
		wire string
	}{
		"zeroes":      {make([]byte, 32), "aa36918a"},
		"ones":        {bytes.Repeat([]byte{0xff}, 32), "43aba862"},
		"ascending":   {up, "4e79dd46"},
		"descending":  {down, "5cdb3f11"},
		"an iSCSI Rd": {unhex(t, "01c00000 00000000 00000000 00000000 14000000 00000400 00000014 00000018 28000000 00000000 02000000 00000000"), "563a96d9"},
	} {
		t.Run(name, func(t *testing.T) {
			trailer := make([]byte, fpduCRCLen)
			putTrailer(trailer, crc32.Update(0, castagnoli, tt.data))
			require.Equal(t, tt.wire, hex.EncodeToString(trailer))
		})
	}
}

// Frames as in RFC 5044 figure 10 and RFC 6581 figure 5.
var frameVectors = map[string]struct {
	key   string
	frame mpaFrame
	wire  string
}{
	"request, revision 1": {requestKey, mpaFrame{CRC: true, Rev: 1, Private: []byte("hi")},
		"4d504120494420526571204672616d65 40 01 0002 6869"},
	"request, revision 2": {requestKey, mpaFrame{CRC: true, Rev: 2, Enhanced: true, IRD: 16, ORD: 5, Private: []byte{}},
		"4d504120494420526571204672616d65 50 02 0004 0010 0005"},
	"request with markers, peer-to-peer": {requestKey, mpaFrame{Markers: true, Rev: 2, Enhanced: true, IRD: ctlPeer | ctlEmpty | 1, ORD: ctlWrite | ctlRead | 2, Private: []byte{}},
		"4d504120494420526571204672616d65 90 02 0004 c001 c002"},
	"reply that rejects": {replyKey, mpaFrame{Reject: true, CRC: true, Rev: 1, Private: []byte("no")},
		"4d504120494420526570204672616d65 60 01 0002 6e6f"},
}

func TestFrameVectors(t *testing.T) {
	for name, tt := range frameVectors {
		t.Run(name, func(t *testing.T) {
			wire := unhex(t, tt.wire)
			require.Equal(t, wire, tt.frame.append(nil, tt.key))
			got, err := readMPA(bytes.NewReader(wire), tt.key)
			require.NoError(t, err)
			require.Equal(t, tt.frame, got)
		})
	}
}

func TestFramesRefused(t *testing.T) {
	for name, wire := range map[string]string{
		"empty":                  "",
		"wrong key":              "4d504120494420526571204672616d66 40 01 0000",
		"a reply for a request":  "4d504120494420526570204672616d65 40 01 0000",
		"revision 0":             "4d504120494420526571204672616d65 40 00 0000",
		"revision 3":             "4d504120494420526571204672616d65 40 03 0000",
		"513 bytes of data":      "4d504120494420526571204672616d65 40 01 0201",
		"65535 bytes of data":    "4d504120494420526571204672616d65 40 01 ffff",
		"no room for IRD, ORD":   "4d504120494420526571204672616d65 50 02 0003 000000",
		"cut in the header":      "4d504120494420526571204672616d65 40 01 00",
		"cut in the data":        "4d504120494420526571204672616d65 40 01 0003 0000",
		"cut before IRD and ORD": "4d504120494420526571204672616d65 50 02 0004",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readMPA(bytes.NewReader(unhex(t, wire)), requestKey)
			require.Error(t, err)
		})
	}
}

func FuzzFrame(f *testing.F) {
	for _, v := range frameVectors {
		f.Add(unhex(f, v.wire))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, key := range []string{requestKey, replyKey} {
			got, err := readMPA(bytes.NewReader(b), key)
			if err != nil {
				continue
			}
			again, err := readMPA(bytes.NewReader(got.append(nil, key)), key)
			require.NoError(t, err)
			require.Equal(t, got, again)
		}
	})
}

// fpdu frames ulpdu.
func fpdu(ulpdu []byte) []byte {
	b := append([]byte{byte(len(ulpdu) >> 8), byte(len(ulpdu))}, ulpdu...)
	crc := crc32.Update(0, castagnoli, b)
	trailer := make([]byte, fpduTrailer(len(b)))
	putTrailer(trailer, crc)
	return append(b, trailer...)
}

func TestFPDU(t *testing.T) {
	for n := range 40 {
		ulpdu := bytes.Repeat([]byte{0xa5}, n)
		b := fpdu(ulpdu)
		require.Zero(t, len(b)%4, "an FPDU is a multiple of 4")
		for cut := range b {
			_, taken, bad := nextFPDU(b[:cut], true)
			require.Zero(t, taken)
			require.Nil(t, bad)
		}
		got, taken, bad := nextFPDU(append(b, "the next"...), true)
		require.Nil(t, bad)
		require.Equal(t, len(b), taken)
		require.Equal(t, ulpdu, got)
		for i := 2; i < len(b); i++ { // what follows a damaged length shows it
			damaged := bytes.Clone(b)
			damaged[i] ^= 0x10
			_, _, bad = nextFPDU(damaged, true)
			require.Equal(t, &badCRC, bad, "byte %d", i)
			_, taken, bad = nextFPDU(damaged, false)
			require.Equal(t, len(b), taken)
			require.Nil(t, bad, "byte %d, and nobody asked for CRCs", i)
		}
	}
	require.Len(t, fpdu(make([]byte, 1<<16-1)), maxFPDU)
}

func FuzzFPDU(f *testing.F) {
	f.Add(fpdu([]byte("ulpdu")))
	f.Add([]byte{0xff, 0xff, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		ulpdu, n, bad := nextFPDU(b, true)
		if bad == nil && n > 0 {
			// The pad may have any content, since the CRC covers it.
			require.Equal(t, b[:fpduLengthLen+len(ulpdu)], fpdu(ulpdu)[:fpduLengthLen+len(ulpdu)])
			require.LessOrEqual(t, n, len(b))
		}
	})
}

func TestMULPDU(t *testing.T) {
	for mss, want := range map[int]int{
		1460: 1454, 1448: 1442, 1461: 1454, 8948: 8942, 32768: 32762, 65483: 65474,
		1: minMULPDU, 536: 530, 1 << 20: 1<<16 - 1,
	} {
		require.Equal(t, want, mulpduFor(mss), "mss %d", mss)
	}
}
