package sockio

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// identity is a server's self-signed certificate, and the clients' configuration
// that trusts it.
var identity = sync.OnceValues(func() (server, client *tls.Config) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"server"},
		IsCA:     true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		panic(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}},
		&tls.Config{RootCAs: roots, ServerName: "server"}
})

// versions runs f with configurations of TLS 1.2 and 1.3.
func versions(t *testing.T, f func(t *testing.T, server, client *tls.Config)) {
	for name, version := range map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			server, client := identity()
			client = client.Clone()
			client.MaxVersion = version
			f(t, server, client)
		})
	}
}

// conns is a connected pair of sockets, closed with the test.
func conns(t testing.TB, network string) (a, b net.Conn) {
	sa, sb := pair(t, network)
	return sa.Conn(), sb.Conn()
}

// secure is a TLS server and what its client end is.
func secure[C any](t testing.TB, server, client *tls.Config, dial func(net.Conn, *tls.Config) (C, error)) (s *TLS, c C) {
	t.Helper()
	a, b := conns(t, "tcp")
	got := make(chan error)
	go func() {
		var err error
		c, err = dial(b, client)
		got <- err
	}()
	s, err := ServeTLS(a, server)
	require.NoError(t, <-got)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s, c
}

// goClient is crypto/tls's own client.
func goClient(nc net.Conn, cfg *tls.Config) (*tls.Conn, error) {
	c := tls.Client(nc, cfg)
	return c, c.Handshake()
}

func TestTLSIsAStream(t *testing.T) {
	versions(t, func(t *testing.T, server, client *tls.Config) {
		s, c := secure(t, server, client, ClientTLS)
		_, err := c.Write([]byte("option"))
		require.NoError(t, err)
		buf := make([]byte, 64)
		n, err := s.Read(buf)
		require.NoError(t, err)
		require.Equal(t, "option", string(buf[:n]))
		n, err = s.TryRead(buf)
		require.NoError(t, err)
		require.Zero(t, n)

		var q Queue
		copy(q.Header(3), "abc")
		q.Data([]byte("defg"))
		require.NoError(t, s.Flush(&q))
		require.True(t, q.Empty())
		require.EqualValues(t, 7, q.Written())
		require.NoError(t, c.WaitReadable())
		n, err = c.TryRead(buf)
		require.NoError(t, err)
		require.Equal(t, "abcdefg", string(buf[:n]))
	})
}
