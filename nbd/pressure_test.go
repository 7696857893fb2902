package nbd

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/internal/devicetest"
	"pmnbd/nbd/client"
	"pmnbd/nbd/wire"
)

// TestMoreThanInFlight: a client may send more requests than the server takes at a time.
func TestMoreThanInFlight(t *testing.T) {
	dev := newSlow(t, 1<<20)
	f := serve(t, dev)
	nc := f.enterRaw()
	const n = 3 * maxInFlight
	var stream []byte
	for i := range uint64(n) {
		stream = wire.AppendRequest(stream, wire.Request{Command: wire.CmdRead, Cookie: i, Len: 1})
	}
	_, err := nc.Write(stream)
	require.NoError(t, err)
	for range 3 {
		dev.Wait(maxInFlight)
		require.Equal(t, maxInFlight, dev.Held())
		dev.Release(maxInFlight)
	}
	for i := range uint64(n) {
		require.Equal(t, i, recvReply(t, nc).Cookie)
		_, err := nc.Read(make([]byte, 1))
		require.NoError(t, err)
	}
}

// TestNeverReading: a client that does not fetch its data stalls only itself, holds no more
// than its cap, and continues where it stopped.
func TestNeverReading(t *testing.T) {
	const n, size = 80, 1 << 20
	f := serveWith(t, Config{TLS: serverTLS(tls.NoClientCert)}, newMem(t, 8<<20))
	data := backendtest.Pattern(size, 3)
	other := f.client()
	write(t, other, 0, data)
	for _, e := range ways() {
		for _, ending := range []string{"reads on", "hangs up"} {
			t.Run(e.String()+", "+ending, func(t *testing.T) {
				backendtest.AllBack(t, f.dev) // the previous client is gone
				c := f.enter(e)
				var stream []byte
				for i := range uint64(n) {
					stream = c.put(stream, wire.Request{Command: wire.CmdRead, Cookie: i, Len: size})
				}
				_, err := c.Write(stream)
				require.NoError(t, err)
				x := f.srv.served()[0]
				// The connection has reached its cap when it has no room for one READ more.
				budget := x.arenas.Read.Budget()
				for budget.Total()-budget.Free() <= x.sinkCap-chunksFor(size) {
					write(t, other, 4<<20, data)
					require.True(t, bytes.Equal(data, read(t, other, 0, size)))
				}
				require.LessOrEqual(t, budget.Total()-budget.Free(), x.sinkCap+chunksFor(size), "and what the other client has just read")
				if ending == "hangs up" {
					require.NoError(t, c.socket.Close())
					return
				}
				for i := range uint64(n) {
					_, a := c.recv(t, known(t, wire.Request{Command: wire.CmdRead, Cookie: i, Len: size}))
					require.Zero(t, a.errno)
					require.True(t, bytes.Equal(data, a.data))
				}
				require.NoError(t, c.socket.Close())
			})
		}
	}
}

func readFull(t testing.TB, nc net.Conn, p []byte) {
	t.Helper()
	for len(p) > 0 {
		n, err := nc.Read(p)
		require.NoError(t, err)
		p = p[n:]
	}
}

// TestWindow drives a device that keeps chunks and entries until it must give some back. It
// has so few that clients wait all the time.
func TestWindow(t *testing.T) {
	const share = 2 << 20
	for _, tt := range []struct {
		name            string
		chunks, entries int
	}{
		{"few chunks", 2 * (4 + 1), 10_000},
		{"few entries", 60, 12},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := serveWith(t, Config{MaxConnections: 4}, devicetest.NewWindowed(t, 3*share, tt.chunks, 4, tt.entries))
			var wg sync.WaitGroup
			for w := range uint64(3) {
				wg.Go(func() { windowClient(t, f.client(), rand.New(rand.NewPCG(w, 9)), w*share, share) })
			}
			wg.Wait()
		})
	}
}

func windowClient(t *testing.T, c *client.Client, rnd *rand.Rand, base uint64, share int) {
	model := make([]byte, share)
	for step := range 30 {
		if err := c.Socket().SetDeadline(time.Now().Add(patience)); err != nil {
			t.Error(err)
		}
		n := 1 + rnd.IntN(6)
		at := 0
		for tag := range uint32(n) {
			size := 1 + rnd.IntN(share/n-1)
			size = min(size, 1<<20)
			data := backendtest.Pattern(size, uint32(step)<<8|tag)
			c.Write(tag, base+uint64(at), data, 0)
			copy(model[at:], data)
			at += size
		}
		if err := c.Send(); err != nil {
			t.Error(err)
			return
		}
		for range n {
			if _, errno, err := c.Recv(); errno != 0 || err != nil {
				t.Errorf("errno %d, %v", errno, err)
				return
			}
		}
	}
	for at := 0; at < share; at += 1 << 20 {
		p := make([]byte, 1<<20)
		c.Read(0, base+uint64(at), p)
		if err := c.Send(); err != nil {
			t.Error(err)
		}
		if _, errno, err := c.Recv(); errno != 0 || err != nil || !bytes.Equal(p, model[at:at+1<<20]) {
			t.Errorf("wrong data, errno %d, %v", errno, err)
		}
	}
}

// TestHangUpWhileWaiting: a reader that waits for room notices that its client has hung up,
// or that the server cuts it off, and drops the request.
func TestHangUpWhileWaiting(t *testing.T) {
	for _, what := range []string{"chunks", "entries", "reservations"} {
		for _, how := range []string{"client hangs up", "server cuts"} {
			t.Run(what+", "+how, func(t *testing.T) {
				dev := devicetest.NewWindowed(t, 1<<20, 28, 2, 30)
				waits := make(chan struct{})
				f := serveWith(t, Config{MaxConnections: 2}, dev)
				x := f.srv.served()[0]
				b := map[string]*backend.Budget{"chunks": dev.Arenas().Write.Pins(), "entries": dev.Arenas().Entries.Budget, "reservations": x.reservations}[what]
				b.Pressure = sync.OnceFunc(func() { close(waits) })
				nc := f.enterRaw()
				hold := b.Free() - 1 // one is left for the first request
				require.NoError(t, b.Take(hold, nil))
				stream := wire.AppendRequest(nil, wire.Request{Command: wire.CmdWrite, Cookie: 7, Len: 1})
				size := 600_000 // three chunks
				if what == "entries" {
					size = 100
				}
				stream = wire.AppendRequest(append(stream, 'x'), wire.Request{Command: wire.CmdWrite, Len: uint64(size)})
				var sending sync.WaitGroup
				sending.Go(func() { _, _ = nc.Write(append(stream, make([]byte, size)...)) })
				<-waits
				require.Equal(t, wire.SimpleReply{Cookie: 7}, recvReply(t, nc), "what was parsed does not wait")
				if how == "client hangs up" {
					require.NoError(t, nc.(*net.UnixConn).CloseWrite())
				} else {
					ctx, cancel := context.WithCancel(context.Background())
					cancel()
					require.ErrorIs(t, f.srv.Shutdown(ctx), context.Canceled)
				}
				closed(t, nc)
				sending.Wait()
				f.shutdown()
				b.Give(hold)
			})
		}
	}
}

// TestHangUpAfterAStall: a payload has come slowly and its request waits for room. The
// deadline of the payload must not hide that the client hangs up.
func TestHangUpAfterAStall(t *testing.T) {
	const size, stall = 600_000, time.Millisecond // three chunks
	dev := devicetest.NewWindowed(t, 1<<20, 28, 2, 30)
	f := serveWith(t, Config{MaxConnections: 2, stall: stall}, dev)
	waits := make(chan struct{})
	entries := dev.Arenas().Entries
	entries.Pressure = sync.OnceFunc(func() { close(waits) })
	other := f.client()
	nc := f.enterRaw()
	stream := wire.AppendRequest(nil, wire.Request{Command: wire.CmdWrite, Len: size})
	_, err := nc.Write(append(stream, make([]byte, size-1)...))
	require.NoError(t, err)
	hold := entries.Free()
	require.NoError(t, entries.Take(hold, nil))
	_, err = nc.Write([]byte{0})
	require.NoError(t, err)
	<-waits
	for since := time.Now(); time.Since(since) < 5*stall; {
		read(t, other, 0, 4096)
	}
	require.NoError(t, nc.(*net.UnixConn).CloseWrite())
	closed(t, nc)
	entries.Give(hold)
}

// TestStalled: the server cuts off a client that holds what others wait for, and moves nothing
// or next to nothing. While nobody waits it does not.
func TestStalled(t *testing.T) {
	for _, tt := range []struct {
		name  string
		stall time.Duration
		drip  bool // the client moves a little now and then
	}{
		{"silent", time.Millisecond, false},
		{"a little now and then", 100 * time.Millisecond, true},
	} {
		t.Run("reservations, "+tt.name, func(t *testing.T) { stalledPayload(t, tt.stall, tt.drip) })
		t.Run("replies, "+tt.name, func(t *testing.T) { stalledReplies(t, tt.stall, tt.drip) })
	}
	t.Run("replies, while nobody goes short", func(t *testing.T) {
		const size, stall = 4 << 20, time.Millisecond
		f := serveWith(t, Config{stall: stall}, newMem(t, size))
		other, nc := f.client(), f.enterRaw()
		_, err := nc.Write(wire.AppendRequest(nil, wire.Request{Command: wire.CmdRead, Len: size}))
		require.NoError(t, err)
		require.Zero(t, recvReply(t, nc).Errno)
		for since := time.Now(); time.Since(since) < 200*stall; {
			read(t, other, 0, 4096)
		}
		readN(t, nc, size)
	})
	t.Run("slow, while nobody waits", func(t *testing.T) {
		const size = 600_000
		f := serveWith(t, Config{MaxConnections: 2, stall: time.Millisecond}, devicetest.NewWindowed(t, 1<<20, 2*(4+1), 2, 30))
		nc := f.enterRaw()
		stream := append(wire.AppendRequest(nil, wire.Request{Command: wire.CmdWrite, Len: size}), make([]byte, size)...)
		drip(t, nc, func() error {
			n, err := nc.Write(stream[:min(20_000, len(stream))])
			if stream = stream[n:]; len(stream) == 0 {
				err = io.EOF
			}
			return err
		})
		require.Zero(t, recvReply(t, nc).Errno)
	})
}

// stalledPayload: a client has a reservation, for which another waits, and sends nothing of its
// payload, or a byte now and then.
func stalledPayload(t *testing.T, stall time.Duration, dripping bool) {
	dev := devicetest.NewWindowed(t, 1<<20, 2*(4+1), 2, 30)
	f := serveWith(t, Config{MaxConnections: 2, stall: stall}, dev)
	x := f.srv.served()[0]
	waits := make(chan struct{})
	x.reservations.Pressure = sync.OnceFunc(func() { close(waits) })
	all := x.reservations.Total()
	require.NoError(t, x.reservations.Take(all, nil))
	nc := f.enterRaw()
	_, err := nc.Write(wire.AppendRequest(nil, wire.Request{Command: wire.CmdWrite, Len: 1 << 20}))
	require.NoError(t, err)
	<-waits
	x.reservations.Give(all) // nc is the first in the queue
	if dripping {
		drip(t, nc, func() error { _, err := nc.Write([]byte{0}); return err })
	}
	write(t, f.client(), 0, make([]byte, 1<<20))
	closed(t, nc)
}

// stalledReplies: clients fetch nothing of large READs, or a little now and then, while another
// goes short of the chunks that they hold.
func stalledReplies(t *testing.T, stall time.Duration, dripping bool) {
	const size = 4 << 20
	dev := newMem(t, size)
	few, err := backend.NewArena(3*ownSinks + 2*chunksFor(size))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, few.Close()) })
	f := serveWith(t, Config{MaxConnections: 3, stall: stall},
		shaped{dev, size, 1, &backend.Arenas{Write: dev.Arenas().Write, Read: few}})
	var most atomic.Int64 // bytes that one of them has fetched
	for range 2 {         // each takes almost half of the arena
		nc := f.enterRaw()
		req := wire.AppendRequest(nil, wire.Request{Command: wire.CmdRead, Len: size})
		_, err := nc.Write(append(req, req...))
		require.NoError(t, err)
		require.Zero(t, recvReply(t, nc).Errno)
		fetched, p := int64(0), make([]byte, 8<<10)
		if dripping {
			drip(t, nc, func() error {
				n, err := nc.Read(p)
				fetched += int64(n)
				most.Store(max(most.Load(), fetched))
				return err
			})
		}
	}
	other := f.client()
	for f.connections() > 2 { // until the server has cut one of the two off
		read(t, other, 0, size)
	}
	require.Less(t, most.Load(), int64(size/2), "the server cut nobody off")
}

// drip calls some again and again, at a slow pace, until some fails. At the latest it fails
// when the test closes nc.
func drip(t *testing.T, nc net.Conn, some func() error) {
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for some() == nil {
			<-tick.C
		}
	})
	t.Cleanup(func() {
		_ = nc.Close()
		wg.Wait()
	})
}

// TestLeavingUnderLoad: clients leave at any point, and nothing of theirs stays behind, as
// serve checks.
func TestLeavingUnderLoad(t *testing.T) {
	f := serveWith(t, Config{MaxConnections: 16}, devicetest.NewWindowed(t, 4<<20, 2*(4+1), 16, 64))
	var wg sync.WaitGroup
	for w := range uint64(4) {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(w, 11))
			data := make([]byte, 1<<20)
			for range 25 {
				c := f.client()
				n := 1 + rnd.IntN(60)
				for tag := range uint32(n) {
					size := 1 + rnd.IntN(1<<(1+rnd.IntN(20)))
					switch rnd.IntN(3) {
					case 0:
						c.Write(tag, 0, data[:size], 0)
					case 1:
						c.Read(tag, 0, data[:size])
					default:
						c.Flush(tag)
					}
				}
				var sending sync.WaitGroup
				sending.Go(func() { _ = c.Send() }) // until Close ends it
				for range rnd.IntN(n + 1) {
					if _, _, err := c.Recv(); err != nil {
						t.Error(err)
					}
				}
				_ = c.Close()
				sending.Wait()
			}
		})
	}
	wg.Wait()
}
