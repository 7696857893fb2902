package iwarp

import (
	"fmt"
	"time"

	"pmnbd/rdma"
	"pmnbd/rdma/internal/queue"
)

// completions holds the receive queue and the completion queue. conn.qmu guards it.
type completions struct {
	queue.Completions
	recvs         queue.Ring[receive]
	posted, taken uint64 // receives
	// woken means that the read deadline has been moved to wake Wait.
	woken bool
}

// A receive is a posted receive.
type receive struct {
	id  uint64
	r   *region // nil if len is 0 and the request named no region
	off uint64
	len uint32
}

// maxSkipped is how many times in a row Wait may return without having looked at
// the socket.
const maxSkipped = 8

func (q *completions) init(cfg rdma.ConnConfig) {
	q.Init(cfg.MaxSendWR, cfg.MaxRecvWR)
	q.recvs = queue.NewRing[receive](cfg.MaxRecvWR)
}

// PostRecv implements rdma.Conn. It takes all of wrs or none.
func (c *conn) PostRecv(wrs []rdma.WorkRequest) error {
	c.d.mu.RLock()
	defer c.d.mu.RUnlock()
	c.qmu.Lock()
	defer c.qmu.Unlock()
	q := &c.cq
	if err := q.Err(); err != nil {
		return err
	}
	if q.posted-q.Recvs()+uint64(len(wrs)) > q.recvs.Len() {
		return fmt.Errorf("post %d receives: %w", len(wrs), queue.ErrRecvFull)
	}
	for i := range wrs {
		wr := &wrs[i]
		r, err := c.d.localLocked(wr.Local, rdma.LocalWrite)
		if err != nil {
			return fmt.Errorf("post a receive: %w", err)
		}
		// posted counts them below, once every one is known to be sound.
		*q.recvs.At(q.posted + uint64(i)) = receive{wr.ID, r, wr.Local.Off, wr.Local.Len}
	}
	q.posted += uint64(len(wrs))
	return nil
}

// takeReceive takes the oldest receive for a message that arrives. It reports false
// if none is posted.
func (c *conn) takeReceive(r *receive) bool {
	c.qmu.Lock()
	defer c.qmu.Unlock()
	q := &c.cq
	if q.taken == q.posted {
		return false
	}
	*r = *q.recvs.At(q.taken)
	q.taken++
	return true
}

// received completes r, the receive that was taken last, with a message of n bytes.
func (c *conn) received(r *receive, n uint32) {
	c.qmu.Lock()
	defer c.qmu.Unlock()
	c.cq.Push(rdma.Completion{ID: r.id, Op: rdma.OpRecv, Len: n}, c.cq.taken)
}

// Poll implements rdma.Conn.
func (c *conn) Poll(cs []rdma.Completion) (int, error) {
	c.qmu.Lock()
	defer c.qmu.Unlock()
	return c.cq.Pop(cs)
}

// ready reports whether Poll has completions. When it has none, ready returns the
// connection's failure.
func (c *conn) ready() (bool, error) {
	c.qmu.Lock()
	defer c.qmu.Unlock()
	return c.cq.Ready()
}

// past is a deadline that makes a blocked read return; never is none.
var past, never = time.Unix(1, 0), time.Time{}

// wake makes Wait look at the completion queue if it sleeps in the socket.
func (c *conn) wake() {
	c.qmu.Lock()
	defer c.qmu.Unlock()
	if !c.cq.woken {
		c.cq.woken = true
		_ = c.sock.SetReadDeadline(past) // if it is closed, Wait is awake
	}
}

// awake undoes wake.
func (c *conn) awake() {
	c.qmu.Lock()
	defer c.qmu.Unlock()
	c.cq.woken = false
	_ = c.sock.SetReadDeadline(never)
}
