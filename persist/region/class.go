package region

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/flush"
	"pmnbd/persist/region/internal/medium"
)

// ErrClass means that the memory cannot be a region, or not with the promise it was made
// with. The error says why and what would do.
var ErrClass = errors.New("memory refused")

// ErrVolatile means that the region's memory loses its contents with the power, and that
// was not allowed.
var ErrVolatile = errors.New("region is volatile")

// What statfs(2) says of filesystems, beyond the names in x/sys/unix.
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

// deviceMemory is that of a character device, which must be device-dax.
func (m machine) deviceMemory(st *unix.Stat_t) (medium.Memory, error) {
	dir, err := m.directory("char", st.Rdev)
	if err != nil {
		return medium.Memory{}, fmt.Errorf("%w: a character device of which sysfs says nothing (%w): %s", ErrClass, err, remedy)
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
		return medium.Memory{}, fmt.Errorf("find out what the device is: %w", err)
	}
	mem := medium.Memory{Platform: p, Device: size, Flags: unix.MAP_SHARED}
	return m.directAccess(mem)
}

// fileMemory is that of a regular file.
func (m machine) fileMemory(f *os.File, st *unix.Stat_t) (medium.Memory, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return medium.Memory{}, fmt.Errorf("statfs: %w", err)
	}
	class, err := classOf(fs.Type, func() (upper, error) { return upperOf(f) })
	if err != nil {
		return medium.Memory{}, err
	}
	mem := medium.Memory{Class: class, Flags: unix.MAP_SHARED}
	if class != persist.ClassFile {
		return mem, nil
	}
	// Where sysfs knows no device, nothing is promised beyond class file.
	if dir, err := m.directory("block", st.Dev); err == nil {
		if mem.Platform, err = PlatformOf(m.sys, dir); err != nil {
			return medium.Memory{}, fmt.Errorf("find out what the filesystem is on: %w", err)
		}
	}
	// Asked of the file: DAX can be chosen for each.
	if dax, err := m.mapSync(int(f.Fd())); err != nil {
		return medium.Memory{}, fmt.Errorf("map with MAP_SYNC: %w", err)
	} else if !dax {
		return mem, nil
	}
	mem.DAX = true
	return m.directAccess(mem)
}

// directAccess finds the class of memory that is mapped itself, without a page
// cache: persistent only if the platform says so (design §3.4).
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

// directory is a device's in sysfs.
func (m machine) directory(kind string, dev uint64) (string, error) {
	return filepath.EvalSymlinks(filepath.Join(m.sys, "dev", kind, fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev))))
}

// mapsSync reports whether a file can be mapped with MAP_SYNC: the filesystem keeps
// durable what is needed to find the stores again, and there is no page cache
// (mmap(2)).
func mapsSync(fd int) (bool, error) {
	mem, err := unix.Mmap(fd, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED_VALIDATE|unix.MAP_SYNC)
	switch {
	case err == nil:
		return true, unix.Munmap(mem)
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL): // EINVAL: a kernel before 4.15
		return false, nil
	}
	return false, err
}

// upper is what lies beneath an overlay.
type upper struct {
	magic int64
	// unsynced: the overlay is mounted with "volatile", fsync does nothing.
	unsynced bool
}

// classOf finds the class by a filesystem's magic number. Only what is known is
// believed; beneath is asked where the filesystem is an overlay.
func classOf(magic int64, beneath func() (upper, error)) (persist.Class, error) {
	switch magic {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC, unix.HUGETLBFS_MAGIC:
		return persist.ClassVolatile, nil
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC:
		return persist.ClassFile, nil
	case unix.BTRFS_SUPER_MAGIC, magicZFS, magicBcachefs:
		// Space allocated there is no promise: overwriting needs new space, and a
		// full disk would show as a lost write.
		return 0, fmt.Errorf("%w: a copy-on-write filesystem cannot reserve the space of overwrites: %s", ErrClass, remedy)
	case unix.OVERLAYFS_SUPER_MAGIC:
		up, err := beneath()
		if err != nil {
			return 0, fmt.Errorf("%w: cannot see what lies beneath an overlay: %w: use a volume or bind mount: %s", ErrClass, err, remedy)
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
	return 0, fmt.Errorf("%w: whether filesystem type %#x keeps what it synced is not known: %s", ErrClass, magic, remedy)
}
