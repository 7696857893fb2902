package backend

import (
	"sync/atomic"
	"unsafe"
)

// A ring in memory: a header with head and covered mark on cache lines of their
// own, then the entries.
const (
	ringHeader    = 128
	coveredOffset = 64
	entrySize     = int(unsafe.Sizeof(Entry{}))
)

// ringSize is the size in bytes of a ring of n entries, a multiple of 64.
func ringSize(n int) int { return ringHeader + (n*entrySize+63)&^63 }

// newRing lays a ring over mem.
//
// Safe: mem is page-aligned mapped memory that outlives the ring (Window.Close),
// cut at multiples of 64, so that the two words and the entries, whose alignment
// is 8, are aligned; all of them lie within len(mem); neither type has pointers,
// so the collector need not know of them, and zeroed memory is a value of both.
func newRing(mem []byte) Ring {
	n := (len(mem) - ringHeader) / entrySize
	return Ring{
		head:    (*atomic.Uint64)(unsafe.Pointer(&mem[0])),
		covered: (*atomic.Uint64)(unsafe.Pointer(&mem[coveredOffset])),
		entries: unsafe.Slice((*Entry)(unsafe.Pointer(&mem[ringHeader])), n),
	}
}
