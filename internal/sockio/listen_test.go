package sockio

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/internal/testhost"
)

func TestListenUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := ListenUnix(path, 0o640)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.ModeSocket|0o640, info.Mode())

	_, err = ListenUnix(path, 0o600)
	require.ErrorIs(t, err, unix.EADDRINUSE, "somebody accepts there")
	c, err := net.Dial("unix", path)
	require.NoError(t, err, "and still does")
	require.NoError(t, c.Close())
	require.False(t, Abandoned(path))

	l.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	require.True(t, Abandoned(path))
	l, err = ListenUnix(path, 0o600)
	require.NoError(t, err, "nobody accepts there any more")
	require.NoError(t, l.Close())
	require.NoFileExists(t, path)
	require.False(t, Abandoned(path))

	require.NoError(t, os.WriteFile(path, []byte("precious"), 0o600))
	_, err = ListenUnix(path, 0o600)
	require.ErrorIs(t, err, unix.EADDRINUSE, "not a socket")
	require.FileExists(t, path)

	_, err = ListenUnix("/"+strings.Repeat("x", MaxUnixPath), 0o600)
	require.ErrorContains(t, err, "at most 107 bytes")
}

// Listening on an IPv4 address does not listen on IPv6.
func TestListenTCP(t *testing.T) {
	for address, want := range map[string]string{"0.0.0.0:0": "0.0.0.0", "127.0.0.1:0": "127.0.0.1", "[::]:0": "::", "[::1]:0": "::1"} {
		t.Run(address, func(t *testing.T) {
			if strings.HasPrefix(address, "[") {
				testhost.IPv6(t)
			}
			l, err := ListenTCP(address)
			require.NoError(t, err)
			require.Equal(t, want, l.Addr().(*net.TCPAddr).IP.String())
			_, err = ListenTCP(l.Addr().String())
			require.ErrorIs(t, err, unix.EADDRINUSE)
			require.NoError(t, l.Close())
		})
	}
	_, err := ListenTCP("127.0.0.1:http-of-nobody")
	require.Error(t, err)
}
