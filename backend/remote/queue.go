package remote

import "pmnbd/persist"

// An item is one place in a lane's queue.
type item struct {
	kind itemKind
	// itemWrites: post the entries [from, to) of the stream's ring. itemBarrier: barrier
	// seq covers them, and earlier parts have named those before next. itemRead: from is the
	// number of the read part.
	from, to uint64
	seq      uint64
	next     uint64
	method   persist.Method // of a barrier
	carried  *carried       // of a barrier, for resyncs; or nil
	piece    *piece         // of the last three kinds
}

type itemKind uint8

const (
	itemWrites itemKind = iota
	itemRead
	itemBarrier
	itemDigest // sum the piece
	itemFetch  // read it into its memory
	itemStore  // write what was read, once it is there
	itemAwait  // let nothing pass before the target has answered all DIGESTs
)

// A fifo is a ring that grows, and keeps what it grew to.
type fifo[T any] struct {
	ring    []T
	head, n int
}

func (f *fifo[T]) empty() bool { return f.n == 0 }

// front and back are the oldest and the newest element of a fifo that has one, and at is the one
// behind i others.
func (f *fifo[T]) front() *T   { return f.at(0) }
func (f *fifo[T]) back() *T    { return f.at(f.n - 1) }
func (f *fifo[T]) at(i int) *T { return &f.ring[(f.head+i)%len(f.ring)] }

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

// pushWriteLocked queues the entry at position pos of the ring, unless a replay is under way:
// then it waits for its slice.
func (l *lane) pushWriteLocked(pos uint64) {
	if l.behind {
		return
	}
	if !l.queue.empty() {
		if b := l.queue.back(); b.kind == itemWrites && b.to == pos {
			b.to++
			return
		}
	}
	l.queue.push(item{kind: itemWrites, from: pos, to: pos + 1})
}

// pushReadLocked queues READ part i, unless a replay is under way: then it waits for the slice
// that has all that it came after.
func (l *lane) pushReadLocked(i int) {
	if l.behind {
		return
	}
	l.reads[i].lane = l
	l.queue.push(item{kind: itemRead, from: uint64(i)})
	l.urgent = true
}

// pushBarrierLocked queues barrier seq behind the writes [from, to) of the ring, which it
// covers. In doubt only the target's CPU can say when they are durable (design §3.8). It also answers a
// barrier that covers nothing and is there for another leg's sake: no native FLUSH has its completion.
func (l *lane) pushBarrierLocked(seq, from, to uint64, doubt bool) {
	method := l.leg.method
	if doubt || from == to {
		method = persist.MethodGPSPM
	}
	l.queue.push(item{kind: itemBarrier, seq: seq, from: from, to: to, next: from, method: method})
	l.urgent = true
}

// collectLocked names the ranges of the entries [from, to), as many as fit limit, and
// returns the position where the next part begins.
func (l *lane) collectLocked(from, to uint64, limit int) (next uint64) {
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
