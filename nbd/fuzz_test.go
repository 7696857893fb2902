package nbd

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/nbd/wire"
)

// FuzzNegotiation: whatever a client sends ends in an export or in an error.
func FuzzNegotiation(f *testing.F) {
	flags := wire.AppendClientFlags(nil, wire.ClientFixedNewstyle)
	f.Add(flags)
	f.Add(wire.AppendOption(flags, wire.OptGo, wire.AppendInfoRequest(nil, "disk", wire.InfoBlockSize)))
	f.Add(wire.AppendOption(flags, wire.OptExportName, []byte("disk")))
	f.Add(wire.AppendOption(wire.AppendOption(flags, wire.OptList, nil), wire.OptAbort, nil))
	f.Add(wire.AppendOption(flags, wire.OptStructuredReply, nil))
	dev := newMem(f, 1<<20)
	srv, err := New(Config{}, Export{Name: "disk", Device: dev})
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, dev.Close()) })
	f.Fuzz(func(t *testing.T, in []byte) {
		var out bytes.Buffer
		n := negotiation{srv: srv, log: srv.cfg.Logger, rw: struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(in), &out}}
		agreed, err := n.run()
		require.True(t, (agreed.export != nil) != (err != nil))
		// What is said is bounded by what was asked.
		require.LessOrEqual(t, out.Len(), 1000*(1+len(in)/wire.OptionHeaderSize))
	})
}

const fuzzSize = 1 << 20

// A fuzzProgram makes a stream of requests, right and wrong ones, of bytes, and
// says what must become of them.
type fuzzProgram struct {
	stream []byte
	model  []byte // of the device, after all
	errnos []backend.Errno
	reads  map[uint64][]byte // results by cookie
}

// add takes 8 bytes: command, flags, how the offset and the length are made, and
// two numbers for them.
func (p *fuzzProgram) add(b []byte) {
	a, c := uint64(binary.BigEndian.Uint16(b[4:])), uint64(binary.BigEndian.Uint16(b[6:]))
	r := wire.Request{Cookie: uint64(len(p.errnos))}
	r.Command = []wire.Command{wire.CmdRead, wire.CmdWrite, wire.CmdWrite, wire.CmdFlush, wire.CmdTrim, wire.CmdWriteZeroes, 77, wire.CmdRead}[b[0]%8]
	if b[1] > 200 {
		r.Flags = wire.CommandFlags(b[1])
	} else {
		r.Flags = wire.CommandFlags(b[1] & 1)
	}
	if r.Command != wire.CmdFlush || b[2] > 240 {
		r.Off = []uint64{a * 16, a, fuzzSize - a, fuzzSize - c, math.MaxUint64 - a}[b[2]%5]
		r.Len = []uint64{c, c * 5, c & 1023, c & 4095, a * 16}[b[3]%5]
	}
	p.stream = wire.AppendRequest(p.stream, r)
	data := []byte(nil)
	if r.Command == wire.CmdWrite {
		data = backendtest.Pattern(int(r.Len), binary.BigEndian.Uint32(b[4:])&0x7fffffff)
		p.stream = append(p.stream, data...)
	}
	// What NBD says, said again: not by calling validate.
	end, over := r.Off+r.Len, r.Off > fuzzSize || r.Len > fuzzSize-r.Off
	errno := backend.Errno(0)
	switch {
	case r.Flags > 1 && (r.Flags > 3 || r.Command != wire.CmdWriteZeroes), r.Command == 77:
		errno = backend.EINVAL
	case r.Command == wire.CmdFlush:
		if r.Off != 0 || r.Len != 0 {
			errno = backend.EINVAL
		}
	case r.Len == 0, over && (r.Command == wire.CmdRead || r.Command == wire.CmdTrim):
		errno = backend.EINVAL
	case over:
		errno = backend.ENOSPC
	case r.Command == wire.CmdRead:
		p.reads[r.Cookie] = bytes.Clone(p.model[r.Off:end])
	case r.Command == wire.CmdWriteZeroes:
		clear(p.model[r.Off:end])
	case r.Command == wire.CmdTrim:
	default:
		copy(p.model[r.Off:], data)
	}
	p.errnos = append(p.errnos, errno)
}

// FuzzTransmission sends requests made of the input, in pieces, and garbage behind
// them. Each must be answered once, rightly, and the device must hold what a model
// says.
func FuzzTransmission(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x00\x10\x20\x00"+"\x00\x00\x00\x00\x00\x10\x20\x00"+"\x03\x00\x00\x00\x00\x00\x00\x00"), uint16(0), []byte(nil))
	f.Add([]byte("\x01\x01\x03\x01\x00\x10\xff\xff"+"\x02\xff\x04\x00\x00\x10\x20\x00"+"\x00\x00\x02\x00\x00\x10\x20\x00"), uint16(29), []byte("garbage"))
	f.Add(bytes.Repeat([]byte("\x01\x00\x00\x01\x11\x10\xfe\xff\x00\x00\x00\x01\x11\x10\xfe\xff"), 20), uint16(4096), []byte("\x25\x60\x95\x13"))
	dev := newMem(f, fuzzSize)
	srv, err := New(Config{}, Export{Name: "disk", Device: dev})
	require.NoError(f, err)
	fx := &fixture{t: f, srv: srv, dev: dev}
	fx.addr = fx.listen("unix", filepath.Join(f.TempDir(), "s"))
	f.Cleanup(func() {
		fx.shutdown()
		require.NoError(f, dev.Close())
	})
	model := make([]byte, fuzzSize)
	var mu sync.Mutex
	f.Fuzz(func(t *testing.T, prog []byte, piece uint16, garbage []byte) {
		mu.Lock()
		defer mu.Unlock()
		p := fuzzProgram{model: model, reads: make(map[uint64][]byte)}
		for len(prog) >= 8 && len(p.errnos) < 300 && len(p.stream) < 16<<20 {
			p.add(prog)
			prog = prog[8:]
		}
		// What is neither a request nor the beginning of one.
		garbage = append(bytes.Repeat([]byte{0xff}, min(1, len(garbage))), garbage...)

		fx.t = t
		nc := fx.enterRaw()
		var sending sync.WaitGroup
		sending.Go(func() {
			step := max(int(piece), len(p.stream)/200+1)
			for s := append(p.stream, garbage...); len(s) > 0; {
				n, err := nc.Write(s[:min(step, len(s))])
				if err != nil {
					return // the server hung up on garbage
				}
				s = s[n:]
			}
			_ = nc.(*net.UnixConn).CloseWrite()
		})
		answered := make([]bool, len(p.errnos))
		for range p.errnos {
			rep := recvReply(t, nc)
			require.Less(t, rep.Cookie, uint64(len(answered)))
			require.False(t, answered[rep.Cookie], "answered twice")
			answered[rep.Cookie] = true
			require.Equal(t, p.errnos[rep.Cookie], backend.Errno(rep.Errno), "request %d", rep.Cookie)
			if want, ok := p.reads[rep.Cookie]; ok {
				got := make([]byte, len(want))
				readFull(t, nc, got)
				require.True(t, bytes.Equal(want, got), "wrong data of request %d", rep.Cookie)
			}
		}
		closed(t, nc)
		sending.Wait()
		require.NoError(t, nc.Close())
		c := backendtest.NewClient(t, dev)
		r := c.Read(0, fuzzSize, 0)
		require.NoError(t, c.Do(r))
		require.True(t, bytes.Equal(model, r.Got), "the device differs from the model")
		backendtest.AllBack(t, dev)
	})
}
