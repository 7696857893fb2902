package main

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/nbd/client"
	"pmnbd/nbd/wire"
)

// startFloor starts a process of the floor, and returns its address. Threads of the floor block
// where Go's scheduler does not know, so it needs a process of its own.
func startFloor(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asFloor+"=1")
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, cmd.Wait())
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "ready ")
	require.True(t, ok, line)
	return address
}

func TestFloor(t *testing.T) {
	end := startFloor(t, "--listen=127.0.0.1:0")
	socket := filepath.Join(t.TempDir(), "s")
	startFloor(t, "--listen=unix:"+socket, "--behind="+end)
	floor := target{label: labelFloor, network: "unix", address: socket}
	payload := make([]byte, fillSize)

	t.Run("what the suite asks for", func(t *testing.T) {
		e, area, err := dial(t.Context(), floor, 1<<20, 1, blockSize, payload)
		require.NoError(t, err)
		require.EqualValues(t, 1<<20, area)
		require.NoError(t, fill(e, extent{0, area}))
		for _, cmd := range []verb{cmdWrite, cmdRead, cmdFUA, cmdWrite, cmdFlush} {
			require.NoError(t, once(e, request{cmd: cmd, len: blockSize}))
		}
		require.NoError(t, e.Close())
	})
	t.Run("a suite", func(t *testing.T) {
		unix, tcp := serveMem(t, 3<<20)
		code, stdout, stderr := runs(t, "--suite", "--time=10ms", "--rounds=1", "a="+unix, "b="+tcp, labelFloor+"=nbd+unix:///?socket="+socket, labelOneHop+"="+unix)
		require.Zero(t, code, stderr)
		require.Regexp(t, `(?m)^\| write\+flush qd1 \| [0-9.]+ \([0-9.–]+\) \| [0-9.]+ \([0-9.–]+\) \| [0-9.]+ \([0-9.–]+\) \|$`, stdout)
		require.Contains(t, stdout, "a to one hop")
	})
	t.Run("a request that is too long ends the connection", func(t *testing.T) {
		e, _, err := dial(t.Context(), floor, 1<<20, 1, blockSize, payload)
		require.NoError(t, err)
		e.c.Request(wire.Request{Command: wire.CmdWrite, Len: fillSize + 1})
		require.NoError(t, e.c.Send())
		_, err = e.recv()
		require.Error(t, err)
		require.NoError(t, e.c.Close())
	})
	t.Run("other options are refused", func(t *testing.T) {
		nc, err := net.Dial("unix", socket)
		require.NoError(t, err)
		_, err = client.New(nc, client.Config{Replies: client.Structured})
		require.ErrorIs(t, err, client.ErrRefused)
	})
}
