package region

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"pmnbd/persist/region/internal/image"
	"pmnbd/persist/region/internal/medium"
)

// ClearSaved is ClearShowing for a region of class protected, whose image is in the directory
// save.
func ClearSaved(path, save, reason string, p Progress) error {
	return clearSaved(path, save, reason, thisMachine, p)
}

func clearSaved(path, save, reason string, on medium.Medium, p Progress) error {
	reason, err := reasonOf(reason)
	if err != nil {
		return err
	}
	// Without memory there is nothing to clear, and opening the region would bring it back.
	if _, err := os.Lstat(path); err != nil {
		return err
	}
	r, err := openProtected(path, OpenOptions{Save: save, Saving: true}, on)
	if err != nil {
		return err
	}
	return errors.Join(r.clear(reason, p), r.Close())
}

// RemoveSaved is Remove for a region of class protected: it removes the image in the directory
// save, too, after the memory. Without force it removes neither if the memory is not the one that the
// image belongs to (ErrSave): the image may be newer than an old copy of the memory.
func RemoveSaved(path, save string, force bool) error {
	return removeSaved(path, save, force, thisMachine)
}

func removeSaved(path, save string, force bool, on medium.Medium) error {
	info, err := inspectPath(path, on)
	if err != nil {
		return err
	}
	im, err := openImage(save, info.Superblock.Name, on)
	if errors.Is(err, os.ErrNotExist) {
		err = cmp.Or(hasNoImage(path, on), err)
	}
	if err != nil {
		return err
	}
	if h := im.Header(); h.UUID != info.Superblock.UUID {
		return errors.Join(fmt.Errorf("%s: not removed: %w: it is the image of another region than %s", im.Path(), ErrSave, path), im.Close())
	}
	f, mem, err := openLocked(path, on)
	if err != nil {
		return errors.Join(err, im.Close())
	}
	if !force {
		err = removableWith(im, f, on)
	}
	if err == nil {
		err = remove(f, &mem, force, on)
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = errors.Join(os.Remove(im.Path()), syncDir(filepath.Dir(im.Path())))
	}
	return errors.Join(err, im.Close())
}

// removableWith returns an error if the memory in f, which is locked, is not the one that its image is of.
func removableWith(im *image.Image, f *os.File, on medium.Medium) error {
	boot, err := on.BootID()
	if err != nil {
		return fmt.Errorf("boot id: %w", err)
	}
	info, err := inspect(f, on)
	if err == nil {
		h := im.Header()
		err = belongs(&info.Superblock, &h, boot)
	}
	if err != nil {
		return fmt.Errorf("%s and %s: neither is removed: %w", f.Name(), im.Path(), err)
	}
	return nil
}
