package ublk

import (
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A place32 is a 32-bit word in memory that the kernel maps, too.
type place32 struct{ p *uint32 }

// at returns the word at byte off of m, a mapping. The index expressions check that the word lies
// within m. The kernel aligns the words of its rings, and a mapping begins at a page. The mapping
// outlives the ring that has the place, and the garbage collector does not look at it.
func at(m []byte, off uint32) place32 {
	_ = m[off+3]
	return place32{(*uint32)(unsafe.Pointer(&m[off]))}
}

func (w place32) load() uint32   { return atomic.LoadUint32(w.p) }
func (w place32) store(v uint32) { atomic.StoreUint32(w.p, v) }

// address returns the address of m, a mapping, for the kernel. A mapping does not move, and its owner
// unmaps it only after the kernel has ended what uses it.
func address(m []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m)))) }

// uringSetup is io_uring_setup(2). p does not escape: the kernel reads and writes it within the call.
func uringSetup(entries uint32, p *[paramsLen]byte) (fd int, err error) {
	n, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(p)), 0)
	if errno != 0 {
		return -1, os.NewSyscallError("io_uring_setup", errno)
	}
	return int(n), nil
}

// uringEnter is io_uring_enter(2).
func uringEnter(fd int, submit, least, flags uint32) (uint32, error) {
	n, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(fd), uintptr(submit), uintptr(least), uintptr(flags), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return uint32(n), nil
}

// loadDescriptor copies the request descriptor at byte off of m, the kernel's mapping. It reads each word
// once: what was checked does not change afterwards.
func loadDescriptor(m []byte, off int) descriptor {
	d := m[off : off+descriptorSize]
	return descriptor{
		opFlags: at(d, 0).load(),
		sectors: at(d, 4).load(),
		start:   atomic.LoadUint64((*uint64)(unsafe.Pointer(&d[8]))), // 24-byte steps from a page: aligned to 8
	}
}
