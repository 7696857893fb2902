package region

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
)

// ErrFault means that the process could not touch memory: the file behind the mapping
// became shorter, or the medium lost what it held (SIGBUS).
var ErrFault = errors.New("memory fault")

// A faultError is ErrFault at an offset in the mapping.
type faultError struct{ off uintptr }

func (e *faultError) Error() string { return fmt.Sprintf("%v at offset %#x", ErrFault, e.off) }
func (e *faultError) Unwrap() error { return ErrFault }

// caught turns a fault into an error. A function that touches mem, a mapping, defers it
// as
//
//	defer caught(mem, debug.SetPanicOnFault(true), &err)
//
// A fault in mem, which would end the process, becomes err. Go's runtime has a setting
// for each goroutine; caught restores its old value, was.
func caught(mem []byte, was bool, err *error) {
	debug.SetPanicOnFault(was)
	switch p := recover().(type) {
	case nil:
	case interface {
		runtime.Error
		Addr() uintptr
	}:
		off := p.Addr() - address(mem) // wraps to beyond the end for an address in front of mem
		if off >= uintptr(len(mem)) {
			panic(p)
		}
		*err = &faultError{off}
	default:
		panic(p)
	}
}
