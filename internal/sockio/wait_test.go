package sockio

import (
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A message that somebody waits for costs one poll(2) and one recv(2), and on TCP one recv(2)
// once some waits were short. No read hears EAGAIN after one that took everything.
func TestAMessageTakesOneSystemCall(t *testing.T) {
	const n = 20
	waits := map[string]struct {
		wait func(s *Socket, p []byte) (int, error)
		cost uint64 // of a message on TCP, once waits are short
	}{
		"Read": {(*Socket).Read, 1},
		"ReadSoon": {func(s *Socket, p []byte) (int, error) {
			if m, err := s.ReadSoon(p); m > 0 || err != nil {
				return m, err
			}
			if err := s.WaitReadable(); err != nil {
				return 0, err
			}
			return s.TryRead(p)
		}, 1},
		"WaitReadable": {func(s *Socket, p []byte) (int, error) {
			if err := s.WaitReadable(); err != nil {
				return 0, err
			}
			return s.TryRead(p)
		}, 2},
	}
	both(t, func(t *testing.T, network string) {
		for name, w := range waits {
			t.Run(name, func(t *testing.T) {
				cost, others := w.cost, uint64(1)
				if network == "unix" {
					cost, others = 2, 2
				}
				a, b := pair(t, network)
				require.NoError(t, block(a.fd, time.Hour)) // on a busy machine no wait is short
				require.NoError(t, block(b.fd, time.Hour))
				echo := make(chan error)
				go func() {
					buf := make([]byte, 64)
					for {
						m, err := b.Read(buf)
						if err == nil {
							_, err = b.Write(buf[:m])
						}
						if err != nil {
							echo <- err
							return
						}
					}
				}()
				buf := make([]byte, 64)
				exchange := func(n int) {
					for range n {
						_, err := a.Write([]byte("ping"))
						require.NoError(t, err)
						m, err := w.wait(a, buf)
						require.NoError(t, err)
						require.Equal(t, "ping", string(buf[:m]))
					}
				}
				// The first read of a socket does not know yet whether something is there.
				exchange(settled + 1)
				first := a.reads + a.polls
				require.LessOrEqual(t, first, uint64(2*(settled+1)+1))
				exchange(n)
				require.Equal(t, cost*n, a.reads+a.polls-first)
				require.NoError(t, a.CloseWrite())
				require.ErrorIs(t, <-echo, io.EOF)
				require.LessOrEqual(t, b.reads+b.polls, 2*(settled+1)+1+others*(n+1), "and the end")
			})
		}
	})
}

// settle sends a messages from b until its reader may block in recv(2).
func settle(t *testing.T, a, b *Socket) {
	t.Helper()
	for !a.mayBlock() {
		_, err := b.Write([]byte("ping"))
		require.NoError(t, err)
		require.NoError(t, a.WaitReadable())
		_, err = a.TryRead(make([]byte, 64))
		require.NoError(t, err)
	}
}

// A reader that blocks in recv(2) hears of a deadline, if later, and of Close.
func TestDeadlineOfABlockedReader(t *testing.T) {
	a, b := pair(t, "tcp")
	read := func() error { _, err := a.Read(make([]byte, 1)); return err }
	started, done := make(chan struct{}), make(chan error)
	reader := func() { close(started); done <- read() }
	settle(t, a, b)
	go reader()
	<-started
	require.NoError(t, a.SetReadDeadline(time.Unix(1, 0)))
	require.ErrorIs(t, <-done, os.ErrDeadlineExceeded)
	require.ErrorIs(t, read(), os.ErrDeadlineExceeded, "again")

	require.NoError(t, a.SetReadDeadline(time.Time{}))
	require.False(t, a.mayBlock(), "somebody sets deadlines")
	settle(t, a, b)
	require.NoError(t, a.SetReadDeadline(time.Now().Add(time.Hour)))
	require.False(t, a.mayBlock())
	require.NoError(t, a.SetReadDeadline(time.Time{}))
	settle(t, a, b)
	n, err := a.ReadSoon(make([]byte, 1))
	require.NoError(t, err, "nothing came")
	require.Zero(t, n)
	require.False(t, a.mayBlock(), "a wait was long")

	settle(t, a, b)
	require.NoError(t, block(a.fd, time.Hour)) // only Close ends it
	started = make(chan struct{})
	go reader()
	<-started
	require.NoError(t, a.Close())
	require.ErrorIs(t, <-done, net.ErrClosed)
}

// Who gets a connection from Detach finds it as Go's are: the kernel's NBD client would take the end of
// SO_RCVTIMEO for that of the connection.
func TestDetachUndoesNew(t *testing.T) {
	both(t, func(t *testing.T, network string) {
		a, _ := pair(t, network)
		f, err := a.Detach()
		require.NoError(t, err)
		defer func() { require.NoError(t, f.Close()) }()
		raw, err := f.SyscallConn()
		require.NoError(t, err)
		require.NoError(t, raw.Control(func(fd uintptr) {
			tv, err := unix.GetsockoptTimeval(int(fd), unix.SOL_SOCKET, unix.SO_RCVTIMEO)
			require.NoError(t, err)
			require.Zero(t, *tv)
			flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
			require.NoError(t, err)
			require.NotZero(t, flags&unix.O_NONBLOCK)
		}))
	})
}

func TestDeadlines(t *testing.T) {
	waits := map[string]struct {
		wait func(s *Socket) error
		set  func(s *Socket, t time.Time) error
	}{
		"Read":         {func(s *Socket) error { _, err := s.Read(make([]byte, 1)); return err }, (*Socket).SetReadDeadline},
		"WaitReadable": {(*Socket).WaitReadable, (*Socket).SetReadDeadline},
		"WaitHangUp":   {(*Socket).WaitHangUp, (*Socket).SetReadDeadline},
		"Write":        {func(s *Socket) error { _, err := s.Write(make([]byte, 64<<20)); return err }, (*Socket).SetWriteDeadline},
		"WaitWritable": {
			func(s *Socket) error {
				var q Queue
				q.Data(make([]byte, 64<<20))
				for {
					if err := s.Flush(&q); err != nil {
						return err
					}
					if err := s.WaitWritable(); err != nil {
						return err
					}
				}
			}, (*Socket).SetDeadline,
		},
	}
	soon := func() time.Time { return time.Now().Add(10 * time.Millisecond) }
	past := func() time.Time { return time.Unix(1, 0) }
	both(t, func(t *testing.T, network string) {
		for name, w := range waits {
			t.Run(name, func(t *testing.T) {
				for what, at := range map[string]func() time.Time{"before": past, "runs out": soon} {
					a, _ := pair(t, network)
					require.NoError(t, w.set(a, at()), what)
					require.ErrorIs(t, w.wait(a), os.ErrDeadlineExceeded, what)
				}
				a, _ := pair(t, network)
				started, done := make(chan struct{}), make(chan error)
				go func() { close(started); done <- w.wait(a) }()
				<-started
				require.NoError(t, w.set(a, time.Now().Add(time.Hour)), "later")
				require.NoError(t, w.set(a, past()), "while it waits")
				require.ErrorIs(t, <-done, os.ErrDeadlineExceeded)
				require.ErrorIs(t, w.wait(a), os.ErrDeadlineExceeded, "again")
				require.NoError(t, w.set(a, time.Time{}))
				go func() { done <- w.wait(a) }()
				require.NoError(t, a.Close())
				require.ErrorIs(t, <-done, net.ErrClosed, "no deadline any more")
				require.ErrorIs(t, w.set(a, past()), net.ErrClosed)
			})
		}
	})
}

func TestReadGoesOnAfterADeadline(t *testing.T) {
	both(t, func(t *testing.T, network string) {
		a, b := pair(t, network)
		require.NoError(t, a.SetReadDeadline(time.Unix(1, 0)))
		require.ErrorIs(t, a.WaitReadable(), os.ErrDeadlineExceeded)
		require.NoError(t, a.SetReadDeadline(time.Time{}))
		_, err := b.Write([]byte("late"))
		require.NoError(t, err)
		buf := make([]byte, 8)
		n, err := a.Read(buf)
		require.NoError(t, err)
		require.Equal(t, "late", string(buf[:n]))
	})
}

// What can be read does not end WaitHangUp, and a hang-up behind it does.
func TestWaitHangUp(t *testing.T) {
	both(t, func(t *testing.T, network string) {
		a, b := pair(t, network)
		done := make(chan error)
		go func() { done <- a.WaitHangUp() }()
		_, err := b.Write([]byte("data"))
		require.NoError(t, err)
		select {
		case err := <-done:
			t.Fatal("data are no hang-up", err)
		default:
		}
		require.NoError(t, b.CloseWrite())
		require.NoError(t, <-done)
		require.True(t, a.HungUp())
	})
}

// Close wakes every call that waits, and the last one to leave closes the descriptors.
func TestCloseClosesTheDescriptors(t *testing.T) {
	both(t, func(t *testing.T, network string) {
		before := descriptors(t)
		for range 50 {
			a, b := pair(t, network)
			var all sync.WaitGroup
			for _, wait := range []func() error{a.WaitReadable, b.WaitHangUp} {
				all.Go(func() {
					if err := wait(); err != nil {
						require.ErrorIs(t, err, net.ErrClosed)
					}
				})
			}
			for _, s := range []*Socket{a, a, b, b} {
				all.Go(func() { require.NoError(t, s.Close()) })
			}
			all.Wait()
		}
		require.Equal(t, before, descriptors(t))
	})
}

func descriptors(t *testing.T) int {
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(all)
}

// A unix socket takes several large replies at once, as far as the kernel permits.
func TestUnixBuffer(t *testing.T) {
	limit, err := os.ReadFile("/proc/sys/net/core/wmem_max")
	require.NoError(t, err)
	most, err := strconv.Atoi(strings.TrimSpace(string(limit)))
	require.NoError(t, err)
	a, _ := pair(t, "unix")
	got, err := unix.GetsockoptInt(a.fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	require.NoError(t, err)
	require.Equal(t, 2*min(unixBuffer, most), got, "twice, for the kernel's own bytes")
}

func TestNewTakesTheConnectionOver(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	nc, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	s, err := New(nc)
	require.NoError(t, err)
	require.ErrorIs(t, nc.SetDeadline(time.Time{}), net.ErrClosed, "Go's poller has let it go")
	require.Equal(t, l.Addr().String(), s.RemoteAddr().String())
	require.Equal(t, nc.LocalAddr(), s.LocalAddr())
	again, err := New(s)
	require.NoError(t, err)
	require.Same(t, s, again)
	require.NoError(t, s.Close())

	closed, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	before := descriptors(t)
	_, err = New(closed)
	require.ErrorIs(t, err, net.ErrClosed)
	require.Equal(t, before, descriptors(t))
}

// While a call uses the descriptor, Close leaves it open: another file could get its number.
func TestADescriptorOutlivesItsUsers(t *testing.T) {
	a, _ := pair(t, "tcp")
	require.NoError(t, a.enter())
	require.NoError(t, a.Close())
	_, err := unix.GetsockoptInt(a.fd, unix.SOL_SOCKET, unix.SO_TYPE)
	require.NoError(t, err, "open while it is used")
	require.ErrorIs(t, a.enter(), net.ErrClosed, "nobody new may use it")
	fd := a.fd
	a.leave()
	_, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	require.ErrorIs(t, err, unix.EBADF)
}
