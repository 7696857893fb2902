package crash

import (
	"context"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// outer bounds a wait that should be short.
const outer = 20 * time.Second

// A site is a client and a server with a proxy between them.
type site struct {
	t *testing.T
	*Proxy
	l   net.Listener
	ctx context.Context
}

func newSite(t *testing.T) *site {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p, err := New(l.Addr().String())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), outer)
	t.Cleanup(func() {
		cancel()
		require.NoError(t, p.Close())
		require.NoError(t, p.Close())
		_ = l.Close() // a test may have closed it already
	})
	return &site{t, p, l, ctx}
}

// connect returns both ends of a new link.
func (s *site) connect() (client, server *net.TCPConn, k *Link) {
	s.t.Helper()
	n := s.Links()
	client, server = s.dial(), s.accept()
	k, err := s.Link(s.ctx, n)
	require.NoError(s.t, err)
	return client, server, k
}

func (s *site) dial() *net.TCPConn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.Addr())
	require.NoError(s.t, err)
	return s.owned(c)
}

func (s *site) accept() *net.TCPConn {
	s.t.Helper()
	c, err := s.l.Accept()
	require.NoError(s.t, err)
	return s.owned(c)
}

func (s *site) owned(c net.Conn) *net.TCPConn {
	s.t.Helper()
	s.t.Cleanup(func() { _ = c.Close() })
	require.NoError(s.t, c.SetDeadline(time.Now().Add(outer)))
	return c.(*net.TCPConn)
}

func (s *site) send(c net.Conn, text string) {
	s.t.Helper()
	_, err := c.Write([]byte(text))
	require.NoError(s.t, err)
}

func (s *site) receive(c net.Conn, text string) {
	s.t.Helper()
	b := make([]byte, len(text))
	_, err := io.ReadFull(c, b)
	require.NoError(s.t, err)
	require.Equal(s.t, text, string(b))
}

// silent checks that c has nothing to read, not even the end of the stream.
func (s *site) silent(c net.Conn) {
	s.t.Helper()
	require.NoError(s.t, c.SetReadDeadline(time.Now().Add(time.Millisecond)))
	_, err := c.Read(make([]byte, 1))
	var timeout net.Error
	require.ErrorAs(s.t, err, &timeout)
	require.True(s.t, timeout.Timeout(), "%v", err)
	require.NoError(s.t, c.SetReadDeadline(time.Now().Add(outer)))
}

func (s *site) ended(c net.Conn, want error) {
	s.t.Helper()
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(s.t, err, want)
}

// refused checks that the proxy resets a client, while it connects or afterwards.
func (s *site) refused() {
	s.t.Helper()
	c, err := net.Dial("tcp", s.Addr())
	if err == nil {
		_, err = s.owned(c).Read(make([]byte, 1))
	}
	require.ErrorIs(s.t, err, syscall.ECONNRESET)
}

// faults are what a proxy does, each with what both ends see of it.
var faults = map[string]func(s *site, client, server *net.TCPConn, k *Link){
	"fair": func(s *site, client, server *net.TCPConn, k *Link) {
		s.send(client, "ping")
		s.receive(server, "ping")
		s.send(server, "pong")
		s.receive(client, "pong")
		require.NoError(s.t, client.CloseWrite())
		s.ended(server, io.EOF)
		s.send(server, "last")
		s.receive(client, "last")
		require.NoError(s.t, server.Close())
		s.ended(client, io.EOF)
		require.Equal(s.t, "ping", string(k.Recorded(ToServer)))
		require.Equal(s.t, "ponglast", string(k.Recorded(ToClient)))
	},
	"a reset goes through": func(s *site, client, server *net.TCPConn, _ *Link) {
		reset(client)
		s.ended(server, syscall.ECONNRESET)
	},
	"reset": func(s *site, client, server *net.TCPConn, _ *Link) {
		s.Reset()
		s.ended(client, syscall.ECONNRESET)
		s.ended(server, syscall.ECONNRESET)
	},
	"frozen one way": func(s *site, client, server *net.TCPConn, k *Link) {
		s.Set(ToServer, Weather{Frozen: true})
		s.send(client, "late")
		require.NoError(s.t, client.CloseWrite())
		require.NoError(s.t, k.Held(s.ctx, ToServer, 4))
		s.send(server, "answer")
		s.receive(client, "answer")
		s.silent(server)
		s.Set(ToServer, Weather{})
		s.receive(server, "late")
		s.ended(server, io.EOF)
	},
	"frozen both ways, later links too": func(s *site, client, server *net.TCPConn, k *Link) {
		s.Set(ToServer, Weather{Frozen: true})
		s.Set(ToClient, Weather{Frozen: true})
		other, otherServer, _ := s.connect()
		for _, c := range []net.Conn{client, server, other, otherServer} {
			s.send(c, "x")
		}
		require.NoError(s.t, k.Held(s.ctx, ToClient, 1))
		require.NoError(s.t, client.Close())
		s.silent(server)
		s.silent(otherServer)
		s.silent(other)
		s.Set(ToServer, Weather{})
		s.receive(server, "x")
		s.receive(otherServer, "x")
	},
	"delivered late": func(s *site, client, server *net.TCPConn, k *Link) {
		k.Set(ToServer, Weather{Frozen: true})
		s.send(client, "old")
		require.NoError(s.t, k.Held(s.ctx, ToServer, 3))
		k.DropClient()
		s.ended(client, syscall.ECONNRESET)
		again, againServer, _ := s.connect()
		s.send(again, "new")
		s.receive(againServer, "new")
		s.silent(server)
		k.Set(ToServer, Weather{})
		require.NoError(s.t, k.Delivered(s.ctx, ToServer))
		s.receive(server, "old")
		s.ended(server, io.EOF)
	},
	"delayed": func(s *site, client, server *net.TCPConn, _ *Link) {
		const delay = 20 * time.Millisecond
		s.Set(ToServer, Weather{Delay: delay})
		began := time.Now()
		s.send(client, "slow")
		s.receive(server, "slow")
		require.GreaterOrEqual(s.t, time.Since(began), delay)
	},
	"trickled": func(s *site, client, server *net.TCPConn, _ *Link) {
		const pause = time.Millisecond
		s.Set(ToServer, Weather{Piece: 2, Pause: pause})
		began := time.Now()
		s.send(client, "abcdefg")
		s.receive(server, "abcdefg")
		require.GreaterOrEqual(s.t, time.Since(began), 3*pause)
	},
	"damaged": func(s *site, client, server *net.TCPConn, k *Link) {
		s.Set(ToClient, Weather{Damage: func(b []byte) { b[0] ^= 1 }})
		s.send(server, "a")
		s.receive(client, "`")
		require.Equal(s.t, "a", string(k.Recorded(ToClient)), "as it was sent")
		s.send(client, "a")
		s.receive(server, "a")
	},
	"half closed": func(s *site, client, server *net.TCPConn, k *Link) {
		k.HalfClose(ToServer)
		s.ended(server, io.EOF)
		s.send(server, "still")
		s.receive(client, "still")
		s.send(client, "to nobody")
		require.NoError(s.t, server.Close())
		s.ended(client, io.EOF)
	},
	"refused": func(s *site, client, server *net.TCPConn, _ *Link) {
		s.Refuse(true)
		s.refused()
		s.send(client, "as before")
		s.receive(server, "as before")
		s.Refuse(false)
		s.connect()
		require.Equal(s.t, 2, s.Links())
	},
	"another server": func(s *site, _, _ *net.TCPConn, _ *Link) {
		require.NoError(s.t, s.l.Close())
		s.refused()
		var err error
		s.l, err = net.Listen("tcp", "127.0.0.1:0")
		require.NoError(s.t, err)
		defer func() { require.NoError(s.t, s.l.Close()) }()
		s.Serve(s.l.Addr().String())
		client, server, _ := s.connect()
		s.send(client, "hello")
		s.receive(server, "hello")
	},
	"closed while frozen and full": func(s *site, client, _ *net.TCPConn, k *Link) {
		s.Set(ToServer, Weather{Frozen: true})
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			_, _ = client.Write(make([]byte, maxHeld+(32<<20))) // until the reset
		}()
		require.NoError(s.t, k.Held(s.ctx, ToServer, maxHeld))
		require.NoError(s.t, s.Close())
		<-sent
	},
}

func TestProxy(t *testing.T) {
	for name, run := range faults {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.Record()
			client, server, k := s.connect()
			run(s, client, server, k)
		})
	}
}

func TestPlay(t *testing.T) {
	for name, c := range map[string]struct {
		reads  int // of the recording
		answer string
	}{
		"heard to the end": {reads: 1 << 20, answer: "enough"},
		"cut off":          {reads: 10},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			served := make(chan []byte, 1)
			go func() {
				server, err := s.l.Accept()
				if err != nil {
					served <- nil
					return
				}
				defer func() { _ = server.Close() }() // unread bytes make this a reset
				b, _ := io.ReadAll(io.LimitReader(server, int64(c.reads)))
				_, _ = io.WriteString(server, c.answer)
				served <- b
			}()
			recording := make([]byte, 1<<20)
			answer, err := Play(s.ctx, s.l.Addr().String(), recording)
			require.NoError(t, err)
			require.Equal(t, c.answer, string(answer))
			require.Len(t, <-served, c.reads)
		})
	}
	t.Run("the server is silent", func(t *testing.T) {
		s := newSite(t)
		ctx, cancel := context.WithCancel(s.ctx)
		go func() {
			if c, err := s.l.Accept(); err == nil {
				cancel()
				_, _ = io.ReadAll(c)
				_ = c.Close()
			}
		}()
		_, err := Play(ctx, s.l.Addr().String(), make([]byte, 1<<20))
		require.ErrorIs(t, err, context.Canceled)
	})
}
