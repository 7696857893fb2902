package region

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel's interface to a file's extents (linux/fiemap.h).
const (
	fiemapIoctl = 0xc020660b // FS_IOC_FIEMAP: _IOWR('f', 11, struct fiemap)
	fiemapSync  = 1          // allocate what is only reserved first
	fiemapLast  = 1
	// fiemapVague: the kernel cannot say where the extent is, or it is no plain run of the file's bytes:
	// unknown, delayed, encoded, encrypted, not aligned, inline, packed.
	fiemapVague = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400
	// fiemapCount is how many extents one call asks for.
	fiemapCount = 128
	// maxExtents bounds how many extents of a file are looked at.
	maxExtents = 1 << 20
)

type fiemap struct {
	start, length uint64
	flags, mapped uint32
	count, _      uint32
	extents       [fiemapCount]fiemapExtent
}

type fiemapExtent struct {
	logical, physical, length uint64
	_                         [2]uint64
	flags                     uint32
	_                         [3]uint32
}

// The sizes that the kernel expects.
var (
	_ [32 + fiemapCount*56]byte = [unsafe.Sizeof(fiemap{})]byte{}
	_ [40]byte                  = [unsafe.Offsetof(fiemapExtent{}.flags)]byte{}
)

// fileExtents calls each for every extent of f.
//
// Safe: the kernel writes to m and keeps no pointer to it, and m lives until the call has returned. Its
// layout is that of struct fiemap with fiemapCount extents behind, which the compiler checks.
func fileExtents(f *os.File, each func(extent)) error {
	var m fiemap
	for seen, next := 0, uint64(0); seen < maxExtents; {
		m = fiemap{start: next, length: maxSize - next, flags: fiemapSync, count: fiemapCount}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fiemapIoctl, uintptr(unsafe.Pointer(&m))); errno != 0 {
			return fmt.Errorf("FIEMAP: %w", errno)
		}
		if m.mapped == 0 {
			return nil
		}
		for _, e := range m.extents[:min(m.mapped, fiemapCount)] {
			if e.flags&fiemapVague != 0 {
				return fmt.Errorf("FIEMAP: the extent at %d has flags %#x", e.logical, e.flags)
			}
			if e.logical < next || e.length == 0 || e.length > maxSize || e.physical > maxSize {
				return errors.New("FIEMAP: extents out of order")
			}
			each(extent{e.logical, e.physical, e.length})
			next = e.logical + e.length
			if e.flags&fiemapLast != 0 {
				return nil
			}
			seen++
		}
	}
	return fmt.Errorf("FIEMAP: more than %d extents", maxExtents)
}
