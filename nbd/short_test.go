package nbd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/internal/devicetest"
	"pmnbd/nbd/wire"
)

// A lean device holds ops until the test lets them go, and has a small read arena.
type lean struct {
	*devicetest.Slow
	read *backend.Arena
}

func (d lean) Arenas() *backend.Arenas {
	return &backend.Arenas{Write: d.Device.Arenas().Write, Read: d.read}
}

func (d lean) Info() backend.Info { return shaped{Device: d.Device, max: 4 << 20}.Info() }

// TestSmallReadsGoShort: two clients hold all common chunks and fetch nothing. A third goes short of them, whatever
// it asks for: a READ that has to wait for the one before, or one that may not come in parts.
func TestSmallReadsGoShort(t *testing.T) {
	const size = 4 << 20
	for name, reads := range map[string][]wire.Request{
		"two small READs": {{Command: wire.CmdRead, Len: backend.ChunkSize}, {Command: wire.CmdRead, Len: backend.ChunkSize}},
		"one with DF":     {{Command: wire.CmdRead, Len: 1 << 20, Flags: wire.CmdFlagDF}},
	} {
		t.Run(name, func(t *testing.T) {
			few, err := backend.NewArena(3*ownSinks + 2*chunksFor(size))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, few.Close()) })
			dev := lean{devicetest.NewSlow(t, size), few}
			dev.Through = func(op *backend.Op) bool { return op.Len != backend.ChunkSize }
			f := serveWith(t, Config{MaxConnections: 3, stall: time.Millisecond}, dev)
			for range 2 {
				nc := f.enterRaw()
				req := wire.AppendRequest(nil, wire.Request{Command: wire.CmdRead, Len: size})
				_, err := nc.Write(append(req, req...))
				require.NoError(t, err)
				require.Zero(t, recvReply(t, nc).Errno)
			}
			x := f.srv.served()[0]
			rest := x.common.Free()
			require.True(t, x.common.TryTake(rest))
			t.Cleanup(func() { x.common.Give(rest) })
			c := f.enter(entry{form: structured})
			for f.connections() > 2 {
				var stream []byte
				for _, r := range reads {
					stream = c.put(stream, r)
				}
				_, err := c.Write(stream)
				require.NoError(t, err)
				for _, r := range reads {
					if r.Len == backend.ChunkSize {
						dev.Wait(1)
						dev.Release(1)
					}
					c.recv(t, known(t, r))
				}
			}
		})
	}
}
