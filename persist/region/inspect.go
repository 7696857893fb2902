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

// Info is what Inspect found.
type Info struct {
	Path       string
	Superblock Superblock
	// Copies has the state of each copy of the superblock.
	Copies [2]CopyState
	// Class and Platform describe the memory as it is now. Class is 0 if a region cannot
	// be where the file is.
	Class    persist.Class
	Platform Platform
	// DAX: the file is on a filesystem with DAX. RDMA devices cannot pin it.
	DAX bool
	// Bits has how many chunks each other member of the region's mirror may lack, by slot.
	// It is nil if the region is no member, or if the file is too short to have bits.
	Bits []uint64
	// Protection is what Create made of the image of class protected, otherwise nil.
	// InspectImage says what an image is now.
	Protection *Protection
	// Bad has the places of the data extent that the medium is known to have lost. BadUnknown, if not nil,
	// is why there may be more.
	Bad        persist.BadPlaces
	BadUnknown error
	// Parts describes the parts, if the region has several and all of them were named.
	Parts []PartInfo
	// Exposed is ErrExposed if this process would refuse to serve the region, otherwise
	// nil.
	Exposed error
}

// Inspect reads the superblock of the region at path and counts the bits of a mirror's
// members. It takes no lock and changes
// nothing. So it can inspect a region that is being served, and that of another user.
//
// further are the paths of the region's further parts. Without them Inspect says of a region
// of several parts what the first one has, and its class may be better than the region's.
func Inspect(path string, further ...string) (Info, error) {
	return inspectPath(path, thisMachine, further...)
}

func inspectPath(path string, on medium.Medium, further ...string) (Info, error) {
	// Without O_NONBLOCK, opening a FIFO would wait for its writer.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return Info{}, err
	}
	info, err := inspectParts(f, further, on)
	// Open it again as serve would.
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
	// A copy of a region may be anywhere, also where no region can be.
	mem, err := on.Identify(f)
	if err != nil && !st.Mode().IsRegular() {
		return Info{}, fmt.Errorf("%s: %w: %w", f.Name(), ErrNoSuperblock, err)
	}
	// An update may be under way. If two reads are equal, they are no mixture of old and
	// new.
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
		return Info{}, fmt.Errorf("%s: %w", f.Name(), notRegion(err, header[:]))
	}
	if mem.RAM && found.best.Class == persist.ClassProtected {
		mem.Class = persist.ClassProtected
	}
	bits, err := countBits(f, &mem, &found.best.Record)
	if err != nil {
		return Info{}, fmt.Errorf("%s: read the bits of the mirror's members: %w", f.Name(), err)
	}
	var bad badPlaces
	bad.find(f, &mem, found.best.Size, on)
	bad.inspectRepairs(f, &mem, found.best.Size)
	return Info{
		Bad: bad.places(), BadUnknown: bad.unknown,
		Path: f.Name(), Superblock: found.best, Copies: found.states, Class: mem.Class, Platform: mem.Platform, DAX: mem.DAX, Bits: bits,
	}, nil
}

// countBits counts the bits of the members outside F. A session may change them meanwhile.
func countBits(f *os.File, m *medium.Memory, rec *persist.Record) ([]uint64, error) {
	if *rec == (persist.Record{}) {
		return nil, nil
	}
	header := make([]byte, DataOffset)
	switch err := readHeader(f, m, header); {
	case errors.Is(err, ErrNoSuperblock):
		return nil, nil // too short
	case err != nil:
		return nil, err
	}
	n := make([]uint64, persist.MaxMembers)
	for slot := range n {
		if outside(rec).Has(slot) {
			at := bitmapOffset(int(rec.Slot), slot)
			n[slot] = ones(header[at : at+bitmapSize])
		}
	}
	return n, nil
}

// explain adds what to do about a superblock that cannot be used.
func explain(err error) error {
	switch {
	case errors.Is(err, ErrDamaged):
		return fmt.Errorf("%w: restore the file from a copy, or discard the contents with `pmnbd-target region create --force`", err)
	case errors.Is(err, ErrNoSuperblock):
		return fmt.Errorf("%w: make a region with `pmnbd-target region create`", err)
	}
	return err
}
