package region

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

// A newPart is a file or device that becomes a part.
type newPart struct {
	part
	made bool  // by us
	keep int64 // the size of a file that was there
}

// createParts is create for several parts. It touches no contents before it knows that all
// parts fit together. The first part gets its superblock last, so a crash leaves no region
// or a whole one.
func createParts(path string, o CreateOptions, on medium.Medium) (info Info, err error) {
	if err := CheckName(o.Name); err != nil {
		return Info{}, err
	}
	if 1+len(o.Parts) > MaxParts {
		return Info{}, fmt.Errorf("%w: %d parts: a region has at most %d", ErrPart, 1+len(o.Parts), MaxParts)
	}
	var all []newPart
	begun := false
	defer func() {
		for i := range all {
			if err != nil {
				err = errors.Join(err, all[i].undo(begun))
			}
			err = errors.Join(err, all[i].file.Close())
		}
	}()
	for i, path := range append([]string{path}, o.Parts...) {
		n, err := openNew(path, o, on, partsOf(all))
		if err != nil {
			return Info{}, fmt.Errorf("part %d: %w", i, err)
		}
		all = append(all, n)
	}
	parts := partsOf(all)
	if err := divide(parts, all, o.Size); err != nil {
		return Info{}, err
	}
	mem, err := weakest(parts)
	if err != nil {
		return Info{}, err
	}
	begun = true
	for i := range all {
		all[i].part = parts[i]
		if err := all[i].prepare(o, on); err != nil {
			return Info{}, fmt.Errorf("part %d, %s: %w", i, parts[i].path, err)
		}
	}
	if err := formatParts(parts, o, &mem, on); err != nil {
		return Info{}, err
	}
	return inspectParts(parts[0].file, o.Parts, on)
}

func partsOf(all []newPart) []part {
	parts := make([]part, 0, len(all))
	for i := range all {
		parts = append(parts, all[i].part)
	}
	return parts
}

// openNew opens the file or device of a part that does not exist yet, locked. It makes a
// file that is missing.
func openNew(path string, o CreateOptions, on medium.Medium, before []part) (n newPart, err error) {
	if path == PathMemfd {
		return n, fmt.Errorf("%w: anonymous memory cannot be a part of a region", ErrClass)
	}
	n.path = path
	if at, err := sameFile(before, path); err != nil || at >= 0 {
		return n, errors.Join(err, fmt.Errorf("%s: %w: it is part %d already", path, ErrPart, at))
	}
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) && !amongDevices(path) {
		if o.Size == 0 {
			return n, fmt.Errorf("%s: no %w: there is no such file, and a new part needs a size: use --size-per-part", path, ErrSize)
		}
		n.made = true
		n.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return n, err
		}
		if n.mem, err = lockAndClassify(n.file, on); errors.Is(err, ErrInUse) { // as in createFile
			return n, errors.Join(err, n.file.Close())
		} else if err != nil {
			return n, errors.Join(err, os.Remove(path), n.file.Close())
		}
		return n, nil
	}
	if n.file, n.mem, err = openLocked(path, on); err != nil {
		return n, err
	}
	info, err := n.file.Stat()
	if err != nil {
		return n, errors.Join(err, n.file.Close())
	}
	n.keep = info.Size()
	return n, nil
}

// divide gives each part its size and place. each is the size of every part's data in
// bytes, or 0: as much as there is.
func divide(parts []part, all []newPart, each uint64) error {
	end := uint64(0)
	for i := range parts {
		p := &parts[i]
		p.start, p.data, p.size = end, DataOffset, each
		if i > 0 {
			p.data = roundUp(DataOffset, p.align())
		}
		have := uint64(all[i].keep)
		if p.mem.Device != 0 {
			have = p.mem.Device
		}
		if have < p.data+sizeUnit && (each == 0 || p.mem.Device != 0) {
			return fmt.Errorf("part %d, %s: %w: it has %d bytes, and a part needs at least %d", i, p.path, ErrSize, have, p.data+sizeUnit)
		}
		if each == 0 {
			unit := uint64(sizeUnit)
			if i < len(parts)-1 { // leave the next part a place that huge pages can map
				unit = max(p.align(), parts[i+1].align(), hugePage)
			}
			at := DataOffset + p.start
			p.size = max((at+have-p.data)/unit*unit, at) - at
		}
		if err := CheckSize(p.size); err != nil {
			return fmt.Errorf("part %d, %s: %w", i, p.path, err)
		}
		if p.mem.Device != 0 && p.data+p.size > have {
			return fmt.Errorf("part %d, %s: %w: the device has room for %d bytes, and the part needs %d", i, p.path, ErrSize, have-p.data, p.size)
		}
		if end = p.end(); end > maxSize {
			return fmt.Errorf("%w: the parts have more than %d bytes", ErrSize, uint64(maxSize))
		}
	}
	return checkAligned(parts)
}

// prepare allocates the part's space and makes it all zeroes.
func (n *newPart) prepare(o CreateOptions, on medium.Medium) error {
	if n.mem.Device != 0 {
		return clearDevice(n.file, &n.mem, o.Force, on)
	}
	if !n.made {
		if o.Force { // as in reformat
			if err := n.file.Truncate(0); err != nil {
				return err
			}
			n.keep = 0
		} else if err := checkZero(n.file, n.keep, o.Progress); err != nil {
			return err
		}
	}
	if err := allocate(n.file, n.data+n.size, o.Progress); err != nil {
		return err
	}
	if n.mem.Class == persist.ClassPMem {
		return writeZeroes(n.file, n.data+n.size, o.Progress)
	}
	return nil
}

// undo removes a file that we made, and gives one that was there its size back.
func (n *newPart) undo(begun bool) error {
	switch {
	case n.made:
		return os.Remove(n.path)
	case begun && n.mem.Device == 0:
		return n.file.Truncate(n.keep)
	}
	return nil
}

// formatParts writes the superblocks, the first part's last.
func formatParts(parts []part, o CreateOptions, mem *medium.Memory, on medium.Medium) error {
	boot, err := on.BootID()
	if err != nil {
		return fmt.Errorf("boot id: %w", err)
	}
	last := &parts[len(parts)-1]
	sb := Superblock{
		UUID: newID(), Name: o.Name, Size: last.end(), Class: mem.Class, Boot: boot, Contents: newID(),
		Epoch: 1, Clean: true, UnsafeShutdowns: mem.Platform.UnsafeShutdowns,
		Parts: uint8(len(parts)), Stamp: 2, StampNonces: [2]uint64{newNonce(), newNonce()},
	}
	o.Progress.tell("sync", 0, 0)
	for i := len(parts) - 1; i >= 0; i-- {
		p := &parts[i]
		header, err := p.mem.Map(p.file, DataOffset, unix.PROT_READ|unix.PROT_WRITE)
		if err != nil {
			return fmt.Errorf("part %d, %s: %w", i, p.path, err)
		}
		if i == 0 {
			err = writeFirst(p.file, header[:2*CopySize], sb, &p.mem, on)
		} else {
			err = p.writeFirst(header[:2*CopySize], &sb, i, on)
		}
		err = errors.Join(err, unix.Munmap(header))
		if err == nil && p.mem.Device == 0 {
			err = syncDir(filepath.Dir(p.path))
		}
		if err != nil {
			return fmt.Errorf("part %d, %s: %w", i, p.path, err)
		}
	}
	return nil
}

// writeFirst stores the first superblock of part i in both copies of header.
func (p *part) writeFirst(header []byte, sb *Superblock, i int, on medium.Medium) (err error) {
	defer caught(header, debug.SetPanicOnFault(true), &err)
	for at := range 2 {
		h := partHead{
			region: sb.UUID, stamp: sb.Stamp - uint64(1-at), nonce: sb.StampNonces[1-at], class: p.mem.Class, place: uint8(i), parts: sb.Parts,
			size: p.size, start: p.start, data: p.data,
		}
		h.encode(header[at*CopySize : (at+1)*CopySize])
	}
	// The region is not there yet, so nobody cares about a part that is torn.
	return makeDurable(p.file, &p.mem, header, on)
}
