package nbd

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/nbd/wire"
)

// TestHostileRows: after each of these rows the server shuts down and leaves nothing behind,
// as serve checks.
func TestHostileRows(t *testing.T) {
	n := len(hostileOptions) + len(hostileTLS) + len(hostileRequests) + len(hostileStreams)
	t.Logf("%d hostile inputs: %d in options, %d about TLS, %d refused requests, %d breaches", n,
		len(hostileOptions), len(hostileTLS), len(hostileRequests), len(hostileStreams))
	require.GreaterOrEqual(t, n, 180)
}

// A witness stays connected during a test, and its data, at 4096, stay right.
type witness struct {
	*rawConn
	data []byte
	n    uint32
}

func (f *fixture) witness(e entry) *witness {
	f.t.Helper()
	w := &witness{rawConn: f.enter(e)}
	w.write(f.t)
	return w
}

// write writes something new.
func (w *witness) write(t testing.TB) {
	t.Helper()
	w.n++
	w.data = backendtest.Pattern(4096, w.n)
	_, err := w.Write(w.putWrite(nil, 1, 4096, w.data))
	require.NoError(t, err)
	_, a := w.recv(t, known(t, wire.Request{Command: wire.CmdWrite, Cookie: 1, Off: 4096}))
	require.Zero(t, a.errno)
}

// check reads what was written, and checks that nobody wrote before it.
func (w *witness) check(t testing.TB) {
	t.Helper()
	r := wire.Request{Command: wire.CmdRead, Cookie: 2, Len: 8192}
	_, err := w.Write(w.put(nil, r))
	require.NoError(t, err)
	_, a := w.recv(t, known(t, r))
	require.Zero(t, a.errno)
	require.Equal(t, make([]byte, 4096), a.data[:4096], "nothing was written")
	require.Equal(t, w.data, a.data[4096:])
	w.write(t)
}

// The client's flags, options, and their data.
const (
	newstyle = wire.ClientFlags(0)
	fixed    = wire.ClientFixedNewstyle
	alloc    = wire.ContextAllocation
	ack      = wire.RepAck
	invalid  = wire.RepErrInvalid
	unknown  = wire.RepErrUnknown
)

func opt(o wire.Option, data ...string) []byte {
	return wire.AppendOption(nil, o, []byte(strings.Join(data, "")))
}

func meta(o wire.Option, name string, queries ...string) []byte {
	return wire.AppendOption(nil, o, wire.AppendMetaRequest(nil, name, queries...))
}

func info(o wire.Option, name string, types ...wire.InfoType) []byte {
	return wire.AppendOption(nil, o, wire.AppendInfoRequest(nil, name, types...))
}

// length makes the header of an option with n bytes of data.
func length(o wire.Option, n uint32) []byte {
	b := opt(o)
	binary.BigEndian.PutUint32(b[12:], n)
	return b
}

// hostileOptions are broken negotiations.
var hostileOptions = func() []optionRow {
	const list, set = wire.OptListMetaContext, wire.OptSetMetaContext
	type types = []wire.ReplyType
	sr, eh := opt(wire.OptStructuredReply), opt(wire.OptExtendedHeaders)
	long := strings.Repeat("n", wire.MaxString+1)
	bad := func(o wire.Option, data ...string) []byte { return slices.Concat(sr, opt(o, data...)) }
	rows := []optionRow{
		{"unknown client flags", 4, nil, nil, false},
		{"all client flags", math.MaxUint32, nil, nil, false},
		{"an option without its magic", fixed, make([]byte, 16), nil, false},
		{"the greeting's magic for an option's", fixed, wire.AppendGreeting(nil, 0), nil, false},
		{"a reply instead of an option", fixed, wire.AppendOptionReply(nil, wire.OptGo, ack, ""), nil, false},
		{"a request instead of an option", fixed, wire.AppendRequest(nil, wire.Request{}), nil, false},
		{"garbage", fixed, backendtest.Pattern(4096, 3), nil, false},
		{"garbage behind an option", fixed, slices.Concat(sr, backendtest.Pattern(4096, 3)), types{ack}, false},
		{"data over the limit", fixed, length(wire.OptGo, maxOption+1), nil, false},
		{"data of 4 GiB", fixed, length(wire.Option(99), math.MaxUint32), nil, false},
		{"as much data as is borne", fixed, opt(99, string(make([]byte, maxOption))), types{wire.RepErrUnsup}, true},
		{"an unknown export the old way", fixed, opt(wire.OptExportName, "nothing"), nil, false},
		{"too long a name the old way", fixed, opt(wire.OptExportName, long), nil, false},
		{"extended headers and a choice the old way", fixed, slices.Concat(eh, opt(wire.OptExportName, "disk")), types{ack}, false},
		{"an unknown option", fixed, opt(99, "data"), types{wire.RepErrUnsup}, true},
		{"option 0", fixed, opt(0), types{wire.RepErrUnsup}, true},
		{"the withdrawn PEEK_EXPORT", fixed, opt(4, "disk"), types{wire.RepErrUnsup}, true},
		{"STARTTLS where there is none", fixed, opt(wire.OptStartTLS), types{wire.RepErrPolicy}, true},
		{"STARTTLS with data", fixed, opt(wire.OptStartTLS, "x"), types{invalid}, true},
		{"LIST with data", fixed, opt(wire.OptList, "x"), types{invalid}, true},
		{"LIST with much data", fixed, opt(wire.OptList, long), types{invalid}, true},
		{"an option without fixed newstyle", newstyle, opt(wire.OptList), types{wire.RepServer, ack}, true},

		{"STRUCTURED_REPLY with data", fixed, opt(wire.OptStructuredReply, "x"), types{invalid}, true},
		{"STRUCTURED_REPLY twice", fixed, slices.Concat(sr, sr), types{ack, invalid}, true},
		{"EXTENDED_HEADERS with data", fixed, opt(wire.OptExtendedHeaders, "x"), types{invalid}, true},
		{"EXTENDED_HEADERS twice", fixed, slices.Concat(eh, eh), types{ack, invalid}, true},
		{"STRUCTURED_REPLY after EXTENDED_HEADERS", fixed, slices.Concat(eh, sr), types{ack, wire.RepErrExtHdrReqd}, true},
		{"each of them twice", fixed, slices.Concat(sr, sr, eh, eh, sr), types{ack, invalid, ack, invalid, wire.RepErrExtHdrReqd}, true},

		{"ABORT with data", fixed, opt(wire.OptAbort, "bye"), types{ack}, false},
		{"options behind ABORT", fixed, slices.Concat(opt(wire.OptAbort), opt(wire.OptList)), types{ack}, false},
		{"ABORT behind agreements", fixed, slices.Concat(sr, eh, meta(set, "disk", alloc), opt(wire.OptAbort)),
			types{ack, ack, wire.RepMetaContext, ack, ack}, false},
		{"ABORT behind a refusal", fixed, slices.Concat(opt(wire.OptGo), opt(wire.OptAbort)), types{invalid, ack}, false},
		{"ABORT behind INFO, without fixed newstyle", newstyle, slices.Concat(info(wire.OptInfo, "disk"), opt(wire.OptAbort)),
			types{wire.RepInfo, wire.RepInfo, ack, ack}, false},
		{"options behind GO", fixed, slices.Concat(info(wire.OptGo, "disk"), opt(wire.OptList, long)), types{wire.RepInfo, wire.RepInfo, ack}, false},
		{"GO twice", fixed, slices.Concat(info(wire.OptGo, "disk"), info(wire.OptGo, "disk", wire.InfoName)), types{wire.RepInfo, wire.RepInfo, ack}, false},
		{"options behind GO with extended headers", fixed, slices.Concat(eh, info(wire.OptGo, "disk"), opt(wire.OptList), opt(wire.OptList)),
			types{ack, wire.RepInfo, wire.RepInfo, ack}, false},
		{"much at once", fixed, slices.Concat(opt(wire.OptList), sr, meta(set, "disk", alloc), meta(list, "disk"), info(wire.OptInfo, "disk"), opt(99)),
			types{wire.RepServer, ack, ack, wire.RepMetaContext, ack, wire.RepMetaContext, ack, wire.RepInfo, wire.RepInfo, ack, wire.RepErrUnsup}, true},

		{"INFO, unknown export", fixed, info(wire.OptInfo, "disk\x00"), types{unknown}, true},
		{"INFO, a type twice", fixed, info(wire.OptInfo, "disk", wire.InfoName, wire.InfoName, wire.InfoExport, wire.InfoExport),
			types{wire.RepInfo, wire.RepInfo, wire.RepInfo, ack}, true},
		{"INFO, a type 30,000 times", fixed, info(wire.OptInfo, "disk", slices.Repeat([]wire.InfoType{wire.InfoName}, 30_000)...),
			types{wire.RepInfo, wire.RepInfo, wire.RepInfo, ack}, true},
		{"INFO, unknown types", fixed, info(wire.OptInfo, "disk", 4, 77, math.MaxUint16), types{wire.RepInfo, wire.RepInfo, ack}, true},

		{"metadata contexts before structured replies", fixed, slices.Concat(meta(set, "disk", alloc), meta(list, "disk")), types{invalid, invalid}, true},
		{"a metadata context set twice", fixed, slices.Concat(sr, meta(set, "disk", alloc), meta(set, "disk", alloc)),
			types{ack, wire.RepMetaContext, ack, wire.RepMetaContext, ack}, true},
		{"a metadata context in one option twice", fixed, slices.Concat(sr, meta(set, "disk", alloc, alloc)), types{ack, wire.RepMetaContext, ack}, true},
		{"10,000 empty queries", fixed, slices.Concat(sr, meta(set, "disk", make([]string, 10_000)...)), types{ack, ack}, true},
		{"a query of 4096 bytes", fixed, slices.Concat(sr, meta(set, "disk", long[1:])), types{ack, ack}, true},
	}
	for _, o := range []wire.Option{wire.OptGo, wire.OptInfo} {
		rows = append(rows, []optionRow{
			{o.String() + " without data", fixed, opt(o), types{invalid}, true},
			{o.String() + ", name past the data", fixed, opt(o, "\x00\x00\x00\x09disk\x00\x00"), types{invalid}, true},
			{o.String() + ", name of 4 GiB", fixed, opt(o, "\xff\xff\xff\xffdisk\x00\x00"), types{invalid}, true},
			{o.String() + ", more types than sent", fixed, opt(o, "\x00\x00\x00\x04disk\x00\x02\x00\x03"), types{invalid}, true},
			{o.String() + ", fewer types than sent", fixed, opt(o, "\x00\x00\x00\x04disk\x00\x00\x00\x03"), types{invalid}, true},
			{o.String() + ", 65,535 types and none", fixed, opt(o, "\x00\x00\x00\x04disk\xff\xff"), types{invalid}, true},
			{o.String() + ", too long a name", fixed, info(o, long), types{invalid}, true},
			{o.String() + ", unknown export", fixed, info(o, "nothing"), types{unknown}, true},
		}...)
	}
	for _, o := range []wire.Option{list, set} {
		rows = append(rows, []optionRow{
			{o.String() + " without data", fixed, bad(o), types{ack, invalid}, true},
			{o.String() + ", name past the data", fixed, bad(o, "\x00\x00\x00\x09disk\x00\x00\x00\x00"), types{ack, invalid}, true},
			{o.String() + ", name of 4 GiB", fixed, bad(o, "\xff\xff\xff\xffdisk\x00\x00\x00\x00"), types{ack, invalid}, true},
			{o.String() + ", too long a name", fixed, slices.Concat(sr, meta(o, long, alloc)), types{ack, invalid}, true},
			{o.String() + ", unknown export", fixed, slices.Concat(sr, meta(o, "nothing", alloc)), types{ack, unknown}, true},
			{o.String() + ", half a count", fixed, bad(o, "\x00\x00\x00\x04disk\x00\x00"), types{ack, invalid}, true},
			{o.String() + ", more queries than sent", fixed, bad(o, "\x00\x00\x00\x04disk\x00\x00\x00\x02\x00\x00\x00\x01x"), types{ack, invalid}, true},
			{o.String() + ", fewer queries than sent", fixed, bad(o, "\x00\x00\x00\x04disk\x00\x00\x00\x00\x00\x00\x00\x01x"), types{ack, invalid}, true},
			{o.String() + ", 4 G queries", fixed, bad(o, "\x00\x00\x00\x04disk\xff\xff\xff\xff"), types{ack, invalid}, true},
			{o.String() + ", query past the data", fixed, bad(o, "\x00\x00\x00\x04disk\x00\x00\x00\x01\x00\x00\x00\x02x"), types{ack, invalid}, true},
			{o.String() + ", query of 4 GiB", fixed, bad(o, "\x00\x00\x00\x04disk\x00\x00\x00\x01\xff\xff\xff\xffx"), types{ack, invalid}, true},
			{o.String() + ", query of 4097 bytes", fixed, slices.Concat(sr, meta(o, "disk", long)), types{ack, invalid}, true},
		}...)
	}
	return rows
}()

// An optionRow is what a client sends after the greeting, and the types of all replies. Then
// the server hangs up, unless open is set.
type optionRow struct {
	name  string
	flags wire.ClientFlags
	send  []byte
	want  []wire.ReplyType
	open  bool
}

// TestHostileNegotiation sends each row in one segment, and byte by byte.
func TestHostileNegotiation(t *testing.T) {
	f := serve(t, newMem(t, 1<<20))
	bystander := f.witness(entry{form: structured})
	for _, tt := range hostileOptions {
		for name, piece := range map[string]int{"at once": len(tt.send), "byte by byte": 1} {
			if piece == 1 && len(tt.send) > 5000 {
				continue
			}
			t.Run(tt.name+", "+name, func(t *testing.T) {
				nc := f.raw()
				greet(t, nc, tt.flags)
				var sending sync.WaitGroup
				sending.Go(func() {
					for b := range slices.Chunk(tt.send, max(piece, 1)) {
						if _, err := nc.Write(b); err != nil {
							return // the server has hung up
						}
					}
				})
				for _, want := range tt.want {
					_, r := recvOption(t, nc)
					require.Equal(t, want, r.typ)
				}
				sending.Wait()
				if tt.open { // the server still replies
					require.Len(t, option(t, nc, wire.OptInfo, wire.AppendInfoRequest(nil, "disk", wire.InfoName, wire.InfoDescription, 77)), 5)
					require.Equal(t, ack, last(t, nc, wire.OptAbort, nil))
				}
				closed(t, nc)
				bystander.check(t)
			})
		}
	}
}

// TestManyOptions: a client may send many options, and costs no memory.
func TestManyOptions(t *testing.T) {
	f := serve(t, newMem(t, 1<<20))
	nc := f.raw()
	greet(t, nc, fixed)
	const run = 50
	stream := bytes.Repeat(meta(wire.OptListMetaContext, "disk", strings.Repeat("q", wire.MaxString)), run)
	ask := func(runs int) {
		for range runs {
			var sending sync.WaitGroup
			sending.Go(func() {
				if _, err := nc.Write(stream); err != nil {
					t.Error(err)
				}
			})
			for range run {
				_, r := recvOption(t, nc)
				require.Equal(t, invalid, r.typ)
			}
			sending.Wait()
		}
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	ask(2)
	before := heap()
	ask(10_000 / run)
	require.LessOrEqual(t, heap(), before+1<<20)
	require.Equal(t, ack, last(t, nc, wire.OptAbort, nil))
}

// TestHandshakeTimeout: a client that does not choose an export, whatever it does instead, is
// cut off after the timeout.
func TestHandshakeTimeout(t *testing.T) {
	f := serveWith(t, Config{HandshakeTimeout: time.Second, TLS: serverTLS(0)}, newMem(t, 1<<20))
	starttls := slices.Concat(wire.AppendClientFlags(nil, fixed), opt(wire.OptStartTLS))
	var all sync.WaitGroup
	for name, say := range map[string]func(nc net.Conn){
		"nothing":                 func(net.Conn) {},
		"half the client's flags": func(nc net.Conn) { _, _ = nc.Write([]byte{0, 0}) },
		"half an option": func(nc net.Conn) {
			_, _ = nc.Write(append(wire.AppendClientFlags(nil, fixed), opt(wire.OptList)[:9]...))
		},
		"data that do not come": func(nc net.Conn) {
			_, _ = nc.Write(append(wire.AppendClientFlags(nil, fixed), length(wire.OptGo, 100)...))
		},
		"options without end": func(nc net.Conn) {
			_, _ = nc.Write(wire.AppendClientFlags(nil, fixed))
			var err error
			for err == nil {
				_, err = nc.Write(opt(wire.OptList))
				_, _ = nc.Read(make([]byte, 100))
			}
		},
		"options without end, whose replies it does not read": func(nc net.Conn) {
			_, _ = nc.Write(wire.AppendClientFlags(nil, fixed))
			var err error
			for err == nil {
				_, err = nc.Write(opt(wire.OptList))
			}
		},
		"one option, slowly": func(nc net.Conn) {
			_, _ = nc.Write(append(wire.AppendClientFlags(nil, fixed), length(wire.OptGo, maxOption)...))
			// It does not matter how much the socket takes before the server wakes.
			for range maxOption - 1 {
				_, _ = nc.Write([]byte{0})
			}
		},
		"STARTTLS alone":     func(nc net.Conn) { _, _ = nc.Write(starttls) },
		"half a ClientHello": func(nc net.Conn) { _, _ = nc.Write(append(starttls, 22, 3, 1, 2, 0, 1, 0, 1, 0xfc)) },
	} {
		nc := f.raw()
		all.Go(func() {
			say(nc)
			_, err := io.Copy(io.Discard, nc)
			if os.IsTimeout(err) {
				t.Errorf("%s: still open", name)
			}
		})
	}
	all.Wait()
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
				require.Equal(t, new(terms).offer(f.srv.served()[0]), e)
				require.Equal(t, make([]byte, len(b)-wire.ExportReplySize), b[wire.ExportReplySize:])
				_, err = nc.Write(wire.AppendRequest(nil, wire.Request{Command: wire.CmdFlush, Cookie: 9}))
				require.NoError(t, err)
				require.Equal(t, wire.SimpleReply{Cookie: 9}, recvReply(t, nc))
				require.NoError(t, nc.Close())
			})
		}
	}
}
