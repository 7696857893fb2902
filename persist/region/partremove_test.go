package region

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
)

// All parts are locked from the check to the end: nobody opens the region in between, and has it removed.
func TestRemoveHoldsAllParts(t *testing.T) {
	h := hostOf(persist.ClassPMem, bootA)
	paths := createdParts(t, h, 3)
	looked := 0
	h.header = func([]byte) { // a superblock is wiped
		for _, path := range paths {
			f, err := os.Open(path)
			if os.IsNotExist(err) {
				continue
			}
			require.NoError(t, err)
			require.ErrorIs(t, unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK, path)
			require.NoError(t, f.Close())
			looked++
		}
	}
	require.NoError(t, removeParts(paths[0], false, h, paths[1:]))
	require.Equal(t, 3, looked)
	for _, path := range paths {
		require.NoFileExists(t, path)
	}
}

// Not even by force does a part of another region go, or a file that is none, and then none of the others goes. A part
// that is damaged, or too old, does.
func TestRemovePartsOfOneRegion(t *testing.T) {
	damage := func(t *testing.T, path string) {
		h := header(t, path)
		h[50], h[CopySize+50] = h[50]^1, h[CopySize+50]^1
		setHeader(t, path, h)
	}
	for name, c := range map[string]struct {
		change func(t *testing.T, mine, others []string, alone string) (named []string)
		want   error
	}{
		"all":                   {func(_ *testing.T, m, _ []string, _ string) []string { return m }, nil},
		"some":                  {func(_ *testing.T, m, _ []string, _ string) []string { return m[:2] }, nil},
		"further ones":          {func(_ *testing.T, m, _ []string, _ string) []string { return m[1:] }, nil},
		"a damaged one":         {func(t *testing.T, m, _ []string, _ string) []string { damage(t, m[1]); return m }, nil},
		"the first one damaged": {func(t *testing.T, m, _ []string, _ string) []string { damage(t, m[0]); return m }, nil},
		"of another":            {func(_ *testing.T, m, o []string, _ string) []string { return []string{m[0], m[1], o[2]} }, ErrPart},
		"of another, the first damaged": {func(t *testing.T, m, o []string, _ string) []string {
			damage(t, m[0])
			return []string{m[0], m[1], o[2]}
		}, ErrPart},
		"of another, of a region of one": {func(_ *testing.T, _, o []string, alone string) []string { return []string{alone, o[1]} }, ErrPart},
		"another's first":                {func(_ *testing.T, m, o []string, _ string) []string { return []string{m[0], o[0]} }, ErrPart},
		"a region of one":                {func(_ *testing.T, m, _ []string, alone string) []string { return []string{m[0], alone} }, ErrPart},
		"no region": {func(t *testing.T, m, _ []string, alone string) []string {
			require.NoError(t, os.WriteFile(alone, make([]byte, 3<<20), 0o600))
			return []string{m[0], alone}
		}, ErrPart},
	} {
		t.Run(name, func(t *testing.T) {
			mine, others, alone := createdParts(t, fileHost, 3), createdParts(t, fileHost, 3), created(t, fileHost)
			named := c.change(t, mine, others, alone)
			err := removeParts(named[0], true, fileHost, named[1:])
			require.ErrorIs(t, err, c.want)
			for _, path := range named {
				_, err := os.Stat(path)
				require.Equal(t, c.want == nil, os.IsNotExist(err), path)
			}
		})
	}
}
