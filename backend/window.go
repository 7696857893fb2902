package backend

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A Window is the initiator's record of the writes that no successful barrier
// covers yet: their payloads lie in the chunks of the write arena where they were
// received, and an index ring per lane says, in order, what each of them is
// (design §4.2). It is all that a replay needs.
//
// The index has no Go pointers, so that it can lie in a file beside the
// arena and be adopted by the next process.
//
//	      covered          head
//	         ▼               ▼
//	│ free   │ e │ e │ e │ e │ free │     a lane's ring; positions only grow
//	           └─ uncovered ─┘
//
// An entry is complete before head moves over it (publish), and a lane's covered
// mark moves only after a barrier succeeded on all lanes (retire). Only behind the
// mark may an entry's span be reused.
type Window struct {
	arena   *Arena
	entries *Budget
	rings   []Ring
	mem     []byte
	unmap   func([]byte) error // nil: mem is the caller's
	number  atomic.Uint64
	pinned  atomic.Int64 // chunks in which uncovered payloads lie
}

// EntryKind says what a piece writes.
type EntryKind uint32

const (
	// EntryData is a piece with a payload.
	EntryData EntryKind = iota + 1
	// EntryZero is a piece of zeroes; it has no payload, Src is 0.
	EntryZero
)

// An Entry is a piece: the part of a write on one lane, with one run of payload.
type Entry struct {
	Off    uint64 // in the device, bytes
	Src    uint64 // in the write arena, bytes
	Number uint64 // the export's order of pieces; replay goes by it
	Len    uint32 // bytes
	Kind   EntryKind
}

// NewWindow makes the index for the payloads of arena, and limits its pins to chunks:
// one ring for each of lanes, all of them together holding at most entries pieces. It
// is closed before arena.
func NewWindow(arena *Arena, chunks, lanes, entries int) (*Window, error) {
	size := IndexSize(lanes, entries)
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map the window's index of %d bytes: %w", size, err)
	}
	w := NewWindowOn(mem, arena, chunks, lanes, entries)
	w.unmap = unix.Munmap
	return w, nil
}

// IndexSize is how many bytes an index for so many lanes and entries takes.
func IndexSize(lanes, entries int) int { return lanes * ringSize(entries) }

// NewWindowOn is NewWindow with the index in mapped memory of IndexSize bytes, zeroed
// or left by another window of this shape, that stays the caller's. What it holds
// counts once it is adopted.
func NewWindowOn(mem []byte, arena *Arena, chunks, lanes, entries int) *Window {
	arena.LimitPins(chunks)
	w := &Window{arena: arena, entries: NewBudget(entries), mem: mem}
	size := ringSize(entries)
	for i := range lanes {
		w.rings = append(w.rings, newRing(mem[i*size:(i+1)*size]))
	}
	return w
}

// ErrIndex: the index of a window does not make sense.
var ErrIndex = errors.New("the window's index is damaged")

// Adopt takes over what the index holds that no barrier covers, of a device of size
// bytes: as if this process had published it. On an error, ErrIndex, w is good for
// nothing.
func (w *Window) Adopt(size uint64) error {
	var number uint64
	for i := range w.rings {
		r := &w.rings[i]
		from, to := r.Covered(), r.Head()
		if n := to - from; from > to || n > uint64(len(r.entries)) || !w.entries.TryTake(int(n)) {
			return fmt.Errorf("%w: lane %d holds the entries from %d to %d", ErrIndex, i, from, to)
		}
		last := uint64(0)
		for ; from < to; from++ {
			e := r.At(from)
			if !w.sound(e, size) || e.Number <= last {
				return fmt.Errorf("%w: lane %d, entry %d: %+v", ErrIndex, i, from, *e)
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

// sound reports whether e lies within a device of size bytes and one chunk.
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

// pin counts one more entry in chunk c, which the caller has pinned. All entries in a
// chunk share one pin.
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

// Entries counts the free entries. Each piece is taken from it before Publish.
func (w *Window) Entries() *Budget { return w.entries }

// Ring is the index of a lane.
func (w *Window) Ring(lane int) *Ring { return &w.rings[lane] }

// HalfFull reports whether half of the window, in bytes or entries, is in use, or
// somebody waits for a part of it: time for a barrier that nobody asked for. Who waits
// may do so with less than half in use, when payloads that still come hold the rest.
func (w *Window) HalfFull() bool {
	pins := w.arena.pins
	return 2*int(w.pinned.Load()) > pins.Total() || pins.Waiting() || w.entries.Waiting() ||
		2*w.entries.Free() < w.entries.Total()
}

// Publish makes e the newest entry of a lane, gives it its number, and retains and
// pins the chunk of its payload, which the caller holds pinned. It is called under that
// lane's mutex: a number drawn outside it would let replay order differ from queue order.
func (w *Window) Publish(lane int, e Entry) {
	if e.Kind == EntryData {
		c := w.arena.Chunk(e.Src)
		c.Retain()
		w.pin(c)
	}
	e.Number = w.number.Add(1)
	w.rings[lane].publish(e)
}

// Free releases what the entries of a lane from position from to position to
// held, after its covered mark has moved past them.
func (w *Window) Free(lane int, from, to uint64) {
	r := &w.rings[lane]
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

// A Ring is the index of a lane. Head and Covered may be read by anybody; head
// moves under the lane's mutex, covered by whoever retires barriers.
type Ring struct {
	head, covered *atomic.Uint64
	entries       []Entry
}

// Head is the position behind the newest entry.
func (r *Ring) Head() uint64 { return r.head.Load() }

// Covered is the position of the oldest entry that no successful barrier covers.
func (r *Ring) Covered() uint64 { return r.covered.Load() }

// At is the entry at position i, which lies between Covered and Head, or was just
// covered and is not freed yet.
func (r *Ring) At(i uint64) *Entry { return &r.entries[i%uint64(len(r.entries))] }

func (r *Ring) publish(e Entry) {
	head := r.head.Load()
	*r.At(head) = e
	r.head.Store(head + 1) // publishes
}

// Cover moves the covered mark to position to: one store, after the barrier that
// covers it succeeded on all lanes.
func (r *Ring) Cover(to uint64) { r.covered.Store(to) }
