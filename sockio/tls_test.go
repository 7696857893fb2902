package sockio

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
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
	pair := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return &tls.Config{Certificates: []tls.Certificate{pair}, SessionTicketsDisabled: true},
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
func secure[C any](t testing.TB, network string, server, client *tls.Config, dial func(net.Conn, *tls.Config) (C, error)) (s *TLS, c C) {
	t.Helper()
	a, b := conns(t, network)
	for _, nc := range []net.Conn{a, b} { // what hangs is to fail
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

// stuff flushes q until the socket takes no more.
func stuff(t *testing.T, s *TLS, q *Queue) {
	q.Data(make([]byte, 64<<20))
	for last := uint64(1); last != q.Written(); {
		last = q.Written()
		require.NoError(t, s.Flush(q))
	}
	require.False(t, q.Empty())
}

// goClient is crypto/tls's own client.
func goClient(nc net.Conn, cfg *tls.Config) (*tls.Conn, error) {
	c := tls.Client(nc, cfg)
	return c, c.Handshake()
}

func TestTLSIsAStream(t *testing.T) {
	versions(t, func(t *testing.T, server, client *tls.Config) {
		s, c := secure(t, "tcp", server, client, ClientTLS)
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

// Both ways at once, far more than the socket holds, with a peer that reads slowly.
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

// What Written counts is in the socket: the peer gets it, though the server's end
// is cut before anything else can be written.
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

// After Reset nothing is owed, though a record is half sent.
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
	s, c := secure(t, "tcp", server, client, ClientTLS)
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
		require.EqualValues(t, 1, s.carrier.out.Calls()-before, "one record, one writev")
		for n := 0; n < 5*(16+len(data)); {
			m, err := c.Read(buf)
			require.NoError(t, err)
			n += m
		}
	}
}

// A record that arrives byte by byte is nothing until it is whole. Deadlines in
// between do no harm.
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
			require.NoError(t, s.sock.Conn().SetReadDeadline(time.Unix(1, 0)))
			_, err = s.Read(buf)
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.ErrorIs(t, s.WaitReadable(), os.ErrDeadlineExceeded)
			require.NoError(t, s.sock.Conn().SetReadDeadline(time.Time{}))
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

// Several records that are there are one read, whatever their sizes.
func TestTLSReadFills(t *testing.T) {
	for name, read := range map[string]func(s *TLS, p []byte) (int, error){"Read": (*TLS).Read, "TryRead": (*TLS).TryRead} {
		t.Run(name, func(t *testing.T) {
			s, f := forge(t)
			big := bytes.Repeat([]byte("b"), maxRecord)
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
			p := make([]byte, 3*maxRecord)
			n, err := read(s, p)
			require.NoError(t, err)
			require.Equal(t, append([]byte("e"), append(big, big...)...), p[:n])
			n, err = s.TryRead(p)
			require.NoError(t, err)
			require.Zero(t, n)
		})
	}
}

// What a short read(2) showed to be drained is not read again in the same call.
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

// The reader handles KeyUpdates while another goroutine flushes.
func TestTLSKeyUpdates(t *testing.T) {
	s, f := forge(t)
	const rounds = 12 // crypto/tls reads 16 in a row, no more
	data := make([]byte, 2<<20)
	_, _ = rand.Read(data)
	var wg sync.WaitGroup
	wg.Go(func() {
		p := make([]byte, 1)
		for range rounds {
			if s.WaitReadable() != nil {
				return
			}
			if n, err := s.TryRead(p); n != 1 || err != nil {
				return
			}
		}
	})
	var q Queue
	wg.Go(func() {
		q.Data(data)
		for !q.Empty() {
			if s.Flush(&q) != nil || s.WaitWritable() != nil {
				return
			}
		}
	})
	wg.Go(func() {
		for range rounds {
			_, _ = f.nc.Write(append(f.keyUpdate(), f.record(typeData, []byte("x"))...))
		}
	})
	got := make([]byte, len(data))
	_, err := io.ReadFull(f.reader, got)
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))
	wg.Wait()
	require.EqualValues(t, 0, f.seq-1, "all was sent")

	// The answers that no data followed leave with the next data.
	f.send(f.keyUpdate(), f.record(typeData, []byte("y")))
	require.NoError(t, s.WaitReadable())
	copy(q.Header(4), "more")
	require.NoError(t, s.Flush(&q))
	_, err = io.ReadFull(f.reader, got[:4])
	require.NoError(t, err)
	require.Equal(t, "more", string(got[:4]))
}

// A peer that asks for KeyUpdates and reads nothing neither blocks the reader nor
// fills memory.
func TestTLSKeyUpdateFlood(t *testing.T) {
	for name, full := range map[string]bool{"nothing to flush": false, "behind a full socket": true} {
		t.Run(name, func(t *testing.T) {
			s, f := forge(t)
			var q Queue
			if full {
				stuff(t, s, &q)
			}
			p := make([]byte, 16)
			var err error
			rounds := 0
			for ; err == nil && rounds < maxUnsent; rounds++ {
				f.send(f.keyUpdate(), f.record(typeData, []byte("x")))
				_, err = s.Read(p)
			}
			require.ErrorIs(t, err, errUnsent)
			require.Greater(t, rounds, 100)
			require.Equal(t, maxUnsent, cap(s.carrier.buf))
			_, err = s.TryRead(p)
			require.ErrorIs(t, err, errUnsent)
		})
	}
}

func TestTLSEnds(t *testing.T) {
	rec := func(f *forger) []byte { return f.record(typeData, []byte("data")) }
	notify := func(f *forger) []byte { return f.record(21, []byte{1, 0}) }
	for _, c := range []struct {
		name  string
		last  func(f *forger) []byte
		data  string
		err   error
		text  string
		alert string
	}{
		{"close_notify", func(f *forger) []byte { return append(rec(f), notify(f)...) }, "data", io.EOF, "", ""},
		{"between records", rec, "data", io.EOF, "", ""},
		{"within a header", func(f *forger) []byte { return append(rec(f), rec(f)[:3]...) }, "data", io.ErrUnexpectedEOF, "", ""},
		{"within a record", func(f *forger) []byte { return append(rec(f), rec(f)[:20]...) }, "data", io.ErrUnexpectedEOF, "", ""},
		{"within the first record", func(f *forger) []byte { return rec(f)[:20] }, "", io.ErrUnexpectedEOF, "", ""},
		{"within a close_notify", func(f *forger) []byte { return append(rec(f), notify(f)[:9]...) }, "data", io.ErrUnexpectedEOF, "", ""},
		{"a flipped bit", func(f *forger) []byte { b := append(rec(f), rec(f)...); b[len(b)-1] ^= 1; return b }, "data", nil, "bad record MAC", "bad record MAC"},
		{"plain text", func(f *forger) []byte { return append(rec(f), "NBDMAGIC"...) }, "data", nil, "received record with version", "protocol version"},
		{"too large", func(f *forger) []byte { return append(rec(f), typeData, 3, 3, 0xff, 0xff) }, "data", nil, "oversized record", "record overflow"},
		{"a record twice", func(f *forger) []byte { b := rec(f); return append(b, b...) }, "data", nil, "bad record MAC", "bad record MAC"},
		{"another handshake", func(f *forger) []byte { return append(rec(f), f.record(typeHandshake, []byte{1, 0, 0, 0})...) }, "data", nil, "", "error decoding message"},
		{"KeyUpdates alone", func(f *forger) []byte {
			b := rec(f)
			for range 20 {
				b = append(b, f.keyUpdate()...)
			}
			return b
		}, "data", nil, "too many non-advancing records", "unexpected message"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, f := forge(t)
			f.send(c.last(f))
			require.NoError(t, f.nc.(*net.UnixConn).CloseWrite())
			require.NoError(t, s.WaitReadable())
			got := []byte{}
			buf := make([]byte, 64)
			var err error
			for err == nil {
				var n int
				n, err = s.Read(buf)
				got = append(got, buf[:n]...)
			}
			require.Equal(t, c.data, string(got))
			if c.err != nil {
				require.ErrorIs(t, err, c.err)
			}
			require.ErrorContains(t, err, c.text)
			_, again := s.TryRead(buf)
			require.Equal(t, err, again, "the first error stays")
			require.NoError(t, s.WaitReadable(), "and need not be waited for")
			require.NoError(t, s.Close())
			_, err = io.ReadAll(f.reader)
			if c.alert == "" {
				require.NoError(t, err, "close_notify")
			} else {
				require.ErrorContains(t, err, c.alert)
			}
		})
	}
}

func TestTLSHandshakeFails(t *testing.T) {
	server, client := identity()
	for _, c := range []struct {
		name string
		dial func(nc net.Conn)
		err  string
	}{
		{"silence", func(net.Conn) {}, "i/o timeout"},
		{"half a record", func(nc net.Conn) { _, _ = nc.Write([]byte{typeHandshake, 3, 1, 0, 200, 1}) }, "i/o timeout"},
		{"a plain client", func(nc net.Conn) { _, _ = nc.Write([]byte("IHAVEOPT\x00\x00\x00\x07")) }, "does not look like a TLS handshake"},
		{"hang-up", func(nc net.Conn) { _ = nc.Close() }, "EOF"},
		{"TLS 1.1", func(nc net.Conn) {
			old := client.Clone()
			old.MinVersion, old.MaxVersion = tls.VersionTLS11, tls.VersionTLS11
			_, _ = goClient(nc, old)
		}, "unsupported version"},
		{"a client that does not trust us", func(nc net.Conn) { _, _ = goClient(nc, &tls.Config{ServerName: "server"}) }, "bad certificate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := conns(t, "tcp")
			var wg sync.WaitGroup
			wg.Go(func() { c.dial(b) })
			defer wg.Wait()
			deadline := time.Now().Add(10 * time.Second)
			if c.err == "i/o timeout" {
				deadline = time.Now().Add(50 * time.Millisecond)
			}
			require.NoError(t, a.SetDeadline(deadline))
			_, err := ServeTLS(a, server)
			require.ErrorContains(t, err, "TLS handshake: ")
			require.ErrorContains(t, err, c.err)
			require.NoError(t, a.Close())
		})
	}
	a, b := net.Pipe()
	defer func() { _, _ = a.Close(), b.Close() }()
	_, err := ServeTLS(a, server)
	require.ErrorContains(t, err, "no socket")
}

func TestTLSWriteEndsAtTheDeadline(t *testing.T) {
	server, client := identity()
	s, c := secure(t, "tcp", server, client, goClient)
	require.NoError(t, s.sock.Conn().SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
	n, err := s.Write(make([]byte, 64<<20))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Positive(t, n)
	require.NoError(t, s.Close())
	got, _ := io.Copy(io.Discard, c) // whether the socket took the close_notify is its business
	require.LessOrEqual(t, got, int64(n))
}

func TestTLSHungUp(t *testing.T) {
	server, client := identity()
	s, c := secure(t, "tcp", server, client, goClient)
	require.NoError(t, c.CloseWrite())
	_, err := s.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.False(t, s.HungUp(), "close_notify leaves the socket open")
	require.NoError(t, c.NetConn().Close())
	for !s.HungUp() { // the FIN is on its way over lo
	}
	require.NoError(t, s.Close())
	require.True(t, s.HungUp())
}

func TestTLSCloseSaysSo(t *testing.T) {
	s, f := forge(t)
	require.NoError(t, s.Close())
	raw, err := io.ReadAll(f.nc)
	require.NoError(t, err)
	require.Len(t, raw, 5+2+1+16, "an alert: header, level and description, type, tag")
}

func TestTLSCloseWakes(t *testing.T) {
	server, client := identity()
	for name, call := range map[string]func(s *TLS) error{
		"Read":         func(s *TLS) error { _, err := s.Read(make([]byte, 1)); return err },
		"WaitReadable": func(s *TLS) error { _ = s.WaitReadable(); _, err := s.TryRead(make([]byte, 1)); return err },
		"WaitWritable": (*TLS).WaitWritable,
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := secure(t, "tcp", server, client, goClient)
			stuff(t, s, new(Queue))
			started, done := make(chan struct{}), make(chan error)
			go func() { close(started); done <- call(s) }()
			<-started
			require.NoError(t, s.Close())
			require.ErrorIs(t, <-done, net.ErrClosed)
			require.ErrorIs(t, call(s), net.ErrClosed, "after Close")
		})
	}
}

// OpenSSL's client updates its keys (TLS 1.3) and wants to renegotiate (TLS 1.2).
func TestTLSWithOpenSSL(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not installed")
	}
	server, _ := identity()
	ca := t.TempDir() + "/ca.pem"
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificates[0].Certificate[0]})
	require.NoError(t, os.WriteFile(ca, block, 0o600))
	for _, c := range []struct {
		version, command, said string
		ok                     bool
	}{
		{"-tls1_3", "K\n", "KEYUPDATE\n", true},
		{"-tls1_3", "k\n", "KEYUPDATE\n", true},
		{"-tls1_2", "R\n", "RENEGOTIATING\n", false},
	} {
		t.Run(c.version+c.command[:1], func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer func() { _ = l.Close() }()
			cmd := exec.Command(openssl, "s_client", "-connect", l.Addr().String(), c.version, "-CAfile", ca, "-verify_return_error")
			in, err := cmd.StdinPipe()
			require.NoError(t, err)
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			said, err := cmd.StderrPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			defer func() { _ = cmd.Wait() }()
			defer func() { _ = cmd.Process.Kill() }()
			nc, err := l.Accept()
			require.NoError(t, err)
			defer func() { _ = nc.Close() }()
			require.NoError(t, nc.SetDeadline(time.Now().Add(30*time.Second)))
			s, err := ServeTLS(nc, server)
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()) }()

			_, err = io.WriteString(in, c.command)
			require.NoError(t, err)
			for r := bufio.NewReader(said); ; {
				line, err := r.ReadString('\n')
				require.NoError(t, err)
				if line == c.said {
					break
				}
			}
			if !c.ok {
				_, err = s.Read(make([]byte, 1))
				require.Error(t, err)
				return
			}
			_, err = io.WriteString(in, "hello\n")
			require.NoError(t, err)
			buf := make([]byte, 64)
			require.NoError(t, s.WaitReadable())
			n, err := s.TryRead(buf)
			require.NoError(t, err)
			require.Equal(t, "hello\n", string(buf[:n]))
			var q Queue
			copy(q.Header(8), "welcome\n")
			require.NoError(t, s.Flush(&q))
			require.NoError(t, s.Close())
			all, err := io.ReadAll(out)
			require.NoError(t, err)
			require.Contains(t, string(all), "welcome\n")
		})
	}
}
