package rdmatest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/rdma"
)

func (s *suite) listen(t *testing.T) rdma.Listener {
	l, err := s.p.Listen(context.Background(), s.addr)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

func (s *suite) domain(t *testing.T, addr string) rdma.Domain {
	d, err := s.p.OpenDomain(context.Background(), addr)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// dial connects to l and closes in the background, and sends the result. A failure closes l,
// or a test whose request does not come would wait in Accept for ever.
func dial(d rdma.Domain, l rdma.Listener) <-chan error {
	result := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		c, err := d.Dial(ctx, l.Addr(), rdma.ConnConfig{}, nil)
		if err == nil {
			err = c.Close()
		} else {
			_ = l.Close()
		}
		result <- err
	}()
	return result
}

func (s *suite) privateData(t *testing.T) {
	l := s.listen(t)
	d := s.domain(t, l.Addr())
	ask := []byte("the question, in fifty-six bytes at the very most......!")
	require.Len(t, ask, rdma.MaxPrivateData)
	var c rdma.Conn
	var err error
	var wg sync.WaitGroup
	wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if c, err = d.Dial(ctx, l.Addr(), rdma.ConnConfig{PrivateData: ask}, nil); err != nil {
			_ = l.Close() // or Accept waits for ever
		}
	})
	req, aerr := l.Accept()
	if aerr != nil {
		wg.Wait()
		require.NoError(t, errors.Join(err, aerr))
	}
	require.Equal(t, ask, req.PrivateData()[:len(ask)])
	require.NotEmpty(t, req.RemoteAddr())
	rd, aerr := req.OpenDomain()
	require.NoError(t, aerr)
	rc, aerr := req.Accept(rd, rdma.ConnConfig{}, nil)
	require.NoError(t, aerr)
	wg.Wait()
	require.NoError(t, err)
	require.NotEmpty(t, c.RemoteAddr())
	require.NotEmpty(t, rc.RemoteAddr())
	require.NoError(t, c.Close())
	require.NoError(t, rc.Close())
	require.NoError(t, rd.Close())

	_, err = d.Dial(context.Background(), l.Addr(), rdma.ConnConfig{PrivateData: append(ask, '!')}, nil)
	require.ErrorIs(t, err, rdma.ErrNotSupported)
}

func (s *suite) reject(t *testing.T) {
	l := s.listen(t)
	result := dial(s.domain(t, l.Addr()), l)
	req, err := l.Accept()
	if err != nil {
		require.NoError(t, errors.Join(<-result, err))
	}
	require.NoError(t, req.Reject([]byte("come back later")))
	var refused *rdma.RejectError
	require.ErrorAs(t, <-result, &refused)
	require.Equal(t, "come back later", string(refused.PrivateData[:len("come back later")]))
}

func (s *suite) dialNobody(t *testing.T) {
	l := s.listen(t)
	require.NoError(t, l.Close())
	require.ErrorIs(t, <-dial(s.domain(t, l.Addr()), l), rdma.ErrLost)
}

func (s *suite) dialTimeout(t *testing.T) {
	l := s.listen(t)
	d := s.domain(t, l.Addr())
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := d.Dial(ctx, l.Addr(), rdma.ConnConfig{}, nil) // nobody accepts
	require.ErrorIs(t, err, rdma.ErrTimeout)

	ctx, stop := context.WithCancel(context.Background())
	result := make(chan error)
	go func() {
		_, err := d.Dial(ctx, l.Addr(), rdma.ConnConfig{}, nil)
		result <- err
	}()
	stop()
	require.ErrorIs(t, <-result, context.Canceled)
}

func (s *suite) listenerClose(t *testing.T) {
	l := s.listen(t)
	a, b := ConnectTo(t, s.p, l, Config{})
	started, result := make(chan struct{}), make(chan error)
	go func() {
		close(started)
		_, err := l.Accept()
		result <- err
	}()
	<-started
	require.NoError(t, l.Close())
	require.ErrorIs(t, <-result, rdma.ErrClosed)
	_, err := l.Accept()
	require.ErrorIs(t, err, rdma.ErrClosed)
	require.NoError(t, l.Close(), "again")

	b.Recv(t, 1, 0, 8)
	a.Post(t, rdma.WorkRequest{Op: rdma.OpSend, Inline: []byte("still up")})
	b.Next(t)
}

func (s *suite) close(t *testing.T) {
	a, _ := s.connect(t, Config{})
	require.NoError(t, a.Conn.Close())
	require.ErrorIs(t, a.Failed(t), rdma.ErrClosed, "the goroutine in Wait was woken")
	require.NoError(t, a.Conn.Close(), "again")
	_, err := a.Conn.Post([]rdma.WorkRequest{{Op: rdma.OpSend, Inline: []byte("x")}})
	require.ErrorIs(t, err, rdma.ErrClosed)
	require.ErrorIs(t, a.Conn.PostRecv(nil), rdma.ErrClosed)
	_, err = a.Conn.Poll(make([]rdma.Completion, 1))
	require.ErrorIs(t, err, rdma.ErrClosed)
	require.ErrorIs(t, a.Conn.Wait(), rdma.ErrClosed)
}

func (s *suite) peerGone(t *testing.T) {
	for _, who := range []string{"initiator", "responder"} {
		t.Run(who, func(t *testing.T) {
			a, b := s.connect(t, Config{})
			if who == "initiator" {
				a, b = b, a
			}
			require.NoError(t, b.Conn.Close())
			require.ErrorIs(t, a.Failed(t), rdma.ErrLost)
			_, err := a.Conn.Post([]rdma.WorkRequest{{Op: rdma.OpSend, Inline: []byte("x")}})
			require.ErrorIs(t, err, rdma.ErrLost)
			require.NoError(t, a.Conn.Close())
			require.ErrorIs(t, a.Conn.Wait(), rdma.ErrLost, "the first error is kept")
		})
	}
}

func (s *suite) manyQueuePairs(t *testing.T) {
	const pairs, rounds, size = 24, 20, 8 << 10
	l := s.listen(t)
	var wg sync.WaitGroup
	for i := range pairs {
		a, b := ConnectTo(t, s.p, l, Config{Size: 2 * size})
		wg.Go(func() {
			for round := range rounds {
				for j := range size {
					a.Region.Mem[j] = byte(i + round + j)
				}
				b.Recv(t, 1, 0, 0)
				a.Post(t,
					rdma.WorkRequest{Op: rdma.OpWrite, Local: a.Local(0, size), Remote: b.At(0)},
					rdma.WorkRequest{Op: rdma.OpSend},
					rdma.WorkRequest{Op: rdma.OpRead, Local: a.Local(size, size), Remote: b.At(0)})
				b.Next(t)
				a.Next(t)
				equal(t, a.Region.Mem[:size], a.Region.Mem[size:])
			}
		})
	}
	wg.Wait()
}
