package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// written writes a configuration file.
func written(t *testing.T, path, format string, args ...any) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, format, args...), 0o600))
}

// TestReloadTarget adds and removes regions, and changes who may have one, beside a session that goes
// on.
func TestReloadTarget(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	file, one, two := filepath.Join(h.home, "target.toml"), filepath.Join(h.disk, "one"), filepath.Join(h.disk, "two")
	listen := "listen = [\"iwarp://127.0.0.1:0\"]\n"
	region := "[[region]]\nname = %q\npath = %q\nsize = \"16M\"\n"
	first := fmt.Sprintf(region, "one", one)
	second := fmt.Sprintf(region, "two", two)
	written(t, file, "%s", listen+first)
	target := start(t, h.home, "pmnbd-target", "serve", "--config", file)
	uri := target.waitReady(t)[0]
	pmnbd, unix, _ := h.initiator(t, uri, "one")
	c := dialNBD(t, unix)
	works := func() {
		t.Helper()
		require.NoError(t, c.write(0, noise(t, 4096)))
		require.NoError(t, c.flush())
	}
	reload := func(says string) {
		t.Helper()
		require.Contains(t, h.run(t, "pmnbd-target", "reload"), says)
		works()
	}
	refuses := func(says ...string) {
		t.Helper()
		was := h.run(t, "pmnbd-target", "status")
		code, _, stderr := h.result(t, "pmnbd-target", "reload")
		require.Equal(t, 1, code)
		for _, s := range says {
			require.Contains(t, stderr, s)
		}
		require.Equal(t, strings.Count(was, "region "), strings.Count(h.run(t, "pmnbd-target", "status"), "region "))
		works()
	}
	epoch := func() uint64 { return statusOf[targetStatus](t, h, "pmnbd-target", "status")[0].Regions[0].Epoch }
	before := epoch()

	reload("nothing has changed")
	written(t, file, "%s", listen+first+second)
	target.signal(t, syscall.SIGHUP)
	target.waitLog(t, `"added":["two"]`)
	other, _, _ := h.initiator(t, uri, "two")
	other.stop(t)

	written(t, file, "%s", listen+first+"allow = [\"6ba7b811-9dad-41d1-80b4-00c04fd430c8\"]\n"+second)
	reload("changed one")
	written(t, file, "%s", listen+second)
	refuses("region one is held by initiator")
	written(t, file, "%s", listen+first)
	reload("removed two; changed one")
	code, _, stderr := h.result(t, "pmnbd", "serve", "--target", uri+"/two", "--listen", "unix:"+filepath.Join(h.home, "s"))
	require.Equal(t, 1, code)
	require.Contains(t, stderr, `the target serves no region "two"`)

	written(t, file, "lanez = 1\nspin = 3\n%s", listen+first)
	refuses("lanez", "spin takes")
	written(t, file, "metrics = 0\n%s", listen+first)
	refuses("a change of metrics takes a restart")
	made := filepath.Join(h.disk, "made")
	written(t, file, "%s", listen+first+fmt.Sprintf(region, "made", made)+fmt.Sprintf(region, "bad", "/nonexistent/bad"))
	refuses("region bad: ")
	require.NoFileExists(t, made, "what it had made is gone again")
	require.Equal(t, before, epoch(), "the session is what it was")
	c.close()
	pmnbd.stop(t)
	target.stop(t)
}

// TestReloadInitiator adds and removes exports beside a client that stays.
func TestReloadInitiator(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	target, uri := h.target(t, "one="+h.region(t, "one", "16M"), "two="+h.region(t, "two", "16M"))
	file, socket := filepath.Join(h.home, "pmnbd.toml"), filepath.Join(h.home, "s")
	listen := fmt.Sprintf("listen = [\"unix:%s\"]\n", socket)
	export := func(name string) string { return fmt.Sprintf("[[export]]\ntarget = %q\n", uri+"/"+name) }
	written(t, file, "%s", listen+export("one"))
	pmnbd := start(t, h.home, "pmnbd", "serve", "--config", file)
	at := func(name string) string { return "nbd+unix:///" + name + "?socket=" + socket }
	c := dialNBD(t, pmnbd.waitReady(t)[0])
	data := noise(t, 4096)
	works := func() {
		t.Helper()
		require.NoError(t, c.write(0, data))
		require.NoError(t, c.flush())
	}
	reload := func(says string) {
		t.Helper()
		require.Contains(t, h.run(t, "pmnbd", "reload"), says)
		works()
	}
	refuses := func(exports int, says string) {
		t.Helper()
		code, _, stderr := h.result(t, "pmnbd", "reload")
		require.Equal(t, 1, code)
		require.Contains(t, stderr, says)
		require.Len(t, h.exports(t), exports)
		works()
	}
	reload("nothing has changed")
	written(t, file, "%s", listen+export("one")+export("two"))
	pmnbd.signal(t, syscall.SIGHUP)
	pmnbd.waitLog(t, `"added":["two"]`)
	two := dialNBD(t, at("two"))
	require.NoError(t, two.write(0, data)) // and no FLUSH
	written(t, file, "%s", listen+export("one"))
	refuses(2, `export "two" has clients (1)`)
	two.close()
	written(t, file, "%s", listen+export("one")+export("no"))
	refuses(2, `export "no": `)
	written(t, file, "lanes = 2\n%s", listen+export("one"))
	refuses(2, "a change of lanes takes a restart")
	written(t, file, "%s", listen+"[[export]]\nname = \"one\"\ntarget = \""+uri+"/two\"\n")
	refuses(2, "has other targets in the file")

	require.Eventually(t, func() bool { return h.exports(t)[1].Connections == 0 }, outer, 10*time.Millisecond)
	written(t, file, "%s", listen+export("one"))
	reload("removed two")
	require.Len(t, h.exports(t), 1)
	written(t, file, "%s", listen+export("two")+export("one"))
	reload("added two")
	got := make([]byte, len(data))
	two = dialNBD(t, at("two"))
	require.NoError(t, two.read(0, got))
	require.Equal(t, data, got, "what was not flushed was, before the export ended")
	two.close()
	c.close()
	pmnbd.stop(t)
	target.stop(t)
}
