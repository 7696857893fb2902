package backend

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// ChunkSize is the size of an arena's chunks in bytes. A chunk is what one read
// of a busy socket fills, and what a single un-flushed byte pins: at 256 KiB a
// read takes 64 requests of 4 KiB, and a window of 64 MiB is 256 chunks.
const ChunkSize = 256 << 10

// An Arena is mapped memory in chunks of ChunkSize, for payloads. Transports
// register the whole of it, when and as often as they like. It is owned by an
// export (design §4.2).
type Arena struct {
	mem    []byte
	chunks []Chunk
	budget *Budget
	pins   *Budget            // nil: no limit
	unmap  func([]byte) error // nil: mem is the caller's

	mu   sync.Mutex
	free []*Chunk // last in, first out: the hottest chunk goes out first
}

// A Chunk is a counted piece of an arena. It goes back when its count is 0.
type Chunk struct {
	arena *Arena
	index int
	refs  atomic.Int32
	pins  atomic.Int32 // see pin.go

	entries atomic.Int32 // of a window that lie in it
}

// NewArena maps an arena of n chunks.
func NewArena(n int) (*Arena, error) {
	mem, err := unix.Mmap(-1, 0, n*ChunkSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map an arena of %d bytes: %w", n*ChunkSize, err)
	}
	a := NewArenaOn(mem)
	a.unmap = unix.Munmap
	return a, nil
}

// NewArenaOn makes an arena of mapped memory, a multiple of ChunkSize, that stays the
// caller's and outlives it.
func NewArenaOn(mem []byte) *Arena {
	n := len(mem) / ChunkSize
	a := &Arena{mem: mem, chunks: make([]Chunk, n), budget: NewBudget(n), free: make([]*Chunk, 0, n)}
	for i := n - 1; i >= 0; i-- {
		c := &a.chunks[i]
		c.arena, c.index = a, i
		a.free = append(a.free, c)
	}
	return a
}

// Mem is the whole arena, for registration.
func (a *Arena) Mem() []byte { return a.mem }

// Budget counts the chunks.
func (a *Arena) Budget() *Budget { return a.budget }

// TryGet appends n free chunks to dst, each with one reference, or reports false.
func (a *Arena) TryGet(dst []*Chunk, n int) ([]*Chunk, bool) {
	if !a.budget.TryTake(n) {
		return dst, false
	}
	return a.pop(dst, n), true
}

// Get appends n chunks to dst, each with one reference, and waits for them first
// come, first served, until stop is closed (ErrStopped). The caller holds no lock
// and nothing that it waits for.
func (a *Arena) Get(dst []*Chunk, n int, stop <-chan struct{}) ([]*Chunk, error) {
	if err := a.budget.Take(n, stop); err != nil {
		return dst, err
	}
	return a.pop(dst, n), nil
}

func (a *Arena) pop(dst []*Chunk, n int) []*Chunk {
	a.mu.Lock()
	for range n {
		c := a.free[len(a.free)-1]
		a.free = a.free[:len(a.free)-1]
		c.refs.Store(1)
		dst = append(dst, c)
	}
	a.mu.Unlock()
	return dst
}

// claim takes chunk c, be it free, or gives it another reference.
func (a *Arena) claim(c *Chunk) {
	if c.refs.Load() > 0 {
		c.Retain()
		return
	}
	if !a.budget.TryTake(1) {
		panic("backend: a free chunk without a unit")
	}
	a.mu.Lock()
	a.free = slices.DeleteFunc(a.free, func(f *Chunk) bool { return f == c })
	c.refs.Store(1)
	a.mu.Unlock()
}

// Chunk is the chunk that byte off of the arena lies in.
func (a *Arena) Chunk(off uint64) *Chunk { return &a.chunks[off/ChunkSize] }

// Close unmaps the arena. Every chunk must have been released: one that is not
// is a leak, and an error.
func (a *Arena) Close() error {
	if held := a.budget.Total() - a.budget.Free(); held != 0 {
		return fmt.Errorf("close an arena: %d chunks are still held", held)
	}
	mem := a.mem
	a.mem = nil
	if mem == nil || a.unmap == nil {
		return nil
	}
	return a.unmap(mem)
}

// Bytes is the chunk's memory.
func (c *Chunk) Bytes() []byte {
	off := c.index * ChunkSize
	return c.arena.mem[off : off+ChunkSize : off+ChunkSize]
}

// Off is where the chunk starts in its arena, in bytes.
func (c *Chunk) Off() uint64 { return uint64(c.index) * ChunkSize }

// Refs is the number of references. Only a holder who knows that it is the last
// one (1) learns anything that lasts.
func (c *Chunk) Refs() int { return int(c.refs.Load()) }

// Retain adds a reference. The caller holds one.
func (c *Chunk) Retain() {
	if c.refs.Add(1) <= 1 {
		panic("backend: a free chunk was retained")
	}
}

// Release drops a reference, and reports whether it was the last: then the chunk is back
// in its arena.
func (c *Chunk) Release() (last bool) {
	switch n := c.refs.Add(-1); {
	case n > 0:
		return false
	case n < 0:
		panic("backend: a chunk was released too often")
	default:
		a := c.arena
		a.mu.Lock()
		a.free = append(a.free, c)
		a.mu.Unlock()
		a.budget.Give(1)
	}
	return true
}

// A Span is a run of bytes in a chunk. It is counted by its chunk: whoever keeps
// it beyond a call retains it.
type Span struct {
	Chunk *Chunk
	Off   uint32 // in the chunk, bytes
	Len   uint32
}

// Bytes is the span's memory.
func (s Span) Bytes() []byte { return s.Chunk.Bytes()[s.Off : s.Off+s.Len : s.Off+s.Len] }

// ArenaOff is where the span starts in its arena, in bytes.
func (s Span) ArenaOff() uint64 { return s.Chunk.Off() + uint64(s.Off) }

// Arenas is the memory of an export.
type Arenas struct {
	// Write is for received payloads. No peer ever has access to it: a hostile
	// target must not rewrite replay copies (design §4.2).
	Write *Arena
	// Read is for what READ returns.
	Read *Arena
	// Entries counts the free entries of the window's index; nil where the device
	// keeps none. Clients take them through an Admission.
	Entries *Entries
}
