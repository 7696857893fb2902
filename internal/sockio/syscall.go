package sockio

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// send writes what the socket takes of p at once. It returns 0, nil if there is no room.
func send(fd int, p []byte) (int, error) {
	sending(fd)
	for {
		n, err := unix.SendmsgN(fd, p, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		switch {
		case err == nil:
			return n, nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return 0, nil
		default:
			return 0, os.NewSyscallError("sendmsg", err)
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
