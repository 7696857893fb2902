package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/cmd/internal/flags"
)

func TestParseListen(t *testing.T) {
	for _, c := range []struct {
		in   string
		want listenSpec // empty: refused
	}{
		{"unix:/run/s", listenSpec{"unix", "/run/s"}},
		{"unix:/run/./x/../s", listenSpec{"unix", "/run/s"}},
		{"tcp:10809", listenSpec{"tcp", "127.0.0.1:10809"}},
		{"tcp::0", listenSpec{"tcp", "127.0.0.1:0"}},
		{"tcp:0.0.0.0:1", listenSpec{"tcp", "0.0.0.0:1"}},
		{"tcp:[::]:1", listenSpec{"tcp", "[::]:1"}},
		{`unix:"/run/a,b"`, listenSpec{"unix", "/run/a,b"}},
		{in: "unix:/run/a,mode=0666"},
		{in: "unix:/run/a,tcp:1"},
		{in: `unix:"/run/a`},
		{in: "tcp://127.0.0.1:10809"},
		{in: "nbd://127.0.0.1:10809"},
		{in: "tcp:127.0.0.1:1,127.0.0.1:2"},
		{in: "tcp:::1:1"},
		{in: "tcp:host"},
		{in: "tcp:host:65536"},
		{in: "tcp:"},
		{in: "unix:"},
		{in: "udp:1"},
		{in: "/run/s"},
	} {
		got, err := parseListen(c.in)
		require.Equal(t, c.want == listenSpec{}, err != nil, "%s: %v", c.in, err)
		require.Equal(t, c.want, got, c.in)
		if err != nil {
			require.ErrorIs(t, err, flags.ErrUsage, c.in)
		}
	}
}

// What was asked for is bound, and no family more.
func TestListenFamily(t *testing.T) {
	for in, want := range map[string]string{"tcp:0.0.0.0:0": "nbd://0.0.0.0:", "tcp:[::]:0": "nbd://[::]:", "tcp:0": "nbd://127.0.0.1:"} {
		spec, err := parseListen(in)
		require.NoError(t, err)
		l, err := spec.listen(0o600)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(uri(l, "nbd", "x"), want), uri(l, "nbd", "x"))
		require.NoError(t, l.Close())
	}
}

// socket is the descriptor of a new socket, bound to address if there is one.
func socket(t *testing.T, domain, typ int, address unix.Sockaddr) int {
	t.Helper()
	fd, err := unix.Socket(domain, typ|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	if address != nil {
		require.NoError(t, unix.Bind(fd, address))
	}
	return fd
}

func listening(t *testing.T, domain, typ int, address unix.Sockaddr) int {
	t.Helper()
	fd := socket(t, domain, typ, address)
	require.NoError(t, unix.Listen(fd, 1))
	return fd
}

func TestAdopt(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) *unix.SockaddrUnix { return &unix.SockaddrUnix{Name: filepath.Join(dir, name)} }
	loopback := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	for name, c := range map[string]struct {
		fd   int
		uri  string
		says string
	}{
		"unix":             {fd: listening(t, unix.AF_UNIX, unix.SOCK_STREAM, path("s")), uri: "nbd+unix:///x?socket=" + dir + "/s"},
		"IPv4":             {fd: listening(t, unix.AF_INET, unix.SOCK_STREAM, loopback), uri: "nbd://127.0.0.1:"},
		"IPv6":             {fd: listening(t, unix.AF_INET6, unix.SOCK_STREAM, &unix.SockaddrInet6{}), uri: "nbd://[::]:"},
		"datagrams":        {fd: socket(t, unix.AF_UNIX, unix.SOCK_DGRAM, path("d")), says: "does not listen"},
		"UDP":              {fd: socket(t, unix.AF_INET, unix.SOCK_DGRAM, loopback), says: "does not listen"},
		"a stream, bound":  {fd: socket(t, unix.AF_UNIX, unix.SOCK_STREAM, path("b")), says: "does not listen"},
		"packets in order": {fd: listening(t, unix.AF_UNIX, unix.SOCK_SEQPACKET, path("q")), says: "unixpacket " + dir + "/q is not served"},
		"without a path":   {fd: listening(t, unix.AF_UNIX, unix.SOCK_STREAM, &unix.SockaddrUnix{Name: "@pmnbd-" + filepath.Base(dir)}), says: "is not served"},
		"a directory": {fd: func() int {
			fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			require.NoError(t, err)
			return fd
		}(), says: "socket operation on non-socket"},
	} {
		t.Run(name, func(t *testing.T) {
			f := os.NewFile(uintptr(c.fd), name)
			l, err := inherited(f)
			require.NoError(t, f.Close())
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
				return
			}
			require.NoError(t, err)
			require.Contains(t, uri(l, "nbd", "x"), c.uri)
			require.NoError(t, l.Close())
		})
	}
	require.FileExists(t, filepath.Join(dir, "s"), "its name is whoever's who made it")
}

// What is accepted gives up a silent peer, whoever made the listening socket.
func TestPatience(t *testing.T) {
	ours, err := listenSpec{"tcp", "127.0.0.1:0"}.listen(0)
	require.NoError(t, err)
	f := os.NewFile(uintptr(listening(t, unix.AF_INET, unix.SOCK_STREAM, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})), "tcp")
	theirs, err := inherited(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	for _, l := range []net.Listener{ours, theirs} {
		client, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		c, err := l.Accept()
		require.NoError(t, err)
		raw, err := c.(*net.TCPConn).SyscallConn()
		require.NoError(t, err)
		for option, want := range map[[2]int]int{
			{unix.SOL_SOCKET, unix.SO_KEEPALIVE}:      1,
			{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE}:     30,
			{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL}:    15,
			{unix.IPPROTO_TCP, unix.TCP_KEEPCNT}:      6,
			{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT}: 0,
		} {
			require.NoError(t, raw.Control(func(fd uintptr) {
				got, err := unix.GetsockoptInt(int(fd), option[0], option[1])
				require.NoError(t, err)
				require.Equal(t, want, got, option)
			}))
		}
		require.NoError(t, c.Close())
		require.NoError(t, client.Close())
		require.NoError(t, l.Close())
	}
}

func TestURI(t *testing.T) {
	dir := t.TempDir()
	l, err := listenSpec{"unix", filepath.Join(dir, "a b&c")}.listen(0o600)
	require.NoError(t, err)
	require.Equal(t, "nbds+unix:///a%2Fb?socket="+dir+"/a%20b%26c", uri(l, "nbds", "a/b"))
	require.False(t, beyondLoopback(l))
	require.NoError(t, l.Close())
	for address, beyond := range map[string]bool{"127.0.0.1:0": false, "0.0.0.0:0": true, "[::]:0": true} {
		l, err := listenSpec{"tcp", address}.listen(0)
		require.NoError(t, err)
		require.Equal(t, beyond, beyondLoopback(l), address)
		require.True(t, strings.HasPrefix(l.Addr().String(), strings.TrimSuffix(address, "0")), "%s of %s", address, l.Addr())
		require.Equal(t, "nbds://"+l.Addr().String()+"/log", uri(l, "nbds", "log"))
		require.NoError(t, l.Close())
	}
}
