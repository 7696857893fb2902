//go:build verbs && cgo

package verbs

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"unsafe"

	"pmnbd/rdma"
	"pmnbd/rdma/internal/queue"
)

// A domain is a protection domain of a device.
type domain struct {
	cfg Config
	dev *device
	pd  *C.struct_ibv_pd

	mu      sync.RWMutex
	regions map[*rdma.MemoryRegion]region // nil: closed
}

// A region is registered memory. What a request may do with it depends only on these
// fields, which no other package can change.
type region struct {
	mr     *C.struct_ibv_mr
	addr   uint64
	size   uint64
	access rdma.Access
}

// newDomain makes a domain on the device that e is bound to. It takes e over, and closes
// it on failure.
func newDomain(cfg Config, e *endpoint) (*domain, error) {
	dev, err := openDevice(e)
	if err != nil {
		return nil, err
	}
	pd, err := C.ibv_alloc_pd(dev.ctx)
	if pd == nil {
		err = libError("make a protection domain on "+dev.name, err)
		dev.release()
		return nil, err
	}
	return &domain{cfg: cfg, dev: dev, pd: pd, regions: make(map[*rdma.MemoryRegion]region)}, nil
}

// flushFlags are IB_ACCESS_FLUSH_GLOBAL and IB_ACCESS_FLUSH_PERSISTENT, which the kernel
// has had since 6.3 and libibverbs has named since 45.
const flushFlags = 1<<8 | 1<<9

// flags returns a in the library's terms. Relaxed ordering is never among them (design
// §3.9).
func (d *domain) flags(a rdma.Access) C.uint {
	var f C.uint
	if a&rdma.LocalWrite != 0 {
		f |= C.IBV_ACCESS_LOCAL_WRITE
		if d.dev.caps.iwarp != 0 && d.dev.dma {
			// A Read Response is a tagged message, so an iWARP adapter wants its sink
			// to be writable by the peer (RFC 5040 §5.3). siw does not.
			f |= C.IBV_ACCESS_REMOTE_WRITE
		}
	}
	if a&rdma.RemoteRead != 0 {
		f |= C.IBV_ACCESS_REMOTE_READ
	}
	if a&rdma.RemoteWrite != 0 {
		f |= C.IBV_ACCESS_REMOTE_WRITE
	}
	if a&rdma.RemoteFlush != 0 {
		f |= flushFlags
	}
	return f
}

// Register implements rdma.Domain.
func (d *domain) Register(mem []byte, a rdma.Access) (*rdma.MemoryRegion, error) {
	if len(mem) == 0 {
		return nil, fmt.Errorf("register no memory: %w", rdma.ErrLocalAccess)
	}
	if a&rdma.PageCache != 0 {
		return nil, fmt.Errorf("register a file's page cache with %s: what the device writes does not make pages dirty, so fsync would lose it; use /dev/daxX.Y, a file with DAX, or an iwarp:// listener: %w", d.dev.name, rdma.ErrNotSupported)
	}
	if a&rdma.RemoteFlush != 0 && d.dev.caps.flush_persistent == 0 {
		return nil, fmt.Errorf("register for FLUSH: %s has none: %w", d.dev.name, rdma.ErrNotSupported)
	}
	if a&rdma.RemoteWrite != 0 {
		a |= rdma.LocalWrite
	}
	r, err := d.add(mem, a, 0)
	if errors.Is(err, syscall.EOPNOTSUPP) {
		// It is a file with DAX. Do not ask for FLUSH on it: neither the standard nor a
		// kernel says whether FLUSH is sound on pages that come and go.
		why := errors.New("FLUSH needs pinned memory")
		if a&rdma.RemoteFlush == 0 {
			why = d.dev.onDemand()
		}
		if why != nil {
			return nil, fmt.Errorf("%w (a file with DAX cannot be pinned, and %s needs that: %w; use /dev/daxX.Y, or an iwarp:// listener)", err, d.dev.name, why)
		}
		return d.add(mem, a, C.IBV_ACCESS_ON_DEMAND)
	}
	return r, err
}

// add registers mem with rights a, and more flags of the library's.
func (d *domain) add(mem []byte, a rdma.Access, more C.uint) (*rdma.MemoryRegion, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.regions == nil {
		return nil, fmt.Errorf("register in a closed domain: %w", rdma.ErrClosed)
	}
	base := unsafe.Pointer(&mem[0]) // mapped memory, which Go does not move
	var mr *C.struct_ibv_mr
	if errno := syscall.Errno(C.shim_register(d.pd, base, C.size_t(len(mem)), d.flags(a)|more, &mr)); errno != 0 {
		return nil, d.refused(len(mem), a, errno)
	}
	addr := uint64(uintptr(base))
	r := &rdma.MemoryRegion{Mem: mem, Key: uint32(mr.rkey), Base: addr, Access: a}
	d.regions[r] = region{mr: mr, addr: addr, size: uint64(len(mem)), access: a}
	return r, nil
}

// refused makes an error of errno, from the registration of n bytes. It names the remedy.
func (d *domain) refused(n int, a rdma.Access, errno syscall.Errno) error {
	what := fmt.Sprintf("register %d bytes with %s", n, d.dev.name)
	if a&rdma.RemoteFlush != 0 {
		what += " for FLUSH"
	}
	switch {
	case errno == syscall.ENOMEM || errno == syscall.EPERM:
		what += " (locked memory is bounded: LimitMEMLOCK=infinity in the unit, or ulimit -l unlimited)"
	case errno == syscall.EINVAL && a&rdma.RemoteFlush != 0:
		what += " (only /dev/daxX.Y is persistent memory to the device)"
	}
	return fmt.Errorf("%s: %w: %w", what, errno, rdma.ErrNotSupported)
}

// Deregister implements rdma.Domain.
func (d *domain) Deregister(r *rdma.MemoryRegion) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	own, ok := d.regions[r]
	if !ok {
		return nil // it was deregistered before
	}
	if err := sysError("deregister", C.ibv_dereg_mr(own.mr)); err != nil {
		return err // the key still counts
	}
	delete(d.regions, r)
	return nil
}

// Close implements rdma.Domain.
func (d *domain) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.regions == nil {
		return nil
	}
	var errs []error
	for _, r := range d.regions {
		errs = append(errs, sysError("deregister", C.ibv_dereg_mr(r.mr)))
	}
	d.regions = nil
	errs = append(errs, sysError("end a protection domain", C.ibv_dealloc_pd(d.pd)))
	d.dev.release()
	return errors.Join(errs...)
}

// localLocked finds the address and the key of sge, and checks that sge lies in a region
// of d that grants need. Both are 0 for an empty sge without a region.
func (d *domain) localLocked(sge rdma.SGE, need rdma.Access) (addr uint64, lkey uint32, err error) {
	r, ok := d.regions[sge.Region]
	if err := queue.CheckLocal(sge, ok, r.size, r.access, need); err != nil || !ok {
		return 0, 0, err
	}
	return r.addr + sge.Off, uint32(r.mr.lkey), nil
}
