//go:build verbs && cgo

package verbs

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"pmnbd/rdma"
)

// A device is an open RDMA device. librdmacm opens each device once per process and keeps
// it open while identifiers are bound to it. Domains share the device by reference.
type device struct {
	ctx  *C.struct_ibv_context
	name string
	caps C.struct_shim_caps
	// dma means that the device is an adapter. Software devices place with CPU stores.
	dma    bool
	paging paging

	// anchor is bound to the device, which keeps it open, and receives the event of its
	// removal.
	anchor *endpoint
	async  descriptor
	all    sync.WaitGroup
	gone   atomic.Bool

	refs int // guarded by devices.mu

	mu    sync.Mutex
	conns map[*C.struct_ibv_qp]*conn
}

var devices = struct {
	mu     sync.Mutex
	opened map[*C.struct_ibv_context]*device
}{opened: make(map[*C.struct_ibv_context]*device)}

// openDevice returns the device that e is bound to, with one more reference. It takes e
// over, and closes it on failure.
func openDevice(e *endpoint) (*device, error) {
	devices.mu.Lock()
	defer devices.mu.Unlock()
	ctx := e.id.verbs
	if d := devices.opened[ctx]; d != nil && ctx != nil {
		e.close()
		d.refs++
		return d, nil
	}
	d := &device{ctx: ctx, anchor: e, refs: 1, conns: make(map[*C.struct_ibv_qp]*conn)}
	if err := d.open(); err != nil {
		e.close()
		return nil, err
	}
	devices.opened[ctx] = d
	return d, nil
}

func (d *device) open() error {
	if d.ctx == nil {
		return fmt.Errorf("%v belongs to no RDMA device: %w", d.anchor.local(), rdma.ErrLost)
	}
	d.name = C.GoString(C.ibv_get_device_name(d.ctx.device))
	if err := sysError("query "+d.name, C.shim_query(d.ctx, &d.caps)); err != nil {
		return err
	}
	// An adapter has a parent on a bus. Software devices have none.
	_, err := os.Stat("/sys/class/infiniband/" + d.name + "/device")
	d.dma = err == nil
	if d.async, err = watch(d.ctx.async_fd); err != nil {
		return err
	}
	d.all.Go(d.watchAsync)
	d.all.Go(d.watchRemoval)
	return nil
}

// release drops a reference. The last one closes the device.
func (d *device) release() {
	devices.mu.Lock()
	defer devices.mu.Unlock()
	if d.refs--; d.refs > 0 {
		return
	}
	delete(devices.opened, d.ctx)
	d.async.interrupt()
	d.anchor.events.interrupt()
	d.all.Wait()
	_ = d.async.file.Close()
	d.anchor.close()
	if d.gone.Load() {
		reap()
	}
}

// reap makes librdmacm close devices that are gone. It does so only when it lists the
// devices and, up to version 56 at least, finds one. Until it has closed an rxe or siw
// device, the kernel does not finish removing that device; it does not wait for adapters.
func reap() {
	if list := C.rdma_get_devices(nil); list != nil {
		C.rdma_free_devices(list)
	}
}

// watchRemoval waits for the device to be removed, and fails its connections then.
func (d *device) watchRemoval() {
	for {
		switch ev, err := d.anchor.next(); {
		case err != nil:
			return
		case ev.kind == C.RDMA_CM_EVENT_DEVICE_REMOVAL:
			d.gone.Store(true)
			d.fail("it was removed")
		}
	}
}

// watchAsync handles the device's asynchronous events.
func (d *device) watchAsync() {
	for {
		var ev C.struct_ibv_async_event
		var errno error
		if d.async.until(func(uintptr) bool {
			var rc C.int
			if rc, errno = C.ibv_get_async_event(d.ctx, &ev); rc == 0 {
				errno = nil
			}
			return !errors.Is(errno, syscall.EAGAIN)
		}) != nil || errno != nil {
			return
		}
		c := d.named(&ev)
		name := C.GoString(C.ibv_event_type_str(ev.event_type))
		// Until the event is acknowledged, nobody destroys what it names, so the address
		// cannot be that of a newer object. The connection may be closed from here on;
		// then it has its failure already.
		C.ibv_ack_async_event(&ev)
		switch ev.event_type {
		case C.IBV_EVENT_DEVICE_FATAL:
			d.fail(name)
		case C.IBV_EVENT_CQ_ERR: // no more completions will come
			if c != nil {
				c.broken(fmt.Errorf("%s: %s: %w", c.addr, name, rdma.ErrLost))
			}
		case C.IBV_EVENT_QP_FATAL, C.IBV_EVENT_QP_REQ_ERR, C.IBV_EVENT_QP_ACCESS_ERR:
			if c != nil {
				c.refused(fmt.Errorf("%s: %w", name, rdma.ErrLost))
			}
		}
	}
}

// named returns the connection whose queue the event names, or nil if there is none or it
// is being destroyed. The event is not acknowledged yet. named must not take conn.qmu: a
// goroutine that destroys a queue holds that and waits for the acknowledgement.
func (d *device) named(ev *C.struct_ibv_async_event) *conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ev.event_type != C.IBV_EVENT_CQ_ERR {
		return d.conns[C.shim_event_qp(ev)]
	}
	for _, c := range d.conns {
		if c.q.cq == C.shim_event_cq(ev) {
			return c
		}
	}
	return nil
}

// fail fails every connection of the device, because of why.
func (d *device) fail(why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.conns {
		c.broken(fmt.Errorf("device %s: %s: %w: %w", d.name, why, rdma.ErrDevice, rdma.ErrLost))
	}
}

func (d *device) add(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns[c.q.id.qp] = c
}

func (d *device) remove(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, c.q.id.qp)
}
