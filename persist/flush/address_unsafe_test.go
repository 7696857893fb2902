package flush

import "unsafe"

// addressOf is where p points. Safe: only a number, of mapped memory.
func addressOf(p *byte) uintptr { return uintptr(unsafe.Pointer(p)) }
