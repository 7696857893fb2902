package sockio

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// MaxUnixPath is how long a unix socket's path may be, in bytes.
const MaxUnixPath = len(unix.RawSockaddrUnix{}.Path) - 1

// ListenUnix makes the unix socket at path with the access rights mode; at no
// moment does it have others. A socket that is there already is replaced if nobody
// accepts on it.
func ListenUnix(path string, mode fs.FileMode) (net.Listener, error) {
	if len(path) > MaxUnixPath {
		return nil, fmt.Errorf("%s: a socket's path has at most %d bytes", path, MaxUnixPath)
	}
	listener, err := listenUnix(path, mode)
	if !errors.Is(err, unix.EADDRINUSE) {
		return listener, err
	}
	if !Abandoned(path) {
		return nil, fmt.Errorf("%w: %s: use another path", err, occupant(path))
	}
	if err := os.Remove(path); err != nil {
		return nil, fmt.Errorf("replace a socket that nobody serves: %w", err)
	}
	return listenUnix(path, mode)
}

// occupant says what is at path, where a socket cannot be.
func occupant(path string) string {
	switch info, err := os.Lstat(path); {
	case err != nil:
		return "what is there cannot be examined"
	case info.IsDir():
		return "it is a directory"
	case info.Mode()&fs.ModeSocket == 0:
		return "it is there, and is no socket"
	}
	return "another process serves that socket"
}

// Abandoned reports whether path is a unix socket on which nobody accepts.
func Abandoned(path string) bool {
	c, err := net.Dial("unix", path)
	if err == nil {
		_ = c.Close()
		return false
	}
	info, statErr := os.Lstat(path)
	return errors.Is(err, unix.ECONNREFUSED) && statErr == nil && info.Mode()&fs.ModeSocket != 0
}

// umask is the process's: one listener at a time changes it.
var umask sync.Mutex

func listenUnix(path string, mode fs.FileMode) (net.Listener, error) {
	umask.Lock()
	defer umask.Unlock()
	old := unix.Umask(int(0o777 &^ mode))
	defer unix.Umask(old)
	return net.Listen("unix", path)
}

// TCPNetwork is the network, for package net, on which to listen on addr, HOST:PORT. Of an
// IPv4 address it is IPv4 alone: by "tcp", 0.0.0.0 would be every address of IPv6 too.
func TCPNetwork(addr string) string {
	if a, err := netip.ParseAddrPort(addr); err == nil && a.Addr().Is4() {
		return "tcp4"
	}
	return "tcp"
}

// ListenTCP listens on addr, HOST:PORT.
func ListenTCP(addr string) (*net.TCPListener, error) {
	l, err := net.Listen(TCPNetwork(addr), addr)
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}
