package region

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

// ErrNotEmpty means that the memory already holds something else.
var ErrNotEmpty = errors.New("not empty")

// allocPiece is how many bytes are allocated at a time. A signal makes tmpfs undo the
// allocation, and the Go runtime sends itself a signal every 10 ms.
const allocPiece = 16 << 20

// readPiece is how many bytes of a file are read at a time.
const readPiece = 1 << 20

// CreateOptions says what a Create makes.
type CreateOptions struct {
	Name string
	// Size is the size of the data extent in bytes. 0 means as much as an existing file
	// has room for.
	Size uint64
	// Force discards what an existing file holds, and an image in Save.
	Force bool
	// Class is 0 for the class that the memory has, or persist.ClassProtected. Save is then
	// the directory for its image, and SaveWithin how long a save may take, 0 for
	// DefaultSaveWithin.
	Class      persist.Class
	Save       string
	SaveWithin time.Duration
	// Progress hears of the steps. Nil hears nothing.
	Progress Progress
	// Parts are the paths of further parts, in their order. Then Size is that of each part's
	// data, the first one's too; 0 means as much as each existing file or device has room
	// for.
	Parts []string
	// Wrap, unless nil, gets the machine's medium and returns the one that the region uses.
	// Only tests set it, through persist/region/regiontest.
	Wrap func(medium.Medium) medium.Medium
}

// Create makes a region at path: in a new file, or in an existing one that holds only
// zeroes. When it returns, all of the region's space is allocated and durable. If Create
// fails, it removes a file that it made.
func Create(path string, o CreateOptions) (Info, error) {
	on := thisMachine
	if o.Wrap != nil {
		on = o.Wrap(on)
	}
	return create(path, o, on)
}

func create(path string, o CreateOptions, on medium.Medium) (Info, error) {
	if len(o.Parts) > 0 {
		if o.Class != 0 || o.Save != "" {
			return Info{}, fmt.Errorf("%w: a region of class %v cannot have several parts", ErrClass, persist.ClassProtected)
		}
		return createParts(path, o, on)
	}
	if path == PathMemfd {
		return Info{}, fmt.Errorf("%w: anonymous memory exists only while pmnbd-target serves it: `serve --region NAME=%s,size=SIZE` makes it", ErrClass, PathMemfd)
	}
	if o.Class == persist.ClassProtected {
		return createProtected(path, o, on)
	}
	if o.Class != 0 || o.Save != "" {
		return Info{}, fmt.Errorf("%w: only class %v can be asked for, and only it has an image", ErrClass, persist.ClassProtected)
	}
	f, _, err := createFile(path, o, true, on)
	if errors.Is(err, os.ErrExist) {
		f, err = reuseFile(path, o, on)
	}
	if err != nil {
		return Info{}, err
	}
	info, err := inspect(f, on)
	return info, errors.Join(err, f.Close())
}

// createFile makes a region in a new file and returns the file open and locked. If the
// file exists, the error is os.ErrExist and createFile touched nothing.
func createFile(path string, o CreateOptions, allowVolatile bool, on medium.Medium) (*os.File, medium.Memory, error) {
	if err := CheckName(o.Name); err != nil {
		return nil, medium.Memory{}, err
	}
	if _, err := os.Lstat(path); err == nil {
		return nil, medium.Memory{}, fmt.Errorf("%s: %w", path, os.ErrExist)
	}
	if amongDevices(path) {
		return nil, medium.Memory{}, fmt.Errorf("%s: %w: use a device that exists, or a path outside /dev", path, unix.ENODEV)
	}
	if o.Size == 0 {
		return nil, medium.Memory{}, fmt.Errorf("%s: no %w: there is no such file, and a new region needs a size: use --size", path, ErrSize)
	}
	if err := CheckSize(o.Size); err != nil {
		return nil, medium.Memory{}, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, medium.Memory{}, err
	}
	mem, err := lockAndClassify(f, on)
	if errors.Is(err, ErrInUse) { // somebody who creates a region at the same time was faster, and has it
		return nil, medium.Memory{}, errors.Join(err, f.Close())
	}
	if err == nil {
		err = o.declare(&mem)
	}
	if err == nil && mem.Class == persist.ClassVolatile && !allowVolatile {
		err = refuseVolatile(path, mem.Why)
	}
	if err == nil {
		err = format(f, o.Name, o.Size, mem, on, o.Progress)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return nil, medium.Memory{}, errors.Join(err, os.Remove(path), f.Close())
	}
	return f, mem, nil
}

// amongDevices reports whether a file at path would lie in /dev. There it would look like
// a device, and the next boot would remove it. /dev/shm is meant for files.
func amongDevices(path string) bool {
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return false
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	within := func(parent string) bool { return dir == parent || strings.HasPrefix(dir, parent+"/") }
	return within("/dev") && !within("/dev/shm")
}

// createMemfd makes a region in anonymous memory.
func createMemfd(o OpenOptions, on medium.Medium) (*os.File, medium.Memory, error) {
	if !o.AllowVolatile {
		return nil, medium.Memory{}, refuseVolatile(PathMemfd, "")
	}
	if err := CheckName(o.Name); err != nil {
		return nil, medium.Memory{}, err
	}
	if err := CheckSize(o.CreateSize); err != nil {
		return nil, medium.Memory{}, err
	}
	fd, err := unix.MemfdCreate("pmnbd", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, medium.Memory{}, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), PathMemfd)
	mem, err := lockAndClassify(f, on)
	if err == nil {
		err = format(f, o.Name, o.CreateSize, mem, on, nil)
	}
	if err != nil {
		return nil, medium.Memory{}, errors.Join(err, f.Close())
	}
	return f, mem, nil
}

// reuseFile makes a region in an existing file or device.
func reuseFile(path string, o CreateOptions, on medium.Medium) (*os.File, error) {
	f, mem, err := openLocked(path, on)
	if err != nil {
		return nil, err
	}
	if err := o.declare(&mem); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	again := reformat
	if mem.Device != 0 {
		again = reformatDevice
	}
	if err := again(f, o, mem, on); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func reformat(f *os.File, o CreateOptions, mem medium.Memory, on medium.Medium) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	keep, size := info.Size(), o.Size
	if size == 0 {
		if keep < DataOffset+sizeUnit {
			return fmt.Errorf("%s: %w: the file has %d bytes, and a region needs at least %d: give a size", f.Name(), ErrSize, keep, DataOffset+sizeUnit)
		}
		size = uint64(keep-DataOffset) / sizeUnit * sizeUnit
	}
	if err := CheckSize(size); err != nil {
		return err
	}
	if o.Force {
		// This discards the old bytes, and also pages that a failed sync left behind: the
		// cache shows them and the disk does not have them.
		if err := f.Truncate(0); err != nil {
			return err
		}
		keep = 0
	} else if err := checkZero(f, keep, o.Progress); err != nil {
		return err
	}
	if err := format(f, o.Name, size, mem, on, o.Progress); err != nil {
		return errors.Join(err, f.Truncate(keep))
	}
	return nil
}

// reformatDevice makes a region in a device. It takes the whole device unless o.Size is
// smaller.
func reformatDevice(f *os.File, o CreateOptions, mem medium.Memory, on medium.Medium) error {
	if mem.Device < DataOffset+sizeUnit {
		return fmt.Errorf("%s: %w: the device has %d bytes, and a region needs at least %d", f.Name(), ErrSize, mem.Device, DataOffset+sizeUnit)
	}
	room := (mem.Device - DataOffset) / sizeUnit * sizeUnit
	size := o.Size
	if size == 0 {
		size = room
	}
	if err := CheckSize(size); err != nil {
		return err
	}
	if size > room {
		return fmt.Errorf("%s: %w: the device has room for %d bytes, and the region needs %d", f.Name(), ErrSize, room, size)
	}
	if err := CheckName(o.Name); err != nil {
		return err
	}
	if err := clearDevice(f, &mem, o.Force, on); err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	return format(f, o.Name, size, mem, on, o.Progress)
}

// notEmpty returns the error for memory that holds data.
func notEmpty() error {
	return fmt.Errorf("%w: it holds data; --force discards all of it", ErrNotEmpty)
}

// checkZero returns an error if a file holds anything but zeroes. It does not read holes
// or space that was never written.
func checkZero(f *os.File, size int64, p Progress) error {
	buf, zeroes := make([]byte, readPiece), make([]byte, readPiece)
	for off := int64(0); off < size; {
		p.tell("look for data", uint64(off), uint64(size))
		data, err := unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // the rest is a hole
		}
		if err != nil {
			return fmt.Errorf("%s: look for data: %w", f.Name(), err)
		}
		n, err := f.ReadAt(buf[:min(readPiece, size-data)], data)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if !bytes.Equal(buf[:n], zeroes[:n]) {
			return fmt.Errorf("%s: %w", f.Name(), notEmpty())
		}
		if off = data + int64(n); n == 0 {
			return nil
		}
	}
	return nil
}

// format allocates a region's space and writes its first superblock durably. f must hold
// only zeroes.
func format(f *os.File, name string, size uint64, mem medium.Memory, on medium.Medium, p Progress) error {
	boot, err := on.BootID()
	if err != nil {
		return fmt.Errorf("boot id: %w", err)
	}
	if mem.Device == 0 {
		if err := allocate(f, DataOffset+size, p); err != nil {
			return err
		}
	}
	if mem.Class == persist.ClassPMem && mem.Device == 0 {
		if err := writeZeroes(f, DataOffset+size, p); err != nil {
			return err
		}
	}
	p.tell("sync", 0, 0)
	header, err := mem.Map(f, DataOffset, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	sb := Superblock{
		UUID: newID(), Name: name, Size: size, Class: mem.Class, Boot: boot, Contents: newID(),
		Epoch: 1, // in an OPEN, 0 means unknown
		Clean: true, UnsafeShutdowns: mem.Platform.UnsafeShutdowns,
	}
	if err = writeFirst(f, header[:2*CopySize], sb, &mem, on); err != nil {
		err = fmt.Errorf("%s: %w", f.Name(), err)
	}
	return errors.Join(err, unix.Munmap(header))
}

// writeFirst stores sb in both copies of header, a mapping of f.
func writeFirst(f *os.File, header []byte, sb Superblock, mem *medium.Memory, on medium.Medium) (err error) {
	defer caught(header, debug.SetPanicOnFault(true), &err)
	// Until their bodies are durable, both copies look like unfinished updates. So a
	// crash leaves no region or a whole one.
	for at := range 2 {
		page := header[at*CopySize : (at+1)*CopySize]
		sb.Generation = uint64(1 + at)
		var body [CopySize]byte
		sb.encode(body[:])
		copy(page[:offGeneration], body[:offGeneration])
		copy(page[offVersion:], body[offVersion:])
	}
	if err := makeDurable(f, mem, header, on); err != nil {
		return err
	}
	for at := range 2 {
		storeGeneration(header[at*CopySize+offGeneration:], generationTag|uint64(1+at))
	}
	return makeDurable(f, mem, header, on)
}

// writeZeroes writes the first n bytes of f, which are allocated and not written.
// Otherwise the first store to each page would wait for a transaction of the filesystem:
// that is how MAP_SYNC works.
func writeZeroes(f *os.File, n uint64, p Progress) error {
	buf := make([]byte, readPiece)
	for off := uint64(0); off < n; off += readPiece {
		p.tell("write zeroes", off, n)
		if _, err := f.WriteAt(buf[:min(readPiece, n-off)], int64(off)); err != nil {
			return err
		}
	}
	return nil
}

// syncDir makes the name of a new file in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// newID returns a random UUID (RFC 9562, version 4).
func newID() (id [16]byte) {
	_, _ = rand.Read(id[:]) // never fails: it would end the program
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}
