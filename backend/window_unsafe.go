package backend

import (
	"sync/atomic"
	"unsafe"
)

// A ring in memory is a header and the entries. The head and the covered mark have a
// cache line each.
const (
	ringHeader    = 128
	coveredOffset = 64
	entrySize     = int(unsafe.Sizeof(Entry{}))
)

// ringSize returns the size in bytes of a ring of n entries, a multiple of 64.
func ringSize(n int) int { return ringHeader + (n*entrySize+63)&^63 }

// newRing lays a ring over mem.
//
// This is safe. mem is mapped memory that outlives the ring (Window.Close). It begins at
// a page and is cut at multiples of 64, so the two words and the entries, which need an
// alignment of 8, are aligned. All of them lie within len(mem). Neither type has
// pointers, so the garbage collector need not know of them, and zeroed memory is a valid
// value of both.
func newRing(mem []byte) Ring {
	n := (len(mem) - ringHeader) / entrySize
	return Ring{
		head:    (*atomic.Uint64)(unsafe.Pointer(&mem[0])),
		covered: (*atomic.Uint64)(unsafe.Pointer(&mem[coveredOffset])),
		entries: unsafe.Slice((*Entry)(unsafe.Pointer(&mem[ringHeader])), n),
	}
}
