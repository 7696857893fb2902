package wire

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
)

// testRecord is a record in which every field has a different byte.
func testRecord() persist.Record {
	id := func(b byte) (x [16]byte) { return [16]byte(bytes.Repeat([]byte{b}, 16)) }
	r := persist.Record{
		Set: id(0x11), Slot: 1, MinCopies: 2, Torn: true, Arbiter: true, Async: 2,
		Ancestor: persist.Ancestor{Generation: persist.Generation{Life: 0x21, Count: 0x22, Nonce: id(0x23)}, F: 5},
	}
	for slot := range r.Members[:3] {
		r.Members[slot] = persist.Membership{UUID: id(byte(0x31 + slot)), Contents: id(byte(0x41 + slot)), Epoch: uint64(0x51 + slot)}
	}
	r.Lineage[0] = persist.Ancestor{Generation: persist.Generation{Life: 0x21, Count: 0x20, Nonce: id(0x23)}, F: 7}
	r.Lineage[1] = persist.Ancestor{Generation: persist.Generation{Life: 0x19, Count: 0x61, Nonce: id(0x62)}, F: 3}
	return r
}

// vectorRecord is testRecord on the wire, in hex.
func vectorRecord() string {
	id := func(b string) string { return strings.Repeat(b, 16) }
	number := func(b string) string { return strings.Repeat("00", 7) + b }
	return id("11") + "01 02 03 05 02 000000" + number("21") + number("22") + id("23") +
		id("31") + id("41") + number("51") + id("32") + id("42") + number("52") + id("33") + id("43") + number("53") + strings.Repeat("00", memberSize) +
		number("21") + number("20") + id("23") + "07 00000000000000" +
		number("19") + number("61") + id("62") + "03 00000000000000" + strings.Repeat("00", 30*ancestorSize) + strings.Repeat("00", 16)
}

// How far an asynchronous member has followed is at the end of its record.
func TestRecordFollows(t *testing.T) {
	r := testRecord()
	r.Torn, r.Follows = false, persist.Point{Barrier: 0x71, At: 0x0172}
	b := appendRecord(nil, &r)
	require.Equal(t, []byte{0, 0, 0, 0, 0, 0, 0, 0x71, 0, 0, 0, 0, 0, 0, 1, 0x72}, b[recordPoint:])
	var got persist.Record
	require.NoError(t, decodeRecord(&got, b))
	require.Equal(t, r, got)
	b[18] |= flagTorn
	require.ErrorIs(t, decodeRecord(&got, b), ErrMalformed)
}

// A full record fits every message that carries one.
func TestRecordFits(t *testing.T) {
	r := testRecord()
	require.Len(t, appendRecord(nil, &r), recordSize)
	for name, m := range map[string]message{
		"OPENED":  &Opened{Record: r},
		"REFUSED": &Refused{Record: r, Text: strings.Repeat("x", MaxText)},
		"RECORD":  &Record{Record: r},
	} {
		require.LessOrEqual(t, len(m.Append(nil)), MaxMessage, name)
	}
}

// Decoding a message over another one leaves nothing of the old one.
func TestDecodeReplacesTheRecord(t *testing.T) {
	m := Refused{Record: testRecord()}
	want := Refused{Record: persist.Record{}}
	require.NoError(t, m.Decode(want.Append(nil)))
	require.Equal(t, want, m)
}

// A caller that provides the memory encodes and decodes without an allocation.
func TestMirrorAllocatesNothing(t *testing.T) {
	bitmap := (&Bitmap{Chunk: MinChunk, Bits: make([]byte, MaxBitmap)}).Append(nil)
	record := (&Record{Record: testRecord()}).Append(nil)
	out := make([]byte, 0, MaxMessage)
	b, r := Bitmap{Bits: make([]byte, 0, MaxBitmap)}, Record{}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if b.Decode(bitmap) != nil || r.Decode(record) != nil {
			t.Fail()
		}
		out = b.Append(out[:0])
		out = r.Append(out[:0])
	}))
}
