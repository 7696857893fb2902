package nbd

import (
	"bytes"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/internal/devicetest"
	"pmnbd/nbd/wire"
)

// fullWindow is the least window, in chunks, for requests of 1 MiB.
const fullWindow = 2 * (4 + 1)

// withholds serves a device that retires nothing until the test lets it. Each wait for a pin
// sends a token.
func withholds(t *testing.T, connections int) (f *fixture, dev *devicetest.Windowed, waits chan struct{}) {
	dev = devicetest.NewWindowed(t, 8<<20, fullWindow, connections, 10_000)
	dev.Hold()
	w := make(chan struct{}, 2*connections)
	dev.Arenas().Write.Pins().Pressure = func() { w <- struct{}{} }
	return serveWith(t, Config{MaxConnections: connections}, dev), dev, w
}

// TestReadsNeedNothingOfTheWindow: 64 writers fill the window, and the device retires
// nothing. Clients that only read continue, and so do new ones. The window holds as many
// chunks as it may, and no more.
func TestReadsNeedNothingOfTheWindow(t *testing.T) {
	// Each writes more than a chunk. No WRITE crosses the end of a chunk, because it would
	// wait for a reservation first.
	const writers, size, each = 64, 4096 - wire.RequestSize, 80
	f, dev, waits := withholds(t, writers+3)
	before, after := f.enterRaw(), f.client()
	var stream []byte
	for i := range uint64(each) {
		stream = wire.AppendRequest(stream, wire.Request{Command: wire.CmdWrite, Cookie: i, Off: i * size, Len: size})
		stream = append(stream, backendtest.Pattern(size, uint32(i))...)
	}
	var clients sync.WaitGroup
	for range writers {
		nc := f.enterRaw()
		clients.Go(func() {
			if _, err := nc.Write(stream); err != nil {
				t.Error(err)
			}
			replies := make([]byte, each*wire.SimpleReplySize)
			if _, err := io.ReadFull(nc, replies); err != nil {
				t.Error(err)
			}
			for i := range uint64(each) {
				r, err := wire.DecodeSimpleReply(replies[i*wire.SimpleReplySize:][:wire.SimpleReplySize])
				if want := (wire.SimpleReply{Cookie: i}); err != nil || r != want {
					t.Errorf("reply %d: %+v, %v", i, r, err)
				}
			}
			waits <- struct{}{} // this writer waits for nothing any more
		})
	}
	for range writers {
		<-waits
	}
	require.Zero(t, dev.Arenas().Write.Pins().Free())
	require.Equal(t, fullWindow, dev.Chunks())

	for _, nc := range []net.Conn{before, f.enterRaw()} {
		_, err := nc.Write(wire.AppendRequest(nil, wire.Request{Command: wire.CmdRead, Len: 1}))
		require.NoError(t, err)
		require.Zero(t, recvReply(t, nc).Errno)
		readN(t, nc, 1)
	}

	dev.Arenas().Write.Pins().Pressure = dev.Retire // too late for those that wait already, hence Let
	dev.Let()
	clients.Wait()
	for i := range uint64(each) {
		require.Equal(t, backendtest.Pattern(size, uint32(i)), read(t, after, i*size, size))
	}
}

// TestHeaderAcrossAChunksEnd: a connection that moves to another chunk gives the old one back
// first, so it needs no second one when the window has all others.
func TestHeaderAcrossAChunksEnd(t *testing.T) {
	f, dev, _ := withholds(t, 2)
	reader, writer := f.enterRaw(), f.enterRaw()
	req := wire.Request{Command: wire.CmdWrite, Len: backend.ChunkSize - wire.RequestSize}
	write := append(wire.AppendRequest(nil, req), make([]byte, req.Len)...)
	for range fullWindow { // each fills a chunk
		_, err := writer.Write(write)
		require.NoError(t, err)
		require.Zero(t, recvReply(t, writer).Errno)
	}
	_, err := writer.Write(write[:1]) // the chunk that the connection itself holds
	require.NoError(t, err)
	const reads = backend.ChunkSize/wire.RequestSize + 100
	var sending sync.WaitGroup
	sending.Go(func() {
		var stream []byte
		for i := range uint64(reads) {
			stream = wire.AppendRequest(stream, wire.Request{Command: wire.CmdRead, Cookie: i, Len: 1})
		}
		if _, err := reader.Write(stream); err != nil {
			t.Error(err)
		}
	})
	for i := range uint64(reads) {
		require.Equal(t, wire.SimpleReply{Cookie: i}, recvReply(t, reader))
		readN(t, reader, 1)
	}
	sending.Wait()
	require.Equal(t, fullWindow, dev.Chunks())
	dev.Let()
}

// TestLeavingAFullWindow: the window is full. Clients that have written to it, or wait for
// room, can leave at once, and the chunks that they received into are there for others.
func TestLeavingAFullWindow(t *testing.T) {
	const writers = fullWindow + 3
	f, dev, waits := withholds(t, writers)
	write := append(wire.AppendRequest(nil, wire.Request{Command: wire.CmdWrite, Len: 1}), 'x')
	var clients []net.Conn
	for i := range writers {
		nc := f.enterRaw()
		clients = append(clients, nc)
		_, err := nc.Write(write)
		require.NoError(t, err)
		if i < fullWindow {
			require.Zero(t, recvReply(t, nc).Errno)
		} else {
			<-waits
		}
	}
	for _, nc := range clients {
		require.NoError(t, nc.(*net.UnixConn).CloseWrite())
		closed(t, nc)
	}
	arena := dev.Arenas().Write
	require.Equal(t, writers, arena.Budget().Free(), "all but the window's")
	require.Zero(t, arena.Pins().Free())
	require.Equal(t, fullWindow, dev.Chunks())
	require.Equal(t, 10_000-fullWindow, dev.Arenas().Entries.Free(), "clients that waited hold no entries")
	dev.Let() // the server has started a FLUSH after the last client left
}

// TestReservationBehindALargePayload: a connection that waits for a reservation does not keep
// the chunks of the payload before.
func TestReservationBehindALargePayload(t *testing.T) {
	const size = 1 << 20
	dev := devicetest.NewWindowed(t, 2*size, fullWindow, 1, 10_000)
	f := serveWith(t, Config{MaxConnections: 1}, dev)
	room := backend.NewAdmission(dev.Arenas())
	held, ok := room.TryReserve(nil, nil, fullWindow-6) // one more than the first needs is left
	require.True(t, ok)
	nc := f.enterRaw()
	var stream []byte
	for i := range uint64(2) {
		stream = wire.AppendRequest(stream, wire.Request{Command: wire.CmdWrite, Cookie: i, Off: i * size, Len: size})
		stream = append(stream, make([]byte, size)...)
	}
	var sending sync.WaitGroup
	sending.Go(func() {
		if _, err := nc.Write(stream); err != nil {
			t.Error(err)
		}
	})
	for i := range uint64(2) {
		require.Equal(t, wire.SimpleReply{Cookie: i}, recvReply(t, nc))
	}
	sending.Wait()
	for _, ch := range held {
		ch.Release()
	}
	room.Unpin()
}

// TestStalledInAPayload: a payload that fits the current chunk needs no room in the window
// before it is complete.
func TestStalledInAPayload(t *testing.T) {
	const stalled = 2 * fullWindow
	f := serveWith(t, Config{MaxConnections: stalled + 1}, devicetest.NewWindowed(t, 8<<20, fullWindow, stalled+1, 10_000))
	half := append(wire.AppendRequest(nil, wire.Request{Command: wire.CmdWrite, Len: 2}), 'x')
	whole := append(wire.AppendRequest(nil, wire.Request{Command: wire.CmdWrite, Len: 1}), 'x')
	for range stalled {
		nc := f.enterRaw()
		_, err := nc.Write(append(append([]byte(nil), whole...), half...))
		require.NoError(t, err)
		require.Zero(t, recvReply(t, nc).Errno)
	}
	writer := f.client()
	for range 2 * fullWindow {
		write(t, writer, 0, make([]byte, 1<<20))
	}
}

// TestHalfPayloads: clients have announced large payloads and send nothing of them, so they
// hold all reservations, for which others wait in vain. Clients whose WRITEs are at most a
// chunk do not wait.
func TestHalfPayloads(t *testing.T) {
	const silent, most = 5, 64
	f := serveWith(t, Config{MaxConnections: silent + 4, stall: time.Hour}, devicetest.NewWindowed(t, 8<<20, fullWindow, silent+4, 10_000))
	half := wire.AppendRequest(nil, wire.Request{Command: wire.CmdWrite, Len: 1 << 20})
	for range silent {
		_, err := f.enterRaw().Write(half)
		require.NoError(t, err)
	}
	x := f.srv.served()[0]
	require.Eventually(t, func() bool { return x.reservations.Free() == 0 && x.reservations.Waiting() }, patience, time.Millisecond)
	for _, size := range []int{4096, 100_000, backend.ChunkSize - 1, backend.ChunkSize} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			c := f.client()
			n := min(most, 8<<20/size)
			var sending sync.WaitGroup
			for i := range uint32(n) {
				c.Write(i, uint64(i)*uint64(size), backendtest.Pattern(size, i), 0)
			}
			sending.Go(func() {
				if err := c.Send(); err != nil {
					t.Error(err)
				}
			})
			for range n {
				_, errno, err := c.Recv()
				require.NoError(t, err)
				require.Zero(t, errno)
			}
			sending.Wait()
			for i := range uint32(n) {
				require.True(t, bytes.Equal(backendtest.Pattern(size, i), read(t, c, uint64(i)*uint64(size), size)))
			}
			require.NoError(t, c.Close())
		})
	}
	require.Zero(t, x.reservations.Free(), "the server cut the silent clients off")
}
