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
	}
}

// samples are messages in which every field has a different byte.
func samples() []message {
	id := func(b byte) (x [16]byte) { return [16]byte(bytes.Repeat([]byte{b}, 16)) }
	token := [32]byte(bytes.Repeat([]byte{0x77}, 32))
	return []message{
		&Open{Owner: persist.Owner{ID: id(1), Nonce: id(2)}, Epoch: 3, Flags: OpenAllowVolatile, Methods: 14, Credits: 4, Lanes: 5, Nonce: Nonce{6}, Proof: token, Region: "log", Mark: 7},
		&Open{Region: strings.Repeat("n", MaxText)},
		&Opened{UUID: id(1), Size: 1 << 40, Class: 2, Methods: 3, Flags: OpenedDoubt, Key: 5, Base: 6, Epoch: 7, ContentsID: id(8),
			Token: token, Credits: 9, Lanes: 10, MaxMessage: 11, Heartbeat: 12, Lease: 13, WhyNot: [4]persist.Reason{1, 2, 3, 4}, Method: 14, Proof: [32]byte{15}, Mark: 16, Durable: Durable{17, 18}},
		&Resume{Owner: persist.Owner{ID: id(1), Nonce: id(2)}, Epoch: 3, Flags: OpenAllowVolatile, Methods: 14, Credits: 4, Lanes: 5, Nonce: Nonce{6}, Proof: token, Region: "log", Mark: 7},
		&Refused{Code: CodeBusy, Flags: OpenedUnclean, Seconds: 9, Epoch: 1 << 50, Holder: id(4), UUID: id(5), Text: "held", Proof: token, Mark: 6},
		&Join{Epoch: 1, Lane: 2, Nonce: id(3), Proof: token},
		&Joined{Epoch: 1, Lane: 2, Credits: 3, Proof: token, Durable: Durable{4, 5}},
		&Challenge{Nonce: Nonce{1, 2}},
		&Close{Epoch: 1}, &Closed{Epoch: 2, Mark: 3},
		&Heartbeat{Seq: 1},
		&HeartbeatAck{Seq: 1, Barrier: 2, DoubtLeft: 3, Doubt: true, Mark: 4},
		&Barrier{Seq: 1, Last: true, Ranges: []persist.Range{{Off: 0, Len: 4096}, {Off: 1 << 40, Len: 1}}},
		&Barrier{Seq: 2, Ranges: make([]persist.Range, MaxRanges(MaxMessage))},
		&BarrierAck{Seq: 1, Last: true}, &BarrierAck{Seq: 2},
		&Zero{Seq: 1, Off: 2, Len: 3}, &ZeroAck{Seq: 4},
		&BarrierFail{Seq: 1, Code: CodeFailed, Text: "input/output error"},
	}
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
			"504d4e44 0001 000b 00000030 00000000 0102030405060708 0001 0001 00000000 0000000000001000 0000000000002000"},
		"BARRIER_ACK": {&BarrierAck{Seq: 9, Last: true},
			"504d4e44 0001 000c 00000020 00000000 0000000000000009 0001 000000000000"},
		"HEARTBEAT": {&Heartbeat{Seq: 5},
			"504d4e44 0001 0009 00000020 00000000 0000000000000005 0000000000000000"},
		"CLOSE": {&Close{Epoch: 7},
			"504d4e44 0001 0007 00000020 00000000 0000000000000007 0000000000000000"},
		"CLOSED": {&Closed{Epoch: 7, Mark: 8},
			"504d4e44 0001 0008 00000020 00000000 0000000000000007 0000000000000008"},
		"HEARTBEAT_ACK": {&HeartbeatAck{Seq: 5, Barrier: 6, DoubtLeft: 7, Doubt: true, Mark: 8},
			"504d4e44 0001 000a 00000038 00000000 0000000000000005 0000000000000006 0000000000000007 00000001 00000000 0000000000000008"},
		"ZERO": {&Zero{Seq: 2, Off: 0x1000, Len: 0x2000},
			"504d4e44 0001 000f 00000030 00000000 0000000000000002 0000000000001000 0000000000002000 0000000000000000"},
		"JOINED": {&Joined{Epoch: 7, Lane: 1, Credits: 16, Proof: [32]byte{0xab, 31: 0xcd}, Durable: Durable{8, 9}},
			"504d4e44 0001 0006 00000050 00000000 0000000000000007 0001 0010 00000000 ab" + strings.Repeat("00", 30) + "cd 0000000000000008 0000000000000009"},
		"CHALLENGE": {&Challenge{Nonce{1, 31: 2}},
			"504d4e44 0001 0012 00000030 00000000 01" + strings.Repeat("00", 30) + "02"},
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
		"other version":    edit(4, 0, 2),
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
				require.Equal(t, VersionError{Ours: Version, Theirs: 2}, *v)
				return
			}
			require.ErrorIs(t, err, ErrMalformed)
		})
	}
	b := (&Barrier{Ranges: make([]persist.Range, 2)}).Append(nil)
	b[27] = 200
	require.ErrorIs(t, new(Barrier).Decode(b), ErrMalformed, "count beyond the message")
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
			require.NoError(t, open.Decode((&Open{Region: c.sent}).Append(nil)))
			require.NoError(t, resume.Decode((&Resume{Region: c.sent}).Append(nil)))
			require.NoError(t, refused.Decode((&Refused{Text: c.sent}).Append(nil)))
			require.NoError(t, fail.Decode((&BarrierFail{Text: c.sent}).Append(nil)))
			for _, got := range []string{open.Region, resume.Region, refused.Text, fail.Text} {
				require.Equal(t, c.want, got)
			}
		})
	}
}

func TestBarrierAllocatesNothing(t *testing.T) {
	msg := (&Barrier{Seq: 1, Ranges: make([]persist.Range, 32)}).Append(nil)
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
