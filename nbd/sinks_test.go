package nbd

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/backend/mem"
	"pmnbd/nbd/client"
	"pmnbd/nbd/wire"
)

// silentReaders connects n clients. Each sends 200 READs of 1 MiB and fetches no data.
// silentReaders waits until their sockets are full and they hold so many common chunks that
// none are left for another such READ.
func (f *fixture) silentReaders(n int) {
	f.t.Helper()
	const reads, size = 200, 1 << 20
	var stream []byte
	for i := range uint64(reads) {
		stream = wire.AppendRequest(stream, wire.Request{Command: wire.CmdRead, Cookie: i, Len: size})
	}
	for range n {
		_, err := f.enterRaw().Write(stream)
		require.NoError(f.t, err)
	}
	require.Eventually(f.t, func() bool { return f.stuck() == n }, patience, time.Millisecond)
	require.True(f.t, f.exhausted(size))
}

// stuck returns how many clients the server does not serve further until they fetch data.
func (f *fixture) stuck() int {
	return f.count(func(c *conn) bool { return c.waiting && c.spilling })
}

// count returns for how many connections in transmission is reports true.
func (f *fixture) count(is func(c *conn) bool) (n int) {
	x := f.srv.served()[0]
	x.mu.Lock()
	defer x.mu.Unlock()
	for c := range x.live {
		c.mu.Lock()
		if is(c) {
			n++
		}
		c.mu.Unlock()
	}
	return n
}

// exhausted reports whether the common chunks are too few for a READ of size bytes.
func (f *fixture) exhausted(size int) bool {
	return f.srv.served()[0].common.Free() < chunksFor(size)-ownSinks
}

// connections returns how many clients are in transmission.
func (f *fixture) connections() int { return f.count(func(*conn) bool { return true }) }

// A load is an honest client, with depth requests of size bytes at a time.
type load struct{ requests, depth, size int }

var loads = []load{{400, 1, 4 << 10}, {400, 16, 4 << 10}, {400, 100, 4 << 10}, {400, 1, 128 << 10}, {40, 1, 1 << 20}, {40, 4, 1 << 20}}

func (l load) String() string {
	return fmt.Sprintf("%d of %d KiB, %d at a time", l.requests, l.size>>10, l.depth)
}

// run writes and reads back in turn, and returns how long that took.
func (l load) run(t testing.TB, c *client.Client) time.Duration {
	t.Helper()
	data, back := backendtest.Pattern(l.size, 5), make([][]byte, l.depth)
	for i := range back {
		back[i] = make([]byte, l.size)
	}
	began := time.Now()
	for range l.requests / l.depth {
		for i := range back {
			clear(back[i])
			c.Write(uint32(2*i), uint64(i*l.size), data, 0)
			c.Read(uint32(2*i+1), uint64(i*l.size), back[i])
		}
		var sending sync.WaitGroup // a client that fetches nothing as long as it sends waits for itself
		sending.Go(func() {
			if err := c.Send(); err != nil {
				t.Error(err)
			}
		})
		for range 2 * l.depth {
			_, errno, err := c.Recv()
			require.NoError(t, err)
			require.Zero(t, errno)
		}
		sending.Wait()
		for i := range back {
			require.True(t, bytes.Equal(data, back[i]))
		}
	}
	return time.Since(began)
}

// TestSilentReaders: clients that fetch no data keep the memory that they hold, and nobody
// else waits for it. The server does not cut them off here, because its stall is endless.
func TestSilentReaders(t *testing.T) {
	const silent = 20
	f := serveWith(t, Config{stall: time.Hour}, newMem(t, 8<<20))
	var alone []time.Duration
	for _, l := range loads {
		alone = append(alone, l.run(t, f.client()))
	}
	f.silentReaders(silent)
	for i, l := range loads {
		beside := l.run(t, f.client())
		t.Logf("%v: %v alone, %v beside %d silent readers: %.1f times", l, alone[i], beside, silent, float64(beside)/float64(alone[i]))
		require.Equal(t, silent, f.stuck())
		require.True(t, f.exhausted(1<<20), "the silent readers gave something back")
	}
	x := f.srv.served()[0]
	require.Equal(t, silent+2*len(loads), f.connections())
	require.Positive(t, x.short.Load(), "READs of 1 MiB came in parts")
	read := x.arenas.Read.Budget()
	held := read.Total() - read.Free()
	require.LessOrEqual(t, held, x.common.Total()+silent, "an idle connection holds nothing")
}

// BenchmarkBesideSilentReaders measures the same load alone, and beside twenty clients that
// fetch no data.
func BenchmarkBesideSilentReaders(b *testing.B) {
	for _, l := range loads {
		for _, silent := range []int{0, 20} {
			b.Run(fmt.Sprintf("%v, beside %d", l, silent), func(b *testing.B) {
				f := serveWith(b, Config{stall: time.Hour}, newMem(b, 8<<20))
				if silent > 0 {
					f.silentReaders(silent)
				}
				c := f.client()
				b.ReportAllocs()
				for b.Loop() {
					l.run(b, c)
				}
			})
		}
	}
}

// parts serves exports of a device with few common chunks, and takes all of those.
func parts(t *testing.T, dev backend.Device) *fixture {
	f := serveWith(t, Config{TLS: serverTLS(tls.NoClientCert)}, dev)
	x := f.srv.served()[0]
	all := x.common.Total()
	require.NoError(t, x.common.Take(all, nil))
	t.Cleanup(func() { x.common.Give(all) })
	return f
}

// TestReadInParts: a connection that has only its own part serves READs of any size, among
// other requests, and the client sees no difference.
func TestReadInParts(t *testing.T) {
	const size = 8 << 20
	f := parts(t, newMem(t, size))
	data := backendtest.Pattern(size, 7)
	write(t, f.client(), 0, data)
	for _, e := range ways() {
		t.Run(e.String(), func(t *testing.T) {
			c := f.enter(e)
			var stream []byte
			var want []wire.Request
			ask := func(cmd wire.Command, off, n uint64) {
				r := wire.Request{Command: cmd, Cookie: uint64(len(want)), Off: off, Len: n}
				want = append(want, r)
				stream = c.put(stream, r)
			}
			for _, n := range []uint64{1, 4096, backend.ChunkSize - 1, backend.ChunkSize, backend.ChunkSize + 1, 2 * backend.ChunkSize, 1 << 20, 5_000_001} {
				ask(wire.CmdRead, 0, n)
				ask(wire.CmdFlush, 0, 0)
				ask(wire.CmdRead, size-n, n)
				ask(wire.CmdRead, n/2, n)
				ask(wire.CmdRead, size, 1) // past the end
			}
			_, err := c.Write(stream)
			require.NoError(t, err)
			short := f.srv.served()[0].short.Load()
			for range want {
				r, a := c.recv(t, known(t, want...))
				if r.Off == size {
					require.Equal(t, backend.EINVAL, a.errno)
				} else {
					require.Zero(t, a.errno)
				}
				if len(a.data) > 0 {
					require.True(t, bytes.Equal(data[r.Off:r.Off+r.Len], a.data), "%+v", r)
				}
			}
			require.Greater(t, f.srv.served()[0].short.Load(), short)
			require.NoError(t, c.socket.Close())
		})
	}
}

// TestNothingBetweenParts: a READ in parts begins when all requests before it have their
// replies, and the requests after it begin when its last part is written.
func TestNothingBetweenParts(t *testing.T) {
	const size = 3 * backend.ChunkSize
	dev := newSlow(t, size)
	f := parts(t, dev)
	nc := f.enterRaw()
	stream := wire.AppendRequest(nil, wire.Request{Command: wire.CmdFlush, Cookie: 1})
	stream = wire.AppendRequest(stream, wire.Request{Command: wire.CmdRead, Cookie: 2, Len: size})
	stream = wire.AppendRequest(stream, wire.Request{Command: wire.CmdRead, Cookie: 3, Len: 1})
	stream = wire.AppendRequest(stream, wire.Request{Command: wire.CmdRead, Cookie: 4, Off: size, Len: 1}) // refused
	_, err := nc.Write(stream)
	require.NoError(t, err)
	dev.Wait(1)
	require.Eventually(t, func() bool { return f.count(func(c *conn) bool { return c.waiting }) == 1 }, patience, time.Millisecond)
	require.Equal(t, 1, dev.Held(), "the FLUSH alone")
	var device sync.WaitGroup
	device.Go(func() {
		for range 1 + 3 + 1 { // the FLUSH, the parts, and the READ after them
			dev.Wait(1)
			dev.Release(1)
		}
	})
	defer device.Wait()
	require.Equal(t, wire.SimpleReply{Cookie: 1}, recvReply(t, nc))
	require.Equal(t, wire.SimpleReply{Cookie: 2}, recvReply(t, nc))
	readN(t, nc, size)
	var behind []uint64
	for range 2 {
		r := recvReply(t, nc)
		behind = append(behind, r.Cookie)
		if r.Cookie == 3 {
			readN(t, nc, 1)
		}
	}
	require.ElementsMatch(t, []uint64{3, 4}, behind)
}

// A failing device executes so many READs, and fails the others.
type failingReads struct {
	*mem.Device
	mu    sync.Mutex
	reads int
}

func (d *failingReads) Submit(ops []*backend.Op) {
	for _, op := range ops {
		d.mu.Lock()
		if op.Cmd == backend.Read {
			d.reads--
		}
		fails := op.Cmd == backend.Read && d.reads < 0
		d.mu.Unlock()
		if fails {
			op.Err = backend.ErrFailed
			op.Sink.Complete(op)
			continue
		}
		d.Device.Submit([]*backend.Op{op})
	}
}

// TestPartFails: if the first part of a READ fails, the reply is an error. If a later one fails, a part of
// the data is already sent. A simple reply cannot tell then, so the connection ends. Others end with an
// error, as proto.md demands, and the connection goes on.
func TestPartFails(t *testing.T) {
	const size = 3 * backend.ChunkSize
	for _, e := range []entry{{form: simple}, {form: structured}, {form: extended}} {
		for _, tt := range []struct {
			name string
			good int // parts
		}{{"the first", 0}, {"one between", 1}, {"the last", 2}} {
			t.Run(e.String()+", "+tt.name, func(t *testing.T) {
				f := parts(t, &failingReads{Device: newMem(t, size), reads: tt.good})
				c := f.enter(e)
				r := wire.Request{Command: wire.CmdRead, Cookie: 3, Len: size}
				_, err := c.Write(c.put(nil, r))
				require.NoError(t, err)
				if tt.good > 0 && e.form == simple {
					require.Less(t, len(drain(t, c)), size)
					return
				}
				_, a := c.recv(t, known(t, r))
				require.Equal(t, backend.EIO, a.errno)
				flush := wire.Request{Command: wire.CmdFlush, Cookie: 4}
				_, err = c.Write(c.put(nil, flush))
				require.NoError(t, err)
				_, a = c.recv(t, known(t, flush))
				require.Zero(t, a)
				require.NoError(t, c.socket.Close())
			})
		}
	}
}

// TestLeavingBetweenParts: a client that leaves in the middle of a READ in parts, or that the
// server cuts off there, leaves nothing behind, as serve checks.
func TestLeavingBetweenParts(t *testing.T) {
	for _, how := range []string{"hangs up", "is cut"} {
		t.Run(how, func(t *testing.T) {
			f := parts(t, newMem(t, 8<<20))
			var clients []net.Conn
			for range 10 {
				nc := f.enterRaw()
				clients = append(clients, nc)
				req := wire.AppendRequest(nil, wire.Request{Command: wire.CmdRead, Len: 8 << 20})
				_, err := nc.Write(append(req, req...))
				require.NoError(t, err)
				require.Zero(t, recvReply(t, nc).Errno)
			}
			if how == "hangs up" {
				for _, nc := range clients {
					require.NoError(t, nc.Close())
				}
				require.Eventually(t, func() bool { return f.connections() == 0 }, patience, time.Millisecond)
				return
			}
			f.srv.mu.Lock()
			for c := range f.srv.conns {
				c.kill()
			}
			f.srv.mu.Unlock()
			for _, nc := range clients {
				require.Less(t, len(drain(t, nc)), 8<<20)
			}
		})
	}
}

// TestOwnPartIsNobodyElses: three clients fetch no data. The server cuts off one that holds common
// chunks of which a fourth goes short, or two, and never the one that holds only its own part.
func TestOwnPartIsNobodyElses(t *testing.T) {
	const size = 4 << 20
	dev := newMem(t, size)
	const places = 6 // two more than clients, because those that have just left may still have theirs
	few, err := backend.NewArena(places*ownSinks + 2*chunksFor(size))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, few.Close()) })
	f := serveWith(t, Config{MaxConnections: places, stall: time.Millisecond},
		shaped{dev, size, 1, &backend.Arenas{Write: dev.Arenas().Write, Read: few}})
	data := backendtest.Pattern(backend.ChunkSize, 2)
	reader := f.client()
	write(t, reader, 0, data)

	ask := func(n uint64) net.Conn {
		nc := f.enterRaw()
		_, err := nc.Write(wire.AppendRequest(nil, wire.Request{Command: wire.CmdRead, Len: n}))
		require.NoError(t, err)
		require.Zero(t, recvReply(t, nc).Errno)
		return nc
	}
	var modest net.Conn
	for range 5 {
		greedy := [2]net.Conn{ask(size), ask(size)}
		if modest == nil {
			modest = ask(size) // in parts, of which the socket does not take all
			// Until the socket is full, modest goes short with each part. The server may cut off a slow reader for that.
			require.Eventually(t, func() bool { return f.stuck() == 1 }, patience, time.Millisecond)
		}
		for f.connections() > 3 {
			read(t, reader, 0, size)
		}
		cut := 0
		for _, nc := range greedy {
			n, err := io.ReadFull(nc, make([]byte, size))
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "neither cut nor served")
			if n < size {
				cut++
			}
			require.NoError(t, nc.Close())
		}
		require.NotZero(t, cut)
		require.Eventually(t, func() bool { return f.connections() == 2 }, patience, time.Millisecond)
	}
	require.True(t, bytes.Equal(data, readN(t, modest, size)[:len(data)]))
}

// TestExportsOfOneDevice: exports of one device share the bounds on its arenas.
func TestExportsOfOneDevice(t *testing.T) {
	dev := newMem(t, 1<<20)
	f := serveExports(t, Config{}, Export{Name: "disk", Device: dev}, Export{Name: "read-only", Device: dev, ReadOnly: true})
	require.Same(t, f.srv.served()[0].memory, f.srv.served()[1].memory)
}
