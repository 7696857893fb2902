package e2e

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDrainDespiteAClientThatDoesNotRead ends pmnbd by SIGTERM while one client does not read
// its replies. pmnbd must still flush what another client wrote.
func TestDrainDespiteAClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	path := h.region(t, "r", "64M")
	_, uri := h.target(t, "r="+path)
	pmnbd, unix, _ := h.initiator(t, uri, "r", "--drain-timeout=4s")
	stuck := dialDeep(t, unix, 16)
	buf := make([]byte, 1<<20)
	for slot := range uint32(16) { // more than a socket buffer holds
		stuck.c.Read(slot, 0, buf)
	}
	require.NoError(t, stuck.c.Send())
	c := dialNBD(t, unix)
	data := noise(t, 64<<10)
	require.NoError(t, c.write(0, data))
	pmnbd.signal(t, syscall.SIGTERM)
	require.Zero(t, pmnbd.wait(t), "only replies that nobody read may be lost")
	require.True(t, h.inspect(t, path).Clean, "pmnbd did not flush and close the region")
}

// TestEndWithTheTargetAway sends SIGTERM to an initiator whose target is away, when all writes
// are flushed and no client waits. It must end: nobody waits for the flush that pmnbd began
// when its last client left.
func TestEndWithTheTargetAway(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	path := h.region(t, "r", "16M")
	target, uri := h.target(t, "r="+path)
	pmnbd, unix, _ := h.initiator(t, uri, "r", "--drain-timeout=10m")
	c := dialNBD(t, unix)
	data := noise(t, 64<<10)
	require.NoError(t, c.write(0, data))
	require.NoError(t, c.flush())
	target.kill(t)
	pmnbd.waitLog(t, "the session is interrupted")
	c.close()
	pmnbd.waitLog(t, "client left")
	pmnbd.signal(t, syscall.SIGTERM)
	require.Equal(t, 1, pmnbd.wait(t))
	require.Contains(t, pmnbd.stderr.String(), "nothing is lost")
	require.NotContains(t, pmnbd.stderr.String(), "bytes were not flushed")
}

// TestDrainSaysHowFar ends pmnbd while its target does not answer. The log says, again and again, what is still to
// be flushed; whoever does not want to wait ends pmnbd with a second signal, and is told what that costs.
func TestDrainSaysHowFar(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	target, uri := h.target(t, "r="+h.region(t, "r", "16M"))
	pmnbd, unix, _ := h.initiator(t, uri, "r", "--drain-timeout=1h")
	c := dialNBD(t, unix)
	require.NoError(t, c.flush())
	target.signal(t, syscall.SIGSTOP)
	require.NoError(t, c.write(0, noise(t, 64<<10)))
	c.close()
	pmnbd.signal(t, syscall.SIGTERM)
	pmnbd.waitLog(t, `"msg":"draining: the rest is flushed first","export":"r","state":"open","unflushed_bytes":65536,"clients":0`)
	pmnbd.signal(t, syscall.SIGTERM)
	require.Equal(t, 1, pmnbd.wait(t))
	require.Contains(t, pmnbd.stderr.String(), "terminated while draining: 65536 bytes that were acknowledged are not flushed")
	target.signal(t, syscall.SIGCONT)
}
