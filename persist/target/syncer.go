package target

import (
	"sync"

	"pmnbd/persist/wire"
)

// A syncer flushes a region whose flush waits for a disk, beside the lanes, so
// that they go on placing. One sync serves every barrier that arrived before it
// began, of whatever lane (design §3.5).
type syncer struct {
	e    *export
	wake chan struct{} // holds one token while there may be jobs
	done chan struct{}

	mu     sync.Mutex
	jobs   []syncJob
	closed bool
}

type syncJob struct {
	c   *conn
	seq uint64
}

func newSyncer(e *export) *syncer {
	y := &syncer{e: e, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go y.run()
	return y
}

// add queues the last part of barrier seq of c's lane.
func (y *syncer) add(c *conn, seq uint64) {
	y.mu.Lock()
	c.session.syncs.begin(seq)
	y.jobs = append(y.jobs, syncJob{c, seq})
	y.mu.Unlock()
	y.signal()
}

func (y *syncer) signal() {
	select {
	case y.wake <- struct{}{}:
	default: // it is awake already
	}
}

// close ends the goroutine. The lanes have ended.
func (y *syncer) close() {
	y.mu.Lock()
	y.closed = true
	y.mu.Unlock()
	y.signal()
	<-y.done
}

func (y *syncer) run() {
	defer close(y.done)
	var jobs []syncJob
	var out outbox
	for range y.wake {
		y.mu.Lock()
		jobs, y.jobs = y.jobs, jobs[:0]
		closed := y.closed
		y.mu.Unlock()
		if len(jobs) > 0 {
			err := y.e.r.Flush(nil) // the whole file
			for _, j := range jobs {
				// An answer that cannot be sent is the connection's loss, and its end.
				if err != nil {
					_ = j.c.fail(j.seq, wire.CodeFailed, err.Error(), &out)
				} else {
					_ = j.c.ack(wire.BarrierAck{Seq: j.seq, Last: true}, &out)
				}
				j.c.session.syncs.end()
			}
		}
		clear(jobs)
		if closed {
			return
		}
	}
}

// inFlight counts a session's barriers that are being synced. They begin on the
// lanes' goroutines and end on the syncer's, in order.
type inFlight struct {
	mu   sync.Mutex
	none *sync.Cond
	seqs []uint64
}

func (f *inFlight) begin(seq uint64) {
	f.mu.Lock()
	f.seqs = append(f.seqs, seq)
	f.mu.Unlock()
}

func (f *inFlight) end() {
	f.mu.Lock()
	f.seqs = append(f.seqs[:0], f.seqs[1:]...)
	if len(f.seqs) == 0 && f.none != nil {
		f.none.Broadcast()
	}
	f.mu.Unlock()
}

// oldest is the barrier in progress; 0 if none.
func (f *inFlight) oldest() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.seqs) == 0 {
		return 0
	}
	return f.seqs[0]
}

// wait returns when none is in progress.
func (f *inFlight) wait() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.none == nil {
		f.none = sync.NewCond(&f.mu)
	}
	for len(f.seqs) > 0 {
		f.none.Wait()
	}
}
