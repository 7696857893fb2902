package iwarp

import (
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
