package region

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"pmnbd/persist"
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
func Inspect(path string) (Info, error) { return inspectPath(path, thisHost) }

func inspectPath(path string, h host) (Info, error) {
	// Without O_NONBLOCK a FIFO would wait for its writer.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return Info{}, err
	}
	info, err := inspect(f, h)
	// As serve would open it.
	if node, refused := openNode(path, os.O_RDONLY|unix.O_NONBLOCK); errors.Is(refused, ErrExposed) {
		info.Exposed = refused
	} else if refused == nil {
		err = errors.Join(err, node.Close())
	}
	return info, errors.Join(err, f.Close())
}

func inspect(f *os.File, h host) (Info, error) {
	st, err := f.Stat()
	if err != nil {
		return Info{}, err
	}
	// A copy of a region can be looked at wherever it is.
	mem, err := h.memoryOf(f)
	if err != nil && !st.Mode().IsRegular() {
		return Info{}, fmt.Errorf("%s: %w: %w", f.Name(), ErrNoSuperblock, err)
	}
	// An update may be under way: what two reads agree on is no mixture.
	var header, before [2 * CopySize]byte
	for range 16 {
		if err := mem.readHeader(f, header[:]); err != nil {
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
	return Info{Path: f.Name(), Superblock: found.best, Copies: found.states, Class: mem.class, Platform: mem.platform, DAX: mem.dax}, nil
}

// readHeader reads both copies of the superblock.
func readHeader(f *os.File, b []byte) error {
	_, err := f.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		return explain(ErrNoSuperblock)
	}
	return err
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
