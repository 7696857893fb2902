package region

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"pmnbd/persist/region/internal/image"
	"pmnbd/persist/region/internal/medium"
)

// errOverwritten means that the image has another header than it was given, or that its end is missing: somebody has
// copied another file over it, such as a backup, or cut it off, or the header has rotted.
var errOverwritten = errors.New("somebody has written over the image or cut it off, or its disk has lost what it was given")

// errReplaced means that the image has no name any more.
var errReplaced = errors.New("somebody has put another file in the place of the image: restart pmnbd-target, which keeps the memory and takes that file for its image, then save")

// displaced returns an error if the next start would not find the image that s has open: somebody has
// removed it, or put another file in its place (errReplaced). What is there may say that it is whole, and be older than
// the memory. With errOverwritten somebody may have written over it: the header is not the one that s knows, and whether
// the image knows it, Intact tells. displaced keeps silent about a disk that cannot be read: others find that.
func (s *saving) displaced() error {
	info, err := os.Lstat(s.path) // a start follows no link
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w: %w: the disk is gone, or somebody removed the image", ErrSave, err)
	case err != nil:
		return nil
	case !os.SameFile(info, s.file):
		return fmt.Errorf("%s: %w: %w", s.path, ErrSave, errReplaced)
	}
	f, err := os.Open(s.path)
	if err != nil {
		return nil
	}
	found, err := image.Inspect(f)
	_ = f.Close() // only read
	other := info.Size() < image.Size(s.head.Load().Bytes) || errors.Is(err, image.ErrNone) || errors.Is(err, image.ErrDamaged) || errors.Is(err, image.ErrVersion)
	if other || err == nil && found != *s.head.Load() {
		return fmt.Errorf("%s: %w: %w: it counts for nothing now, and the next save writes all of it", s.path, ErrSave, errOverwritten)
	}
	return nil
}

// inPlace prepares for a new header. If somebody has written over the image, all of it is dirty, because the header
// ends what tells that. An image that is whole must be where the next start looks: a copy in its place would stay
// whole. Of one that is live others tell.
func (s *saving) inPlace() error {
	err := image.Await(s.displaced)
	switch {
	case errors.Is(err, errOverwritten):
		if !s.im.Intact() {
			s.im.Distrust()
			s.markAll()
		}
		return nil
	case s.im.Changeable() && !errors.Is(err, image.ErrHangs):
		return nil
	}
	return err
}

// displacedLocked is displaced for a save: the image itself decides whether somebody has written over it, and the
// disk has a minute to tell.
func (s *saving) displacedLocked() error {
	err := image.Await(s.displaced)
	if errors.Is(err, errOverwritten) && s.im.Intact() {
		return nil
	}
	return err
}

// fill gives the image the space of its holes: a copy that was put back may have some, and a save must not meet a
// full disk. It gives back nothing that somebody has cut off: that is how one finds out.
func (s *saving) fill(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	total := uint64(image.Size(s.head.Load().Bytes))
	switch {
	case !os.SameFile(info, s.file):
		return errReplaced // just now: nothing may be written there
	case uint64(info.Size()) < total:
		return errOverwritten
	}
	return ensureAllocated(f, new(medium.Memory), total)
}

// completeAtPath is fill for an image that counts for nothing. It makes that long enough, because a start takes
// none that is too short. The disk has a minute.
func (s *saving) completeAtPath() error {
	return image.Await(func() error {
		f, err := openNode(s.path, os.O_RDWR)
		if err != nil {
			return err
		}
		if err = s.fill(f); errors.Is(err, errOverwritten) {
			err = allocate(f, uint64(image.Size(s.head.Load().Bytes)), nil)
		}
		return errors.Join(err, f.Close())
	})
}

// guardImage returns an error if the next start would not find the image that r has open, and sees to it that this start
// takes nothing older than the memory for whole.
func (r *Region) guardImage() error {
	err := r.saving.displaced()
	var mended error
	switch {
	case errors.Is(err, errOverwritten):
		var done bool
		if done, mended = r.distrust(); !done && mended == nil {
			return nil
		}
		if short := r.saving.completeAtPath(); mended == nil && short != nil {
			return fmt.Errorf("%w, if it finds room: %w", err, short)
		}
	case errors.Is(err, errReplaced):
		mended = r.disarm()
	}
	if mended != nil {
		return fmt.Errorf("%w; what is there may be older than the memory, and still says that it is whole: %w", err, mended)
	}
	return err
}

// disarm makes a copy of the image live that somebody has put in its place: until a restart the region
// does not use it, but if the power fails the next start does. A copy of an image that is whole stays so until
// the memory may change.
func (r *Region) disarm() (err error) {
	im, err := openImage(filepath.Dir(r.saving.path), r.name, r.medium)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, im.Close()) }()
	h := im.Header()
	current := h == *r.saving.head.Load() && !r.saving.changeable.Load()
	if h.UUID != r.uuid || h.State != image.Whole || current {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed { // and the next start, or a save, may have the image
		return r.errClosed()
	}
	sb := r.Superblock()
	return im.MakeLive(func(h *image.Header) { describe(h, &sb) })
}

// distrust makes an image live that somebody has written over, in both copies of its header: what is
// there may be whole, and older than the memory. done is false if nobody has.
func (r *Region) distrust() (done bool, err error) {
	s := r.saving
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false, r.errClosed()
	}
	if s.im.Intact() {
		return false, nil // displaced saw a header from before, or one that is just being written
	}
	s.im.Distrust()
	s.markAll()
	sb := r.Superblock()
	err = s.im.MakeLive(func(h *image.Header) { describe(h, &sb) })
	s.showLocked()
	return true, err
}

// Nameless reports whether the memory of a region of class protected is no more at the region's path:
// somebody has removed its file, or put another one there. It then ends with the process.
func (r *Region) Nameless() bool {
	if r.saving == nil {
		return false
	}
	at, err := os.Lstat(r.path)
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	own, err := r.file.Stat()
	return err == nil && !os.SameFile(at, own)
}
