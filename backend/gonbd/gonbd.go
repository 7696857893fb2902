// Package gonbd makes a backend.Device an io.ReaderAt and io.WriterAt.
//
// Use it in a Go program that reads and writes a device itself, or that serves one with
// github.com/pojntfx/go-nbd: a Backend has the methods that go-nbd's server needs.
// A Backend copies all data. Package nbd serves a device without a copy.
//
// A write is not durable when WriteAt returns. Sync makes durable every write that has
// returned before.
//
// Errors wrap those of package backend: ErrInvalid for an offset that is negative, or for
// an offset or length that is not a multiple of Info.BlockMin, ErrNoSpace for a write past
// the end, ErrFailed after the device has failed, ErrClosed after Close.
//
// While a device waits for its target, calls wait with it. SyncContext and Shutdown can be
// cancelled.
//
// This package does not import go-nbd; only its tests do. It is stable: later releases keep
// what a program can use of it.
package gonbd

import (
	"context"
	"fmt"
	"io"
	"math"
	"sync"

	"pmnbd/backend"
)

// A Backend reads and writes a Device. Any number of goroutines may use it at the same
// time. Reads and writes that overlap and run at the same time have no order.
type Backend struct {
	dev    backend.Device
	info   backend.Info
	arenas *backend.Arenas
	stop   chan struct{} // closed by Close

	mu      sync.Mutex // guards the rest
	closed  bool
	running int           // calls
	ended   chan struct{} // closed when the last call has ended; nil until Shutdown waits for it
	free    []*call       // last in, first out
	// chunk has the payloads of the last small writes in its first used bytes. A device
	// keeps the chunk of a write until the write is durable. If each small write had a
	// chunk of its own, a few KiB would fill the window.
	chunk *backend.Chunk
	used  int
}

// New makes a Backend of dev. The device still belongs to the caller, who closes the
// Backend first and then the device.
func New(dev backend.Device) *Backend {
	return &Backend{dev: dev, info: dev.Info(), arenas: dev.Arenas(), stop: make(chan struct{})}
}

// Size returns the size of the device in bytes.
func (b *Backend) Size() (int64, error) {
	if b.info.Size > math.MaxInt64 {
		return 0, fmt.Errorf("a device of %d bytes: %w", b.info.Size, backend.ErrTooLarge)
	}
	return int64(b.info.Size), nil
}

// ReadAt reads len(p) bytes at offset off. At the end of the device it reads what there
// is and returns io.EOF, as io.ReaderAt demands.
func (b *Backend) ReadAt(p []byte, off int64) (n int, err error) {
	want := p
	if off >= 0 && uint64(len(p)) > b.after(off) {
		p, err = p[:b.after(off)], io.EOF
	}
	n, failed := b.each(p, off, (*call).read)
	if failed != nil {
		return n, fmt.Errorf("read %d bytes at %d: %w", len(want), off, failed)
	}
	return n, err
}

// WriteAt writes p at offset off. It may have written a part of p when it returns an
// error. It writes nothing, and returns backend.ErrNoSpace, if p reaches past the end of
// the device.
func (b *Backend) WriteAt(p []byte, off int64) (n int, err error) {
	if off >= 0 && uint64(len(p)) > b.after(off) {
		err = backend.ErrNoSpace
	} else {
		n, err = b.each(p, off, (*call).write)
	}
	if err != nil {
		return n, fmt.Errorf("write %d bytes at %d: %w", len(p), off, err)
	}
	return n, nil
}

// Sync makes every write durable that has returned before Sync is called. While the device waits
// for its target, Sync waits, too; SyncContext can be cancelled.
func (b *Backend) Sync() error { return b.SyncContext(context.Background()) }

// SyncContext is Sync, but gives up when ctx ends, with an error that wraps ctx's. Then nobody
// knows which of the writes are durable. They are not lost, and a later Sync covers them.
func (b *Backend) SyncContext(ctx context.Context) error {
	c, err := b.begin()
	if err == nil {
		c.op.Cmd, c.op.Off, c.op.Len = backend.Flush, 0, 0
		c.submit()
		select {
		case <-c.done:
			err = c.op.Err
			b.end(c)
		case <-ctx.Done():
			err = context.Cause(ctx)
			go func() { // Close waits for it
				<-c.done
				b.end(c)
			}()
		}
	}
	if err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	return nil
}

// Close interrupts the calls that wait for memory, waits for the others, and gives the
// memory of the Backend back to the device. It does not flush: the device's own Close
// does. Later calls fail with backend.ErrClosed. Close always returns nil.
//
// A call ends when the device has completed it. So while the device waits for its target, Close
// may wait, too; Shutdown can be cancelled.
func (b *Backend) Close() error { return b.Shutdown(context.Background()) }

// Shutdown is Close, but returns when ctx ends, with an error that wraps ctx's, if calls are still
// running. They keep their own memory until the device has completed them. So end the device next,
// with a Shutdown of its own if it has one, and then call Close.
func (b *Backend) Shutdown(ctx context.Context) error {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.stop)
		if b.chunk != nil {
			b.chunk.Release()
			b.chunk = nil
		}
	}
	if b.running > 0 && b.ended == nil {
		b.ended = make(chan struct{})
	}
	running, ended := b.running > 0, b.ended
	b.mu.Unlock()
	if !running {
		return nil
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("calls are still running: %w", context.Cause(ctx))
	}
}

// after returns how many bytes the device has from off on.
func (b *Backend) after(off int64) uint64 {
	return b.info.Size - min(uint64(off), b.info.Size)
}

// each cuts p into pieces of at most the size that the device takes, and calls do for one
// after the other. The caller has checked that p ends within the device.
func (b *Backend) each(p []byte, off int64, do func(*call, []byte) error) (n int, err error) {
	if off < 0 || (uint64(off)|uint64(len(p)))&uint64(b.info.BlockMin-1) != 0 {
		return 0, backend.ErrInvalid
	}
	c, err := b.begin()
	if err != nil {
		return 0, err
	}
	defer b.end(c)
	for n < len(p) {
		piece := p[n:min(len(p), n+int(b.info.MaxRequest))]
		c.op.Off, c.op.Len = uint64(off)+uint64(n), uint64(len(piece))
		if err := do(c, piece); err != nil {
			return n, err
		}
		n += len(piece)
	}
	return n, nil
}

// begin takes a call off the free list, or makes one.
func (b *Backend) begin() (*call, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, backend.ErrClosed
	}
	b.running++
	last := len(b.free) - 1
	if last < 0 {
		return newCall(b), nil
	}
	c := b.free[last]
	b.free = b.free[:last]
	return c, nil
}

// end gives c back.
func (b *Backend) end(c *call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free = append(b.free, c)
	if b.running--; b.running == 0 && b.ended != nil {
		close(b.ended)
	}
}

// cut returns a span of n bytes of the current chunk, if that has room for them.
func (b *Backend) cut(n int) (s backend.Span, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.chunk == nil {
		return s, false
	}
	if b.chunk.Refs() == 1 { // ours: everything that was written from it is durable
		b.used = 0
	}
	if n > backend.ChunkSize-b.used {
		return s, false
	}
	s = backend.Span{Chunk: b.chunk, Off: uint32(b.used), Len: uint32(n)}
	s.Chunk.Retain()
	b.used += n
	return s, true
}

// keep keeps the rest of the chunk of s for the next small writes, if it is larger than
// the rest of the chunk that there was.
func (b *Backend) keep(s backend.Span) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	if b.chunk != nil {
		if int(s.Len) >= b.used {
			return
		}
		b.chunk.Release()
	}
	s.Chunk.Retain()
	b.chunk, b.used = s.Chunk, int(s.Len)
}
