package nbd

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/internal/devicetest"
	"pmnbd/nbd/wire"
)

// TestCutWhileWaiting: a client fetches no replies, and its next WRITE waits for room in the window. When the server
// cuts the client off for the replies, the WRITE stops waiting and the connection ends.
func TestCutWhileWaiting(t *testing.T) {
	const size = 1 << 20
	dev := devicetest.NewWindowed(t, size, 28, 2, 30)
	f := serveWith(t, Config{MaxConnections: 2, stall: time.Millisecond}, dev)
	x, entries := f.srv.served()[0], dev.Arenas().Entries
	waits := make(chan struct{}, 1)
	entries.Pressure = func() { waits <- struct{}{} }
	hold := entries.Free()
	require.NoError(t, entries.Take(hold, nil))
	nc := f.enterRaw()
	require.NoError(t, nc.(*net.UnixConn).SetReadBuffer(1))
	var stream []byte
	for range 3 { // more than the socket takes
		stream = wire.AppendRequest(stream, wire.Request{Command: wire.CmdRead, Len: size})
	}
	stream = append(wire.AppendRequest(stream, wire.Request{Command: wire.CmdWrite, Len: 1}), 'x')
	_, err := nc.Write(stream)
	require.NoError(t, err)
	<-waits
	require.Eventually(t, func() bool {
		x.short.Add(1) // somebody goes short
		return f.connections() == 0
	}, patience, time.Millisecond)
	entries.Give(hold)
}
