// Package vmem maps several files behind each other, into one range of addresses.
//
// It exists for regions of several parts: everything above them, adapters included, sees
// one slice of bytes.
package vmem

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrRange means that a mapping would reach beyond the reserved addresses.
var ErrRange = errors.New("mapping outside of the range")

// A Range is a reserved range of addresses. Touching what no Map has filled is a fault.
// One goroutine at a time may call its methods.
type Range struct {
	all []byte // with what aligns mem
	mem []byte
}

// Reserve reserves size bytes of addresses that start at a multiple of align, a power of
// two. It takes no memory.
func Reserve(size, align uint64) (*Range, error) {
	all, err := unix.Mmap(-1, 0, int(size+align), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("reserve %d bytes of addresses: %w", size, err)
	}
	pad := -uint64(address(all)) & (align - 1)
	return &Range{all: all, mem: all[pad : pad+size : pad+size]}, nil
}

// Map maps n bytes at off of f to the bytes from at on, with the protection and flags of
// mmap(2).
func (r *Range) Map(at uint64, f *os.File, off, n uint64, prot, flags int) error {
	if at > uint64(len(r.mem)) || n > uint64(len(r.mem))-at {
		return fmt.Errorf("%w: %d bytes at %#x of %#x", ErrRange, n, at, len(r.mem))
	}
	// Try it elsewhere first. A fixed mapping that fails may leave a hole, which another
	// thread could fill before Close unmaps the whole range.
	try, err := unix.Mmap(int(f.Fd()), int64(off), int(n), prot, flags)
	if err == nil {
		err = unix.Munmap(try)
	}
	if err == nil {
		err = mapFixed(r.mem[at:at+n], int(f.Fd()), int64(off), prot, flags)
	}
	if err != nil {
		return fmt.Errorf("map %d bytes at offset %#x: %w", n, off, err)
	}
	return nil
}

// Bytes returns the range. It is valid until Close.
func (r *Range) Bytes() []byte { return r.mem }

// Close unmaps everything.
func (r *Range) Close() error {
	all := r.all
	r.all, r.mem = nil, nil
	if all == nil {
		return nil
	}
	return unix.Munmap(all)
}
