package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
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
	c := dialNBD(t, unix)
	stop, stopped := make(chan struct{}), make(chan error, 1)
	data := noise(t, 4096)
	go func() {
		for n := uint64(0); ; n++ {
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
	end := sync.OnceValue(func() error {
		close(stop)
		return <-stopped
	})
	t.Cleanup(func() { _ = end() }) // the client is closed behind it
	// The page's clock runs ahead of ours: on a busy host all of its polls may be over before anything was written.
	look := func(p *process, title string, lines ...string) (dom string) {
		t.Helper()
		url := address(p)
		for range 20 {
			dom = browse(t, url, title)
			require.Contains(t, dom, "<title>"+title+" 127.0.0.1:")
			require.NotContains(t, dom, "data-error")
			require.NotRegexp(t, `(?:src|href)="(?:https?:)?//`, dom, "nothing from elsewhere")
			polls := regexp.MustCompile(`data-polls="(\d+)"`).FindStringSubmatch(dom)
			require.NotNil(t, polls)
			n, err := strconv.Atoi(polls[1])
			require.NoError(t, err)
			require.GreaterOrEqual(t, n, 3)
			drawn := true
			for _, l := range lines {
				points := regexp.MustCompile(`data-line="` + l + `" data-points="(\d+)"`).FindStringSubmatch(dom)
				require.NotNil(t, points, l)
				drawn = drawn && points[1] != "0"
			}
			if drawn {
				return dom
			}
		}
		require.Fail(t, "a line has no point", dom)
		return dom
	}
	dom := look(pmnbd, "pmnbd", "FLUSH p99", "WRITE p50", "READ", "memory", "clients")
	require.Regexp(t, `<p class="serving">export log: serving since `, dom)
	require.Contains(t, dom, "log: region log at 127.0.0.1:")
	dom = look(target, "pmnbd-target", "fdatasync p99", "barriers", "lanes")
	require.Contains(t, dom, `<p class="serving">region log: serving</p>`)
	require.NoError(t, end())

	target.kill(t)
	pmnbd.waitLog(t, "the session is interrupted")
	require.Regexp(t, `<p class="waiting">export log: waiting since `, browse(t, address(pmnbd), "waiting"))
}
