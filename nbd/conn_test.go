package nbd

import (
	"context"
	"crypto/tls"
	"io"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/backend/mem"
	"pmnbd/nbd/wire"
)

// only returns the server's end of the only connection.
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
				run() // the buffers grow
			}
			// Less than one in a hundred requests, because the run time itself allocates
			// now and then.
			require.Less(t, testing.AllocsPerRun(200, run), 0.3)
		})
	}
}

// TestCounts: requests that arrive while the reader is busy cost one batch, and so one read
// and one sendmsg in total.
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

// TestHotMemory: at depth 1 the reader uses the beginning of one chunk again and again. An
// idle connection holds no chunk.
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

// TestIdleHoldsNothing: a connection holds no chunk either after the device has completed
// its READs while the reader waited for more requests.
func TestIdleHoldsNothing(t *testing.T) {
	dev := newSlow(t, 1<<20)
	f := serve(t, dev)
	c := f.client()
	for range 20 {
		c.Read(0, 0, make([]byte, 4096))
		require.NoError(t, c.Send())
		dev.Wait(1)
		dev.Release(1)
		_, errno, err := c.Recv()
		require.NoError(t, err)
		require.Zero(t, errno)
		backendtest.AllBack(t, dev)
	}
}

// TestShutdownFinishesRequests: the server replies to the requests that it has read before
// it closes the connection.
func TestShutdownFinishesRequests(t *testing.T) {
	dev := newSlow(t, 1<<20)
	f := serve(t, dev)
	c := f.client()
	for tag := range uint32(4) {
		c.Write(tag, 0, []byte("data"), 0)
	}
	require.NoError(t, c.Send())
	dev.Wait(4)
	var shutting sync.WaitGroup
	shutting.Go(f.shutdown)
	<-f.srv.done
	dev.Release(4)
	for range 4 {
		_, errno, err := c.Recv()
		require.NoError(t, err)
		require.Zero(t, errno)
	}
	_, _, err := c.Recv()
	require.ErrorIs(t, err, io.EOF)
	shutting.Wait()
}

// TestShutdownGivesUp: if the device completes nothing, Shutdown ends with its context. A
// second Shutdown waits for the rest.
func TestShutdownGivesUp(t *testing.T) {
	dev := newSlow(t, 1<<20)
	f := serve(t, dev)
	c := f.client()
	c.Write(0, 0, []byte("data"), 0)
	c.Read(1, 0, make([]byte, 4096))
	require.NoError(t, c.Send())
	dev.Wait(2)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := f.srv.Shutdown(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "open connections (1)")
	_, _, err = c.Recv()
	require.Error(t, err)
	dev.Release(2)
	f.shutdown()
}

// TestDiscAnswersWhatIsInFlight: the server replies to the requests before a DISC, even if
// the device is slow.
func TestDiscAnswersWhatIsInFlight(t *testing.T) {
	dev := newSlow(t, 1<<20)
	f := serveWith(t, Config{TLS: serverTLS(tls.NoClientCert)}, dev)
	for _, e := range ways() {
		t.Run(e.String(), func(t *testing.T) {
			c := f.enter(e)
			var stream []byte
			var sent []wire.Request
			for i := range uint64(8) {
				sent = append(sent, wire.Request{Command: wire.CmdRead, Cookie: i, Off: i, Len: 100})
				stream = c.put(stream, sent[i])
			}
			_, err := c.Write(c.put(stream, wire.Request{Command: wire.CmdDisc}))
			require.NoError(t, err)
			dev.Wait(8)
			dev.Release(8)
			for range 8 {
				_, a := c.recv(t, known(t, sent...))
				require.Zero(t, a.errno)
			}
			closed(t, c)
		})
	}
}

// TestBackgroundFlush: the server flushes the export after the last client has left, and
// after every DISC.
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
