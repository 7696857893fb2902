package e2e

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHealth follows both daemons through the loss of the target, and of the device: for scripts,
// for orchestrators, and for systemd.
func TestHealth(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	target, uri := h.target(t, "a="+h.region(t, "a", "16M"))
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(h.home, "notify"), Net: "unixgram"})
	require.NoError(t, err)
	defer func() { require.NoError(t, notify.Close()) }()
	socket := filepath.Join(h.home, "nbd")
	cmd := command(t, h.home, "pmnbd", "serve", "--target", uri+"/a", "--listen", "unix:"+socket, "--loss-timeout", "5s", "--log-level", "warn")
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+notify.LocalAddr().String(), "WATCHDOG_USEC=100000")
	pmnbd := startCommand(t, cmd)
	pmnbd.waitReady(t)
	told := func(want string) {
		t.Helper()
		require.NoError(t, notify.SetReadDeadline(time.Now().Add(outer)))
		for b := make([]byte, 4096); ; {
			n, err := notify.Read(b)
			require.NoError(t, err, want)
			if strings.Contains(string(b[:n]), want) {
				return
			}
		}
	}
	told("STATUS=export a: serving since ")
	told("WATCHDOG=1")
	checked := func(program string, code int, says ...string) {
		t.Helper()
		got, stdout, stderr := h.result(t, program, "status", "--check")
		require.Equal(t, code, got, stdout+stderr)
		for _, s := range says {
			require.Contains(t, stdout, s)
		}
		require.Equal(t, 1, strings.Count(stdout, "\n"), stdout)
		live, _ := health(t, h, pmnbd, "/livez")
		require.Equal(t, 200, live)
	}
	checked("pmnbd", 0, "export a: serving since ")
	checked("pmnbd-target", 0, "region a: serving")
	ready, _ := health(t, h, pmnbd, "/readyz")
	require.Equal(t, 200, ready)

	target.kill(t)
	told("STATUS=export a: waiting since ")
	checked("pmnbd", 1, "export a: waiting since ", "Start pmnbd-target there")
	ready, text := health(t, h, pmnbd, "/readyz")
	require.Equal(t, 503, ready)
	require.Contains(t, text, "export a: waiting since ")

	require.NotContains(t, pmnbd.stderr.String(), `"level":"info"`)
	require.NotContains(t, pmnbd.stderr.String(), `"level":"debug"`)
	pmnbd.signal(t, syscall.SIGUSR1)
	pmnbd.waitLog(t, "the log level changes")

	told("STATUS=export a: failed since ")
	checked("pmnbd", 2, "export a: failed since ", "docs/durability.md")
	told("WATCHDOG=1") // a restart would not help
	pmnbd.kill(t)
	code, stdout, stderr := h.result(t, "pmnbd", "status", "--check")
	require.Equal(t, 2, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "no pmnbd is running")
}

// TestHealthOfStart asks a pmnbd how it is whose target does not answer yet.
func TestHealthOfStart(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	target, uri := h.target(t, "a="+h.region(t, "a", "16M"))
	target.signal(t, syscall.SIGSTOP)
	pmnbd := start(t, h.home, "pmnbd", "serve", "--target", uri+"/a", "--listen", "unix:"+filepath.Join(h.home, "nbd"))
	// The target's own socket does not answer, so status must not ask it.
	control := "unix:" + filepath.Join(h.home, "run", "a-"+strconv.Itoa(pmnbd.cmd.Process.Pid)+".sock")
	require.Eventually(t, func() bool {
		code, stdout, _ := h.result(t, "pmnbd", "status", "--control", control, "--check")
		return code == 1 && strings.Contains(stdout, "export a: waiting: it is starting: ")
	}, outer, 10*time.Millisecond)
	require.Contains(t, h.run(t, "pmnbd", "status", "--control", control), "export a: STARTING, and not ready: ")
	ready, _ := health(t, h, pmnbd, "/readyz")
	require.Equal(t, 503, ready)
	target.signal(t, syscall.SIGCONT)
	pmnbd.waitReady(t)
	h.run(t, "pmnbd", "status", "--check")
}

// health asks the control socket of p, which serves export a.
func health(t *testing.T, h host, p *process, path string) (code int, text string) {
	t.Helper()
	socket := filepath.Join(h.home, "run", "a-"+strconv.Itoa(p.cmd.Process.Pid)+".sock")
	client := http.Client{Timeout: outer, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", socket)
	}}}
	res, err := client.Get("http://pmnbd" + path)
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res.StatusCode, string(body)
}
