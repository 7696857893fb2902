package region

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/image"
	"pmnbd/persist/region/internal/medium"
)

// imageSuffix ends the name of an image.
const imageSuffix = ".save"

// ErrNoImage means that a file is no image of a region.
var ErrNoImage = image.ErrNone

// ImagePath returns where the image of a region lies.
func ImagePath(dir, name string) string { return filepath.Join(dir, name+imageSuffix) }

// directFile is a file without the page cache, so that a save runs as fast as the disk, and
// its pages are not those of somebody who needs them now.
type directFile struct{ *os.File }

func (f directFile) Sync() error { return unix.Fdatasync(int(f.Fd())) }

// A storage is a medium that stands between images and their files. Only tests have one.
type storage interface {
	Storage(image.File) image.File
}

// openDirect opens the file of an image, locked, and checks that its disk keeps what it syncs.
func openDirect(path string, on medium.Medium) (*os.File, error) {
	f, err := openNode(path, os.O_RDWR|unix.O_DIRECT)
	if errors.Is(err, unix.EINVAL) {
		return nil, fmt.Errorf("%s: %w: its filesystem has no direct I/O: put the image on ext4, xfs or f2fs", path, ErrSave)
	}
	if err != nil {
		return nil, err
	}
	mem, err := lockAndClassify(f, on)
	if err == nil {
		err = named(f)
	}
	if err == nil && (mem.RAM || mem.Device != 0 || mem.Class != persist.ClassFile && mem.Class != persist.ClassPMem) {
		err = fmt.Errorf("%s: %w: there it would be lost with the power: put the image on ext4, xfs or f2fs", path, ErrSave)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func fileOf(f *os.File, on medium.Medium) image.File {
	if s, ok := on.(storage); ok {
		return s.Storage(directFile{f})
	}
	return directFile{f}
}

// openImage opens the image of the region name in dir.
func openImage(dir, name string, on medium.Medium) (*image.Image, error) {
	path := ImagePath(dir, name)
	f, err := openDirect(path, on)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w: region %q has no image there: mount the disk that has it; if it is gone for good, %s",
			ErrSave, err, name, discardContents)
	}
	if err != nil {
		return nil, err
	}
	im, err := openImageIn(f, name, on)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return im, nil
}

func openImageIn(f *os.File, name string, on medium.Medium) (*image.Image, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	im, err := image.Open(fileOf(f, on), info.Size())
	if errors.Is(err, image.ErrDamaged) || errors.Is(err, image.ErrNone) {
		return nil, fmt.Errorf("%w: %w: restore the file, or %s", ErrSave, err, discardContents)
	}
	if err != nil {
		return nil, err
	}
	if h := im.Header(); h.Name != name {
		return nil, fmt.Errorf("%s: %w: it is the image of region %q", f.Name(), ErrSave, h.Name)
	} else if err := CheckSize(h.Bytes - DataOffset); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", f.Name(), ErrSave, err)
	}
	return im, nil
}

// InspectImage says what the image at path is. It takes no lock and changes nothing. The error
// is ErrNoImage if the file is none.
func InspectImage(path string) (Protection, error) {
	p, _, err := inspectImage(path)
	return p, err
}

// InspectImageOf is InspectImage for memory with the superblock sb. An image of another moment, such as a copy that
// somebody has put back, is not whole, and other is true. That of another region is an error (ErrSave).
func InspectImageOf(path string, sb *Superblock) (p Protection, other bool, err error) {
	p, h, err := inspectImage(path)
	if err == nil && h.UUID != sb.UUID {
		err = fmt.Errorf("%s: %w: it is the image of another region, %q", path, ErrSave, h.Name)
	}
	if err != nil || !p.Whole {
		return p, false, err
	}
	saved, err := decode(h.Superblock[:])
	// Any change of the memory begins with another epoch, or ends with another mark.
	if other = err != nil || saved.Epoch != sb.Epoch || saved.Mark != sb.Mark || saved.Contents != sb.Contents; other {
		h.State = image.Live
		p = protectionOf(path, &h)
	}
	return p, other, nil
}

func inspectImage(path string) (Protection, image.Header, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return Protection{}, image.Header{}, err
	}
	var h image.Header
	if info, statErr := f.Stat(); statErr != nil || !info.Mode().IsRegular() {
		err = errors.Join(ErrNoImage, statErr)
	} else {
		h, err = image.Inspect(f)
	}
	if err != nil {
		return Protection{}, h, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return protectionOf(path, &h), h, f.Close()
}
