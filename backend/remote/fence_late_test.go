package remote

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/rdma"
)

// An answer of a target that is handled late, because the process was stopped, does not open the fence: another life may
// have begun since the target gave it (mirror §4.7).
func TestLateAnswerOpensNoFence(t *testing.T) { synctest.Test(t, testLateAnswer) }

func testLateAnswer(t *testing.T) {
	s := beating(t, 3, 2)
	cfg := s.config(t)
	l := heldAnswers{hold: make(chan struct{}), cut: make(chan struct{}), give: make(chan struct{})}
	for _, i := range []int{1, 2} {
		cfg.Members[i].Provider = wrapped{cfg.Members[i].Provider, l.wrap}
	}
	old, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	c := backendtest.NewClient(t, old)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	time.Sleep(time.Minute + usualHeartbeat)
	close(l.hold)
	time.Sleep(usualHeartbeat + usualHeartbeat/2) // both targets have answered a heartbeat
	close(l.cut)
	time.AfterFunc(usualLease+usualHeartbeat/10, func() { close(l.give) })
	cfg = s.config(t)
	cfg.ID, cfg.StateDir, cfg.Takeover, cfg.Members = [16]byte{7}, t.TempDir(), true, cfg.Members[1:]
	takenOverFrom(t, cfg, old, c)
}

// heldAnswers keeps what targets send from hold on, and gives it at the end of give. From cut on nothing else passes.
type heldAnswers struct{ hold, cut, give chan struct{} }

func (l *heldAnswers) wrap(c rdma.Conn) rdma.Conn {
	return &heldConn{Conn: c, late: l, closed: make(chan struct{})}
}

// A heldConn is a connection whose messages come late.
type heldConn struct {
	rdma.Conn
	late   *heldAnswers
	once   sync.Once
	closed chan struct{}
	kept   []rdma.Completion // of Poll's caller
}

func ended(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (c *heldConn) Wait() error {
	if !ended(c.late.cut) {
		if err := c.Conn.Wait(); !ended(c.late.cut) {
			return err
		}
	}
	give := c.late.give
	if ended(give) {
		give = nil // all is given
	}
	select {
	case <-give:
		return nil
	case <-c.closed:
		return rdma.ErrClosed
	}
}

func (c *heldConn) Poll(cs []rdma.Completion) (n int, err error) {
	if ended(c.late.give) {
		n = copy(cs, c.kept)
		c.kept = c.kept[n:]
		return n, nil
	}
	if ended(c.late.cut) {
		return 0, nil
	}
	n, err = c.Conn.Poll(cs)
	if !ended(c.late.hold) {
		return n, err
	}
	all := cs[:n]
	n = 0
	for _, done := range all {
		if done.Op == rdma.OpRecv {
			c.kept = append(c.kept, done)
		} else {
			cs[n] = done
			n++
		}
	}
	return n, err
}

func (c *heldConn) Post(wrs []rdma.WorkRequest) (int, error) {
	if ended(c.late.cut) {
		return len(wrs), nil
	}
	return c.Conn.Post(wrs)
}

func (c *heldConn) PostRecv(wrs []rdma.WorkRequest) error {
	if ended(c.late.cut) {
		return nil
	}
	return c.Conn.PostRecv(wrs)
}

func (c *heldConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
