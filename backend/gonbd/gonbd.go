// Package gonbd makes a backend.Device an io.ReaderAt and io.WriterAt with Size
// and Sync, which is the Backend of github.com/pojntfx/go-nbd.
//
// It exists for Go programs that have no use for our NBD server: those built on
// go-nbd, and those that want to read and write a device themselves. It owns the
// calls under way and a chunk of the write arena. It imports backend alone; go-nbd
// is an import of its tests.
package gonbd

import (
	"fmt"
	"io"
	"math"
	"sync"

	"pmnbd/backend"
)

// A Backend is a Device for callers that have their bytes elsewhere: it copies
// them. Any number of goroutines may use it. What overlaps and is under way at the
// same time has no order.
//
// A write is not durable when WriteAt returns; Sync makes it so.
type Backend struct {
	dev    backend.Device
	info   backend.Info
	arenas *backend.Arenas
	stop   chan struct{} // closed by Close

	under sync.WaitGroup // calls under way

	mu     sync.Mutex
	closed bool
	free   []*call // last in, first out
	// chunk holds the payloads of the last small writes, used bytes of it. A device
	// keeps a write's chunk until a barrier covers it: a chunk for each write would
	// fill a window with a few KiB.
	chunk *backend.Chunk
	used  int
}

// New makes a Backend of dev, which stays the caller's: Close the Backend first,
// then the Device.
func New(dev backend.Device) *Backend {
	return &Backend{dev: dev, info: dev.Info(), arenas: dev.Arenas(), stop: make(chan struct{})}
}

// Size is the device's size in bytes.
func (b *Backend) Size() (int64, error) {
	if b.info.Size > math.MaxInt64 {
		return 0, fmt.Errorf("a device of %d bytes: %w", b.info.Size, backend.ErrTooLarge)
	}
	return int64(b.info.Size), nil
}

// ReadAt implements io.ReaderAt: at the end of the device it returns what there is,
// and io.EOF.
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

// WriteAt implements io.WriterAt. A write that reaches past the end of the device
// is refused as a whole, with backend.ErrNoSpace.
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

// Sync makes durable every write that returned before.
func (b *Backend) Sync() error {
	c, err := b.begin()
	if err == nil {
		c.op.Cmd, c.op.Off, c.op.Len = backend.Flush, 0, 0
		err = c.do()
		b.end(c)
	}
	if err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	return nil
}

// Close ends the calls that wait for memory, waits for the others, and gives back
// what the Backend holds of the Device's memory. It flushes nothing: the Device's
// own Close does. Calls after it fail with backend.ErrClosed.
func (b *Backend) Close() error {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.stop)
	}
	b.mu.Unlock()
	b.under.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.chunk != nil {
		b.chunk.Release()
		b.chunk = nil
	}
	return nil
}

// after is how many bytes the device has from off on.
func (b *Backend) after(off int64) uint64 {
	return b.info.Size - min(uint64(off), b.info.Size)
}

// each does one piece of p after the other, none larger than the device takes. The
// caller has checked that p ends within the device.
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

// begin takes a call.
func (b *Backend) begin() (*call, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, backend.ErrClosed
	}
	b.under.Add(1)
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
	b.free = append(b.free, c)
	b.mu.Unlock()
	b.under.Done()
}

// cut returns a span of n bytes of the current chunk, if that has room for them.
func (b *Backend) cut(n int) (s backend.Span, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.chunk == nil {
		return s, false
	}
	if b.chunk.Refs() == 1 { // ours: whatever was written from it is covered
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

// keep leaves to the writes that follow what s does not use of its chunk, if that
// is more than there was.
func (b *Backend) keep(s backend.Span) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.chunk != nil {
		if int(s.Len) >= b.used {
			return
		}
		b.chunk.Release()
	}
	s.Chunk.Retain()
	b.chunk, b.used = s.Chunk, int(s.Len)
}
