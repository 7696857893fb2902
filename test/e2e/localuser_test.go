package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/internal/testhost"
)

const (
	stranger = 65533 // a uid without a user
	nobody   = 65534 // the overflow uid, which stands for all uids that the kernel cannot map
)

// startAs is start as another user, with directories of its own.
func startAs(t *testing.T, uid uint32, name string, args func(h host) []string) *process {
	t.Helper()
	h := newHost(t)
	for _, dir := range []string{h.home, h.disk} {
		require.NoError(t, os.Chown(dir, int(uid), int(uid)))
	}
	cmd := command(t, h.home, name, args(h)...)
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: uid, NoSetGroups: true}
	return startCommand(t, cmd)
}

// TestOtherUsers checks that a target without keys serves, on loopback, root and its own user.
// Others need a key, or the operator's --insecure-no-auth.
func TestOtherUsers(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("running as another user needs root")
	}
	initiator := func(t *testing.T, uid uint32, uri string) *process {
		t.Helper()
		return startAs(t, uid, "pmnbd", func(h host) []string {
			return []string{"serve", "--target", uri + "/log", "--listen", "unix:" + filepath.Join(h.home, "x.sock")}
		})
	}
	taken := func(t *testing.T, uid uint32, uri string) {
		t.Helper()
		p := initiator(t, uid, uri)
		p.waitReady(t)
		p.stop(t)
	}
	refused := func(t *testing.T, uid uint32, uri string, target *process, why string) {
		t.Helper()
		p := initiator(t, uid, uri)
		require.Equal(t, 1, p.wait(t))
		require.Contains(t, p.stderr.String(), `connection refused by the peer: "without keys only root and the target's user are served"`)
		target.waitLog(t, why)
		target.waitLog(t, "give sessions keys with --key-file, or allow every user of this machine with --insecure-no-auth")
	}
	for uid, why := range map[uint32]string{
		stranger: "uid 65533, and without keys only root and uid 0 are served",
		nobody:   "uid 65534 stands for all users that this user namespace does not have",
	} {
		t.Run(fmt.Sprintf("uid %d, of root's target", uid), func(t *testing.T) {
			h := newHost(t)
			target, uri := h.target(t, "log="+h.region(t, "log", "4M"))
			refused(t, uid, uri, target, why)
			taken(t, 0, uri)
			target.stop(t)
		})
	}
	t.Run("of another user's target", func(t *testing.T) {
		testhost.IPv6(t)
		target := startAs(t, stranger, "pmnbd-target", func(h host) []string {
			return []string{"serve", "--listen", "iwarp://[::1]:0", "--region", "log=" + filepath.Join(h.disk, "log") + ",size=4M"}
		})
		uri := target.waitReady(t)[0]
		taken(t, stranger, uri)
		h := newHost(t)
		root, _, _ := h.initiator(t, uri, "log")
		root.stop(t)
		target.stop(t)
	})
	t.Run("with --insecure-no-auth", func(t *testing.T) {
		h := newHost(t)
		target := start(t, h.home, "pmnbd-target", "serve", "--listen", "iwarp://127.0.0.1:0", "--region", "log="+h.region(t, "log", "4M"), "--insecure-no-auth")
		uri := target.waitReady(t)[0]
		target.waitLog(t, "everybody who reaches a listener owns the regions, every user of this machine too")
		taken(t, stranger, uri)
		target.stop(t)
	})
}
