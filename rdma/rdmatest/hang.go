package rdmatest

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// standstill says what a test that waits in vain needs to be explained by: what each goroutine
// does, and what the kernel knows of the process's TCP connections. If the bytes have reached the
// socket that ought to be read, somebody missed them. If they have not, the other end or the
// network did.
func standstill() string {
	return "\nTCP connections of this process:\n" + strings.Join(connections(), "\n") + "\n\n" + stacks()
}

// stacks returns the stacks of all goroutines.
func stacks() string {
	b := make([]byte, 1<<20)
	for {
		if n := runtime.Stack(b, true); n < len(b) {
			return string(b[:n])
		}
		b = make([]byte, 2*len(b))
	}
}

// connections describes the TCP connections among the process's descriptors. Some may be closed
// meanwhile: what it cannot ask it leaves out.
func connections() (lines []string) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return []string{err.Error()}
	}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			continue // not TCP
		}
		local, _ := unix.Getsockname(fd)
		remote, err := unix.Getpeername(fd)
		if err != nil {
			continue // a listener
		}
		in, inErr := unix.IoctlGetInt(fd, unix.SIOCINQ)
		out, outErr := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | unix.POLLOUT | unix.POLLRDHUP}}
		_, pollErr := unix.Poll(p, 0)
		line := fmt.Sprintf("descriptor %d, %s to %s: %d bytes to read, %d not acknowledged, poll(2) reports %#x, %+v",
			fd, address(local), address(remote), in, out, p[0].Revents, *info)
		if err := cmp.Or(inErr, outErr, pollErr); err != nil {
			line += fmt.Sprintf(" (%v)", err)
		}
		lines = append(lines, line)
	}
	return lines
}

// address returns what a socket's address says, as HOST:PORT.
func address(a unix.Sockaddr) string {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)).String()
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port)).String()
	}
	return "?"
}
