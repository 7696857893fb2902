package nbd

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
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

// only is the server's end of the only connection.
func (f *fixture) only() *conn {
	f.t.Helper()
	f.srv.mu.Lock()
	defer f.srv.mu.Unlock()
	require.Len(f.t, f.srv.conns, 1)
	for c := range f.srv.conns {
		return c
	}
	return nil
}

func TestNoAllocations(t *testing.T) {
	const depth, size = 32, 4096
	f := serve(t, newMem(t, 8<<20))
	c := f.client()
	data, sink := backendtest.Pattern(size, 1), make([][]byte, depth)
	for i := range sink {
		sink[i] = make([]byte, size)
	}
	batch := func(want backend.Errno, queue func(tag uint32)) func() {
		return func() {
			for tag := range uint32(depth) {
				queue(tag)
			}
			if err := c.Send(); err != nil {
				t.Error(err)
			}
			for range depth {
				if _, errno, err := c.Recv(); errno != uint32(want) || err != nil {
					t.Error(errno, err)
				}
			}
		}
	}
	for name, run := range map[string]func(){
		"WRITE":   batch(0, func(tag uint32) { c.Write(tag, uint64(tag)*size, data, 0) }),
		"FUA":     batch(0, func(tag uint32) { c.Write(tag, uint64(tag)*size, data, wire.CmdFlagFUA) }),
		"READ":    batch(0, func(tag uint32) { c.Read(tag, uint64(tag)*size, sink[tag]) }),
		"FLUSH":   batch(0, func(tag uint32) { c.Flush(tag) }),
		"refused": batch(backend.ENOSPC, func(tag uint32) { c.Write(tag, 8<<20, data, 0) }),
	} {
		t.Run(name, func(t *testing.T) {
			for range 10 {
				run() // buffers grow
			}
			// Less than one in a hundred requests: the run time itself allocates now
			// and then.
			require.Less(t, testing.AllocsPerRun(200, run), 0.3)
		})
	}
}

// TestCounts: requests that arrive while the reader is busy cost one batch, so one
// read, and one writev together.
func TestCounts(t *testing.T) {
	dev := newGated(t, 8<<20)
	f := serve(t, dev)
	c := f.client()
	data := backendtest.Pattern(512, 1)
	for name, queue := range map[string]func(tag uint32){
		"WRITE": func(tag uint32) { c.Write(tag, uint64(tag)*512, data, 0) },
		"READ":  func(tag uint32) { c.Read(tag, uint64(tag)*512, make([]byte, 512)) },
		"FLUSH": func(tag uint32) { c.Flush(tag) },
		"mixed": func(tag uint32) {
			if tag%2 == 0 {
				c.Flush(tag)
			} else {
				c.Write(tag, 0, data, 0)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.Flush(100) // holds the reader
			require.NoError(t, c.Send())
			require.Len(t, <-dev.arrived, 1)
			for tag := range uint32(32) {
				queue(tag)
			}
			require.NoError(t, c.Send())
			batches, calls := dev.batchCount(), f.calls()
			dev.through <- struct{}{}
			require.Len(t, <-dev.arrived, 32)
			dev.through <- struct{}{}
			for range 33 {
				_, errno, err := c.Recv()
				require.NoError(t, err)
				require.Zero(t, errno)
			}
			require.Equal(t, batches+1, dev.batchCount())
			require.Equal(t, calls+2, f.calls(), "the held FLUSH's, and one for the batch")
		})
	}
}

func (f *fixture) calls() uint64 {
	c := f.only()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.q.Calls()
}

// TestHotMemory: at depth 1 the same start of the same chunk is used over and over,
// and an idle connection holds none.
func TestHotMemory(t *testing.T) {
	f := serve(t, newMem(t, 1<<20))
	c := f.client()
	other := f.client()
	for range 50 {
		write(t, c, 0, backendtest.Pattern(100_000, 1))
		read(t, c, 0, 100_000)
		write(t, other, 0, []byte("x"))
	}
	backendtest.AllBack(t, f.dev) // both connections are still open
}

// TestGone: what a client left unanswered must not land once another connection may
// have carried it again; see conn.Gone.
func TestGone(t *testing.T) {
	now := backendtest.Pattern(4096, 1)
	tests := []struct {
		name   string
		before func(f *fixture) // while the client lives
		disc   bool
		after  func(f *fixture) // once it has hung up
		lands  bool
	}{
		{name: "another entered after", after: func(f *fixture) { f.client() }},
		{name: "another entered before", before: func(f *fixture) { f.client() }},
		{name: "another entered and left before", before: func(f *fixture) { f.comeAndGo() }},
		{name: "another entered and left after", after: func(f *fixture) { f.comeAndGo() }},
		{name: "a DISC was behind", disc: true, after: func(f *fixture) { f.client() }, lands: true},
		{name: "alone all along", lands: true}, // nobody could have sent it again
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dev := newGated(t, 1<<20)
			f := serve(t, dev)
			c := f.client()
			if tt.before != nil {
				tt.before(f)
			}
			c.Write(0, 0, now, 0)
			if tt.disc {
				require.NoError(t, c.Disc())
			} else {
				require.NoError(t, c.Send())
			}
			<-dev.arrived
			require.NoError(t, c.Close())
			if tt.after != nil {
				tt.after(f)
			}
			dev.through <- struct{}{}
			f.shutdown()
			want := make([]byte, 4096)
			if tt.lands {
				want = now
			}
			require.Equal(t, want, dev.contents(t, 4096))
		})
	}
}

// comeAndGo is a connection that entered and has left.
func (f *fixture) comeAndGo() {
	c := f.client()
	require.NoError(f.t, c.Disc())
	_, _, err := c.Recv()
	require.ErrorIs(f.t, err, io.EOF)
}

// contents is the start of the device.
func (d *gated) contents(t testing.TB, n int) []byte {
	c := backendtest.NewClient(t, d.Device)
	r := c.Read(0, n, 0)
	require.NoError(t, c.Do(r))
	return r.Got
}

// TestDiscAnswersWhatIsInFlight: requests ahead of a DISC are answered, those of a
// device that is slow too.
func TestDiscAnswersWhatIsInFlight(t *testing.T) {
	dev := newSlow(t, 1<<20)
	f := serve(t, dev)
	c := f.client()
	for tag := range uint32(8) {
		c.Write(tag, 0, []byte("data"), 0)
	}
	require.NoError(t, c.Disc())
	dev.wait(8)
	dev.release(8)
	for range 8 {
		_, errno, err := c.Recv()
		require.NoError(t, err)
		require.Zero(t, errno)
	}
	_, _, err := c.Recv()
	require.Error(t, err)
}

// TestMoreThanInFlight: a client may send more than is served at a time.
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
		dev.wait(maxInFlight)
		dev.mu.Lock()
		require.Len(t, dev.held, maxInFlight)
		dev.mu.Unlock()
		dev.release(maxInFlight)
	}
	for i := range uint64(n) {
		require.Equal(t, i, recvReply(t, nc).Cookie)
		_, err := nc.Read(make([]byte, 1))
		require.NoError(t, err)
	}
}

// TestNeverReading: a client that does not fetch what it asks for stalls itself
// alone, within its cap, and goes on where it stopped.
func TestNeverReading(t *testing.T) {
	const n, size = 300, 1 << 20
	f := serve(t, newMem(t, 8<<20))
	data := backendtest.Pattern(size, 3)
	other := f.client()
	write(t, other, 0, data)
	for _, ending := range []string{"reads on", "hangs up"} {
		t.Run(ending, func(t *testing.T) {
			nc := f.enterRaw()
			var stream []byte
			for i := range uint64(n) {
				stream = wire.AppendRequest(stream, wire.Request{Command: wire.CmdRead, Cookie: i, Len: size})
			}
			_, err := nc.Write(stream)
			require.NoError(t, err)
			x := f.srv.exports[0]
			// The cap is reached when a chunk less than what it allows is taken.
			budget := x.arenas.Read.Budget()
			for budget.Total()-budget.Free() < chunksFor(x.sinkCap) {
				write(t, other, 4<<20, data)
				require.True(t, bytes.Equal(data, read(t, other, 0, size)))
			}
			require.LessOrEqual(t, budget.Total()-budget.Free(), chunksFor(x.sinkCap)+8)
			if ending == "hangs up" {
				require.NoError(t, nc.Close())
				return
			}
			p := make([]byte, size)
			for i := range uint64(n) {
				rep := recvReply(t, nc)
				require.Equal(t, wire.SimpleReply{Cookie: i}, rep)
				readFull(t, nc, p)
				require.True(t, bytes.Equal(data, p))
			}
		})
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

// TestWindow drives a device that keeps chunks and entries until it must give some
// back, with so few of them that clients wait all the time.
func TestWindow(t *testing.T) {
	const share = 2 << 20
	for _, tt := range []struct {
		name            string
		chunks, entries int
	}{
		{"few chunks", 4 + 2*4, 10_000},
		{"few entries", 64, 12},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := serveWith(t, Config{MaxConnections: 4}, newWindowed(t, 3*share, tt.chunks, tt.entries))
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

// TestHangUpWhileWaiting: a reader that waits for space notices that its client is
// gone, and drops the request; so it does when the server cuts it off.
func TestHangUpWhileWaiting(t *testing.T) {
	for _, what := range []string{"chunks", "entries", "reservations"} {
		for _, how := range []string{"client hangs up", "server cuts"} {
			t.Run(what+", "+how, func(t *testing.T) {
				dev := newWindowed(t, 1<<20, 30, 30)
				waits := make(chan struct{})
				f := serveWith(t, Config{MaxConnections: 2}, dev)
				x := f.srv.exports[0]
				b := map[string]*backend.Budget{"chunks": dev.arenas.Write.Budget(), "entries": dev.arenas.Entries, "reservations": x.reservations}[what]
				b.Pressure = sync.OnceFunc(func() { close(waits) })
				nc := f.enterRaw()
				hold := b.Free()
				if what == "chunks" {
					hold-- // for receiving
				}
				require.NoError(t, b.Take(hold, nil))
				req := wire.AppendRequest(nil, wire.Request{Command: wire.CmdWrite, Len: 600_000})
				var sending sync.WaitGroup
				sending.Go(func() { _, _ = nc.Write(append(req, make([]byte, 600_000)...)) })
				<-waits
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

// TestStalled: a client that holds what others wait for, and does nothing, is cut
// off; as long as nobody waits, it is not.
func TestStalled(t *testing.T) {
	t.Run("reservations", func(t *testing.T) {
		dev := newWindowed(t, 1<<20, 2+2*4, 30)
		f := serveWith(t, Config{MaxConnections: 2, stall: time.Millisecond}, dev)
		x := f.srv.exports[0]
		waits := make(chan struct{})
		x.reservations.Pressure = sync.OnceFunc(func() { close(waits) })
		all := x.reservations.Total()
		require.NoError(t, x.reservations.Take(all, nil))
		nc := f.enterRaw()
		_, err := nc.Write(wire.AppendRequest(nil, wire.Request{Command: wire.CmdWrite, Len: 1 << 20}))
		require.NoError(t, err)
		<-waits
		x.reservations.Give(all) // it is the first to be served
		write(t, f.client(), 0, make([]byte, 1<<20))
		closed(t, nc)
	})
	t.Run("replies", func(t *testing.T) {
		dev := newMem(t, 1<<20)
		few, err := backend.NewArena(2 * (4 + 1))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, few.Close()) })
		f := serveWith(t, Config{stall: time.Millisecond},
			shaped{dev, 1 << 20, 1, &backend.Arenas{Write: dev.Arenas().Write, Read: few}})
		for range 2 { // they take almost half of the arena each
			nc := f.enterRaw()
			req := wire.AppendRequest(nil, wire.Request{Command: wire.CmdRead, Len: 1 << 20})
			_, err := nc.Write(append(req, req...))
			require.NoError(t, err)
			require.Zero(t, recvReply(t, nc).Errno)
		}
		read(t, f.client(), 0, 1<<20)
	})
}

// TestBackgroundFlush: the last to leave, and every DISC, have the export flushed.
func TestBackgroundFlush(t *testing.T) {
	dev := &counting{Device: newMem(t, 1<<20)}
	f := serve(t, dev)
	stays := f.client()
	c := f.client()
	write(t, c, 0, []byte("x"))
	require.NoError(t, c.Disc())
	_, _, err := c.Recv()
	require.Error(t, err)
	write(t, stays, 0, []byte("y"))
	require.NoError(t, stays.Close())
	f.shutdown()
	require.Equal(t, 2, dev.flushes)
}

// A counting device counts the FLUSHes that no client asked for.
type counting struct {
	*mem.Device
	mu      sync.Mutex
	flushes int
}

func (d *counting) Submit(ops []*backend.Op) {
	for _, op := range ops {
		if _, ok := op.Sink.(*background); ok {
			d.mu.Lock()
			d.flushes++
			d.mu.Unlock()
		}
	}
	d.Device.Submit(ops)
}
