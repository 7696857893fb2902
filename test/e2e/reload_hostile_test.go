package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A reloadRig is a pmnbd with a file, and exports one and two of two targets. Its client of export one
// goes on whatever a reload does.
type reloadRig struct {
	host
	targets  map[string]*process // by export
	uris     map[string]string   // of the regions
	file     string
	listen   string // a line of the file
	socket   string
	pmnbd    *process
	data     []byte
	client   *conn
	settings string // more lines
}

// newReloadRig starts a pmnbd with some of the exports, and more flags.
func newReloadRig(t *testing.T, settings string, exports []string, more ...string) *reloadRig {
	t.Helper()
	h := newHost(t)
	r := &reloadRig{
		host: h, file: filepath.Join(h.home, "pmnbd.toml"), socket: filepath.Join(h.home, "s"), data: noise(t, 4096), settings: settings,
		targets: make(map[string]*process), uris: make(map[string]string),
	}
	r.listen = fmt.Sprintf("listen = [\"unix:%s\"]\n", r.socket)
	for _, name := range []string{"one", "two"} {
		far := newHost(t)
		p, uri := far.target(t, name+"="+far.region(t, name, "16M"))
		r.targets[name], r.uris[name] = p, uri+"/"+name
	}
	r.has(t, exports...)
	r.pmnbd = start(t, h.home, "pmnbd", append([]string{"serve", "--config", r.file}, more...)...)
	r.pmnbd.waitReady(t)
	r.client = dialNBD(t, r.at("one"))
	return r
}

func (r *reloadRig) at(export string) string { return "nbd+unix:///" + export + "?socket=" + r.socket }

// has writes the file: it has exports of these regions.
func (r *reloadRig) has(t *testing.T, exports ...string) {
	t.Helper()
	text := r.settings + r.listen
	for _, name := range exports {
		text += fmt.Sprintf("[[export]]\ntarget = %q\n", r.uris[name])
	}
	written(t, r.file, "%s", text)
}

// works writes and flushes on export one.
func (r *reloadRig) works(t *testing.T) {
	t.Helper()
	require.NoError(t, r.client.write(0, r.data))
	require.NoError(t, r.client.flush())
}

// fails requires that a reload fails, with what it says.
func (r *reloadRig) fails(t *testing.T, says string) {
	t.Helper()
	code, _, stderr := r.result(t, "pmnbd", "reload")
	require.Equal(t, 1, code, stderr)
	require.Contains(t, stderr, says)
	r.works(t)
}

// leaves writes to export two without a FLUSH that could end, since its target does not answer.
func (r *reloadRig) leaves(t *testing.T) {
	t.Helper()
	r.targets["two"].signal(t, syscall.SIGSTOP)
	c := dialNBD(t, r.at("two"))
	require.NoError(t, c.write(0, r.data))
	c.close()
	r.unused(t)
}

// unused waits until export two has no client.
func (r *reloadRig) unused(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, x := range r.exports(t) {
			if x.Name == "two" && x.Connections > 0 {
				return false
			}
		}
		return true
	}, outer, 10*time.Millisecond)
}

// kept requires that export two has what was acknowledged.
func (r *reloadRig) kept(t *testing.T) {
	t.Helper()
	got := make([]byte, len(r.data))
	c := dialNBD(t, r.at("two"))
	require.NoError(t, c.read(0, got))
	require.Equal(t, r.data, got)
	c.close()
}

func (r *reloadRig) end(t *testing.T) {
	t.Helper()
	r.client.close()
	r.pmnbd.stop(t)
	for _, p := range r.targets {
		p.stop(t)
	}
}

// TestReloadWithoutATarget removes an export whose target is away. What that lacks is in the window, and a
// reload that adds the export sends it.
func TestReloadWithoutATarget(t *testing.T) {
	t.Parallel()
	r := newReloadRig(t, "drain-timeout = \"2s\"\n", []string{"one", "two"})
	r.leaves(t)
	r.has(t, "one")
	r.fails(t, "4096 bytes that were acknowledged are not flushed")
	r.pmnbd.waitLog(t, "reload: what was removed did not end in order")
	require.Len(t, r.exports(t), 1, "it is removed all the same")
	r.targets["two"].signal(t, syscall.SIGCONT)
	r.has(t, "one", "two")
	code, _, _ := r.result(t, "pmnbd", "status", "two")
	require.Equal(t, 1, code, "nothing of it is shown once it has ended")
	require.Contains(t, r.run(t, "pmnbd", "reload"), "added two")
	r.works(t)
	r.kept(t)
	r.end(t)
}

// TestReloadAndEnd ends pmnbd while a reload waits for the target of what it removes. A second signal does
// not wait for that, either, and says what it costs.
func TestReloadAndEnd(t *testing.T) {
	t.Parallel()
	r := newReloadRig(t, "drain-timeout = \"1h\"\n", []string{"one", "two"})
	r.leaves(t)
	r.has(t, "one")
	r.pmnbd.signal(t, syscall.SIGHUP)
	require.Eventually(t, func() bool { return len(r.exports(t)) == 1 }, outer, 10*time.Millisecond)
	require.Contains(t, r.run(t, "pmnbd", "status", "two"), "export two: REMOVED by a reload, 4K not flushed yet")
	documented(t, r.run(t, "pmnbd", "status", "--json"))
	_, stdout, _ := r.result(t, "pmnbd", "status", "--check")
	require.Regexp(t, `export two: (serving|waiting) since .*a reload removes it, 4K not flushed yet`, stdout)
	r.works(t)
	r.pmnbd.signal(t, syscall.SIGTERM)
	r.pmnbd.waitLog(t, `"draining"`)
	r.pmnbd.signal(t, syscall.SIGTERM)
	require.Equal(t, 1, r.pmnbd.wait(t))
	require.Contains(t, r.pmnbd.stderr.String(), "terminated while a reload was ending: 4096 bytes that were acknowledged are not flushed")
	r.targets["two"].signal(t, syscall.SIGCONT)
	require.NoError(t, os.Remove(r.socket))
	r.has(t, "one", "two")
	r.pmnbd = start(t, r.home, "pmnbd", "serve", "--config", r.file)
	r.pmnbd.waitReady(t)
	r.client = dialNBD(t, r.at("one"))
	r.kept(t)
	r.end(t)
}

// TestReloadDecidesNothing: a pmnbd that was started with --accept-loss does not accept, weeks later, what an
// export lost that a reload adds.
func TestReloadDecidesNothing(t *testing.T) {
	t.Parallel()
	r := newReloadRig(t, "", []string{"one"}, "--accept-loss")
	other := start(t, r.home, "pmnbd", "serve", "--target", r.uris["two"], "--listen", "unix:"+filepath.Join(r.home, "other"))
	c := dialNBD(t, other.waitReady(t)[0])
	all := r.exports(t)
	own := all[slices.IndexFunc(all, func(x exportStatus) bool { return x.Name == "two" })].Device.UUID
	r.targets["two"].signal(t, syscall.SIGSTOP)
	require.NoError(t, c.write(0, r.data))
	other.kill(t)
	r.targets["two"].signal(t, syscall.SIGCONT)
	windows, err := filepath.Glob(filepath.Join(r.home, "*.window"))
	require.NoError(t, err)
	require.Len(t, windows, 2)
	lost := slices.IndexFunc(windows, func(w string) bool { return strings.Contains(w, own) })
	require.NoError(t, os.Remove(windows[lost]))
	r.has(t, "one", "two")
	r.fails(t, "a reload decides nothing of the kind: serve the export once by a pmnbd of its own with that flag")
	require.Len(t, r.exports(t), 1)
	once := start(t, r.home, "pmnbd", "serve", "--target", r.uris["two"], "--listen", "unix:"+filepath.Join(r.home, "once"), "--accept-loss")
	once.waitReady(t)
	once.stop(t)
	require.Contains(t, r.run(t, "pmnbd", "reload"), "added two", "as it says")
	r.works(t)
	r.end(t)
}

// TestReloadOfOneProcess reloads one of two processes while the other hangs: that is no failure of the first one.
func TestReloadOfOneProcess(t *testing.T) {
	t.Parallel()
	r := newReloadRig(t, "", []string{"one"})
	other := start(t, r.home, "pmnbd", "serve", "--target", r.uris["two"], "--listen", "unix:"+filepath.Join(r.home, "other"))
	other.waitReady(t)
	other.signal(t, syscall.SIGSTOP)
	pid := fmt.Sprint(r.pmnbd.cmd.Process.Pid)
	require.Equal(t, "process "+pid+": nothing has changed\n", r.run(t, "pmnbd", "reload", "--pid", pid))
	code, stdout, stderr := r.result(t, "pmnbd", "reload")
	require.Equal(t, 1, code, "of all, one does not answer")
	require.Contains(t, stdout, "process "+pid+": nothing has changed")
	require.Contains(t, stderr, "does not answer")
	code, _, stderr = r.result(t, "pmnbd", "reload", "--pid", "1")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "no pmnbd has process id 1")
	other.signal(t, syscall.SIGCONT)
	other.stop(t)
	r.end(t)
}
