package nbd

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"os"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/nbd/wire"
)

// greet reads the greeting and replies to it.
func greet(t testing.TB, nc net.Conn, flags wire.ClientFlags) {
	t.Helper()
	b := make([]byte, wire.GreetingSize)
	_, err := io.ReadFull(nc, b)
	require.NoError(t, err)
	hf, err := wire.DecodeGreeting(b)
	require.NoError(t, err)
	require.Equal(t, wire.FlagFixedNewstyle|wire.FlagNoZeroes, hf)
	_, err = nc.Write(wire.AppendClientFlags(nil, flags))
	require.NoError(t, err)
}

// An optionReply is a whole reply to an option.
type optionReply struct {
	typ  wire.ReplyType
	data []byte
}

// option sends an option and reads its replies up to the final one.
func option(t testing.TB, nc net.Conn, o wire.Option, data []byte) []optionReply {
	t.Helper()
	_, err := nc.Write(wire.AppendOption(nil, o, data))
	require.NoError(t, err)
	var replies []optionReply
	for {
		to, r := recvOption(t, nc)
		require.Equal(t, o, to)
		replies = append(replies, r)
		if r.typ == wire.RepAck || r.typ.IsError() {
			return replies
		}
	}
}

// last sends an option and returns the type of the final reply.
func last(t testing.TB, nc net.Conn, o wire.Option, data []byte) wire.ReplyType {
	t.Helper()
	replies := option(t, nc, o, data)
	return replies[len(replies)-1].typ
}

// recvOption reads one reply to an option.
func recvOption(t testing.TB, nc net.Conn) (wire.Option, optionReply) {
	t.Helper()
	h, err := wire.DecodeOptionReply(readN(t, nc, wire.OptionReplySize))
	require.NoError(t, err)
	require.LessOrEqual(t, h.Len, uint32(64<<10))
	return h.Option, optionReply{h.Type, readN(t, nc, int(h.Len))}
}

// enterRaw connects and enters transmission on a plain connection.
func (f *fixture) enterRaw() net.Conn {
	f.t.Helper()
	nc := f.raw()
	greet(f.t, nc, wire.ClientFixedNewstyle)
	replies := option(f.t, nc, wire.OptGo, wire.AppendInfoRequest(nil, "disk"))
	require.Equal(f.t, wire.RepAck, replies[len(replies)-1].typ)
	return nc
}

// recvReply reads one reply without data.
func recvReply(t testing.TB, nc net.Conn) wire.SimpleReply {
	t.Helper()
	b := make([]byte, wire.SimpleReplySize)
	_, err := io.ReadFull(nc, b)
	require.NoError(t, err)
	r, err := wire.DecodeSimpleReply(b)
	require.NoError(t, err)
	return r
}

// closed checks that the server hangs up without sending another byte.
func closed(t testing.TB, nc net.Conn) {
	t.Helper()
	n, err := nc.Read(make([]byte, 1))
	require.Zero(t, n)
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "still open")
}

// A rawConn is a connection in transmission. It sends any bytes, and checks strictly what it
// receives.
type rawConn struct {
	net.Conn               // TLS's, if there is TLS
	socket   *net.UnixConn // below TLS
	form     replies
}

// Each Read and each Write may take up to patience, so the connection may last as long as the test.
func (c *rawConn) Read(b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

func (c *rawConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// An entry is how a rawConn enters transmission.
type entry struct {
	export string // "" is the default
	form   replies
	tls    *tls.Config // nil: in the clear
}

func (e entry) String() string {
	s := []string{simple: "simple", structured: "structured", extended: "extended"}[e.form]
	if e.tls != nil {
		s += " by TLS"
	}
	return s
}

// options returns the options of e after STARTTLS. They select base:allocation if the form
// allows it.
func (e entry) options() []byte {
	var b []byte
	switch e.form {
	case structured:
		b = wire.AppendOption(b, wire.OptStructuredReply, nil)
	case extended:
		b = wire.AppendOption(b, wire.OptExtendedHeaders, nil)
	}
	if e.form != simple {
		b = wire.AppendOption(b, wire.OptSetMetaContext, wire.AppendMetaRequest(nil, e.export, wire.ContextAllocation))
	}
	return wire.AppendOption(b, wire.OptGo, wire.AppendInfoRequest(nil, e.export))
}

// enter connects and enters transmission.
func (f *fixture) enter(e entry) *rawConn {
	f.t.Helper()
	nc := f.raw()
	c := &rawConn{Conn: nc, socket: nc.(*net.UnixConn), form: e.form}
	greet(f.t, nc, wire.ClientFixedNewstyle)
	if e.tls != nil {
		c.Conn = startTLS(f.t, nc, e.tls)
	}
	_, err := c.Write(e.options())
	require.NoError(f.t, err)
	for o := wire.Option(0); o != wire.OptGo; {
		var r optionReply
		if o, r = recvOption(f.t, c); r.typ != wire.RepAck {
			require.False(f.t, r.typ.IsError(), "%v: %v", o, r.typ)
			o = 0
		}
	}
	return c
}

// put appends a request in the form that c has negotiated.
func (c *rawConn) put(b []byte, r wire.Request) []byte {
	if c.form != extended {
		return wire.AppendRequest(b, r)
	}
	b = append(b, make([]byte, wire.ExtendedRequestSize)...)
	wire.PutExtendedRequest(b[len(b)-wire.ExtendedRequestSize:], r)
	return b
}

// putWrite appends a WRITE of data in the form that c has negotiated.
func (c *rawConn) putWrite(b []byte, cookie, off uint64, data []byte) []byte {
	r := wire.Request{Command: wire.CmdWrite, Cookie: cookie, Off: off, Len: uint64(len(data))}
	if c.form == extended {
		r.Flags = wire.CmdFlagPayloadLen
	}
	return append(c.put(b, r), data...)
}

// An answer is a whole reply.
type answer struct {
	errno  backend.Errno
	data   []byte      // of a READ
	extent wire.Extent // of a BLOCK_STATUS
}

// recv reads the next reply. find returns the request with a cookie. Every field of the reply
// must be what the form demands.
func (c *rawConn) recv(t testing.TB, find func(cookie uint64) wire.Request) (r wire.Request, a answer) {
	t.Helper()
	b := make([]byte, wire.SimpleReplySize, wire.ExtendedReplySize)
	readFull(t, c, b)
	if c.form == simple || c.form == structured && binary.BigEndian.Uint32(b) == wire.MagicSimpleReply {
		s, err := wire.DecodeSimpleReply(b)
		require.NoError(t, err)
		r = find(s.Cookie)
		a.errno = backend.Errno(s.Errno)
		if c.form == structured {
			require.Zero(t, a.errno, "errors come with a text")
			require.NotEqual(t, wire.CmdRead, r.Command)
			require.NotEqual(t, wire.CmdBlockStatus, r.Command)
		} else if a.errno == 0 && r.Command == wire.CmdRead {
			a.data = readN(t, c, int(r.Len))
		}
		return r, a
	}
	for {
		h := c.recvChunk(t, b)
		r = find(h.Cookie)
		if c.form == extended {
			require.Equal(t, r.Off, h.Off)
		}
		switch {
		case h.Type == wire.ChunkError:
			require.LessOrEqual(t, h.Len, uint64(wire.ErrorSize+maxText))
			errno, text, err := wire.DecodeError(readN(t, c, int(h.Len)))
			require.NoError(t, err)
			require.NotZero(t, errno)
			require.NotEmpty(t, text)
			require.True(t, utf8.Valid(text))
			require.EqualValues(t, h.Len, wire.ErrorSize+len(text))
			a.errno, a.data = backend.Errno(errno), nil
		case r.Command == wire.CmdRead:
			require.Equal(t, wire.ChunkOffsetData, h.Type)
			n := h.Len - wire.OffsetSize
			require.Equal(t, r.Off+uint64(len(a.data)), binary.BigEndian.Uint64(readN(t, c, wire.OffsetSize)))
			require.LessOrEqual(t, uint64(len(a.data))+n, r.Len)
			a.data = append(a.data, readN(t, c, int(n))...)
			require.Equal(t, uint64(len(a.data)) == r.Len, h.Flags == wire.ReplyFlagDone)
		case r.Command == wire.CmdBlockStatus:
			typ, decode := wire.ChunkBlockStatus, wire.DecodeBlockStatus
			if c.form == extended {
				typ, decode = wire.ChunkBlockStatusExt, wire.DecodeBlockStatusExt
			}
			require.Equal(t, typ, h.Type)
			require.LessOrEqual(t, h.Len, uint64(wire.BlockStatusExtSize))
			id, e, err := decode(readN(t, c, int(h.Len)))
			require.NoError(t, err)
			require.EqualValues(t, contextID, id)
			require.NotZero(t, e.Len)
			a.extent = e
		default:
			require.Equal(t, wire.ChunkNone, h.Type)
			require.Zero(t, h.Len)
		}
		if h.Flags == wire.ReplyFlagDone {
			return r, a
		}
		require.Zero(t, h.Flags)
		require.Equal(t, wire.CmdRead, r.Command, "only a READ has more than one chunk")
		require.Zero(t, r.Flags&wire.CmdFlagDF)
		b = b[:wire.SimpleReplySize]
		readFull(t, c, b)
	}
}

// recvChunk reads the rest of a chunk's header, which begins with b.
func (c *rawConn) recvChunk(t testing.TB, b []byte) wire.Chunk {
	t.Helper()
	size, decode := wire.StructuredReplySize, wire.DecodeStructuredReply
	if c.form == extended {
		size, decode = wire.ExtendedReplySize, wire.DecodeExtendedReply
	}
	b = b[:size]
	readFull(t, c, b[wire.SimpleReplySize:])
	h, err := decode(b)
	require.NoError(t, err)
	return h
}

// known finds requests by their cookies.
func known(t testing.TB, requests ...wire.Request) func(cookie uint64) wire.Request {
	return func(cookie uint64) wire.Request {
		for _, r := range requests {
			if r.Cookie == cookie {
				return r
			}
		}
		require.Fail(t, "a reply to nothing", "cookie %#x", cookie)
		return wire.Request{}
	}
}

func readN(t testing.TB, nc net.Conn, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	readFull(t, nc, b)
	return b
}

// drain returns all that the server sends until it hangs up.
func drain(t testing.TB, nc net.Conn) []byte {
	t.Helper()
	b, err := io.ReadAll(nc)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "still open")
	return b
}
