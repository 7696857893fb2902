package backend

import (
	"fmt"
	"math"
	"math/bits"
)

// Entries counts the free entries of a window's index, and knows how many an op
// needs. A client's Admission takes them; the device gives them back.
type Entries struct {
	*Budget
	shift int // the next lane begins every 1<<shift bytes
}

// NewEntries makes Entries of the units of b, for a device whose lanes take turns
// every stripe bytes: a power of two, at least ChunkSize.
func NewEntries(b *Budget, stripe uint64) *Entries {
	if stripe < ChunkSize || stripe&(stripe-1) != 0 {
		panic(fmt.Sprintf("backend: stripes of %d bytes", stripe))
	}
	return &Entries{Budget: b, shift: bits.TrailingZeros64(stripe)}
}

// of returns how many entries op needs at most: a WRITE or WRITE_ZEROES has one for
// each run of its bytes, and one more for each stripe boundary that it crosses.
func (e *Entries) of(op *Op) int {
	if op.Cmd != Write && op.Cmd != WriteZeroes {
		return 0
	}
	cuts := (op.Off+op.Len-1)>>e.shift - op.Off>>e.shift
	return max(len(op.Data), 1) + int(cuts)
}

// GiveRest gives back what op was admitted with beyond the used entries that were
// published. The device calls it in Submit, once for each op, while Data is as the
// client left it.
func (e *Entries) GiveRest(op *Op, used int) { e.Give(e.of(op) - used) }

// MaxZero is the length in bytes of the longest WRITE_ZEROES that a client should
// submit as one op: one that takes about a quarter of the index.
func (a *Arenas) MaxZero() uint64 {
	if a.Entries == nil {
		return math.MaxUint64
	}
	return uint64(max(a.Entries.Total()/4, 1)) << a.Entries.shift
}

// An Admission gets a client's writes into the window of a device. A WRITE needs a
// pin on each chunk of its payload (pin.go) and entries of the index, a WRITE_ZEROES
// needs entries, and everything else needs nothing. A client
//
//   - admits each op, then submits the batch, then calls Unpin;
//   - reserves the chunks of a payload that needs several before it receives any of
//     it. That takes all their pins at once: two clients that took one pin after
//     the other could wait for each other forever;
//   - submits the ops that it has admitted before it waits for another.
//
// Everybody takes reservations, pins, chunks and entries in this order, and who has
// its entries waits for nothing. So no two clients wait for each other.
//
// One goroutine uses an Admission at a time. It allocates only where it waits.
type Admission struct {
	arenas *Arenas
	pinned []*Chunk // in the order in which they were pinned
}

// NewAdmission makes an Admission to the device that has these arenas.
func NewAdmission(a *Arenas) *Admission { return &Admission{arenas: a} }

// TryAdmit takes what op needs, if that is there and nobody waits for it. When it
// reports false, it has taken no entries, and Unpin drops the pins that it took.
func (a *Admission) TryAdmit(op *Op) bool {
	if op.Cmd == Write {
		for i := range op.Data {
			c := op.Data[i].Chunk
			if a.holds(c) {
				continue
			}
			if !c.tryPin() {
				return false
			}
			a.pinned = append(a.pinned, c)
		}
	}
	return a.arenas.Entries == nil || a.arenas.Entries.TryTake(a.arenas.Entries.of(op))
}

// Admit takes what op needs, and waits for it first come, first served, until stop
// is closed: then it returns ErrStopped. After an error op holds no entries, and
// Unpin drops the pins. All chunks of op.Data but one were reserved.
func (a *Admission) Admit(op *Op, stop <-chan struct{}) error {
	if op.Cmd == Write {
		for i := range op.Data {
			c := op.Data[i].Chunk
			if a.holds(c) {
				continue
			}
			if err := c.pin(stop); err != nil {
				return err
			}
			a.pinned = append(a.pinned, c)
		}
	}
	if a.arenas.Entries == nil {
		return nil
	}
	return a.arenas.Entries.Take(a.arenas.Entries.of(op), stop)
}

// TryReserve appends n chunks to dst, each with one reference and a pin, and pins
// first, in which the payload begins, if that is not nil. If it cannot do all of
// this at once it does nothing and reports false.
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

// Reserve is TryReserve, but waits first come, first served until stop is closed:
// then it returns ErrStopped and has done nothing.
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

// Unpin drops all pins that a holds: the ops are submitted, or never will be. A
// client that releases the chunks at the same time releases them first, so that
// whoever waits for a pin and a chunk finds both.
func (a *Admission) Unpin() {
	for _, c := range a.pinned {
		c.unpin()
	}
	a.pinned = a.pinned[:0]
}

// holds reports whether a has a pin on c. The newest is the likeliest.
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

// hold pins first and chunks, for which units were taken.
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
