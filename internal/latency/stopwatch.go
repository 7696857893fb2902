package latency

import (
	"sync"
	"time"
)

// A Stopwatch is a Histogram with a mutex of its own, for what happens less often than requests. So
// whoever measures holds no lock that others wait for.
type Stopwatch struct {
	mu   sync.Mutex
	took Histogram
}

// Note counts one duration.
func (w *Stopwatch) Note(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.took.Note(d)
}

// Took returns what was counted so far.
func (w *Stopwatch) Took() Histogram {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.took
}
