package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// What was acknowledged, and what no FLUSH covered, is there after pmnbd was killed and
// started again, though the target never got it; a pmnbd that is to serve without it
// must be told so.
func TestAcknowledgedWritesSurviveTheInitiator(t *testing.T) {
	h := newHost(t)
	path := h.region(t, "adopt", "16M")
	data := noise(t, 1<<20)
	target, uri := h.target(t, "adopt="+path)
	for i := range 3 {
		pmnbd, unix, _ := h.initiator(t, uri, "adopt", "--lanes", []string{"1", "3", "2"}[i])
		c := dialNBD(t, unix)
		got := make([]byte, len(data))
		for j := range i {
			require.NoError(t, c.read(uint64(j)<<20, got))
			require.Equal(t, data, got, "of run %d", j)
		}
		target.signal(t, syscall.SIGSTOP)
		require.NoError(t, c.write(uint64(i)<<20, data))
		pmnbd.kill(t)
		target.signal(t, syscall.SIGCONT)
		require.NoError(t, os.Remove(filepath.Join(h.home, "adopt.sock")))
	}
	windows, err := filepath.Glob(filepath.Join(h.home, "*.window"))
	require.NoError(t, err)
	require.Len(t, windows, 1)
	require.NoError(t, os.Rename(windows[0], windows[0]+".away"))
	serve := []string{"serve", "--target", uri + "/adopt", "--listen", "unix:" + filepath.Join(h.home, "no.sock")}
	code, _, stderr := h.result(t, "pmnbd", serve...)
	require.Equal(t, 3, code)
	require.Contains(t, stderr, "--accept-loss")
	require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)

	require.NoError(t, os.Rename(windows[0]+".away", windows[0]))
	pmnbd, unix, _ := h.initiator(t, uri, "adopt")
	c := dialNBD(t, unix)
	got := make([]byte, len(data))
	require.NoError(t, c.read(2<<20, got))
	require.Equal(t, data, got)
	c.close()
	pmnbd.stop(t)
	require.True(t, h.inspect(t, path).Clean)
}
