package wire

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzDecode: no bytes make a decoder panic, and what a decoder accepts encodes to the same
// bytes.
func FuzzDecode(f *testing.F) {
	f.Add(AppendGreeting(nil, FlagFixedNewstyle))
	f.Add(AppendOption(nil, OptGo, AppendInfoRequest(nil, "x", InfoBlockSize)))
	f.Add(AppendInfoRequest(nil, "disk", InfoName, InfoBlockSize))
	f.Add(AppendServer(nil, "disk", "text")[OptionReplySize:])
	f.Add(AppendInfoBlockSize(nil, OptGo, BlockSizes{1, 4096, 1 << 20})[OptionReplySize:])
	f.Add(AppendOptionReply(nil, OptList, RepErrPolicy, "no"))
	f.Add(AppendRequest(nil, Request{Command: CmdWrite, Len: 4096}))
	f.Add(AppendSimpleReply(nil, SimpleReply{Errno: 5, Cookie: 1}))
	f.Add(AppendMetaRequest(nil, "disk", "base:", ContextAllocation))
	f.Add(AppendMetaContext(nil, OptSetMetaContext, 1, ContextAllocation)[OptionReplySize:])
	f.Add(put(ExtendedRequestSize, func(b []byte) { PutExtendedRequest(b, Request{Command: CmdRead, Len: 1 << 33}) }))
	f.Add(put(StructuredReplySize, func(b []byte) { PutStructuredReply(b, Chunk{Flags: ReplyFlagDone}) }))
	f.Add(put(ExtendedReplySize, func(b []byte) { PutExtendedReply(b, Chunk{Type: ChunkError, Len: 1 << 33}) }))
	f.Add(put(BlockStatusExtSize, func(b []byte) { PutBlockStatusExt(b, 1, Extent{Len: 1}) }))
	f.Fuzz(func(t *testing.T, b []byte) {
		if fl, err := DecodeGreeting(b); err == nil {
			require.Equal(t, b[:GreetingSize], AppendGreeting(nil, fl))
		}
		if h, err := DecodeOptionHeader(b); err == nil {
			require.Equal(t, b[:12], AppendOption(nil, h.Option, nil)[:12])
		}
		if h, err := DecodeOptionReply(b); err == nil {
			require.Equal(t, b[:OptionReplySize], appendReplyHeader(nil, h.Option, h.Type, int(h.Len)))
		}
		if r, err := DecodeInfoRequest(b); err == nil {
			types := make([]InfoType, 0, len(r.types)/2)
			for i := 0; i < len(r.types); i += 2 {
				types = append(types, InfoType(r.types[i])<<8|InfoType(r.types[i+1]))
				require.True(t, r.Wants(types[len(types)-1]))
			}
			require.Equal(t, b, AppendInfoRequest(nil, string(r.Name), types...))
		}
		if name, desc, err := DecodeServer(b); err == nil {
			require.Equal(t, b, AppendServer(nil, name, desc)[OptionReplySize:])
		}
		if e, err := DecodeExport(b); err == nil {
			require.Equal(t, b[:ExportReplySize], AppendExport(nil, e))
		}
		if typ, body, err := DecodeInfo(b); err == nil {
			require.Equal(t, b, AppendInfoText(nil, OptGo, typ, string(body))[OptionReplySize:])
			if s, err := DecodeBlockSizes(body); err == nil {
				require.Equal(t, body, AppendInfoBlockSize(nil, OptGo, s)[OptionReplySize+2:])
			}
		}
		if r, err := DecodeRequest(b); err == nil {
			require.Equal(t, b[:RequestSize], AppendRequest(nil, r))
		}
		if r, err := DecodeExtendedRequest(b); err == nil {
			require.Equal(t, b[:ExtendedRequestSize], put(ExtendedRequestSize, func(b []byte) { PutExtendedRequest(b, r) }))
		}
		if r, err := DecodeMetaRequest(b); err == nil {
			require.Equal(t, b, AppendMetaRequest(nil, string(r.Name), slices.Collect(r.Queries())...))
		}
		if id, name, err := DecodeMetaContext(b); err == nil {
			require.Equal(t, b, AppendMetaContext(nil, OptSetMetaContext, id, name)[OptionReplySize:])
		}
		if c, err := DecodeStructuredReply(b); err == nil {
			require.Equal(t, b[:StructuredReplySize], put(StructuredReplySize, func(b []byte) { PutStructuredReply(b, c) }))
		}
		if c, err := DecodeExtendedReply(b); err == nil {
			require.Equal(t, b[:ExtendedReplySize], put(ExtendedReplySize, func(b []byte) { PutExtendedReply(b, c) }))
		}
		if errno, text, err := DecodeError(b); err == nil {
			require.Equal(t, b[:ErrorSize], put(ErrorSize, func(b []byte) { PutError(b, errno, len(text)) }))
		}
		if n, id, err := DecodeStatusPayload(b); err == nil {
			require.Equal(t, b, AppendStatusPayload(nil, n, id))
		}
		if id, e, err := DecodeBlockStatus(b); err == nil {
			require.Equal(t, b, put(BlockStatusSize, func(b []byte) { PutBlockStatus(b, id, e) }))
		}
		if id, e, err := DecodeBlockStatusExt(b); err == nil {
			require.Equal(t, b, put(BlockStatusExtSize, func(b []byte) { PutBlockStatusExt(b, id, e) }))
		}
		if r, err := DecodeSimpleReply(b); err == nil {
			require.Equal(t, b[:SimpleReplySize], AppendSimpleReply(nil, r))
		}
	})
}
