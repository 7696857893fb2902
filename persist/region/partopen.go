package region

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"pmnbd/internal/vmem"
	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

// A part is one part of a region of several.
type part struct {
	path string
	file *os.File // holds the flock
	mem  medium.Memory

	size, start, data uint64 // as a partHead has them

	// What follows is of further parts, and belongs to the region's lock.
	head  uint64 // where in the region's mapping the superblock is
	found chosen[partHead]
	left  [2]uint64 // the stamps that this process left in the copies

	done   uint64 // the last successful sync, as begun counts them; under the region's lock
	syncer partSyncer
}

// end is where in the region the part's data end.
func (p *part) end() uint64 { return p.start + p.size }

// synced reports whether stores to the part are durable after a sync, not after a
// write-back.
func (p *part) synced() bool { return p.mem.Class == persist.ClassFile }

// openParts opens and locks the further parts of a region whose first part is f. path is
// that of the first part.
func openParts(f *os.File, m medium.Memory, path string, further []string, volatile bool, on medium.Medium) (_ []part, err error) {
	if len(further) == 0 {
		return nil, nil
	}
	if len(further) >= MaxParts {
		return nil, fmt.Errorf("%s: %w: %d parts: a region has at most %d", path, ErrPart, 1+len(further), MaxParts)
	}
	parts := []part{{path: path, file: f, mem: m}}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeFurther(parts))
		}
	}()
	for i, path := range further {
		if at, err := sameFile(parts, path); err != nil {
			return nil, fmt.Errorf("part %d: %w", i+1, err)
		} else if at >= 0 {
			return nil, fmt.Errorf("%s: %w: parts %d and %d are the same: name each file or device once", path, ErrPart, at, i+1)
		}
		f, mem, err := openLocked(path, on)
		if errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("%w: without it the region cannot be served: bring the file or device back", err)
		}
		if err != nil {
			return nil, fmt.Errorf("part %d of the region: %w", i+1, err)
		}
		parts = append(parts, part{path: path, file: f, mem: mem})
		if mem.Class == persist.ClassVolatile && !volatile {
			return nil, fmt.Errorf("part %d of the region: %w", i+1, refuseVolatile(path, mem.Why))
		}
	}
	return parts, nil
}

// sameFile returns which of parts has the file or device at path, or -1.
func sameFile(parts []part, path string) (int, error) {
	var st, other unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return -1, nil //nolint:nilerr // to open it will say more
	}
	for i := range parts {
		if err := unix.Fstat(int(parts[i].file.Fd()), &other); err != nil {
			return -1, err
		}
		device := st.Mode&unix.S_IFMT == unix.S_IFCHR && other.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == other.Rdev
		if device || st.Dev == other.Dev && st.Ino == other.Ino {
			return i, nil
		}
	}
	return -1, nil
}

// closeFurther closes the files of all parts but the first.
func closeFurther(parts []part) error {
	var errs []error
	for i := range parts {
		if i > 0 {
			errs = append(errs, release(parts[i].file))
		}
	}
	return errors.Join(errs...)
}

// release gives up the lock on f and closes f. To close is not enough: the lock lives as long
// as any descriptor of the file, and a child process that is just being started has all of
// this process's until it executes its program.
func release(f *os.File) error {
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close())
}

// weakest returns what is true of all parts. A region is no better than its worst part.
func weakest(parts []part) (medium.Memory, error) {
	m := parts[0].mem
	m.Device, m.Align = 0, 0
	worst := &parts[0]
	m.Platform.Regions = slices.Clone(m.Platform.Regions)
	for i := range parts {
		p := &parts[i]
		if !combines(p.mem.Class) {
			return m, fmt.Errorf("%s: %w: class %v cannot be a part of a region", p.path, ErrClass, p.mem.Class)
		}
		if i == 0 {
			continue
		}
		if p.mem.Class < worst.mem.Class {
			m.Class, worst = p.mem.Class, p
		}
		m.DAX = m.DAX || p.mem.DAX
		of := &p.mem.Platform
		m.Platform.Regions = append(m.Platform.Regions, of.Regions...)
		m.Platform.Domain = weaker(m.Platform.Domain, of.Domain)
		m.Platform.Counted = m.Platform.Counted || of.Counted
		m.Platform.UnsafeShutdowns += of.UnsafeShutdowns
	}
	slices.Sort(m.Platform.Regions)
	m.Platform.Regions = slices.Compact(m.Platform.Regions)
	// An adapter that writes to the page cache of a volatile region would not mark it dirty.
	for i := range parts {
		if m.Class == persist.ClassVolatile && parts[i].mem.Class == persist.ClassFile {
			return m, fmt.Errorf("%w: %s is class %v and %s is class %v: use parts of which none or all are volatile", ErrClass, worst.path, m.Class, parts[i].path, parts[i].mem.Class)
		}
	}
	m.Why = "part " + worst.path + " is"
	if worst.mem.Why != "" {
		m.Why = "part " + worst.path + ": " + worst.mem.Why
	}
	return m, nil
}

// combines reports whether a region of several parts can have one of this class. The
// classes rise from the weakest.
func combines(c persist.Class) bool {
	return c == persist.ClassVolatile || c == persist.ClassFile || c == persist.ClassPMem
}

// weaker returns the domain of two in which less survives.
func weaker(a, b Domain) Domain {
	switch {
	case !a.Persistent() || !b.Persistent():
		return DomainNone
	case a == DomainMemory || b == DomainMemory:
		return DomainMemory
	}
	return a
}

// readParts reads the superblocks of the further parts and checks that the parts are those
// of the region first, whole and of one time. It fills in what they say.
func readParts(parts []part, first *copies) error {
	sb := &first.best
	if int(sb.Parts) != max(len(parts), 1) && (sb.Parts > 0 || len(parts) > 0) {
		return fmt.Errorf("%w: region %s has %d, and %d were named: name all of them in their order, as in --region %[2]s=A,part=B",
			ErrPart, sb.Name, max(sb.Parts, 1), max(len(parts), 1))
	}
	for i := range parts {
		p := &parts[i]
		if i == 0 {
			continue
		}
		var header [2 * CopySize]byte
		if err := readHeader(p.file, &p.mem, header[:]); err != nil {
			return fmt.Errorf("part %d, %s: %w", i, p.path, err)
		}
		var err error
		if p.found, err = readPart(header[:]); err != nil {
			return fmt.Errorf("part %d, %s: %w", i, p.path, notPart(err, header[:]))
		}
		if err := fits(i, p, sb); err != nil {
			return fmt.Errorf("part %d, %s: %w", i, p.path, err)
		}
		h := &p.found.best
		p.size, p.start, p.data = h.size, h.start, h.data
		for c := range p.left {
			p.left[c] = binary.LittleEndian.Uint64(header[c*CopySize+offGeneration:])
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return errors.Join(chain(parts, sb), sameAge(parts, first))
}

// notPart says what to do about a file that is no further part.
func notPart(err error, header []byte) error {
	switch {
	case errors.Is(err, ErrNoSuperblock) && bytesHaveRegion(header):
		return fmt.Errorf("%w: it begins a region itself: a region's first part is its path, and further parts follow", ErrPart)
	case errors.Is(err, ErrNoSuperblock):
		return fmt.Errorf("%w: it is no part of any region: name the file or device that is", ErrPart)
	case errors.Is(err, ErrDamaged):
		return fmt.Errorf("%w: restore all parts from copies of one moment, or discard the contents with `pmnbd-target region create --force`", err)
	}
	return err
}

// bytesHaveRegion reports whether a header looks like that of a region or of its first part.
func bytesHaveRegion(header []byte) bool {
	return string(header[:len(magic)]) == magic || string(header[CopySize:CopySize+len(magic)]) == magic
}

// fits returns an error if p is not part i of the region with the superblock sb.
func fits(i int, p *part, sb *Superblock) error {
	h := &p.found.best
	switch {
	case h.region != sb.UUID:
		return fmt.Errorf("%w: it is part %d of another region, with UUID %v, and region %s has %v: name the right file or device",
			ErrPart, h.place, uuid.UUID(h.region), sb.Name, uuid.UUID(sb.UUID))
	case int(h.place) != i:
		return fmt.Errorf("%w: it is part %d of region %s, not part %d: name the parts in their order", ErrPart, h.place, sb.Name, i)
	case h.parts != sb.Parts:
		return fmt.Errorf("%w: it is one of %d parts, and the region has %d", ErrDamaged, h.parts, sb.Parts)
	case h.class != p.mem.Class:
		return fmt.Errorf("%w: it was made as class %v and is class %v now: put it back on memory of its class", ErrClass, h.class, p.mem.Class)
	}
	return nil
}

// chain checks that the data of the parts lie behind each other and are the region's, and
// fills in the first part.
func chain(parts []part, sb *Superblock) error {
	parts[0].size, parts[0].data = parts[1].start, DataOffset
	end := parts[0].size
	for i := range parts {
		if i == 0 {
			continue
		}
		if parts[i].start != end {
			return fmt.Errorf("part %d, %s: %w: its data begin at %d of the region, and the part before ends at %d", i, parts[i].path, ErrDamaged, parts[i].start, end)
		}
		end = parts[i].end()
	}
	if end != sb.Size {
		return fmt.Errorf("%w: the parts have %d bytes, and the region has %d", ErrDamaged, end, sb.Size)
	}
	return nil
}

// sameAge names each part that was restored from an older copy, or is of another one.
func sameAge(parts []part, first *copies) error {
	var errs []error
	olderFirst := ""
	for i := range parts {
		if i == 0 {
			continue
		}
		firstIs, partIs := stale(first, &parts[i].found)
		if firstIs {
			olderFirst = cmp.Or(olderFirst, parts[i].path)
		}
		if first.best.copied(&parts[i].found.best) {
			errs = append(errs, fmt.Errorf("part %d, %s: %w: it is as old as part 0, %s, and has another history: put back the part that belongs to the others, or restore all parts from copies of one moment",
				i, parts[i].path, ErrCopied, parts[0].path))
		}
		if partIs {
			errs = append(errs, older(i, parts[i].path, parts[i].found.best.stamp, parts[0].path, first.best.Stamp))
		}
	}
	if olderFirst != "" {
		errs = append(errs, older(0, parts[0].path, first.best.Stamp, olderFirst, 0))
	}
	return errors.Join(errs...)
}

// lostStamp reports whether a part may be older, and is taken for equal because one of its
// copies is rotten.
func lostStamp(parts []part, sb *Superblock) bool {
	return slices.ContainsFunc(parts[1:], func(p part) bool { return p.found.best.stamp < sb.leastStamp() })
}

func older(i int, path string, stamp uint64, than string, other uint64) error {
	text := ""
	if other > 0 {
		text = fmt.Sprintf(", which has %d", other)
	}
	return fmt.Errorf("part %d, %s: %w: its stamp is %d, and it misses what was written until that of %s%s: put its newest copy back, or restore all parts from copies of one moment",
		i, path, ErrOlder, stamp, than, text)
}

// headerSpan is how many bytes of a further part are mapped for its superblock.
func (p *part) headerSpan() uint64 { return roundUp(2*CopySize, p.align()) }

// align is what mappings of the part must be aligned to.
func (p *part) align() uint64 { return max(p.mem.Align, uint64(os.Getpagesize())) }

func roundUp(n, align uint64) uint64 { return (n + align - 1) / align * align }

// mapParts maps a region of several parts. In the order of addresses these are the header of
// the first part, the data of all parts, and the superblocks of the further ones. So whoever
// makes bytes durable, or catches faults, has one mapping.
func mapParts(parts []part) (*vmem.Range, error) {
	if err := checkAligned(parts); err != nil {
		return nil, err
	}
	align := uint64(DataOffset)
	for i := range parts {
		align = max(align, parts[i].align())
	}
	last := &parts[len(parts)-1]
	heads := roundUp(DataOffset+last.end(), align)
	space, err := vmem.Reserve(heads+uint64(len(parts)-1)*align, align)
	if err != nil {
		return nil, err
	}
	const prot = unix.PROT_READ | unix.PROT_WRITE
	for i := range parts {
		p := &parts[i]
		at, off, n := DataOffset+p.start, p.data, p.size
		if i == 0 {
			at, off, n = 0, 0, DataOffset+p.size
		} else {
			p.head = heads + uint64(i-1)*align
			err = space.Map(p.head, p.file, 0, p.headerSpan(), prot, p.mem.Flags)
		}
		if err == nil {
			err = space.Map(at, p.file, off, roundUp(n, p.align()), prot, p.mem.Flags)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("part %d, %s: %w", i, p.path, err), space.Close())
		}
	}
	return space, nil
}

// checkAligned refuses parts that cannot be mapped behind each other.
func checkAligned(parts []part) error {
	for i := range parts {
		p := &parts[i]
		a := p.align()
		at, off, end := DataOffset+p.start, p.data, DataOffset+p.end()
		if i == 0 {
			at, off = 0, 0
		}
		last := i == len(parts)-1
		if at%a != 0 || off%a != 0 || !last && end%a != 0 {
			return fmt.Errorf("part %d, %s: %w: its memory is mapped in multiples of %d bytes, and its data begin at %d of the mapping and end at %d: put it first, or give the parts before it sizes that fit",
				i, p.path, ErrAlign, a, at, end)
		}
		if p.mem.Device != 0 && roundUp(p.data+p.size, a) > p.mem.Device {
			return fmt.Errorf("part %d, %s: %w: the device has %d bytes, and its superblock says %d", i, p.path, ErrTruncated, p.mem.Device, p.data+p.size)
		}
	}
	return nil
}

// ErrAlign means that a part's memory cannot lie where it would have to.
var ErrAlign = errors.New("part cannot be aligned")
