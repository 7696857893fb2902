//go:build verbs && cgo

package verbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"pmnbd/rdma"
	"pmnbd/rdma/internal/queue"
)

// recvBit tells receives from sends in the ID that the device knows a request by. The
// other bits are the request's position in its queue.
const recvBit = 1 << 63

// A slots is the account of a work queue. posted ≥ passed, and every signalled request
// before passed has completed. How many are retired, conn.cq says.
type slots struct {
	queue.Ring[slot]
	posted, passed uint64
}

// A slot is a posted request.
type slot struct {
	id             uint64
	op             rdma.Opcode
	signaled, done bool
	len            uint32 // of a receive that is done, in bytes
}

// free is how many more requests fit.
func (s *slots) free(retired uint64) int { return int(s.Len() - (s.posted - retired)) }

// add takes the next position for a request.
func (s *slots) add(r slot) (position uint64) {
	position = s.posted
	*s.At(position) = r
	s.posted++
	return position
}

// Post implements rdma.Conn. It stops at the first request that is wrong and returns
// that one's error. The connection lives on.
func (c *conn) Post(wrs []rdma.WorkRequest) (posted int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		n, err := c.describeLocked(wrs[posted:])
		if n == 0 {
			return posted, err
		}
		if perr := sysError("post", C.shim_post(c.q, C.int(n))); perr != nil {
			c.broken(fmt.Errorf("%s: %w", c.addr, perr))
			return posted + int(c.q.posted), c.cq.Err()
		}
		posted += n
		if n < C.SHIM_BATCH {
			return posted, err
		}
	}
}

// describeLocked writes descriptors of the first of wrs, as many as one call takes and
// the queue has room for, and gives them their slots. An error is that of the next
// request.
func (c *conn) describeLocked(wrs []rdma.WorkRequest) (n int, err error) {
	c.d.mu.RLock()
	defer c.d.mu.RUnlock()
	c.qmu.Lock()
	defer c.qmu.Unlock()
	if err := c.cq.Err(); err != nil {
		return 0, err
	}
	wrs = wrs[:min(len(wrs), C.SHIM_BATCH, c.sends.free(c.cq.Sends()))]
	for n < len(wrs) {
		wr, to := &wrs[n], &c.q.wr[n]
		if err := c.describeOneLocked(wr, to); err != nil {
			return n, fmt.Errorf("post operation %d: %w", wr.Op, err)
		}
		to.id = C.uint64_t(c.sends.add(slot{id: wr.ID, op: wr.Op, signaled: to.signaled != 0}))
		n++
	}
	return n, nil
}

// describeOneLocked checks wr and writes it to a descriptor.
func (c *conn) describeOneLocked(wr *rdma.WorkRequest, to *C.struct_shim_wr) error {
	to.signaled, to.inlined = 0, 0
	if wr.Signaled || wr.Op == rdma.OpRead {
		to.signaled = 1
	}
	need := rdma.Access(0)
	switch wr.Op {
	case rdma.OpSend:
		to.op = C.SHIM_SEND
		if wr.Inline != nil {
			if len(wr.Inline) > C.SHIM_INLINE {
				return fmt.Errorf("%d bytes inline: %w", len(wr.Inline), rdma.ErrLocalAccess)
			}
			to.inlined = 1
			// Both sides are bytes.
			to.len = C.uint32_t(copy(unsafe.Slice((*byte)(&to.inl[0]), len(to.inl)), wr.Inline))
			return nil
		}
	case rdma.OpWrite:
		to.op = C.SHIM_WRITE
		if wr.Inline != nil {
			return fmt.Errorf("inline: %w", rdma.ErrLocalAccess)
		}
	case rdma.OpRead:
		if c.caps.MaxReads == 0 {
			return fmt.Errorf("the peer answers no Reads: %w", rdma.ErrNotSupported)
		}
		to.op = C.SHIM_READ
		need = rdma.LocalWrite
	case rdma.OpFlush:
		if !c.caps.PersistentFlush {
			return fmt.Errorf("%s, or this build, has no FLUSH: %w", c.d.dev.name, rdma.ErrNotSupported)
		}
		to.op = C.SHIM_FLUSH
		to.addr, to.lkey, to.len = 0, 0, C.uint32_t(wr.Local.Len)
		to.remote_addr, to.rkey = C.uint64_t(wr.Remote.Addr), C.uint32_t(wr.Remote.Key)
		return nil
	default:
		return rdma.ErrNotSupported
	}
	addr, lkey, err := c.d.localLocked(wr.Local, need)
	if err != nil {
		return err
	}
	to.addr, to.lkey, to.len = C.uint64_t(addr), C.uint32_t(lkey), C.uint32_t(wr.Local.Len)
	to.remote_addr, to.rkey = C.uint64_t(wr.Remote.Addr), C.uint32_t(wr.Remote.Key)
	return nil
}

// PostRecv implements rdma.Conn. It takes all of wrs or none, unless the device
// fails.
func (c *conn) PostRecv(wrs []rdma.WorkRequest) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.d.mu.RLock()
	defer c.d.mu.RUnlock()
	c.qmu.Lock()
	err := c.cq.Err()
	if err == nil && len(wrs) > c.recvs.free(c.cq.Recvs()) {
		err = queue.ErrRecvFull
	}
	for i := 0; i < len(wrs) && err == nil; i++ {
		_, _, err = c.d.localLocked(wrs[i].Local, rdma.LocalWrite)
	}
	c.qmu.Unlock()
	if err != nil {
		return fmt.Errorf("post %d receives: %w", len(wrs), err)
	}
	for len(wrs) > 0 {
		n := min(len(wrs), C.SHIM_BATCH)
		if err := c.postRecvLocked(wrs[:n]); err != nil {
			return err
		}
		wrs = wrs[n:]
	}
	return nil
}

// postRecvLocked posts receives that PostRecv has checked, as many as one call takes.
func (c *conn) postRecvLocked(wrs []rdma.WorkRequest) error {
	c.qmu.Lock()
	for i := range wrs {
		addr, lkey, _ := c.d.localLocked(wrs[i].Local, rdma.LocalWrite) // PostRecv has checked it
		to := &c.q.wr[i]
		to.addr, to.lkey, to.len = C.uint64_t(addr), C.uint32_t(lkey), C.uint32_t(wrs[i].Local.Len)
		to.id = C.uint64_t(c.recvs.add(slot{id: wrs[i].ID, op: rdma.OpRecv, signaled: true}) | recvBit)
	}
	c.qmu.Unlock()
	if err := sysError("post receives", C.shim_post_recv(c.q, C.int(len(wrs)))); err != nil {
		c.broken(fmt.Errorf("%s: %w", c.addr, err))
		return c.cq.Err()
	}
	return nil
}

// fetchLocked takes what the device has completed.
func (c *conn) fetchLocked() {
	for c.cq.Err() == nil {
		n := int(C.shim_poll(c.q))
		if n < 0 {
			c.failLocked(fmt.Errorf("%s: poll the completion queue: %w", c.addr, rdma.ErrLost))
		}
		for i := range n {
			c.takeLocked(&c.q.wc[i])
		}
		if n < C.SHIM_BATCH {
			return
		}
	}
}

// takeLocked notes that a request is done. It then pushes all completions at the front of
// its queue that are complete: siw completes a Write before the Read that was posted ahead
// of it.
func (c *conn) takeLocked(wc *C.struct_shim_wc) {
	if c.cq.Err() != nil {
		return
	}
	s := &c.sends
	if uint64(wc.id)&recvBit != 0 {
		s = &c.recvs
	}
	done := s.At(uint64(wc.id) &^ recvBit)
	if wc.status != C.IBV_WC_SUCCESS {
		err := fmt.Errorf("%s: %w", c.addr, statusError(done.op, wc.status, wc.vendor_err))
		if done.op == rdma.OpRecv && wc.status != C.IBV_WC_WR_FLUSH_ERR {
			c.keepLocked(err) // the device refuses what the peer sent, see refused
		} else {
			c.failLocked(err)
		}
		return
	}
	done.done = true
	if done.op == rdma.OpRecv {
		done.len = uint32(wc.len)
	}
	for ; s.passed != s.posted; s.passed++ {
		next := s.At(s.passed)
		if !next.signaled {
			continue // the next signalled request stands for it
		}
		if !next.done {
			return
		}
		c.cq.Push(rdma.Completion{ID: next.id, Op: next.op, Len: next.len}, s.passed+1)
	}
}

// ready reports whether Poll has completions. When it has none, ready returns the
// connection's failure.
func (c *conn) ready() (bool, error) {
	c.qmu.Lock()
	defer c.qmu.Unlock()
	if c.cq.Empty() {
		c.fetchLocked()
	}
	return c.cq.Ready()
}

// Poll implements rdma.Conn.
func (c *conn) Poll(cs []rdma.Completion) (int, error) {
	c.qmu.Lock()
	defer c.qmu.Unlock()
	if c.cq.Empty() {
		c.fetchLocked()
	}
	return c.cq.Pop(cs)
}

// Wait implements rdma.Conn.
func (c *conn) Wait() error {
	c.waiting.Lock()
	defer c.waiting.Unlock()
	spinning := c.d.cfg.Spin > 0
	var until time.Time
	for {
		if some, err := c.ready(); some || err != nil {
			return err
		}
		if spinning {
			now := time.Now()
			if until.IsZero() {
				until = now.Add(c.d.cfg.Spin)
			}
			spinning = now.Before(until)
			continue
		}
		if err := c.comp.until(c.sleep); err != nil && c.cq.Err() == nil {
			c.broken(fmt.Errorf("%s: wait for completions: %w: %w", c.addr, err, rdma.ErrLost))
		}
	}
}

// slept reports whether there is something to look at. If there is not, Go's poller calls
// it again when the completion channel has an event. It asks for one event at a time: an
// event that is not taken yet covers everything that comes before it is.
func (c *conn) slept(uintptr) bool {
	if !c.armed {
		c.armed = true
		C.shim_arm(c.q)
		some, err := c.ready() // a completion may have come before the event was asked for
		return some || err != nil
	}
	switch errno := syscall.Errno(C.shim_event(c.q)); errno {
	case 0:
		c.armed = false
	case syscall.EAGAIN:
		return false
	default:
		c.broken(fmt.Errorf("%s: take an event: %w: %w", c.addr, errno, rdma.ErrLost))
	}
	return true
}
