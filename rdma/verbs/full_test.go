//go:build verbs && cgo

package verbs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/rdma"
	"pmnbd/rdma/internal/queue"
	"pmnbd/rdma/rdmatest"
)

// A connection's accounts keep it from ever filling a queue of the device. These tests
// falsify the accounts.

// A device may take only part of what one call posts. Post reports that part, because it
// goes out, and the connection fails.
func (b bench) partialPost(t *testing.T) {
	if !strings.HasPrefix(b.dev.name, "rxe") {
		t.Skipf("how far %s rounds a queue up, or keeps up with a call, is not known", b.dev.name)
	}
	x, y := rdmatest.Connect(t, b.p, b.addr, rdmatest.Config{ConnConfig: rdma.ConnConfig{MaxSendWR: 4}})
	c := x.Conn.(*conn)
	batch := make([]rdma.WorkRequest, len(c.q.wr)) // as many as one call takes
	for i := range batch {
		batch[i] = rdma.WorkRequest{Op: rdma.OpWrite, Local: x.Local(0, 64), Remote: y.At(0)}
	}
	c.qmu.Lock()
	c.sends.Ring = queue.NewRing[slot](len(batch))
	c.qmu.Unlock()
	n, err := c.Post(batch)
	require.ErrorIs(t, err, rdma.ErrLost)
	require.GreaterOrEqual(t, n, 4)
	require.Less(t, n, len(batch))
	require.Equal(t, err, x.Failed(t))
	require.ErrorIs(t, y.Failed(t), rdma.ErrLost, "the peer hears of it")
}

// A completion queue that overflows loses completions, so its connection fails.
func (b bench) completionQueueError(t *testing.T) {
	ends, regions := b.pair(t, b.p)
	c := ends[0].(*conn)
	send := []rdma.WorkRequest{{Op: rdma.OpSend, Inline: []byte("x"), Signaled: true}}
	recv := []rdma.WorkRequest{{Local: rdma.SGE{Region: regions[1], Len: 64}}}
	cs := make([]rdma.Completion, 1)
	const many = 1 << 14 // more than any device rounds the queue up to
	c.qmu.Lock()
	c.sends.Ring = queue.NewRing[slot](many) // never full, though nothing is polled
	c.qmu.Unlock()
	var err error
	for i := 0; i < many && err == nil; i++ {
		if err = ends[1].PostRecv(recv); err != nil {
			break
		}
		if _, err = c.Post(send); err != nil {
			break
		}
		for n := 0; n == 0 && err == nil; {
			if err = ends[1].Wait(); err == nil {
				n, err = ends[1].Poll(cs)
			}
		}
	}
	require.ErrorIs(t, err, rdma.ErrLost, "at whichever end")
	require.ErrorContains(t, c.cq.Err(), "CQ error")
}
