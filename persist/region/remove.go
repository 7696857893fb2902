package region

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"pmnbd/persist/region/internal/medium"
)

// ErrNotClean means that a region may hold data that somebody still needs.
var ErrNotClean = errors.New("region is not clean")

// Remove removes the region at path: the file, or the superblock on a device. The region
// must not be open anywhere (ErrInUse), and must be clean (ErrNotClean). With force its
// state does not matter. Remove never removes anything that is not a region
// (ErrNoSuperblock).
//
// further are the paths of the region's further parts, which Remove removes, too. Without
// them it removes no region of several parts, unless forced. Then the first part alone goes.
func Remove(path string, force bool, further ...string) error {
	if len(further) > 0 {
		return removeParts(path, force, thisMachine, further)
	}
	return removeRegion(path, force, thisMachine)
}

func removeRegion(path string, force bool, on medium.Medium) error {
	f, mem, err := openLocked(path, on)
	if err != nil {
		return err
	}
	if !force && isProtected(f, &mem) {
		return errors.Join(needsSave(path), f.Close())
	}
	return errors.Join(remove(f, &mem, force, on), f.Close())
}

// remove removes the region in f, which is locked.
func remove(f *os.File, m *medium.Memory, force bool, on medium.Medium) error {
	var header [2 * CopySize]byte
	if err := readHeader(f, m, header[:]); err != nil {
		return fmt.Errorf("%s: not removed: %w", f.Name(), err)
	}
	found, err := readCopies(header[:])
	if isPart(header[:]) || isPart(header[CopySize:]) {
		err = errFurther(header[:])
	}
	sb := &found.best
	switch {
	case errors.Is(err, ErrNoSuperblock), err != nil && !force:
		return fmt.Errorf("%s: not removed: %w", f.Name(), err)
	case err == nil && !force && sb.Parts > 0:
		return fmt.Errorf("%s: not removed: %w: region %s has %d: name the further ones with --part", f.Name(), ErrPart, sb.Name, sb.Parts)
	case err == nil && !force && (!sb.Clean || sb.Doubt || sb.Failed || sb.Suspect):
		return fmt.Errorf("%s: not removed: %w: its last session did not close, or it is failed or suspect, and its owner may come back; --force removes it anyway",
			f.Name(), ErrNotClean)
	}
	if m.Device == 0 {
		if err := os.Remove(f.Name()); err != nil {
			return err
		}
		if err := syncDir(filepath.Dir(f.Name())); err != nil {
			return err
		}
	}
	// Wipe a file, too. A process may have opened it before it was removed and get the
	// lock after us. That process must not serve a file without a name.
	b, err := m.Map(f, DataOffset, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	return errors.Join(wipe(b, on), unix.Munmap(b))
}

// removeParts removes a region of several parts, the first part first: without it there is
// no region.
func removeParts(path string, force bool, on medium.Medium, further []string) error {
	f, mem, err := openLocked(path, on)
	if err != nil {
		return err
	}
	parts, err := openParts(f, mem, path, further, true, on)
	if err == nil {
		err = removable(parts, force)
	}
	for i := range parts { // all of them locked until the end: nobody serves what is checked and half removed
		if err == nil {
			err = remove(parts[i].file, &parts[i].mem, true, on)
		}
	}
	return errors.Join(err, closeFurther(parts), f.Close())
}

// removable returns an error if parts are no region that may be removed. Force removes what is damaged, or too few or too
// old parts, and never what belongs to another region.
func removable(parts []part, force bool) error {
	if force {
		return related(parts)
	}
	var header [2 * CopySize]byte
	path := parts[0].path
	if err := readHeader(parts[0].file, &parts[0].mem, header[:]); err != nil {
		return fmt.Errorf("%s: not removed: %w", path, err)
	}
	found, err := readCopies(header[:])
	if err == nil {
		err = readParts(parts, &found)
	}
	sb := &found.best
	switch {
	case err != nil:
		return fmt.Errorf("%s: not removed: %w", path, err)
	case !sb.Clean || sb.Doubt || sb.Failed || sb.Suspect:
		return fmt.Errorf("%s: not removed: %w: its last session did not close, or it is failed or suspect, and its owner may come back; --force removes it anyway",
			path, ErrNotClean)
	}
	return nil
}

// related returns an error if one of parts is of another region than the others, or of none. Nobody knows of which a
// damaged one is, or one that another release made.
func related(parts []part) error {
	var of [16]byte
	for i := range parts {
		p := &parts[i]
		var header [2 * CopySize]byte
		if err := readHeader(p.file, &p.mem, header[:]); err != nil {
			return fmt.Errorf("%s: not removed: %w", p.path, err)
		}
		var id [16]byte
		var err error
		if i == 0 && !isPart(header[:]) && !isPart(header[CopySize:]) {
			var found copies
			found, err = readCopies(header[:])
			id = found.best.UUID
		} else {
			if p.found, err = readPart(header[:]); err != nil {
				err = notPart(err, header[:])
			}
			id = p.found.best.region
		}
		switch {
		case errors.Is(err, ErrDamaged), errors.Is(err, ErrVersion):
		case err != nil:
			return fmt.Errorf("%s: not removed: %w", p.path, err)
		case of != [16]byte{} && of != id:
			return fmt.Errorf("%s: not removed: %w: it belongs to the region with UUID %v, and a part named before it to %v: name one region's", p.path, ErrPart, uuid.UUID(id), uuid.UUID(of))
		default:
			of = id
		}
	}
	return nil
}

// wipe clears the superblock's copies at the start of mem.
func wipe(mem []byte, on medium.Medium) (err error) {
	defer caught(mem, debug.SetPanicOnFault(true), &err)
	clear(mem[:2*CopySize])
	on.WriteBack(mem, 0, 2*CopySize)
	return nil
}
