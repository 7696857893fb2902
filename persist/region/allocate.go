package region

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"pmnbd/persist/region/internal/medium"
)

// allocate gives f all the space of total bytes now. Later a full disk would be a fault
// on the mapping (design §3.5).
func allocate(f *os.File, total uint64, p Progress) error {
	if err := checkRoom(f, total); err != nil {
		return err
	}
	return reserve(f, total, p)
}

func reserve(f *os.File, total uint64, p Progress) error {
	for off := uint64(0); off < total; {
		p.tell("allocate", off, total)
		n := min(allocPiece, total-off)
		switch err := unix.Fallocate(int(f.Fd()), 0, int64(off), int64(n)); {
		case err == nil:
			off += n
		case errors.Is(err, unix.EINTR): // once more
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EFBIG), errors.Is(err, unix.EDQUOT):
			return fmt.Errorf("%s: no room for %d bytes: %w", f.Name(), total, err)
		case errors.Is(err, unix.EOPNOTSUPP):
			return fmt.Errorf("%s: %w: the filesystem cannot reserve space: %s", f.Name(), ErrClass, remedy)
		default:
			return fmt.Errorf("%s: allocate %d bytes: %w", f.Name(), total, err)
		}
	}
	if have, err := allocated(f); err != nil || have < total {
		return errors.Join(err, fmt.Errorf("%s: %w: the filesystem reserved %d of %d bytes: %s", f.Name(), ErrClass, have, total, remedy))
	}
	return nil
}

// checkRoom refuses what cannot fit, before the attempt takes space from others on the
// filesystem, or memory from others if it lies in memory.
func checkRoom(f *os.File, total uint64) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("statfs: %w", err)
	}
	if st.Type == unix.HUGETLBFS_MAGIC && (st.Bsize != DataOffset || total%DataOffset != 0) {
		// munmap(2) refuses anything else on huge pages.
		return fmt.Errorf("%s: %w: on hugetlbfs use pages of 2M and a multiple of 2M", f.Name(), ErrSize)
	}
	have, err := allocated(f)
	if err != nil {
		return err
	}
	free := st.Bavail * uint64(st.Bsize)
	if st.Blocks != 0 && total > have && total-have > free { // a filesystem without blocks has no limit
		return fmt.Errorf("%s: no room for %d bytes, %d are free: %w", f.Name(), total, free, unix.ENOSPC)
	}
	return nil
}

// ensureAllocated refuses a file shorter than total bytes and fills its holes. A copy of
// a region may have holes.
func ensureAllocated(f *os.File, m *medium.Memory, total uint64) error {
	if m.Device != 0 {
		if m.Device < total {
			return fmt.Errorf("%w: the device has %d bytes, and its superblock says %d", ErrTruncated, m.Device, total)
		}
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if uint64(info.Size()) < total {
		return fmt.Errorf("%w: it has %d bytes, and its superblock says %d: restore the whole file", ErrTruncated, info.Size(), total)
	}
	have, err := allocated(f)
	if err != nil || have >= total {
		return err
	}
	return allocate(f, total, nil)
}

// allocated returns how many bytes of space f takes.
func allocated(f *os.File) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, err
	}
	return uint64(st.Blocks) * 512, nil
}
