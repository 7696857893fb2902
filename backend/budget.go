package backend

import (
	"errors"
	"sync"
	"sync/atomic"
)

// ErrStopped is returned by waits that their stop channel ended.
var ErrStopped = errors.New("stopped waiting")

// A Budget is a bounded number of units that is given out first come, first
// served: a large demand is not overtaken by small ones behind it (design §4.8).
type Budget struct {
	// Pressure, if not nil, is called without locks before a Take waits, so that
	// every wait has an owner: the device starts a barrier. Set before use.
	Pressure func()

	mu      sync.Mutex
	total   int
	free    int
	waiters []*budgetWaiter // in order of arrival
	waiting atomic.Int32    // len(waiters), for who must not lock
}

type budgetWaiter struct {
	n     int
	ready chan struct{}
}

// NewBudget makes a budget of n units.
func NewBudget(n int) *Budget { return &Budget{total: n, free: n} }

// Total is the number of units that there are.
func (b *Budget) Total() int { return b.total }

// Free is the number of units that nobody holds.
func (b *Budget) Free() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.free
}

// TryTake takes n units if they are free and nobody waits for any.
func (b *Budget) TryTake(n int) bool {
	b.mu.Lock()
	ok := len(b.waiters) == 0 && n <= b.free
	if ok {
		b.free -= n
	}
	b.mu.Unlock()
	return ok
}

// Take takes n units and waits for them if it must, until stop is closed: then it
// returns ErrStopped and has taken nothing. n is at most Total.
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
	b.serve()
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
			b.serve() // those behind may fit now
			return ErrStopped
		}
	}
	b.free += n // served just as it gave up
	b.serve()
	return ErrStopped
}

// Give returns n units.
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
	b.serve()
	b.mu.Unlock()
}

// Waiting reports whether anybody waits. Who is not seen here has not called Pressure
// yet.
func (b *Budget) Waiting() bool { return b.waiting.Load() > 0 }

// serve hands units to waiters in order. b.mu is held.
func (b *Budget) serve() {
	for len(b.waiters) > 0 && b.waiters[0].n <= b.free {
		w := b.waiters[0]
		b.waiters = append(b.waiters[:0], b.waiters[1:]...)
		b.waiting.Add(-1)
		b.free -= w.n
		close(w.ready)
	}
}
