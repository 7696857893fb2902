package sockio

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// read and write are those of package syscall, like package net's: the race detector then
// sees that what was written before comes before what is read.

// read is read(2) on a non-blocking descriptor. It returns 0, nil if nothing is there and
// io.EOF at the end. p is not empty.
func read(fd int, p []byte) (int, error) {
	for {
		n, err := syscall.Read(fd, p)
		switch {
		case err == nil && n > 0:
			return n, nil
		case err == nil:
			return 0, io.EOF
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return 0, nil
		default:
			return 0, os.NewSyscallError("read", err)
		}
	}
}

// write is write(2) on a non-blocking descriptor. It returns 0, nil if there is no room.
func write(fd int, p []byte) (int, error) {
	for {
		n, err := syscall.Write(fd, p)
		switch {
		case err == nil:
			return n, nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return 0, nil
		default:
			return 0, os.NewSyscallError("write", err)
		}
	}
}

// poll is a poll(2) of fd that does not wait. It returns which of events hold, and POLLHUP
// and POLLERR if they do.
func poll(fd int, events int16) (int16, error) {
	p := [1]unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		_, err := unix.Poll(p[:], 0)
		if err != unix.EINTR {
			return p[0].Revents, os.NewSyscallError("poll", err)
		}
	}
}
