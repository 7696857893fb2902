package iwarp

import (
	"errors"
	"fmt"
	"time"

	"pmnbd/rdma"
)

// completions holds the receive queue and the completion queue. Its rings never
// overflow: a slot of a work queue is taken again only after its completion was
// polled.
type completions struct {
	recvs          []receive // ring
	recvPosted     uint64
	recvTaken      uint64
	recvRetired    uint64
	sendRetired    uint64
	entries        []entry // ring
	pushed, popped uint64
	// woken: the read deadline has been moved to wake Wait.
	woken bool
	stats Counts // of what was received
}

// A receive is a posted receive.
type receive struct {
	id  uint64
	r   *region // nil: of length 0
	off uint64
	len uint32
}

// An entry is one of the completion queue.
type entry struct {
	rdma.Completion
	// retires: how many requests of the send queue are retired by polling it.
	retires uint64
}

var errQueueFull = errors.New("the receive queue is full")

// maxSkipped is how many times in a row Wait may return without having looked at
// the socket.
const maxSkipped = 8

func (q *completions) init(cfg rdma.ConnConfig) {
	q.recvs = make([]receive, cfg.MaxRecvWR)
	q.entries = make([]entry, cfg.MaxSendWR+cfg.MaxRecvWR)
}

// PostRecv implements rdma.Conn. It takes all of wrs or none.
func (c *Conn) PostRecv(wrs []rdma.WorkRequest) error {
	c.d.mu.RLock()
	defer c.d.mu.RUnlock()
	c.qmu.Lock()
	defer c.qmu.Unlock()
	if err := c.failure(); err != nil {
		return err
	}
	q := &c.cq
	if uint64(len(wrs)) > uint64(len(q.recvs))-(q.recvPosted-q.recvRetired) {
		return fmt.Errorf("post %d receives: %w", len(wrs), errQueueFull)
	}
	for i := range wrs {
		wr := &wrs[i]
		r, err := c.d.local(wr.Local, rdma.LocalWrite)
		if err != nil {
			return fmt.Errorf("post a receive: %w", err)
		}
		// Counted below, when all of them are sound.
		q.recvs[(q.recvPosted+uint64(i))%uint64(len(q.recvs))] = receive{wr.ID, r, wr.Local.Off, wr.Local.Len}
	}
	q.recvPosted += uint64(len(wrs))
	return nil
}

// takeReceive takes the oldest receive for a message that arrives.
func (c *Conn) takeReceive(r *receive) bool {
	c.qmu.Lock()
	defer c.qmu.Unlock()
	q := &c.cq
	if q.recvTaken == q.recvPosted {
		return false
	}
	*r = q.recvs[q.recvTaken%uint64(len(q.recvs))]
	q.recvTaken++
	return true
}

// push adds a completion, unless the connection failed. The caller holds qmu.
func (c *Conn) push(e entry) {
	if c.err.Load() == nil {
		q := &c.cq
		q.entries[q.pushed%uint64(len(q.entries))] = e
		q.pushed++
	}
}

// Poll implements rdma.Conn.
func (c *Conn) Poll(cs []rdma.Completion) (int, error) {
	c.qmu.Lock()
	defer c.qmu.Unlock()
	q := &c.cq
	if q.popped == q.pushed {
		return 0, c.failure()
	}
	n := 0
	for n < len(cs) && q.popped != q.pushed {
		e := &q.entries[q.popped%uint64(len(q.entries))]
		q.popped++
		cs[n] = e.Completion
		n++
		if e.Op == rdma.OpRecv {
			q.recvRetired++
		} else {
			q.sendRetired = e.retires
		}
	}
	return n, nil
}

// ready reports whether Poll has completions, else its error.
func (c *Conn) ready() (bool, error) {
	c.qmu.Lock()
	defer c.qmu.Unlock()
	if c.cq.popped != c.cq.pushed {
		return true, nil
	}
	return false, c.failure()
}

// A deadline in the past, and none.
var past, never = time.Unix(1, 0), time.Time{}

// wake makes Wait look at the completion queue, if it sleeps in the socket.
func (c *Conn) wake() {
	c.qmu.Lock()
	defer c.qmu.Unlock()
	if !c.cq.woken {
		c.cq.woken = true
		_ = c.sock.Conn().SetReadDeadline(past) // closed: Wait is awake
	}
}

// awake undoes wake.
func (c *Conn) awake() {
	c.qmu.Lock()
	defer c.qmu.Unlock()
	c.cq.woken = false
	_ = c.sock.Conn().SetReadDeadline(never)
}
