package flush

import "unsafe"

// address returns where b starts, for the arithmetic of lines.
//
// Safe: the pointer becomes a number and never a pointer again. The number stays true
// while it is used, because b lies in a mapping or in the heap, which do not move. It
// never lies on a stack: the assembly's pointer parameter makes it escape.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
