package region

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"pmnbd/internal/flush"
	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

// ErrClass means that the memory cannot be a region, or no longer with the class with
// which the region was created. The error says why, and which memory would do.
var ErrClass = errors.New("memory refused")

// ErrVolatile means that the region's memory loses its contents with the power, and
// nobody allowed that.
var ErrVolatile = errors.New("region is volatile")

// Magic numbers of filesystems (statfs(2)) that x/sys/unix does not name.
const (
	magicZFS      = 0x2fc12fc1
	magicBcachefs = 0xca451a4e
)

// remedy ends every refusal of a filesystem.
const remedy = "put the region on ext4, xfs or f2fs (class file), or on tmpfs (class volatile)"

// Identify finds out what an open file is.
func (m machine) Identify(f *os.File) (medium.Memory, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return medium.Memory{}, fmt.Errorf("stat: %w", err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return m.fileMemory(f, &st)
	case unix.S_IFCHR:
		return m.deviceMemory(&st)
	case unix.S_IFBLK:
		return medium.Memory{}, fmt.Errorf("%w: a block device: make a filesystem on it and a region in a file there", ErrClass)
	}
	return medium.Memory{}, fmt.Errorf("%w: not a regular file", ErrClass)
}

// deviceMemory identifies the memory of a character device, which must be device-dax.
func (m machine) deviceMemory(st *unix.Stat_t) (medium.Memory, error) {
	dir, err := m.directory("char", st.Rdev)
	if err != nil {
		return medium.Memory{}, fmt.Errorf("%w: a character device that sysfs does not describe (%w): %s", ErrClass, err, remedy)
	}
	if bus, err := filepath.EvalSymlinks(filepath.Join(dir, "subsystem")); err != nil || filepath.Base(bus) != "dax" {
		return medium.Memory{}, fmt.Errorf("%w: a character device: %s", ErrClass, remedy)
	}
	text, err := attribute(dir, "size")
	if err != nil {
		return medium.Memory{}, err
	}
	size, err := strconv.ParseUint(text, 10, 64)
	if err != nil || size == 0 || size > maxSize {
		return medium.Memory{}, fmt.Errorf("%w: a device-dax device of %q bytes", ErrClass, text)
	}
	p, err := PlatformOf(m.sys, dir)
	if err != nil {
		return medium.Memory{}, fmt.Errorf("identify the device: %w", err)
	}
	align, err := deviceAlign(dir)
	if err != nil {
		return medium.Memory{}, err
	}
	mem := medium.Memory{Platform: p, Device: size, Flags: unix.MAP_SHARED, Align: align}
	return m.directAccess(mem)
}

// hugePage is the alignment of device-dax devices on kernels that do not tell it, and the
// least of all: they have no smaller pages.
const hugePage = 2 << 20

// deviceAlign returns what mappings of the device-dax device with directory dir must be
// aligned to, in bytes.
func deviceAlign(dir string) (uint64, error) {
	text, err := attribute(dir, "align")
	if err != nil || text == "" {
		return hugePage, err
	}
	align, err := strconv.ParseUint(text, 10, 64)
	if err != nil || align == 0 || align&(align-1) != 0 || align > 1<<40 {
		return 0, fmt.Errorf("%w: a device-dax device with an alignment of %q bytes", ErrClass, text)
	}
	return align, nil
}

// fileMemory identifies the memory of a regular file.
func (m machine) fileMemory(f *os.File, st *unix.Stat_t) (medium.Memory, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return medium.Memory{}, fmt.Errorf("statfs: %w", err)
	}
	class, err := classOf(fs.Type, func() (upper, error) { return upperOf(f) })
	if err != nil {
		return medium.Memory{}, err
	}
	mem := medium.Memory{Class: class, Flags: unix.MAP_SHARED, RAM: inMemory(fs.Type)}
	if fs.Type == unix.HUGETLBFS_MAGIC {
		mem.Align = uint64(fs.Bsize)
	}
	if class != persist.ClassFile {
		return mem, nil
	}
	// Without a device in sysfs the class is file: nothing promises more.
	if dir, err := m.directory("block", st.Dev); err == nil {
		if mem.Platform, err = PlatformOf(m.sys, dir); err != nil {
			return medium.Memory{}, fmt.Errorf("identify the filesystem's device: %w", err)
		}
	}
	// Ask the file and not the filesystem: DAX can be chosen for each file.
	if dax, err := m.mapSync(int(f.Fd())); err != nil {
		return medium.Memory{}, fmt.Errorf("map with MAP_SYNC: %w", err)
	} else if !dax {
		return mem, nil
	}
	mem.DAX = true
	return m.directAccess(mem)
}

// inMemory reports whether files of a filesystem, by its magic number, are memory and nothing
// else.
func inMemory(magic int64) bool {
	return magic == unix.TMPFS_MAGIC || magic == unix.RAMFS_MAGIC || magic == unix.HUGETLBFS_MAGIC
}

// directAccess sets the class of memory that is mapped directly, without a page cache. It
// is persistent only if the platform says so (design §3.4).
func (m machine) directAccess(mem medium.Memory) (medium.Memory, error) {
	switch p := mem.Platform; {
	case p.Domain.Persistent() && m.instruction == flush.None:
		return medium.Memory{}, fmt.Errorf("%w: persistent memory, but this CPU or build (%s) cannot write its cache lines back: %s", ErrClass, runtime.GOARCH, remedy)
	case p.Domain.Persistent():
		mem.Class = persist.ClassPMem
		mem.Flags = unix.MAP_SHARED_VALIDATE | unix.MAP_SYNC
	case len(p.Regions) > 0:
		mem.Class, mem.Why = persist.ClassVolatile, fmt.Sprintf("the platform promises no persistence domain for %v", p.Regions)
	default:
		mem.Class, mem.Why = persist.ClassVolatile, "it is mapped directly and does not lie on an nd_region, so it may be DRAM"
	}
	return mem, nil
}

// directory returns a device's directory in sysfs.
func (m machine) directory(kind string, dev uint64) (string, error) {
	return filepath.EvalSymlinks(filepath.Join(m.sys, "dev", kind, fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev))))
}

// mapsSync reports whether a file can be mapped with MAP_SYNC. If it can, there is no
// page cache, and the filesystem keeps durable what it needs to find the stores again
// (mmap(2)).
func mapsSync(fd int) (bool, error) {
	mem, err := unix.Mmap(fd, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED_VALIDATE|unix.MAP_SYNC)
	switch {
	case err == nil:
		return true, unix.Munmap(mem)
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL): // kernels before 4.15 return EINVAL
		return false, nil
	}
	return false, err
}

// An upper is the filesystem beneath an overlay.
type upper struct {
	magic int64
	// unsynced: the overlay is mounted with "volatile", so fsync does nothing.
	unsynced bool
}

// classOf returns the class of a filesystem by its magic number, and refuses filesystems
// that it does not know. It calls beneath for an overlay only.
func classOf(magic int64, beneath func() (upper, error)) (persist.Class, error) {
	switch magic {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC, unix.HUGETLBFS_MAGIC:
		return persist.ClassVolatile, nil
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC:
		return persist.ClassFile, nil
	case unix.BTRFS_SUPER_MAGIC, magicZFS, magicBcachefs:
		// To allocate space there reserves nothing for overwrites, which need new space.
		// On a full disk a write would be lost.
		return 0, fmt.Errorf("%w: a copy-on-write filesystem cannot reserve the space of overwrites: %s", ErrClass, remedy)
	case unix.OVERLAYFS_SUPER_MAGIC:
		up, err := beneath()
		if err != nil {
			return 0, fmt.Errorf("%w: cannot find the filesystem beneath an overlay: %w: use a volume or bind mount: %s", ErrClass, err, remedy)
		}
		if up.magic == unix.OVERLAYFS_SUPER_MAGIC {
			return 0, fmt.Errorf("%w: an overlay on an overlay: use a volume or bind mount: %s", ErrClass, remedy)
		}
		class, err := classOf(up.magic, nil)
		if err == nil && up.unsynced {
			class = persist.ClassVolatile
		}
		return class, err
	}
	return 0, fmt.Errorf("%w: pmnbd does not know whether filesystem type %#x keeps synced data: %s", ErrClass, magic, remedy)
}
