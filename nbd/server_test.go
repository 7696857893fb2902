package nbd

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	gonbd "github.com/pojntfx/go-nbd/pkg/client"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/backend/mem"
	"pmnbd/nbd/client"
	"pmnbd/nbd/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait. It is far longer than any wait in a test that passes.
const patience = 20 * time.Second

// A fixture is a server of one export, "disk", on a unix socket.
type fixture struct {
	t    testing.TB
	srv  *Server
	dev  backend.Device
	addr net.Addr

	serving sync.WaitGroup
}

func newMem(t testing.TB, size uint64) *mem.Device {
	d, err := mem.New(size)
	require.NoError(t, err)
	return d
}

// serve starts a server. When the test ends, the server must shut down in time, give all
// chunks and entries back, and leave no descriptor open.
func serve(t testing.TB, dev backend.Device) *fixture {
	t.Helper()
	return serveWith(t, Config{}, dev)
}

func serveWith(t testing.TB, cfg Config, dev backend.Device) *fixture {
	t.Helper()
	return serveExports(t, cfg, Export{Name: "disk", Device: dev})
}

// serveExports serves exports, all of one device.
func serveExports(t testing.TB, cfg Config, exports ...Export) *fixture {
	t.Helper()
	srv, err := New(cfg, exports...)
	require.NoError(t, err)
	dev := exports[0].Device
	f := &fixture{t: t, srv: srv, dev: dev}
	f.addr = f.listen("unix", filepath.Join(t.TempDir(), "s"))
	before := openFiles(t) // with those that Go's poller needs
	t.Cleanup(func() {
		f.shutdown()
		require.Less(t, openFiles(t), before, "the listener is closed, and all connections are")
		backendtest.AllBack(t, dev)
		for _, x := range srv.served() {
			require.Equal(t, x.reservations.Total(), x.reservations.Free(), "reservations")
			require.Equal(t, x.common.Total(), x.common.Free(), "common chunks of the read arena")
		}
		require.NoError(t, dev.Close())
	})
	return f
}

// openFiles returns how many descriptors this process has open.
func openFiles(t testing.TB) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(fds)
}

func (f *fixture) listen(network, addr string) net.Addr {
	f.t.Helper()
	l, err := net.Listen(network, addr)
	require.NoError(f.t, err)
	f.serving.Go(func() {
		if err := f.srv.Serve(l); err != nil {
			f.t.Errorf("Serve: %v", err)
		}
	})
	return l.Addr()
}

func (f *fixture) shutdown() {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(f.t, f.srv.Shutdown(ctx))
	f.serving.Wait()
}

// raw connects without a handshake. Reads that take too long fail.
func (f *fixture) raw() net.Conn {
	f.t.Helper()
	c, err := net.Dial(f.addr.Network(), f.addr.String())
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = c.Close() })
	require.NoError(f.t, c.SetDeadline(time.Now().Add(patience)))
	return c
}

// client connects and enters transmission.
func (f *fixture) client() *client.Client {
	f.t.Helper()
	c, err := client.New(f.raw(), client.Config{Export: "disk", Depth: 256})
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = c.Close() })
	return c
}

// do sends one queued request and expects its reply.
func do(t testing.TB, c *client.Client, want backend.Errno) {
	t.Helper()
	require.NoError(t, c.Socket().SetDeadline(time.Now().Add(patience)))
	require.NoError(t, c.Send())
	_, errno, err := c.Recv()
	require.NoError(t, err)
	require.Equal(t, want, backend.Errno(errno))
}

func write(t testing.TB, c *client.Client, off uint64, data []byte) {
	t.Helper()
	c.Write(1, off, data, 0)
	do(t, c, 0)
}

func read(t testing.TB, c *client.Client, off uint64, n int) []byte {
	t.Helper()
	p := make([]byte, n)
	c.Read(2, off, p)
	do(t, c, 0)
	return p
}

func TestReadWriteFlush(t *testing.T) {
	f := serve(t, newMem(t, 8<<20))
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			if network == "tcp" {
				f.addr = f.listen("tcp", "127.0.0.1:0")
			}
			c := f.client()
			require.EqualValues(t, 8<<20, c.Export().Size)
			require.Equal(t, wire.FlagHasFlags|wire.FlagSendFlush|wire.FlagSendFUA|wire.FlagCanMultiConn|wire.FlagSendTrim|wire.FlagSendWriteZeroes|wire.FlagSendFastZero|wire.FlagSendCache, c.Export().Flags)
			require.Equal(t, wire.BlockSizes{Min: 1, Preferred: 4096, MaxPayload: 32 << 20}, c.BlockSizes())
			for i, n := range []int{1, 512, 4096, 65_537, 1 << 20, 5<<20 + 1} {
				data := backendtest.Pattern(n, uint32(i))
				write(t, c, uint64(i*1000), data)
				require.True(t, bytes.Equal(data, read(t, c, uint64(i*1000), n)), "%d bytes", n)
				c.Flush(3)
				do(t, c, 0)
				c.Write(4, 0, data, wire.CmdFlagFUA)
				do(t, c, 0)
			}
			require.NoError(t, c.Disc())
			_, _, err := c.Recv()
			require.Error(t, err, "closed after DISC")
		})
	}
}

// TestModel sends pipelined requests of any size over several connections, each of which has
// its own range.
func TestModel(t *testing.T) {
	const share = 3 << 20
	f := serve(t, newMem(t, 4*share))
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() { modelClient(t, f.client(), rand.New(rand.NewPCG(uint64(w), 7)), uint64(w)*share, share) })
	}
	wg.Wait()
}

func modelClient(t *testing.T, c *client.Client, rnd *rand.Rand, base uint64, share int) {
	model := make([]byte, share)
	type pending struct{ got, want []byte }
	for step := range 25 {
		if err := c.Socket().SetDeadline(time.Now().Add(patience)); err != nil {
			t.Error(err)
		}
		// In a batch the READs are in one half of the range and the WRITEs in the other,
		// because NBD does not order them.
		lo, hi := 0, share/2
		if step%2 == 1 {
			lo, hi = hi, lo
		}
		var reads []pending
		n := 1 + rnd.IntN(100)
		budget := 6 << 20
		sent := 0
		for tag := range uint32(n) {
			size := 1 + rnd.IntN(20_000)
			if rnd.IntN(10) == 0 {
				size = 1 + rnd.IntN(share/2-1)
			}
			if budget -= size; budget < 0 {
				break
			}
			sent++
			at := rnd.IntN(share/2 - size + 1)
			switch rnd.IntN(5) {
			case 0, 1:
				p := pending{make([]byte, size), model[lo+at : lo+at+size]}
				c.Read(tag, base+uint64(lo+at), p.got)
				reads = append(reads, p)
			case 2, 3:
				data := backendtest.Pattern(size, uint32(step)<<8|tag)
				c.Write(tag, base+uint64(hi+at), data, wire.CommandFlags(rnd.IntN(2)))
				copy(model[hi+at:], data)
			default:
				c.Flush(tag)
			}
		}
		var sending sync.WaitGroup
		sending.Go(func() {
			if err := c.Send(); err != nil {
				t.Error(err)
			}
		})
		for range sent {
			if tag, errno, err := c.Recv(); err != nil || errno != 0 {
				t.Errorf("tag %d: errno %d, %v", tag, errno, err)
				return
			}
		}
		sending.Wait()
		for _, r := range reads {
			if !bytes.Equal(r.got, r.want) {
				t.Errorf("step %d: wrong data", step)
				return
			}
		}
	}
	p := make([]byte, share)
	c.Read(0, base, p)
	if err := c.Send(); err != nil {
		t.Error(err)
	}
	if _, errno, err := c.Recv(); err != nil || errno != 0 || !bytes.Equal(p, model) {
		t.Errorf("at the end: wrong data, errno %d, %v", errno, err)
	}
}

// TestTrickle sends a stream in pieces of many awkward sizes, so that headers and payloads
// cross the ends of reads and chunks.
func TestTrickle(t *testing.T) {
	f := serve(t, newMem(t, 8<<20))
	for _, piece := range []int{1, 27, 28, 29, 4096, 65_535} {
		nc := f.enterRaw()
		var stream []byte
		want := make([]byte, 0, 1<<20)
		total := 1 << 20
		if piece < 1000 {
			total = 64 << 10
		}
		n := 0
		for len(want) < total {
			data := backendtest.Pattern(100+n*777%30_000, uint32(n))
			stream = wire.AppendRequest(stream, wire.Request{Command: wire.CmdWrite, Cookie: uint64(n), Off: uint64(len(want)), Len: uint64(len(data))})
			stream = append(stream, data...)
			want = append(want, data...)
			n++
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for len(stream) > 0 {
				k, err := nc.Write(stream[:min(piece, len(stream))])
				if err != nil {
					t.Error(err)
					return
				}
				stream = stream[k:]
			}
		})
		for range n {
			require.Zero(t, recvReply(t, nc).Errno)
		}
		wg.Wait()
		require.True(t, bytes.Equal(want, read(t, f.client(), 0, len(want))), "pieces of %d", piece)
		require.NoError(t, nc.Close())
	}
}

func TestSeveralExports(t *testing.T) {
	a, b := newMem(t, 1<<20), newMem(t, 2<<20)
	srv, err := New(Config{}, Export{Name: "a", Device: a}, Export{Name: "b", Device: b})
	require.NoError(t, err)
	f := &fixture{t: t, srv: srv}
	f.addr = f.listen("tcp", "127.0.0.1:0")
	for name, size := range map[string]uint64{"a": 1 << 20, "b": 2 << 20, "": 1 << 20} {
		c, err := client.New(f.raw(), client.Config{Export: name})
		require.NoError(t, err)
		require.Equal(t, size, c.Export().Size, name)
		require.NoError(t, c.Close())
	}
	_, err = client.New(f.raw(), client.Config{Export: "c"})
	require.ErrorIs(t, err, client.ErrRefused)
	require.ErrorContains(t, err, wire.RepErrUnknown.String())

	nc := f.raw()
	greet(t, nc, wire.ClientFixedNewstyle)
	require.Equal(t, []optionReply{
		{wire.RepServer, []byte("\x00\x00\x00\x01a")},
		{wire.RepServer, []byte("\x00\x00\x00\x01b")},
		{wire.RepAck, []byte{}},
	}, option(t, nc, wire.OptList, nil))
	f.shutdown()
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
}

// go-nbd's client reads the first export that is listed.
func TestListByGoNBD(t *testing.T) {
	names, err := gonbd.List(serve(t, newMem(t, 1<<20)).raw())
	require.NoError(t, err)
	require.Equal(t, []string{"disk"}, names)
}

func TestNewRefuses(t *testing.T) {
	d := newMem(t, 1<<20)
	few, err := backend.NewArena(256 + 63)
	require.NoError(t, err)
	for _, tt := range []struct {
		name    string
		cfg     Config
		exports []Export
		want    string
	}{
		{"no exports", Config{}, nil, "at least one export"},
		{"a name twice", Config{}, []Export{{Name: "a", Device: d}, {Name: "a", Device: d}}, `export "a": the name is taken`},
		{"a long name", Config{}, []Export{{Name: string(make([]byte, 4097)), Device: d}}, "4097 bytes"},
		{"too many connections", Config{MaxConnections: 400}, []Export{{Name: "a", Device: d}}, "write arena of 512 chunks, 112 for the window, is too small for 400"},
		{"too large requests", Config{}, []Export{{Name: "a", Device: shaped{Device: d, max: 65 << 20}}}, "requests of 68157440 bytes"},
		{"too small a read arena", Config{}, []Export{{Name: "a", Device: shaped{d, 32 << 20, 1, &backend.Arenas{Write: d.Arenas().Write, Read: few}}}}, "read arena of 319 chunks is too small for 64 connections and requests of 128 chunks: 320 are needed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := New(tt.cfg, tt.exports...)
			require.ErrorContains(t, err, tt.want)
		})
	}
	require.NoError(t, few.Close())
	require.NoError(t, d.Close())
}

// A failing listener returns some errors before it accepts.
type failing struct {
	net.Listener
	errs []error
}

func (l *failing) Accept() (net.Conn, error) {
	if len(l.errs) == 0 {
		return l.Listener.Accept()
	}
	err := l.errs[0]
	l.errs = l.errs[1:]
	return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", err)}
}

// TestAcceptErrors: accept(2) can fail because a client left early, or because the system has
// run out of something for a while. Serve ends only when the listener is closed.
func TestAcceptErrors(t *testing.T) {
	f := serve(t, newMem(t, 1<<20))
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	f.addr = l.Addr()
	serving := make(chan error)
	go func() {
		serving <- f.srv.Serve(&failing{l, []error{unix.EMFILE, unix.EPROTO, unix.EPERM, unix.EHOSTUNREACH}})
	}()
	write(t, f.client(), 0, []byte("x"))
	require.NoError(t, l.Close())
	require.ErrorIs(t, <-serving, net.ErrClosed)
}

func TestShutdown(t *testing.T) {
	f := serve(t, newMem(t, 1<<20))
	idle, negotiating, half := f.client(), f.raw(), f.enterRaw()
	_, err := half.Write(wire.AppendRequest(nil, wire.Request{Command: wire.CmdWrite, Len: 4096}))
	require.NoError(t, err)
	f.shutdown()
	f.shutdown()
	_, _, err = idle.Recv()
	require.Error(t, err)
	_, err = bytes.NewBuffer(nil).ReadFrom(negotiating)
	require.NoError(t, err, "greeted, then closed")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, f.srv.Serve(l), "after Shutdown")
	_, err = net.Dial(l.Addr().Network(), l.Addr().String())
	require.Error(t, err, "the listener is closed")
}
