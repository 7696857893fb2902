package client

import (
	"bytes"
	"net"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"pmnbd/nbd/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// socketpair returns a connected pair of unix sockets.
func socketpair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "socketpair")
		nc, err := net.FileConn(file)
		require.NoError(t, err)
		require.NoError(t, file.Close())
		conns[i] = nc.(*net.UnixConn)
	}
	return conns[0], conns[1]
}

// put returns the n bytes that an encoder writes.
func put(n int, encode func(b []byte)) []byte {
	b := make([]byte, n)
	encode(b)
	return b
}

// TestTextsArePlain: the client escapes control characters in the texts of a server.
func TestTextsArePlain(t *testing.T) {
	const hostile, shown = "\x1b[2J\u202e", `\x1b[2J\u202e`
	greeting := wire.AppendGreeting(nil, wire.FlagFixedNewstyle)
	dial := func(said ...[]byte) (*Client, error) {
		server, nc := socketpair(t)
		t.Cleanup(func() { require.NoError(t, server.Close()) })
		_, err := server.Write(slices.Concat(said...))
		require.NoError(t, err)
		return New(nc, Config{Export: "disk", Depth: 1, Replies: Structured})
	}
	_, err := dial(greeting, wire.AppendOptionReply(nil, wire.OptStructuredReply, wire.RepErrPolicy, hostile))
	require.ErrorIs(t, err, ErrRefused)
	require.ErrorContains(t, err, shown)

	reason := append(put(wire.ErrorSize, func(b []byte) { wire.PutError(b, 22, len(hostile)) }), hostile...)
	c, err := dial(greeting, wire.AppendOptionReply(nil, wire.OptStructuredReply, wire.RepAck, ""),
		wire.AppendInfoExport(nil, wire.OptGo, wire.Export{Size: 1 << 20}), wire.AppendInfoText(nil, wire.OptGo, wire.InfoDescription, hostile),
		wire.AppendOptionReply(nil, wire.OptGo, wire.RepAck, ""),
		put(wire.StructuredReplySize, func(b []byte) {
			wire.PutStructuredReply(b, wire.Chunk{Type: wire.ChunkError, Flags: wire.ReplyFlagDone, Len: uint64(len(reason))})
		}), reason)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	require.Equal(t, shown, c.Description())
	c.Flush(0)
	require.NoError(t, c.Send())
	_, errno, err := c.Recv()
	require.NoError(t, err)
	require.EqualValues(t, 22, errno)
	require.Equal(t, shown, c.Text())
}

// FuzzClient: whatever a server sends, the client accepts or refuses it, and writes to no
// memory but that of the READ.
func FuzzClient(f *testing.F) {
	greeting := wire.AppendGreeting(nil, wire.FlagFixedNewstyle)
	ack := func(o wire.Option) []byte { return wire.AppendOptionReply(nil, o, wire.RepAck, "") }
	chose := slices.Concat(wire.AppendInfoExport(nil, wire.OptGo, wire.Export{Size: 1 << 20}),
		wire.AppendInfoBlockSize(nil, wire.OptGo, wire.BlockSizes{Min: 1, Preferred: 4096, MaxPayload: 1 << 20}), ack(wire.OptGo))
	selected := slices.Concat(wire.AppendMetaContext(nil, wire.OptSetMetaContext, 7, wire.ContextAllocation), ack(wire.OptSetMetaContext))
	data := make([]byte, 100)
	chunk := func(form Replies, h wire.Chunk, payload []byte) []byte {
		h.Len = uint64(len(payload))
		if form == Extended {
			return append(put(wire.ExtendedReplySize, func(b []byte) { wire.PutExtendedReply(b, h) }), payload...)
		}
		return append(put(wire.StructuredReplySize, func(b []byte) { wire.PutStructuredReply(b, h) }), payload...)
	}
	f.Add(uint8(Simple), slices.Concat(greeting, chose,
		wire.AppendSimpleReply(nil, wire.SimpleReply{Cookie: 0}), data, wire.AppendSimpleReply(nil, wire.SimpleReply{Cookie: 2, Errno: 5})))
	for _, form := range []Replies{Structured, Extended} {
		o, status := wire.OptStructuredReply, put(wire.BlockStatusSize, func(b []byte) { wire.PutBlockStatus(b, 7, wire.Extent{Len: 512}) })
		typ := wire.ChunkBlockStatus
		if form == Extended {
			o, status = wire.OptExtendedHeaders, put(wire.BlockStatusExtSize, func(b []byte) { wire.PutBlockStatusExt(b, 7, wire.Extent{Len: 512}) })
			typ = wire.ChunkBlockStatusExt
		}
		f.Add(uint8(form), slices.Concat(greeting, ack(o), selected, chose,
			chunk(form, wire.Chunk{Type: wire.ChunkOffsetData, Cookie: 0, Off: 4096}, append(put(8, func(b []byte) { wire.PutOffset(b, 4096) }), data[:60]...)),
			chunk(form, wire.Chunk{Type: wire.ChunkOffsetData, Cookie: 0, Off: 4096, Flags: wire.ReplyFlagDone}, append(put(8, func(b []byte) { wire.PutOffset(b, 4156) }), data[:40]...)),
			chunk(form, wire.Chunk{Type: typ, Cookie: 1, Flags: wire.ReplyFlagDone}, status),
			chunk(form, wire.Chunk{Type: wire.ChunkError, Cookie: 2, Flags: wire.ReplyFlagDone}, append(put(wire.ErrorSize, func(b []byte) { wire.PutError(b, 22, 2) }), "no"...)),
			chunk(form, wire.Chunk{Type: wire.ChunkNone, Cookie: 2, Flags: wire.ReplyFlagDone}, nil)))
		f.Add(uint8(form), slices.Concat(greeting, ack(o), selected, chose, chunk(form, wire.Chunk{Type: wire.ChunkOffsetData}, nil)))
	}
	f.Fuzz(func(t *testing.T, form uint8, said []byte) {
		const depth, guard = 3, 64
		server, nc := socketpair(t)
		defer func() { require.NoError(t, server.Close()) }()
		said = said[:min(len(said), 100_000)] // the socket takes so much at once
		_, err := server.Write(said)
		require.NoError(t, err)
		require.NoError(t, server.CloseWrite())
		cfg := Config{Export: "disk", Depth: depth, Replies: Replies(form % 3), Allocation: form%3 > 0}
		c, err := New(nc, cfg)
		if err != nil {
			return
		}
		defer func() { require.NoError(t, c.Close()) }()
		memory := bytes.Repeat([]byte{0xa5}, guard+100+guard)
		c.Read(0, 4096, memory[guard:guard+100:guard+100])
		c.Request(wire.Request{Command: wire.CmdBlockStatus, Cookie: 1, Len: 512})
		c.Flush(2)
		require.NoError(t, c.Send())
		for taken := 0; ; taken++ {
			tag, _, err := c.Recv()
			if err != nil {
				break
			}
			require.Less(t, tag, uint32(depth))
			require.Less(t, taken*wire.SimpleReplySize, len(said), "each reply has its bytes")
		}
		for _, b := range [][]byte{memory[:guard], memory[guard+100:]} {
			require.Equal(t, bytes.Repeat([]byte{0xa5}, guard), b)
		}
	})
}
