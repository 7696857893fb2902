// Package mem is a block device in memory.
//
// It exists for tests, for demonstrations, and as the floor in benchmarks: what
// remains when the device costs nothing but a copy. Its contents end with it, so
// FLUSH has nothing to do. It owns the memory and the arenas; it imports backend.
package mem

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"golang.org/x/sys/unix"

	"pmnbd/backend"
)

// Sizes, in bytes and chunks. Mapped memory that nobody touches costs nothing, so
// the arenas have room for many connections beside several of the largest requests.
const (
	// maxRequest is what clients may send that were told no limit (proto.md, "Size
	// constraints").
	maxRequest = 32 << 20
	// writeChunks: no write is kept, so this is all for receiving.
	writeChunks = 512
	readChunks  = 512
)

// A Device is memory. Its lock is held for a whole batch: what a batch contains is
// stored in its order, and the order of batches is the order of the lock.
type Device struct {
	info   backend.Info
	arenas backend.Arenas

	mu  sync.Mutex
	mem []byte // nil once closed
}

var _ backend.Device = (*Device)(nil)

// New makes a device of size bytes, all zero.
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

// Arenas is where the spans of every Op lie.
func (d *Device) Arenas() *backend.Arenas { return &d.arenas }

// Submit executes ops and completes them.
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
			op.Err = d.execute(op)
		}
	}
	d.mu.Unlock()
	for _, op := range ops {
		op.Sink.Complete(op)
	}
}

// execute does op. d.mu is held.
func (d *Device) execute(op *backend.Op) error {
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

// Post has nothing to do.
func (d *Device) Post() {}

// Close ends the device and frees its memory. It is an error to hold spans then.
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
