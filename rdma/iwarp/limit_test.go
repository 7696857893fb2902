package iwarp

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/rdma"
	"pmnbd/rdma/rdmatest"
)

// An encrypted connection is lost once its keys have encrypted enough, at whichever end that is. The
// requests that were completed before were carried out.
func TestKeysAreUsedUp(t *testing.T) {
	const n, size = 32, 64 << 10
	for name, op := range map[string]rdma.Opcode{"the initiator's": rdma.OpWrite, "the target's": rdma.OpRead} {
		for _, encrypt := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				p := New(Config{Encrypt: encrypt, keyBytes: n / 2 * size})
				a, b := rdmatest.Connect(t, p, "127.0.0.1:0", rdmatest.Config{})
				var wrs []rdma.WorkRequest
				for i := range uint64(n) {
					wrs = append(wrs, rdma.WorkRequest{ID: i, Op: op, Signaled: true, Local: a.Local(0, size), Remote: b.At(0)})
				}
				if !encrypt {
					a.Post(t, wrs...)
					for i := range uint64(n) {
						require.Equal(t, i, a.Next(t).ID)
					}
					return
				}
				_, _ = a.Conn.Post(wrs) // it may be lost already
				ours, theirs := a.Failed(t), b.Failed(t)
				require.ErrorIs(t, ours, rdma.ErrLost)
				require.ErrorIs(t, theirs, rdma.ErrLost)
				says := ours
				if op == rdma.OpRead {
					says = theirs
				}
				require.ErrorContains(t, says, "a new connection gets new ones")
			})
		}
	}
}

// Once every STag has been given, a process registers no memory any more, rather than give one
// again that a peer may still name. What it has registered stays as it is.
func TestSTagsAreUsedUp(t *testing.T) {
	e := connect(t, 4096, rdma.ConnConfig{})
	keys.mu.Lock()
	issued := keys.issued
	keys.issued = math.MaxUint32
	keys.mu.Unlock()
	defer func() {
		keys.mu.Lock()
		keys.issued = issued
		keys.mu.Unlock()
	}()

	_, err := e.b.d.Register(rdmatest.Memory(t, 4096), rdmatest.All)
	require.ErrorIs(t, err, errNoKeys)
	post(t, e.a, []rdma.WorkRequest{{
		ID: 1, Op: rdma.OpWrite, Signaled: true, Local: rdma.SGE{Region: e.ra, Len: 4096}, Remote: at(e.rb, 0),
	}})
	next(t, e.a, 1)
}

// scatter can be undone, so no two numbers become the same STag.
func TestScatter(t *testing.T) {
	inverse := func(odd uint32) uint32 { // modulo 2^32: each round doubles the bits that are right
		i := odd
		for range 5 {
			i *= 2 - odd*i
		}
		return i
	}
	undo := func(x uint32) uint32 {
		x ^= x >> 16
		x *= inverse(0x846ca68b)
		x ^= x>>15 ^ x>>30
		x *= inverse(0x7feb352d)
		return x ^ x>>16
	}
	for range 10000 {
		x := rand.Uint32()
		require.Equal(t, x, undo(scatter(x)))
	}
}
