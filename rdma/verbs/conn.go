//go:build verbs && cgo

package verbs

// #cgo pkg-config: libibverbs librdmacm
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"pmnbd/rdma"
)

// A Conn is a connected queue pair. It implements rdma.Conn; queue.go holds what
// is done per request.
type Conn struct {
	d       *domain
	e       *endpoint
	q       *C.struct_shim_queue
	caps    rdma.Caps
	private []byte
	addr    string

	// err is the first failure. It is set under qmu, so that no completion
	// follows it.
	err atomic.Pointer[error]
	// failed is closed with err.
	failed chan struct{}

	// waiting is held by the goroutine in Wait, and by Close to see it leave.
	waiting sync.Mutex
	comp    descriptor
	sleep   func(uintptr) bool // c.slept, made once
	armed   bool               // an event has been asked for and not been taken

	// mu guards the descriptors, q.wr.
	mu sync.Mutex

	// qmu guards the queues' accounts, and polling.
	qmu   sync.Mutex
	sends slots
	recvs slots
	cq    completions

	watcher sync.WaitGroup
	closing sync.Once
	closed  error // of closing
}

var _ rdma.Conn = (*Conn)(nil)

// newConn makes a queue pair of e in domain d, with recvs posted. It takes e over.
func newConn(d *domain, e *endpoint, cfg rdma.ConnConfig, recvs []rdma.WorkRequest) (*Conn, error) {
	dev := d.dev
	if e.id.verbs != dev.ctx {
		e.close()
		return nil, fmt.Errorf("the protection domain is on another device, %s: %w", dev.name, rdma.ErrNotSupported)
	}
	c := &Conn{d: d, e: e, addr: e.remote().String(), failed: make(chan struct{})}
	if err := d.newQueue(c, cfg); err != nil {
		e.close()
		return nil, err
	}
	c.caps = rdma.Caps{
		// RFC 5040 §5.5 leaves placement unordered; software does it in order, and
		// so do reliable connections of InfiniBand.
		OrderedPlacement: dev.caps.iwarp == 0 || !dev.dma,
		PlacesByDMA:      dev.dma,
		PersistentFlush:  c.q.can_flush != 0,
		MaxSendWR:        cfg.MaxSendWR,
		MaxRecvWR:        cfg.MaxRecvWR,
		MaxReads:         cfg.MaxReads,
		MaxInline:        C.SHIM_INLINE,
	}
	c.sends.ring = make([]slot, cfg.MaxSendWR)
	c.recvs.ring = make([]slot, cfg.MaxRecvWR)
	c.cq.ring = make([]entry, cfg.MaxSendWR+cfg.MaxRecvWR)
	c.sleep = c.slept
	dev.add(c)
	var err error
	if c.comp, err = watch(c.q.channel.fd); err == nil {
		err = c.PostRecv(recvs)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// newQueue makes c's queue pair.
func (d *domain) newQueue(c *Conn, cfg rdma.ConnConfig) error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.regions == nil {
		return fmt.Errorf("connect in a closed domain: %w", rdma.ErrClosed)
	}
	return sysError("make a queue pair on "+d.dev.name, C.shim_queue_new(c.e.id, d.pd, C.int(cfg.MaxSendWR), C.int(cfg.MaxRecvWR), &c.q))
}

// start begins to watch an established connection.
func (c *Conn) start() { c.watcher.Go(c.watch) }

// watch waits for the connection manager to tell of the end.
func (c *Conn) watch() {
	for {
		switch ev, err := c.e.next(); {
		case errors.Is(err, os.ErrDeadlineExceeded): // Close
			return
		case err != nil:
			c.broken(fmt.Errorf("%s: %w", c.addr, err))
			return
		case ev.kind == C.RDMA_CM_EVENT_DISCONNECTED && !c.d.dev.gone.Load():
			c.hearOut()
			c.broken(fmt.Errorf("%s disconnected: %w", c.addr, rdma.ErrLost))
			return
		case ev.kind == C.RDMA_CM_EVENT_DISCONNECTED, // by an end that has heard of it
			ev.kind == C.RDMA_CM_EVENT_DEVICE_REMOVAL:
			c.d.dev.gone.Store(true)
			c.broken(fmt.Errorf("%s: %s was removed: %w: %w", c.addr, c.d.dev.name, rdma.ErrDevice, rdma.ErrLost))
			return
		}
	}
}

// answerPatience is how long the answer of the peer's device may come behind the
// disconnect: they are processed at the same time, and a busy machine takes its time.
const answerPatience = 100 * time.Millisecond

// hearOut waits, while requests are outstanding, for the goroutine in Wait to hear why the
// peer disconnects. A peer that refuses a request disconnects, too, and only its device's
// answer to that request says why; the connection manager's message may overtake it.
func (c *Conn) hearOut() {
	c.qmu.Lock()
	outstanding := c.sends.passed < c.sends.posted
	c.qmu.Unlock()
	if !outstanding {
		return
	}
	patience := time.NewTimer(answerPatience)
	defer patience.Stop()
	select {
	case <-c.failed:
	case <-patience.C:
	}
}

// Caps implements rdma.Conn.
func (c *Conn) Caps() rdma.Caps { return c.caps }

// PrivateData implements rdma.Conn.
func (c *Conn) PrivateData() []byte { return c.private }

// Arrived implements rdma.Conn. The adapter places by itself.
func (c *Conn) Arrived() uint64 { return 0 }

// RemoteAddr implements rdma.Conn.
func (c *Conn) RemoteAddr() string { return c.addr }

// broken fails the connection, behind what had completed. If one of those ended
// badly, that was the cause.
func (c *Conn) broken(err error) {
	c.qmu.Lock()
	defer c.qmu.Unlock()
	c.fetch()
	c.fail(err)
}

// refused is broken for what the device tells the peer itself, and with its cause: a
// disconnect could come before that.
func (c *Conn) refused(err error) {
	c.qmu.Lock()
	defer c.qmu.Unlock()
	c.fetch()
	c.keep(err)
}

// fail keeps err as the connection's failure if it is the first, and tells the peer.
// The caller holds qmu.
func (c *Conn) fail(err error) {
	if c.keep(err) {
		C.rdma_disconnect(c.e.id) // not connected any more: so much the better
	}
}

// keep keeps err as the connection's failure if it is the first, and wakes Wait. The
// caller holds qmu.
func (c *Conn) keep(err error) (first bool) {
	if c.err.Load() != nil {
		return false
	}
	c.err.Store(&err)
	close(c.failed)
	c.comp.interrupt()
	return true
}

// failure is the error of fail.
func (c *Conn) failure() error {
	if err := c.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Close implements rdma.Conn.
func (c *Conn) Close() error {
	c.closing.Do(func() {
		c.qmu.Lock()
		c.fail(fmt.Errorf("%s: %w", c.addr, rdma.ErrClosed))
		c.qmu.Unlock()
		c.closed = c.destroy()
	})
	return c.closed
}

// destroy ends everything. All calls fail by now; those under way are waited for.
func (c *Conn) destroy() error {
	c.e.events.interrupt()
	c.watcher.Wait()
	c.waiting.Lock()
	defer c.waiting.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.d.dev.remove(c)
	c.qmu.Lock()
	defer c.qmu.Unlock()
	_ = c.comp.file.Close()
	if err := sysError("destroy a queue pair", C.shim_queue_free(c.q)); err != nil {
		return err // and leave the rest: the adapter may still use it
	}
	c.q = nil
	c.e.close()
	return nil
}

// bytesToC is p as the length and address that a call copies from.
func bytesToC(p []byte) (unsafe.Pointer, C.uint8_t) {
	return unsafe.Pointer(unsafe.SliceData(p)), C.uint8_t(len(p))
}
