package region

import (
	"errors"
	"fmt"
	"os"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

// ErrFurther means that a file or device is a further part of a region. The region's
// commands take it as such, behind the first part.
var ErrFurther = errors.New("further part of a region")

// notRegion says what to do about memory that begins no region.
func notRegion(err error, header []byte) error {
	if !errors.Is(err, ErrNoSuperblock) || !isPart(header) && !isPart(header[CopySize:]) {
		return explain(err)
	}
	return errFurther(header)
}

// errFurther describes a further part by its superblock.
func errFurther(header []byte) error {
	c, partErr := readPart(header)
	if partErr != nil {
		return fmt.Errorf("%w: %w", ErrFurther, partErr)
	}
	h := &c.best
	return &FurtherError{Place: int(h.place), Parts: int(h.parts), Region: h.region, Size: h.size, Class: h.class}
}

// A FurtherError is ErrFurther, and says which part it is.
type FurtherError struct {
	Place, Parts int      // Place is at least 1
	Region       [16]byte // its UUID
	Size         uint64   // of the part's data, in bytes
	Class        persist.Class
}

func (e *FurtherError) Error() string {
	return fmt.Sprintf("%v: part %d of %d (from 0) of the region with UUID %v: name the region's first part first, then this one with --part or part=",
		ErrFurther, e.Place, e.Parts, uuid.UUID(e.Region))
}

// Unwrap returns ErrFurther.
func (e *FurtherError) Unwrap() error { return ErrFurther }

// A PartInfo is what Inspect found out about a part of a region of several.
type PartInfo struct {
	Path string
	// Size is that of the part's data in bytes, which begin at Start of the region.
	Size, Start uint64
	// Stamp is the number that all parts share. While a change of it is under way, or was
	// interrupted, some have the one before.
	Stamp  uint64
	Copies [2]CopyState
	// Class and Platform describe the part's memory as it is now.
	Class    persist.Class
	Platform Platform
}

// inspectParts is inspect for a region with these further parts. It checks them as Open
// does.
func inspectParts(f *os.File, further []string, on medium.Medium) (info Info, err error) {
	if info, err = inspect(f, on); err != nil || len(further) == 0 {
		return info, err
	}
	mem, err := on.Identify(f)
	if err != nil {
		return info, fmt.Errorf("%s: %w", f.Name(), err)
	}
	parts := []part{{path: f.Name(), file: f, mem: mem}}
	defer func() { err = errors.Join(err, closeFurther(parts)) }()
	for i, path := range further {
		f, err := os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return info, fmt.Errorf("part %d of the region: %w", i+1, err)
		}
		parts = append(parts, part{path: path, file: f})
		if parts[i+1].mem, err = on.Identify(f); err != nil {
			return info, fmt.Errorf("part %d, %s: %w", i+1, path, err)
		}
	}
	// A change may be under way: of two looks, one is between changes.
	for range 16 {
		if err = readParts(parts, &copies{chosen: chosen[Superblock]{best: info.Superblock, states: info.Copies}}); !errors.Is(err, ErrOlder) {
			break
		}
		again, err := inspect(f, on)
		if err != nil {
			return info, err
		}
		info = again
	}
	if err != nil {
		return info, fmt.Errorf("%s: %w", f.Name(), err)
	}
	m, err := weakest(parts)
	if err != nil {
		return info, err
	}
	info.Class, info.Platform, info.DAX = m.Class, m.Platform, m.DAX
	var bad badPlaces
	bad.findParts(parts, info.Superblock.Size, on)
	bad.inspectRepairs(f, &mem, info.Superblock.Size)
	info.Bad, info.BadUnknown = bad.places(), bad.unknown
	for i := range parts {
		p := &parts[i]
		v := PartInfo{
			Path: p.path, Size: p.size, Start: p.start, Stamp: p.found.best.stamp, Copies: p.found.states,
			Class: p.mem.Class, Platform: p.mem.Platform,
		}
		if i == 0 {
			v.Stamp, v.Copies = info.Superblock.Stamp, info.Copies
		}
		info.Parts = append(info.Parts, v)
	}
	return info, nil
}
