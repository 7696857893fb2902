package region

import "unsafe"

// address returns where b starts.
//
// Safe: the pointer becomes a number and never a pointer again. The number is compared
// with another one at once, and b is a mapping, which does not move.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
