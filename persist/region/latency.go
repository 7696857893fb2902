package region

import (
	"sync"
	"time"

	"pmnbd/internal/latency"
)

// A stopwatch measures syncs. It has a mutex of its own, because Region.mu is held during a sync:
// nobody waits for a slow disk to learn how slow it is.
type stopwatch struct {
	mu   sync.Mutex
	took latency.Histogram
}

func (w *stopwatch) note(d time.Duration) {
	w.mu.Lock()
	w.took.Note(d)
	w.mu.Unlock()
}

// SyncLatency says how long the syncs took that ended since the region was opened, those that
// failed and those of the superblock too. Only class file has any.
func (r *Region) SyncLatency() latency.Histogram {
	r.synced.mu.Lock()
	defer r.synced.mu.Unlock()
	return r.synced.took
}
