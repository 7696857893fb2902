package remote

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/persist/region"
	"pmnbd/persist/target"
	"pmnbd/rdma"
	"pmnbd/rdma/iwarp"
)

// overTCP is a pair on a real transport, with a region of class volatile.
func overTCP(t testing.TB) *pair {
	return newPair(t, iwarp.New(iwarp.Config{}), "127.0.0.1:0", region.PathMemfd, target.Config{})
}

func TestConformanceOverTCP(t *testing.T) {
	for _, lanes := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d lanes", lanes), func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) backend.Device { return overTCP(t).dialLanes(t, lanes) })
		})
	}
}

// A counted connection counts what its owner does. rdma/iwarp's TestCounts holds that a
// Post is one system call and an answer one FPDU.
type counted struct {
	rdma.Conn
	posts, answers atomic.Int64
}

func (c *counted) Post(wrs []rdma.WorkRequest) (int, error) {
	n, err := c.Conn.Post(wrs)
	if n > 0 {
		c.posts.Add(1)
	}
	return n, err
}

func (c *counted) Poll(cs []rdma.Completion) (int, error) {
	n, err := c.Conn.Poll(cs)
	for _, done := range cs[:n] {
		if done.Op == rdma.OpRecv || done.Op == rdma.OpRead {
			c.answers.Add(1)
		}
	}
	return n, err
}

// dialCounted opens a session of one lane that counts.
func dialCounted(t *testing.T) (*Device, *counted) {
	p := overTCP(t)
	var c *counted
	p.provider = wrapped{p.provider, func(conn rdma.Conn) rdma.Conn {
		c = &counted{Conn: conn}
		return c
	}}
	d := p.dial(t)
	return d, c
}

// A WRITE + FLUSH costs the target one answer, the ack, and the initiator one Post for
// both (design §4).
func TestWriteAndFlushAreOneAnswer(t *testing.T) {
	d, transport := dialCounted(t)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	const n = 50
	posts, answers := transport.posts.Load(), transport.answers.Load()
	for i := range n {
		w := c.Write(uint64(i)*block, backendtest.Pattern(block, 1), 0)
		if i%2 == 0 {
			require.NoError(t, c.Do(w)) // acknowledged before the FLUSH is there
			require.NoError(t, c.Do(c.Flush()))
		} else {
			require.NoError(t, c.Do(w, c.Flush()))
		}
	}
	require.EqualValues(t, n, transport.answers.Load()-answers, "what the target sent")
	require.EqualValues(t, n, transport.posts.Load()-posts, "the write waits for its FLUSH and leaves with it")
	require.NoError(t, d.Close())
}

// A batch of writes is one post.
func TestBatchIsOnePost(t *testing.T) {
	d, transport := dialCounted(t)
	c := backendtest.NewClient(t, d)
	posts, answers := transport.posts.Load(), transport.answers.Load()
	var reqs []*backendtest.Request
	for i := range 16 {
		reqs = append(reqs, c.Write(uint64(i)*block, backendtest.Pattern(block, 1), 0))
	}
	require.NoError(t, c.Do(append(reqs, c.Flush())...))
	require.EqualValues(t, 1, transport.posts.Load()-posts)
	require.EqualValues(t, 1, transport.answers.Load()-answers)
	require.NoError(t, d.Close())
}

// A driver submits the same ops again and again, and waits without allocating.
type driver struct {
	d    *Device
	room *backend.Admission
	ops  []*backend.Op
	left chan struct{} // one token for each completion
}

func (x *driver) Complete(*backend.Op) { x.left <- struct{}{} }
func (x *driver) Kick()                {}
func (x *driver) Gone() bool           { return false }

func newDriver(t testing.TB, d *Device, ops ...*backend.Op) *driver {
	x := &driver{d: d, room: backend.NewAdmission(d.Arenas()), ops: ops, left: make(chan struct{}, len(ops))}
	for _, op := range ops {
		op.Sink = x
		arena := d.Arenas().Read
		if op.Cmd == backend.Write {
			arena = d.Arenas().Write
		}
		if op.Len > 0 {
			chunks, err := arena.Get(nil, 1, nil)
			require.NoError(t, err)
			op.Data = []backend.Span{{Chunk: chunks[0], Len: uint32(op.Len)}}
			t.Cleanup(func() { chunks[0].Release() })
		}
	}
	return x
}

// run submits the ops in one batch and waits for all of them.
func (x *driver) run(t testing.TB) {
	for _, op := range x.ops {
		if err := x.room.Admit(op, nil); err != nil {
			t.Fatal(err)
		}
	}
	x.d.Submit(x.ops)
	x.room.Unpin()
	x.d.Post()
	for range x.ops {
		<-x.left
	}
	for _, op := range x.ops {
		if op.Err != nil {
			t.Fatal(op.Err)
		}
	}
}

func many(cmd backend.Command, n int) (ops []*backend.Op) {
	for i := range n {
		ops = append(ops, &backend.Op{Cmd: cmd, Off: uint64(i) * block, Len: block})
	}
	return ops
}

var paths = map[string]func() []*backend.Op{
	"write+flush":   func() []*backend.Op { return append(many(backend.Write, 1), &backend.Op{Cmd: backend.Flush}) },
	"32write+flush": func() []*backend.Op { return append(many(backend.Write, 32), &backend.Op{Cmd: backend.Flush}) },
	"fua":           func() []*backend.Op { return []*backend.Op{{Cmd: backend.Write, Len: block, FUA: true}} },
	"read":          func() []*backend.Op { return many(backend.Read, 1) },
	"32read":        func() []*backend.Op { return many(backend.Read, 32) },
	"flush":         func() []*backend.Op { return []*backend.Op{{Cmd: backend.Flush}} },
}

// The initiator and the target, which are both in this process, allocate nothing
// for a request.
func TestPathAllocatesNothing(t *testing.T) {
	for name, ops := range paths {
		t.Run(name, func(t *testing.T) {
			p := overTCP(t)
			d, err := Dial(context.Background(), func() Config { c := p.config(t); c.Log = slog.New(slog.DiscardHandler); return c }())
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, d.Close()) })
			x := newDriver(t, d, ops()...)
			for range 200 {
				x.run(t) // queues grow to their size
			}
			require.Zero(t, testing.AllocsPerRun(200, func() { x.run(t) }))
		})
	}
}

// Nor do they for one of a mirror.
func TestPathOfAMirrorAllocatesNothing(t *testing.T) {
	for name, ops := range paths {
		t.Run(name, func(t *testing.T) {
			s := pairs{overTCP(t), overTCP(t)}
			s.join(t, 1)
			cfg := s.config(t)
			cfg.Log = slog.New(slog.DiscardHandler)
			d, err := Dial(context.Background(), cfg)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, d.Close()) })
			x := newDriver(t, d, ops()...)
			for range 200 {
				x.run(t) // queues grow to their size
			}
			require.Zero(t, testing.AllocsPerRun(200, func() { x.run(t) }))
		})
	}
}

func BenchmarkPath(b *testing.B) {
	for name, ops := range paths {
		b.Run(name, func(b *testing.B) {
			p := overTCP(b)
			cfg := p.config(b)
			cfg.Log = slog.New(slog.DiscardHandler)
			d, err := Dial(context.Background(), cfg)
			require.NoError(b, err)
			b.Cleanup(func() { require.NoError(b, d.Close()) })
			x := newDriver(b, d, ops()...)
			b.ReportAllocs()
			b.SetBytes(int64(len(x.ops)) * block)
			for b.Loop() {
				x.run(b)
			}
		})
	}
}
