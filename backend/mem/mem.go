// Package mem is a block device in the memory of the process.
//
// Use it for tests and demonstrations. In benchmarks it is the floor: it shows what a
// server costs when the device costs one copy. The contents are lost when the device is
// closed, so a FLUSH has nothing to do.
//
// This package is stable: later releases keep what a program can use of it.
package mem

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"golang.org/x/sys/unix"

	"pmnbd/backend"
)

// Sizes in bytes and chunks. Mapped memory costs nothing until somebody touches it, so
// the arenas have room for many connections and several of the largest requests.
const (
	// maxRequest is the largest request of clients that know no limit (proto.md, "Size
	// constraints").
	maxRequest = 32 << 20
	// writeChunks are all for receiving, because the device keeps no write.
	writeChunks = 512
	readChunks  = 512
)

// A Device is a block device in memory. It executes one batch at a time, and the ops of
// a batch in their order.
type Device struct {
	info   backend.Info
	arenas backend.Arenas

	mu  sync.Mutex
	mem []byte // nil once closed
}

var _ backend.Device = (*Device)(nil)

// New makes a device of size bytes. All of them are zero.
func New(size uint64) (*Device, error) {
	if size == 0 || size > math.MaxInt {
		return nil, fmt.Errorf("a device of %d bytes: %w", size, backend.ErrInvalid)
	}
	m, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map a device of %d bytes: %w", size, err)
	}
	d := &Device{
		mem: m,
		info: backend.Info{
			Size:           size,
			BlockMin:       1,
			BlockPreferred: 4096,
			MaxRequest:     maxRequest,
			Description:    "memory of this process: FLUSH makes nothing durable",
			CanZero:        true,
		},
	}
	if d.arenas.Write, err = backend.NewArena(writeChunks); err == nil {
		d.arenas.Read, err = backend.NewArena(readChunks)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Info describes the device.
func (d *Device) Info() backend.Info { return d.info }

// Arenas returns the memory for the data of ops.
func (d *Device) Arenas() *backend.Arenas { return &d.arenas }

// Submit executes ops and completes all of them before it returns.
func (d *Device) Submit(ops []*backend.Op) {
	if len(ops) == 0 {
		return
	}
	d.mu.Lock()
	gone := ops[0].Sink.Gone()
	for _, op := range ops {
		switch {
		case d.mem == nil:
			op.Err = backend.ErrClosed
		case gone:
			op.Err = backend.ErrGone
		default:
			op.Err = d.executeLocked(op)
		}
	}
	d.mu.Unlock()
	for _, op := range ops {
		op.Sink.Complete(op)
	}
}

// executeLocked executes op.
func (d *Device) executeLocked(op *backend.Op) error {
	switch op.Cmd {
	case backend.Read:
		off := op.Off
		for _, s := range op.Data {
			off += uint64(copy(s.Bytes(), d.mem[off:]))
		}
	case backend.Write:
		off := op.Off
		for _, s := range op.Data {
			off += uint64(copy(d.mem[off:], s.Bytes()))
		}
	case backend.WriteZeroes:
		clear(d.mem[op.Off : op.Off+op.Len])
	case backend.Trim, backend.Flush:
	default:
		return fmt.Errorf("%v: %w", op.Cmd, backend.ErrNotSupported)
	}
	return nil
}

// Post does nothing: Submit has done it all.
func (d *Device) Post() {}

// Close frees the memory of the device. It returns an error if a span of the arenas has
// not been released.
func (d *Device) Close() error {
	d.mu.Lock()
	m := d.mem
	d.mem = nil
	d.mu.Unlock()
	if m == nil {
		return nil
	}
	errs := []error{unix.Munmap(m)}
	for _, a := range []*backend.Arena{d.arenas.Write, d.arenas.Read} {
		if a != nil {
			errs = append(errs, a.Close())
		}
	}
	return errors.Join(errs...)
}
