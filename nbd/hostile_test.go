package nbd

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/nbd/wire"
)

// TestHostileNegotiation: broken negotiations, each with what the server says to
// them, a bystander being served all along.
func TestHostileNegotiation(t *testing.T) {
	f := serveWith(t, Config{HandshakeTimeout: 100 * time.Millisecond}, newMem(t, 1<<20))
	bystander := f.client()
	longName := bytes.Repeat([]byte("n"), wire.MaxString+1)
	header := func(o wire.Option, n uint32) []byte {
		b := wire.AppendOption(nil, o, nil)
		binary.BigEndian.PutUint32(b[12:], n)
		return b
	}
	type row struct {
		name string
		// send is what follows the greeting, flags the client's before it.
		flags wire.ClientFlags
		send  []byte
		// want are the types of all replies; the server then hangs up or, if open
		// is set, does not.
		want []wire.ReplyType
		open bool
	}
	fixed := wire.ClientFixedNewstyle
	opt := func(o wire.Option, data string) []byte { return wire.AppendOption(nil, o, []byte(data)) }
	tests := []row{
		{"nothing at all", fixed, nil, nil, false},
		{"unknown client flags", 4, nil, nil, false},
		{"all client flags", math.MaxUint32, nil, nil, false},
		{"an option without its magic", fixed, make([]byte, 16), nil, false},
		{"half an option header", fixed, opt(wire.OptList, "")[:9], nil, false},
		{"a request instead of an option", fixed, wire.AppendRequest(nil, wire.Request{}), nil, false},
		{"data over the limit", fixed, header(wire.OptGo, maxOption+1), nil, false},
		{"data of 4 GiB", fixed, header(wire.Option(99), math.MaxUint32), nil, false},
		{"data that does not come", fixed, header(wire.OptGo, 100), nil, false},
		{"an unknown export the old way", fixed, opt(wire.OptExportName, "nothing"), nil, false},
		{"too long a name the old way", fixed, wire.AppendOption(nil, wire.OptExportName, longName), nil, false},
		{"an unknown option", fixed, opt(99, "data"), []wire.ReplyType{wire.RepErrUnsup}, true},
		{"option 0", fixed, opt(0, ""), []wire.ReplyType{wire.RepErrUnsup}, true},
		{"the withdrawn PEEK_EXPORT", fixed, opt(4, "disk"), []wire.ReplyType{wire.RepErrUnsup}, true},
		{"STARTTLS where there is none", fixed, opt(wire.OptStartTLS, ""), []wire.ReplyType{wire.RepErrPolicy}, true},
		{"STARTTLS with data", fixed, opt(wire.OptStartTLS, "x"), []wire.ReplyType{wire.RepErrInvalid}, true},
		{"LIST with data", fixed, opt(wire.OptList, "x"), []wire.ReplyType{wire.RepErrInvalid}, true},
		{"GO without data", fixed, opt(wire.OptGo, ""), []wire.ReplyType{wire.RepErrInvalid}, true},
		{"GO, name past the data", fixed, opt(wire.OptGo, "\x00\x00\x00\x09disk\x00\x00"), []wire.ReplyType{wire.RepErrInvalid}, true},
		{"GO, name of 4 GiB", fixed, opt(wire.OptGo, "\xff\xff\xff\xffdisk\x00\x00"), []wire.ReplyType{wire.RepErrInvalid}, true},
		{"GO, more types than sent", fixed, opt(wire.OptGo, "\x00\x00\x00\x04disk\x00\x02\x00\x03"), []wire.ReplyType{wire.RepErrInvalid}, true},
		{"GO, fewer types than sent", fixed, opt(wire.OptGo, "\x00\x00\x00\x04disk\x00\x00\x00\x03"), []wire.ReplyType{wire.RepErrInvalid}, true},
		{"GO, too long a name", fixed, wire.AppendOption(nil, wire.OptGo, wire.AppendInfoRequest(nil, string(longName))), []wire.ReplyType{wire.RepErrInvalid}, true},
		{"GO, unknown export", fixed, wire.AppendOption(nil, wire.OptGo, wire.AppendInfoRequest(nil, "nothing")), []wire.ReplyType{wire.RepErrUnknown}, true},
		{"INFO, unknown export", fixed, wire.AppendOption(nil, wire.OptInfo, wire.AppendInfoRequest(nil, "disk\x00")), []wire.ReplyType{wire.RepErrUnknown}, true},
		{"ABORT with data", fixed, opt(wire.OptAbort, "bye"), []wire.ReplyType{wire.RepAck}, false},
		{"options behind ABORT", fixed, append(opt(wire.OptAbort, ""), opt(wire.OptList, "")...), []wire.ReplyType{wire.RepAck}, false},
		{"an option without fixed newstyle", 0, opt(wire.OptList, ""), []wire.ReplyType{wire.RepServer, wire.RepAck}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			nc := f.raw()
			greet(t, nc, tt.flags)
			if len(tt.send) > 0 {
				_, err := nc.Write(tt.send)
				require.NoError(t, err)
			}
			for _, want := range tt.want {
				b := make([]byte, wire.OptionReplySize)
				readFull(t, nc, b)
				h, err := wire.DecodeOptionReply(b)
				require.NoError(t, err)
				require.Equal(t, want, h.Type)
				readFull(t, nc, make([]byte, h.Len))
			}
			if tt.open { // it still answers
				replies := option(t, nc, wire.OptInfo, wire.AppendInfoRequest(nil, "disk", wire.InfoName, wire.InfoDescription, 77))
				require.Len(t, replies, 5)
				require.Equal(t, wire.RepAck, option(t, nc, wire.OptAbort, nil)[0].typ)
			}
			closed(t, nc)
			write(t, bystander, 0, []byte(tt.name))
			require.Equal(t, tt.name, string(read(t, bystander, 0, len(tt.name))))
		})
	}
}

// TestOldClients: EXPORT_NAME, with and without its zeroes.
func TestOldClients(t *testing.T) {
	f := serve(t, newMem(t, 1<<20))
	for _, tt := range []struct {
		name  string
		flags wire.ClientFlags
		size  int
	}{
		{"newstyle", 0, wire.ExportReplyZeroesSize},
		{"fixed newstyle", wire.ClientFixedNewstyle, wire.ExportReplyZeroesSize},
		{"without zeroes", wire.ClientFixedNewstyle | wire.ClientNoZeroes, wire.ExportReplySize},
	} {
		for _, name := range []string{"disk", ""} {
			t.Run(tt.name+" "+name, func(t *testing.T) {
				nc := f.raw()
				greet(t, nc, tt.flags)
				_, err := nc.Write(wire.AppendOption(nil, wire.OptExportName, []byte(name)))
				require.NoError(t, err)
				b := make([]byte, tt.size)
				readFull(t, nc, b)
				e, err := wire.DecodeExport(b)
				require.NoError(t, err)
				require.Equal(t, new(terms).offer(f.srv.exports[0]), e)
				require.Equal(t, make([]byte, len(b)-wire.ExportReplySize), b[wire.ExportReplySize:])
				_, err = nc.Write(wire.AppendRequest(nil, wire.Request{Command: wire.CmdFlush, Cookie: 9}))
				require.NoError(t, err)
				require.Equal(t, wire.SimpleReply{Cookie: 9}, recvReply(t, nc))
				require.NoError(t, nc.Close())
			})
		}
	}
}

// TestHostileTransmission: broken requests. What gets an error leaves the connection
// as it was; what breaks the framing ends it.
func TestHostileTransmission(t *testing.T) {
	const size = 1 << 20
	f := serve(t, shaped{Device: newMem(t, size), max: 512 << 10, min: 512})
	bystander := f.client()
	data := backendtest.Pattern(4096, 1)
	tests := []struct {
		name    string
		req     wire.Request
		payload int
		want    backend.Errno
	}{
		{"READ past the end", wire.Request{Command: wire.CmdRead, Off: size - 512, Len: 1024}, 0, backend.EINVAL},
		{"READ at the end", wire.Request{Command: wire.CmdRead, Off: size, Len: 512}, 0, backend.EINVAL},
		{"READ, offset + length overflow", wire.Request{Command: wire.CmdRead, Off: math.MaxUint64 - 511, Len: 1024}, 0, backend.EINVAL},
		{"READ of nothing", wire.Request{Command: wire.CmdRead}, 0, backend.EINVAL},
		{"READ, too large", wire.Request{Command: wire.CmdRead, Len: 512<<10 + 512}, 0, backend.EINVAL},
		{"READ of 4 GiB", wire.Request{Command: wire.CmdRead, Len: math.MaxUint32}, 0, backend.EINVAL},
		{"READ, unaligned offset", wire.Request{Command: wire.CmdRead, Off: 1, Len: 512}, 0, backend.EINVAL},
		{"READ, unaligned length", wire.Request{Command: wire.CmdRead, Len: 513}, 0, backend.EINVAL},
		{"READ with DF", wire.Request{Command: wire.CmdRead, Flags: wire.CmdFlagDF, Len: 512}, 0, backend.EINVAL},
		{"WRITE past the end", wire.Request{Command: wire.CmdWrite, Off: size - 512, Len: 1024}, 1024, backend.ENOSPC},
		{"WRITE far past the end", wire.Request{Command: wire.CmdWrite, Off: 1 << 62, Len: 512}, 512, backend.ENOSPC},
		{"WRITE, offset + length overflow", wire.Request{Command: wire.CmdWrite, Off: math.MaxUint64 - 511, Len: 1024}, 1024, backend.ENOSPC},
		{"WRITE of nothing", wire.Request{Command: wire.CmdWrite}, 0, backend.EINVAL},
		{"WRITE, too large", wire.Request{Command: wire.CmdWrite, Len: 1 << 20}, 1 << 20, backend.EINVAL},
		{"WRITE of all that is borne", wire.Request{Command: wire.CmdWrite, Len: maxPayload}, maxPayload, backend.EINVAL},
		{"WRITE, unaligned", wire.Request{Command: wire.CmdWrite, Off: 511, Len: 512}, 512, backend.EINVAL},
		{"WRITE with an unknown flag", wire.Request{Command: wire.CmdWrite, Flags: 1 << 15, Len: 512}, 512, backend.EINVAL},
		{"WRITE with NO_HOLE", wire.Request{Command: wire.CmdWrite, Flags: wire.CmdFlagNoHole, Len: 512}, 512, backend.EINVAL},
		{"FLUSH with an offset", wire.Request{Command: wire.CmdFlush, Off: 1}, 0, backend.EINVAL},
		{"FLUSH with a length", wire.Request{Command: wire.CmdFlush, Len: 1}, 0, backend.EINVAL},
		{"TRIM past the end", wire.Request{Command: wire.CmdTrim, Off: size, Len: 512}, 0, backend.EINVAL},
		{"TRIM of nothing", wire.Request{Command: wire.CmdTrim}, 0, backend.EINVAL},
		{"TRIM with NO_HOLE", wire.Request{Command: wire.CmdTrim, Flags: wire.CmdFlagNoHole, Len: 512}, 0, backend.EINVAL},
		{"TRIM, which changes nothing", wire.Request{Command: wire.CmdTrim, Flags: wire.CmdFlagFUA, Off: 4096, Len: 4096}, 0, 0},
		{"TRIM of it all", wire.Request{Command: wire.CmdTrim, Len: size}, 0, 0},
		{"WRITE_ZEROES past the end", wire.Request{Command: wire.CmdWriteZeroes, Off: size - 512, Len: 1024}, 0, backend.ENOSPC},
		{"WRITE_ZEROES, offset + length overflow", wire.Request{Command: wire.CmdWriteZeroes, Off: math.MaxUint64 - 511, Len: 1024}, 0, backend.ENOSPC},
		{"WRITE_ZEROES of nothing", wire.Request{Command: wire.CmdWriteZeroes}, 0, backend.EINVAL},
		{"WRITE_ZEROES, unaligned", wire.Request{Command: wire.CmdWriteZeroes, Off: 1, Len: 512}, 0, backend.EINVAL},
		{"WRITE_ZEROES with DF", wire.Request{Command: wire.CmdWriteZeroes, Flags: wire.CmdFlagDF, Len: 512}, 0, backend.EINVAL},
		{"WRITE_ZEROES with FAST_ZERO", wire.Request{Command: wire.CmdWriteZeroes, Flags: wire.CmdFlagFastZero, Off: 8192, Len: 512}, 0, 0},
		{"WRITE_ZEROES with NO_HOLE and FUA", wire.Request{Command: wire.CmdWriteZeroes, Flags: wire.CmdFlagNoHole | wire.CmdFlagFUA, Off: 8192, Len: 512<<10 + 512}, 0, 0},
		{"CACHE, which has no effect", wire.Request{Command: wire.CmdCache, Len: size}, 0, 0},
		{"CACHE past the end", wire.Request{Command: wire.CmdCache, Off: size, Len: 512}, 0, backend.EINVAL},
		{"CACHE with NO_HOLE", wire.Request{Command: wire.CmdCache, Flags: wire.CmdFlagNoHole, Len: 512}, 0, backend.EINVAL},
		{"BLOCK_STATUS without a metadata context", wire.Request{Command: wire.CmdBlockStatus, Len: 512}, 0, backend.EINVAL},
		{"an unknown command", wire.Request{Command: 0xffff, Flags: 0xffff, Off: math.MaxUint64, Len: math.MaxUint32}, 0, backend.EINVAL},
		{"READ with FUA, which is allowed", wire.Request{Command: wire.CmdRead, Flags: wire.CmdFlagFUA, Off: 4096, Len: 4096}, 0, 0},
		{"FLUSH with FUA, which is allowed", wire.Request{Command: wire.CmdFlush, Flags: wire.CmdFlagFUA}, 0, 0},
	}
	nc := f.enterRaw()
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			write(t, bystander, 4096, data)
			tt.req.Cookie = uint64(i)<<32 | 7
			stream := append(wire.AppendRequest(nil, tt.req), bytes.Repeat([]byte{0xee}, tt.payload)...)
			flush := wire.Request{Command: wire.CmdFlush, Cookie: 5}
			_, err := nc.Write(wire.AppendRequest(stream, flush))
			require.NoError(t, err)
			require.Equal(t, wire.SimpleReply{Errno: uint32(tt.want), Cookie: tt.req.Cookie}, recvReply(t, nc))
			if tt.want == 0 && tt.req.Command == wire.CmdRead {
				p := make([]byte, tt.req.Len)
				readFull(t, nc, p)
				require.Equal(t, data, p)
			}
			require.Equal(t, wire.SimpleReply{Cookie: 5}, recvReply(t, nc), "the stream goes on where it should")
			require.Equal(t, data, read(t, bystander, 4096, 4096))
			require.Equal(t, make([]byte, 512), read(t, bystander, 0, 512), "nothing was written")
		})
	}
	require.NoError(t, nc.Close())

	good := wire.AppendRequest(nil, wire.Request{Command: wire.CmdWrite, Cookie: 1, Off: 8192, Len: 512})
	good = append(good, data[:512]...)
	for _, tt := range []struct {
		name string
		send []byte
	}{
		{"no magic", make([]byte, wire.RequestSize)},
		{"magic of a reply", wire.AppendSimpleReply(make([]byte, 0, 64), wire.SimpleReply{})},
		{"an option", wire.AppendOption(nil, wire.OptGo, wire.AppendInfoRequest(nil, "disk"))},
		{"garbage", backendtest.Pattern(100_000, 5)},
		{"WRITE beyond what is borne", wire.AppendRequest(nil, wire.Request{Command: wire.CmdWrite, Len: maxPayload + 1})},
		{"WRITE of 4 GiB", wire.AppendRequest(nil, wire.Request{Command: wire.CmdWrite, Len: math.MaxUint32})},
		{"half-close between requests", nil},
		{"half-close in a header", good[:20]},
		{"half-close between header and payload", good[:wire.RequestSize]},
		{"half-close in a payload", good[:wire.RequestSize+100]},
		{"half-close in a large payload", wire.AppendRequest(nil, wire.Request{Command: wire.CmdWrite, Len: 512 << 10})},
		{"half-close in a refused payload", wire.AppendRequest(nil, wire.Request{Command: wire.CmdWrite, Len: maxPayload})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nc := f.enterRaw()
			_, err := nc.Write(good)
			require.NoError(t, err)
			require.Equal(t, wire.SimpleReply{Cookie: 1}, recvReply(t, nc))
			_, err = nc.Write(tt.send)
			require.NoError(t, err)
			if len(tt.send) < wire.RequestSize || tt.name[:4] == "half" {
				require.NoError(t, nc.(*net.UnixConn).CloseWrite())
			}
			closed(t, nc)
			require.Equal(t, data[:512], read(t, bystander, 8192, 512))
		})
		t.Run(tt.name+", dropped", func(t *testing.T) {
			nc := f.enterRaw()
			_, err := nc.Write(slices.Concat(good, tt.send))
			require.NoError(t, err)
			require.NoError(t, nc.Close())
			require.Equal(t, data, read(t, bystander, 4096, 4096))
		})
	}
	for range 300 {
		nc := f.raw()
		require.NoError(t, nc.Close())
		write(t, bystander, 4096, data)
	}
}

// TestHandshakeTimeout: a client that says nothing is not waited for.
func TestHandshakeTimeout(t *testing.T) {
	f := serveWith(t, Config{HandshakeTimeout: time.Millisecond}, newMem(t, 1<<20))
	nc := f.raw()
	_, err := io.Copy(io.Discard, nc)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}
