package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// traceSyncs traces the fdatasync(2) calls of p until the caller calls detach, which returns
// strace's log.
func traceSyncs(t *testing.T, h host, p *process, more ...string) (detach func() string) {
	t.Helper()
	log := filepath.Join(h.home, "strace.log")
	args := append([]string{"-f", "-p", strconv.Itoa(p.cmd.Process.Pid), "-o", log, "-e", "trace=fdatasync"}, more...)
	s := startCommand(t, exec.Command("strace", args...))
	s.waitLog(t, "attached")
	return func() string {
		s.signal(t, syscall.SIGINT)
		s.wait(t)
		calls, err := os.ReadFile(log)
		require.NoError(t, err)
		return string(calls)
	}
}

// failNextSync makes the next fdatasync(2) of each thread of p fail with EIO, without executing
// it, until the caller calls detach. detach returns how many calls failed.
func failNextSync(t *testing.T, h host, p *process) (detach func() int) {
	t.Helper()
	stop := traceSyncs(t, h, p, "-e", "inject=fdatasync:error=EIO:when=1")
	return func() int { return strings.Count(stop(), "(INJECTED)") }
}

// TestEveryFlushIsASync checks that a FLUSH reaches the target's disk once, and only if there
// is something to flush.
func TestEveryFlushIsASync(t *testing.T) {
	t.Parallel()
	need(t, strace)
	h := newHost(t)
	path := h.region(t, "sync", "16M")
	data := noise(t, 4096)
	target, uri := h.target(t, "sync="+path)
	_, unix, _ := h.initiator(t, uri, "sync")
	c := dialNBD(t, unix)
	require.NoError(t, c.flush())

	const pairs = 10
	detach := traceSyncs(t, h, target)
	for i := range uint64(pairs) {
		require.NoError(t, c.write(i*4096, data))
		require.NoError(t, c.flush())
		require.NoError(t, c.flush(), "a FLUSH with nothing to flush")
	}
	require.Equal(t, pairs, strings.Count(detach(), "fdatasync("))
}

// TestSlowDisk has every sync of the target's disk take a second, or, with PMNBD_SOAK, 75 s:
// longer than the six leases after which silence would end a session. The FLUSH is answered,
// by one sync, and the session stays.
func TestSlowDisk(t *testing.T) {
	t.Parallel()
	need(t, strace)
	delay := time.Second
	if os.Getenv("PMNBD_SOAK") != "" {
		delay = 75 * time.Second
	}
	h := newHost(t)
	target, uri := h.target(t, "slow="+h.region(t, "slow", "16M"))
	_, unix, _ := h.initiator(t, uri, "slow")
	c := dialNBD(t, unix)
	detach := traceSyncs(t, h, target, "-e", fmt.Sprintf("inject=fdatasync:delay_enter=%d", delay.Microseconds()))
	require.NoError(t, c.write(0, noise(t, 64<<10)))
	c.endless = true
	require.NoError(t, c.c.Socket().SetDeadline(time.Now().Add(delay+outer)))
	require.NoError(t, c.flush())
	require.Equal(t, 1, strings.Count(detach(), "(DELAYED)"))
	s := h.exports(t)[0]
	require.Equal(t, "open", s.Device.State)
	require.Zero(t, s.Device.Recoveries)
}

// TestFailedSyncIsForever makes one sync fail. After that the disk seems well again, but the
// kernel has forgotten which pages it lost, so the target must trust no later success.
func TestFailedSyncIsForever(t *testing.T) {
	t.Parallel()
	need(t, strace)
	// strace counts per thread. If the target goes on in another thread after the first error,
	// that thread's next sync fails too, and the target cannot write the failure down. That is
	// another case, and rare.
	for attempt := 1; !failedSync(t); attempt++ {
		require.Less(t, attempt, 5, "every attempt saw more than one error")
	}
}

func failedSync(t *testing.T) (asPlanned bool) {
	h := newHost(t)
	path := h.region(t, "eio", "16M")
	data := noise(t, 64<<10)
	target, uri := h.target(t, "eio="+path)
	pmnbd, unix, _ := h.initiator(t, uri, "eio")
	c := dialNBD(t, unix)
	require.NoError(t, c.write(0, data))
	require.NoError(t, c.flush())

	detach := failNextSync(t, h, target)
	require.NoError(t, c.write(0, data))
	require.ErrorIs(t, c.flush(), syscall.EIO, "the FLUSH whose sync failed")
	require.ErrorIs(t, c.flush(), syscall.EIO, "a FLUSH afterwards")
	require.ErrorIs(t, c.write(0, data), syscall.EIO, "a WRITE afterwards")
	if detach() != 1 {
		return false
	}
	c.close()
	pmnbd.kill(t)

	refused := func(uri string) {
		t.Helper()
		code, stdout, stderr := h.result(t, "pmnbd", "serve", "--target", uri+"/eio", "--listen", "unix:"+filepath.Join(h.home, "no.sock"))
		require.Equal(t, 1, code)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "failed")
	}
	refused(uri)
	code, _, stderr := h.result(t, "pmnbd-target", "region", "clear", path, "--reason", "too early")
	require.Equal(t, 1, code, "clear must refuse a served region")
	require.Contains(t, stderr, "in use")
	target.stop(t)

	target, uri = h.target(t, "eio="+path)
	refused(uri)
	target.kill(t)
	require.True(t, h.inspect(t, path).Failed, "the region must stay failed over two restarts")

	h.run(t, "pmnbd-target", "region", "clear", path, "--reason", "test: the disk was replaced")
	require.False(t, h.inspect(t, path).Failed)
	_, uri = h.target(t, "eio="+path)
	code, _, stderr = h.result(t, "pmnbd", "serve", "--target", uri+"/eio", "--listen", "unix:"+filepath.Join(h.home, "no.sock"))
	require.Equal(t, 3, code, "clients may rely on lost writes")
	require.Contains(t, stderr, "--accept-loss")
	_, unix, _ = h.initiator(t, uri, "eio", "--accept-loss")
	c = dialNBD(t, unix)
	require.NoError(t, c.write(0, data))
	require.NoError(t, c.flush())
	return true
}
