package daemon

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// systemd hears what is new, and with a watchdog at each tick that the process lives.
func TestFollow(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	told := func() string {
		t.Helper()
		require.NoError(t, l.SetReadDeadline(time.Now().Add(20*time.Second)))
		b := make([]byte, 1024)
		n, err := l.Read(b)
		require.NoError(t, err)
		return string(b[:n])
	}
	require.NoError(t, Follow(zap.NewNop(), nil).Close(), "nobody wants to know")

	t.Setenv("NOTIFY_SOCKET", socket)
	for watchdog, want := range map[bool][]string{
		false: {"STATUS=a", "STATUS=b"},
		true:  {"STATUS=a\nWATCHDOG=1", "WATCHDOG=1", "STATUS=b\nWATCHDOG=1"},
	} {
		tick, end, ended := make(chan time.Time), make(chan struct{}), make(chan struct{})
		lines := []string{"a", "a", "b"}
		go func() {
			defer close(ended)
			follow(zap.NewNop(), func() string {
				line := lines[0]
				lines = lines[1:]
				return line
			}, watchdog, tick, end)
		}()
		for range 3 {
			tick <- time.Time{}
		}
		for _, w := range want {
			require.Equal(t, w, told())
		}
		close(end)
		<-ended
	}

	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", "")
	f := Follow(zap.NewNop(), func() string { return "c" })
	require.Equal(t, "STATUS=c\nWATCHDOG=1", told(), "after half the time that systemd gives")
	require.Equal(t, "WATCHDOG=1", told())
	require.NoError(t, f.Close())
	require.NoError(t, f.Close(), "idempotent")
}
