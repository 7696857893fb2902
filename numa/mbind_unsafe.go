package numa

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	mpolPreferred = 1 // linux/mempolicy.h
	// maxNodes is more than any kernel is built for (CONFIG_NODES_SHIFT is at most 10).
	maxNodes = 1 << 10
)

// mbind is mbind(2), which x/sys has no function for.
//
// unsafe: mem and mask are converted in the call's own expression, so both stay
// alive and where they are for its duration (unsafe, rule 4). The kernel reads
// maxNodes bits of mask, which has as many, and takes mem's address and length as a
// range of pages; it does not read or write mem. The kernel counts the bits plus one
// (mbind(2) is silent; mm/mempolicy.c takes one off).
func mbind(mem []byte, node int) error {
	if len(mem) == 0 {
		return nil
	}
	var mask [maxNodes / 64]uint64
	mask[node/64] = 1 << (node % 64)
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(&mem[0])), uintptr(len(mem)),
		mpolPreferred, uintptr(unsafe.Pointer(&mask[0])), maxNodes+1, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
