package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAcknowledgedWritesSurviveTheInitiator kills pmnbd after it has acknowledged writes that
// no FLUSH covered and that the target never got. The next pmnbd must have them. To serve
// without them it must be told to.
func TestAcknowledgedWritesSurviveTheInitiator(t *testing.T) {
	t.Parallel()
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

// TestAcceptedLossIsOfOneExport starts a process of two exports with --accept-loss when one of
// them has lost its window. The other export must still have what it acknowledged, and a client
// that kept its device goes on.
func TestAcceptedLossIsOfOneExport(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	target, uri := h.target(t, "one="+h.region(t, "one", "16M"), "two="+h.region(t, "two", "16M"))
	serve := []string{"serve", "--listen", "unix:" + filepath.Join(h.home, "s"), "--target", uri + "/one", "--target", uri + "/two"}
	pmnbd := start(t, h.home, "pmnbd", serve...)
	data := noise(t, 1<<20)
	uris := pmnbd.waitReady(t)
	one, two := dialNBD(t, uris[0]), dialNBD(t, uris[1])
	before := h.exports(t)
	target.signal(t, syscall.SIGSTOP)
	require.NoError(t, one.write(0, data))
	require.NoError(t, two.write(0, data))
	pmnbd.kill(t)
	target.signal(t, syscall.SIGCONT)
	windows, err := filepath.Glob(filepath.Join(h.home, "*-"+before[0].Device.UUID+".window"))
	require.NoError(t, err)
	require.Len(t, windows, 1)
	require.NoError(t, os.Remove(windows[0]))

	code, _, stderr := h.result(t, "pmnbd", serve...)
	require.Equal(t, 3, code)
	require.Contains(t, stderr, `export "one"`)
	pmnbd = start(t, h.home, "pmnbd", append(serve, "--accept-loss")...)
	uris = pmnbd.waitReady(t)
	require.Contains(t, pmnbd.stderr.String(), "ACCEPTING A LOSS")
	after := h.exports(t)
	require.NotEqual(t, before[0].Device.Lineage, after[0].Device.Lineage)
	require.Equal(t, before[1].Device.Lineage, after[1].Device.Lineage)
	got := make([]byte, len(data))
	two = dialNBD(t, uris[1])
	require.NoError(t, two.read(0, got))
	require.Equal(t, data, got)
	two.close()
	pmnbd.stop(t)

	pmnbd = start(t, h.home, "pmnbd", append(serve, "--accept-loss")...) // the flag may have stayed in a unit file
	pmnbd.waitReady(t)
	again := h.exports(t)
	require.Equal(t, after[0].Device.Lineage, again[0].Device.Lineage)
	require.Equal(t, after[1].Device.Lineage, again[1].Device.Lineage)
	pmnbd.stop(t)
}

// TestWindowIsLostToWhoStays starts an initiator again while another one has the region. It
// must end with exit code 3 at once, because its window is lost, so that nothing restarts it
// over and over.
func TestWindowIsLostToWhoStays(t *testing.T) {
	t.Parallel()
	h, other := newHost(t), newHost(t)
	_, uri := h.target(t, "held="+h.region(t, "held", "16M"))
	pmnbd, unix, _ := h.initiator(t, uri, "held")
	require.NoError(t, dialNBD(t, unix).write(0, noise(t, 1<<20)))
	pmnbd.kill(t)
	stays, unix, _ := other.initiator(t, uri, "held", "--takeover")
	serve := []string{"serve", "--target", uri + "/held", "--listen", "unix:" + filepath.Join(h.home, "no.sock")}
	for range 2 {
		code, _, stderr := h.result(t, "pmnbd", serve...)
		require.Equal(t, 3, code)
		require.Contains(t, stderr, "another owner")
		code, _, stderr = h.result(t, "pmnbd", append(serve, "--accept-loss")...)
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "busy")
	}
	c := dialNBD(t, unix)
	require.NoError(t, c.write(0, noise(t, 4096)))
	require.NoError(t, c.flush())
	c.close()
	stays.stop(t)
	pmnbd = start(t, h.home, "pmnbd", append(serve, "--accept-loss")...)
	pmnbd.waitReady(t)
	pmnbd.stop(t)
}
