//go:build verbs && cgo

package verbs

import (
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/rdma/rdmatest"
)

// A listener at port 0 finds a free port, and so does who dials, also if TCP sockets have
// every fourth. The test changes which ports the machine gives away.
func (b bench) anyPort(t *testing.T) {
	const path = "/proc/sys/net/ipv4/ip_local_port_range"
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte("40000 40255"), 0o644))
	defer func() { require.NoError(t, os.WriteFile(path, before, 0o644)) }()
	host := netip.MustParseAddrPort(b.addr).Addr()
	taken := func(take func(at netip.AddrPort)) {
		for port := uint16(40000); port < 40256; port += 4 {
			take(netip.AddrPortFrom(host, port))
		}
	}

	t.Run("others listen", func(t *testing.T) {
		taken(func(at netip.AddrPort) {
			l, err := net.Listen("tcp", at.String())
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, l.Close()) })
		})
		for range 30 {
			rdmatest.Connect(t, b.p, b.addr, rdmatest.Config{Size: 1})
		}
	})
	t.Run("others are connected to the listener", func(t *testing.T) {
		if b.dev.caps.iwarp == 0 {
			t.Skip("the device does not connect by TCP")
		}
		l, err := b.p.Listen(t.Context(), b.addr)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Close()) })
		taken(func(at netip.AddrPort) {
			if at.String() == l.Addr() {
				return
			}
			share := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(at), Control: func(_, _ string, c syscall.RawConn) (err error) {
				cerr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
				require.NoError(t, cerr)
				return err
			}}
			nc, err := share.Dial("tcp", l.Addr())
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, nc.Close()) })
		})
		for range 30 {
			rdmatest.ConnectTo(t, b.p, l, rdmatest.Config{Size: 1})
		}
	})
}
