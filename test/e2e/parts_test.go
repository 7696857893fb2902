package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

const partSize = 16 << 20 // of the four parts of a rig's region

// newPartsRig is newRig with a region of four parts.
func newPartsRig(t *testing.T, loads int, more ...string) *rig {
	t.Helper()
	r := &rig{host: newHost(t)}
	r.path, r.parts = r.regionOfParts(t, "rig")
	r.begin(t, loads, more...)
	return r
}

// regionOfParts creates a region of four parts of class file.
func (h host) regionOfParts(t *testing.T, name string) (path string, further []string) {
	t.Helper()
	args := []string{"region", "create", name, "--size-per-part", strconv.Itoa(partSize)}
	var all []string
	for i := range 4 {
		all = append(all, filepath.Join(h.disk, name+strconv.Itoa(i)))
		args = append(args, "--part", all[i])
	}
	h.run(t, "pmnbd-target", args...)
	return all[0], all[1:]
}

// readParts reads what the region has.
func (r *rig) readParts(t *testing.T, off int64, n int) (got []byte) {
	t.Helper()
	if len(r.parts) == 0 {
		return readRegion(t, r.path, off, n)
	}
	for i, path := range append([]string{r.path}, r.parts...) {
		from, to := max(off, int64(i)*partSize), min(off+int64(n), int64(i+1)*partSize)
		if from < to {
			got = append(got, readRegion(t, path, from-int64(i)*partSize, int(to-from))...)
		}
	}
	return got
}

// A region of four parts survives what one file does: its target is killed again and again.
func TestTargetOfPartsIsKilled(t *testing.T) {
	t.Parallel()
	r := newPartsRig(t, 3)
	r.during(t, func() {
		for range soakRounds(t, 3, outer/10) {
			r.roundTrip(t)
			r.target.kill(t)
			r.serve(t)
		}
		r.roundTrip(t)
	})
	require.NotContains(t, r.pmnbd.stderr.String(), `"level":"error"`)
	r.verify(t)
	out := r.run(t, "pmnbd-target", "status", "--control", controls(r.home))
	require.Contains(t, out, r.path+" + "+r.parts[0])
	r.stop(t)
}

// Parts that do not belong together are refused by name, with what to do. Nothing of them
// changes, and with the right ones everything is there.
func TestWrongPartsAreRefused(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	path, parts := h.regionOfParts(t, "rig")
	old := map[string][]byte{}
	for _, p := range append([]string{path}, parts...) {
		b, err := os.ReadFile(p)
		require.NoError(t, err)
		old[p] = b
	}
	r := &rig{host: h, path: path, parts: parts}
	r.begin(t, 1)
	r.during(t, func() { r.roundTrip(t) })
	r.stop(t)
	_, foreign := h.regionOfParts(t, "other")

	refused := func(parts []string, says ...string) {
		t.Helper()
		args := []string{"serve", "--listen", "iwarp://127.0.0.1:0", "--region", (&rig{path: parts[0], parts: parts[1:]}).served()}
		code, _, stderr := h.result(t, "pmnbd-target", args...)
		require.Equal(t, 1, code, stderr)
		for _, text := range says {
			require.Contains(t, stderr, text)
		}
	}
	all := append([]string{path}, parts...)
	refused(all[:3], "region rig has 4, and 3 were named", "name all of them in their order")
	refused([]string{all[0], all[2], all[1], all[3]}, "part 1, "+all[2], "it is part 2 of region rig, not part 1")
	refused([]string{all[1], all[0], all[2], all[3]}, all[1], "part 1 of 4", "name the region's first part first")
	refused([]string{all[0], all[1], all[2], foreign[2]}, "part 3, "+foreign[2], "part 3 of another region", "name the right file or device")
	refused([]string{all[0], all[1], all[2], all[3] + "x"}, "part 3 of the region", all[3]+"x", "bring the file or device back")
	for i, p := range all {
		now, err := os.ReadFile(p)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(p, old[p], 0o600))
		refused(all, "part "+strconv.Itoa(i)+", "+p, "older than the other parts", "put its newest copy back")
		after, err := os.ReadFile(p)
		require.NoError(t, err)
		require.True(t, slices.Equal(old[p], after), "a refused part changes nothing")
		require.NoError(t, os.WriteFile(p, now, 0o600))
	}
	p, _ := h.target(t, r.served())
	r.verifyRegion(t)
	p.stop(t)
}
