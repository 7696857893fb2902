package region

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

// A rival is a saver on which somebody else locks a file that has just been made, before its maker does.
type rival struct {
	saver
	path string
	lock func(path string)
}

func (m rival) Identify(f *os.File) (medium.Memory, error) {
	if f.Name() == m.path {
		m.lock(m.path)
	}
	return m.saver.Identify(f)
}

// TestCreatesAtOnce: of two who create a region in the same place at a time, the slower one removes nothing that the
// faster one has by then.
func TestCreatesAtOnce(t *testing.T) {
	protected := func(dir string) CreateOptions {
		return CreateOptions{Name: "r", Size: protectedSize, Class: persist.ClassProtected, Save: dir}
	}
	for name, tt := range map[string]struct {
		contended string
		options   func(dir string) CreateOptions
	}{
		"an image": {"r.save", protected},
		"memory":   {"memory", protected},
		"a file":   {"memory", func(string) CreateOptions { return CreateOptions{Name: "r", Size: 1 << 20} }},
		"a part": {"part", func(dir string) CreateOptions {
			return CreateOptions{Name: "r", Size: 1 << 20, Parts: []string{filepath.Join(dir, "part")}}
		}},
		"the first of parts": {"memory", func(dir string) CreateOptions {
			return CreateOptions{Name: "r", Size: 1 << 20, Parts: []string{filepath.Join(dir, "part")}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var held *os.File
			on := rival{saverIn(bootA), filepath.Join(dir, tt.contended), func(path string) {
				if held == nil {
					var err error
					held, err = os.Open(path)
					require.NoError(t, err)
					require.NoError(t, unix.Flock(int(held.Fd()), unix.LOCK_EX|unix.LOCK_NB))
				}
			}}
			_, err := create(filepath.Join(dir, "memory"), tt.options(dir), on)
			require.ErrorIs(t, err, ErrInUse)
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Len(t, entries, 1, "what it made itself")
			require.Equal(t, tt.contended, entries[0].Name())
			require.NoError(t, held.Close())
		})
	}
}

// TestCreateThatFailsKeepsItsLocks: a create that fails has removed its image by the time at which somebody else, who
// waits for the lock, has it.
func TestCreateThatFailsKeepsItsLocks(t *testing.T) {
	dir := t.TempDir()
	memory, saved := filepath.Join(dir, "memory"), ImagePath(dir, "r")
	there := make(chan error)
	wait := sync.OnceFunc(func() {
		f, err := os.OpenFile(saved, os.O_RDWR, 0)
		require.NoError(t, err)
		go func() {
			err := error(unix.EWOULDBLOCK)
			for errors.Is(err, unix.EWOULDBLOCK) { // asleep it would miss the moment between the close and the removal
				err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
			}
			there <- errors.Join(err, named(f), f.Close())
		}()
	})
	o := CreateOptions{Name: "r", Size: 8 * protectedSize, Class: persist.ClassProtected, Save: dir, SaveWithin: 1}
	_, err := create(memory, o, meddler{saverIn(bootA), wait})
	require.ErrorIs(t, err, ErrSave)
	require.ErrorIs(t, <-there, ErrInUse)
	require.NoFileExists(t, memory)
	require.NoFileExists(t, saved)
}

// TestRemovedBeforeItIsLocked: who opens a region, or its image, while somebody who has the lock removes it, must not
// go on with a file that has no name.
func TestRemovedBeforeItIsLocked(t *testing.T) {
	for name, tt := range map[string]struct{ file string }{"the region": {"memory"}, "the image": {"r.save"}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "memory")
			_, err := create(path, CreateOptions{Name: "r", Size: protectedSize, Class: persist.ClassProtected, Save: dir}, saverIn(bootA))
			require.NoError(t, err)
			gone := func(at string) { require.NoError(t, os.Remove(at)) }
			_, err = open(path, OpenOptions{Save: dir}, rival{saverIn(bootA), filepath.Join(dir, tt.file), gone})
			require.ErrorIs(t, err, ErrInUse)
			require.ErrorContains(t, err, "try again")
		})
	}
}
