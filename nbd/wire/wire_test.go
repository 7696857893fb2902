package wire

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// unhex returns the bytes of a vector that is written in groups.
func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	require.NoError(t, err)
	return b
}

// put returns the n bytes that an encoder writes.
func put(n int, encode func(b []byte)) []byte {
	b := make([]byte, n)
	encode(b)
	return b
}

// The vectors are worked out by hand from the layouts in proto.md.
func TestVectors(t *testing.T) {
	tests := []struct {
		name string
		got  []byte
		want string
	}{
		{"greeting", AppendGreeting(nil, FlagFixedNewstyle|FlagNoZeroes),
			"4e42444d41474943 49484156454f5054 0003"},
		{"client flags", AppendClientFlags(nil, ClientFixedNewstyle|ClientNoZeroes), "00000003"},
		{"option LIST", AppendOption(nil, OptList, nil), "49484156454f5054 00000003 00000000"},
		{"option EXPORT_NAME", AppendOption(nil, OptExportName, []byte("ab")), "49484156454f5054 00000001 00000002 6162"},
		{"option GO", AppendOption(nil, OptGo, AppendInfoRequest(nil, "ab", InfoName, InfoBlockSize)),
			"49484156454f5054 00000007 0000000c 00000002 6162 0002 0001 0003"},
		{"reply ACK", AppendOptionReply(nil, OptGo, RepAck, ""), "0003e889045565a9 00000007 00000001 00000000"},
		{"reply ERR_UNSUP", AppendOptionReply(nil, OptStartTLS, RepErrUnsup, "no"),
			"0003e889045565a9 00000005 80000001 00000002 6e6f"},
		{"reply SERVER", AppendServer(nil, "ab", "c"), "0003e889045565a9 00000003 00000002 00000007 00000002 6162 63"},
		{"reply INFO_EXPORT", AppendInfoExport(nil, OptGo, Export{Size: 1 << 32, Flags: FlagHasFlags | FlagSendFlush | FlagSendFUA | FlagCanMultiConn}),
			"0003e889045565a9 00000007 00000003 0000000c 0000 0000000100000000 010d"},
		{"reply INFO_NAME", AppendInfoText(nil, OptInfo, InfoName, "ab"),
			"0003e889045565a9 00000006 00000003 00000004 0001 6162"},
		{"reply INFO_BLOCK_SIZE", AppendInfoBlockSize(nil, OptGo, BlockSizes{1, 4096, 1 << 25}),
			"0003e889045565a9 00000007 00000003 0000000e 0003 00000001 00001000 02000000"},
		{"export", AppendExport(nil, Export{Size: 512, Flags: FlagHasFlags}), "0000000000000200 0001"},
		{"export with zeroes", AppendExportZeroes(nil, Export{Size: 512, Flags: FlagHasFlags}),
			"0000000000000200 0001" + strings.Repeat("00", 124)},
		{"request", AppendRequest(nil, Request{Flags: CmdFlagFUA, Command: CmdWrite, Cookie: 0x0102030405060708, Off: 0x1000, Len: 0x200}),
			"25609513 0001 0001 0102030405060708 0000000000001000 00000200"},
		{"option SET_META_CONTEXT", AppendOption(nil, OptSetMetaContext, AppendMetaRequest(nil, "ab", ContextAllocation, "x:")),
			"49484156454f5054 0000000a 00000023 00000002 6162 00000002 0000000f 626173653a616c6c6f636174696f6e 00000002 783a"},
		{"reply META_CONTEXT", AppendMetaContext(nil, OptListMetaContext, 7, "base:x"),
			"0003e889045565a9 00000009 00000004 0000000a 00000007 626173653a78"},
		{"extended request", put(ExtendedRequestSize, func(b []byte) {
			PutExtendedRequest(b, Request{Flags: CmdFlagPayloadLen, Command: CmdBlockStatus, Cookie: 0x0102030405060708, Off: 0x1000, Len: 1 << 40})
		}), "21e41c71 0020 0007 0102030405060708 0000000000001000 0000010000000000"},
		{"BLOCK_STATUS payload", AppendStatusPayload(nil, 1<<40, 7), "0000010000000000 00000007"},
		{"structured reply", put(StructuredReplySize, func(b []byte) {
			PutStructuredReply(b, Chunk{Flags: ReplyFlagDone, Type: ChunkError, Cookie: 0x0102030405060708, Len: 6})
		}), "668e33ef 0001 8001 0102030405060708 00000006"},
		{"extended reply", put(ExtendedReplySize, func(b []byte) {
			PutExtendedReply(b, Chunk{Flags: ReplyFlagDone, Type: ChunkOffsetData, Cookie: 0x0102030405060708, Off: 0x1000, Len: 520})
		}), "6e8a278c 0001 0001 0102030405060708 0000000000001000 0000000000000208"},
		{"offset", put(OffsetSize, func(b []byte) { PutOffset(b, 1<<40) }), "0000010000000000"},
		{"error", append(put(ErrorSize, func(b []byte) { PutError(b, 22, 2) }), "no"...), "00000016 0002 6e6f"},
		{"block status", put(BlockStatusSize, func(b []byte) { PutBlockStatus(b, 7, Extent{Len: 4096, Status: 3}) }), "00000007 00001000 00000003"},
		{"extended block status", put(BlockStatusExtSize, func(b []byte) { PutBlockStatusExt(b, 7, Extent{Len: 1 << 40, Status: 3}) }),
			"00000007 00000001 0000010000000000 0000000000000003"},
		{"simple reply", AppendSimpleReply(nil, SimpleReply{Errno: 22, Cookie: 0x0102030405060708}),
			"67446698 00000016 0102030405060708"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, unhex(t, tt.want), tt.got) })
	}
}

func TestDecodeInfoRequest(t *testing.T) {
	r, err := DecodeInfoRequest(AppendInfoRequest(nil, "disk", InfoBlockSize, InfoType(77)))
	require.NoError(t, err)
	require.Equal(t, "disk", string(r.Name))
	require.True(t, r.Wants(InfoBlockSize))
	require.True(t, r.Wants(InfoType(77)))
	require.False(t, r.Wants(InfoName))

	for _, tt := range []struct{ name, data string }{
		{"empty", ""},
		{"shorter than its fixed fields", "00000000 00"},
		{"name past the end", "00000003 6162 0000"},
		{"name length overflows", "ffffffff 6162 0000"},
		{"name length overflows with the fixed fields", "fffffffb 6162 0000"},
		{"fewer types than counted", "00000000 0002 0001"},
		{"more types than counted", "00000000 0000 0001"},
		{"half a type", "00000000 0001 00"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := DecodeInfoRequest(unhex(t, tt.data))
			require.ErrorIs(t, err, ErrMalformed)
		})
	}
}

func TestDecodeMetaRequest(t *testing.T) {
	queries := []string{"base:", ContextAllocation, ""}
	r, err := DecodeMetaRequest(AppendMetaRequest(nil, "disk", queries...))
	require.NoError(t, err)
	require.Equal(t, "disk", string(r.Name))
	require.EqualValues(t, 3, r.Count)
	require.Equal(t, queries, slices.Collect(r.Queries()))

	for _, tt := range []struct{ name, data string }{
		{"empty", ""},
		{"name past the end", "00000003 6162"},
		{"name length overflows", "ffffffff 6162 00000000"},
		{"no count", "00000001 61 0000"},
		{"fewer queries than counted", "00000000 00000001"},
		{"more queries than counted", "00000000 00000000 00000000"},
		{"query past the end", "00000000 00000001 00000002 61"},
		{"query length overflows", "00000000 00000001 fffffffc 61"},
		{"query too long", "00000000 00000001 00001001 " + strings.Repeat("61", 4097)},
		{"a great many queries", "00000000 ffffffff 00000000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := DecodeMetaRequest(unhex(t, tt.data))
			require.ErrorIs(t, err, ErrMalformed)
		})
	}
}

func TestRefusals(t *testing.T) {
	short := func(n int) []byte { return make([]byte, n-1) }
	for _, tt := range []struct {
		name   string
		decode func() error
		want   error
	}{
		{"short extended request", func() error { _, err := DecodeExtendedRequest(short(ExtendedRequestSize)); return err }, ErrMalformed},
		{"extended request without magic", func() error { _, err := DecodeExtendedRequest(make([]byte, ExtendedRequestSize)); return err }, ErrMagic},
		{"compact request for an extended one", func() error {
			_, err := DecodeExtendedRequest(append(AppendRequest(nil, Request{}), 0, 0, 0, 0))
			return err
		}, ErrMagic},
		{"short structured reply", func() error { _, err := DecodeStructuredReply(short(StructuredReplySize)); return err }, ErrMalformed},
		{"structured reply without magic", func() error { _, err := DecodeStructuredReply(make([]byte, StructuredReplySize)); return err }, ErrMagic},
		{"short extended reply", func() error { _, err := DecodeExtendedReply(short(ExtendedReplySize)); return err }, ErrMalformed},
		{"extended reply without magic", func() error { _, err := DecodeExtendedReply(make([]byte, ExtendedReplySize)); return err }, ErrMagic},
		{"short error", func() error { _, _, err := DecodeError(short(ErrorSize)); return err }, ErrMalformed},
		{"error text past the end", func() error { _, _, err := DecodeError([]byte{0, 0, 0, 5, 0, 2, 'x'}); return err }, ErrMalformed},
		{"BLOCK_STATUS payload for two contexts", func() error { _, _, err := DecodeStatusPayload(AppendStatusPayload(nil, 1, 1, 2)); return err }, ErrMalformed},
		{"two extents", func() error { _, _, err := DecodeBlockStatus(make([]byte, BlockStatusSize+8)); return err }, ErrMalformed},
		{"no extent", func() error { _, _, err := DecodeBlockStatusExt(make([]byte, BlockStatusExtSize)); return err }, ErrMalformed},
		{"short metadata context", func() error { _, _, err := DecodeMetaContext(short(4)); return err }, ErrMalformed},
		{"short greeting", func() error { _, err := DecodeGreeting(short(GreetingSize)); return err }, ErrMalformed},
		{"greeting of something else", func() error { _, err := DecodeGreeting(make([]byte, GreetingSize)); return err }, ErrMagic},
		{"oldstyle greeting", func() error {
			_, err := DecodeGreeting(unhex(t, "4e42444d41474943 0000420281861253 0000"))
			return err
		}, ErrMagic},
		{"short client flags", func() error { _, err := DecodeClientFlags(short(ClientFlagsSize)); return err }, ErrMalformed},
		{"short option", func() error { _, err := DecodeOptionHeader(short(OptionHeaderSize)); return err }, ErrMalformed},
		{"option without magic", func() error { _, err := DecodeOptionHeader(make([]byte, OptionHeaderSize)); return err }, ErrMagic},
		{"short option reply", func() error { _, err := DecodeOptionReply(short(OptionReplySize)); return err }, ErrMalformed},
		{"option reply without magic", func() error { _, err := DecodeOptionReply(make([]byte, OptionReplySize)); return err }, ErrMagic},
		{"short export", func() error { _, err := DecodeExport(short(ExportReplySize)); return err }, ErrMalformed},
		{"short information", func() error { _, _, err := DecodeInfo(short(2)); return err }, ErrMalformed},
		{"long block sizes", func() error { _, err := DecodeBlockSizes(make([]byte, 13)); return err }, ErrMalformed},
		{"short server", func() error { _, _, err := DecodeServer(short(4)); return err }, ErrMalformed},
		{"server's name past the end", func() error { _, _, err := DecodeServer(unhex(t, "ffffffff 61")); return err }, ErrMalformed},
		{"short request", func() error { _, err := DecodeRequest(short(RequestSize)); return err }, ErrMalformed},
		{"request of Linux before 2.1.117", func() error {
			_, err := DecodeRequest(append(unhex(t, "12560953"), make([]byte, RequestSize)...))
			return err
		}, ErrMagic},
		{"short simple reply", func() error { _, err := DecodeSimpleReply(short(SimpleReplySize)); return err }, ErrMalformed},
		{"simple reply without magic", func() error { _, err := DecodeSimpleReply(make([]byte, SimpleReplySize)); return err }, ErrMagic},
	} {
		t.Run(tt.name, func(t *testing.T) { require.ErrorIs(t, tt.decode(), tt.want) })
	}
}

func TestNames(t *testing.T) {
	require.Equal(t, "GO", OptGo.String())
	require.Equal(t, "option 99", Option(99).String())
	require.Equal(t, "ERR_UNKNOWN", RepErrUnknown.String())
	require.Equal(t, "reply type 0x63", ReplyType(99).String())
	require.True(t, RepErrTooBig.IsError())
	require.False(t, RepInfo.IsError())
}
