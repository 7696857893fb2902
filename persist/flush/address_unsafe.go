package flush

import "unsafe"

// address is where b starts, for the arithmetic of lines.
//
// Safe: the pointer is only turned into a number, never back. The number stays
// true while it is used, because b is mapped or in the heap, which do not move:
// the assembly's pointer parameter escapes, so b is never on a stack.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
