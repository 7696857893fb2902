package sockio

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// gather fills q.iov with the first segments and returns their length in bytes.
func (q *Queue) gather() int {
	segs := q.segs[q.head:]
	if len(segs) > maxIovecs {
		segs = segs[:maxIovecs]
	}
	if cap(q.iov) < len(segs) {
		q.iov = make([]unix.Iovec, len(segs), min(maxIovecs, 2*len(segs)))
	}
	q.iov = q.iov[:len(segs)]
	n := 0
	for i := range segs {
		p := segs[i].p
		// SliceData points to len(p) bytes, and SetLen tells the kernel no more than
		// that. Base is a typed pointer, so the collector sees what it points to.
		q.iov[i].Base = unsafe.SliceData(p)
		q.iov[i].SetLen(len(p))
		n += len(p)
	}
	return n
}

// writev is writev(2), repeated while a signal interrupts it. iov is not empty. The one in
// x/sys allocates at each call.
func writev(fd int, iov []unix.Iovec) (int, error) {
	for {
		// The conversion to uintptr is in the call itself (unsafe.Pointer, rule 4). So iov
		// stays alive and in place, and so does the data, through its typed Base
		// pointers. len(iov) entries are valid.
		n, _, errno := unix.Syscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(iov))), uintptr(len(iov)))
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		case unix.EAGAIN:
			return 0, unix.EAGAIN
		default:
			return 0, os.NewSyscallError("writev", errno)
		}
	}
}
