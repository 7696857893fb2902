package region

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

// Info is what an Inspect saw.
type Info struct {
	Path       string
	Superblock Superblock
	// Copies is the state of the superblock's copies.
	Copies [2]CopyState
	// Class and Platform are what the memory is now; a Class of 0 if it could not be a
	// region where it is.
	Class    persist.Class
	Platform Platform
	// DAX: a file on a filesystem with DAX, which RDMA devices cannot pin.
	DAX bool
	// Exposed is ErrExposed if this process would not serve the region; else nil.
	Exposed error
}

// Inspect reads the superblock of the region at path. It takes no lock and
// changes nothing: a region that is served can be looked at, and another user's, too.
func Inspect(path string) (Info, error) { return inspectPath(path, thisMachine) }

func inspectPath(path string, on medium.Medium) (Info, error) {
	// Without O_NONBLOCK a FIFO would wait for its writer.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return Info{}, err
	}
	info, err := inspect(f, on)
	// As serve would open it.
	if node, refused := openNode(path, os.O_RDONLY|unix.O_NONBLOCK); errors.Is(refused, ErrExposed) {
		info.Exposed = refused
	} else if refused == nil {
		err = errors.Join(err, node.Close())
	}
	return info, errors.Join(err, f.Close())
}

func inspect(f *os.File, on medium.Medium) (Info, error) {
	st, err := f.Stat()
	if err != nil {
		return Info{}, err
	}
	// A copy of a region can be looked at wherever it is.
	mem, err := on.Identify(f)
	if err != nil && !st.Mode().IsRegular() {
		return Info{}, fmt.Errorf("%s: %w: %w", f.Name(), ErrNoSuperblock, err)
	}
	// An update may be under way: what two reads agree on is no mixture.
	var header, before [2 * CopySize]byte
	for range 16 {
		if err := readHeader(f, &mem, header[:]); err != nil {
			return Info{}, fmt.Errorf("%s: %w", f.Name(), err)
		}
		if bytes.Equal(header[:], before[:]) {
			break
		}
		before = header
	}
	found, err := readCopies(header[:])
	if err != nil {
		return Info{}, fmt.Errorf("%s: %w", f.Name(), explain(err))
	}
	return Info{Path: f.Name(), Superblock: found.best, Copies: found.states, Class: mem.Class, Platform: mem.Platform, DAX: mem.DAX}, nil
}

// explain adds what to do about a superblock that cannot be used.
func explain(err error) error {
	switch {
	case errors.Is(err, ErrDamaged):
		return fmt.Errorf("%w: bring back a copy of the file, or discard the contents with `pmnbd-target region create --force`", err)
	case errors.Is(err, ErrNoSuperblock):
		return fmt.Errorf("%w: make a region with `pmnbd-target region create`", err)
	}
	return err
}
