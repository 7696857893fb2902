package wire

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
)

// message has the methods that every message type has.
type message interface {
	Append([]byte) []byte
	Decode([]byte) error
}

func messages() map[Type]func() message {
	return map[Type]func() message{
		TypeOpen:         func() message { return new(Open) },
		TypeOpened:       func() message { return new(Opened) },
		TypeResume:       func() message { return new(Resume) },
		TypeRefused:      func() message { return new(Refused) },
		TypeJoin:         func() message { return new(Join) },
		TypeJoined:       func() message { return new(Joined) },
		TypeClose:        func() message { return new(Close) },
		TypeClosed:       func() message { return new(Closed) },
		TypeHeartbeat:    func() message { return new(Heartbeat) },
		TypeHeartbeatAck: func() message { return new(HeartbeatAck) },
		TypeBarrier:      func() message { return new(Barrier) },
		TypeBarrierAck:   func() message { return new(BarrierAck) },
		TypeBarrierFail:  func() message { return new(BarrierFail) },
		TypeZero:         func() message { return new(Zero) },
		TypeZeroAck:      func() message { return new(ZeroAck) },
		TypeChallenge:    func() message { return new(Challenge) },
		TypeRecord:       func() message { return new(Record) },
		TypeRecorded:     func() message { return new(Recorded) },
		TypeBits:         func() message { return new(Bits) },
		TypeBitmap:       func() message { return new(Bitmap) },
		TypeDigest:       func() message { return new(Digest) },
		TypeDigested:     func() message { return new(Digested) },
		TypeBad:          func() message { return new(Bad) },
		TypeBadPlaces:    func() message { return new(BadPlaces) },
	}
}

// samples are messages in which every field has a different byte.
func samples() []message {
	id := func(b byte) (x [16]byte) { return [16]byte(bytes.Repeat([]byte{b}, 16)) }
	token := [32]byte(bytes.Repeat([]byte{0x77}, 32))
	return []message{
		&Open{Owner: persist.Owner{ID: id(1), Nonce: id(2)}, Epoch: 3, Flags: OpenAllowVolatile | OpenJoin, Methods: 14, Credits: 4, Lanes: 5, Nonce: Nonce{6}, Proof: token, Region: "log", Mark: 7, Life: 8},
		&Open{Region: strings.Repeat("n", MaxText)},
		&Opened{UUID: id(1), Size: 1 << 40, Class: 2, Methods: 3, Flags: OpenedDoubt, Key: 5, Base: 6, Epoch: 7, ContentsID: id(8),
			Token: token, Credits: 9, Lanes: 10, MaxMessage: 11, Heartbeat: 12, Lease: 13, WhyNot: [4]persist.Reason{1, 2, 3, 4}, Method: 14, Proof: [32]byte{15}, Mark: 16, Durable: Durable{17, 18}, Life: 19, Record: testRecord()},
		&Opened{Life: 1},
		&Resume{Owner: persist.Owner{ID: id(1), Nonce: id(2)}, Epoch: 3, Flags: OpenAllowVolatile, Methods: 14, Credits: 4, Lanes: 5, Nonce: Nonce{6}, Proof: token, Region: "log", Mark: 7, Life: 8},
		&Refused{Code: CodeBusy, Flags: OpenedUnclean, Seconds: 9, Epoch: 1 << 50, Holder: id(4), UUID: id(5), Text: "held", Proof: token, Mark: 6, Life: 7, Record: testRecord()},
		&Refused{Code: CodeEpoch, UUID: id(5)},
		&Join{Epoch: 1, Lane: 2, Nonce: id(3), Proof: token},
		&Joined{Epoch: 1, Lane: 2, Credits: 3, Proof: token, Durable: Durable{4, 5}},
		&Challenge{Nonce: Nonce{1, 2}, Target: "pm1"},
		&Close{Epoch: 1}, &Closed{Epoch: 2, Mark: 3},
		&Heartbeat{Seq: 1},
		&HeartbeatAck{Seq: 1, Barrier: 2, DoubtLeft: 3, Doubt: true, Mark: 4},
		&Barrier{Seq: 1, Last: true, Ranges: []persist.Range{{Off: 0, Len: 4096}, {Off: 1 << 40, Len: 1}}},
		&Barrier{Seq: 2, Ranges: make([]persist.Range, MaxRanges(MaxMessage))},
		&Barrier{Seq: 3, Ranges: []persist.Range{{Off: 1, Len: 2}}, Clear: []persist.Range{{Off: 3, Len: 4}, {Off: 5, Len: 6}}, ClearSlot: 3},
		&Barrier{Seq: 4, Ranges: make([]persist.Range, 4), Clear: make([]persist.Range, MaxRanges(MaxMessage)-4)},
		&BarrierAck{Seq: 1, Last: true}, &BarrierAck{Seq: 2},
		&Zero{Seq: 1, Off: 2, Len: 3}, &ZeroAck{Seq: 4},
		&BarrierFail{Seq: 1, Code: CodeFailed, Text: "input/output error"},
		&Record{Seq: 1, Fill: 5, Record: testRecord()}, &Record{Seq: 2}, &Recorded{Seq: 3},
		&Bits{Seq: 1, From: 1 << 40, Slot: 3},
		&Bitmap{Seq: 1, From: 8, Slot: 2, Chunk: MinChunk, Bits: []byte{1, 2, 0xff}},
		&Bitmap{Seq: 2, Chunk: MaxChunk, Bits: make([]byte, MaxBitmap)},
		&Digest{Seq: 1, Off: 2, Len: 3}, &Digested{Seq: 4, Sum: token},
		&Bad{Seq: 1, From: 1 << 40}, &BadPlaces{Seq: 2},
		&BadPlaces{Seq: 3, More: true, Clears: true, Places: persist.BadPlaces{{Off: 4096, Len: 8192}, {Off: 1 << 40, Len: 4096}}},
		&BadPlaces{Seq: 4, Places: manyPlaces(MaxBadPlaces)},
	}
}

// manyPlaces returns n blocks, every second one from the first on.
func manyPlaces(n int) (b persist.BadPlaces) {
	for i := range uint64(n) {
		b = append(b, persist.Range{Off: i * 2 * persist.BadBlock, Len: persist.BadBlock})
	}
	return b
}

func TestRoundTrip(t *testing.T) {
	for _, m := range samples() {
		b := m.Append(nil)
		typ, err := TypeOf(b)
		require.NoError(t, err)
		got := messages()[typ]()
		require.NoError(t, got.Decode(b))
		require.Equal(t, m, got)
		require.LessOrEqual(t, len(b), MaxMessage)
	}
}

func TestJoinHint(t *testing.T) {
	m := JoinHint{Lane: 3, Epoch: 1 << 40, Region: [16]byte{1, 2}, Proof: [24]byte{9, 8}}
	b := m.Append(nil)
	require.Len(t, b, 56, "every transport must carry it")
	var got JoinHint
	require.True(t, got.Decode(append(b, 0, 0)), "padded")
	require.Equal(t, m, got)
	require.False(t, got.Decode(b[:55]))
	require.False(t, got.Decode(nil))
	b[0]++
	require.False(t, got.Decode(b))
}

// TestVectors pins the layout. Whoever changes it changes the version.
func TestVectors(t *testing.T) {
	for name, c := range map[string]struct {
		m   message
		hex string
	}{
		"BARRIER": {&Barrier{Seq: 0x0102030405060708, Last: true, Ranges: []persist.Range{{Off: 0x1000, Len: 0x2000}}},
			"504d4e44 0003 000b 00000030 00000000 0102030405060708 0001 0001 00000000 0000000000001000 0000000000002000"},
		"BARRIER_ACK": {&BarrierAck{Seq: 9, Last: true},
			"504d4e44 0003 000c 00000020 00000000 0000000000000009 0001 000000000000"},
		"HEARTBEAT": {&Heartbeat{Seq: 5},
			"504d4e44 0003 0009 00000020 00000000 0000000000000005 0000000000000000"},
		"CLOSE": {&Close{Epoch: 7},
			"504d4e44 0003 0007 00000020 00000000 0000000000000007 0000000000000000"},
		"CLOSED": {&Closed{Epoch: 7, Mark: 8},
			"504d4e44 0003 0008 00000020 00000000 0000000000000007 0000000000000008"},
		"HEARTBEAT_ACK": {&HeartbeatAck{Seq: 5, Barrier: 6, DoubtLeft: 7, Doubt: true, Mark: 8},
			"504d4e44 0003 000a 00000038 00000000 0000000000000005 0000000000000006 0000000000000007 00000001 00000000 0000000000000008"},
		"ZERO": {&Zero{Seq: 2, Off: 0x1000, Len: 0x2000},
			"504d4e44 0003 000f 00000030 00000000 0000000000000002 0000000000001000 0000000000002000 0000000000000000"},
		"JOINED": {&Joined{Epoch: 7, Lane: 1, Credits: 16, Proof: [32]byte{0xab, 31: 0xcd}, Durable: Durable{8, 9}},
			"504d4e44 0003 0006 00000050 00000000 0000000000000007 0001 0010 00000000 ab" + strings.Repeat("00", 30) + "cd 0000000000000008 0000000000000009"},
		"BARRIER of a mirror": {&Barrier{Seq: 9, Ranges: []persist.Range{{Off: 0x1000, Len: 0x2000}}, Clear: []persist.Range{{Off: 0x10000, Len: 0x20000}}, ClearSlot: 3, Fills: 5},
			"504d4e44 0003 000b 00000040 00000000 0000000000000009 0000 0001 0001 03 05 0000000000001000 0000000000002000 0000000000010000 0000000000020000"},
		"RECORD": {&Record{Seq: 9, Fill: 2, Record: testRecord()},
			"504d4e44 0003 0013 00000608 00000000 0000000000000009 02 00000000000000 " + vectorRecord()},
		"RECORDED": {&Recorded{Seq: 9},
			"504d4e44 0003 0014 00000020 00000000 0000000000000009 0000000000000000"},
		"BITS": {&Bits{Seq: 9, From: 0x1000, Slot: 3},
			"504d4e44 0003 0015 00000028 00000000 0000000000000009 0000000000001000 03 00 0000 00000000"},
		"BITMAP": {&Bitmap{Seq: 9, From: 0x1000, Slot: 3, Chunk: MinChunk, Bits: []byte{0xab, 0xcd}},
			"504d4e44 0003 0016 0000002a 00000000 0000000000000009 0000000000001000 03 00 0002 00010000 abcd"},
		"DIGEST": {&Digest{Seq: 9, Off: 0x1000, Len: 0x2000},
			"504d4e44 0003 0017 00000028 00000000 0000000000000009 0000000000001000 0000000000002000"},
		"DIGESTED": {&Digested{Seq: 9, Sum: [32]byte{0xab, 31: 0xcd}},
			"504d4e44 0003 0018 00000038 00000000 0000000000000009 ab" + strings.Repeat("00", 30) + "cd"},
		"BAD": {&Bad{Seq: 9, From: 0x1000},
			"504d4e44 0003 0019 00000020 00000000 0000000000000009 0000000000001000"},
		"BAD_PLACES": {&BadPlaces{Seq: 9, More: true, Places: persist.BadPlaces{{Off: 0x1000, Len: 0x2000}}},
			"504d4e44 0003 001a 00000030 00000000 0000000000000009 00000001 0001 0000 0000000000001000 0000000000002000"},
		"BAD_PLACES that can be cleared": {&BadPlaces{Seq: 9, Clears: true},
			"504d4e44 0003 001a 00000020 00000000 0000000000000009 00000002 0000 0000"},
		"CHALLENGE": {&Challenge{Nonce{1, 31: 2}, "pm1"},
			"504d4e44 0003 0012 00000130 00000000 01" + strings.Repeat("00", 30) + "02 03 706d31" + strings.Repeat("00", 252)},
	} {
		t.Run(name, func(t *testing.T) {
			want, err := hex.DecodeString(strings.ReplaceAll(c.hex, " ", ""))
			require.NoError(t, err)
			require.Equal(t, want, c.m.Append(nil))
		})
	}
}

func TestDecodeRejects(t *testing.T) {
	good := (&BarrierAck{Seq: 1}).Append(nil)
	edit := func(at int, with ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[at:], with)
		return b
	}
	for name, b := range map[string][]byte{
		"empty":            {},
		"short header":     good[:headerSize-1],
		"bad magic":        edit(0, 'X'),
		"other version":    edit(4, 0, 1),
		"other type":       edit(6, 0, 99),
		"length too small": edit(8, 0, 0, 0, 31),
		"length too large": edit(8, 0xff, 0xff, 0xff, 0xff),
		"cut off":          good[:len(good)-1],
		"one byte more":    append(bytes.Clone(good), 0),
	} {
		t.Run(name, func(t *testing.T) {
			err := new(BarrierAck).Decode(b)
			require.Error(t, err)
			if name == "other version" {
				var v *VersionError
				require.ErrorAs(t, err, &v)
				require.Equal(t, VersionError{Ours: Version, Theirs: 1}, *v)
				return
			}
			require.ErrorIs(t, err, ErrMalformed)
		})
	}
}

// Decoders reject what is inconsistent in itself, or out of every bound.
func TestDecodeRejectsFields(t *testing.T) {
	record := testRecord()
	for name, c := range map[string]struct {
		m    message
		edit func(b []byte)
	}{
		"ranges beyond the message":        {&Barrier{Ranges: make([]persist.Range, 2)}, func(b []byte) { b[27] = 200 }},
		"ranges to clear beyond it":        {&Barrier{Ranges: make([]persist.Range, 2)}, func(b []byte) { b[29] = 1 }},
		"a range less than there are":      {&Barrier{Clear: make([]persist.Range, 2)}, func(b []byte) { b[29] = 1 }},
		"clear bits of slot 4":             {&Barrier{}, func(b []byte) { b[30] = 4 }},
		"fill bits of slot 4":              {&Record{}, func(b []byte) { b[24] = 1 << 4 }},
		"RECORD of a record without set":   {&Record{Record: record}, func(b []byte) { clear(b[32:48]) }},
		"OPENED with an F of strangers":    {&Opened{Record: record}, func(b []byte) { b[200+19] = 0xff }},
		"REFUSED with a slot of nobody":    {&Refused{Record: record}, func(b []byte) { b[368+16] = 3 }},
		"lineage of a member in slot 4":    {&Refused{Record: record}, func(b []byte) { b[368+216+32] |= 1 << 4 }},
		"lineage with a hole":              {&Refused{Record: record}, func(b []byte) { clear(b[368+216:][:40]) }},
		"bits of slot 4":                   {&Bits{}, func(b []byte) { b[32] = 4 }},
		"bits from the middle of a byte":   {&Bits{}, func(b []byte) { b[31] = 1 }},
		"bitmap of slot 4":                 {&Bitmap{Chunk: MinChunk}, func(b []byte) { b[32] = 4 }},
		"bits beyond the message":          {&Bitmap{Chunk: MinChunk}, func(b []byte) { b[35] = 1 }},
		"more bits than a bitmap may have": {&Bitmap{Chunk: MinChunk, Bits: make([]byte, MaxBitmap+1)}, func(b []byte) {}},
		"chunks of no power of two":        {&Bitmap{Chunk: MinChunk}, func(b []byte) { b[39] = 1 }},
		"chunks that are too small":        {&Bitmap{Chunk: MinChunk / 2}, func(b []byte) {}},
		"bad places beyond the message":    {&BadPlaces{}, func(b []byte) { b[29] = 1 }},
		"a place of part of a block":       {&BadPlaces{Places: manyPlaces(1)}, func(b []byte) { b[47] = 1 }},
		"a place within a block":           {&BadPlaces{Places: manyPlaces(1)}, func(b []byte) { b[39] = 1 }},
		"a place of no bytes":              {&BadPlaces{Places: manyPlaces(1)}, func(b []byte) { clear(b[40:48]) }},
		"a place whose end overflows":      {&BadPlaces{Places: manyPlaces(1)}, func(b []byte) { b[32], b[40] = 0xff, 0xff }},
		"places out of order":              {&BadPlaces{Places: manyPlaces(2)}, func(b []byte) { clear(b[48:56]) }},
		"places that touch":                {&BadPlaces{Places: manyPlaces(2)}, func(b []byte) { b[54] = 0x10 }},
		"more behind none":                 {&BadPlaces{}, func(b []byte) { b[27] = 1 }},
		"chunks that are too large":        {&Bitmap{Chunk: MaxChunk * 2}, func(b []byte) {}},
	} {
		t.Run(name, func(t *testing.T) {
			b := c.m.Append(nil)
			c.edit(b)
			typ, err := TypeOf(b)
			require.NoError(t, err)
			require.ErrorIs(t, messages()[typ]().Decode(b), ErrMalformed)
		})
	}
}

// Texts are plain, whoever wrote them, and our own arrive unchanged.
func TestTexts(t *testing.T) {
	for name, c := range map[string]struct{ sent, want string }{
		"ours":             {`no region "log" is served: größer als 4 µs`, `no region "log" is served: größer als 4 µs`},
		"of a terminal":    {"\x1b]0;owned\x07\x1b[2J", `\x1b]0;owned\a\x1b[2J`},
		"C1, DEL, bidi":    {"\u009b\x7f\u202e", `\u009b\x7f\u202e`},
		"no UTF-8":         {"\xff", `\xff`},
		"longer when done": {strings.Repeat("\x1b", MaxText), strings.Repeat(`\x1b`, MaxText)[:MaxText]},
		"cut":              {strings.Repeat("ß", MaxText), strings.Repeat("ß", MaxText/2)},
	} {
		t.Run(name, func(t *testing.T) {
			var open Open
			var resume Resume
			var refused Refused
			var fail BarrierFail
			var challenge Challenge
			require.NoError(t, open.Decode((&Open{Region: c.sent}).Append(nil)))
			require.NoError(t, resume.Decode((&Resume{Region: c.sent}).Append(nil)))
			require.NoError(t, refused.Decode((&Refused{Text: c.sent}).Append(nil)))
			require.NoError(t, fail.Decode((&BarrierFail{Text: c.sent}).Append(nil)))
			require.NoError(t, challenge.Decode((&Challenge{Target: c.sent}).Append(nil)))
			for _, got := range []string{challenge.Target, open.Region, resume.Region, refused.Text, fail.Text} {
				require.Equal(t, c.want, got)
			}
		})
	}
}

func TestBarrierAllocatesNothing(t *testing.T) {
	msg := (&Barrier{Seq: 1, Ranges: make([]persist.Range, 32), Clear: make([]persist.Range, 32)}).Append(nil)
	out := make([]byte, 0, MaxMessage)
	m := Barrier{Ranges: make([]persist.Range, 0, MaxRanges(MaxMessage))}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if m.Decode(msg) != nil {
			t.Fail()
		}
		out = m.Append(out[:0])
	}))
}

func FuzzDecode(f *testing.F) {
	for _, m := range samples() {
		f.Add(m.Append(nil))
	}
	f.Add((&Refused{Text: strings.Repeat("\x1b\xff\u202e", 60)}).Append(nil))
	f.Add((&BarrierFail{Text: strings.Repeat("\U000e0041ß", 60)}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		typ, err := TypeOf(b)
		if err != nil {
			return
		}
		make, ok := messages()[typ]
		if !ok {
			return
		}
		m := make()
		if m.Decode(b) != nil {
			return
		}
		// What decodes must encode to something that decodes to the same.
		again := make()
		require.NoError(t, again.Decode(m.Append(nil)))
		require.Equal(t, m, again)
	})
}
