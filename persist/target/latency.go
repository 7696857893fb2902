package target

import "pmnbd/internal/latency"

// writeBacks is how long parts of barriers took to write back, on all lanes. Lanes have a Stopwatch
// each, so that no connection waits for another.
func (e *export) writeBacks() (all latency.Histogram) {
	for i := range e.wrote {
		took := e.wrote[i].Took()
		all.Add(&took)
	}
	return all
}
