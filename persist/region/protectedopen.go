package region

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/image"
	"pmnbd/persist/region/internal/medium"
)

// openProtected opens a region of class protected, with its image. The lock on the image is
// taken first, so that one process at a time brings memory and image together.
func openProtected(path string, o OpenOptions, on medium.Medium) (*Region, error) {
	if path == PathMemfd {
		return nil, fmt.Errorf("%w: class %v cannot be in anonymous memory, which ends with the process: use a file on tmpfs or hugetlbfs", ErrSave, persist.ClassProtected)
	}
	if o.Name == "" {
		info, err := inspectPath(path, on)
		if err != nil {
			return nil, err
		}
		o.Name = info.Superblock.Name
	}
	if err := CheckName(o.Name); err != nil {
		return nil, err
	}
	boot, err := on.BootID()
	if err != nil {
		return nil, fmt.Errorf("boot id: %w", err)
	}
	// Before it is opened: a file that takes its place meanwhile is then another one than this.
	file, missing := os.Stat(ImagePath(o.Save, o.Name))
	im, err := openImage(o.Save, o.Name, on)
	if errors.Is(err, os.ErrNotExist) {
		err = cmp.Or(hasNoImage(path, on), err)
	}
	if err != nil {
		return nil, err
	}
	s := newSaving(im)
	s.file = file
	var r *Region
	if err = missing; err == nil { // or it has just come
		r, err = s.open(path, o, boot, on)
	}
	if err != nil {
		return nil, errors.Join(err, im.Close())
	}
	return r, nil
}

// hasNoImage returns an error if a region at path is of another class. To discard its contents, as one does
// whose image is lost, would be the wrong thing to do.
func hasNoImage(path string, on medium.Medium) error {
	info, err := inspectPath(path, on)
	if err != nil || info.Superblock.Class == persist.ClassProtected {
		return nil
	}
	return fmt.Errorf("%s: %w: the region is of class %v and has no image: leave save out", path, ErrSave, info.Superblock.Class)
}

func (s *saving) open(path string, o OpenOptions, boot [16]byte, on medium.Medium) (*Region, error) {
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		if err := s.bring(path, boot, on); err != nil {
			return nil, err
		}
	}
	f, mem, err := openLocked(path, on)
	if err != nil {
		return nil, err
	}
	r, err := s.load(f, path, mem, boot, on)
	if errors.Is(err, ErrNoSuperblock) || errors.Is(err, ErrDamaged) || errors.Is(err, ErrTruncated) {
		err = fmt.Errorf("%w; for the memory of this region: %s", err, without(s.head.Load()))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	err = r.expect(o)
	if err == nil && !o.Saving {
		err = s.prepare(r)
	}
	if err != nil {
		return nil, errors.Join(err, r.closeMemory())
	}
	return r, nil
}

// prepare makes the region fit to be served.
func (s *saving) prepare(r *Region) error {
	if err := r.lockMemory(); err != nil {
		return fmt.Errorf("%s: lock %d bytes in memory: %w: raise the limit on locked memory (LimitMEMLOCK=infinity)", r.path, len(r.mem), err)
	}
	// A disk that cannot be measured keeps nobody from the memory. SaveTrouble measures it again.
	_ = s.im.Measure(context.Background())
	s.measured = time.Now()
	return nil
}

// load opens the memory in f, which is locked, and compares it with the image. On success the
// region owns f, and the image.
func (s *saving) load(f *os.File, path string, mem medium.Memory, boot [16]byte, on medium.Medium) (*Region, error) {
	if !mem.RAM {
		return nil, fmt.Errorf("%s: %w: class %v is for files on tmpfs or hugetlbfs", path, ErrClass, persist.ClassProtected)
	}
	var header [2 * CopySize]byte
	if err := readHeader(f, &mem, header[:]); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	found, err := readCopies(header[:])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, explain(err))
	}
	h := s.im.Header()
	if err := belongs(&found.best, &h, boot); err != nil {
		return nil, fmt.Errorf("%s and %s: %w", path, s.im.Path(), err)
	}
	mem.Class = persist.ClassProtected
	r, err := load(f, path, mem, on)
	if err != nil {
		return nil, err
	}
	r.saving = s
	if err := s.compare(r); err != nil {
		return nil, errors.Join(err, unix.Munmap(r.mem))
	}
	return r, nil
}

// closeMemory is Close without the image.
func (r *Region) closeMemory() error {
	r.saving = nil
	return r.Close()
}

// belongs returns an error if memory with the superblock sb is not what the image with header
// h is of, or cannot be what was last there.
func belongs(sb *Superblock, h *image.Header, boot [16]byte) error {
	saved, err := decode(h.Superblock[:])
	switch {
	case sb.Class != persist.ClassProtected:
		return fmt.Errorf("%w: the region is of class %v: leave save= out", ErrSave, sb.Class)
	case sb.UUID != h.UUID || DataOffset+sb.Size != h.Bytes:
		return fmt.Errorf("%w: the memory is another region's than the image: put the right one there, or remove the one that you do not need", ErrSave)
	case sb.Boot != boot:
		return fmt.Errorf("%w: the memory is of another boot of this host, a copy perhaps: %s", ErrSave, without(h))
	case h.State == image.Whole && err == nil && saved.Generation > sb.Generation:
		return fmt.Errorf("%w: the memory is older than the save: %s", ErrSave, without(h))
	case h.State == image.Live && h.Epoch > sb.Epoch && err == nil && saved.Memory != sb.Memory:
		return fmt.Errorf("%w: the memory is old: a start with another path has made the memory that the image belongs to: name that path (`pmnbd-target region list DIR` finds it): %s",
			ErrSave, without(h))
	case h.Epoch > sb.Epoch+1: // one more than the memory may have been announced, and then not come
		return fmt.Errorf("%w: the memory is in epoch %d, and the image names epoch %d: the memory is an old copy: %s", ErrSave, sb.Epoch, h.Epoch, without(h))
	}
	return nil
}

// without says what becomes of a region whose memory is not right, and has an image with header h, once
// somebody removes the memory.
func without(h *image.Header) string {
	if h.State == image.Whole {
		return "remove it with rm (`region remove` would take the image, too), and the region comes from its image"
	}
	text := "its image is not whole, so without its right memory the region is lost, and begins with zeroes"
	if h.LostAt != 0 {
		text += fmt.Sprintf("; a start that found no memory at its path took the region for lost on %s, and if this is that memory, it has the device behind its first 2 MiB: copy it elsewhere before you remove it",
			time.Unix(0, h.LostAt).Format(time.RFC3339))
	}
	return text
}

// compare finds out what a save would have to write. If the image is not what the memory is, it
// makes the image live.
func (s *saving) compare(r *Region) error {
	sb := r.Superblock()
	h := s.im.Header()
	if h.State == image.Whole && same(&h, &sb) && s.im.ReadTable() == nil {
		return nil
	}
	s.markAll() // an unreadable table is no reason to refuse the memory: a save needs it only to leave blocks out
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.liveLocked(&sb)
}

// bring makes the memory at path, which is not there: from the image if that is whole, and
// otherwise empty. A crash in between leaves no memory, and the same is done again.
func (s *saving) bring(path string, boot [16]byte, on medium.Medium) error {
	h := s.im.Header()
	sb, err := decode(h.Superblock[:])
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w: %w", s.im.Path(), ErrSave, err)
	case sb.UUID != h.UUID || sb.Name != h.Name || DataOffset+sb.Size != h.Bytes || sb.Class != persist.ClassProtected:
		return fmt.Errorf("%s: %w: its header and its superblock are of different regions", s.im.Path(), ErrSave)
	}
	if err := s.nowhere(path, boot, on); err != nil {
		return err
	}
	if h.State == image.Whole {
		began := time.Now()
		for range 2 { // a loss is for good, and what was read may have gone wrong on the way from the disk
			err = s.fetch(path, &sb, boot, on)
			if !errors.Is(err, image.ErrTorn) {
				s.loaded, s.loadTook = err == nil, time.Since(began)
				return err
			}
		}
		return s.lose(path, sb, boot, err.Error(), on)
	}
	return s.lose(path, sb, boot, "the memory is gone, and was not saved: "+s.im.Path()+" is not whole", on)
}

// fetch loads the image. It gives the memory its name when all of it is there and checked.
func (s *saving) fetch(path string, sb *Superblock, boot [16]byte, on medium.Medium) error {
	h := s.im.Header()
	return build(path, &h, on, func(f *os.File, mem []byte) error {
		room := func(off, n uint64) error { return allocateAt(f, off, n) }
		if err := s.im.Load(context.Background(), mem, room, sum); err != nil {
			return err
		}
		found, err := readCopies(mem[:2*CopySize])
		if err != nil || found.best != *sb {
			return fmt.Errorf("%s: %w: its first block does not have the superblock of its header (%w)", s.im.Path(), image.ErrTorn, err)
		}
		return adopt(mem, found, boot)
	})
}

// adopt puts the boot, and a number of this memory, into a superblock that was loaded. Its generation stays: it is
// the one that the image has.
func adopt(mem []byte, found copies, boot [16]byte) error {
	memory := newNonce()
	for at, state := range found.states {
		if state != CopyGood {
			continue
		}
		page := mem[at*CopySize : (at+1)*CopySize]
		sb, err := decode(page)
		if err != nil {
			return err
		}
		sb.Boot, sb.Memory = boot, memory
		sb.encode(page)
	}
	return nil
}

// newMemory ends the name of memory that is not complete.
const newMemory = ".new"

// build makes a file at path for the memory of h, which fill fills, and gives it that name when it is
// complete.
func build(path string, h *image.Header, on medium.Medium, fill func(f *os.File, mem []byte) error) error {
	part := path + newMemory
	if err := discard(part, h, on); err != nil {
		return err
	}
	f, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	err = buildIn(f, h.Bytes, on, fill)
	if err == nil {
		err = unix.Renameat2(unix.AT_FDCWD, part, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(part))
	}
	return errors.Join(err, f.Close())
}

// discard removes what a process left that was killed in build. The lock on the image of h makes that ours. But
// somebody may keep another region there, or have served this one there, whose image then is live.
func discard(part string, h *image.Header, on medium.Medium) error {
	f, m, err := openLocked(part, on)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make the memory of region %q: %w: give one of the two another path", h.Name, err)
	}
	var header [2 * CopySize]byte
	if err = readHeader(f, &m, header[:]); err == nil {
		found, none := readCopies(header[:])
		switch sb := &found.best; {
		case none != nil:
		case sb.UUID != h.UUID:
			err = fmt.Errorf("make the memory of region %q: %s: %w: it is region %q: give one of the two another path", h.Name, part, ErrInUse, sb.Name)
		case h.State == image.Live && sb.Generation > 2: // what was only made is of the second one at most (writeFirst)
			err = fmt.Errorf("%s: %w: there is no memory, but that of this region lies there: name that path; if it is not to be used, remove it", part, ErrSave)
		}
	} else if errors.Is(err, ErrNoSuperblock) {
		err = nil // it is shorter
	}
	if err == nil {
		err = os.Remove(part)
	}
	return errors.Join(err, f.Close())
}

func buildIn(f *os.File, n uint64, on medium.Medium, fill func(f *os.File, mem []byte) error) error {
	m, err := on.Identify(f)
	if err != nil {
		return err
	}
	if !m.RAM {
		return fmt.Errorf("%s: %w: class %v is for files on tmpfs or hugetlbfs", f.Name(), ErrClass, persist.ClassProtected)
	}
	if err := checkRoom(f, n); err != nil {
		return err
	}
	if err := f.Truncate(int64(n)); err != nil {
		return err
	}
	mem, err := m.Map(f, n, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	return errors.Join(fill(f, mem), unix.Munmap(mem))
}

// allocateAt gives f the space of n bytes at off.
func allocateAt(f *os.File, off, n uint64) error {
	for end := off + n; off < end; {
		piece := min(allocPiece, end-off)
		switch err := unix.Fallocate(int(f.Fd()), 0, int64(off), int64(piece)); {
		case err == nil:
			off += piece
		case !errors.Is(err, unix.EINTR):
			return fmt.Errorf("%s: allocate %d bytes: %w", f.Name(), n, err)
		}
	}
	return nil
}

// needsSave returns the error for a region of class protected that is opened without its image.
func needsSave(path string) error {
	return fmt.Errorf("%s: %w: it is of class %v: name the directory of its image (save=DIR, or --save DIR)", path, ErrSave, persist.ClassProtected)
}

// isProtected reports whether f has a region of class protected.
func isProtected(f *os.File, m *medium.Memory) bool {
	var header [2 * CopySize]byte
	if err := readHeader(f, m, header[:]); err != nil {
		return false
	}
	found, err := readCopies(header[:])
	return err == nil && found.best.Class == persist.ClassProtected
}
