package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestReloadMirror adds a mirror to a pmnbd that serves a region, changes its members beside reloads, whose file is
// behind or ahead, and removes the key of a target that is no member any more.
func TestReloadMirror(t *testing.T) {
	t.Parallel()
	const id = "6f9619ff-8b86-d011-b42d-00c04fc964ff"
	r := &mirrorRig{host: newHost(t), legs: make([]mirrorLeg, 3)}
	keys, file := filepath.Join(r.home, "keys"), filepath.Join(r.home, "pmnbd.toml")
	var lines []string
	for i := range r.legs {
		l := &r.legs[i]
		l.host, l.name = newHost(t), fmt.Sprintf("pm%d", i)
		lines = append(lines, r.run(t, "pmnbd-target", "key", "new", "--initiator", id, "--target", l.name))
		own := filepath.Join(l.home, "keys")
		require.NoError(t, os.WriteFile(own, []byte(lines[i]), 0o600))
		l.flags = []string{"--key-file", own, "--name", l.name}
		l.path = l.region(t, "rig", fmt.Sprint(mirrorSize))
		if i == 0 {
			l.flags = append(l.flags, "--region", "solo="+l.region(t, "solo", "16M"))
		}
		l.serve(t)
	}
	known := func(of ...int) {
		text := ""
		for _, i := range of {
			text += lines[i]
		}
		require.NoError(t, os.WriteFile(keys, []byte(text), 0o600))
	}
	known(0, 1, 2)
	who := []string{"--id", id, "--key-file", keys, "--state-dir", r.home}
	r.run(t, "pmnbd", append([]string{"mirror", "create", "--target", r.legs[0].at(), "--target", r.legs[1].at()}, who...)...)
	says := func(members ...int) {
		text := fmt.Sprintf("id = %q\nkey-file = %q\nlisten = [\"unix:%s\"]\n", id, keys, filepath.Join(r.home, "s"))
		text += fmt.Sprintf("[[export]]\ntarget = %q\n", strings.Replace(r.legs[0].at(), "/rig", "/solo", 1))
		var targets []string
		for _, i := range members {
			targets = append(targets, fmt.Sprintf("%q", r.legs[i].at()))
		}
		if len(targets) > 0 {
			text += fmt.Sprintf("[[export]]\nname = \"rig\"\ntarget = [%s]\n", strings.Join(targets, ", "))
		}
		written(t, file, "%s", text)
	}
	says()
	r.pmnbd = start(t, r.home, "pmnbd", "serve", "--config", file)
	solo := dialNBD(t, r.pmnbd.waitReady(t)[0])
	reload := func(want string) {
		t.Helper()
		require.Contains(t, r.run(t, "pmnbd", "reload"), want)
		require.NoError(t, solo.write(0, make([]byte, 512)))
	}
	refused := func(want string) {
		t.Helper()
		code, _, stderr := r.result(t, "pmnbd", "reload")
		require.Equal(t, 1, code)
		require.Contains(t, stderr, want)
	}
	says(0, 1)
	reload("added rig")
	c := dialNBD(t, "nbd+unix:///rig?socket="+filepath.Join(r.home, "s"))
	data := noise(t, 1<<20)
	require.NoError(t, c.write(0, data))
	require.NoError(t, c.flush())

	r.change(t, append([]string{"add", "rig"}, append(who, r.legs[2].at())...)...)
	r.awaitStates(t, "in sync, in sync, in sync", "ABC")
	reload("keys read again") // the file is behind
	says(0, 1, 2)
	reload("keys read again")
	r.change(t, "remove", "rig", r.legs[1].at())
	r.awaitStates(t, "in sync, in sync", "AC")
	reload("keys read again") // the file is behind again
	says(0, 1)
	refused("has other targets in the file")
	says(0, 2)
	known(0)
	refused("has no key of this initiator and target pm2")
	known(0, 2)
	reload("keys read again")
	require.NoError(t, c.flush())
	c.close()
	r.legs[1].end(t)
	says()
	require.Eventually(t, func() bool {
		code, stdout, _ := r.result(t, "pmnbd", "reload")
		return code == 0 && strings.Contains(stdout, "removed rig") // once the client has left
	}, outer, 10*time.Millisecond)
	says(0, 2)
	reload("added rig")
	got := make([]byte, len(data))
	c = dialNBD(t, "nbd+unix:///rig?socket="+filepath.Join(r.home, "s"))
	require.NoError(t, c.read(0, got))
	require.Equal(t, data, got)
	c.close()
	solo.close()
	r.pmnbd.stop(t)
}
