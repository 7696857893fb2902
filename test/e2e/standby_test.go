package e2e

import (
	"bytes"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/internal/etcdtest"
)

// A pairOfHosts is two hosts that serve the mirror of a rig in turn, with an etcd that decides which.
type pairOfHosts struct {
	*mirrorRig
	etcd  *etcdtest.Server
	hosts [2]host
	runs  [2]*process
}

func newPairOfHosts(t *testing.T) *pairOfHosts {
	t.Helper()
	etcd := etcdtest.Start(t)
	p := &pairOfHosts{mirrorRig: newMirrorRig(t, 2, "--arbiter", "etcd://"+etcd.Addr), etcd: etcd}
	p.hosts = [2]host{p.host, newHost(t)}
	return p
}

// begin starts the pmnbd of host i as a standby. A host that was active before accepts the loss of what
// nobody had flushed there.
func (p *pairOfHosts) begin(t *testing.T, i int, more ...string) {
	t.Helper()
	home := p.hosts[i].home
	args := append([]string{"serve", "--target", p.targets(), "--listen", "unix:" + filepath.Join(home, "rig.sock"),
		"--arbiter", "etcd://" + p.etcd.Addr, "--arbiter-lease", "2s", "--standby", "--accept-loss"}, more...)
	p.runs[i] = start(t, home, "pmnbd", args...)
}

// serves waits until host i serves, and returns a connection.
func (p *pairOfHosts) serves(t *testing.T, i int) *conn {
	t.Helper()
	return dialNBD(t, p.runs[i].waitReady(t)[0])
}

// block is a block of seed.
func blockOf(seed byte) []byte { return bytes.Repeat([]byte{seed}, 4096) }

// TestStandby kills the active host's pmnbd, then stops the next one by SIGSTOP: each time the other host
// goes on with all that was flushed. The one that was stopped shows nothing old and changes nothing when
// it wakes up. At last etcd goes away, and the device does not notice.
func TestStandby(t *testing.T) {
	t.Parallel()
	p := newPairOfHosts(t)
	p.begin(t, 0)
	first := p.serves(t, 0)
	p.begin(t, 1)
	p.runs[1].waitLog(t, "standby: ")
	out := p.hosts[1].run(t, "pmnbd", "status", "rig")
	require.Contains(t, out, "export rig: standby: ")
	documented(t, p.hosts[1].run(t, "pmnbd", "status", "--json"))
	require.Contains(t, p.hosts[0].run(t, "pmnbd", "mirror", "status", "--control", controls(p.hosts[0].home)), "this pmnbd is active")
	p.status(t)
	require.NoError(t, first.write(0, blockOf(1)))
	require.NoError(t, first.flush())
	p.runs[0].kill(t)
	began := time.Now()
	second := p.serves(t, 1)
	t.Logf("after kill -9 of the active pmnbd the standby serves within %v; the lease is 2s", time.Since(began).Round(time.Millisecond))
	first.close()
	got := make([]byte, 4096)
	require.NoError(t, second.read(0, got))
	require.Equal(t, blockOf(1), got)

	p.begin(t, 0)
	p.runs[0].waitLog(t, "standby: ")
	require.NoError(t, second.write(0, blockOf(2)))
	require.NoError(t, second.flush())
	p.runs[1].signal(t, syscall.SIGSTOP)
	began = time.Now()
	first = p.serves(t, 0)
	t.Logf("after SIGSTOP of the active pmnbd the standby serves within %v; the lease is 2s", time.Since(began).Round(time.Millisecond))
	require.NoError(t, first.read(0, got))
	require.Equal(t, blockOf(2), got)
	require.NoError(t, first.write(0, blockOf(3)))
	require.NoError(t, first.flush())
	p.runs[1].signal(t, syscall.SIGCONT)
	if second.read(0, got) == nil {
		require.NotEqual(t, blockOf(2), got, "a stale read")
	}
	if second.write(0, blockOf(4)) == nil {
		require.Error(t, second.flush())
	}
	p.runs[1].waitLog(t, "the device failed for good")
	second.close()
	require.NoError(t, first.read(0, got))
	require.Equal(t, blockOf(3), got)
	p.awaitStates(t, "in sync, in sync", "AB")
	for i := range p.legs {
		require.Equal(t, blockOf(3), readRegion(t, p.legs[i].path, 0, 4096))
	}
	p.runs[1].kill(t)

	p.etcd.Kill()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); { // longer than the lease
		require.NoError(t, first.write(0, blockOf(5)))
		require.NoError(t, first.flush())
		require.NoError(t, first.read(0, got))
		require.Equal(t, blockOf(5), got)
	}
	p.etcd.Run(t)
	p.begin(t, 1)
	p.runs[1].waitLog(t, "standby: ")
	first.close()
	p.runs[0].stop(t)
	began = time.Now()
	second = p.serves(t, 1)
	t.Logf("after an orderly end of the active pmnbd the standby serves within %v", time.Since(began).Round(time.Millisecond))
	require.NoError(t, second.read(0, got))
	require.Equal(t, blockOf(5), got)
	second.close()
	p.runs[1].stop(t)
}
