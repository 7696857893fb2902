package nbd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/internal/devicetest"
	"pmnbd/nbd/wire"
)

// TestAnotherUserGoesShort: two clients hold most of the read arena and fetch nothing. A user of the device that is no
// client of the server, such as a block device without a socket, waits for a part of it. The server cuts a client off.
func TestAnotherUserGoesShort(t *testing.T) {
	const size = 4 << 20
	few, err := backend.NewArena(2*ownSinks + 2*chunksFor(size))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, few.Close()) })
	dev := lean{devicetest.NewSlow(t, size), few}
	dev.Through = func(*backend.Op) bool { return true }
	f := serveWith(t, Config{MaxConnections: 2, stall: time.Millisecond}, dev)
	for range 2 {
		nc := f.enterRaw()
		_, err := nc.Write(wire.AppendRequest(nil, wire.Request{Command: wire.CmdRead, Len: size}))
		require.NoError(t, err)
		require.Zero(t, recvReply(t, nc).Errno)
	}
	stop := make(chan struct{})
	late := time.AfterFunc(patience, func() { close(stop) })
	defer late.Stop()
	got, err := few.Get(nil, chunksFor(size)+ownSinks, stop)
	require.NoError(t, err)
	for _, ch := range got {
		ch.Release()
	}
}
