package backend

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// ChunkSize is the size of a chunk in bytes. One read of a busy socket fills a chunk,
// and a single byte that is not flushed keeps one. At 256 KiB a read takes 64 requests
// of 4 KiB, and a window of 64 MiB has 256 chunks.
const ChunkSize = 256 << 10

// An Arena is mapped memory for payloads, in chunks of ChunkSize. An export owns it.
// Transports register the whole of it (design §4.2).
type Arena struct {
	mem    []byte
	chunks []Chunk
	budget *Budget
	pins   *Budget            // nil if there is no limit
	unmap  func([]byte) error // nil if mem belongs to the caller

	mu   sync.Mutex
	free []*Chunk // last in, first out: the caches still hold the newest
}

// A Chunk is a part of an arena with a reference count. It returns to the arena when
// its last reference is released.
type Chunk struct {
	arena *Arena
	index int
	refs  atomic.Int32
	pins  atomic.Int32 // see pin.go

	entries atomic.Int32 // how many entries of a window have their payload here
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

// NewArenaOn makes an arena of mapped memory, whose length is a multiple of ChunkSize.
// The memory belongs to the caller, who keeps it mapped longer than the arena lives.
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

// Mem returns the memory of the whole arena, for registration with a transport.
func (a *Arena) Mem() []byte { return a.mem }

// Budget returns the budget that counts the chunks.
func (a *Arena) Budget() *Budget { return a.budget }

// TryGet appends n free chunks to dst, each with one reference. It reports false if
// there are not so many, or if another goroutine waits for chunks.
func (a *Arena) TryGet(dst []*Chunk, n int) ([]*Chunk, bool) {
	if !a.budget.TryTake(n) {
		return dst, false
	}
	return a.pop(dst, n), true
}

// Get appends n chunks to dst, each with one reference. It waits for them, first come,
// first served. If stop is closed first it returns ErrStopped. The caller holds no lock,
// and no chunk that others may wait for.
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

// claim takes c off the free list, or adds a reference if it is in use.
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

// Chunk returns the chunk in which byte off of the arena lies.
func (a *Arena) Chunk(off uint64) *Chunk { return &a.chunks[off/ChunkSize] }

// Close unmaps the arena. It returns an error, and unmaps nothing, if a chunk has not
// been released.
func (a *Arena) Close() error {
	if held := a.budget.Total() - a.budget.Free(); held != 0 {
		return fmt.Errorf("close an arena with chunks that are still held (%d)", held)
	}
	mem := a.mem
	a.mem = nil
	if mem == nil || a.unmap == nil {
		return nil
	}
	return a.unmap(mem)
}

// Bytes returns the chunk's memory.
func (c *Chunk) Bytes() []byte {
	off := c.index * ChunkSize
	return c.arena.mem[off : off+ChunkSize : off+ChunkSize]
}

// Off returns where the chunk begins in its arena, in bytes.
func (c *Chunk) Off() uint64 { return uint64(c.index) * ChunkSize }

// Refs returns the number of references. Only 1 is news that lasts: the caller, which
// holds a reference, then knows that nobody else does.
func (c *Chunk) Refs() int { return int(c.refs.Load()) }

// Retain adds a reference. The caller already holds one.
func (c *Chunk) Retain() {
	if c.refs.Add(1) <= 1 {
		panic("backend: a free chunk was retained")
	}
}

// Release drops a reference. It reports whether that was the last one, which returns
// the chunk to its arena.
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

// A Span is a run of bytes in a chunk. A Span has no reference of its own: code that
// keeps one after a call retains the chunk.
type Span struct {
	Chunk *Chunk
	Off   uint32 // in the chunk, bytes
	Len   uint32
}

// Bytes returns the span's memory.
func (s Span) Bytes() []byte { return s.Chunk.Bytes()[s.Off : s.Off+s.Len : s.Off+s.Len] }

// ArenaOff returns where the span begins in its arena, in bytes.
func (s Span) ArenaOff() uint64 { return s.Chunk.Off() + uint64(s.Off) }

// Arenas is the memory of an export.
type Arenas struct {
	// Write is for received payloads. No peer ever has access to it, because a hostile
	// target must not change what may have to be replayed (design §4.2).
	Write *Arena
	// Read is for the data of READs.
	Read *Arena
	// Entries counts the free entries of the window's index. It is nil if the device
	// has no window. Clients take entries through an Admission.
	Entries *Entries
}
