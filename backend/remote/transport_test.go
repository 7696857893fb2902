package remote

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// What a transport takes in part, or not at all, though it had said that there is room,
// is a lost connection (design §6.2): nobody hears of it but the log.
func TestPartialPost(t *testing.T) {
	for name, tt := range map[string]struct {
		taken int
		err   error
	}{
		"a part, and an error": {1, rdma.ErrLost},
		"nothing":              {0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := fake(t, rdmafake.Config{})
			odd := &odd{taken: tt.taken, err: tt.err}
			p.provider = odd.of(p.provider)
			d := p.dialPatient(t, 1)
			c := backendtest.NewClient(t, d)
			epoch := d.Snapshot().Epoch
			odd.armed.Store(true)
			want := backendtest.Pattern(block, 1)
			require.NoError(t, c.Do(c.Write(0, want, 0), c.Flush()))
			require.False(t, odd.armed.Load())
			require.Equal(t, epoch+1, d.Snapshot().Epoch)
			require.Equal(t, want, p.region.Data()[:block])
			require.NoError(t, d.Close())
		})
	}
}

// An initiator refuses a device of its own that places in any order, as a target does.
func TestDeviceThatPlacesInAnyOrder(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	p.provider = (&odd{disorderly: true}).of(p.provider)
	_, err := Dial(context.Background(), p.config(t))
	require.ErrorIs(t, err, rdma.ErrNotSupported)
	require.ErrorContains(t, err, "in order")
}

// What is odd about connections: they place in any order, or, when that is armed, one
// takes less of a post than there is room for.
type odd struct {
	disorderly bool
	armed      atomic.Bool
	taken      int
	err        error
}

func (o *odd) of(p rdma.Provider) rdma.Provider {
	return wrapped{p, func(c rdma.Conn) rdma.Conn { return oddConn{c, o} }}
}

type oddConn struct {
	rdma.Conn
	o *odd
}

func (c oddConn) Caps() rdma.Caps {
	caps := c.Conn.Caps()
	caps.OrderedPlacement = !c.o.disorderly
	return caps
}

func (c oddConn) Post(wrs []rdma.WorkRequest) (int, error) {
	if len(wrs) <= c.o.taken || !c.o.armed.CompareAndSwap(true, false) {
		return c.Conn.Post(wrs)
	}
	n := 0
	if c.o.taken > 0 {
		var err error
		if n, err = c.Conn.Post(wrs[:c.o.taken]); err != nil {
			return n, err
		}
	}
	return n, c.o.err
}
