// Package queue keeps the accounts of a queue pair for the providers of package
// rdma: which slots of its work queues are free, what has completed, and the error
// that ended it.
//
// It knows no transport and takes no lock. A provider guards each value with a mutex of its
// own. Only Completions.Err needs none.
package queue

import (
	"sync/atomic"

	"pmnbd/rdma"
)

// A Ring holds the entries of a queue by position: the first that was ever added has position
// 0. Len entries fit, so position n+Len takes the place of position n.
type Ring[T any] struct{ slots []T }

// NewRing returns a Ring for n entries.
func NewRing[T any](n int) Ring[T] { return Ring[T]{make([]T, n)} }

// Len returns how many entries fit.
func (r *Ring[T]) Len() uint64 { return uint64(len(r.slots)) }

// At returns the entry at a position. Len must not be 0.
func (r *Ring[T]) At(position uint64) *T { return &r.slots[position%uint64(len(r.slots))] }

// Completions is a completion queue and the state of its queue pair. It cannot
// overflow: a provider reuses a slot of a work queue only after the completion that
// frees it has been taken.
type Completions struct {
	ring           Ring[entry]
	pushed, popped uint64
	sends, recvs   uint64 // retired
	err            atomic.Pointer[error]
}

type entry struct {
	rdma.Completion
	retired uint64
}

// Init makes room for the completions of sends and recvs requests.
func (q *Completions) Init(sends, recvs int) { q.ring = NewRing[entry](sends + recvs) }

// Push adds done unless the queue pair has failed. Taking it retires the requests of
// its work queue, the receive queue for OpRecv and the send queue for all else, whose
// position is less than retires.
func (q *Completions) Push(done rdma.Completion, retires uint64) {
	if q.err.Load() == nil {
		*q.ring.At(q.pushed) = entry{done, retires}
		q.pushed++
	}
}

// Empty reports whether every completion has been taken.
func (q *Completions) Empty() bool { return q.popped == q.pushed }

// Pop moves completions into cs, oldest first. When there is none it returns Err.
func (q *Completions) Pop(cs []rdma.Completion) (n int, err error) {
	if q.Empty() {
		return 0, q.Err()
	}
	for n < len(cs) && !q.Empty() {
		e := q.ring.At(q.popped)
		q.popped++
		cs[n] = e.Completion
		n++
		if e.Op == rdma.OpRecv {
			q.recvs = e.retired
		} else {
			q.sends = e.retired
		}
	}
	return n, nil
}

// Ready reports whether Pop has completions. When it has none it returns Err.
func (q *Completions) Ready() (bool, error) {
	if !q.Empty() {
		return true, nil
	}
	return false, q.Err()
}

// Sends returns how many requests of the send queue are retired.
func (q *Completions) Sends() uint64 { return q.sends }

// Recvs returns how many requests of the receive queue are retired.
func (q *Completions) Recvs() uint64 { return q.recvs }

// Fail keeps err if it is the first, and reports whether it is. No completion is added
// after it.
func (q *Completions) Fail(err error) (first bool) { return q.err.CompareAndSwap(nil, &err) }

// Err returns the first error that Fail was given, or nil. It needs no lock.
func (q *Completions) Err() error {
	if err := q.err.Load(); err != nil {
		return *err
	}
	return nil
}
