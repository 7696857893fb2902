package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestConfigurationFile configures a target by its file alone. An initiator that the file
// allows gets the region, another is told that it is not allowed, and a flag overrides the
// file.
func TestConfigurationFile(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	const alice, bob = "6ba7b810-9dad-41d1-80b4-00c04fd430c8", "6ba7b811-9dad-41d1-80b4-00c04fd430c8"
	path := filepath.Join(h.disk, "log")
	file := filepath.Join(h.home, "target.toml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
listen = ["iwarp://127.0.0.1:1"]

[[region]]
name = "log"
path = %q
size = "16M"
allow = [%q]
`, path, alice), 0o600))

	require.Equal(t, "ok: 1 region, 1 listener\n", h.run(t, "pmnbd-target", "serve", "--config", file, "--check"))
	require.NoFileExists(t, path, "--check must change nothing")
	var platform struct {
		Regions []struct{ Name, Path, Note string }
	}
	require.NoError(t, json.Unmarshal([]byte(h.run(t, "pmnbd-target", "inspect-platform", "--config", file, "--json")), &platform))
	require.Len(t, platform.Regions, 1)
	require.Equal(t, path, platform.Regions[0].Path)
	require.Contains(t, platform.Regions[0].Note, "serve makes it")

	target := start(t, h.home, "pmnbd-target", "serve", "--config", file, "--listen", "iwarp://127.0.0.1:0")
	uri := target.waitReady(t)[0]
	code, _, stderr := h.result(t, "pmnbd", "serve", "--target", uri+"/log", "--listen", "unix:"+filepath.Join(h.home, "s"), "--id", bob)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "initiator not allowed")
	require.Contains(t, stderr, bob)
	pmnbd, unix, _ := h.initiator(t, uri, "log", "--id", alice)
	c := dialNBD(t, unix)
	require.NoError(t, c.write(0, noise(t, 4096)))
	require.NoError(t, c.flush())
	c.close()
	pmnbd.stop(t)
	target.stop(t)
}
