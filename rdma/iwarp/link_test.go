package iwarp

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/rdma"
	"pmnbd/rdma/rdmatest"
)

// Both ends of a connection have one binding, and each connection has its own.
func TestChannel(t *testing.T) {
	p := New(Config{Encrypt: true})
	seen := make(map[[32]byte]bool)
	for range 3 {
		a, b := rdmatest.Connect(t, p, "127.0.0.1:0", rdmatest.Config{})
		one, other := a.Conn.Caps().Channel, b.Conn.Caps().Channel
		require.NotNil(t, one)
		require.Equal(t, one, other)
		require.Regexp(t, `^TLS 1\.3, TLS_\w+, X25519MLKEM768$`, one.Cipher)
		require.False(t, seen[one.Binding])
		seen[one.Binding] = true
		require.False(t, a.Conn.(*conn).crc || b.Conn.(*conn).crc, "the AEAD finds every change")
	}
	a, b := rdmatest.Connect(t, New(Config{}), "127.0.0.1:0", rdmatest.Config{})
	require.Nil(t, a.Conn.Caps().Channel)
	require.Nil(t, b.Conn.Caps().Channel)
	require.Empty(t, a.Conn.Caps().Channel.Bound())
}

// A lane's private data can be made for its channel, and the target sees both.
func TestPrivateForTheChannel(t *testing.T) {
	for _, encrypt := range []bool{true, false} {
		p := New(Config{Encrypt: encrypt})
		l, err := p.Listen(t.Context(), "127.0.0.1:0")
		require.NoError(t, err)
		d, err := p.OpenDomain(t.Context(), l.Addr())
		require.NoError(t, err)
		var made *rdma.Channel
		failed := make(chan error, 1)
		go func() {
			_, err := d.Dial(t.Context(), l.Addr(), rdma.ConnConfig{
				PrivateData: []byte("clear"),
				Private:     func(c *rdma.Channel) []byte { made = c; return c.Binding[:] },
			}, nil)
			failed <- err
		}()
		r, err := l.Accept()
		require.NoError(t, err)
		private, channel := string(r.PrivateData()), r.Channel()
		require.NoError(t, r.Reject(nil))
		require.ErrorContains(t, <-failed, "refused")
		if encrypt {
			require.Equal(t, made, channel)
			require.Equal(t, string(channel.Binding[:]), private)
		} else {
			require.Nil(t, made)
			require.Nil(t, channel)
			require.Equal(t, "clear", private)
		}
		require.NoError(t, d.Close())
		require.NoError(t, l.Close())
	}
}

// listening returns the address of a listener that reports whom it refused.
func listening(t *testing.T, cfg Config) (addr string, refused chan error) {
	refused = make(chan error, 1)
	cfg.Refused = func(_ string, err error) { refused <- err }
	l, err := New(cfg).Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l.Addr(), refused
}

// Neither end falls back to what the other one speaks, and each says what may be wrong.
func TestNoFallback(t *testing.T) {
	for name, c := range map[string]struct {
		listens, dials bool
		says, told     string
	}{
		"a clear peer at iwarps":     {true, false, "hung up instead of answering, as one at iwarps:// does", "first record does not look like a TLS handshake"},
		"an encrypted peer at iwarp": {false, true, "the peer does not speak TLS: does it listen at iwarps://?", "not an MPA start-up frame"},
	} {
		t.Run(name, func(t *testing.T) {
			addr, refused := listening(t, Config{Encrypt: c.listens})
			d, err := New(Config{Encrypt: c.dials}).OpenDomain(t.Context(), addr)
			require.NoError(t, err)
			_, err = d.Dial(t.Context(), addr, rdma.ConnConfig{}, nil)
			require.ErrorIs(t, err, rdma.ErrLost)
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, <-refused, c.told)
			require.NoError(t, d.Close())
		})
	}
}

// What somebody in between could want of TLS, a listener does not do, and neither does an
// initiator.
func TestTLSIsNotNegotiable(t *testing.T) {
	weak := map[string]func(*tls.Config){
		"TLS 1.2": func(c *tls.Config) {
			c.MinVersion, c.MaxVersion, c.CurvePreferences = tls.VersionTLS12, tls.VersionTLS12, nil
		},
		"no hybrid key exchange":  func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.X25519} },
		"the curves of a browser": func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.CurveP256, tls.CurveP384} },
	}
	for name, weaken := range weak {
		t.Run(name+", at a listener", func(t *testing.T) {
			addr, refused := listening(t, Config{Encrypt: true})
			nc, err := net.Dial("tcp", addr)
			require.NoError(t, err)
			cfg := tlsConfig()
			weaken(cfg)
			require.Error(t, tls.Client(nc, cfg).Handshake())
			require.ErrorContains(t, <-refused, "TLS handshake")
			require.NoError(t, nc.Close())
		})
		t.Run(name+", at an initiator", func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			served := make(chan error, 1)
			go func() {
				nc, err := l.Accept()
				if err != nil {
					served <- err
					return
				}
				cfg, err := serverTLS()
				if err == nil {
					weaken(cfg)
					err = tls.Server(nc, cfg).Handshake()
				}
				_ = nc.Close()
				served <- err
			}()
			d, err := New(Config{Encrypt: true}).OpenDomain(t.Context(), l.Addr().String())
			require.NoError(t, err)
			_, err = d.Dial(t.Context(), l.Addr().String(), rdma.ConnConfig{}, nil)
			require.ErrorIs(t, err, rdma.ErrLost)
			require.Error(t, <-served)
			require.NoError(t, d.Close())
			require.NoError(t, l.Close())
		})
	}
}

// tap copies what passes a proxy, each way.
type tap struct{ up, down strings.Builder }

// relay carries one connection between a listener of its own and addr, and tells what passed.
func relay(t *testing.T, addr string) (at string, done chan *tap) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done = make(chan *tap, 1)
	go func() {
		defer func() { _ = l.Close() }()
		in, err := l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", addr)
		if err != nil {
			_ = in.Close()
			return
		}
		var seen tap
		back := make(chan struct{})
		go func() {
			_, _ = io.Copy(io.MultiWriter(in, &seen.down), out)
			_ = in.Close()
			close(back)
		}()
		_, _ = io.Copy(io.MultiWriter(out, &seen.up), in)
		_ = out.Close()
		<-back
		done <- &seen
	}()
	return l.Addr().String(), done
}

// Who sees the wire sees TLS 1.3: no start-up frame, no data, no private data. What was captured
// gets at nothing on another connection.
func TestNothingIsClear(t *testing.T) {
	secret := strings.Repeat("secret!!", 8)
	carried := func(t *testing.T, encrypt bool) (*tap, string) {
		p := New(Config{Encrypt: encrypt})
		l, err := p.Listen(t.Context(), "127.0.0.1:0")
		require.NoError(t, err)
		at, done := relay(t, l.Addr())
		d, err := p.OpenDomain(t.Context(), at)
		require.NoError(t, err)
		failed := make(chan error, 1)
		go func() {
			_, err := d.Dial(t.Context(), at, rdma.ConnConfig{PrivateData: []byte(secret[:rdma.MaxPrivateData])}, nil)
			failed <- err
		}()
		r, err := l.Accept()
		require.NoError(t, err)
		require.NoError(t, r.Reject([]byte(secret)))
		require.ErrorContains(t, <-failed, "secret!!")
		require.NoError(t, d.Close())
		seen := <-done
		require.NoError(t, l.Close())
		return seen, l.Addr()
	}
	clear, _ := carried(t, false)
	require.Contains(t, clear.up.String()+clear.down.String(), requestKey)
	require.Contains(t, clear.up.String(), "secret!!", "the test sees what is clear")
	seen, _ := carried(t, true)
	all := seen.up.String() + seen.down.String()
	for _, word := range []string{"secret", "MPA ID", "X25519", "localhost"} {
		require.NotContains(t, all, word)
	}
	require.Equal(t, "\x16\x03\x01", seen.up.String()[:3], "a ClientHello")

	addr, refused := listening(t, Config{Encrypt: true})
	nc, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	_, err = nc.Write([]byte(seen.up.String()))
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, nc) // until the listener hangs up
	require.ErrorContains(t, <-refused, "TLS handshake")
	require.NoError(t, nc.Close())
}
