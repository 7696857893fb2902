package nbd

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/nbd/wire"
)

// TestEndLosesNoReply: a client gets the replies to what the server has read, although it has sent more by the
// time that the server ends the connection, because of Shutdown or of what the client sends.
func TestEndLosesNoReply(t *testing.T) {
	const size = 1 << 20
	for _, cause := range []string{"shutdown", "breach"} {
		t.Run(cause, func(t *testing.T) {
			dev := newGated(t, size)
			f := serveWith(t, Config{linger: patience}, dev)
			f.addr = f.listen("tcp", "127.0.0.1:0")
			ask := func(nc net.Conn, r wire.Request, payload []byte) {
				_, err := nc.Write(append(wire.AppendRequest(nil, r), payload...))
				require.NoError(t, err)
				<-dev.arrived
			}
			data := backendtest.Pattern(size, 3)
			nc := f.enterRaw()
			require.NoError(t, nc.(*net.TCPConn).SetReadBuffer(128<<10)) // the rest waits in the server's socket
			ask(nc, wire.Request{Command: wire.CmdWrite, Len: size}, data)
			dev.through <- struct{}{}
			require.Zero(t, recvReply(t, nc).Errno)

			ask(nc, wire.Request{Command: wire.CmdRead, Cookie: 1, Len: size}, nil)
			dev.through <- struct{}{}
			flush := wire.Request{Command: wire.CmdFlush, Cookie: 2}
			ask(nc, flush, nil)
			_, err := nc.Write(make([]byte, 1<<20)) // breaks the protocol, and more than one read takes
			require.NoError(t, err)
			down := make(chan struct{})
			go func() {
				defer close(down)
				if cause == "shutdown" {
					f.shutdown()
				}
			}()
			if cause == "shutdown" {
				stopping := func() bool { return f.count(func(c *conn) bool { return c.stopping.Load() }) == 1 }
				require.Eventually(t, stopping, patience, time.Millisecond)
			}
			dev.through <- struct{}{}
			require.Eventually(t, func() bool { return f.connections() == 0 }, patience, time.Millisecond)
			require.EqualValues(t, 1, recvReply(t, nc).Cookie)
			require.True(t, bytes.Equal(data, readN(t, nc, size)))
			require.EqualValues(t, 2, recvReply(t, nc).Cookie)
			closed(t, nc)
			require.NoError(t, nc.Close())
			<-down
		})
	}
}
