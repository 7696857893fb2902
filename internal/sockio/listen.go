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

// MaxUnixPath bounds the path of a unix socket, in bytes.
const MaxUnixPath = len(unix.RawSockaddrUnix{}.Path) - 1

// ListenUnix listens on a new unix socket at path. The socket never has other access rights
// than mode. If there is a socket already, ListenUnix replaces it unless somebody accepts on
// it; then, or if path is something else, the error is unix.EADDRINUSE.
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

// occupant describes what is at path and keeps ListenUnix from using it.
func occupant(path string) string {
	switch info, err := os.Lstat(path); {
	case err != nil:
		return "it cannot be examined"
	case info.IsDir():
		return "it is a directory"
	case info.Mode()&fs.ModeSocket == 0:
		return "it exists and is not a socket"
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

// umask guards the process's file mode creation mask, which listenUnix changes for a moment.
var umask sync.Mutex

func listenUnix(path string, mode fs.FileMode) (net.Listener, error) {
	umask.Lock()
	defer umask.Unlock()
	old := unix.Umask(int(0o777 &^ mode))
	defer unix.Umask(old)
	return net.Listen("unix", path)
}

// TCPNetwork returns the network, in the words of package net, for listening on addr,
// HOST:PORT. For an IPv4 address it is "tcp4": with "tcp", 0.0.0.0 would mean every IPv6
// address, too.
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
