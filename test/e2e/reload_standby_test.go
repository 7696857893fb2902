package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/internal/etcdtest"
)

// TestKeysOfAStandby changes the keys of two hosts and two targets while one host serves their mirror and the other
// waits as a standby. SIGHUP has the standby read its keys, also twice and also after a mistake, and what else changed
// in its file counts when it serves. So it can take the mirror over although the old keys are gone.
func TestKeysOfAStandby(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	ids := [2]string{"6f9619ff-8b86-d011-b42d-00c04fc964ff", "6ba7b810-9dad-41d1-80b4-00c04fd430c8"}
	r := &mirrorRig{host: newHost(t), legs: make([]mirrorLeg, 2)}
	made := 0
	keygen := func() (lines string) {
		for _, id := range ids {
			for i := range r.legs {
				made++
				lines += fmt.Sprintf("%s pm%d %064x\n", id, i, made)
			}
		}
		return lines
	}
	put := func(path, lines string) string { // as a whole
		t.Helper()
		require.NoError(t, os.WriteFile(path+".new", []byte(lines), 0o600))
		require.NoError(t, os.Rename(path+".new", path))
		return path
	}
	old, between, next := keygen(), keygen(), keygen()
	targets, own := put(filepath.Join(r.home, "targets"), old), [2]string{put(filepath.Join(r.home, "key0"), old), put(filepath.Join(r.home, "key1"), old)}
	create := []string{"mirror", "create", "--state-dir", r.home, "--arbiter", "etcd://" + etcd.Addr, "--id", ids[0], "--key-file", own[0]}
	for i := range r.legs {
		l := &r.legs[i]
		l.host, l.name = newHost(t), fmt.Sprintf("pm%d", i)
		l.path = l.region(t, "rig", fmt.Sprint(mirrorSize))
		l.flags = []string{"--key-file", targets, "--name", l.name}
		l.serve(t)
		create = append(create, "--target", l.at())
	}
	r.run(t, "pmnbd", create...)
	reload := func(h host, program string) {
		t.Helper()
		require.Contains(t, h.run(t, program, "reload"), "keys read again")
	}
	trust := func(lines string) {
		t.Helper()
		put(targets, lines)
		for i := range r.legs {
			reload(r.legs[i].host, "pmnbd-target")
		}
	}
	hosts := [2]host{r.host, newHost(t)}
	begin := func(i int, more string) *process {
		file := filepath.Join(hosts[i].home, "pmnbd.toml")
		written(t, file, "listen = [\"unix:%s\"]\nid = %q\nkey-file = %q\narbiter = \"etcd://%s\"\narbiter-lease = \"2s\"\nstandby = true\n%s[[export]]\nname = \"rig\"\ntarget = [%q, %q]\n",
			filepath.Join(hosts[i].home, "s"), ids[i], own[i], etcd.Addr, more, r.legs[0].at(), r.legs[1].at())
		if more != "" {
			return nil
		}
		return start(t, hosts[i].home, "pmnbd", "serve", "--config", file)
	}
	first := begin(0, "")
	c := dialNBD(t, first.waitReady(t)[0])
	require.NoError(t, c.write(0, blockOf(1)))
	require.NoError(t, c.flush())
	standby := begin(1, "")
	standby.waitLog(t, "standby: ")

	trust(old + between)
	put(own[0], between)
	reload(hosts[0], "pmnbd")
	put(own[1], between)
	standby.signal(t, syscall.SIGHUP)
	standby.waitLog(t, `"msg":"read again"`)

	trust(between + next)
	put(own[0], next)
	reload(hosts[0], "pmnbd")
	begin(1, "log-level = \"debug\"\n")
	require.NoError(t, os.Chmod(own[1], 0o644))
	standby.signal(t, syscall.SIGHUP)
	standby.waitLog(t, "reload: nothing changed")
	put(own[1], next)
	require.Contains(t, hosts[1].run(t, "pmnbd", "reload"), "what else has changed counts when this process serves")
	trust(next)

	c.close()
	first.stop(t)
	c = dialNBD(t, standby.waitReady(t)[0])
	got := make([]byte, 4096)
	require.NoError(t, c.read(0, got))
	require.Equal(t, blockOf(1), got)
	standby.waitLog(t, `"changed":["log-level"]`)
	c.close()
	standby.stop(t)
}
