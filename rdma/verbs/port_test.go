//go:build verbs && cgo

package verbs

import (
	"net"
	"net/netip"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// A listener at port 0 finds a free one, also if TCP sockets have some. It changes which ports the machine gives away.
func (b bench) anyPort(t *testing.T) {
	const path = "/proc/sys/net/ipv4/ip_local_port_range"
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte("40000 40031"), 0o644))
	defer func() { require.NoError(t, os.WriteFile(path, before, 0o644)) }()
	host := netip.MustParseAddrPort(b.addr).Addr().String()
	for port := 40000; port < 40032; port += 4 {
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		require.NoError(t, err)
		defer func() { require.NoError(t, l.Close()) }()
	}
	for range 30 {
		l, err := b.p.Listen(t.Context(), b.addr)
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
}
