package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// rawRead is read(2), and rawWrite write(2), without telling Go's scheduler: the thread blocks as
// one of a C program does, and the scheduler neither takes its P away nor looks for other work. A
// garbage collection waits until the call returns, so only goroutines that allocate nothing may
// use them.
//
// unsafe: the kernel writes at most len(b) bytes to b, or reads them. b is alive until the call
// has returned, because the conversion is in its arguments (unsafe.Pointer, rule 4).
func rawRead(fd int, b []byte) (int, error) {
	return raw(unix.SYS_READ, fd, b)
}

func rawWrite(fd int, b []byte) (int, error) {
	return raw(unix.SYS_WRITE, fd, b)
}

func raw(call uintptr, fd int, b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for {
		n, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR: // the runtime's own signals
		default:
			return 0, errno
		}
	}
}
