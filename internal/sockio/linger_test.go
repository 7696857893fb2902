package sockio

import (
	"crypto/tls"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// After Linger, Close loses nothing of what the socket had taken, although the peer has sent what nobody reads.
func TestLinger(t *testing.T) {
	server, client := identity()
	client = client.Clone()
	client.MinVersion = tls.VersionTLS13
	for name, dial := range map[string]func() (s Stream, own *Socket, peer io.ReadWriteCloser, theirs *Socket){
		"TCP": func() (Stream, *Socket, io.ReadWriteCloser, *Socket) {
			a, b := pair(t, "tcp")
			return a, a, b, b
		},
		"TLS": func() (Stream, *Socket, io.ReadWriteCloser, *Socket) {
			s, c := secure(t, "tcp", server, client, goClient)
			return s, s.sock, c, c.NetConn().(*Socket)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, own, peer, theirs := dial()
			require.NoError(t, unix.SetsockoptInt(theirs.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 64<<10)) // the rest waits at our end
			var q Queue
			q.Data(make([]byte, 512<<10))
			for require.NoError(t, s.Flush(&q)); !q.Empty(); require.NoError(t, s.Flush(&q)) {
				require.NoError(t, s.WaitWritable())
			}
			_, err := peer.Write(make([]byte, 1000))
			require.NoError(t, err)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				s.Linger(time.Hour)
				_ = s.Close()
			}()
			require.Eventually(t, func() bool { // it is through, or waits
				info, err := unix.GetsockoptTCPInfo(own.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
				return err != nil || info.State != 1 // established
			}, time.Minute, time.Millisecond)
			got, err := io.Copy(io.Discard, peer)
			require.NoError(t, err)
			require.EqualValues(t, q.Written(), got)
			_ = peer.Close() // of TLS, which cannot say so any more
			<-ended
		})
	}
}

// Linger ends in time, with Close, and at once where there is nothing to lose.
func TestLingerEnds(t *testing.T) {
	fill := func(a *Socket) {
		var q Queue
		q.Data(make([]byte, 64<<20))
		require.NoError(t, a.Flush(&q))
	}
	a, _ := pair(t, "tcp")
	a.Linger(time.Hour)
	_, b := pair(t, "unix")
	fill(b)
	b.Linger(time.Hour)
	c, _ := pair(t, "tcp")
	fill(c)
	c.Linger(time.Millisecond)
	d, _ := pair(t, "tcp")
	fill(d)
	ended := make(chan struct{})
	go func() { defer close(ended); d.Linger(time.Hour) }()
	require.NoError(t, d.Close())
	<-ended
}
