package kernel

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestHold(t *testing.T) {
	d := Device{0, t.TempDir()}
	_, err := d.Hold(true)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.Mkdir(filepath.Join(d.Root, "dev"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(d.Root, "dev/nbd0"), nil, 0o600))
	f, err := d.Hold(true)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestWaitReleased(t *testing.T) {
	d := Device{0, t.TempDir()}
	require.NoError(t, d.WaitReleased(t.Context(), "ours"))
	write(t, d, "pid", "1\n")
	write(t, d, "backend", "ours\n")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, d.WaitReleased(ctx, "ours"), ErrInUse)
	require.NoError(t, d.WaitReleased(ctx, "theirs"), "attached by somebody else since")
	done := make(chan error)
	go func() { done <- d.WaitReleased(t.Context(), "ours") }()
	require.NoError(t, os.Remove(d.sysfs("pid")))
	require.NoError(t, <-done)
}

// pair returns a connected pair of unix sockets.
func pair(t *testing.T) (a, b *os.File) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	a, b = os.NewFile(uintptr(fds[0]), "a"), os.NewFile(uintptr(fds[1]), "b")
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

func TestTaken(t *testing.T) {
	f, _ := pair(t)
	taken, err := Taken(f)
	require.NoError(t, err)
	require.False(t, taken)
	// The kernel does the same.
	require.NoError(t, unix.SetsockoptTimeval(int(f.Fd()), unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 30}))
	taken, err = Taken(f)
	require.NoError(t, err)
	require.True(t, taken)
	_, err = Taken(files(t, 1)[0])
	require.Error(t, err)
}

func TestWaitHangUp(t *testing.T) {
	stop, end, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _ = stop.Close() }()
	a, b := pair(t)
	c, d := pair(t)
	socks := []*os.File{a, c}

	_, err = b.Write([]byte("a reply"))
	require.NoError(t, err)
	hung, stopped, err := WaitHangUp(socks, stop, 0)
	require.NoError(t, err)
	require.Equal(t, []bool{false, false}, hung, "a reply is no hang-up")
	require.False(t, stopped)

	require.NoError(t, d.Close())
	hung, stopped, err = WaitHangUp(socks, stop, -1)
	require.NoError(t, err)
	require.Equal(t, []bool{false, true}, hung)
	require.False(t, stopped)

	// The kernel shuts its end down, and ours is the same socket.
	conn, err := net.FileConn(a)
	require.NoError(t, err)
	require.NoError(t, conn.(*net.UnixConn).CloseRead())
	require.NoError(t, conn.(*net.UnixConn).CloseWrite())
	require.NoError(t, conn.Close())
	hung, _, err = WaitHangUp(socks, stop, -1)
	require.NoError(t, err)
	require.Equal(t, []bool{true, true}, hung)

	require.NoError(t, end.Close())
	hung, stopped, err = WaitHangUp(nil, stop, -1)
	require.NoError(t, err)
	require.Empty(t, hung)
	require.True(t, stopped)
}
