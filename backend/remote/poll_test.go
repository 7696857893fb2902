package remote

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// Completions are handled before anybody takes the next ones: two pollers that took
// turns between the two would meet the target's answers out of order, and a healthy
// device would fail.
func TestOnePollerAtATime(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	wire := p.provider.(*rdmafake.Provider)
	g := &gate{took: make(chan struct{}), proceed: make(chan struct{})}
	p.provider = wrapped{wire, func(c rdma.Conn) rdma.Conn { return gatedConn{c, g} }}
	d := p.dial(t)
	c := backendtest.NewClient(t, d)
	wire.Pause() // so that the completer takes what comes
	read := c.Read(0, block, 0)
	c.Submit(read)
	g.armed.Store(true)
	wire.Resume()
	<-g.took
	if l := d.legs[0].lanes[0]; l.polling.TryLock() {
		l.polling.Unlock()
		t.Error("another poller could take the next completions before these are handled")
	}
	close(g.proceed)
	require.NoError(t, c.Wait(read))
	require.NoError(t, d.Close())
}

// A gate is for connections of which one, when armed, stays in the Poll that took
// completions.
type gate struct {
	armed         atomic.Bool
	took, proceed chan struct{}
}

type gatedConn struct {
	rdma.Conn
	g *gate
}

func (c gatedConn) Poll(cs []rdma.Completion) (int, error) {
	n, err := c.Conn.Poll(cs)
	if n > 0 && c.g.armed.CompareAndSwap(true, false) {
		close(c.g.took)
		<-c.g.proceed
	}
	return n, err
}
