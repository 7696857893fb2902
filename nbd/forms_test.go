package nbd

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/backend/mem"
	"pmnbd/nbd/client"
	"pmnbd/nbd/wire"
)

// with connects a client that asks for cfg.
func (f *fixture) with(cfg client.Config) *client.Client {
	f.t.Helper()
	cfg.Export, cfg.Depth = "disk", 16
	c, err := client.New(f.raw(), cfg)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { require.NoError(f.t, c.Close()) })
	return c
}

// TestForms: the same requests have the same results in every form of replies.
func TestForms(t *testing.T) {
	const size = 4 << 20
	f := serve(t, newMem(t, size))
	for form, name := range []string{"simple", "structured", "extended"} {
		t.Run(name, func(t *testing.T) {
			c := f.with(client.Config{Replies: client.Replies(form), Allocation: form > 0})
			require.Equal(t, form > 0, c.Export().Flags&wire.FlagSendDF != 0)
			require.Equal(t, form == 2, c.Export().Flags&wire.FlagBlockStatusPayload != 0)
			for i, n := range []int{1, 512, 65_537, 1<<20 + 3} {
				data := backendtest.Pattern(n, uint32(form*10+i))
				write(t, c, uint64(i*4096), data)
				require.True(t, bytes.Equal(data, read(t, c, uint64(i*4096), n)), "%d bytes", n)
			}
			too := c.BlockSizes().MaxPayload + 1
			for _, tt := range []struct {
				name string
				req  wire.Request
				want [3]backend.Errno // by form
			}{
				{"FLUSH", wire.Request{Command: wire.CmdFlush}, [3]backend.Errno{}},
				{"TRIM", wire.Request{Command: wire.CmdTrim, Flags: wire.CmdFlagFUA, Len: size}, [3]backend.Errno{}},
				{"CACHE", wire.Request{Command: wire.CmdCache, Len: size}, [3]backend.Errno{}},
				{"WRITE_ZEROES", wire.Request{Command: wire.CmdWriteZeroes, Flags: wire.CmdFlagFUA | wire.CmdFlagFastZero | wire.CmdFlagNoHole, Len: size}, [3]backend.Errno{}},
				{"WRITE_ZEROES past the end", wire.Request{Command: wire.CmdWriteZeroes, Off: 1, Len: size}, [3]backend.Errno{28, 28, 28}},
				{"READ past the end", wire.Request{Command: wire.CmdRead, Off: size, Len: 1}, [3]backend.Errno{22, 22, 22}},
				{"READ too large", wire.Request{Command: wire.CmdRead, Len: uint64(too)}, [3]backend.Errno{22, 75, 75}},
				{"READ with REQ_ONE", wire.Request{Command: wire.CmdRead, Flags: wire.CmdFlagReqOne, Len: 1}, [3]backend.Errno{22, 22, 22}},
				{"BLOCK_STATUS", wire.Request{Command: wire.CmdBlockStatus, Len: 512}, [3]backend.Errno{22, 0, 0}},
				{"BLOCK_STATUS of one extent", wire.Request{Command: wire.CmdBlockStatus, Flags: wire.CmdFlagReqOne, Off: 7, Len: size - 7}, [3]backend.Errno{22, 0, 0}},
				{"BLOCK_STATUS of nothing", wire.Request{Command: wire.CmdBlockStatus}, [3]backend.Errno{22, 22, 22}},
				{"BLOCK_STATUS past the end", wire.Request{Command: wire.CmdBlockStatus, Off: 1, Len: size}, [3]backend.Errno{22, 22, 22}},
				{"BLOCK_STATUS with DF", wire.Request{Command: wire.CmdBlockStatus, Flags: wire.CmdFlagDF, Len: 1}, [3]backend.Errno{22, 22, 22}},
				{"an unknown command", wire.Request{Command: 99, Off: math.MaxUint64, Len: math.MaxUint32}, [3]backend.Errno{22, 22, 22}},
			} {
				t.Run(tt.name, func(t *testing.T) {
					tt.req.Cookie = 3
					c.Request(tt.req)
					do(t, c, tt.want[form])
					if tt.want[form] != 0 && form > 0 {
						require.NotEmpty(t, c.Text())
					} else if tt.req.Command == wire.CmdBlockStatus && form > 0 {
						require.Equal(t, wire.Extent{Len: tt.req.Len}, c.Extent(3))
					}
				})
			}
			if form > 0 {
				p := make([]byte, 4096)
				c.Read(1, 0, p)
				do(t, c, 0)
				require.Equal(t, make([]byte, 4096), p)
			}
			require.NoError(t, c.Disc())
		})
	}
}

// A broken device fails everything with a long error.
type broken struct{ *mem.Device }

func (broken) Submit(ops []*backend.Op) {
	for _, op := range ops {
		op.Err = fmt.Errorf("a%s: %w", strings.Repeat("é", 35000), backend.ErrFailed)
		op.Sink.Complete(op)
	}
}

// TestErrors: the reply to a READ that fails has no data, and the text of an error is
// bounded, and a string of proto.md. recv checks all that.
func TestErrors(t *testing.T) {
	f := serve(t, broken{newMem(t, 1<<20)})
	for _, e := range ways()[:3] {
		c := f.enter(e)
		for _, cmd := range []wire.Command{wire.CmdRead, wire.CmdWriteZeroes, wire.CmdFlush} {
			r := wire.Request{Command: cmd, Cookie: 7, Off: 4096, Len: 512}
			if cmd == wire.CmdFlush {
				r.Off, r.Len = 0, 0
			}
			_, err := c.Write(c.put(nil, r))
			require.NoError(t, err)
			_, a := c.recv(t, known(t, r))
			require.Equal(t, answer{errno: backend.EIO}, a, "%v, %v", e, cmd)
		}
	}
}

// TestUnfragmentedPart: a READ that must come in one chunk (DF) is refused where it would come in parts.
func TestUnfragmentedPart(t *testing.T) {
	f := parts(t, newMem(t, 1<<20))
	for _, e := range []entry{{form: structured}, {form: extended}} {
		t.Run(e.String(), func(t *testing.T) {
			c := f.enter(e)
			for n, errno := range map[uint64]backend.Errno{64 << 10: 0, backend.ChunkSize: 0, backend.ChunkSize + 1: backend.EOVERFLOW, 1 << 20: backend.EOVERFLOW} {
				r := wire.Request{Command: wire.CmdRead, Flags: wire.CmdFlagDF, Cookie: n, Len: n}
				_, err := c.Write(c.put(nil, r))
				require.NoError(t, err)
				_, a := c.recv(t, known(t, r))
				require.Equal(t, errno, a.errno, "%d bytes", n)
			}
			require.NoError(t, c.socket.Close())
		})
	}
}

// A zero that needs more entries than the index has goes in parts. It gets one reply, and
// with FUA it is durable then.
func TestZeroInParts(t *testing.T) {
	const size = 8 << 20
	dev := newMem(t, size)
	arenas := *dev.Arenas()
	arenas.Entries = backend.NewEntries(backend.NewBudget(8), backend.ChunkSize) // parts of 512 KiB
	index := &indexed{shaped: shaped{Device: dev, arenas: &arenas, max: 256 << 10, min: 1}, entries: arenas.Entries}
	f := serve(t, index)
	for form := range 3 {
		t.Run(fmt.Sprint("form ", form), func(t *testing.T) {
			c := f.with(client.Config{Replies: client.Replies(form)})
			for off := uint64(0); off < size; off += 256 << 10 {
				write(t, c, off, backendtest.Pattern(256<<10, 1))
			}
			index.start(0)
			raw := f.enter(entry{form: replies(form)})
			zero := wire.Request{Command: wire.CmdWriteZeroes, Flags: wire.CmdFlagFUA, Cookie: 1, Off: 1000, Len: 3<<20 + 1}
			_, err := raw.Write(raw.put(nil, zero))
			require.NoError(t, err)
			_, a := raw.recv(t, known(t, zero))
			require.Zero(t, a)
			require.Equal(t, []string{"1000+524288", "525288+524288", "1049576+524288", "1573864+524288", "2098152+524288", "2622440+524288", "3146728+1 FUA"}, index.seen())
			got := read(t, c, 999, 256<<10)
			require.NotZero(t, got[0])
			require.Equal(t, make([]byte, 256<<10-1), got[1:])
			require.Equal(t, backendtest.Pattern(256<<10, 1)[1001:2001], read(t, c, 3<<20+1001, 1000))
			require.Equal(t, 8, arenas.Entries.Free())

			index.start(3)
			c.Request(wire.Request{Command: wire.CmdWriteZeroes, Cookie: 1, Len: size})
			do(t, c, backend.EIO)
			require.Equal(t, 8, arenas.Entries.Free())
		})
	}
}

// indexed gives index entries back at once, and records zeroes.
type indexed struct {
	shaped
	entries *backend.Entries

	mu     sync.Mutex
	zeroes []string
	fail   int // counts down with each zero; the one that makes it 0 fails
}

// start forgets the zeroes so far.
func (d *indexed) start(fail int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.zeroes, d.fail = nil, fail
}

func (d *indexed) seen() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.zeroes
}

// note records a zero, and reports whether it must fail.
func (d *indexed) note(op *backend.Op) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := fmt.Sprintf("%d+%d", op.Off, op.Len)
	if op.FUA {
		s += " FUA"
	}
	d.zeroes = append(d.zeroes, s)
	d.fail--
	return d.fail == 0
}

func (d *indexed) Submit(ops []*backend.Op) {
	for _, op := range ops {
		d.entries.GiveRest(op, 0)
		if op.Cmd == backend.WriteZeroes && d.note(op) {
			op.Err = backend.ErrFailed
			op.Sink.Complete(op)
			continue
		}
		d.shaped.Submit([]*backend.Op{op})
	}
}

// TestReadOnly: the server refuses requests that would change a read-only export, and does
// not offer them.
func TestReadOnly(t *testing.T) {
	dev := newMem(t, 1<<20)
	f := serveExports(t, Config{}, Export{Name: "disk", Device: dev, ReadOnly: true}, Export{Name: "rw", Device: dev})
	rw, err := client.New(f.raw(), client.Config{Export: "rw"})
	require.NoError(t, err)
	data := backendtest.Pattern(512, 1)
	rw.Write(0, 0, data, 0)
	do(t, rw, 0)
	require.NoError(t, rw.Close())
	for form := range 3 {
		c := f.with(client.Config{Replies: client.Replies(form)})
		flags := c.Export().Flags
		require.NotZero(t, flags&wire.FlagReadOnly)
		require.Zero(t, flags&(wire.FlagSendTrim|wire.FlagSendWriteZeroes|wire.FlagSendFastZero))
		c.Write(1, 0, make([]byte, 512), wire.CmdFlagFUA)
		do(t, c, backend.EPERM)
		for _, cmd := range []wire.Command{wire.CmdTrim, wire.CmdWriteZeroes} {
			c.Request(wire.Request{Command: cmd, Cookie: 1, Len: 512})
			do(t, c, backend.EPERM)
		}
		c.Flush(1)
		do(t, c, 0)
		require.Equal(t, data, read(t, c, 0, 512))
	}
}

// TestMetaContext tests what LIST_META_CONTEXT and SET_META_CONTEXT select.
func TestMetaContext(t *testing.T) {
	dev := newMem(t, 1<<20)
	f := serveExports(t, Config{}, Export{Name: "disk", Device: dev}, Export{Name: "other", Device: dev})
	alloc := wire.ContextAllocation
	const list, set = wire.OptListMetaContext, wire.OptSetMetaContext
	for _, tt := range []struct {
		name    string
		o       wire.Option
		queries []string
		want    bool
	}{
		{"list all", list, nil, true},
		{"list a namespace", list, []string{"base:"}, true},
		{"list it by name", list, []string{"x:y", alloc}, true},
		{"list another namespace", list, []string{"qemu:"}, false},
		{"list an unknown leaf", list, []string{"base:other"}, false},
		{"list nonsense", list, []string{"", ":", "base", alloc + "x"}, false},
		{"set none", set, nil, false},
		{"set it", set, []string{alloc}, true},
		{"set it twice", set, []string{alloc, alloc}, true},
		{"set it among others", set, []string{"qemu:dirty-bitmap:x", "base:x", alloc}, true},
		{"set a wildcard", set, []string{"base:"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nc := f.raw()
			greet(t, nc, wire.ClientFixedNewstyle)
			require.Equal(t, wire.RepErrInvalid, option(t, nc, tt.o, wire.AppendMetaRequest(nil, "disk", tt.queries...))[0].typ, "before structured replies")
			require.Equal(t, wire.RepAck, option(t, nc, wire.OptStructuredReply, nil)[0].typ)
			require.Equal(t, wire.RepErrUnknown, option(t, nc, tt.o, wire.AppendMetaRequest(nil, "none", tt.queries...))[0].typ)
			require.Equal(t, wire.RepErrInvalid, option(t, nc, tt.o, wire.AppendMetaRequest(nil, "disk", tt.queries...)[1:])[0].typ)
			replies := option(t, nc, tt.o, wire.AppendMetaRequest(nil, "disk", tt.queries...))
			require.Equal(t, wire.RepAck, replies[len(replies)-1].typ)
			require.Equal(t, tt.want, len(replies) == 2)
			if tt.want {
				require.Equal(t, wire.RepMetaContext, replies[0].typ)
				id, name, err := wire.DecodeMetaContext(replies[0].data)
				require.NoError(t, err)
				require.Equal(t, alloc, name)
				require.Equal(t, tt.o == set, id != 0)
			}
			require.Equal(t, tt.want && tt.o == set, f.hasStatus(t, nc, "disk"))
		})
	}
	for _, tt := range []struct {
		name string
		then func(nc net.Conn)
		go_  string
		want bool
	}{
		{"kept over INFO", func(nc net.Conn) { option(t, nc, wire.OptInfo, wire.AppendInfoRequest(nil, "other")) }, "disk", true},
		{"of the default export", func(net.Conn) {}, "", true},
		{"of another export", func(net.Conn) {}, "other", false},
		{"set again to none", func(nc net.Conn) { option(t, nc, set, wire.AppendMetaRequest(nil, "disk")) }, "disk", false},
		{"set again for another export", func(nc net.Conn) { option(t, nc, set, wire.AppendMetaRequest(nil, "other", alloc)) }, "disk", false},
		{"set again, which fails", func(nc net.Conn) { option(t, nc, set, []byte("\xff")) }, "disk", false},
		{"set again, for an unknown export", func(nc net.Conn) { option(t, nc, set, wire.AppendMetaRequest(nil, "none", alloc)) }, "disk", false},
		{"listed since", func(nc net.Conn) { option(t, nc, list, wire.AppendMetaRequest(nil, "disk")) }, "disk", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nc := f.raw()
			greet(t, nc, wire.ClientFixedNewstyle)
			require.Equal(t, wire.RepAck, option(t, nc, wire.OptStructuredReply, nil)[0].typ)
			require.Len(t, option(t, nc, set, wire.AppendMetaRequest(nil, "disk", alloc)), 2)
			tt.then(nc)
			require.Equal(t, tt.want, f.hasStatus(t, nc, tt.go_))
		})
	}
}

// hasStatus enters transmission and reports whether BLOCK_STATUS is served.
func (f *fixture) hasStatus(t *testing.T, nc net.Conn, export string) bool {
	replies := option(t, nc, wire.OptGo, wire.AppendInfoRequest(nil, export))
	require.Equal(t, wire.RepAck, replies[len(replies)-1].typ)
	_, err := nc.Write(wire.AppendRequest(nil, wire.Request{Command: wire.CmdBlockStatus, Cookie: 9, Len: 512}))
	require.NoError(t, err)
	b := make([]byte, wire.StructuredReplySize)
	readFull(t, nc, b)
	h, err := wire.DecodeStructuredReply(b)
	require.NoError(t, err)
	payload := make([]byte, h.Len)
	readFull(t, nc, payload)
	if h.Type == wire.ChunkError {
		require.EqualValues(t, backend.EINVAL, binary.BigEndian.Uint32(payload))
		return false
	}
	require.Equal(t, wire.ChunkBlockStatus, h.Type)
	return true
}

// TestAgreements tests which options lead to which form of replies.
func TestAgreements(t *testing.T) {
	f := serve(t, newMem(t, 1<<20))
	const sr, eh = wire.OptStructuredReply, wire.OptExtendedHeaders
	const ack, invalid, ext = wire.RepAck, wire.RepErrInvalid, wire.RepErrExtHdrReqd
	for _, tt := range []struct {
		name    string
		options []wire.Option
		want    []wire.ReplyType
		form    replies
	}{
		{"none", nil, nil, simple},
		{"structured replies", []wire.Option{sr}, []wire.ReplyType{ack}, structured},
		{"structured replies twice", []wire.Option{sr, sr}, []wire.ReplyType{ack, invalid}, structured},
		{"extended headers", []wire.Option{eh}, []wire.ReplyType{ack}, extended},
		{"extended headers twice", []wire.Option{eh, eh}, []wire.ReplyType{ack, invalid}, extended},
		{"both", []wire.Option{sr, eh}, []wire.ReplyType{ack, ack}, extended},
		{"both, the wrong way round", []wire.Option{eh, sr}, []wire.ReplyType{ack, ext}, extended},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nc := f.raw()
			greet(t, nc, wire.ClientFixedNewstyle)
			for i, o := range tt.options {
				require.Equal(t, invalid, option(t, nc, o, []byte("x"))[0].typ, "with data")
				require.Equal(t, tt.want[i], option(t, nc, o, nil)[0].typ)
			}
			answers := option(t, nc, wire.OptGo, wire.AppendInfoRequest(nil, "disk"))
			require.Equal(t, ack, answers[len(answers)-1].typ)
			r := wire.Request{Command: wire.CmdRead, Cookie: 4, Off: 8, Len: 0}
			b, size := wire.AppendRequest(nil, r), wire.SimpleReplySize
			if tt.form == extended {
				b = make([]byte, wire.ExtendedRequestSize)
				wire.PutExtendedRequest(b, r)
			}
			_, err := nc.Write(b)
			require.NoError(t, err)
			b = make([]byte, size)
			readFull(t, nc, b)
			magic := map[replies]uint32{simple: wire.MagicSimpleReply, structured: wire.MagicStructuredReply, extended: wire.MagicExtendedReply}
			require.Equal(t, magic[tt.form], binary.BigEndian.Uint32(b))
		})
	}
	t.Run("extended headers the old way", func(t *testing.T) {
		nc := f.raw()
		greet(t, nc, wire.ClientFixedNewstyle)
		require.Equal(t, ack, option(t, nc, eh, nil)[0].typ)
		_, err := nc.Write(wire.AppendOption(nil, wire.OptExportName, []byte("disk")))
		require.NoError(t, err)
		closed(t, nc)
	})
}
