package e2e

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestQemuReconnects kills pmnbd under QEMU and starts it again. QEMU connects again and
// repeats only the requests that had no reply. Everything acknowledged before must be there,
// although it was never flushed.
func TestQemuReconnects(t *testing.T) {
	t.Parallel()
	need(t, qemuIO)
	h := newHost(t)
	path := h.region(t, "again", "16M")
	_, uri := h.target(t, "again="+path)
	pmnbd, _, _ := h.initiator(t, uri, "again")
	socket := filepath.Join(h.home, "again.sock")

	// By lines, or its output would stay in its buffer.
	qemu := exec.Command("stdbuf", "-oL", "qemu-io", "--image-opts", "driver=nbd,reconnect-delay=60,export=again,server.type=unix,server.path="+socket)
	in, err := qemu.StdinPipe()
	require.NoError(t, err)
	out, err := qemu.StdoutPipe()
	require.NoError(t, err)
	qemu.Stderr = os.Stderr
	require.NoError(t, qemu.Start())
	t.Cleanup(func() { _ = qemu.Process.Kill() }) // fails if it has ended, which is fine
	// say sends a command and waits for its output.
	say := func(command, want string) {
		t.Helper()
		_, err := io.WriteString(in, command+"\n")
		require.NoError(t, err)
		var said strings.Builder
		b := make([]byte, 1024)
		for !strings.Contains(said.String(), want) {
			n, err := out.Read(b)
			require.NoError(t, err, said.String())
			said.Write(b[:n])
			require.NotContains(t, said.String(), "failed")
		}
	}
	for round := range 3 {
		off := []string{"0", "1M", "2M"}[round]
		say("write -P 0x5"+string(rune('0'+round))+" "+off+" 1M", "wrote 1048576/1048576 bytes at offset")
		pmnbd.kill(t)
		require.NoError(t, os.Remove(socket))
		pmnbd, _, _ = h.initiator(t, uri, "again")
		for before := range round + 1 {
			say("read -P 0x5"+string(rune('0'+before))+" "+[]string{"0", "1M", "2M"}[before]+" 1M", "read 1048576/1048576 bytes at offset")
		}
	}
	_, err = io.WriteString(in, "flush\nquit\n")
	require.NoError(t, err)
	require.NoError(t, in.Close())
	_, err = io.Copy(io.Discard, out)
	require.NoError(t, err)
	require.NoError(t, qemu.Wait())
	pmnbd.stop(t)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	const start = 2 << 20 // in the data extent
	for i, b := range []byte{0x50, 0x51, 0x52} {
		require.Equal(t, strings.Repeat(string(rune(b)), 1<<20), string(data[start+i<<20:][:1<<20]))
	}
}
