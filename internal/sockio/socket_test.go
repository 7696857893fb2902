package sockio

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair makes a connected pair of sockets, which close with the test.
func pair(t testing.TB, network string) (a, b *Socket) {
	t.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, addr)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	ca, err := net.Dial(network, l.Addr().String())
	require.NoError(t, err)
	cb, err := l.Accept()
	require.NoError(t, err)
	a, err = New(ca)
	require.NoError(t, err)
	b, err = New(cb)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	})
	return a, b
}

// both runs f on TCP and on unix sockets.
func both(t *testing.T, f func(t *testing.T, network string)) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) { f(t, network) })
	}
}

func TestNewRefusesOtherConns(t *testing.T) {
	a, b := net.Pipe()
	defer func() { _, _ = a.Close(), b.Close() }()
	_, err := New(a)
	require.ErrorContains(t, err, "not a socket")
}

func TestFlushAndRead(t *testing.T) {
	both(t, func(t *testing.T, network string) {
		a, b := pair(t, network)
		var q Queue
		require.NoError(t, a.Flush(&q), "nothing to write")
		copy(q.Header(3), "abc")
		q.Data([]byte("defg"))
		copy(q.Header(2), "hi")
		require.NoError(t, a.Flush(&q))
		require.True(t, q.Empty())
		require.EqualValues(t, 1, q.Calls(), "one sendmsg for all")
		buf := make([]byte, 64)
		n, err := b.Read(buf)
		require.NoError(t, err)
		require.Equal(t, "abcdefghi", string(buf[:n]))
		n, err = b.TryRead(buf)
		require.NoError(t, err)
		require.Zero(t, n)
	})
}

// A stream many times larger than the socket's buffers arrives whole and in order. It
// meets partial writes, headers that are merged, and more than IOV_MAX runs.
func TestOrderThroughBackPressure(t *testing.T) {
	both(t, func(t *testing.T, network string) {
		a, b := pair(t, network)
		rnd := rand.New(rand.NewPCG(1, 2))
		src := make([]byte, 1<<20)
		for i := range src {
			src[i] = byte(rnd.Uint32())
		}
		var q Queue
		var want []byte
		for len(want) < 8<<20 {
			if rnd.IntN(2) == 0 {
				h := q.Header(1 + rnd.IntN(MaxHeader))
				for i := range h {
					h[i] = byte(rnd.Uint32())
				}
				want = append(want, h...)
			} else {
				off := rnd.IntN(len(src) / 2)
				d := src[off : off+rnd.IntN(8<<10)]
				q.Data(d)
				want = append(want, d...)
			}
		}
		require.EqualValues(t, len(want), q.Queued())
		require.Greater(t, len(q.segs), maxIovecs)

		var got []byte
		var wg sync.WaitGroup
		wg.Go(func() {
			buf := make([]byte, 100<<10)
			for len(got) < len(want) {
				n, err := b.Read(buf)
				if err != nil {
					return
				}
				got = append(got, buf[:n]...)
			}
		})
		for !q.Empty() {
			before := q.Written()
			require.NoError(t, a.Flush(&q))
			require.GreaterOrEqual(t, q.Written(), before)
			require.NoError(t, a.WaitWritable())
		}
		wg.Wait()
		require.True(t, bytes.Equal(want, got))
		require.Zero(t, q.used)
	})
}

func TestMoreRunsThanIovMax(t *testing.T) {
	both(t, func(t *testing.T, network string) {
		a, b := pair(t, network)
		var q Queue
		src := make([]byte, 2*(maxIovecs+1))
		for i := range maxIovecs + 1 {
			src[2*i] = byte(i)
			q.Data(src[2*i : 2*i+1 : 2*i+1])
		}
		require.NoError(t, a.Flush(&q))
		require.True(t, q.Empty())
		require.EqualValues(t, 2, q.Calls())
		got := make([]byte, maxIovecs+1)
		_, err := io.ReadFull(b, got)
		require.NoError(t, err)
		for i := range got {
			require.Equal(t, byte(i), got[i])
		}
	})
}

// A Flush returns while another goroutine waits for the full socket.
func TestFlushDoesNotWaitForWaitWritable(t *testing.T) {
	both(t, func(t *testing.T, network string) {
		a, b := pair(t, network)
		var q Queue
		fill(t, a, &q)
		waits := make(chan error)
		go func() { waits <- a.WaitWritable() }()
		require.NoError(t, a.Flush(&q))
		require.False(t, q.Empty())
		select {
		case err := <-waits:
			t.Fatal("a full socket is writable", err)
		default:
		}
		drained := make(chan struct{})
		go func() { // b reads until the peer closes
			_, _ = io.Copy(io.Discard, b)
			close(drained)
		}()
		require.NoError(t, <-waits)
		require.NoError(t, a.Close())
		<-drained
	})
}

// fill writes until the socket is full.
func fill(t *testing.T, s *Socket, q *Queue) {
	block := make([]byte, 1<<20)
	for range 64 {
		q.Data(block)
	}
	require.NoError(t, s.Flush(q))
	for full := false; !full; {
		at := q.Written()
		require.NoError(t, s.Flush(q))
		full = q.Written() == at
	}
	require.False(t, q.Empty())
}

func TestHungUp(t *testing.T) {
	both(t, func(t *testing.T, network string) {
		t.Run("close", func(t *testing.T) {
			a, b := pair(t, network)
			require.False(t, a.HungUp())
			require.NoError(t, b.Close())
			require.NoError(t, a.WaitReadable())
			require.True(t, a.HungUp())
			_, err := a.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)
			_, err = a.TryRead(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)
		})
		t.Run("half-close behind data", func(t *testing.T) {
			a, b := pair(t, network)
			_, err := b.Write([]byte("last words"))
			require.NoError(t, err)
			require.NoError(t, a.WaitReadable())
			require.False(t, a.HungUp(), "data alone is no hang-up")
			require.NoError(t, b.CloseWrite())
			for !a.HungUp() { // on TCP the FIN may still be on its way
			}
			n, err := a.Read(make([]byte, 64))
			require.NoError(t, err)
			require.Equal(t, len("last words"), n)
		})
		t.Run("own close", func(t *testing.T) {
			a, _ := pair(t, network)
			require.NoError(t, a.Close())
			require.True(t, a.HungUp())
		})
	})
}

func TestWriteToAClosedPeerIsAnError(t *testing.T) {
	both(t, func(t *testing.T, network string) {
		a, b := pair(t, network)
		require.NoError(t, b.Close())
		var q Queue
		for {
			q.Data([]byte("x"))
			if err := a.Flush(&q); err != nil {
				require.True(t, errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET), err)
				break
			}
		}
		q.Reset()
		require.True(t, q.Empty())
		require.Equal(t, q.Queued(), q.Written())
	})
}

func TestCloseWakesAndIsIdempotent(t *testing.T) {
	calls := map[string]func(s *Socket) error{
		"Read":         func(s *Socket) error { _, err := s.Read(make([]byte, 1)); return err },
		"WaitReadable": func(s *Socket) error { return s.WaitReadable() },
		"WaitWritable": func(s *Socket) error {
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
		},
	}
	both(t, func(t *testing.T, network string) {
		for name, call := range calls {
			t.Run(name, func(t *testing.T) {
				a, _ := pair(t, network)
				started, done := make(chan struct{}), make(chan error)
				go func() { close(started); done <- call(a) }()
				<-started
				require.NoError(t, a.Close())
				require.ErrorIs(t, <-done, net.ErrClosed)
				require.NoError(t, a.Close())
				require.ErrorIs(t, call(a), net.ErrClosed, "after Close")
				_, err := a.TryRead(make([]byte, 1))
				require.ErrorIs(t, err, net.ErrClosed)
			})
		}
	})
}

func TestNothingIsAllocatedPerCall(t *testing.T) {
	both(t, func(t *testing.T, network string) {
		a, b := pair(t, network)
		var q Queue
		data, buf := make([]byte, 4096), make([]byte, 64<<10)
		round := func() {
			for range 8 {
				q.Header(32)
				q.Data(data)
			}
			if a.Flush(&q) != nil || !q.Empty() {
				t.Fatal("the socket did not take it")
			}
			if b.WaitReadable() != nil || b.HungUp() {
				t.Fatal("nothing arrived")
			}
			for n := 0; n < 8*(32+4096); {
				m, err := b.TryRead(buf)
				if m == 0 && err == nil {
					m, err = b.Read(buf)
				}
				if err != nil {
					t.Fatal(err)
				}
				n += m
			}
			if a.WaitWritable() != nil {
				t.Fatal("not writable")
			}
		}
		round()
		calls := q.Calls()
		require.Zero(t, testing.AllocsPerRun(100, round))
		require.EqualValues(t, 101, q.Calls()-calls, "one sendmsg per Flush")
	})
}
