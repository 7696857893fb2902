package target

import (
	"sync"
	"time"

	"pmnbd/internal/latency"
)

// A stopwatch measures how long something takes on one lane. Lanes have one each, so that no
// connection waits for another: only a snapshot comes to the same mutex.
type stopwatch struct {
	mu   sync.Mutex
	took latency.Histogram
}

func (w *stopwatch) note(d time.Duration) {
	w.mu.Lock()
	w.took.Note(d)
	w.mu.Unlock()
}

// writeBacks is how long parts of barriers took to write back, on all lanes.
func (e *export) writeBacks() (all latency.Histogram) {
	for i := range e.wrote {
		w := &e.wrote[i]
		w.mu.Lock()
		all.Add(&w.took)
		w.mu.Unlock()
	}
	return all
}
