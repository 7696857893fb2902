package nbd

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/nbd/wire"
)

// A streamRow is bytes that break the framing after good requests. If half is set, a
// half-close cuts them off.
type streamRow struct {
	name   string
	half   bool
	stream func(c *rawConn) []byte
}

var hostileStreams = func() []streamRow {
	const size = hostileMax
	always := func(b []byte) func(*rawConn) []byte { return func(*rawConn) []byte { return b } }
	// request makes one with a payload length of n, if the form can express that.
	request := func(cmd wire.Command, n uint64) func(*rawConn) []byte {
		return func(c *rawConn) []byte {
			if c.form == extended {
				return c.put(nil, wire.Request{Command: cmd, Flags: wire.CmdFlagPayloadLen, Len: n})
			}
			return c.put(nil, wire.Request{Command: wire.CmdWrite, Len: min(n, math.MaxUint32)})
		}
	}
	good := func(c *rawConn) []byte { return c.putWrite(nil, 1, 0, make([]byte, 512)) }
	header := func(c *rawConn) int { return len(c.put(nil, wire.Request{})) }
	return []streamRow{
		{"no magic", false, always(make([]byte, wire.ExtendedRequestSize))},
		{"the magic of the other header", false, func(c *rawConn) []byte {
			other := &rawConn{form: map[replies]replies{simple: extended, structured: extended, extended: simple}[c.form]}
			return append(other.put(nil, wire.Request{Command: wire.CmdFlush}), 0, 0, 0, 0)
		}},
		{"something else, shorter than a header", false, always([]byte("GET "))},
		{"the magic of the other header, and nothing behind", false, func(c *rawConn) []byte {
			other := &rawConn{form: map[replies]replies{simple: extended, structured: extended, extended: simple}[c.form]}
			return other.put(nil, wire.Request{})[:4]
		}},
		{"the magic of a simple reply", false, always(append(wire.AppendSimpleReply(nil, wire.SimpleReply{}), make([]byte, wire.SimpleReplySize)...))},
		{"the magic of a structured reply", false, func(*rawConn) []byte {
			b := make([]byte, wire.ExtendedRequestSize)
			wire.PutStructuredReply(b, wire.Chunk{})
			return b
		}},
		{"the magic of an extended reply", false, func(*rawConn) []byte {
			b := make([]byte, wire.ExtendedRequestSize)
			wire.PutExtendedReply(b, wire.Chunk{})
			return b
		}},
		{"an option", false, always(info(wire.OptGo, "disk", 1, 2, 3))},
		{"garbage", false, always(backendtest.Pattern(100_000, 5))},
		{"a byte too much behind a payload", false, func(c *rawConn) []byte { return append(good(c), good(c)[header(c)-1:]...) }},
		{"a payload beyond what is borne", false, request(wire.CmdWrite, maxPayload+1)},
		{"a payload of 4 GiB", false, request(wire.CmdWrite, math.MaxUint32)},
		{"a payload of 2^63", false, request(wire.CmdWrite, 1<<63)},
		{"a payload of 2^64-1", false, request(wire.CmdWrite, math.MaxUint64)},
		{"a WRITE of 2^64-1 without PAYLOAD_LEN", false, func(c *rawConn) []byte {
			return c.put(nil, wire.Request{Command: wire.CmdWrite, Len: math.MaxUint64})
		}},
		{"a READ's payload beyond what is borne", false, request(wire.CmdRead, maxPayload+1)},
		{"a BLOCK_STATUS's payload of 2^64-1", false, request(wire.CmdBlockStatus, math.MaxUint64)},
		{"an unknown command's payload of 2^63", false, request(99, 1<<63)},
		{"half-close between requests", true, always(nil)},
		{"half-close in a header", true, func(c *rawConn) []byte { return good(c)[:20] }},
		{"half-close between header and payload", true, func(c *rawConn) []byte { return good(c)[:header(c)] }},
		{"half-close in a payload", true, func(c *rawConn) []byte { return good(c)[:header(c)+100] }},
		{"half-close in a large payload", true, request(wire.CmdWrite, size)},
		{"half-close in a refused payload", true, request(wire.CmdWrite, maxPayload)},
		{"half-close in a payload that nobody asked for", true, request(wire.CmdFlush, maxPayload)},
		{"half-close in a payload of BLOCK_STATUS", true, func(c *rawConn) []byte {
			return append(request(wire.CmdBlockStatus, wire.StatusPayloadSize)(c), make([]byte, 8)...)
		}},
		{"DISC with an offset, a length and a payload", true, func(c *rawConn) []byte {
			b := c.put(nil, wire.Request{Command: wire.CmdDisc, Flags: math.MaxUint16, Off: math.MaxUint64, Len: math.MaxUint64})
			return append(b, good(c)...)
		}},
	}
}()

// TestHostileStreams: bytes that break the framing end the connection, whether the client
// waits for that or not, and none of them reach the device.
func TestHostileStreams(t *testing.T) {
	f := hostile(t)
	bystander := f.witness(entry{form: extended, tls: clientTLS()})
	for _, e := range ways() {
		for _, tt := range hostileStreams {
			for _, how := range []string{"waits", "hangs up"} {
				t.Run(e.String()+"/"+tt.name+", "+how, func(t *testing.T) {
					c := f.enter(e)
					first := wire.Request{Command: wire.CmdWrite, Cookie: 1, Off: 8192}
					good := c.putWrite(nil, 1, first.Off, bytes.Repeat([]byte{1}, 512))
					_, err := c.Write(good)
					require.NoError(t, err)
					_, a := c.recv(t, known(t, first))
					require.Zero(t, a.errno)
					if b := tt.stream(c); len(b) > 0 {
						_, _ = c.Write(b) // it may hang up in the middle
					}
					switch {
					case how == "hangs up":
						require.NoError(t, c.socket.Close())
					case tt.half:
						require.NoError(t, c.socket.CloseWrite())
						fallthrough
					default:
						drain(t, c)
					}
					bystander.check(t)
				})
			}
		}
	}
}

// script returns all bytes of a client from its flags to a DISC: options, a WRITE of data at
// off, a READ, a BLOCK_STATUS, and the WRITE again with FUA.
func script(e entry, off uint64, data []byte) []byte {
	c := &rawConn{form: e.form}
	b := c.putWrite(e.options(), 1, off, data)
	b = c.put(b, wire.Request{Command: wire.CmdRead, Cookie: 2, Len: 64})
	b = c.put(b, wire.Request{Command: wire.CmdBlockStatus, Cookie: 3, Len: 64})
	again := len(b)
	b = c.putWrite(b, 4, off, data)
	b[again+5] |= byte(wire.CmdFlagFUA)
	return c.put(b, wire.Request{Command: wire.CmdDisc})
}

// errCut is the error of writes to a connection that is cut.
var errCut = errors.New("cut")

// A cut connection writes so many bytes and then closes. If half is set it closes only its
// writing half.
type cut struct {
	*net.UnixConn
	left int
	half bool
}

func (c *cut) Write(p []byte) (int, error) {
	n, err := c.UnixConn.Write(p[:min(len(p), c.left)])
	if c.left -= n; n == len(p) || err != nil {
		return n, err
	}
	if c.half {
		return n, errors.Join(errCut, c.CloseWrite())
	}
	return n, errors.Join(errCut, c.Close())
}

// cutAt connects and sends the first n bytes of script, all at once. If that is the whole
// script it waits until the server hangs up, and reports true.
func (f *fixture) cutAt(n int, half bool, e entry, off uint64, data []byte) (whole bool, err error) {
	nc, err := net.Dial(f.addr.Network(), f.addr.String())
	if err != nil {
		return false, err
	}
	defer func() { _ = nc.Close() }()
	if err := nc.SetDeadline(time.Now().Add(patience)); err != nil {
		return false, err
	}
	c := &cut{UnixConn: nc.(*net.UnixConn), left: n, half: half}
	b := wire.AppendClientFlags(nil, fixed)
	if e.tls == nil {
		_, err = c.Write(append(b, script(e, off, data)...))
	} else {
		err = c.byTLS(append(b, opt(wire.OptStartTLS)...), e.tls, script(e, off, data))
	}
	if whole = err == nil; whole || half && errors.Is(err, errCut) {
		_, err = io.Copy(io.Discard, nc)
	} else if errors.Is(err, errCut) {
		err = nil
	}
	return whole, err
}

// byTLS sends first in plaintext and then by TLS, with a record for each 50 bytes.
func (c *cut) byTLS(first []byte, cfg *tls.Config, then []byte) error {
	if _, err := c.Write(first); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, make([]byte, wire.GreetingSize+wire.OptionReplySize)); err != nil {
		return err
	}
	s := tls.Client(c, cfg)
	for b := range slices.Chunk(then, 50) {
		if _, err := s.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// TestCutAnywhere: clients close, or half-close, after every byte that they send, in the
// handshake of TLS as well. A WRITE lands whole or not at all.
func TestCutAnywhere(t *testing.T) {
	const slot = 64
	for _, e := range ways() {
		t.Run(e.String(), func(t *testing.T) {
			f := serveWith(t, Config{TLS: serverTLS(tls.NoClientCert)}, newMem(t, 1<<20))
			bystander := f.witness(entry{})
			data := backendtest.Pattern(slot, 9)
			complete := make(map[uint64]bool)
			off := uint64(8192)
			for n, done := 0, false; !done; n++ {
				if e.tls != nil {
					n += 6 // handshakes take long
				}
				for _, half := range []bool{false, true} {
					whole, err := f.cutAt(n, half, e, off, data)
					require.NoError(t, err, "%d bytes", n)
					done = whole
					complete[off] = whole
					off += slot
				}
			}
			t.Logf("%d connections", len(complete))
			require.Greater(t, len(complete), 100)
			bystander.check(t)
			f.shutdown()
			c := backendtest.NewClient(t, f.dev)
			for off, whole := range complete {
				r := c.Read(off, slot, 0)
				require.NoError(t, c.Do(r))
				if whole || !bytes.Equal(r.Got, make([]byte, slot)) {
					require.Equal(t, data, r.Got)
				}
			}
		})
	}
}

// TestCrowd: a thousand clients connect, more at a time than the server lets in, and drop the
// connection at all points. Afterwards there is room again.
func TestCrowd(t *testing.T) {
	const most, at, each = 24, 32, 32
	f := serveWith(t, Config{MaxConnections: most, TLS: serverTLS(tls.NoClientCert)}, newMem(t, 1<<20))
	bystander := f.witness(entry{form: structured})
	var all sync.WaitGroup
	for w := range uint64(at) {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(w, 5))
			e := ways()[w%4]
			for range each {
				n := rnd.IntN(450)
				if e.tls != nil {
					n = rnd.IntN(1500)
				}
				_, _ = f.cutAt(n, rnd.IntN(2) == 0, e, 8192, make([]byte, 64)) // the server may turn it away
			}
		})
	}
	for range 20 {
		bystander.check(t)
	}
	all.Wait()
	bystander.check(t)
	for in := 1; in < most; { // the server may still be closing those that left
		nc := f.raw()
		if _, err := io.ReadFull(nc, make([]byte, wire.GreetingSize)); err != nil {
			continue
		}
		_, err := nc.Write(wire.AppendClientFlags(nil, fixed))
		require.NoError(t, err)
		require.Equal(t, ack, last(t, nc, wire.OptGo, wire.AppendInfoRequest(nil, "disk")))
		in++
	}
	closed(t, f.raw())
	bystander.check(t)
}
