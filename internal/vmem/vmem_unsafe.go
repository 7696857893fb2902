package vmem

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// address returns where b starts.
//
// Safe: the pointer becomes a number and never a pointer again, and b is a mapping, which
// does not move.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// mapFixed maps a file over b, a part of a mapping that Reserve made.
//
// Safe: the kernel replaces the pages of b and of nothing else, because the mapping's
// length is that of b. Nobody uses b before mapFixed returns.
func mapFixed(b []byte, fd int, off int64, prot, flags int) error {
	_, err := unix.MmapPtr(fd, off, unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)), prot, flags|unix.MAP_FIXED)
	return err
}
