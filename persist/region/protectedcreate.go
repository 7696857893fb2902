package region

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/image"
	"pmnbd/persist/region/internal/medium"
)

// declare makes memory what the options say that it is.
func (o *CreateOptions) declare(mem *medium.Memory) error {
	if o.Class != persist.ClassProtected {
		return nil
	}
	if !mem.RAM {
		return fmt.Errorf("%w: class %v is for files on tmpfs or hugetlbfs", ErrClass, o.Class)
	}
	mem.Class = o.Class
	return nil
}

// createProtected makes a region of class protected, and its image, which is written in full:
// a save later needs no space, and the disk's speed is known. If it fails, it removes the files
// that it made.
func createProtected(path string, o CreateOptions, on medium.Medium) (Info, error) {
	if err := CheckName(o.Name); err != nil {
		return Info{}, err
	}
	if o.Save == "" {
		return Info{}, fmt.Errorf("%w: class %v needs a directory for its image: use --save DIR", ErrSave, o.Class)
	}
	if o.SaveWithin < 0 {
		return Info{}, fmt.Errorf("%w: a save within %v", ErrSave, o.SaveWithin)
	}
	at := ImagePath(o.Save, o.Name)
	if _, err := os.Lstat(at); err == nil && !o.Force {
		return Info{}, fmt.Errorf("%s: %w: it is an image that a region may need; --force discards it", at, os.ErrExist)
	}
	img, created, err := openOrMakeImage(at, on) // locked, so nobody has the old region
	if err != nil {
		return Info{}, err
	}
	f, _, err := createFile(path, o, true, on)
	made := err == nil
	if errors.Is(err, os.ErrExist) {
		f, err = reuseFile(path, o, on)
	}
	var info Info
	if err == nil {
		info, err = fillImage(img, f, o, on)
	}
	// With their locks: a forced create may have them next.
	if err != nil && made {
		err = errors.Join(err, os.Remove(path))
	}
	if err != nil && created {
		err = errors.Join(err, os.Remove(at))
	}
	if f != nil {
		err = errors.Join(err, f.Close())
	}
	if err = errors.Join(err, img.Close()); err != nil {
		return Info{}, err
	}
	return info, nil
}

// openOrMakeImage opens the file of an image. created says that there was none.
func openOrMakeImage(at string, on medium.Medium) (img *os.File, created bool, _ error) {
	f, err := os.OpenFile(at, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err == nil {
		created = true
		err = f.Close()
	} else if errors.Is(err, os.ErrExist) {
		err = nil
	}
	if err == nil {
		img, err = openDirect(at, on)
	}
	if errors.Is(err, ErrInUse) {
		created = false // somebody who creates a region at the same time was faster, and has it
	}
	if err != nil && created {
		err = errors.Join(err, os.Remove(at))
	}
	return img, created, err
}

// fillImage makes the first image of the memory in f, in img.
func fillImage(img, f *os.File, o CreateOptions, on medium.Medium) (Info, error) {
	info, err := inspect(f, on)
	if err == nil {
		err = img.Truncate(0) // what a forced create discards
	}
	total := DataOffset + info.Superblock.Size
	if err == nil {
		err = allocate(img, uint64(image.Size(total)), o.Progress)
	}
	if err == nil {
		err = errors.Join(img.Sync(), syncDir(filepath.Dir(img.Name())))
	}
	h := image.Header{UUID: info.Superblock.UUID, Name: o.Name, Bytes: total, Within: o.SaveWithin}
	if h.Within == 0 {
		h.Within = DefaultSaveWithin
	}
	describe(&h, &info.Superblock)
	var im *image.Image
	if err == nil {
		im, err = image.Create(fileOf(img, on), h)
	}
	if err == nil {
		info.Protection, err = firstSave(im, f, &info.Superblock, o.Progress)
	}
	return info, err
}

// firstSave writes all of the memory in f to its image, and measures the disk.
func firstSave(im *image.Image, f *os.File, sb *Superblock, progress Progress) (_ *Protection, err error) {
	mem, err := (&medium.Memory{Flags: unix.MAP_SHARED}).Map(f, DataOffset+sb.Size, unix.PROT_READ)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unix.Munmap(mem)) }()
	progress.tell("write the image", 0, 0)
	everything := func(int) bool { return true }
	set := func(h *image.Header) {
		describe(h, sb)
		h.SavedAt = time.Now().UnixNano()
	}
	for range 2 { // the first time, the filesystem may still have to allocate
		if err := im.Measure(context.Background()); err != nil {
			return nil, err
		}
	}
	if err := im.Save(context.Background(), mem, everything, sum, set, new(image.Progress)); err != nil {
		return nil, err
	}
	h := im.Header()
	p := protectionOf(im.Path(), &h)
	if p.Longest > p.SaveWithin {
		return nil, fmt.Errorf("%s: %w: a save of %d bytes would take %v at its %d bytes/s, and may take %v: use a faster disk, or --save-within",
			im.Path(), ErrSave, p.Size, p.Longest.Round(time.Second/10), p.Speed, p.SaveWithin)
	}
	return &p, nil
}
