package backend

import (
	"errors"
	"sync"
	"sync/atomic"
)

// ErrStopped is the error of a wait whose stop channel was closed.
var ErrStopped = errors.New("stopped waiting")

// A Budget gives out a bounded number of units, first come, first served: small demands
// do not overtake a large one (design §4.8).
type Budget struct {
	// Pressure, if not nil, is called before a Take waits. It gives every wait an owner:
	// a device starts a barrier, which frees units. The caller of Pressure holds no
	// lock. Set it before the first Take.
	Pressure func()

	mu      sync.Mutex
	total   int
	free    int
	waiters []*budgetWaiter // in order of arrival
	waiting atomic.Int32    // len(waiters), for callers that must not lock mu
}

type budgetWaiter struct {
	n     int
	ready chan struct{}
}

// NewBudget makes a budget of n units.
func NewBudget(n int) *Budget { return &Budget{total: n, free: n} }

// Total returns the number of units that b was made with.
func (b *Budget) Total() int { return b.total }

// Free returns the number of units that nobody holds.
func (b *Budget) Free() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.free
}

// TryTake takes n units and reports true, if they are free and nobody waits for units.
func (b *Budget) TryTake(n int) bool {
	b.mu.Lock()
	ok := len(b.waiters) == 0 && n <= b.free
	if ok {
		b.free -= n
	}
	b.mu.Unlock()
	return ok
}

// Take takes n units, and waits for them if necessary. If stop is closed first, it
// returns ErrStopped and takes nothing. It returns ErrTooLarge if n exceeds Total.
func (b *Budget) Take(n int, stop <-chan struct{}) error {
	if b.TryTake(n) {
		return nil
	}
	if n > b.total {
		return ErrTooLarge
	}
	w := &budgetWaiter{n: n, ready: make(chan struct{})}
	b.mu.Lock()
	b.waiters = append(b.waiters, w)
	b.waiting.Add(1)
	b.serveLocked()
	b.mu.Unlock()
	if b.Pressure != nil {
		b.Pressure()
	}
	select {
	case <-w.ready:
		return nil
	case <-stop:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, x := range b.waiters {
		if x == w {
			b.waiters = append(b.waiters[:i], b.waiters[i+1:]...)
			b.waiting.Add(-1)
			b.serveLocked() // a smaller demand behind this one may fit now
			return ErrStopped
		}
	}
	b.free += n // another goroutine served this one just as it gave up
	b.serveLocked()
	return ErrStopped
}

// Give gives n units back. It panics if nobody can have taken so many.
func (b *Budget) Give(n int) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	b.free += n
	if b.free > b.total {
		b.mu.Unlock()
		panic("backend: more units given back than taken")
	}
	b.serveLocked()
	b.mu.Unlock()
}

// Waiting reports whether a Take waits. A Take that Waiting does not see yet calls
// Pressure later.
func (b *Budget) Waiting() bool { return b.waiting.Load() > 0 }

// serveLocked hands units to waiters in order.
func (b *Budget) serveLocked() {
	for len(b.waiters) > 0 && b.waiters[0].n <= b.free {
		w := b.waiters[0]
		b.waiters = append(b.waiters[:0], b.waiters[1:]...)
		b.waiting.Add(-1)
		b.free -= w.n
		close(w.ready)
	}
}
