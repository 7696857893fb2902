package sockio

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
			require.NoError(t, f.nc.(*Socket).CloseWrite())
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
		err  error
		text string // where crypto/tls has no error to compare with
	}{
		{"silence", func(net.Conn) {}, os.ErrDeadlineExceeded, ""},
		{"half a record", func(nc net.Conn) { _, _ = nc.Write([]byte{typeHandshake, 3, 1, 0, 200, 1}) }, os.ErrDeadlineExceeded, ""},
		{"a plain client", func(nc net.Conn) { _, _ = nc.Write([]byte("IHAVEOPT\x00\x00\x00\x07")) }, nil, "does not look like a TLS handshake"},
		{"hang-up", func(nc net.Conn) { _ = nc.Close() }, io.EOF, ""},
		{"TLS 1.1", func(nc net.Conn) {
			old := client.Clone()
			old.MinVersion, old.MaxVersion = tls.VersionTLS11, tls.VersionTLS11
			_, _ = goClient(nc, old)
		}, nil, "unsupported version"},
		{"a client that does not trust us", func(nc net.Conn) { _, _ = goClient(nc, &tls.Config{ServerName: "server"}) }, nil, "bad certificate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := conns(t, "tcp")
			var wg sync.WaitGroup
			wg.Go(func() { c.dial(b) })
			defer wg.Wait()
			deadline := time.Now().Add(10 * time.Second)
			if errors.Is(c.err, os.ErrDeadlineExceeded) {
				deadline = time.Now().Add(50 * time.Millisecond)
			}
			require.NoError(t, a.SetDeadline(deadline))
			_, err := ServeTLS(a, server)
			require.ErrorContains(t, err, "TLS handshake: ")
			if c.err != nil {
				require.ErrorIs(t, err, c.err)
			}
			require.ErrorContains(t, err, c.text)
			require.NoError(t, a.Close())
		})
	}
	a, b := net.Pipe()
	defer func() { _, _ = a.Close(), b.Close() }()
	_, err := ServeTLS(a, server)
	require.ErrorContains(t, err, "not a socket")
}

func TestTLSWriteEndsAtTheDeadline(t *testing.T) {
	server, client := identity()
	s, c := secure(t, "tcp", server, client, goClient)
	require.NoError(t, s.sock.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
	n, err := s.Write(make([]byte, 64<<20))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Positive(t, n)
	require.NoError(t, s.Close())
	got, _ := io.Copy(io.Discard, c) // the socket may or may not have taken the close_notify
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
	for !s.HungUp() { // the FIN may still be on its way
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
