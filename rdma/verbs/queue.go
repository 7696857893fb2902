//go:build verbs && cgo

package verbs

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"pmnbd/rdma"
)

// recvBit tells receives from sends in what the device calls a request's ID; the
// rest is the request's position in its queue.
const recvBit = 1 << 63

// slots is the account of a work queue: what was posted, by position. A slot is
// free again when its completion, or that of one behind it, was polled.
type slots struct {
	ring []slot
	// posted ≥ passed ≥ retired: what is before passed has completed, as far as the
	// completions tell.
	posted, passed, retired uint64
}

type slot struct {
	id             uint64
	op             rdma.Opcode
	signaled, done bool
	len            uint32 // of a receive that is done
}

func (s *slots) at(n uint64) *slot { return &s.ring[n%uint64(len(s.ring))] }
func (s *slots) free() int         { return len(s.ring) - int(s.posted-s.retired) }

// completions is a ring of those taken from the device and not yet polled. It
// never overflows: a slot is taken again only after its completion was polled.
type completions struct {
	ring           []entry
	pushed, popped uint64
}

type entry struct {
	rdma.Completion
	next uint64 // position behind the request
}

// errQueueFull: there is no room for all of the receives.
var errQueueFull = errors.New("the receive queue is full")

// Post implements rdma.Conn. A request that is wrong is not taken, nor are those
// behind it, and the connection lives on.
func (c *Conn) Post(wrs []rdma.WorkRequest) (posted int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		n, err := c.describe(wrs[posted:])
		if n == 0 {
			return posted, err
		}
		if perr := sysError("post", C.shim_post(c.q, C.int(n))); perr != nil {
			c.broken(fmt.Errorf("%s: %w", c.addr, perr))
			return posted + int(c.q.posted), c.failure()
		}
		posted += n
		if n < C.SHIM_BATCH {
			return posted, err
		}
	}
}

// describe writes descriptors of the first of wrs, as many as a call takes and the
// queue has room for, and gives them their slots. An error is that of the request
// behind them. The caller holds mu.
func (c *Conn) describe(wrs []rdma.WorkRequest) (n int, err error) {
	c.d.mu.RLock()
	defer c.d.mu.RUnlock()
	c.qmu.Lock()
	defer c.qmu.Unlock()
	if err := c.failure(); err != nil {
		return 0, err
	}
	wrs = wrs[:min(len(wrs), C.SHIM_BATCH, c.sends.free())]
	for n < len(wrs) {
		wr, to := &wrs[n], &c.q.wr[n]
		if err := c.describeOne(wr, to); err != nil {
			return n, fmt.Errorf("post operation %d: %w", wr.Op, err)
		}
		to.id = C.uint64_t(c.sends.posted)
		*c.sends.at(c.sends.posted) = slot{id: wr.ID, op: wr.Op, signaled: to.signaled != 0}
		c.sends.posted++
		n++
	}
	return n, nil
}

// describeOne checks wr and writes it to a descriptor.
func (c *Conn) describeOne(wr *rdma.WorkRequest, to *C.struct_shim_wr) error {
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
			// Bytes on both sides.
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
	addr, lkey, err := c.d.local(wr.Local, need)
	if err != nil {
		return err
	}
	to.addr, to.lkey, to.len = C.uint64_t(addr), C.uint32_t(lkey), C.uint32_t(wr.Local.Len)
	to.remote_addr, to.rkey = C.uint64_t(wr.Remote.Addr), C.uint32_t(wr.Remote.Key)
	return nil
}

// PostRecv implements rdma.Conn. It takes all of wrs or none, unless the device
// fails.
func (c *Conn) PostRecv(wrs []rdma.WorkRequest) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.d.mu.RLock()
	defer c.d.mu.RUnlock()
	c.qmu.Lock()
	err := c.failure()
	if err == nil && len(wrs) > c.recvs.free() {
		err = errQueueFull
	}
	for i := 0; i < len(wrs) && err == nil; i++ {
		_, _, err = c.d.local(wrs[i].Local, rdma.LocalWrite)
	}
	c.qmu.Unlock()
	if err != nil {
		return fmt.Errorf("post %d receives: %w", len(wrs), err)
	}
	for len(wrs) > 0 {
		n := min(len(wrs), C.SHIM_BATCH)
		if err := c.postRecv(wrs[:n]); err != nil {
			return err
		}
		wrs = wrs[n:]
	}
	return nil
}

// postRecv posts what one call takes of receives that are sound. The caller holds
// mu and d.mu.
func (c *Conn) postRecv(wrs []rdma.WorkRequest) error {
	c.qmu.Lock()
	for i := range wrs {
		addr, lkey, _ := c.d.local(wrs[i].Local, rdma.LocalWrite) // checked before
		to := &c.q.wr[i]
		to.addr, to.lkey, to.len = C.uint64_t(addr), C.uint32_t(lkey), C.uint32_t(wrs[i].Local.Len)
		to.id = C.uint64_t(c.recvs.posted | recvBit)
		*c.recvs.at(c.recvs.posted) = slot{id: wrs[i].ID, op: rdma.OpRecv, signaled: true}
		c.recvs.posted++
	}
	c.qmu.Unlock()
	if err := sysError("post receives", C.shim_post_recv(c.q, C.int(len(wrs)))); err != nil {
		c.broken(fmt.Errorf("%s: %w", c.addr, err))
		return c.failure()
	}
	return nil
}

// fetch takes what the device has completed. The caller holds qmu.
func (c *Conn) fetch() {
	for c.err.Load() == nil {
		n := int(C.shim_poll(c.q))
		if n < 0 {
			c.fail(fmt.Errorf("%s: poll the completion queue: %w", c.addr, rdma.ErrLost))
		}
		for i := range n {
			c.take(&c.q.wc[i])
		}
		if n < C.SHIM_BATCH {
			return
		}
	}
}

// take notes a completion, and pushes it and those behind it when all before it
// have come: siw completes a Write before the Read that was posted ahead of it.
func (c *Conn) take(wc *C.struct_shim_wc) {
	if c.err.Load() != nil {
		return
	}
	s := &c.sends
	if uint64(wc.id)&recvBit != 0 {
		s = &c.recvs
	}
	done := s.at(uint64(wc.id) &^ recvBit)
	if wc.status != C.IBV_WC_SUCCESS {
		err := fmt.Errorf("%s: %w", c.addr, statusError(done.op, wc.status, wc.vendor_err))
		if done.op == rdma.OpRecv && wc.status != C.IBV_WC_WR_FLUSH_ERR {
			c.keep(err) // the device refuses what the peer sent, see refused
		} else {
			c.fail(err)
		}
		return
	}
	done.done = true
	if done.op == rdma.OpRecv {
		done.len = uint32(wc.len)
	}
	for ; s.passed != s.posted; s.passed++ {
		next := s.at(s.passed)
		if !next.signaled {
			continue // one behind it tells
		}
		if !next.done {
			return
		}
		c.cq.ring[c.cq.pushed%uint64(len(c.cq.ring))] = entry{rdma.Completion{ID: next.id, Op: next.op, Len: next.len}, s.passed + 1}
		c.cq.pushed++
	}
}

// ready reports whether Poll has completions, else its error.
func (c *Conn) ready() (bool, error) {
	c.qmu.Lock()
	defer c.qmu.Unlock()
	if c.cq.popped == c.cq.pushed {
		c.fetch()
	}
	if c.cq.popped != c.cq.pushed {
		return true, nil
	}
	return false, c.failure()
}

// Poll implements rdma.Conn.
func (c *Conn) Poll(cs []rdma.Completion) (int, error) {
	c.qmu.Lock()
	defer c.qmu.Unlock()
	q := &c.cq
	if q.popped == q.pushed {
		if c.fetch(); q.popped == q.pushed {
			return 0, c.failure()
		}
	}
	n := 0
	for n < len(cs) && q.popped != q.pushed {
		e := &q.ring[q.popped%uint64(len(q.ring))]
		q.popped++
		cs[n] = e.Completion
		n++
		if e.Op == rdma.OpRecv {
			c.recvs.retired = e.next
		} else {
			c.sends.retired = e.next
		}
	}
	return n, nil
}

// Wait implements rdma.Conn.
func (c *Conn) Wait() error {
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
		if err := c.comp.until(c.sleep); err != nil && c.failure() == nil {
			c.broken(fmt.Errorf("%s: wait for completions: %w: %w", c.addr, err, rdma.ErrLost))
		}
	}
}

// slept says whether there is something to look at, and is called again when the
// completion channel has an event. It asks for one event at a time: what was not
// taken yet tells of all that comes until then.
func (c *Conn) slept(uintptr) bool {
	if !c.armed {
		c.armed = true
		C.shim_arm(c.q)
		some, err := c.ready() // it may have come before the event was asked for
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
