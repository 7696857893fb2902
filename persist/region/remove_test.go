package region

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestRemove(t *testing.T) {
	made := func(t *testing.T, change func(*Superblock)) string {
		path := filepath.Join(t.TempDir(), "r")
		_, err := Create(path, CreateOptions{Name: "r", Size: 1 << 20})
		require.NoError(t, err)
		if change != nil {
			r, err := Open(path, OpenOptions{AllowVolatile: true})
			require.NoError(t, err)
			require.NoError(t, r.Update(func(sb *Superblock) error { change(sb); return nil }))
			require.NoError(t, r.Close())
		}
		return path
	}
	for _, c := range []struct {
		name   string
		path   func(t *testing.T) string
		err    error // without force
		forced error
	}{
		{"clean", func(t *testing.T) string { return made(t, nil) }, nil, nil},
		{"not clean", func(t *testing.T) string { return made(t, func(sb *Superblock) { sb.Clean = false }) }, ErrNotClean, nil},
		{"in doubt", func(t *testing.T) string { return made(t, func(sb *Superblock) { sb.Doubt = true }) }, ErrNotClean, nil},
		{"suspect", func(t *testing.T) string { return made(t, func(sb *Superblock) { sb.Suspect = true }) }, ErrNotClean, nil},
		{"damaged", func(t *testing.T) string {
			path := made(t, nil)
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			require.NoError(t, err)
			for _, off := range []int64{200, CopySize + 200} { // bytes that are always 0
				_, err = f.WriteAt([]byte{0xff}, off)
				require.NoError(t, err)
			}
			require.NoError(t, f.Close())
			return path
		}, ErrDamaged, nil},
		{"in use", func(t *testing.T) string {
			path := made(t, nil)
			r, err := Open(path, OpenOptions{AllowVolatile: true})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, r.Close()) })
			return path
		}, ErrInUse, ErrInUse},
		{"no region", func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "precious")
			require.NoError(t, os.WriteFile(path, []byte("not a region"), 0o600))
			return path
		}, ErrNoSuperblock, ErrNoSuperblock},
		{"zeroes", func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "zeroes")
			require.NoError(t, os.WriteFile(path, bytes.Repeat([]byte{0}, 4<<20), 0o600))
			return path
		}, ErrNoSuperblock, ErrNoSuperblock},
		{"nothing", func(t *testing.T) string { return filepath.Join(t.TempDir(), "r") }, os.ErrNotExist, os.ErrNotExist},
		{"a directory", func(t *testing.T) string { return t.TempDir() }, unix.EISDIR, unix.EISDIR},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, force := range []bool{false, true} {
				want := c.err
				if force {
					want = c.forced
				}
				path := c.path(t)
				_, before := os.Stat(path)
				require.ErrorIs(t, Remove(path, force), want)
				if _, after := os.Stat(path); want == nil {
					require.ErrorIs(t, after, os.ErrNotExist)
				} else {
					require.Equal(t, before == nil, after == nil)
				}
			}
		})
	}
}

// A process that opened the file before Remove finds no region in it when it gets the
// lock. Remove does not follow a link, which may be another user's.
func TestRemoveLeavesNothingToServe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	_, err := Create(path, CreateOptions{Name: "r", Size: 1 << 20})
	require.NoError(t, err)
	late, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, late.Close()) }()
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(path, link))
	require.ErrorIs(t, Remove(link, true), ErrExposed)
	require.FileExists(t, path)
	require.NoError(t, Remove(path, false))
	require.NoFileExists(t, path)
	_, err = inspect(late, thisHost)
	require.ErrorIs(t, err, ErrNoSuperblock)
}

func TestRemoveFromDevice(t *testing.T) {
	h := deviceHost(Platform{Domain: DomainMemory})
	path := newDevice(t, deviceSize)
	_, err := create(path, CreateOptions{Name: "r"}, h)
	require.NoError(t, err)
	require.NoError(t, removeRegion(path, false, h))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.EqualValues(t, deviceSize, info.Size())
	_, err = inspectPath(path, h)
	require.ErrorIs(t, err, ErrNoSuperblock)
	require.ErrorIs(t, removeRegion(path, true, h), ErrNoSuperblock)
}

func TestList(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b", "a", "damaged"} {
		_, err := Create(filepath.Join(dir, name), CreateOptions{Name: name, Size: 1 << 20})
		require.NoError(t, err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "damaged"), os.O_WRONLY, 0)
	require.NoError(t, err)
	for _, off := range []int64{200, CopySize + 200} { // bytes that are always 0
		_, err = f.WriteAt([]byte{0xff}, off)
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "text"), []byte("no region"), 0o600))
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "dir"), 0o700))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	require.NoError(t, os.Symlink("a", filepath.Join(dir, "link")))

	all, err := List(dir)
	require.NoError(t, err)
	require.Len(t, all, 4)
	require.Equal(t, []string{"a", "b", "", "a"}, []string{
		all[0].Info.Superblock.Name, all[1].Info.Superblock.Name, all[2].Info.Superblock.Name, all[3].Info.Superblock.Name})
	require.ErrorIs(t, all[2].Err, ErrDamaged)
	require.Equal(t, filepath.Join(dir, "damaged"), all[2].Path)

	_, err = List(filepath.Join(dir, "text"))
	require.Error(t, err)
	_, err = List(filepath.Join(dir, "nowhere"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
