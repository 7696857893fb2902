package nbd

import (
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"pmnbd/internal/logtest"
	"pmnbd/nbd/wire"
)

func TestMaxConnections(t *testing.T) {
	f := serveWith(t, Config{MaxConnections: 2}, newMem(t, 1<<20))
	a, b := f.client(), f.client()
	closed(t, f.raw()) // a third
	write(t, a, 0, []byte("x"))
	write(t, b, 0, []byte("y"))
}

// TestSilentClients: clients that say nothing keep nobody out. The server closes the oldest
// of them first, and never a connection that has entered.
func TestSilentClients(t *testing.T) {
	f := serveWith(t, Config{MaxConnections: 3, HandshakeTimeout: time.Hour}, newMem(t, 1<<20))
	greeted := func() net.Conn {
		nc := f.raw()
		readN(t, nc, wire.GreetingSize)
		return nc
	}
	entered := f.client()
	first, second := greeted(), greeted()
	_, err := second.Write(wire.AppendClientFlags(nil, fixed))
	require.NoError(t, err)
	third := greeted()
	closed(t, first)
	require.Equal(t, ack, last(t, second, wire.OptGo, wire.AppendInfoRequest(nil, "disk")))
	f.client()
	closed(t, third)
	closed(t, f.raw()) // all three have entered
	write(t, entered, 0, []byte("x"))
}

// TestSilentClientsOfOneHost: silent clients of one host make room for each other, though a
// client of another host has been negotiating for longer.
func TestSilentClientsOfOneHost(t *testing.T) {
	f := serveWith(t, Config{MaxConnections: 3, HandshakeTimeout: time.Hour}, newMem(t, 1<<20))
	f.addr = f.listen("tcp", "127.0.0.1:0")
	greeted := func(host string) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
		nc, err := d.Dial("tcp", f.addr.String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = nc.Close() })
		require.NoError(t, nc.SetDeadline(time.Now().Add(patience)))
		readN(t, nc, wire.GreetingSize)
		return nc
	}
	slow := greeted("127.0.0.2")
	_, err := slow.Write(wire.AppendClientFlags(nil, fixed))
	require.NoError(t, err)
	silent := []net.Conn{greeted("127.0.0.1"), greeted("127.0.0.1")}
	for range 10 {
		silent = append(silent, greeted("127.0.0.1"))
		closed(t, silent[0])
		silent = silent[1:]
	}
	require.Equal(t, ack, last(t, slow, wire.OptGo, wire.AppendInfoRequest(nil, "disk")))
}

func TestHostOf(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.7:1":            "192.0.2.7",
		"[::ffff:192.0.2.7]:1":   "192.0.2.7",
		"[2001:db8:1:2:3::4]:1":  "2001:db8:1:2::",
		"[2001:db8:1:2:ff::]:99": "2001:db8:1:2::",
	} {
		a := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))
		require.Equal(t, want, hostOf(addressed{addr: a}).String(), addr)
	}
	require.Zero(t, hostOf(addressed{addr: &net.UnixAddr{Name: "@"}}))
}

// An addressed connection has a client at an address that the test chooses.
type addressed struct {
	net.Conn
	addr net.Addr
}

func (c addressed) RemoteAddr() net.Addr { return c.addr }

// TestLogIsBounded: clients can break the rules as often as they like, and the log stays
// short.
func TestLogIsBounded(t *testing.T) {
	core, logged := observer.New(zap.InfoLevel)
	f := serveWith(t, Config{Log: logtest.On(core)}, newMem(t, 1<<20))
	for range 3 * samples {
		nc := f.raw()
		greet(t, nc, math.MaxUint32)
		closed(t, nc)
		nc = f.enterRaw()
		_, err := nc.Write([]byte("garbage"))
		require.NoError(t, err)
		closed(t, nc)
	}
	for _, kind := range []string{"client entered", "client left", "negotiation failed"} {
		require.Len(t, logged.FilterMessage(kind).All(), samples, kind)
	}
}

// The connection of a leaving client fails with an error that the test chooses.
type leaving struct {
	net.Conn
	read, write error
}

func (c *leaving) Read(p []byte) (int, error) {
	if c.read != nil {
		return 0, c.read
	}
	return c.Conn.Read(p)
}

// Write takes the greeting.
func (c *leaving) Write(p []byte) (int, error) {
	if c.write != nil && len(p) != wire.GreetingSize {
		return 0, c.write
	}
	return c.Conn.Write(p)
}

// A wrapping listener wraps the connections that it accepts.
type wrapping struct {
	net.Listener
	wrap func(net.Conn) net.Conn
}

func (l *wrapping) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		c = l.wrap(c)
	}
	return c, err
}

// TestLeavingWhileNegotiating: a client may leave in any way, and the server logs no warning.
// It does log other failures.
func TestLeavingWhileNegotiating(t *testing.T) {
	fails := func(op string, err error) error { return &net.OpError{Op: op, Err: os.NewSyscallError(op, err)} }
	hello := wire.AppendClientFlags(nil, fixed)
	abort := wire.AppendOption(append([]byte(nil), hello...), wire.OptAbort, nil)
	const left, failed = "client left while negotiating", "negotiation failed"
	for _, tt := range []struct {
		name string
		conn leaving
		says []byte // before it hangs up
		want string
	}{
		{"says nothing", leaving{}, nil, left},
		{"between options", leaving{}, hello, left},
		{"in the middle of an option", leaving{}, abort[:len(abort)-1], left},
		{"says so", leaving{}, abort, left},
		{"says so, and is gone", leaving{write: fails("write", unix.EPIPE)}, abort, left},
		{"is gone when it is answered", leaving{write: fails("write", unix.ECONNRESET)}, abort, left},
		{"did not read", leaving{read: fails("read", unix.ECONNRESET)}, nil, left},
		{"the network is away", leaving{read: fails("read", unix.EHOSTUNREACH)}, nil, failed},
		{"a breach", leaving{}, append([]byte(nil), abort[1:]...), failed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			core, logged := observer.New(zap.DebugLevel)
			f := serveWith(t, Config{Log: logtest.On(core)}, newMem(t, 1<<20))
			l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
			require.NoError(t, err)
			f.addr = l.Addr()
			f.serving.Go(func() {
				if err := f.srv.Serve(&wrapping{l, func(nc net.Conn) net.Conn { tt.conn.Conn = nc; return &tt.conn }}); err != nil {
					t.Errorf("Serve: %v", err)
				}
			})
			nc := f.raw()
			readN(t, nc, wire.GreetingSize)
			if len(tt.says) > 0 {
				_, err = nc.Write(tt.says)
				require.NoError(t, err)
			}
			_ = nc.(*net.UnixConn).CloseWrite() // the server may have closed it
			drain(t, nc)
			f.shutdown()
			lines := logged.FilterMessage(tt.want).All()
			require.Len(t, lines, 1)
			require.Equal(t, map[string]zapcore.Level{left: zap.DebugLevel, failed: zap.WarnLevel}[tt.want], lines[0].Level)
		})
	}
}
