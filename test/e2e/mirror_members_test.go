package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// another makes a target with a region that is no member.
func (r *mirrorRig) another(t *testing.T) *mirrorLeg {
	t.Helper()
	l := mirrorLeg{host: newHost(t)}
	l.path = l.region(t, "rig", fmt.Sprint(mirrorSize))
	l.serve(t)
	r.legs = append(r.legs, l)
	return &r.legs[len(r.legs)-1]
}

// change runs pmnbd mirror for the mirror that is served.
func (r *mirrorRig) change(t *testing.T, args ...string) string {
	t.Helper()
	return r.run(t, "pmnbd", append([]string{"mirror", args[0], "--control", controls(r.home)}, args[1:]...)...)
}

// mistaken requires that pmnbd mirror ends with a code, and says why.
func (r *mirrorRig) mistaken(t *testing.T, code int, says string, args ...string) {
	t.Helper()
	got, _, stderr := r.result(t, "pmnbd", append([]string{"mirror", args[0], "--control", controls(r.home)}, args[1:]...)...)
	require.Equal(t, code, got, stderr)
	require.Contains(t, stderr, says)
}

// TestMirrorMembers adds a member while clients write, removes others, and has each one serve alone.
func TestMirrorMembers(t *testing.T) {
	t.Parallel()
	r := newMirrorRig(t, 2)
	r.serve(t)
	r.load(t, 2)
	r.mistaken(t, 1, "two members at least", "remove", "B")
	r.mistaken(t, 1, "has no member D", "remove", "D")
	r.mistaken(t, 1, "is member A", "add", "--state-dir", r.home, r.legs[0].at())
	fresh := r.another(t)
	r.during(t, func() {
		out := r.change(t, "add", "--state-dir", r.home, fresh.at())
		require.Contains(t, out, "is member C")
		require.Contains(t, out, r.targets())
		require.Equal(t, 3, r.awaitStates(t, "in sync, in sync, in sync", "ABC").Copies)
	})
	r.verify(t)
	r.mistaken(t, 1, "not so many members", "set", "--min-copies", "4")
	require.Contains(t, r.change(t, "set", "--min-copies", "2"), "waits for 2 of 3")
	r.during(t, func() {
		require.Contains(t, r.change(t, "remove", "rig", r.legs[0].at()), "ordinary region")
		require.Equal(t, "BC", r.awaitStates(t, "in sync, in sync", "BC").F)
	})
	r.mistaken(t, 1, "two members at least", "remove", "rig", "C")
	require.Contains(t, r.change(t, "set", "--min-copies", "1"), "waits for 1 of 2")
	r.disconnect()
	r.pmnbd.stop(t)
	for i := 1; i < 3; i++ {
		r.verifyRegion(t, i)
	}
	// A start with the old list does without the removed one, and says so.
	r.serve(t)
	r.pmnbd.waitLog(t, "A TARGET IS NO MEMBER")
	r.verify(t)
	r.pmnbd.stop(t)
	r.legs = r.legs[1:]
	for i := range r.legs {
		r.legs[1-i].target.kill(t)
		r.serve(t, "--degraded")
		r.verify(t)
		r.pmnbd.stop(t)
		r.legs[1-i].serve(t)
		r.serve(t)
		r.awaitStates(t, "in sync, in sync", "BC")
		r.pmnbd.stop(t)
	}
}

// TestMirrorReplace replaces a member whose target is gone for good, and one that is in sync.
func TestMirrorReplace(t *testing.T) {
	t.Parallel()
	r := newMirrorRig(t, 2)
	r.serve(t)
	r.load(t, 2)
	gone := r.legs[1].at()
	r.legs[1].target.kill(t)
	r.during(t, func() { r.awaitStates(t, "in sync, away", "A") })
	fresh := r.another(t)
	r.during(t, func() {
		out := r.change(t, "replace", "--state-dir", r.home, gone, fresh.at())
		require.Contains(t, out, "is member C")
		require.Contains(t, out, "was not told")
		r.awaitStates(t, "in sync, in sync", "AC")
	})
	r.legs = append(r.legs[:1], r.legs[2])
	other := r.another(t)
	old := r.legs[0].path
	r.during(t, func() {
		out := r.change(t, "replace", "--state-dir", r.home, "A", other.at())
		require.True(t, strings.Index(out, "is member") < strings.Index(out, "removed member A"), out)
		r.awaitStates(t, "in sync, in sync", "BC")
	})
	r.disconnect()
	r.pmnbd.stop(t)
	r.legs[0].end(t)
	require.NotContains(t, r.run(t, "pmnbd-target", "region", "inspect", old), "mirror")
	r.legs = r.legs[1:]
	r.serve(t)
	r.verify(t)
	for i := range r.legs {
		r.verifyRegion(t, i)
	}
	r.pmnbd.stop(t)
}

// TestMirrorReplaceMistakes makes mistakes with the region that is to replace one of four members. There is no place
// for it before the old member is gone, so the old member must stay until the new region has been looked at.
func TestMirrorReplaceMistakes(t *testing.T) {
	t.Parallel()
	r := newMirrorRig(t, 4)
	r.serve(t)
	was := r.awaitStates(t, "in sync, in sync, in sync, in sync", "ABCD")
	fresh, h := r.another(t), newHost(t)
	r.legs = r.legs[:4]
	size := fmt.Sprint(mirrorSize)
	_, at := h.target(t, "large="+h.region(t, "large", "64M"), "data="+h.region(t, "data", size), "served="+h.region(t, "served", size))
	p, socket, _ := h.initiator(t, at, "data")
	c := dialNBD(t, socket)
	require.NoError(t, c.write(0, noise(t, 4096)))
	c.close()
	p.stop(t)
	h.initiator(t, at, "served")
	keys, id := filepath.Join(h.home, "keys"), strings.TrimSpace(r.run(t, "pmnbd", "id", "--state-dir", r.home))
	require.NoError(t, os.WriteFile(keys, []byte(id+" pm9 "+strings.Repeat("0123456789abcdef", 4)+"\n"), 0o600))
	keyed := mirrorLeg{host: newHost(t), name: "pm9", flags: []string{"--name", "pm9", "--key-file", keys}}
	keyed.path = keyed.region(t, "rig", size)
	keyed.serve(t)

	for name, c := range map[string]struct {
		with []string
		says string
	}{
		"a typo in the region's name":                {[]string{at + "/dta"}, "unknown region"},
		"a target that is down":                      {[]string{"iwarp://" + closedPort(t) + "/rig"}, "is pmnbd-target serving there?"},
		"a region of another size":                   {[]string{at + "/large"}, "members are of one size"},
		"a region with data":                         {[]string{at + "/data"}, "--force overwrites it"},
		"a region that is served":                    {[]string{at + "/served", "--force"}, "region busy, held by "},
		"another member":                             {[]string{r.legs[0].at(), "--force"}, "is member A of mirror rig already"},
		"the old member":                             {[]string{r.legs[1].at(), "--force"}, "is member B of mirror rig already"},
		"a target for which the pmnbd has no key":    {[]string{keyed.at(), "--key-file", keys}, "names the target, and without a key"},
		"the same, and the URI has no target's name": {[]string{keyed.uri + "/rig", "--key-file", keys}, "the target asks for a key"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := r.result(t, "pmnbd", append([]string{"mirror", "replace", "--control", controls(r.home), "--state-dir", r.home, "B"}, c.with...)...)
			require.NotZero(t, code)
			require.Contains(t, stderr, c.says)
			require.Empty(t, stdout)
			now := r.status(t)
			require.Equal(t, []string{was.Generation, was.F, was.states()}, []string{now.Generation, now.F, now.states()})
		})
	}
	out := r.change(t, "replace", "--state-dir", r.home, "B", fresh.at())
	require.True(t, strings.Index(out, "removed member B") < strings.Index(out, "is member B"), out)
	r.awaitStates(t, "in sync, in sync, in sync, in sync", "ABCD")
	r.pmnbd.stop(t)
}

// TestMirrorDiscard has each of two members serve alone, and gives up what one of them has.
func TestMirrorDiscard(t *testing.T) {
	t.Parallel()
	r := newMirrorRig(t, 2)
	for _, down := range []int{0, 1} { // the other one goes its own way
		r.legs[down].end(t)
		r.serve(t, "--degraded")
		r.load(t, 1)
		r.during(t, func() {})
		r.disconnect()
		r.pmnbd.stop(t)
		if down == 0 {
			r.loads = nil // B is given up
		}
		r.legs[down].serve(t)
	}
	r.refused(t, "split brain")
	discard := []string{"mirror", "discard", "--state-dir", r.home, "--target", r.targets(), r.legs[1].at()}
	code, _, stderr := r.result(t, "pmnbd", discard...)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "would give up what member B")
	require.Contains(t, stderr, "--force does it")
	r.refused(t, "split brain")
	require.Contains(t, r.run(t, "pmnbd", append(discard, "--force")...), "given up: member B")
	code, _, stderr = r.result(t, "pmnbd", discard...)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "did not go its own way")
	r.serve(t)
	r.awaitStates(t, "in sync, in sync", "AB")
	r.verify(t)
	r.pmnbd.stop(t)
	r.verifyRegion(t, 0)
	r.verifyRegion(t, 1)
}
