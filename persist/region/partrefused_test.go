package region

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

func TestPartsRefused(t *testing.T) {
	paths := createdParts(t, fileHost, 3)
	other := createdParts(t, fileHost, 3)
	single := created(t, fileHost)
	junk := filepath.Join(t.TempDir(), "junk")
	require.NoError(t, os.WriteFile(junk, make([]byte, 3<<20), 0o600))
	link := paths[1] + ".link"
	require.NoError(t, os.Link(paths[1], link))
	for _, c := range []struct {
		name  string
		parts []string
		want  error
		says  string
	}{
		{"none named", paths[:1], ErrPart, "region r has 3, and 1 were named"},
		{"one missing", paths[:2], ErrPart, "region r has 3, and 2 were named"},
		{"one gone", []string{paths[0], paths[1] + "x", paths[2]}, os.ErrNotExist, "part 1 of the region: open " + paths[1] + "x"},
		{"swapped", []string{paths[0], paths[2], paths[1]}, ErrPart, "part 1, " + paths[2] + ": wrong parts: it is part 2 of region r, not part 1"},
		{"the first swapped", []string{paths[1], paths[0], paths[2]}, ErrFurther, "part 1 of 3"},
		{"foreign", []string{paths[0], paths[1], other[2]}, ErrPart, "part 2, " + other[2] + ": wrong parts: it is part 2 of another region"},
		{"another region's first", []string{other[0], paths[1], other[2]}, ErrPart, "part 1, " + paths[1]},
		{"a region", []string{paths[0], paths[1], single}, ErrPart, "part 2, " + single + ": wrong parts: it begins a region itself"},
		{"no part", []string{paths[0], junk, paths[2]}, ErrPart, "part 1, " + junk + ": wrong parts: it is no part"},
		{"twice", []string{paths[0], paths[1], paths[1]}, ErrPart, "parts 1 and 2 are the same"},
		{"twice, by a link", []string{paths[0], paths[1], link}, ErrPart, "parts 1 and 2 are the same"},
		{"the first as a further one", []string{paths[0], paths[0], paths[2]}, ErrPart, "parts 0 and 1 are the same"},
		{"one more", append(paths[:3:3], junk), ErrPart, "region r has 3, and 4 were named"},
		{"of a region that has one", []string{single, paths[1]}, ErrPart, "region r has 1, and 2 were named"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := open(c.parts[0], OpenOptions{Parts: c.parts[1:]}, fileHost)
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, c.says)
			require.ErrorIs(t, clearRegion(c.parts[0], "x", fileHost, nil, c.parts[1:]...), c.want)
			for _, path := range slices.Concat(c.parts, paths) {
				require.Empty(t, held(t, filepath.Dir(path)))
			}
		})
	}
	require.ErrorIs(t, Remove(paths[0], false), ErrPart)
	require.ErrorIs(t, Remove(paths[1], false), ErrFurther)
	require.ErrorIs(t, Remove(paths[0], false, paths[2], paths[1]), ErrPart)
	openedParts(t, paths, fileHost)
}

// A part is on memory of the class for which it was made, is whole, and is served by one
// process.
func TestPartMemory(t *testing.T) {
	paths := createdParts(t, fileHost, 3)
	bent := fileHost
	bent.memoryOf = func(f *os.File) (medium.Memory, error) {
		m := medium.Memory{Class: persist.ClassFile, Flags: unix.MAP_SHARED}
		if f.Name() == paths[1] {
			m.Class = persist.ClassVolatile
		}
		return m, nil
	}
	_, err := open(paths[0], OpenOptions{Parts: paths[1:]}, bent)
	require.ErrorIs(t, err, ErrVolatile)
	require.ErrorContains(t, err, paths[1])
	_, err = open(paths[0], OpenOptions{Parts: paths[1:], AllowVolatile: true}, bent)
	require.ErrorIs(t, err, ErrClass)
	require.ErrorContains(t, err, "part 1, "+paths[1])
	r := openedParts(t, paths, fileHost)
	_, err = open(paths[0], OpenOptions{Parts: paths[1:]}, fileHost)
	require.ErrorIs(t, err, ErrInUse)
	_, err = open(paths[1], OpenOptions{}, fileHost)
	require.ErrorIs(t, err, ErrInUse, "a further part is locked, too")
	require.ErrorIs(t, Remove(paths[2], true), ErrInUse)
	require.NoError(t, r.Close())
	require.NoError(t, os.Truncate(paths[2], DataOffset+testSize-1))
	_, err = open(paths[0], OpenOptions{Parts: paths[1:]}, fileHost)
	require.ErrorIs(t, err, ErrTruncated)
	require.ErrorContains(t, err, "part 2, "+paths[2])
	require.Empty(t, held(t, filepath.Dir(paths[0])))
}

// A creation that fails leaves what was there, and no file of its own.
func TestCreatePartsFails(t *testing.T) {
	dir := t.TempDir()
	full := filepath.Join(dir, "full")
	require.NoError(t, os.WriteFile(full, append(make([]byte, 5<<20), 1), 0o600))
	for _, c := range []struct {
		name string
		o    CreateOptions
		want error
	}{
		{"a part holds data", CreateOptions{Size: testSize, Parts: []string{filepath.Join(dir, "b"), full}}, ErrNotEmpty},
		{"no size", CreateOptions{Parts: []string{filepath.Join(dir, "b")}}, ErrSize},
		{"odd size", CreateOptions{Size: 5000, Parts: []string{filepath.Join(dir, "b")}}, ErrSize},
		{"twice", CreateOptions{Size: testSize, Parts: []string{filepath.Join(dir, "b"), filepath.Join(dir, "b")}}, ErrPart},
		{"memfd", CreateOptions{Size: testSize, Parts: []string{PathMemfd}}, ErrClass},
		{"in /dev", CreateOptions{Size: testSize, Parts: []string{"/dev/pmnbd-test-part"}}, os.ErrNotExist},
		{"too many", CreateOptions{Size: testSize, Parts: partPaths(dir, MaxParts)}, ErrPart},
		{"no room", CreateOptions{Size: 1 << 60, Parts: []string{filepath.Join(dir, "b"), filepath.Join(dir, "c")}}, unix.ENOSPC},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Name = "r"
			_, err := create(filepath.Join(dir, "a"), c.o, fileHost)
			require.ErrorIs(t, err, c.want)
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Len(t, left, 1)
			st, err := os.Stat(full)
			require.NoError(t, err)
			require.EqualValues(t, 5<<20+1, st.Size())
			require.Empty(t, held(t, dir))
		})
	}
	_, err := create(filepath.Join(dir, "a"), CreateOptions{Name: "r", Size: testSize, Force: true, Parts: []string{full}}, fileHost)
	require.NoError(t, err)
	openedParts(t, []string{filepath.Join(dir, "a"), full}, fileHost)
}

// The bad places of a part are at its place in the region.
func TestBadOfParts(t *testing.T) {
	h := hostOf(persist.ClassPMem, bootA)
	paths := createdParts(t, h, 3)
	h.bad = func() ([]persist.Range, error) { // of each part
		return []persist.Range{{Off: DataOffset + 5000, Len: 512}, {Off: DataOffset + testSize, Len: 512}}, nil
	}
	r := openedParts(t, paths, h)
	want := persist.BadPlaces{{Off: 4096, Len: 4096}, {Off: testSize + 4096, Len: 4096}, {Off: 2*testSize + 4096, Len: 4096}}
	require.Equal(t, want, r.Bad())
	info, err := inspectPath(paths[0], h, paths[1:]...)
	require.NoError(t, err)
	require.Equal(t, want, info.Bad)
	require.NoError(t, r.Close())
	h.bad = func() ([]persist.Range, error) { return nil, unix.EIO }
	r = openedParts(t, paths, h)
	require.ErrorContains(t, r.BadUnknown(), "part 2, "+paths[2])
	lost, err := r.Lose(address(r.mem) + DataOffset + testSize + 5000)
	require.NoError(t, err)
	require.EqualValues(t, testSize+4096, lost.Off)
	require.NoError(t, os.Truncate(paths[2], DataOffset))
	_, err = r.Lose(address(r.mem) + DataOffset + 2*testSize)
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorContains(t, err, paths[2])
}

// Class protected has one file and its image.
func TestProtectedHasNoParts(t *testing.T) {
	paths := partPaths(t.TempDir(), 2)
	_, err := create(paths[0], CreateOptions{Name: "r", Size: testSize, Parts: paths[1:], Class: persist.ClassProtected, Save: t.TempDir()}, volatileHost)
	require.ErrorIs(t, err, ErrClass)
	_, err = open(paths[0], OpenOptions{Parts: paths[1:], Save: t.TempDir()}, volatileHost)
	require.ErrorIs(t, err, ErrSave)
	sb := sample()
	sb.Failed, sb.Failure, sb.Parts, sb.Stamp, sb.Class = false, "", 2, 1, persist.ClassProtected
	require.ErrorContains(t, sb.check(), "2 parts of class protected")
}
