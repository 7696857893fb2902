package rdmatest

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/rdma"
)

// Flush runs the tests of native FLUSH on p. mem is at least 2 MiB that the device takes
// for persistent memory.
func Flush(t *testing.T, p rdma.Provider, listenAddr string, mem []byte) {
	s := &suite{p: p, addr: listenAddr}
	t.Run("BehindWrites", func(t *testing.T) { s.flushBehindWrites(t, mem) })
	t.Run("Access", func(t *testing.T) { s.flushAccess(t, mem) })
}

// connectFlush connects a pair whose responder also registers mem, for FLUSH.
func (s *suite) connectFlush(t *testing.T, l rdma.Listener, mem []byte) (a, b, persistent *End) {
	a, b = ConnectTo(t, s.p, l, Config{})
	require.True(t, a.Conn.Caps().PersistentFlush)
	r, err := b.Domain.Register(mem, All|rdma.RemoteFlush)
	require.NoError(t, err)
	return a, b, &End{Region: r}
}

// FLUSHes, one for each of many Writes or one for all, complete at their places in the
// queue, once everything before them is placed.
func (s *suite) flushBehindWrites(t *testing.T, mem []byte) {
	const each, writes = 8192, 16
	for _, tt := range []struct {
		name  string
		every int // Writes per FLUSH
	}{
		{"one for each Write", 1},
		{"one for all", writes},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, _, persistent := s.connectFlush(t, s.listen(t), mem)
			clear(mem)
			scribble(a.Region.Mem, 9)
			var wrs []rdma.WorkRequest
			for i := range writes {
				off := uint64(i * each)
				wrs = append(wrs, rdma.WorkRequest{Op: rdma.OpWrite, Local: a.Local(off, each), Remote: persistent.At(off)})
				if n := i + 1; n%tt.every == 0 {
					wrs = append(wrs, rdma.WorkRequest{
						ID: uint64(i), Op: rdma.OpFlush, Signaled: n == writes,
						Local: rdma.SGE{Len: uint32(tt.every * each)}, Remote: persistent.At(uint64((n - tt.every) * each)),
					})
				}
			}
			a.Post(t, append(wrs, rdma.WorkRequest{ID: 99, Op: rdma.OpWrite, Signaled: true, Local: a.Local(0, each), Remote: persistent.At(1 << 20)})...)
			require.Equal(t, rdma.Completion{ID: writes - 1, Op: rdma.OpFlush}, a.Next(t))
			equal(t, a.Region.Mem[:writes*each], mem[:writes*each])
			require.Equal(t, rdma.Completion{ID: 99, Op: rdma.OpWrite}, a.Next(t))
		})
	}
}

// A FLUSH of memory that the peer did not register for it is an error, and touches
// nothing.
func (s *suite) flushAccess(t *testing.T, mem []byte) {
	size := uint64(len(mem))
	l := s.listen(t)
	bystander, target := ConnectTo(t, s.p, l, Config{})
	for _, tt := range []struct {
		name   string
		remote func(b, persistent *End) rdma.Remote
	}{
		{"unknown key", func(_, p *End) rdma.Remote { return rdma.Remote{Key: p.Region.Key ^ 0x5a5a, Addr: p.Region.Base} }},
		{"one past the end", func(_, p *End) rdma.Remote { return p.At(size - 63) }},
		{"at the end", func(_, p *End) rdma.Remote { return p.At(size) }},
		{"one before the start", func(_, p *End) rdma.Remote { return rdma.Remote{Key: p.Region.Key, Addr: p.Region.Base - 1} }},
		{"memory without the right", func(b, _ *End) rdma.Remote { return b.At(0) }},
		{"persistent memory without the right", func(b, _ *End) rdma.Remote {
			r, err := b.Domain.Register(mem, All)
			require.NoError(t, err)
			return (&End{Region: r}).At(0)
		}},
		{"deregistered", func(b, p *End) rdma.Remote {
			require.NoError(t, b.Domain.Deregister(p.Region))
			return p.At(0)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b, persistent := s.connectFlush(t, l, mem)
			before := bytes.Clone(mem)
			a.Post(t, rdma.WorkRequest{Op: rdma.OpFlush, Signaled: true, Local: rdma.SGE{Len: 64}, Remote: tt.remote(b, persistent)})
			require.ErrorIs(t, a.Failed(t), rdma.ErrRemoteAccess)
			require.Error(t, b.Failed(t))
			equal(t, before, mem)
			echo(t, bystander, target)
		})
	}
}
