package sockio

import (
	"io"
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

// recv is recv(2). It returns 0, nil if nothing is there, or came until
// SO_RCVTIMEO was over or a signal arrived, and io.EOF at the end. p is not empty. The one in x/sys
// asks for the sender's address, and may allocate it.
func recv(fd int, p []byte, flags int) (int, error) {
	// The conversion to uintptr is in the call itself (unsafe.Pointer, rule 4). So p stays
	// alive and in place.
	n, _, errno := unix.Syscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), uintptr(flags), 0, 0)
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return 0, nil
	case errno != 0:
		return 0, os.NewSyscallError("recv", errno)
	case n == 0:
		return 0, io.EOF
	}
	received(fd, p[:n])
	return int(n), nil
}

// sendmsg is sendmsg(2) of iov, which is not empty, without waiting for room, repeated while a
// signal interrupts it. The one in x/sys allocates at each call.
func sendmsg(fd int, iov []unix.Iovec) (int, error) {
	msg := unix.Msghdr{Iov: unsafe.SliceData(iov)} // a typed pointer, as are those in iov
	msg.SetIovlen(len(iov))
	for {
		// Rule 4 again. len(iov) entries are valid.
		n, _, errno := unix.Syscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&msg)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		case unix.EAGAIN:
			return 0, unix.EAGAIN
		default:
			return 0, os.NewSyscallError("sendmsg", errno)
		}
	}
}
