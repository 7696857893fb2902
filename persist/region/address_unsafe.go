package region

import "unsafe"

// address is where b starts.
//
// Safe: the pointer is only turned into a number, never back, and compared with
// another number at once; b is a mapping, which does not move.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
