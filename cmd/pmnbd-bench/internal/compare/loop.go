package compare

import (
	"fmt"
	"sync/atomic"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// A lane is a way to a place that one thread uses: an open file, or a connection.
type lane interface {
	// commit writes all pieces, and returns when they are durable.
	commit([]extent) error
	// run does the operations of writers until the visit is over.
	run([]*worker, span) error
	// bound makes whatever waits beyond a time fail, if the lane can.
	bound(time.Time) error
	close() error
}

// A span is the time of a visit.
type span struct {
	from, until time.Time    // the measured part
	stop        *atomic.Bool // set when the run is interrupted or another lane failed
}

// A worker is a writer of a pattern during one visit. It begins an operation when its last one is
// durable.
type worker struct {
	stream    stream
	latencies *hdr.Histogram // in ns
	commits   int64
	first     time.Time // when the first measured operation began
	// busy is the time from first to the end of the last measured operation.
	busy time.Duration
}

// longest is the longest latency that a histogram keeps; it takes longer ones for that. digits is how
// many digits it keeps of each: it rounds by less than a thousandth.
const (
	longest = 2 * time.Minute
	digits  = 3
)

func newHistogram() *hdr.Histogram { return hdr.New(1, int64(longest), digits) }

// patience is how long a reply may take once a visit is over.
const patience = time.Minute

// count counts an operation that began in the measured time, however long it took, and its time: to
// leave out the last one would leave out the slow ones.
func (w *worker) count(s span, began, ended time.Time, latencyCounts bool) error {
	if began.Before(s.from) {
		return nil
	}
	if w.first.IsZero() {
		w.first = began
	}
	w.busy = ended.Sub(w.first)
	if !latencyCounts {
		return nil
	}
	w.commits++
	if err := w.latencies.RecordValue(int64(min(ended.Sub(began), longest))); err != nil {
		return fmt.Errorf("count %v: %w", ended.Sub(began), err)
	}
	return nil
}

// goesOn reports whether the worker begins another operation: each does at least one that counts.
func (w *worker) goesOn(s span, now time.Time) bool {
	return now.Before(s.until) || w.commits == 0
}
