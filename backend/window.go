package backend

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A Window records the writes that no successful barrier covers yet. It has all that a
// replay needs (design §4.2). The payloads lie in the chunks of the write arena, where
// they were received. A device splits its requests into streams, each of which has one
// order. The index has a ring for each stream: the entries say, in that order, what each
// payload is.
//
// The index has no Go pointers. So it can lie in a file beside the arena, and the next
// process can adopt it.
//
//	      covered          head
//	         ▼               ▼
//	│ free   │ e │ e │ e │ e │ free │     a stream's ring; positions only grow
//	           └─ uncovered ─┘
//
// An entry is complete before head moves over it (publish). A stream's covered mark moves
// only after a barrier has succeeded on all lanes (retire). The span of an entry may be
// reused only when the mark has passed the entry.
type Window struct {
	arena   *Arena
	entries *Budget
	rings   []Ring
	mem     []byte
	unmap   func([]byte) error // nil if mem belongs to the caller
	number  atomic.Uint64      // of the newest entry
	pinned  atomic.Int64       // chunks that hold payloads of uncovered entries
}

// EntryKind says what an entry writes.
type EntryKind uint32

const (
	// EntryData writes a payload.
	EntryData EntryKind = iota + 1
	// EntryZero writes zeroes. It has no payload, and its Src is 0.
	EntryZero
)

// An Entry is a piece of a write: the part that is on one stream and has one run of payload.
type Entry struct {
	Off    uint64 // in the device, bytes
	Src    uint64 // in the write arena, bytes
	Number uint64 // its place among all entries of the export; a replay keeps this order
	Len    uint32 // bytes
	Kind   EntryKind
}

// NewWindow makes a window on arena. Its payloads pin at most chunks chunks. Its index
// has a ring for each of streams; all rings together hold at most entries entries.
// Close the window before the arena.
func NewWindow(arena *Arena, chunks, streams, entries int) (*Window, error) {
	size := IndexSize(streams, entries)
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map the window's index of %d bytes: %w", size, err)
	}
	w := NewWindowOn(mem, arena, chunks, streams, entries)
	w.unmap = unix.Munmap
	return w, nil
}

// IndexSize returns the size in bytes of an index for so many streams and entries.
func IndexSize(streams, entries int) int { return streams * ringSize(entries) }

// NewWindowOn is like NewWindow, but the index lies in mem: mapped memory of IndexSize
// bytes that belongs to the caller. It is zero, or another window of this shape has left
// it; Adopt takes such entries over.
func NewWindowOn(mem []byte, arena *Arena, chunks, streams, entries int) *Window {
	arena.limitPins(chunks)
	w := &Window{arena: arena, entries: NewBudget(entries), mem: mem}
	size := ringSize(entries)
	for i := range streams {
		w.rings = append(w.rings, newRing(mem[i*size:(i+1)*size]))
	}
	return w
}

// ErrIndex is the error for an index that no window can have left.
var ErrIndex = errors.New("the window's index is damaged")

// Adopt takes over the uncovered entries of the index as if this process had published
// them. The device has size bytes. If Adopt returns an error, which wraps ErrIndex, the
// window cannot be used.
func (w *Window) Adopt(size uint64) error {
	var number uint64
	for i := range w.rings {
		r := &w.rings[i]
		from, to := r.Covered(), r.Head()
		if n := to - from; from > to || n > uint64(len(r.entries)) || !w.entries.TryTake(int(n)) {
			return fmt.Errorf("%w: stream %d holds the entries from %d to %d", ErrIndex, i, from, to)
		}
		last := uint64(0)
		for ; from < to; from++ {
			e := r.At(from)
			if !w.sound(e, size) || e.Number <= last {
				return fmt.Errorf("%w: stream %d, entry %d: %+v", ErrIndex, i, from, *e)
			}
			last = e.Number
			if e.Kind == EntryData {
				c := w.arena.Chunk(e.Src)
				w.arena.claim(c)
				if !c.tryPin() {
					return fmt.Errorf("%w: payloads lie in more than %d chunks", ErrIndex, w.arena.pins.Total())
				}
				w.pin(c)
				c.unpin()
			}
		}
		number = max(number, last)
	}
	w.number.Store(number)
	return nil
}

// sound reports whether e lies within a device of size bytes, and its payload within a
// chunk.
func (w *Window) sound(e *Entry, size uint64) bool {
	if e.Len == 0 || e.Off > size || uint64(e.Len) > size-e.Off {
		return false
	}
	if e.Kind == EntryZero {
		return true
	}
	arena := uint64(len(w.arena.mem))
	return e.Kind == EntryData && e.Src < arena && uint64(e.Len) <= ChunkSize-e.Src%ChunkSize
}

// pin counts one more entry in chunk c. The caller holds a pin on c. All entries of a
// chunk share one other pin.
func (w *Window) pin(c *Chunk) {
	if c.entries.Add(1) == 1 {
		c.repin()
		w.pinned.Add(1)
	}
}

// Close unmaps the index.
func (w *Window) Close() error {
	mem := w.mem
	w.mem, w.rings = nil, nil
	if mem == nil || w.unmap == nil {
		return nil
	}
	return w.unmap(mem)
}

// Entries returns the budget of free entries. Whoever publishes an entry has taken it.
func (w *Window) Entries() *Budget { return w.entries }

// Ring returns the ring of a stream.
func (w *Window) Ring(stream int) *Ring { return &w.rings[stream] }

// HalfFull reports whether the device should start a barrier that no client asked for:
// half of the chunks or entries are used, or somebody waits for some. Clients can wait
// while less than half is used, if payloads that are still being received hold the rest.
func (w *Window) HalfFull() bool {
	pins := w.arena.pins
	return 2*int(w.pinned.Load()) > pins.Total() || pins.Waiting() || w.entries.Waiting() ||
		2*w.entries.Free() < w.entries.Total()
}

// Publish makes e the newest entry of a stream and gives it the next number. It retains
// and pins the chunk of the payload, which the caller has pinned. The caller holds the
// mutex of the stream: without it the numbers, by which a replay goes, could differ from
// the order of the stream's queue.
func (w *Window) Publish(stream int, e Entry) {
	if e.Kind == EntryData {
		c := w.arena.Chunk(e.Src)
		c.Retain()
		w.pin(c)
	}
	e.Number = w.number.Add(1)
	w.rings[stream].publish(e)
}

// Free releases what the entries of a stream between the positions from and to hold. The
// stream's covered mark has already passed them.
func (w *Window) Free(stream int, from, to uint64) {
	r := &w.rings[stream]
	for i := from; i < to; i++ {
		if e := r.At(i); e.Kind == EntryData {
			c := w.arena.Chunk(e.Src)
			c.Release()
			if c.entries.Add(-1) == 0 {
				w.pinned.Add(-1)
				c.unpin()
			}
		}
	}
	w.entries.Give(int(to - from))
}

// A Ring is the index of a stream. Any goroutine may call Head and Covered. Head moves
// under the stream's mutex. Only the goroutine that retires a barrier moves Covered.
type Ring struct {
	head, covered *atomic.Uint64
	entries       []Entry
}

// Head returns the position behind the newest entry.
func (r *Ring) Head() uint64 { return r.head.Load() }

// Covered returns the position of the oldest entry that no successful barrier covers.
func (r *Ring) Covered() uint64 { return r.covered.Load() }

// At returns the entry at position i. That lies between Covered and Head, or the mark
// has passed it and Free has not.
func (r *Ring) At(i uint64) *Entry { return &r.entries[i%uint64(len(r.entries))] }

func (r *Ring) publish(e Entry) {
	head := r.head.Load()
	*r.At(head) = e
	r.head.Store(head + 1) // publishes
}

// Cover moves the covered mark to position to, after the barrier has succeeded on all
// lanes.
func (r *Ring) Cover(to uint64) { r.covered.Store(to) }
