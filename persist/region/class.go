package region

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"pmnbd/persist"
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

// classify finds the class of an open file by the filesystem that it is on.
func classify(f *os.File) (persist.Class, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	switch mode := info.Mode(); {
	case mode.IsRegular():
	case mode&fs.ModeCharDevice != 0:
		return 0, refuseDevice(info)
	case mode&fs.ModeDevice != 0:
		return 0, fmt.Errorf("%w: a block device: make a filesystem on it and a region in a file there", ErrClass)
	default:
		return 0, fmt.Errorf("%w: not a regular file", ErrClass)
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return 0, fmt.Errorf("statfs: %w", err)
	}
	return classOf(st.Type, func() (upper, error) { return upperOf(f) })
}

// refuseDevice says why a character device is no region.
func refuseDevice(info fs.FileInfo) error {
	if st, ok := info.Sys().(*unix.Stat_t); ok {
		link, err := filepath.EvalSymlinks(fmt.Sprintf("/sys/dev/char/%d:%d/subsystem", unix.Major(st.Rdev), unix.Minor(st.Rdev)))
		if err == nil && filepath.Base(link) == "dax" {
			return fmt.Errorf("%w: a device-dax device needs class pmem, which this build does not have: %s", ErrClass, remedy)
		}
	}
	return fmt.Errorf("%w: a character device: %s", ErrClass, remedy)
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
