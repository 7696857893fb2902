package rdmatest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/rdma"
)

// equal compares without printing megabytes.
func equal(t testing.TB, want, got []byte) {
	t.Helper()
	if !bytes.Equal(want, got) {
		i := 0
		for i < len(want) && i < len(got) && want[i] == got[i] {
			i++
		}
		require.Failf(t, "memory differs", "at byte %d of %d", i, len(want))
	}
}

// scribble fills p with bytes that depend on seed.
func scribble(p []byte, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	for i := range p {
		p[i] = byte(rnd.Uint32())
	}
}

// sizes has lengths around the boundaries of words, pages, segments and buffers.
var sizes = []uint32{1, 2, 3, 4, 5, 511, 4096, 4097, 32742, 32744, 32748, 65507, 65536, 300_001, 1 << 19}

func (s *suite) sendRecv(t *testing.T) {
	for _, dir := range []string{"to the responder", "to the initiator"} {
		t.Run(dir, func(t *testing.T) {
			a, b := s.connect(t, Config{})
			if dir == "to the initiator" {
				// A responder may have to stay silent until the initiator's first message.
				b.Recv(t, 0, 0, 0)
				a.Post(t, rdma.WorkRequest{Op: rdma.OpSend})
				b.Next(t)
				a, b = b, a
			}
			for i, n := range sizes {
				scribble(a.Region.Mem[:n], uint64(i))
				b.Recv(t, uint64(i), 8, n+uint32(i%2)) // exact, and with room
				a.Post(t, rdma.WorkRequest{ID: 100, Op: rdma.OpSend, Signaled: true, Local: a.Local(0, n)})
				require.Equal(t, rdma.Completion{ID: uint64(i), Op: rdma.OpRecv, Len: n}, b.Next(t))
				require.Equal(t, rdma.Completion{ID: 100, Op: rdma.OpSend}, a.Next(t))
				equal(t, a.Region.Mem[:n], b.Region.Mem[8:8+n])
			}
			inline := make([]byte, a.Conn.Caps().MaxInline)
			const count = 32
			for i := range uint64(count) {
				b.Recv(t, i, i*uint64(len(inline)), uint32(len(inline)))
			}
			for i := range count {
				scribble(inline, uint64(i))
				a.Post(t, rdma.WorkRequest{Op: rdma.OpSend, Inline: inline, Signaled: i%8 == 7})
			}
			for i := range uint64(count) {
				require.Equal(t, i, b.Next(t).ID, "receives are consumed in order")
				scribble(inline, i)
				equal(t, inline, b.Region.Mem[i*uint64(len(inline)):][:len(inline)])
			}
		})
	}
}

func (s *suite) writeThenSend(t *testing.T) {
	a, b := s.connect(t, Config{})
	for i, n := range sizes {
		off := uint64(i * 3)
		scribble(a.Region.Mem[off:off+uint64(n)], uint64(i))
		b.Recv(t, 1, 1<<20-16, 16)
		a.Post(t,
			rdma.WorkRequest{Op: rdma.OpWrite, Local: a.Local(off, n), Remote: b.At(off + 1)},
			rdma.WorkRequest{Op: rdma.OpSend, Inline: []byte("look")})
		b.Next(t)
		equal(t, a.Region.Mem[off:off+uint64(n)], b.Region.Mem[off+1:off+1+uint64(n)])
	}
}

func (s *suite) overlappingWrites(t *testing.T) {
	a, b := s.connect(t, Config{})
	if !b.Conn.Caps().OrderedPlacement {
		t.Skip("the provider does not order placement")
	}
	const count, size = 64, 3000
	scribble(a.Region.Mem, 1)
	var wrs []rdma.WorkRequest
	want := make([]byte, size+count)
	for i := range uint64(count) {
		wrs = append(wrs, rdma.WorkRequest{Op: rdma.OpWrite, Local: a.Local(i*size, size), Remote: b.At(i)})
		copy(want[i:], a.Region.Mem[i*size:][:size])
	}
	b.Recv(t, 1, 1<<19, 16)
	a.Post(t, append(wrs, rdma.WorkRequest{Op: rdma.OpSend, Inline: []byte("look")})...)
	b.Next(t)
	equal(t, want[:size+count-1], b.Region.Mem[:size+count-1])
}

func (s *suite) readAfterWrite(t *testing.T) {
	a, b := s.connect(t, Config{Size: 2 << 20})
	for i, n := range sizes {
		scribble(a.Region.Mem[:n], uint64(i))
		a.Post(t,
			rdma.WorkRequest{Op: rdma.OpWrite, Local: a.Local(0, n), Remote: b.At(5)},
			rdma.WorkRequest{ID: uint64(n), Op: rdma.OpRead, Local: a.Local(1<<20+1, n), Remote: b.At(5)})
		require.Equal(t, rdma.Completion{ID: uint64(n), Op: rdma.OpRead}, a.Next(t), "a Read needs no flag to complete")
		equal(t, a.Region.Mem[:n], a.Region.Mem[1<<20+1:][:n])
	}
}

func (s *suite) zeroLength(t *testing.T) {
	a, b := s.connect(t, Config{})
	b.Recv(t, 1, 0, 0)
	a.Post(t,
		rdma.WorkRequest{ID: 1, Op: rdma.OpWrite, Signaled: true, Remote: b.At(0)},
		rdma.WorkRequest{ID: 2, Op: rdma.OpRead, Remote: b.At(0)},
		rdma.WorkRequest{ID: 3, Op: rdma.OpSend, Signaled: true})
	require.Equal(t, rdma.Completion{ID: 1, Op: rdma.OpRecv}, b.Next(t))
	for _, id := range []uint64{1, 2, 3} {
		require.Equal(t, id, a.Next(t).ID)
	}
}

// Only signalled requests complete, in the order of their queue.
func (s *suite) completionOrder(t *testing.T) {
	a, b := s.connect(t, Config{})
	for i := range uint64(8) {
		b.Recv(t, i, 0, 16)
	}
	var wrs []rdma.WorkRequest
	for i := range uint64(8) {
		wrs = append(wrs,
			rdma.WorkRequest{ID: 4 * i, Op: rdma.OpRead, Local: a.Local(i<<12, 4096), Remote: b.At(i << 12)},
			rdma.WorkRequest{ID: 4*i + 1, Op: rdma.OpWrite, Local: a.Local(0, 64), Remote: b.At(1 << 19), Signaled: true},
			rdma.WorkRequest{ID: 4*i + 2, Op: rdma.OpWrite, Local: a.Local(0, 64), Remote: b.At(1 << 19)},
			rdma.WorkRequest{ID: 4*i + 3, Op: rdma.OpSend, Inline: []byte("x"), Signaled: true})
	}
	a.Post(t, wrs...)
	for i := range uint64(8) {
		require.Equal(t, rdma.Completion{ID: 4 * i, Op: rdma.OpRead}, a.Next(t))
		require.Equal(t, rdma.Completion{ID: 4*i + 1, Op: rdma.OpWrite}, a.Next(t))
		require.Equal(t, rdma.Completion{ID: 4*i + 3, Op: rdma.OpSend}, a.Next(t))
		b.Next(t)
	}
}

func (s *suite) sendQueueFull(t *testing.T) {
	a, b := s.connect(t, Config{ConnConfig: rdma.ConnConfig{MaxSendWR: 16}})
	depth := a.Conn.Caps().MaxSendWR
	require.GreaterOrEqual(t, depth, 16)
	var wrs []rdma.WorkRequest
	for i := range 3 * depth {
		wrs = append(wrs, rdma.WorkRequest{
			ID: uint64(i), Op: rdma.OpWrite, Local: a.Local(uint64(i), 1), Remote: b.At(uint64(i)), Signaled: (i+1)%depth == 0,
		})
	}
	scribble(a.Region.Mem[:len(wrs)], 3)
	for posted := 0; posted < len(wrs); {
		n, err := a.Conn.Post(wrs[posted:])
		require.NoError(t, err)
		require.Equal(t, depth, n, "as many as there are slots")
		_ = a.poll()
		posted += n
		require.Equal(t, uint64(posted-1), a.Next(t).ID, "polling it retires all before it")
	}
	a.Post(t, rdma.WorkRequest{Op: rdma.OpRead, Local: a.Local(1<<19, uint32(len(wrs))), Remote: b.At(0)})
	a.Next(t)
	equal(t, a.Region.Mem[:len(wrs)], a.Region.Mem[1<<19:][:len(wrs)])
}

func (s *suite) recvQueueFull(t *testing.T) {
	a, b := s.connect(t, Config{ConnConfig: rdma.ConnConfig{MaxRecvWR: 4}})
	depth := b.Conn.Caps().MaxRecvWR
	for i := range depth {
		b.Recv(t, uint64(i), 0, 8)
	}
	require.Error(t, b.Conn.PostRecv([]rdma.WorkRequest{{Local: b.Local(0, 8)}}))
	a.Post(t, rdma.WorkRequest{Op: rdma.OpSend, Inline: []byte("x")})
	require.EqualValues(t, 0, b.Next(t).ID)
	b.Recv(t, 99, 0, 8)
}

// Reads beyond those that the peer answers at a time wait, and so does what is behind them.
func (s *suite) readBackPressure(t *testing.T) {
	a, b := s.connect(t, Config{ConnConfig: rdma.ConnConfig{MaxReads: 2, MaxReadsIn: 2}, Size: 4 << 20})
	require.LessOrEqual(t, a.Conn.Caps().MaxReads, 2)
	const reads, size = 32, 60_000
	scribble(b.Region.Mem, 4)
	var wrs []rdma.WorkRequest
	for i := range uint64(reads) {
		wrs = append(wrs, rdma.WorkRequest{ID: i, Op: rdma.OpRead, Local: a.Local(i*size, size), Remote: b.At(i * size)})
	}
	b.Recv(t, 1, 3<<20, 8)
	a.Post(t, append(wrs, rdma.WorkRequest{Op: rdma.OpSend, Inline: []byte("behind")})...)
	for i := range uint64(reads) {
		require.Equal(t, i, a.Next(t).ID)
	}
	b.Next(t)
	equal(t, b.Region.Mem[:reads*size], a.Region.Mem[:reads*size])
}

// Each end owes the other more than any buffer holds.
func (s *suite) readsBothWays(t *testing.T) {
	const reads, size = 12, 1 << 20
	a, b := s.connect(t, Config{Size: 2 * reads * size})
	half := uint64(reads * size)
	scribble(a.Region.Mem[:half], 5)
	scribble(b.Region.Mem[:half], 6)
	ends := []struct{ own, peer *End }{{a, b}, {b, a}}
	for _, e := range ends {
		var wrs []rdma.WorkRequest
		for i := range uint64(reads) {
			wrs = append(wrs, rdma.WorkRequest{ID: i, Op: rdma.OpRead, Local: e.own.Local(half+i*size, size), Remote: e.peer.At(i * size)})
		}
		e.own.Post(t, wrs...)
	}
	for _, e := range ends {
		for i := range uint64(reads) {
			require.Equal(t, i, e.own.Next(t).ID, fmt.Sprintf("Read %d", i))
		}
		equal(t, e.peer.Region.Mem[:half], e.own.Region.Mem[half:])
	}
}
