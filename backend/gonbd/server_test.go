package gonbd

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pojntfx/go-nbd/pkg/protocol"
	"github.com/pojntfx/go-nbd/pkg/server"
	"github.com/stretchr/testify/require"

	"pmnbd/backend"
)

// serve has go-nbd's server serve b under the name disk, and returns its socket.
func serve(t *testing.T, b *Backend) string {
	path := filepath.Join(t.TempDir(), "sock")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	exports := []*server.Export{{Name: "disk", Backend: b}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			nc, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			wg.Go(func() {
				_ = server.Handle(nc, exports, nil) // any request that fails ends it
				_ = nc.Close()
			})
		}
	})
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		wg.Wait()
	})
	return path
}

func TestQemuIO(t *testing.T) {
	qemuIO, err := exec.LookPath("qemu-io")
	if err != nil {
		t.Skip("qemu-io is missing: install the package qemu-utils")
	}
	d := newDevice(t)
	var flushes atomic.Int32
	d.take = func(op *backend.Op) bool {
		if op.Cmd == backend.Flush {
			flushes.Add(1)
		}
		return false
	}
	b := open(t, d)
	path := serve(t, b)
	run := func(commands ...string) {
		args := []string{"-f", "raw", "nbd+unix:///disk?socket=" + path}
		for _, c := range commands {
			args = append(args, "-c", c)
		}
		out, err := exec.CommandContext(t.Context(), qemuIO, args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.NotContains(t, string(out), "failed")
	}
	run("write -P 0x11 0 1M", "write -P 0x22 512 4k", "aio_write -P 0x33 2M 4M", "aio_flush",
		"read -P 0x11 0 512", "read -P 0x22 512 4k", "read -P 0x33 2M 4M", "read -P 0 7M 1M")

	// A request past the end costs its connection, and nobody else's.
	nc, err := net.Dial("unix", path)
	require.NoError(t, err)
	for _, part := range []any{
		uint32(protocol.NEGOTIATION_HANDSHAKE_FLAG_FIXED_NEWSTYLE),
		protocol.NegotiationOptionHeader{
			OptionMagic: protocol.NEGOTIATION_MAGIC_OPTION, ID: protocol.NEGOTIATION_ID_OPTION_GO, Length: 10,
		},
		uint32(len("disk")), []byte("disk"), uint16(0),
		protocol.TransmissionRequestHeader{
			RequestMagic: protocol.TRANSMISSION_MAGIC_REQUEST, Type: protocol.TRANSMISSION_TYPE_REQUEST_READ,
			Offset: size, Length: 512,
		},
	} {
		require.NoError(t, binary.Write(nc, binary.BigEndian, part))
	}
	_, err = io.Copy(io.Discard, nc) // until the server closes it
	require.NoError(t, err)
	require.NoError(t, nc.Close())

	run("read -P 0x33 2M 4M", "write -P 0x44 7M 1M")
	got := make([]byte, 1)
	_, err = b.ReadAt(got, size-1)
	require.NoError(t, err)
	require.Equal(t, []byte{0x44}, got)
	require.NotZero(t, flushes.Load(), "go-nbd syncs when a client disconnects")
}
