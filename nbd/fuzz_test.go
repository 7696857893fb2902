package nbd

import (
	"bytes"
	"encoding/binary"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/nbd/wire"
)

// fuzzMax is the largest request of the device in FuzzTransmission, in bytes.
const (
	fuzzSize = 1 << 20
	fuzzMax  = 200_000
)

// A fuzzProgram makes a stream of right and wrong requests of the fuzzer's bytes, and
// predicts the results.
type fuzzProgram struct {
	*rawConn
	readOnly bool

	stream   []byte
	model    []byte // the contents of the device at the end
	requests []wire.Request
	wants    []fuzzWant
}

// A fuzzWant is the result that a request must have: success, or one of errnos.
type fuzzWant struct {
	errnos []backend.Errno
	data   []byte // of a READ
	extent uint64 // length of a BLOCK_STATUS's
}

// add makes a request of 8 bytes: the command, the flags, how to make the offset and the
// length, and two numbers for them.
func (p *fuzzProgram) add(b []byte) {
	a, c := uint64(binary.BigEndian.Uint16(b[4:])), uint64(binary.BigEndian.Uint16(b[6:]))
	r := wire.Request{Cookie: uint64(len(p.requests))}
	r.Command = []wire.Command{wire.CmdRead, wire.CmdWrite, wire.CmdWrite, wire.CmdFlush, wire.CmdTrim, wire.CmdWriteZeroes,
		wire.CmdBlockStatus, wire.CmdCache, 77}[b[0]%9]
	if b[1] > 200 {
		r.Flags = wire.CommandFlags(b[1])
	} else {
		r.Flags = wire.CommandFlags(b[1] & 1)
	}
	if r.Command != wire.CmdFlush || b[2] > 240 {
		r.Off = []uint64{a * 16, a, fuzzSize - a, fuzzSize - c, math.MaxUint64 - a}[b[2]%5]
		r.Len = []uint64{c, c * 5, c & 1023, c & 4095, a * 16}[b[3]%5]
	}
	if p.form == extended && r.Command == wire.CmdWrite && b[1] < 240 {
		r.Flags |= wire.CmdFlagPayloadLen
	}
	n := r.Len // bytes that the request changes or reads
	var payload []byte
	switch hasPayload := p.form == extended && r.Flags&wire.CmdFlagPayloadLen != 0; {
	case hasPayload && r.Command == wire.CmdBlockStatus && b[3] > 100:
		payload = wire.AppendStatusPayload(nil, n, uint32(b[3]&1))
		r.Len = uint64(len(payload))
	case hasPayload, r.Command == wire.CmdWrite: // QEMU forgets the flag
		payload = backendtest.Pattern(int(n), binary.BigEndian.Uint32(b[4:])&0x7fffffff)
	case p.form == extended && b[3] > 200:
		n = math.MaxUint64 - n
		r.Len = n
	}
	p.stream = append(p.put(p.stream, r), payload...)
	p.requests = append(p.requests, r)
	p.wants = append(p.wants, p.want(r, n, payload))
}

// want returns the result that proto.md demands for r, which changes or reads n bytes. It
// does not call validate. Where several errors fit, it accepts each of them.
func (p *fuzzProgram) want(r wire.Request, n uint64, payload []byte) (w fuzzWant) {
	no := func(e backend.Errno, when bool) {
		if when {
			w.errnos = append(w.errnos, e)
		}
	}
	allowed := wire.CmdFlagFUA
	writes, carries := false, false // it changes data; data travel
	switch r.Command {
	case wire.CmdRead:
		carries = true
		if p.form != simple {
			allowed |= wire.CmdFlagDF
		}
	case wire.CmdWrite:
		writes, carries = true, true
		if p.form == extended {
			allowed |= wire.CmdFlagPayloadLen
		}
	case wire.CmdTrim:
		writes = true
	case wire.CmdWriteZeroes:
		writes = true
		allowed |= wire.CmdFlagNoHole | wire.CmdFlagFastZero
	case wire.CmdBlockStatus:
		allowed |= wire.CmdFlagReqOne
		no(backend.EINVAL, p.form == simple)
		if len(payload) == wire.StatusPayloadSize && r.Flags&wire.CmdFlagPayloadLen != 0 {
			if _, id, _ := wire.DecodeStatusPayload(payload); id == contextID {
				allowed |= wire.CmdFlagPayloadLen
				n, _, _ = wire.DecodeStatusPayload(payload)
			}
		}
	case wire.CmdFlush:
		no(backend.EINVAL, r.Off != 0 || r.Len != 0)
	case 77:
		no(backend.EINVAL, true)
	}
	no(backend.EPERM, writes && p.readOnly)
	no(backend.EINVAL, r.Flags&^allowed != 0)
	if carries && n > fuzzMax {
		no(backend.EINVAL, r.Command == wire.CmdWrite || p.form == simple)
		no(backend.EOVERFLOW, r.Command == wire.CmdRead && p.form != simple)
	}
	if r.Command != wire.CmdFlush {
		past := r.Off > fuzzSize || n > fuzzSize-r.Off
		no(backend.EINVAL, n == 0)
		no(backend.ENOSPC, past && (r.Command == wire.CmdWrite || r.Command == wire.CmdWriteZeroes))
		no(backend.EINVAL, past && r.Command != wire.CmdWrite && r.Command != wire.CmdWriteZeroes)
	}
	if len(w.errnos) > 0 {
		return w
	}
	switch r.Command {
	case wire.CmdRead:
		w.data = bytes.Clone(p.model[r.Off : r.Off+n])
	case wire.CmdBlockStatus:
		w.extent = n
	case wire.CmdWriteZeroes:
		clear(p.model[r.Off : r.Off+n])
	case wire.CmdWrite:
		copy(p.model[r.Off:], payload)
	}
	return w
}

// FuzzTransmission sends requests that it makes of the input, in pieces, and garbage after
// them. The form of requests varies, and the export may be read-only. Each request must get
// one reply, the right one, and the device must have the contents that a model has.
func FuzzTransmission(f *testing.F) {
	for how := range uint8(6) {
		f.Add(how, []byte("\x01\x00\x00\x00\x00\x10\x20\x00"+"\x00\x00\x00\x00\x00\x10\x20\x00"+"\x03\x00\x00\x00\x00\x00\x00\x00"), uint16(0), []byte(nil))
		f.Add(how, []byte("\x01\x01\x03\x01\x00\x10\xff\xff"+"\x02\xff\x04\x00\x00\x10\x20\x00"+"\x00\x00\x02\x00\x00\x10\x20\x00"), uint16(29), []byte("garbage"))
		f.Add(how, bytes.Repeat([]byte("\x01\x00\x00\x01\x11\x10\xfe\xff\x00\x00\x00\x01\x11\x10\xfe\xff"), 20), uint16(4096), []byte("\x25\x60\x95\x13"))
		f.Add(how, []byte("\x06\x00\x00\x00\x00\x10\x20\x00"+"\x06\xe1\x00\x97\x00\x10\x20\x00"+"\x06\xe1\x00\x98\x00\x10\x20\x00"+"\x05\xd3\x00\x00\x00\x10\x20\x00"+
			"\x00\xcd\x00\x00\x00\x10\x20\x00"+"\x04\x00\x00\xff\x00\x10\x20\x00"+"\x08\xff\x00\x00\x00\x10\x20\x00"), uint16(11), []byte(nil))
	}
	dev := shaped{Device: newMem(f, fuzzSize), max: fuzzMax, min: 1}
	srv, err := New(Config{}, Export{Name: "disk", Device: dev}, Export{Name: "read-only", Device: dev, ReadOnly: true})
	require.NoError(f, err)
	fx := &fixture{t: f, srv: srv, dev: dev}
	fx.addr = fx.listen("unix", filepath.Join(f.TempDir(), "s"))
	f.Cleanup(func() {
		fx.shutdown()
		require.NoError(f, dev.Close())
	})
	model := make([]byte, fuzzSize)
	var mu sync.Mutex
	f.Fuzz(func(t *testing.T, how uint8, prog []byte, piece uint16, garbage []byte) {
		mu.Lock()
		defer mu.Unlock()
		fx.t = t
		e := entry{export: "disk", form: replies(how % 3)}
		if how/3%2 == 1 {
			e.export = "read-only"
		}
		// The export has no other connection, so the half-close drops no write (see Gone).
		p := fuzzProgram{rawConn: fx.enter(e), readOnly: e.export != "disk", model: model}
		for len(prog) >= 8 && len(p.requests) < 300 && len(p.stream) < 16<<20 {
			p.add(prog)
			prog = prog[8:]
		}
		// Garbage: neither a request nor the beginning of one.
		garbage = append(bytes.Repeat([]byte{0xff}, min(1, len(garbage))), garbage...)

		var sending sync.WaitGroup
		sending.Go(func() {
			for b := range slices.Chunk(append(p.stream, garbage...), max(int(piece), len(p.stream)/200+1)) {
				if _, err := p.Write(b); err != nil {
					return // the server has hung up because of the garbage
				}
			}
			_ = p.socket.CloseWrite()
		})
		answered := make([]bool, len(p.requests))
		find := func(cookie uint64) wire.Request {
			require.Less(t, cookie, uint64(len(answered)))
			require.False(t, answered[cookie], "answered twice")
			answered[cookie] = true
			return p.requests[cookie]
		}
		for range p.requests {
			r, a := p.recv(t, find)
			want := p.wants[r.Cookie]
			if len(want.errnos) > 0 {
				require.Contains(t, want.errnos, a.errno, "%+v", r)
				continue
			}
			require.Zero(t, a.errno, "%+v", r)
			require.True(t, bytes.Equal(want.data, a.data), "wrong data of %+v", r)
			require.Equal(t, wire.Extent{Len: want.extent}, a.extent, "%+v", r)
		}
		closed(t, p)
		sending.Wait()
		require.NoError(t, p.Close())
		c := backendtest.NewClient(t, dev)
		r := c.Read(0, fuzzSize, 0)
		require.NoError(t, c.Do(r))
		require.True(t, bytes.Equal(model, r.Got), "the device differs from the model")
		backendtest.AllBack(t, dev)
	})
}
