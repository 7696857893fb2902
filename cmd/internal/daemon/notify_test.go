package daemon

import (
	"bytes"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestNotify(t *testing.T) {
	core, logged := observer.New(zap.InfoLevel)
	log := zap.New(core)
	uris := []string{"nbd://h:1/a", "nbd://h:1/b"}
	socket := filepath.Join(t.TempDir(), "notify")
	ready := func() {
		t.Helper()
		var out bytes.Buffer
		require.NoError(t, Ready(log, &out, uris, `serving ["a" "b"]`))
		require.Equal(t, "ready nbd://h:1/a nbd://h:1/b\n", out.String())
	}

	t.Setenv("NOTIFY_SOCKET", "")
	ready()
	require.Zero(t, logged.Len(), "nobody wants to know")

	t.Setenv("NOTIFY_SOCKET", socket)
	ready()
	require.Equal(t, 1, logged.FilterMessage("systemd cannot be told").Len(), "and nothing worse than a warning")

	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	told := func() string {
		t.Helper()
		require.NoError(t, l.SetReadDeadline(time.Now().Add(10*time.Second)))
		b := make([]byte, 1024)
		n, err := l.Read(b)
		require.NoError(t, err)
		return string(b[:n])
	}
	ready()
	require.Equal(t, "READY=1\nSTATUS=serving [\"a\" \"b\"]", told())
	Stopping(log, 30*time.Second)
	require.Equal(t, "STOPPING=1\nSTATUS=ending\nEXTEND_TIMEOUT_USEC=35000000", told())
	require.Equal(t, 1, logged.Len())
}
