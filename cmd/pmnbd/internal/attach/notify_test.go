package attach

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A keeper tells systemd when the device is there: a unit of Type=notify waits for that.
func TestKeeperTellsSystemd(t *testing.T) {
	b := newBench(t)
	s := b.serve(t)
	socket := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	t.Setenv("NOTIFY_SOCKET", socket)
	ended := make(chan error, 1)
	go func() {
		k := b.keeper(2)
		defer k.Close()
		_, err := k.Attach(t.Context())
		if err == nil {
			err = k.Keep(t.Context(), nil)
		}
		ended <- err
	}()
	require.NoError(t, l.SetReadDeadline(time.Now().Add(20*time.Second)))
	told := make([]byte, 1024)
	n, err := l.Read(told)
	require.NoError(t, err)
	require.Equal(t, "READY=1\nSTATUS="+b.dev.String()+" is export log", string(told[:n]))
	_, err = b.detach(t, false)
	require.NoError(t, err)
	require.NoError(t, <-ended)
	s.stop(t)
}
