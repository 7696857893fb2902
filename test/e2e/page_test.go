package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// browse has headless Chromium look at a page for some seconds of the page's own time, and returns
// the document as it is then. With PMNBD_SCREENSHOTS, a directory, it leaves a picture there.
func browse(t *testing.T, url, name string) string {
	t.Helper()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("Debian's chromium is missing: scripts/install-deps test")
	}
	args := []string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
		"--user-data-dir=" + t.TempDir(), "--window-size=1280,1050", "--virtual-time-budget=13000",
	}
	ctx, cancel := context.WithTimeout(t.Context(), outer)
	defer cancel()
	run := func(what string) string {
		t.Helper()
		cmd := exec.CommandContext(ctx, chromium, append(args, what, url)...)
		cmd.WaitDelay = outer
		code, stdout, stderr := output(t, cmd)
		require.Zero(t, code, stderr)
		return stdout
	}
	if dir := os.Getenv("PMNBD_SCREENSHOTS"); dir != "" {
		run("--screenshot=" + filepath.Join(dir, name+".png"))
	}
	return run("--dump-dom")
}

// TestPage looks at the status pages of both daemons while a client works: they draw what /metrics
// says, poll by poll, without an error and without anything from elsewhere.
func TestPage(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	target := start(t, h.home, "pmnbd-target", "serve", "--listen", "iwarp://127.0.0.1:0", "--metrics", "0", "--region", "log="+h.region(t, "log", "16M"))
	uri := target.waitReady(t)[0]
	pmnbd, unix, _ := h.initiator(t, uri, "log", "--metrics", "0")
	address := func(p *process) string {
		p.waitLog(t, "metrics are served")
		return regexp.MustCompile(`(http://127\.0\.0\.1:[0-9]+)/metrics`).FindStringSubmatch(p.stderr.String())[1] + "/"
	}
	c, ctx := dialNBD(t, unix), t.Context()
	stop, stopped := make(chan struct{}), make(chan error, 1)
	data := noise(t, 4096)
	go func() {
		for n := uint64(0); ctx.Err() == nil; n++ {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			err := c.write(n%1024*4096, data)
			if err == nil && n%8 == 0 {
				err = c.flush()
			}
			if err != nil {
				stopped <- err
				return
			}
		}
	}()
	looked := func(dom, title string, lines ...string) {
		t.Helper()
		require.Contains(t, dom, "<title>"+title+" 127.0.0.1:")
		require.NotContains(t, dom, "data-error")
		require.NotRegexp(t, `(?:src|href)="(?:https?:)?//`, dom, "nothing from elsewhere")
		polls := regexp.MustCompile(`data-polls="(\d+)"`).FindStringSubmatch(dom)
		require.NotNil(t, polls)
		n, err := strconv.Atoi(polls[1])
		require.NoError(t, err)
		require.GreaterOrEqual(t, n, 3)
		for _, l := range lines {
			points := regexp.MustCompile(`data-line="` + l + `" data-points="(\d+)"`).FindStringSubmatch(dom)
			require.NotNil(t, points, l)
			require.NotEqual(t, "0", points[1], "%s: a line", l)
		}
	}
	dom := browse(t, address(pmnbd), "pmnbd")
	looked(dom, "pmnbd", "FLUSH p99", "WRITE p50", "READ", "memory", "clients")
	require.Regexp(t, `<p class="serving">export log: serving since `, dom)
	require.Contains(t, dom, "log: region log at 127.0.0.1:")
	dom = browse(t, address(target), "pmnbd-target")
	looked(dom, "pmnbd-target", "fdatasync p99", "barriers", "lanes")
	require.Contains(t, dom, `<p class="serving">region log: serving</p>`)
	close(stop)
	require.NoError(t, <-stopped)

	target.kill(t)
	pmnbd.waitLog(t, "the session is interrupted")
	require.Regexp(t, `<p class="waiting">export log: waiting since `, browse(t, address(pmnbd), "waiting"))
}
