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
	"time"
	"unsafe"

	"pmnbd/rdma"
	"pmnbd/rdma/internal/queue"
)

// A conn is a connected queue pair.
type conn struct {
	d    *domain
	e    *endpoint
	q    *C.struct_shim_queue
	caps rdma.Caps
	addr string

	// failed is closed with the first failure.
	failed chan struct{}

	// waiting is held by the goroutine in Wait. Close takes it to see that goroutine
	// leave.
	waiting sync.Mutex
	comp    descriptor
	sleep   func(uintptr) bool // c.slept, made once
	armed   bool               // an event was asked for and has not been taken

	// mu guards the descriptors, q.wr.
	mu sync.Mutex

	// qmu guards the accounts of the queues, and polling. cq.Err needs no lock.
	qmu   sync.Mutex
	sends slots
	recvs slots
	cq    queue.Completions

	watcher  sync.WaitGroup
	closing  sync.Once
	closeErr error
}

var _ rdma.Conn = (*conn)(nil)

// newConn makes a queue pair for e in domain d and posts recvs. It takes e over, and
// closes it on failure.
func newConn(d *domain, e *endpoint, cfg rdma.ConnConfig, recvs []rdma.WorkRequest) (*conn, error) {
	dev := d.dev
	if e.id.verbs != dev.ctx {
		e.close()
		return nil, fmt.Errorf("the protection domain is on another device, %s: %w", dev.name, rdma.ErrNotSupported)
	}
	c := &conn{d: d, e: e, addr: e.remote().String(), failed: make(chan struct{})}
	if err := d.newQueue(c, cfg); err != nil {
		e.close()
		return nil, err
	}
	c.caps = rdma.Caps{
		// RFC 5040 §5.5 leaves placement unordered. Software places in order all the
		// same, and so do InfiniBand's reliable connections.
		OrderedPlacement: dev.caps.iwarp == 0 || !dev.dma,
		PlacesByDMA:      dev.dma,
		PersistentFlush:  c.q.can_flush != 0,
		MaxSendWR:        cfg.MaxSendWR,
		MaxRecvWR:        cfg.MaxRecvWR,
		MaxReads:         cfg.MaxReads,
		MaxInline:        C.SHIM_INLINE,
	}
	c.sends.Ring, c.recvs.Ring = queue.NewRing[slot](cfg.MaxSendWR), queue.NewRing[slot](cfg.MaxRecvWR)
	c.cq.Init(cfg.MaxSendWR, cfg.MaxRecvWR)
	c.sleep = c.slept
	var err error
	c.comp, err = watch(c.q.channel.fd)
	dev.add(c) // the device may fail c from here on
	if err == nil {
		err = c.PostRecv(recvs)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// newQueue makes c's queue pair in d.
func (d *domain) newQueue(c *conn, cfg rdma.ConnConfig) error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.regions == nil {
		return fmt.Errorf("connect in a closed domain: %w", rdma.ErrClosed)
	}
	return sysError("make a queue pair on "+d.dev.name, C.shim_queue_new(c.e.id, d.pd, C.int(cfg.MaxSendWR), C.int(cfg.MaxRecvWR), &c.q))
}

// start begins to watch an established connection.
func (c *conn) start() { c.watcher.Go(c.watch) }

// watch waits for the connection manager to report the end of the connection.
func (c *conn) watch() {
	for {
		switch ev, err := c.e.next(); {
		case errors.Is(err, os.ErrDeadlineExceeded): // Close
			return
		case err != nil:
			c.broken(fmt.Errorf("%s: %w", c.addr, err))
			return
		case ev.kind == C.RDMA_CM_EVENT_DISCONNECTED:
			c.hearOut()
			c.broken(fmt.Errorf("%s disconnected: %w", c.addr, rdma.ErrLost))
			return
		case ev.kind == C.RDMA_CM_EVENT_DEVICE_REMOVAL:
			c.d.dev.gone.Store(true)
			c.broken(fmt.Errorf("%s: %s was removed: %w: %w", c.addr, c.d.dev.name, rdma.ErrDevice, rdma.ErrLost))
			return
		}
	}
}

// answerPatience is how long the answer of the peer's device may follow the disconnect.
// The two are processed at the same time, and a busy machine takes a while.
const answerPatience = 100 * time.Millisecond

// hearOut gives the goroutine in Wait time to learn why the peer disconnects, if requests
// are outstanding. A peer that refuses a request disconnects, and only its device's answer
// to that request says why. The connection manager's message may overtake that answer.
func (c *conn) hearOut() {
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
func (c *conn) Caps() rdma.Caps { return c.caps }

// Arrived implements rdma.Conn. The adapter places by itself, so it is 0.
func (c *conn) Arrived() uint64 { return 0 }

// RemoteAddr implements rdma.Conn.
func (c *conn) RemoteAddr() string { return c.addr }

// broken fails the connection with err, after what the device has completed. If one of
// those requests ended badly, that is the failure instead: it is the cause.
func (c *conn) broken(err error) {
	c.qmu.Lock()
	defer c.qmu.Unlock()
	c.fetchLocked()
	c.failLocked(err)
}

// refused is broken for an error that the device reports to the peer by itself, with its
// cause. It does not disconnect, because that might overtake the report.
func (c *conn) refused(err error) {
	c.qmu.Lock()
	defer c.qmu.Unlock()
	c.fetchLocked()
	c.keepLocked(err)
}

// failLocked fails the connection with err and disconnects, unless it has failed before.
func (c *conn) failLocked(err error) {
	if c.keepLocked(err) {
		C.rdma_disconnect(c.e.id) // it fails if the peer has disconnected already
	}
}

// keepLocked fails the connection with err and wakes Wait, unless it has failed before.
func (c *conn) keepLocked(err error) (first bool) {
	if !c.cq.Fail(err) {
		return false
	}
	close(c.failed)
	c.comp.interrupt()
	return true
}

// Close implements rdma.Conn.
func (c *conn) Close() error {
	c.closing.Do(func() {
		c.qmu.Lock()
		c.failLocked(fmt.Errorf("%s: %w", c.addr, rdma.ErrClosed))
		c.qmu.Unlock()
		c.closeErr = c.destroy()
	})
	return c.closeErr
}

// destroy releases everything. Every new call fails by now, and destroy waits for those
// under way.
func (c *conn) destroy() error {
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
		return err // the adapter may still use the rest, so it stays
	}
	c.q = nil
	c.e.close()
	return nil
}

// bytesToC returns p as the address and the length of what a C function copies.
func bytesToC(p []byte) (unsafe.Pointer, C.uint8_t) {
	return unsafe.Pointer(unsafe.SliceData(p)), C.uint8_t(len(p))
}
