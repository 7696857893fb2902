package rdmatest

import (
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a test says that waits in vain: who waits where, and that bytes lie unread in a socket.
func TestStandstill(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	a, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer func() { _ = a.Close() }()
	b, err := l.Accept()
	require.NoError(t, err)
	defer func() { _ = b.Close() }()
	_, err = a.Write([]byte("unread"))
	require.NoError(t, err)
	_, err = b.Read(make([]byte, 1)) // they arrive together
	require.NoError(t, err)
	said := standstill()
	require.Contains(t, said, "rdmatest.TestStandstill")
	require.Contains(t, said, fmt.Sprintf("%s to %s: 5 bytes to read", b.LocalAddr(), b.RemoteAddr()))
	require.Contains(t, said, fmt.Sprintf("%s to %s: 0 bytes to read", a.LocalAddr(), a.RemoteAddr()))
}
