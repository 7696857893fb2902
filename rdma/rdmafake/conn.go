package rdmafake

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"pmnbd/rdma"
)

// A conn is one end of a connection. Provider.mu guards it.
type conn struct {
	p         *Provider
	d         *domain
	peer      *conn
	caps      rdma.Caps
	connected chan struct{}

	recvs    []rdma.WorkRequest
	posted   []rdma.WorkRequest // not carried out, while the wire is paused or this end frozen
	frozen   bool
	built    int // work requests ever posted
	retired  int
	signaled []int // positions of the signalled requests that were not polled yet
	cq       []rdma.Completion
	late     []rdma.Completion // held back because of AnswersFirst
	adapter  []placement       // this end's Writes that the peer's adapter has not placed yet
	bus      []placement       // placed Writes that are not in memory yet, without their data
	received int               // messages
	arrived  atomic.Uint64     // bytes of Writes and answers to Reads
	dialed   bool
	wake     *sync.Cond
	pending  bool // Wait has a reason to return
	waiting  bool // somebody is in Wait
	err      error
	closed   bool
	number   int
	wakes    int // how often Wait has returned
}

// A placement is the effect of a Write: data at off of the memory with that key.
type placement struct {
	key  uint32
	off  uint64
	n    uint32
	data []byte
}

func newConn(d *domain, cfg rdma.ConnConfig, recvs []rdma.WorkRequest) *conn {
	caps := rdma.Caps{
		OrderedPlacement: true, PlacesByDMA: d.p.cfg.PlacesByDMA, PersistentFlush: d.p.cfg.PersistentFlush,
		MaxSendWR: cfg.MaxSendWR, MaxRecvWR: cfg.MaxRecvWR, MaxReads: cfg.MaxReads, MaxInline: 256,
	}
	if caps.MaxSendWR == 0 {
		caps.MaxSendWR = d.p.cfg.MaxSendWR
	}
	if caps.MaxReads == 0 {
		caps.MaxReads = d.p.cfg.MaxReads
	}
	return &conn{p: d.p, d: d, caps: caps, recvs: append([]rdma.WorkRequest(nil), recvs...), wake: sync.NewCond(&d.p.mu)}
}

// Caps implements rdma.Conn.
func (c *conn) Caps() rdma.Caps { return c.caps }

// RemoteAddr implements rdma.Conn.
func (c *conn) RemoteAddr() string { return "fake" }

// Arrived implements rdma.Conn.
func (c *conn) Arrived() uint64 { return c.arrived.Load() }

// PostRecv implements rdma.Conn.
func (c *conn) PostRecv(wrs []rdma.WorkRequest) error {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.recvs = append(c.recvs, wrs...)
	return c.err
}

// Post implements rdma.Conn.
func (c *conn) Post(wrs []rdma.WorkRequest) (posted int, err error) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	for _, wr := range wrs {
		if c.err != nil || c.built-c.retired == c.caps.MaxSendWR {
			break
		}
		wr.Inline = bytes.Clone(wr.Inline)
		if len(wr.Inline) > c.caps.MaxInline {
			c.failLocked(fmt.Errorf("%d inline bytes: %w", len(wr.Inline), rdma.ErrLocalAccess))
			break
		}
		wr.Signaled = wr.Signaled || wr.Op == rdma.OpRead
		c.built++
		if wr.Signaled {
			c.signaled = append(c.signaled, c.built)
		}
		c.posted = append(c.posted, wr)
		posted++
	}
	if c.p.paused || c.frozen {
		return posted, c.err
	}
	held, before, sends := c.pending, c.received, 0
	for _, wr := range wrs[:posted] {
		if wr.Op == rdma.OpSend {
			sends++
		}
	}
	c.runLocked()
	c.pending = held // a completion inside Post need not wake Wait
	if c.p.cfg.AnswersFirst && c.dialed && sends > 0 {
		for c.received < before+sends && c.err == nil {
			c.wake.Wait()
		}
	}
	c.cq = append(c.cq, c.late...)
	c.late = nil
	return posted, c.err
}

// runLocked carries out what was posted.
func (c *conn) runLocked() {
	for len(c.posted) > 0 && c.err == nil {
		c.stepLocked()
	}
}

// stepLocked carries out the oldest request that was posted.
func (c *conn) stepLocked() {
	wr := c.posted[0]
	c.posted = c.posted[1:]
	if err := c.executeLocked(wr); err != nil {
		peer := c.peer
		c.failLocked(err)
		peer.failLocked(err)
		return
	}
	if wr.Signaled {
		c.completeLocked(rdma.Completion{ID: wr.ID, Op: wr.Op, Len: wr.Local.Len})
	}
}

// completeLocked adds a completion, or holds it back because of AnswersFirst.
func (c *conn) completeLocked(done rdma.Completion) {
	if done.Op == rdma.OpRecv {
		c.received++
	} else if c.p.cfg.AnswersFirst && c.dialed {
		c.late = append(c.late, done)
		return
	}
	c.cq = append(c.cq, done)
	c.pending = true
	c.wake.Broadcast()
}

// executeLocked carries out wr.
func (c *conn) executeLocked(wr rdma.WorkRequest) error {
	local := wr.Inline
	if local == nil && wr.Local.Region != nil {
		m := wr.Local.Region.Mem
		if wr.Local.Off > uint64(len(m)) || uint64(wr.Local.Len) > uint64(len(m))-wr.Local.Off {
			return fmt.Errorf("local bounds: %w", rdma.ErrLocalAccess)
		}
		local = m[wr.Local.Off : wr.Local.Off+uint64(wr.Local.Len)]
	}
	if wr.Op != rdma.OpWrite {
		c.placeLocked(func() bool { return true })
	}
	switch wr.Op {
	case rdma.OpWrite, rdma.OpRead:
		need := rdma.RemoteWrite
		if wr.Op == rdma.OpRead {
			need = rdma.RemoteRead
		}
		mem, off, err := c.reachLocked(wr.Remote, uint64(len(local)), need)
		if err != nil {
			return err
		}
		switch {
		case wr.Op == rdma.OpRead:
			c.arrived.Add(uint64(len(local)))
			copy(local, mem)
			c.pushLocked()
		case c.caps.PlacesByDMA: // nobody sees it come
			c.adapter = append(c.adapter, placement{wr.Remote.Key, off, uint32(len(local)), bytes.Clone(local)})
		default:
			c.peer.arrived.Add(uint64(len(local)))
			copy(mem, local)
		}
	case rdma.OpSend:
		if len(c.peer.recvs) == 0 {
			return fmt.Errorf("no receive posted: %w", rdma.ErrRemoteOp)
		}
		rcv := c.peer.recvs[0]
		c.peer.recvs = c.peer.recvs[1:]
		if len(local) > int(rcv.Local.Len) {
			return fmt.Errorf("message too long: %w", rdma.ErrRemoteOp)
		}
		copy(rcv.Local.Region.Mem[rcv.Local.Off:], local)
		c.peer.completeLocked(rdma.Completion{ID: rcv.ID, Op: rdma.OpRecv, Len: uint32(len(local))})
	case rdma.OpFlush:
		_, off, err := c.reachLocked(wr.Remote, uint64(wr.Local.Len), rdma.RemoteFlush)
		if err != nil {
			return err
		}
		if f := c.p.cfg.Flushed; f != nil {
			f(off, wr.Local.Len)
		}
	default:
		return fmt.Errorf("opcode %d: %w", wr.Op, rdma.ErrNotSupported)
	}
	return nil
}

// reachLocked finds n bytes of the peer's memory, for which this end needs the right need,
// and their offset in the region.
func (c *conn) reachLocked(at rdma.Remote, n uint64, need rdma.Access) (mem []byte, off uint64, err error) {
	r := c.peer.d.regions[at.Key]
	if r == nil || r.Access&need == 0 {
		return nil, 0, fmt.Errorf("key %#x: %w", at.Key, rdma.ErrRemoteAccess)
	}
	off = at.Addr - r.Base
	if off > uint64(len(r.Mem)) || n > uint64(len(r.Mem))-off {
		return nil, 0, fmt.Errorf("address %#x: %w", at.Addr, rdma.ErrRemoteAccess)
	}
	return r.Mem[off : off+n], off, nil
}

// placeLocked places, of the Writes in the peer's adapter, those that chosen picks. It
// forgets the others.
func (c *conn) placeLocked(chosen func() bool) {
	for _, w := range c.adapter {
		if r := c.peer.d.regions[w.key]; r != nil && chosen() {
			copy(r.Mem[w.off:], w.data)
			c.bus = append(c.bus, placement{w.key, w.off, w.n, nil})
		}
	}
	clear(c.adapter)
	c.adapter = c.adapter[:0]
}

// pushLocked pushes the placed Writes into memory.
func (c *conn) pushLocked() {
	if f := c.p.cfg.Pushed; f != nil {
		for _, w := range c.bus {
			f(w.off, w.n)
		}
	}
	c.bus = c.bus[:0]
}

// strayLocked reports whether a Write is placed although its connection has ended.
func (c *conn) strayLocked() bool {
	c.p.strays++
	return c.p.cfg.Strays != nil && c.p.cfg.Strays(c.p.strays)
}

// failLocked ends the connection.
func (c *conn) failLocked(err error) {
	if c.err == nil {
		c.err = err
		c.placeLocked(c.strayLocked)
	}
	c.posted = nil
	c.p.conns = slices.DeleteFunc(c.p.conns, func(o *conn) bool { return o == c })
	c.wake.Broadcast()
}

// Poll implements rdma.Conn.
func (c *conn) Poll(cs []rdma.Completion) (int, error) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	n := copy(cs, c.cq)
	c.cq = c.cq[:copy(c.cq, c.cq[n:])]
	for _, done := range cs[:n] {
		if done.Op != rdma.OpRecv {
			c.retired = c.signaled[0]
			c.signaled = c.signaled[1:]
		}
	}
	if len(c.cq) == 0 {
		c.pending = false
	}
	if n > 0 {
		return n, nil
	}
	return 0, c.err
}

// Wait implements rdma.Conn.
func (c *conn) Wait() error {
	err := c.wait()
	if f := c.p.cfg.Woken; f != nil {
		c.wakes++
		f(c.number, c.wakes)
	}
	return err
}

func (c *conn) wait() error {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.waiting = true
	for !c.pending && c.err == nil {
		c.wake.Wait()
	}
	c.waiting = false
	c.wake.Broadcast()
	if c.pending {
		return nil
	}
	return c.err
}

// Close implements rdma.Conn.
func (c *conn) Close() error {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.failLocked(rdma.ErrClosed)
	if !c.closed {
		c.closed = true
		if c.peer != nil {
			c.peer.failLocked(fmt.Errorf("the peer closed: %w", rdma.ErrLost))
		}
	}
	c.pending = len(c.cq) > 0
	for c.waiting {
		c.wake.Wait()
	}
	return nil
}
