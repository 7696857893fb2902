package e2e

import (
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/internal/testhost"
)

// TestVolatile checks that a region of class volatile is served with the flag at both ends. TestMistakes has
// what they say without it.
func TestVolatile(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	path := filepath.Join(testhost.Memory(t), "vol")
	h.run(t, "pmnbd-target", "region", "create", "vol", path, "--size", "16M")
	target := start(t, h.home, "pmnbd-target", "serve", "--listen", "iwarp://127.0.0.1:0", "--region", "vol="+path, "--allow-volatile")
	uri := target.waitReady(t)[0]
	pmnbd, unix, _ := h.initiator(t, uri, "vol", "--allow-volatile")
	c := dialNBD(t, unix)
	data := noise(t, 1<<20)
	require.NoError(t, c.write(0, data))
	require.NoError(t, c.flush())
	got := make([]byte, len(data))
	require.NoError(t, c.read(0, got))
	require.Equal(t, data, got)
	c.close()
	pmnbd.stop(t)
	target.stop(t)
}

func TestHelp(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for _, tc := range []struct {
		args []string
		says []string
	}{
		{[]string{"pmnbd", "--help"}, []string{"serve"}},
		{[]string{"pmnbd", "--version"}, []string{"pmnbd ", "protocol ", runtime.GOARCH}},
		{[]string{"pmnbd", "-V"}, []string{"pmnbd ", "protocol "}},
		{[]string{"pmnbd-target", "-V"}, []string{"pmnbd-target ", "protocol "}},
		{[]string{"pmnbd-target", "--version"}, []string{"pmnbd-target ", "protocol ", runtime.GOARCH}},
		{[]string{"pmnbd", "serve", "--help"}, []string{"--target", "--listen", "--export", "--window", "--allow-volatile", "iwarp://", "unix:", "tcp:"}},
		{[]string{"pmnbd-target", "--help"}, []string{"serve", "region"}},
		{[]string{"pmnbd-target", "serve", "--help"}, []string{"--listen", "--region", "--allow-volatile", "NAME=PATH"}},
		{[]string{"pmnbd-target", "region", "--help"}, []string{"create", "inspect", "clear"}},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			code, stdout, stderr := h.result(t, tc.args[0], tc.args[1:]...)
			require.Zero(t, code)
			require.Empty(t, stderr)
			for _, s := range tc.says {
				require.Contains(t, stdout, s)
			}
		})
	}
}

// TestExportName checks that --export replaces the region's name, also as the default export.
func TestExportName(t *testing.T) {
	t.Parallel()
	need(t, nbdinfo)
	h := newHost(t)
	path := h.region(t, "inner", "16M")
	_, uri := h.target(t, "inner="+path)
	socket := filepath.Join(h.home, "s")
	p := start(t, h.home, "pmnbd", "serve", "--target", uri+"/inner", "--listen", "unix:"+socket, "--export", "outer")
	require.Equal(t, []string{"nbd+unix:///outer?socket=" + socket}, p.waitReady(t))
	for _, name := range []string{"outer", ""} {
		require.Contains(t, nbdinfo.run(t, "--size", "nbd+unix:///"+name+"?socket="+socket), "16777216")
	}
	require.Contains(t, nbdinfo.run(t, "--list", "nbd+unix:///?socket="+socket), `export="outer"`)
}
