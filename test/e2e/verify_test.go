package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMirrorVerify changes a byte of a member while its target does not run. The member then resumes in
// time, and nobody notices, until somebody compares.
func TestMirrorVerify(t *testing.T) {
	t.Parallel()
	r := newMirrorRig(t, 2)
	r.serve(t, "--leg-timeout", "1h")
	r.load(t, 1)
	verify := func(args ...string) (code int, stdout, stderr string) {
		return r.result(t, "pmnbd", append([]string{"mirror", "verify", "--control", controls(r.home)}, args...)...)
	}
	r.during(t, func() {
		code, out, errs := verify()
		require.Zero(t, code, errs)
		require.Equal(t, "mirror rig: compared members AB, 48M of each; chunks that differ: 0\n", out)
	})

	const at = 40<<20 + 12345 // the load does not write there
	l := &r.legs[1]
	l.target.kill(t)
	f, err := os.OpenFile(l.path, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{1}, dataOffset+at)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	l.serve(t)
	r.pmnbd.waitLog(t, "a target of the mirror is back")
	r.awaitStates(t, "in sync, in sync", "AB")

	type report struct {
		Different   int
		Differences []struct {
			Offset, Length int
			Digests        map[string]string
			Copied         bool
		}
	}
	r.during(t, func() {
		code, out, errs := verify("rig")
		require.Equal(t, 1, code)
		require.Contains(t, out, fmt.Sprintf("differs: offset %d, length %d: A ", 40<<20, 256<<10))
		require.Equal(t, 2, strings.Count(out, "\n"))
		require.Contains(t, errs, "members AB differ in 1 chunk")
		require.EqualValues(t, []byte{1}, readRegion(t, l.path, at, 1), "nothing is changed unasked")

		code, out, errs = verify("--json", "--from", r.legs[0].uri+"/rig")
		require.Zero(t, code, errs)
		documented(t, strings.NewReplacer(`"A":`, `"digests":`, `"B":`, `"digests":`).Replace(out))
		var v report
		require.NoError(t, json.Unmarshal([]byte(out), &v))
		require.Equal(t, 1, v.Different)
		require.True(t, v.Differences[0].Copied)
		require.Len(t, v.Differences[0].Digests, 2)
		require.EqualValues(t, []byte{0}, readRegion(t, l.path, at, 1))
		code, _, errs = verify()
		require.Zero(t, code, errs)
	})

	for _, mistake := range [][]string{{"--from", "C"}, {"--from", "iwarp://127.0.0.1:1/rig"}, {"nobody"}} {
		code, _, errs := verify(mistake...)
		require.NotZero(t, code)
		require.NotEmpty(t, errs)
	}
	r.verify(t)
	r.disconnect()
	r.pmnbd.stop(t)
}

// TestMirrorVerifyTakesLong ends a comparison by a signal to the command. A second one takes longer than
// the control socket allows other requests.
func TestMirrorVerifyTakesLong(t *testing.T) {
	t.Parallel()
	r := newMirrorRig(t, 2)
	r.serve(t, "--resync-rate", "7M")
	p := start(t, r.home, "pmnbd", "mirror", "verify", "--control", controls(r.home))
	r.pmnbd.waitLog(t, "a verification of the mirror begins")
	p.signal(t, syscall.SIGINT)
	require.Equal(t, 1, p.wait(t))
	require.Contains(t, p.stderr.String(), "a signal ended the comparison")
	r.pmnbd.waitLog(t, "a verification of the mirror was cut short")
	require.Contains(t, r.run(t, "pmnbd", "mirror", "verify", "--control", controls(r.home)), "48M of each; chunks that differ: 0")
	r.pmnbd.stop(t)
}
