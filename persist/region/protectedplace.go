package region

import (
	"errors"
	"fmt"
	"os"

	"pmnbd/persist/region/internal/image"
)

// displaced returns an error if the next start would not find the image that s has open, with the
// header h or a later one: somebody has removed it, put another file in its place, or copied
// another one, such as a backup, over it. Such an image may say that it is whole, and be older
// than the memory. displaced keeps silent about a disk that cannot be read: others find that.
func (s *saving) displaced(h *image.Header) error {
	info, err := os.Stat(s.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w: %w: the disk is gone, or somebody removed the image", ErrSave, err)
	case err != nil:
		return nil
	case !os.SameFile(info, s.file):
		return s.errDisplaced()
	}
	f, err := os.Open(s.path)
	if err != nil {
		return nil
	}
	found, err := image.Inspect(f)
	_ = f.Close() // only read
	// Headers are written meanwhile, each with a higher generation.
	if errors.Is(err, image.ErrNone) || err == nil && (found.UUID != h.UUID || found.Generation < h.Generation) {
		return s.errDisplaced()
	}
	return nil
}

func (s *saving) errDisplaced() error {
	return fmt.Errorf("%s: %w: somebody has put another file in the place of the image: restart pmnbd-target, which keeps the memory and takes that file for its image, then save", s.path, ErrSave)
}
