package kernel

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Taken reports whether the kernel has taken the socket f for a device with a Timeout. The
// kernel does not say so, but it sets the Timeout as the send timeout of each socket that it
// takes.
func Taken(f *os.File) (bool, error) {
	t, err := unix.GetsockoptTimeval(int(f.Fd()), unix.SOL_SOCKET, unix.SO_SNDTIMEO)
	if err != nil {
		return false, fmt.Errorf("ask for a socket's timeout: %w", err)
	}
	return t.Nano() != 0, nil
}

// WaitHangUp waits until either end has shut one of socks down, until stop can be read or is
// hung up, or until timeout has passed. A negative timeout means none. hung has an entry for
// each of socks; stopped reports whether stop was the cause. Replies that arrive on socks do
// not wake it.
func WaitHangUp(socks []*os.File, stop *os.File, timeout time.Duration) (hung []bool, stopped bool, err error) {
	fds := make([]unix.PollFd, 0, len(socks)+1)
	for _, f := range socks {
		fds = append(fds, unix.PollFd{Fd: int32(f.Fd()), Events: unix.POLLRDHUP})
	}
	fds = append(fds, unix.PollFd{Fd: int32(stop.Fd()), Events: unix.POLLIN})
	ms := -1
	if timeout >= 0 {
		ms = int(timeout.Milliseconds())
	}
	for {
		_, err = unix.Poll(fds, ms)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, false, fmt.Errorf("wait for a hang-up: %w", err)
	}
	for _, p := range fds[:len(socks)] {
		hung = append(hung, p.Revents != 0)
	}
	return hung, fds[len(socks)].Revents != 0, nil
}
