package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const mirrorSize = 48 << 20

// A mirrorRig is targets, each on a machine of its own, and a host whose pmnbd serves a mirror of
// their regions to verified loads.
type mirrorRig struct {
	host
	legs  []mirrorLeg
	pmnbd *process
	nbd   string // the URI for clients
	loads []*verifiedLoad
}

// A mirrorLeg is a target of a mirrorRig.
type mirrorLeg struct {
	host
	path, uri string
	name      string   // of the target, if it has keys
	flags     []string // of the target
	target    *process // nil: it does not run
}

// serve starts the target, at the address that it had before.
func (l *mirrorLeg) serve(t *testing.T) {
	t.Helper()
	listen := l.uri
	if listen == "" {
		// An address of its own, so that no other socket takes the port while the target is down.
		listen = fmt.Sprintf("iwarp://127.%d.%d.%d:0", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	}
	l.target = start(t, l.home, "pmnbd-target", append([]string{"serve", "--listen", listen, "--region", "rig=" + l.path}, l.flags...)...)
	l.uri = l.target.waitReady(t)[0]
}

// at is the URI of the region, which names the target if it has a name.
func (l *mirrorLeg) at() string {
	if l.name == "" {
		return l.uri + "/rig"
	}
	return strings.Replace(l.uri, "://", "://"+l.name+"@", 1) + "/rig"
}

// end ends the target as an init system does.
func (l *mirrorLeg) end(t *testing.T) {
	t.Helper()
	l.target.stop(t)
	l.target = nil
}

// newMirrorRig makes n targets and the mirror.
func newMirrorRig(t *testing.T, n int, more ...string) *mirrorRig {
	t.Helper()
	return newFollowedRig(t, n, 0, more...)
}

// newFollowedRig is newMirrorRig with so many more members that follow.
func newFollowedRig(t *testing.T, synchronous, follow int, more ...string) *mirrorRig {
	t.Helper()
	n := synchronous + follow
	r := &mirrorRig{host: newHost(t), legs: make([]mirrorLeg, n)}
	create := append([]string{"mirror", "create", "--state-dir", r.home}, more...)
	for i := range r.legs {
		l := &r.legs[i]
		l.host = newHost(t)
		l.path = l.region(t, "rig", fmt.Sprint(mirrorSize))
		l.serve(t)
		flag := "--target"
		if i >= synchronous {
			flag = "--async-target"
		}
		create = append(create, flag, l.uri+"/rig")
	}
	require.Contains(t, r.run(t, "pmnbd", create...), fmt.Sprintf("FLUSH waits for %d of %d copies", max(synchronous-1, 1), synchronous))
	return r
}

// targets is what --target of pmnbd serve takes.
func (r *mirrorRig) targets() string {
	var all []string
	for i := range r.legs {
		all = append(all, r.legs[i].at())
	}
	return strings.Join(all, ",")
}

// begin starts pmnbd, which need not become ready.
func (r *mirrorRig) begin(t *testing.T, more ...string) *process {
	t.Helper()
	args := append([]string{"serve", "--target", r.targets(), "--listen", "unix:" + filepath.Join(r.home, "rig.sock"), "--leg-timeout", "300ms"}, more...)
	return start(t, r.home, "pmnbd", args...)
}

// serve starts pmnbd, and waits until it serves.
func (r *mirrorRig) serve(t *testing.T, more ...string) {
	t.Helper()
	r.pmnbd = r.begin(t, more...)
	addresses := r.pmnbd.waitReady(t)
	require.Len(t, addresses, 1)
	r.nbd = addresses[0]
}

// refused requires that a start ends with exit code 3, for a reason.
func (r *mirrorRig) refused(t *testing.T, says string, more ...string) {
	t.Helper()
	p := r.begin(t, more...)
	require.Equal(t, 3, p.wait(t), p.stderr.String())
	require.Contains(t, p.stderr.String(), says)
}

// waits requires that a start waits, says why, and is ended by SIGTERM.
func (r *mirrorRig) waits(t *testing.T, says string, more ...string) {
	t.Helper()
	p := r.begin(t, more...)
	p.waitLog(t, says)
	out := r.run(t, "pmnbd", "status", "rig")
	require.Contains(t, out, "export rig: STARTING, and not ready: "+says)
	documented(t, r.run(t, "pmnbd", "status", "--json"))
	code, _, stderr := r.result(t, "pmnbd", "mirror", "status", "--control", controls(r.home))
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "the mirror of export rig has not begun: "+says)
	select {
	case <-p.ready:
		require.FailNow(t, "it is ready")
	default:
	}
	p.signal(t, syscall.SIGTERM)
	require.Equal(t, 1, p.wait(t), p.stderr.String())
}

// A mirrorStatus is what the tests read of pmnbd mirror status --json.
type mirrorStatus struct {
	Export, Generation, F string
	Copies                int
	Start                 string
	Legs                  []struct {
		State, Cause string
		Behind       *uint64 `json:"behind_bytes"`
	}
}

func (s mirrorStatus) states() string {
	var all []string
	for _, l := range s.Legs {
		all = append(all, l.State)
	}
	return strings.Join(all, ", ")
}

// status asks pmnbd, or with more the targets.
func (r *mirrorRig) status(t *testing.T, more ...string) (s mirrorStatus) {
	t.Helper()
	args := append([]string{"mirror", "status", "--json", "--control", controls(r.home), "--state-dir", r.home}, more...)
	out := r.run(t, "pmnbd", args...)
	documented(t, out)
	require.NoError(t, json.Unmarshal([]byte(out), &s))
	return s
}

// awaitStates waits until the legs are in these states, and F is that.
func (r *mirrorRig) awaitStates(t *testing.T, want, f string) mirrorStatus {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	giveUp := time.After(outerCopy)
	for {
		s := r.status(t)
		if s.states() == want && s.F == f {
			return s
		}
		select {
		case <-tick.C:
		case <-giveUp:
			require.FailNow(t, "the mirror does not become "+want, "%+v", s)
		}
	}
}

// load connects verified loads.
func (r *mirrorRig) load(t *testing.T, n int) {
	t.Helper()
	for i := range uint64(n) {
		r.loads = append(r.loads, newLoad(t, r.nbd, i*loadSize, 1))
	}
}

// during runs attack while every load runs.
func (r *mirrorRig) during(t *testing.T, attack func()) {
	t.Helper()
	for _, l := range r.loads {
		inner := attack
		attack = func() { l.during(t, inner) }
	}
	attack()
}

// verify reads over a new connection what the loads have written.
func (r *mirrorRig) verify(t *testing.T) {
	t.Helper()
	c := dialNBD(t, r.nbd)
	got := make([]byte, slotSize)
	for i, l := range r.loads {
		for at := 0; at < loadSize; at += slotSize {
			require.NoError(t, c.read(l.base+uint64(at), got))
			require.True(t, bytes.Equal(l.want[at:at+slotSize], got), "what is read of part %d at %d", i, at)
		}
	}
	require.NoError(t, c.flush())
	c.close()
}

// verifyRegion compares what leg i stores. All was flushed.
func (r *mirrorRig) verifyRegion(t *testing.T, i int) {
	t.Helper()
	for part, l := range r.loads {
		require.True(t, bytes.Equal(l.want, readRegion(t, r.legs[i].path, int64(l.base), loadSize)), "what leg %c has of part %d", 'A'+i, part)
	}
}

// disconnect ends the loads.
func (r *mirrorRig) disconnect() {
	for _, l := range r.loads {
		l.n.close()
	}
}
