package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKeys gives both daemons keys, and new ones by SIGHUP without a restart; for a while the
// target takes two keys. A wrong key disturbs only a session that has to come back, which
// waits. An initiator that starts with a wrong key is told so, and the target logs it.
func TestKeys(t *testing.T) {
	t.Parallel()
	const id = "6f9619ff-8b86-d011-b42d-00c04fc964ff"
	h := newHost(t)
	old, next := strings.Repeat("0123456789abcdef", 4), strings.Repeat("fedcba9876543210", 5)
	write := func(name string, keys ...string) string {
		path, text := filepath.Join(h.home, name), ""
		for _, key := range keys {
			text += id + " pm1 " + key + "\n"
		}
		require.NoError(t, os.WriteFile(path+".new", []byte(text), 0o600))
		require.NoError(t, os.Rename(path+".new", path))
		return path
	}
	targets, own := write("target.keys", old), write("initiator.key", old)
	region := h.region(t, "log", "4M")
	target := start(t, h.home, "pmnbd-target", "serve", "--listen", "iwarp://127.0.0.1:0", "--region", "log="+region, "--key-file", targets, "--name", "pm1")
	at := target.waitReady(t)[0]

	code, _, errs := h.result(t, "pmnbd", "serve", "--target", at+"/log", "--listen", "unix:"+filepath.Join(h.home, "x.sock"), "--id", id)
	require.Equal(t, 1, code)
	require.Contains(t, errs, "the target asks for a key: give this initiator's with --key-file")
	code, _, errs = h.result(t, "pmnbd", "serve", "--target", at+"/log", "--listen", "unix:"+filepath.Join(h.home, "x.sock"), "--id", id, "--key-file", write("wrong", next))
	require.Equal(t, 1, code)
	require.Contains(t, errs, "authentication refused")
	target.waitLog(t, "session refused")
	target.waitLog(t, "authentication refused")

	p, _, _ := h.initiator(t, at, "log", "--id", id, "--key-file", own, "--lanes", "3")
	reload := func(p *process, log string) {
		t.Helper()
		p.signal(t, syscall.SIGHUP)
		p.waitLog(t, log)
	}
	require.NoError(t, os.Chmod(targets, 0o644))
	reload(target, "nothing changed")
	write("target.keys", old, next)
	reload(target, "read again")
	write("initiator.key", next)
	reload(p, "read again")
	write("target.keys", next)
	target.stop(t)
	p.waitLog(t, "the session is interrupted")
	target = start(t, h.home, "pmnbd-target", "serve", "--listen", at, "--region", "log="+region, "--key-file", targets, "--name", "pm1")
	target.waitReady(t)
	p.waitLog(t, "the session goes on")
	p.stop(t)
	target.stop(t)
}

// TestTakeover lets a second initiator take the region of a living one. Both logs must say so.
func TestTakeover(t *testing.T) {
	t.Parallel()
	h, other := newHost(t), newHost(t)
	target, at := h.target(t, "log="+h.region(t, "log", "4M"))
	first, _, _ := h.initiator(t, at, "log")
	code, _, errs := other.result(t, "pmnbd", "serve", "--target", at+"/log", "--listen", "unix:"+filepath.Join(other.home, "x.sock"))
	require.Equal(t, 1, code)
	require.Contains(t, errs, "region busy, held by ")
	second, _, _ := other.initiator(t, at, "log", "--takeover")
	second.waitLog(t, "TAKING THE REGION OVER")
	target.waitLog(t, "REGION TAKEN OVER")
	first.waitLog(t, "had another owner since")
	taker, err := os.ReadFile(filepath.Join(other.home, "initiator-id"))
	require.NoError(t, err)
	says := "FAILED: device failed: initiator " + strings.TrimSpace(string(taker)) + " has had the region since"
	first.waitLog(t, "the device failed for good")
	status := h.run(t, "pmnbd", "status")
	require.Contains(t, status, says)
	require.Contains(t, status, "unmount or detach the device, then start pmnbd with --accept-loss")
	second.stop(t)
	first.kill(t)
	target.stop(t)
}

// TestHangUpWithoutKeys checks that SIGHUP ends no daemon that has nothing to read again.
func TestHangUpWithoutKeys(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	target, uri := h.target(t, "r="+h.region(t, "r", "16M"))
	pmnbd, unix, _ := h.initiator(t, uri, "r")
	for _, p := range []*process{target, pmnbd} {
		p.signal(t, syscall.SIGHUP)
		p.waitLog(t, "there is nothing to read again")
	}
	data := noise(t, 4096)
	c := dialNBD(t, unix)
	require.NoError(t, c.write(0, data))
	require.NoError(t, c.flush())
	c.close()
	pmnbd.stop(t)
	target.stop(t)
}
