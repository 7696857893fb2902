package remote

import "pmnbd/persist"

// An item is one place in a lane's queue.
type item struct {
	kind itemKind
	// itemWrites: the entries [from, to) of the lane's index ring are to be
	// posted. itemBarrier: they are what barrier seq covers, those before next
	// were named already. itemRead: from is the number of the read part.
	from, to uint64
	seq      uint64
	next     uint64
	method   persist.Method // of a barrier
}

type itemKind uint8

const (
	itemWrites itemKind = iota
	itemRead
	itemBarrier
)

// A fifo is a ring that grows, and keeps what it grew to.
type fifo[T any] struct {
	ring    []T
	head, n int
}

func (f *fifo[T]) empty() bool { return f.n == 0 }

// front and back are the oldest and the newest element of a fifo that has one.
func (f *fifo[T]) front() *T { return &f.ring[f.head] }
func (f *fifo[T]) back() *T  { return &f.ring[(f.head+f.n-1)%len(f.ring)] }

// clear forgets all elements.
func (f *fifo[T]) clear() { f.head, f.n = 0, 0 }

func (f *fifo[T]) pop() T {
	x := *f.front()
	f.head = (f.head + 1) % len(f.ring)
	f.n--
	return x
}

func (f *fifo[T]) push(x T) {
	if f.n == len(f.ring) {
		grown := make([]T, max(64, 2*f.n))
		for i := range f.n {
			grown[i] = f.ring[(f.head+i)%len(f.ring)]
		}
		f.ring, f.head = grown, 0
	}
	f.n++
	*f.back() = x
}

// pushWrite queues the entry at position pos of the index ring.
func (l *lane) pushWrite(pos uint64) {
	if !l.queue.empty() {
		if b := l.queue.back(); b.kind == itemWrites && b.to == pos {
			b.to++
			return
		}
	}
	l.queue.push(item{kind: itemWrites, from: pos, to: pos + 1})
}

// collect names the ranges of the entries [from, to), as many as fit limit, and
// returns the position where the next part begins.
func (l *lane) collect(from, to uint64, limit int) (next uint64) {
	l.ranges = l.ranges[:0]
	for ; from < to; from++ {
		e := l.ring.At(from)
		ranges, ok := coalesce(l.ranges, persist.Range{Off: e.Off, Len: uint64(e.Len)}, limit)
		if !ok {
			break
		}
		l.ranges = ranges
	}
	return from
}
