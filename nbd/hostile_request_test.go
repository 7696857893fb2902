package nbd

import (
	"bytes"
	"crypto/tls"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/nbd/wire"
)

// The exports of TestHostileTransmission have hostileSize bytes in units of 512, and take
// requests of at most hostileMax bytes.
const (
	hostileSize = 1 << 20
	hostileMax  = 512 << 10
)

// unsaid marks a request that a form cannot express.
const unsaid = backend.Errno(math.MaxUint32)

// inAll makes the errors of a row that has the same in all forms, ext those of a row that
// only extended headers can express.
func inAll(e backend.Errno) [3]backend.Errno { return [3]backend.Errno{e, e, e} }
func ext(e backend.Errno) [3]backend.Errno   { return [3]backend.Errno{unsaid, unsaid, e} }

// A requestRow is a request and the error that the reply has in each form. A WRITE has its
// payload. The export is "disk" unless the row names another.
type requestRow struct {
	name    string
	req     wire.Request
	want    [3]backend.Errno
	export  string
	payload []byte // if its contents matter
}

// hostileRequests are requests that the server refuses, or that do no harm.
var hostileRequests = func() []requestRow {
	const read, write, flush, trim, cache = wire.CmdRead, wire.CmdWrite, wire.CmdFlush, wire.CmdTrim, wire.CmdCache
	const zero, status = wire.CmdWriteZeroes, wire.CmdBlockStatus
	const fua, noHole, df, reqOne = wire.CmdFlagFUA, wire.CmdFlagNoHole, wire.CmdFlagDF, wire.CmdFlagReqOne
	const fast, payload = wire.CmdFlagFastZero, wire.CmdFlagPayloadLen
	const inval, nospc, perm = backend.EINVAL, backend.ENOSPC, backend.EPERM
	const size, most, huge = hostileSize, hostileMax, math.MaxUint64 - 511
	q := func(c wire.Command, flags wire.CommandFlags, off, n uint64) wire.Request {
		return wire.Request{Command: c, Flags: flags, Off: off, Len: n}
	}
	// with makes a BLOCK_STATUS with a payload.
	with := func(off, n uint64, ids ...uint32) requestRow {
		b := wire.AppendStatusPayload(nil, n, ids...)
		return requestRow{req: q(status, payload, off, uint64(len(b))), payload: b, want: ext(inval)}
	}
	named := func(name string, r requestRow) requestRow { r.name = name; return r }
	rows := []requestRow{
		{name: "READ past the end", req: q(read, 0, size-512, 1024), want: inAll(inval)},
		{name: "READ at the end", req: q(read, 0, size, 512), want: inAll(inval)},
		{name: "READ, offset + length overflow", req: q(read, 0, huge, 1024), want: inAll(inval)},
		{name: "READ of nothing", req: q(read, 0, 0, 0), want: inAll(inval)},
		{name: "READ of nothing at the end", req: q(read, 0, size, 0), want: inAll(inval)},
		{name: "READ, too large", req: q(read, 0, 0, most+512), want: [3]backend.Errno{inval, backend.EOVERFLOW, backend.EOVERFLOW}},
		{name: "READ of 4 GiB", req: q(read, 0, 0, math.MaxUint32), want: [3]backend.Errno{inval, backend.EOVERFLOW, backend.EOVERFLOW}},
		{name: "READ, unaligned offset", req: q(read, 0, 1, 512), want: inAll(inval)},
		{name: "READ, unaligned length", req: q(read, 0, 0, 513), want: inAll(inval)},
		{name: "READ with DF", req: q(read, df, 4096, 4096), want: [3]backend.Errno{inval, 0, 0}},
		{name: "READ with NO_HOLE", req: q(read, noHole, 0, 512), want: inAll(inval)},
		{name: "READ with REQ_ONE", req: q(read, reqOne, 0, 512), want: inAll(inval)},
		{name: "READ with FAST_ZERO", req: q(read, fast, 0, 512), want: inAll(inval)},
		{name: "READ with FUA, which is allowed", req: q(read, fua, 4096, 4096), want: inAll(0)},
		{name: "WRITE past the end", req: q(write, 0, size-512, 1024), want: inAll(nospc)},
		{name: "WRITE far past the end", req: q(write, 0, 1<<62, 512), want: inAll(nospc)},
		{name: "WRITE, offset + length overflow", req: q(write, 0, huge, 1024), want: inAll(nospc)},
		{name: "WRITE of nothing", req: q(write, 0, 0, 0), want: inAll(inval)},
		{name: "WRITE, too large", req: q(write, 0, 0, 1<<20), want: inAll(inval)},
		{name: "WRITE of all that is borne", req: q(write, 0, 0, maxPayload), want: inAll(inval)},
		{name: "WRITE, unaligned offset", req: q(write, 0, 511, 512), want: inAll(inval)},
		{name: "WRITE, unaligned length", req: q(write, 0, 0, 511), want: inAll(inval)},
		{name: "WRITE with an unknown flag", req: q(write, 1<<15, 0, 512), want: inAll(inval)},
		{name: "WRITE with NO_HOLE", req: q(write, noHole, 0, 512), want: inAll(inval)},
		{name: "WRITE with DF", req: q(write, df, 0, 512), want: inAll(inval)},
		{name: "WRITE with FAST_ZERO", req: q(write, fast, 0, 512), want: inAll(inval)},
		{name: "FLUSH with an offset", req: q(flush, 0, 1, 0), want: inAll(inval)},
		{name: "FLUSH with a length", req: q(flush, 0, 0, 1), want: inAll(inval)},
		{name: "FLUSH with DF", req: q(flush, df, 0, 0), want: inAll(inval)},
		{name: "FLUSH with FUA, which is allowed", req: q(flush, fua, 0, 0), want: inAll(0)},
		{name: "TRIM past the end", req: q(trim, 0, size, 512), want: inAll(inval)},
		{name: "TRIM, offset + length overflow", req: q(trim, 0, huge, 1024), want: inAll(inval)},
		{name: "TRIM of nothing", req: q(trim, 0, 0, 0), want: inAll(inval)},
		{name: "TRIM, unaligned", req: q(trim, 0, 1, 512), want: inAll(inval)},
		{name: "TRIM with NO_HOLE", req: q(trim, noHole, 0, 512), want: inAll(inval)},
		{name: "TRIM, which changes nothing", req: q(trim, fua, 4096, 4096), want: inAll(0)},
		{name: "TRIM of it all", req: q(trim, 0, 0, size), want: inAll(0)},
		{name: "WRITE_ZEROES past the end", req: q(zero, 0, size-512, 1024), want: inAll(nospc)},
		{name: "WRITE_ZEROES, offset + length overflow", req: q(zero, 0, huge, 1024), want: inAll(nospc)},
		{name: "WRITE_ZEROES of nothing", req: q(zero, 0, 0, 0), want: inAll(inval)},
		{name: "WRITE_ZEROES, unaligned", req: q(zero, 0, 1, 512), want: inAll(inval)},
		{name: "WRITE_ZEROES with DF", req: q(zero, df, 0, 512), want: inAll(inval)},
		{name: "WRITE_ZEROES with REQ_ONE", req: q(zero, reqOne, 0, 512), want: inAll(inval)},
		{name: "WRITE_ZEROES with FAST_ZERO", req: q(zero, fast, 8192, 512), want: inAll(0)},
		{name: "WRITE_ZEROES of more than a WRITE may have", req: q(zero, noHole|fua, 8192, most+512), want: inAll(0)},
		{name: "CACHE past the end", req: q(cache, 0, size, 512), want: inAll(inval)},
		{name: "CACHE of nothing", req: q(cache, 0, 0, 0), want: inAll(inval)},
		{name: "CACHE with NO_HOLE", req: q(cache, noHole, 0, 512), want: inAll(inval)},
		{name: "CACHE, which has no effect", req: q(cache, 0, 0, size), want: inAll(0)},
		{name: "BLOCK_STATUS", req: q(status, reqOne, 0, size), want: [3]backend.Errno{inval, 0, 0}},
		{name: "BLOCK_STATUS past the end", req: q(status, 0, 512, size), want: inAll(inval)},
		{name: "BLOCK_STATUS, offset + length overflow", req: q(status, 0, huge, 1024), want: inAll(inval)},
		{name: "BLOCK_STATUS of nothing", req: q(status, 0, 0, 0), want: inAll(inval)},
		{name: "BLOCK_STATUS, unaligned", req: q(status, 0, 1, 512), want: inAll(inval)},
		{name: "BLOCK_STATUS with DF", req: q(status, df, 0, 512), want: inAll(inval)},
		{name: "the withdrawn RESIZE", req: q(8, 0, 0, 512), want: inAll(inval)},
		{name: "command 64", req: q(64, 0, 0, 512), want: inAll(inval)},
		{name: "all ones", req: q(0xffff, 0xffff&^payload, math.MaxUint64, math.MaxUint32), want: inAll(inval)},

		{name: "WRITE with PAYLOAD_LEN", req: q(write, payload, 8192, 512), want: [3]backend.Errno{inval, inval, 0}},
		{name: "PAYLOAD_LEN on a short READ", req: q(read, payload, 0, 512), want: [3]backend.Errno{inval, inval, unsaid}},
		{name: "PAYLOAD_LEN on a short FLUSH", req: q(flush, payload, 0, 0), want: inAll(inval)},
		{name: "READ with a payload", req: q(read, payload, 0, 512), want: ext(inval)},
		{name: "FLUSH with a payload", req: q(flush, payload, 0, 70_000), want: ext(inval)},
		{name: "TRIM with a payload", req: q(trim, payload, 0, size), want: ext(inval)},
		{name: "CACHE with a payload", req: q(cache, payload, 0, 512), want: ext(inval)},
		{name: "WRITE_ZEROES with a payload", req: q(zero, payload, 0, 512), want: ext(inval)},
		{name: "an unknown command with a payload", req: q(99, payload, 0, 33), want: ext(inval)},
		{name: "a payload of all that is borne", req: q(flush, payload, 0, maxPayload), want: ext(inval)},
		{name: "WRITE without PAYLOAD_LEN, as QEMU sends it", req: q(write, 0, 8192, 512), want: ext(0)},
		{name: "WRITE past the end without PAYLOAD_LEN", req: q(write, 0, size, 512), want: ext(nospc)},
		{name: "READ of 2^63", req: q(read, 0, 0, 1<<63), want: ext(backend.EOVERFLOW)},
		{name: "READ of 2^64-1", req: q(read, 0, 512, math.MaxUint64), want: ext(backend.EOVERFLOW)},
		{name: "TRIM of 2^63", req: q(trim, 0, 1<<63, 1<<63), want: ext(inval)},
		{name: "TRIM of 2^64-1", req: q(trim, 0, 512, math.MaxUint64), want: ext(inval)},
		{name: "CACHE of 2^40", req: q(cache, 0, 512, 1<<40), want: ext(inval)},
		{name: "WRITE_ZEROES of 2^32", req: q(zero, 0, 0, 1<<32), want: ext(nospc)},
		{name: "WRITE_ZEROES of 2^64-512", req: q(zero, fast, 512, huge), want: ext(nospc)},
		{name: "BLOCK_STATUS of 2^64-1", req: q(status, 0, 1, math.MaxUint64), want: ext(inval)},
		{name: "BLOCK_STATUS with a byte", req: q(status, payload, 0, 1), want: ext(inval)},
		named("BLOCK_STATUS of no context", with(0, 512)),
		named("BLOCK_STATUS of an unknown context", with(0, 512, contextID+1)),
		named("BLOCK_STATUS of context 0", with(0, 512, 0)),
		named("BLOCK_STATUS of a context twice", with(0, 512, contextID, contextID)),
		named("BLOCK_STATUS of our context, past the end", with(512, size, contextID)),
		named("BLOCK_STATUS of our context, of nothing", with(0, 0, contextID)),
		named("BLOCK_STATUS of our context, of 2^64-1", with(512, math.MaxUint64, contextID)),

		{name: "WRITE to a read-only export", req: q(write, 0, 0, 512), want: inAll(perm), export: "read-only"},
		{name: "WRITE past a read-only export", req: q(write, fua, size, 512), want: inAll(perm), export: "read-only"},
		{name: "TRIM of a read-only export", req: q(trim, 0, 0, 512), want: inAll(perm), export: "read-only"},
		{name: "WRITE_ZEROES to a read-only export", req: q(zero, 0, 0, 512), want: inAll(perm), export: "read-only"},
		{name: "WRITE_ZEROES with FAST_ZERO to a read-only export", req: q(zero, fast, 0, 512), want: inAll(perm), export: "read-only"},
		{name: "READ of a read-only export", req: q(read, 0, 4096, 4096), want: inAll(0), export: "read-only"},
		{name: "FLUSH of a read-only export", req: q(flush, 0, 0, 0), want: inAll(0), export: "read-only"},
		{name: "WRITE_ZEROES where it is not offered", req: q(zero, 0, 8192, 512), want: inAll(inval), export: "zeroless"},
		{name: "WRITE_ZEROES with FAST_ZERO where it is not offered", req: q(zero, fast, 8192, 512), want: inAll(inval), export: "zeroless"},
	}
	good := with(4096, 8192, contextID)
	good.name, good.want = "BLOCK_STATUS of our context", ext(0)
	return append(rows, good)
}()

// zeroless cannot zero.
type zeroless struct{ backend.Device }

func (d zeroless) Info() backend.Info {
	in := d.Device.Info()
	in.CanZero = false
	return in
}

// ways are all forms of requests and replies, in plaintext and by TLS.
func ways() []entry {
	return []entry{{form: simple}, {form: structured}, {form: extended}, {form: extended, tls: clientTLS()}}
}

// hostile serves the exports that hostileRequests name.
func hostile(t *testing.T) *fixture {
	dev := shaped{Device: newMem(t, hostileSize), max: hostileMax, min: 512}
	return serveExports(t, Config{TLS: serverTLS(tls.NoClientCert)}, Export{Name: "disk", Device: dev},
		Export{Name: "read-only", Device: dev, ReadOnly: true}, Export{Name: "zeroless", Device: zeroless{dev}})
}

// TestHostileTransmission: a refused request leaves the connection as it was.
func TestHostileTransmission(t *testing.T) {
	f := hostile(t)
	bystander := f.witness(entry{form: structured})
	for _, e := range ways() {
		conns := make(map[string]*rawConn)
		for _, name := range []string{"", "read-only", "zeroless"} {
			e.export = name
			conns[name] = f.enter(e)
		}
		for i, tt := range hostileRequests {
			if tt.want[e.form] == unsaid {
				continue
			}
			t.Run(e.String()+"/"+tt.name, func(t *testing.T) {
				c := conns[tt.export]
				r := tt.req
				r.Cookie = uint64(i)<<32 | 7
				if r.Command == wire.CmdWrite && tt.want[simple] != unsaid && e.form == extended {
					r.Flags |= wire.CmdFlagPayloadLen
				}
				stream := c.put(nil, r)
				switch {
				case tt.payload != nil:
					stream = append(stream, tt.payload...)
				case r.Command == wire.CmdWrite, e.form == extended && r.Flags&wire.CmdFlagPayloadLen != 0:
					stream = append(stream, bytes.Repeat([]byte{0xee}, int(r.Len))...)
				}
				flush := wire.Request{Command: wire.CmdFlush, Cookie: 5}
				_, err := c.Write(c.put(stream, flush))
				require.NoError(t, err)
				var answered []uint64
				for range 2 {
					q, a := c.recv(t, known(t, r, flush))
					answered = append(answered, q.Cookie)
					if q.Cookie != r.Cookie {
						require.Zero(t, a.errno, "the stream goes on where it should")
						continue
					}
					require.Equal(t, tt.want[e.form], a.errno)
					if q.Command == wire.CmdRead && a.errno == 0 {
						require.Equal(t, bystander.data, a.data)
					}
					if q.Command == wire.CmdBlockStatus && a.errno == 0 {
						n := q.Len
						if tt.payload != nil {
							n, _, err = wire.DecodeStatusPayload(tt.payload)
							require.NoError(t, err)
						}
						require.Equal(t, wire.Extent{Len: n}, a.extent, "all of it is data")
					}
				}
				require.ElementsMatch(t, []uint64{r.Cookie, 5}, answered)
				bystander.check(t)
			})
		}
	}
}
