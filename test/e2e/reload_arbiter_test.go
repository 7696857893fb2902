package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/internal/etcdtest"
)

// TestReloadArbiter reloads a pmnbd that serves a mirror with an arbiter, and adds and removes another such mirror. What
// a reload removes another host can have at once; what another host has, or nobody can say because etcd is away, a
// reload waits for and then adds. The mirror that stays notices nothing.
func TestReloadArbiter(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	at := []string{"--arbiter", "etcd://" + etcd.Addr}
	stays, moves := newMirrorRig(t, 2, at...), newMirrorRig(t, 2, at...)
	h, file := stays.host, filepath.Join(stays.home, "pmnbd.toml")
	socket := filepath.Join(h.home, "s")
	has := func(rigs ...*mirrorRig) {
		text := fmt.Sprintf("listen = [\"unix:%s\"]\narbiter = \"etcd://%s\"\narbiter-lease = \"2s\"\nstandby = true\n", socket, etcd.Addr)
		for _, r := range rigs {
			name := "stays"
			if r == moves {
				name = "moves"
			}
			text += fmt.Sprintf("[[export]]\nname = %q\ntarget = [%q, %q]\n", name, r.legs[0].at(), r.legs[1].at())
		}
		written(t, file, "%s", text)
	}
	dial := func(name string) *conn { return dialNBD(t, "nbd+unix:///"+name+"?socket="+socket) }
	has(stays)
	pmnbd := start(t, h.home, "pmnbd", "serve", "--config", file)
	pmnbd.waitReady(t)
	c := dial("stays")
	works := func() {
		t.Helper()
		require.NoError(t, c.write(0, blockOf(1)))
		require.NoError(t, c.flush())
	}
	reload := func(says string) {
		t.Helper()
		require.Contains(t, h.run(t, "pmnbd", "reload"), says)
		works()
	}
	// waits begins a reload that waits, and returns what ends it and requires what it says.
	waits := func(why string) (ends func(says string)) {
		t.Helper()
		var out strings.Builder
		p := command(t, h.home, "pmnbd", "reload")
		p.Stdout, p.Stderr = &out, &out
		require.NoError(t, p.Start())
		require.Eventually(t, func() bool {
			_, stdout, _ := h.result(t, "pmnbd", "status", "moves")
			return strings.Contains(stdout, why)
		}, outer, 50*time.Millisecond, "it does not wait")
		works()
		return func(says string) {
			t.Helper()
			require.NoError(t, p.Wait(), out.String())
			require.Contains(t, out.String(), says)
			works()
		}
	}
	removed := func() {
		t.Helper()
		has(stays)
		require.Eventually(t, func() bool {
			code, stdout, _ := h.result(t, "pmnbd", "reload")
			return code == 0 && strings.Contains(stdout, "removed moves") // once the client has left
		}, outer, 10*time.Millisecond)
		works()
	}
	contains := func(m *conn, want []byte) {
		t.Helper()
		got := make([]byte, len(want))
		require.NoError(t, m.read(0, got))
		require.Equal(t, want, got)
	}
	away := newHost(t)
	elsewhere := func(more ...string) *process {
		return start(t, away.home, "pmnbd", append([]string{"serve", "--target", moves.targets(), "--listen", "unix:" + filepath.Join(away.home, "s"),
			"--arbiter", "etcd://" + etcd.Addr, "--arbiter-lease", "2s", "--standby"}, more...)...)
	}
	reload("nothing has changed")
	other := elsewhere()
	m := dialNBD(t, other.waitReady(t)[0])
	require.NoError(t, m.write(0, blockOf(2)))
	m.close()
	has(stays, moves)
	added := waits("standby: ")
	other.stop(t)
	added("added moves")
	m = dial("moves")
	contains(m, blockOf(2))
	m.close()

	etcd.Kill()
	removed()
	has(stays, moves)
	added = waits("etcd does not answer")
	etcd.Run(t)
	added("added moves")
	m = dial("moves")
	contains(m, blockOf(2))
	require.NoError(t, m.write(0, blockOf(3))) // and no FLUSH
	m.close()

	other = elsewhere("--accept-loss") // it had the mirror, and its clients know
	other.waitLog(t, "standby: ")
	removed()
	m = dialNBD(t, other.waitReady(t)[0])
	contains(m, blockOf(3))
	has(stays, moves)
	waits("standby: ")
	c.close()
	pmnbd.stop(t) // beside the reload
	m.close()
	other.stop(t)
}
