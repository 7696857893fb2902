package region

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// loadGeneration loads with one load what storeGeneration stored. It is safe for the same
// reasons.
func loadGeneration(b []byte) uint64 {
	var le [8]byte
	binary.NativeEndian.PutUint64(le[:], atomic.LoadUint64((*uint64)(unsafe.Pointer(&b[:8][0]))))
	return binary.LittleEndian.Uint64(le[:])
}

// storeGeneration stores the superblock's generation, little-endian, with one store. A
// crash leaves all of it or nothing.
//
// Safe: b has 8 bytes of a mapping that outlives the call, at an offset in a page that is
// a multiple of 8. So the pointer is valid and aligned, and it does not outlive the call.
func storeGeneration(b []byte, generation uint64) {
	var le [8]byte
	binary.LittleEndian.PutUint64(le[:], generation)
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&b[:8][0])), binary.NativeEndian.Uint64(le[:]))
}
