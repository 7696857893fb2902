package backend

import (
	"fmt"
	"math"
	"math/bits"
)

// Entries counts the free entries of a window's index, and knows how many entries an op
// needs. An Admission takes them, and the device gives them back.
type Entries struct {
	*Budget
	shift int // the next stream begins every 1<<shift bytes
}

// NewEntries makes Entries of the units of b for a device whose streams take turns every
// stripe bytes. It panics unless stripe is a power of two and at least ChunkSize.
func NewEntries(b *Budget, stripe uint64) *Entries {
	if stripe < ChunkSize || stripe&(stripe-1) != 0 {
		panic(fmt.Sprintf("backend: stripes of %d bytes", stripe))
	}
	return &Entries{Budget: b, shift: bits.TrailingZeros64(stripe)}
}

// of returns how many entries op needs at most. A Write or WriteZeroes needs one for
// each run of bytes, and one more for each boundary of stripes that it crosses.
func (e *Entries) of(op *Op) int {
	if op.Cmd != Write && op.Cmd != WriteZeroes {
		return 0
	}
	cuts := (op.Off+op.Len-1)>>e.shift - op.Off>>e.shift
	return max(len(op.Data), 1) + int(cuts)
}

// GiveRest gives back the entries that op was admitted with, less those used: the device
// has published so many, and gives them back when it retires them. The device calls
// GiveRest once for each Write and WriteZeroes, before it completes the op.
func (e *Entries) GiveRest(op *Op, used int) { e.Give(e.of(op) - used) }

// MaxZero returns the length in bytes of the longest WriteZeroes that a client should
// submit as one op. Such an op needs about a quarter of the index.
func (a *Arenas) MaxZero() uint64 {
	if a.Entries == nil {
		return math.MaxUint64
	}
	return uint64(max(a.Entries.Total()/4, 1)) << a.Entries.shift
}

// An Admission takes room in a device's window for a client's ops. A Write needs entries
// of the index and a pin on each chunk of its payload: pins bound the bytes of the window.
// A WriteZeroes needs entries. Other ops need nothing. A client
//
//   - admits each op, then submits the batch, then calls Unpin;
//   - submits the ops that it has admitted before it waits for room for another;
//   - reserves all chunks of a payload that needs more than one before it receives the
//     payload. Reserve takes all pins at once. Two clients that each took one pin after
//     the other could wait for each other forever.
//
// An Admission is for one goroutine. Its methods allocate only when they wait.
type Admission struct {
	arenas *Arenas
	pinned []*Chunk // in the order in which they were pinned
}

// Every client takes pins, then chunks, then entries. A client that has its entries
// waits for nothing more, so barriers and Unpin free what the others wait for.

// NewAdmission makes an Admission to the window of the device that has these arenas.
func NewAdmission(a *Arenas) *Admission { return &Admission{arenas: a} }

// TryAdmit takes the room that op needs if it is there and nobody waits for it. If it
// reports false it has taken no entries; it may have taken pins, which Unpin drops.
func (a *Admission) TryAdmit(op *Op) bool {
	for c := a.missing(op); c != nil; c = a.missing(op) {
		if !c.tryPin() {
			return false
		}
		a.pinned = append(a.pinned, c)
	}
	return a.arenas.Entries == nil || a.arenas.Entries.TryTake(a.arenas.Entries.of(op))
}

// Admit takes the room that op needs, and waits for it, first come, first served. If stop
// is closed first it returns ErrStopped. If the index has fewer entries than op needs it
// returns ErrTooLarge. After an error it has taken no entries; it may have taken pins,
// which Unpin drops. The chunks of op.Data are reserved, or there is only one.
func (a *Admission) Admit(op *Op, stop <-chan struct{}) error {
	for c := a.missing(op); c != nil; c = a.missing(op) {
		if err := c.pin(stop); err != nil {
			return err
		}
		a.pinned = append(a.pinned, c)
	}
	if a.arenas.Entries == nil {
		return nil
	}
	return a.arenas.Entries.Take(a.arenas.Entries.of(op), stop)
}

// TryReserve appends n pinned chunks to dst, each with one reference. If first is not nil
// it also pins that chunk, in which the payload begins. If it cannot do all of this at
// once, it does nothing and reports false.
func (a *Admission) TryReserve(first *Chunk, dst []*Chunk, n int) ([]*Chunk, bool) {
	w := a.arenas.Write
	units := a.units(first, n)
	if w.pins != nil && !w.pins.TryTake(units) {
		return dst, false
	}
	got, ok := w.TryGet(dst, n)
	if !ok {
		w.givePins(units)
		return dst, false
	}
	a.hold(first, got[len(dst):])
	return got, true
}

// Reserve is like TryReserve, but waits for the pins and chunks, first come, first
// served. If stop is closed first it returns ErrStopped, and if the window is smaller
// than the reservation ErrTooLarge. After an error it has taken nothing.
func (a *Admission) Reserve(first *Chunk, dst []*Chunk, n int, stop <-chan struct{}) ([]*Chunk, error) {
	w := a.arenas.Write
	units := a.units(first, n)
	if w.pins != nil {
		if err := w.pins.Take(units, stop); err != nil {
			return dst, err
		}
	}
	got, err := w.Get(dst, n, stop)
	if err != nil {
		w.givePins(units)
		return dst, err
	}
	a.hold(first, got[len(dst):])
	return got, nil
}

// Unpin drops all pins of a. The client calls it when the device has the ops, or when it
// gives them up. A client that also releases the chunks releases them first, so that the
// client that waits for a pin and a chunk finds both.
func (a *Admission) Unpin() {
	for _, c := range a.pinned {
		c.unpin()
	}
	a.pinned = a.pinned[:0]
}

// missing returns a chunk of op that op needs a pin on, and on which a has none; nil if
// there is none.
func (a *Admission) missing(op *Op) *Chunk {
	if op.Cmd != Write {
		return nil
	}
	for i := range op.Data {
		if c := op.Data[i].Chunk; !a.holds(c) {
			return c
		}
	}
	return nil
}

// holds reports whether a has a pin on c. It looks at the newest first, which is the
// likeliest.
func (a *Admission) holds(c *Chunk) bool {
	for i := len(a.pinned) - 1; i >= 0; i-- {
		if a.pinned[i] == c {
			return true
		}
	}
	return false
}

// units returns how many pins a reservation takes.
func (a *Admission) units(first *Chunk, n int) int {
	if first != nil && !a.holds(first) {
		n++
	}
	return n
}

// hold pins first and chunks. The caller has taken units for them.
func (a *Admission) hold(first *Chunk, chunks []*Chunk) {
	if first != nil && !a.holds(first) {
		first.pinFirst()
		a.pinned = append(a.pinned, first)
	}
	for _, c := range chunks {
		c.pinFirst()
	}
	a.pinned = append(a.pinned, chunks...)
}
