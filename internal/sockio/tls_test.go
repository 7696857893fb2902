package sockio

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// identity makes the configuration of a server with a self-signed certificate, and that of
// clients that trust it.
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
	pair := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return &tls.Config{Certificates: []tls.Certificate{pair}, SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true},
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

// conns makes a connected pair of sockets, which close with the test.
func conns(t testing.TB, network string) (a, b net.Conn) {
	sa, sb := pair(t, network)
	return sa, sb
}

// secure makes a TLS server and, with dial, its client.
func secure[C any](t testing.TB, network string, server, client *tls.Config, dial func(net.Conn, *tls.Config) (C, error)) (s *TLS, c C) {
	t.Helper()
	a, b := conns(t, network)
	for _, nc := range []net.Conn{a, b} { // so that a test that hangs fails
		require.NoError(t, nc.SetDeadline(time.Now().Add(time.Minute)))
	}
	got := make(chan error)
	go func() {
		var err error
		c, err = dial(b, client)
		got <- err
	}()
	s, err := ServeTLS(a, server)
	require.NoError(t, <-got)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, s.Close(), "idempotent")
	})
	return s, c
}

// stuff flushes q until the socket is full.
func stuff(t *testing.T, s *TLS, q *Queue) {
	q.Data(make([]byte, 64<<20))
	for last := uint64(1); last != q.Written(); {
		last = q.Written()
		require.NoError(t, s.Flush(q))
	}
	require.False(t, q.Empty())
}

// goClient makes a client of crypto/tls.
func goClient(nc net.Conn, cfg *tls.Config) (*tls.Conn, error) {
	c := tls.Client(nc, cfg)
	return c, c.Handshake()
}

// ourClient makes a TLS at the client's end, the counterpart of ServeTLS.
func ourClient(nc net.Conn, cfg *tls.Config) (*TLS, error) { return newTLS(nc, cfg, tls.Client) }

func TestTLSIsAStream(t *testing.T) {
	versions(t, func(t *testing.T, server, client *tls.Config) {
		s, c := secure(t, "tcp", server, client, ourClient)
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

// Both directions at once carry far more than the socket holds, to a peer that reads slowly.
func TestTLSFlowsBothWays(t *testing.T) {
	versions(t, func(t *testing.T, server, client *tls.Config) {
		s, c := secure(t, "tcp", server, client, goClient)
		up, down := make([]byte, 4<<20), make([]byte, 6<<20)
		_, _ = rand.Read(up)
		_, _ = rand.Read(down)
		var gotUp, gotDown []byte
		var wg sync.WaitGroup
		wg.Go(func() { // the reader
			buf := make([]byte, 100<<10)
			for len(gotUp) < len(up) {
				n, err := s.TryRead(buf)
				if err != nil {
					return
				}
				if n == 0 && s.WaitReadable() != nil {
					return
				}
				gotUp = append(gotUp, buf[:n]...)
			}
		})
		wg.Go(func() { // the completer
			var q Queue
			for b := down; len(b) > 0 || !q.Empty(); {
				for q.Queued()-q.Written() < 64<<10 && len(b) > 0 {
					n := min(len(b), 5000)
					copy(q.Header(16), b)
					if n > 16 {
						q.Data(b[16:n])
					}
					b = b[n:]
				}
				if s.Flush(&q) != nil {
					return
				}
				if !q.Empty() && s.WaitWritable() != nil {
					return
				}
			}
		})
		wg.Go(func() { _, _ = c.Write(up) })
		buf := make([]byte, 3000)
		for len(gotDown) < len(down) {
			n, err := c.Read(buf)
			require.NoError(t, err)
			gotDown = append(gotDown, buf[:n]...)
		}
		wg.Wait()
		require.True(t, bytes.Equal(up, gotUp))
		require.True(t, bytes.Equal(down, gotDown))
	})
}

// What Written counts is in the socket. The peer gets it even if the server's end is cut
// before it writes anything else.
func TestTLSWrittenIsInTheSocket(t *testing.T) {
	server, client := identity()
	s, c := secure(t, "tcp", server, client, goClient)
	var q Queue
	stuff(t, s, &q)
	written := q.Written()
	require.False(t, q.Empty())
	require.NotZero(t, written)
	require.NoError(t, s.sock.Close())
	got, err := io.Copy(io.Discard, c)
	if err != nil {
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "cut within a record")
	}
	require.EqualValues(t, written, got)
}

// After Reset nothing is owed, even if half of a record is sent.
func TestTLSReset(t *testing.T) {
	server, client := identity()
	s, _ := secure(t, "tcp", server, client, goClient)
	var q Queue
	stuff(t, s, &q)
	q.Reset()
	require.NoError(t, s.Flush(&q))
	q.Data(make([]byte, 1))
	require.NoError(t, s.Flush(&q))
	require.False(t, q.Empty(), "the socket is still full")
}

func TestTLSCallsPerFlush(t *testing.T) {
	server, client := identity()
	s, c := secure(t, "tcp", server, client, ourClient)
	var q Queue
	data, buf := make([]byte, 3<<10), make([]byte, 64<<10)
	for range 10 {
		before := s.carrier.out.Calls()
		for range 5 {
			q.Header(16)
			q.Data(data)
		}
		require.NoError(t, s.Flush(&q))
		require.True(t, q.Empty())
		require.EqualValues(t, 1, s.carrier.out.Calls()-before, "one record, one sendmsg")
		for n := 0; n < 5*(16+len(data)); {
			m, err := c.Read(buf)
			require.NoError(t, err)
			n += m
		}
	}
}

// Several records leave in one call, and the peer gets them as they were queued, whether they are
// in one place or in many.
func TestTLSRecordsPerCall(t *testing.T) {
	server, client := identity()
	s, c := secure(t, "tcp", server, client, ourClient)
	data, got := make([]byte, 8*MaxRecord), make([]byte, 8*MaxRecord)
	_, _ = rand.Read(data)
	var q Queue
	for name, part := range map[string]int{"one place": len(data), "parts": 5000, "records": MaxRecord} {
		t.Run(name, func(t *testing.T) {
			for at := 0; at < len(data); at += part {
				q.Data(bytes.Clone(data[at:min(at+part, len(data))]))
			}
			before := s.carrier.out.Calls()
			require.NoError(t, s.Flush(&q))
			require.True(t, q.Empty())
			require.EqualValues(t, 2, s.carrier.out.Calls()-before, "four records each")
			for n := 0; n < len(got); {
				m, err := c.Read(got[n:])
				require.NoError(t, err)
				n += m
			}
			require.True(t, bytes.Equal(data, got))
		})
	}
}

// A record that arrives byte by byte cannot be read until it is whole. Deadlines in between
// do no harm.
func TestTLSPartialRecords(t *testing.T) {
	s, f := forge(t)
	for _, content := range []string{"a", "whole"} {
		rec := f.record(typeData, []byte(content))
		buf := make([]byte, 64)
		for i := range rec[1:] {
			f.send(rec[i : i+1])
			require.NoError(t, s.sock.WaitReadable())
			n, err := s.TryRead(buf)
			require.NoError(t, err)
			require.Zero(t, n)
			require.NoError(t, s.sock.SetReadDeadline(time.Unix(1, 0)))
			_, err = s.Read(buf)
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.ErrorIs(t, s.WaitReadable(), os.ErrDeadlineExceeded)
			require.NoError(t, s.sock.SetReadDeadline(time.Time{}))
		}
		f.send(rec[len(rec)-1:])
		require.NoError(t, s.WaitReadable())
		require.NoError(t, s.WaitReadable(), "it is still there")
		n, err := s.TryRead(nil)
		require.NoError(t, err)
		require.Zero(t, n)
		n, err = s.TryRead(buf)
		require.NoError(t, err)
		require.Equal(t, content, string(buf[:n]))
	}
}

// One read takes all the records that are there, whatever their sizes.
func TestTLSReadFills(t *testing.T) {
	for name, read := range map[string]func(s *TLS, p []byte) (int, error){"Read": (*TLS).Read, "TryRead": (*TLS).TryRead} {
		t.Run(name, func(t *testing.T) {
			s, f := forge(t)
			big := bytes.Repeat([]byte("b"), MaxRecord)
			f.send(f.record(typeData, []byte("one")), f.keyUpdate(), f.record(typeData, big), f.record(typeData, nil), f.record(typeData, big))
			for _, waits := range []bool{true, false} { // WaitReadable takes a byte
				if waits {
					require.NoError(t, s.WaitReadable())
				}
				p := make([]byte, 1)
				n, err := read(s, p)
				require.NoError(t, err)
				require.Equal(t, 1, n)
			}
			p := make([]byte, 3*MaxRecord)
			n, err := read(s, p)
			require.NoError(t, err)
			require.Equal(t, append([]byte("e"), append(big, big...)...), p[:n])
			n, err = s.TryRead(p)
			require.NoError(t, err)
			require.Zero(t, n)
		})
	}
}

// After a short read(2) has shown that the socket is empty, the same call does not read it
// again.
func TestTLSOneReadPerCall(t *testing.T) {
	s, f := forge(t)
	p := make([]byte, 64)
	f.send(f.record(typeData, []byte("one")))
	n, err := s.Read(p)
	require.NoError(t, err)
	require.Equal(t, "one", string(p[:n]))
	f.send(f.record(typeData, []byte("two")))
	n, err = s.read(p, false)
	require.NoError(t, err)
	require.Zero(t, n, "as if that call still went on")
	n, err = s.TryRead(p)
	require.NoError(t, err)
	require.Equal(t, "two", string(p[:n]))
}
