package flush

import "unsafe"

// addressOf returns where p points. Safe: it is only a number, and mapped memory does not
// move.
func addressOf(p *byte) uintptr { return uintptr(unsafe.Pointer(p)) }
