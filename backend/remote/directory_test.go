package remote

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Nothing is kept in a directory, or in a file, that somebody else may take away or change.
func TestDirectory(t *testing.T) {
	for _, tt := range []struct {
		name string
		make func(t *testing.T, path string)
		says string
	}{
		{"none", func(*testing.T, string) {}, ""},
		{"ours", func(t *testing.T, path string) { require.NoError(t, os.Mkdir(path, 0o755)) }, ""},
		{"a symbolic link", func(t *testing.T, path string) { require.NoError(t, os.Symlink(t.TempDir(), path)) }, "symbolic link"},
		{"a file", func(t *testing.T, path string) { require.NoError(t, os.WriteFile(path, nil, 0o600)) }, "not a directory"},
		{"writable for the group", func(t *testing.T, path string) {
			require.NoError(t, os.Mkdir(path, 0o700))
			require.NoError(t, os.Chmod(path, 0o770))
		}, "chmod go-w"},
		{"writable for everybody", func(t *testing.T, path string) {
			require.NoError(t, os.Mkdir(path, 0o700))
			require.NoError(t, os.Chmod(path, 0o777|fs.ModeSticky))
		}, "chmod go-w"},
		{"somebody else's", func(t *testing.T, path string) {
			require.NoError(t, os.Mkdir(path, 0o700))
			if err := os.Chown(path, 65534, 65534); err != nil {
				t.Skip("needs root to make one")
			}
		}, "belongs to user 65534"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "dir")
			tt.make(t, path)
			d, err := openDirectory(path)
			if tt.says == "" {
				require.NoError(t, err)
				require.NoError(t, d.Close())
				return
			}
			require.ErrorContains(t, err, tt.says)
			_, err = openWindowFile(path, [16]byte{1}, [16]byte{2})
			require.ErrorContains(t, err, tt.says)
			_, err = claimRegion(path, [16]byte{1}, [16]byte{2})
			require.ErrorContains(t, err, tt.says)
		})
	}
}

func TestFilesOfADirectory(t *testing.T) {
	path := t.TempDir()
	d, err := openDirectory(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	_, err = d.Read("none")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, d.Write("a", []byte("first"), true))
	require.NoError(t, d.Write("a", []byte("second"), true))
	b, err := d.Read("a")
	require.NoError(t, err)
	require.Equal(t, "first", string(b), "it was to be kept")
	require.NoError(t, d.Write("a", []byte("third"), false))
	b, err = d.Read("a")
	require.NoError(t, err)
	require.Equal(t, "third", string(b))
	left, err := os.ReadDir(path)
	require.NoError(t, err)
	require.Len(t, left, 1, "no draft is left")
	require.NoError(t, d.Remove("a"))
	require.NoError(t, d.Remove("a"))
	for name, make := range map[string]func(file string) error{
		"linked":           func(file string) error { return os.Symlink(filepath.Join(path, "target"), file) },
		"of another name":  func(file string) error { return os.Link(filepath.Join(path, "target"), file) },
		"fifo":             func(file string) error { return unix.Mkfifo(file, 0o600) },
		"open to everyone": func(file string) error { return errors.Join(os.WriteFile(file, nil, 0o600), os.Chmod(file, 0o666)) },
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(filepath.Join(path, "target"), []byte("secret"), 0o600))
			require.NoError(t, make(filepath.Join(path, "odd")))
			_, err := d.Read("odd")
			require.Error(t, err)
			_, err = d.lock("odd", unix.O_RDWR|unix.O_CREAT)
			require.Error(t, err)
			require.NoError(t, d.Remove("odd"))
			require.NoError(t, d.Remove("target"))
		})
	}
}

// The error for a locked file names the process that holds it. A file that somebody removed under its lock is created again.
func TestLock(t *testing.T) {
	d, err := openDirectory(t.TempDir())
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	f, err := d.lock("a", unix.O_RDWR|unix.O_CREAT)
	require.NoError(t, err)
	_, err = d.lock("a", unix.O_RDWR)
	require.ErrorIs(t, err, errLocked)
	require.ErrorContains(t, err, fmt.Sprintf("process %d", os.Getpid()))
	require.NoError(t, d.Remove("a"))
	g, err := d.lock("a", unix.O_RDWR|unix.O_CREAT)
	require.NoError(t, err, "another file")
	require.NoError(t, errors.Join(f.Close(), g.Close()))
}

// Several starts at a time make the initiator's id. None meets a file that is half there, or has two names.
func TestFirstWriterWins(t *testing.T) {
	d, err := openDirectory(t.TempDir())
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	for i := range 200 {
		name := strconv.Itoa(i)
		written := make(chan error)
		for range 2 {
			go func() { written <- d.Write(name, []byte("first"), true) }()
		}
		b, err := d.Read(name)
		for ; errors.Is(err, os.ErrNotExist); b, err = d.Read(name) {
		}
		require.NoError(t, <-written)
		require.NoError(t, <-written)
		require.NoError(t, err)
		require.Equal(t, "first", string(b))
		require.NoError(t, d.Write(name, []byte("second"), true))
		b, err = d.Read(name)
		require.NoError(t, err)
		require.Equal(t, "first", string(b))
	}
	left, err := os.ReadDir(d.path)
	require.NoError(t, err)
	require.Len(t, left, 200, "no draft stays")
}
