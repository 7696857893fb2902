package sockio

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// read is read(2) on a non-blocking descriptor. It returns 0, nil if nothing is there and
// io.EOF at the end. p is not empty.
func read(fd uintptr, p []byte) (int, error) {
	for {
		n, err := unix.Read(int(fd), p)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return 0, nil
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// poll is a poll(2) of fd that does not wait. It returns which of events hold, and POLLHUP
// and POLLERR if they do.
func poll(fd uintptr, events int16) (int16, error) {
	p := [1]unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		_, err := unix.Poll(p[:], 0)
		if err != unix.EINTR {
			return p[0].Revents, os.NewSyscallError("poll", err)
		}
	}
}
