package region

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Create does not replace a missing device by a file of its name.
func TestCreateAmongDevices(t *testing.T) {
	link := filepath.Join(t.TempDir(), "devices")
	require.NoError(t, os.Symlink("/dev", link))
	for _, path := range []string{"/dev/dax9.9", "/dev/pmnbd-nothing/r", "/dev/../dev/dax9.9", link + "/dax9.9"} {
		for _, size := range []uint64{0, testSize} {
			_, err := create(path, CreateOptions{Name: "r", Size: size}, fileHost)
			require.ErrorContains(t, err, path+": no such device")
			require.ErrorIs(t, err, unix.ENODEV)
			require.NoFileExists(t, path)
		}
		_, err := Open(path, OpenOptions{Name: "r", CreateSize: testSize, AllowVolatile: true})
		require.ErrorIs(t, err, unix.ENODEV)
		require.NoFileExists(t, path)
	}
	require.False(t, amongDevices("/dev/shm/r"))
	require.False(t, amongDevices("/dev/shm/a/r"))
	require.False(t, amongDevices("/devices/r"))
}

func TestCreate(t *testing.T) {
	file := func(size int64, data ...int64) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			f, err := os.Create(path)
			require.NoError(t, err)
			require.NoError(t, f.Truncate(size))
			for _, off := range data {
				_, err = f.WriteAt([]byte{1}, off)
				require.NoError(t, err)
			}
			require.NoError(t, f.Close())
		}
	}
	const size = testSize
	for _, c := range []struct {
		name string
		have func(t *testing.T, path string)
		o    CreateOptions
		want error
		size uint64
		gone bool // the file must not exist afterwards
	}{
		{"new", nil, CreateOptions{Name: "r", Size: size}, nil, size, false},
		{"new, forced", nil, CreateOptions{Name: "r", Size: size, Force: true}, nil, size, false},
		{"new without size", nil, CreateOptions{Name: "r"}, ErrSize, 0, true},
		{"odd size", nil, CreateOptions{Name: "r", Size: 4097}, ErrSize, 0, true},
		{"size past off_t", nil, CreateOptions{Name: "r", Size: 1 << 63}, ErrSize, 0, true},
		{"more than the disk has", nil, CreateOptions{Name: "r", Size: 1 << 62}, unix.ENOSPC, 0, true},
		{"bad name", nil, CreateOptions{Name: "a/b", Size: size}, ErrName, 0, true},
		{"empty file, size", file(0), CreateOptions{Name: "r", Size: size}, nil, size, false},
		{"empty file, no size", file(0), CreateOptions{Name: "r"}, ErrSize, 0, false},
		{"zeroes", file(8 << 20), CreateOptions{Name: "r"}, nil, 6 << 20, false},
		{"zeroes, no whole block", file(DataOffset + 4097), CreateOptions{Name: "r"}, nil, 4096, false},
		{"zeroes, smaller", file(8 << 20), CreateOptions{Name: "r", Size: size}, nil, size, false},
		{"zeroes, larger", file(8 << 20), CreateOptions{Name: "r", Size: 9 << 20}, nil, 9 << 20, false},
		{"zeroes written", file(8<<20, 8<<20-1), CreateOptions{Name: "r"}, ErrNotEmpty, 0, false},
		{"data in the header", file(8<<20, 0), CreateOptions{Name: "r"}, ErrNotEmpty, 0, false},
		{"data behind a hole", file(8<<20, 5<<20+77), CreateOptions{Name: "r"}, ErrNotEmpty, 0, false},
		{"data, forced", file(8<<20, 5<<20+77, 12), CreateOptions{Name: "r", Force: true}, nil, 6 << 20, false},
		{"data, forced, too large", file(8<<20, 5), CreateOptions{Name: "r", Force: true, Size: 1 << 62}, unix.ENOSPC, 0, false},
		{"not a file", func(t *testing.T, p string) { require.NoError(t, os.Mkdir(p, 0o700)) }, CreateOptions{Name: "r", Size: size}, unix.EISDIR, 0, false},
		{"a broken link", func(t *testing.T, p string) { require.NoError(t, os.Symlink("nowhere", p)) }, CreateOptions{Name: "r", Size: size}, os.ErrNotExist, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "region")
			if c.have != nil {
				c.have(t, path)
			}
			info, err := create(path, c.o, fileHost)
			require.Empty(t, held(t, filepath.Dir(path)))
			if c.gone {
				require.NoFileExists(t, path)
			}
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
				_, err = Inspect(path)
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "r", info.Superblock.Name)
			require.Equal(t, c.size, info.Superblock.Size)
			require.Equal(t, [2]CopyState{CopyGood, CopyGood}, info.Copies)
			r := opened(t, path, OpenOptions{}, fileHost)
			have, err := allocated(r.file)
			require.NoError(t, err)
			require.GreaterOrEqual(t, have, DataOffset+c.size)
			for i, b := range r.Data() {
				if b != 0 {
					t.Fatalf("byte %d is %d", i, b)
				}
			}
		})
	}
}

// Create does not overwrite a region by accident. With force it makes another region.
func TestCreateTwice(t *testing.T) {
	path := created(t, fileHost)
	before, err := Inspect(path)
	require.NoError(t, err)
	_, err = create(path, CreateOptions{Name: "r", Size: testSize}, fileHost)
	require.ErrorIs(t, err, ErrNotEmpty)
	after, err := Inspect(path)
	require.NoError(t, err)
	require.Equal(t, before, after)
	forced, err := create(path, CreateOptions{Name: "r", Force: true}, fileHost)
	require.NoError(t, err)
	require.NotEqual(t, before.Superblock.UUID, forced.Superblock.UUID)
	require.NotEqual(t, before.Superblock.Contents, forced.Superblock.Contents)
	require.Equal(t, before.Superblock.Size, forced.Superblock.Size)
	_, err = Create(PathMemfd, CreateOptions{Name: "r", Size: testSize})
	require.ErrorIs(t, err, ErrClass)
}

// tinyTmpfs mounts a tmpfs with these options, or skips the test.
func tinyTmpfs(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("mount a tmpfs: %v (needs root)", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

// On a full disk Create leaves no new file behind, and leaves an existing file as it was.
func TestNoRoom(t *testing.T) {
	dir := tinyTmpfs(t, "size=4m")
	path := filepath.Join(dir, "region")
	_, err := Create(path, CreateOptions{Name: "r", Size: 3 << 20})
	require.ErrorIs(t, err, unix.ENOSPC)
	require.NoFileExists(t, path)
	_, err = Open(path, OpenOptions{Name: "r", CreateSize: 3 << 20, AllowVolatile: true})
	require.ErrorIs(t, err, unix.ENOSPC)
	require.NoFileExists(t, path)

	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(1<<20))
	_, err = Create(path, CreateOptions{Name: "r", Size: 3 << 20})
	require.ErrorIs(t, err, unix.ENOSPC)
	info, err := f.Stat()
	require.NoError(t, err)
	require.EqualValues(t, 1<<20, info.Size())
	require.ErrorIs(t, reserve(f, 5<<20, nil), unix.ENOSPC, "even if others take the room after checkRoom")
	require.NoError(t, f.Truncate(0))
	require.NoError(t, f.Close())

	_, err = Create(path, CreateOptions{Name: "r", Size: 1 << 20})
	require.NoError(t, err)
	require.Empty(t, held(t, dir))
}
