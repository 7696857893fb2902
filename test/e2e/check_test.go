package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestConfigurationFileOfInitiator configures a pmnbd by its file alone; a flag overrides it.
func TestConfigurationFileOfInitiator(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	_, uri := h.target(t, "one="+h.region(t, "one", "16M"), "two="+h.region(t, "two", "16M"))
	file, socket, other := filepath.Join(h.home, "pmnbd.toml"), filepath.Join(h.home, "s"), filepath.Join(h.home, "o")
	require.NoError(t, os.WriteFile(file, []byte(`
listen = ["unix:`+socket+`"]
window = "8M"
[[export]]
name = "first"
target = "`+uri+`/one"
[[export]]
target = "`+uri+`/two"
`), 0o600))
	require.Equal(t, "ok: 2 exports, 1 listener\n", h.run(t, "pmnbd", "serve", "--config", file, "--check"))
	p := start(t, h.home, "pmnbd", "serve", "--config", file, "--listen", "unix:"+other)
	require.Equal(t, []string{"nbd+unix:///first?socket=" + other, "nbd+unix:///two?socket=" + other}, p.waitReady(t))
	require.Len(t, h.exports(t), 2)
	p.stop(t)
}

// TestCheckListsEverything checks files with several mistakes: --check of both programs names each,
// and leaves with 2.
func TestCheckListsEverything(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for _, c := range []struct{ program, file, says string }{
		{"pmnbd", "lanez = 1\nwindow = true\n[[export]]\ntarget = 3\n",
			"FILE:1: unknown key \"lanez\": docs/configuration.md has all of them\nFILE:2: window takes a size in quotes, or bytes: window = \"64M\"\nFILE:4: export.target takes an address in quotes: target = \"iwarp://pm1/log\", or a list of a mirror's members\n"},
		{"pmnbd", "lanes = 99\nsocket-mode = \"9\"\n",
			"no region: name it with --target iwarp://HOST:PORT/REGION, or below an [[export]] in the file of --config\n--lanes 99: use 1 to 16\n--socket-mode \"9\": use three octal digits, such as 660\n"},
		{"pmnbd-target", "metrics = true\nspin = 3\n",
			"FILE:1: metrics takes a port, or an address in quotes: metrics = \"127.0.0.1:9204\"\nFILE:2: spin takes a duration in quotes: spin = \"50us\"\n"},
		{"pmnbd-target", "listen = [\"iwarp://0.0.0.0\"]\n[[region]]\nname = \"a b\"\npath = \"/x\"\n",
			"region \"a b\": region name \"a b\": use letters, digits, '.', '_' and '-', and begin with a letter or digit\niwarp://0.0.0.0:7204 is not a loopback address: use --key-file, so that sessions authenticate, or --insecure-no-auth on a network of your own\n"},
	} {
		file := filepath.Join(h.home, "f.toml")
		require.NoError(t, os.WriteFile(file, []byte(c.file), 0o600))
		code, stdout, stderr := h.result(t, c.program, "serve", "--config", file, "--check")
		require.Equal(t, 2, code)
		require.Empty(t, stdout)
		require.Equal(t, c.says, strings.ReplaceAll(stderr, file, "FILE"))
	}
	code, _, stderr := h.result(t, "pmnbd", "serve", "--config", "/nonexistent", "--check")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "no such file")
}
