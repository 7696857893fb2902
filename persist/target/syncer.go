package target

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/wire"
)

// A syncer does for a region what its lanes must not wait for: it syncs class file for
// barriers, writes back large parts of barriers (writeback.go), keeps records of classes file
// and protected (mirror.go), flushes the whole extent to settle the
// doubt that a new owner inherits (design §3.8), and advances the mark (mark.go). One sync serves every barrier that
// arrived before the sync began, on any lane (design §3.5). During doubt it acknowledges
// no barrier.
type syncer struct {
	e    *export
	turn sync.Mutex    // held while it works, outside mu
	wake chan struct{} // holds one token while there may be work
	done chan struct{}

	doubt  atomic.Bool   // as persisted
	left   atomic.Uint64 // how many bytes the flush of the whole extent still has to do
	began  atomic.Int64  // when the current sync or flush began, by clock, or 0
	doubts atomic.Uint64 // how often doubt was set: a flush settles only doubt from before it began

	mu       sync.Mutex
	idle     sync.Cond // another job has its answer, or a record is kept
	jobs     []syncJob
	active   []syncJob // being synced and answered
	answered int       // how many of active have their answer
	closed   bool

	record    *recordJob // to be kept
	recording *recordJob // being kept

	marking  bool   // the mark is to advance
	marked   uint64 // how many barriers were acknowledged when it last advanced
	markedAt int64  // when that was, by clock
	looking  bool   // the superblock is to be checked
	lookedAt int64  // when it was last checked, by clock
}

// A recordJob is a RECORD of a lane.
type recordJob struct {
	c    *conn
	m    wire.Record
	kept bool // the region has it, or refused it
}

// A syncJob is a part of a barrier on a lane. For class file it is the last one, or follows a part
// that has no answer yet.
type syncJob struct {
	c      *conn
	seq    uint64
	last   bool
	losses uint64          // what Region.Losses said when the barrier came
	ranges []persist.Range // to write back
}

func newSyncer(e *export) *syncer {
	y := &syncer{e: e, wake: make(chan struct{}, 1), done: make(chan struct{}), markedAt: clock(), lookedAt: clock()}
	y.idle.L = &y.mu
	if e.r.Superblock().Doubt {
		y.doubted()
	}
	go y.run()
	return y
}

// doubted starts the flush of the whole extent, or starts it again. A grant calls it
// after joining the session that left the doubt, and before persisting the doubt.
func (y *syncer) doubted() {
	y.mu.Lock()
	y.doubts.Add(1)
	y.left.Store(y.e.r.Size())
	y.doubt.Store(true)
	y.mu.Unlock()
	y.signal()
}

// unansweredLocked returns the jobs without an answer, the oldest first. An answer gives the
// peer its credit back, so what has one must not count any more, even while the syncer still
// works on what came with it.
func (y *syncer) unansweredLocked() [2][]syncJob {
	return [2][]syncJob{y.active[y.answered:], y.jobs}
}

// add queues a job. It returns an error if the peer has more unanswered parts of barriers
// than credits, because they would fill the memory.
func (y *syncer) add(job syncJob) error {
	y.mu.Lock()
	unanswered := 1
	for _, jobs := range y.unansweredLocked() {
		for _, j := range jobs {
			if j.c == job.c {
				unanswered++
			}
		}
	}
	if unanswered > credits {
		y.mu.Unlock()
		return fmt.Errorf("%w: more than %d unanswered barriers", errStranger, credits)
	}
	y.jobs = append(y.jobs, job)
	y.mu.Unlock()
	y.signal()
	return nil
}

// has reports whether a job of c has no answer yet.
func (y *syncer) has(c *conn) bool {
	its := func(j syncJob) bool { return j.c == c }
	y.mu.Lock()
	defer y.mu.Unlock()
	jobs := y.unansweredLocked()
	return slices.ContainsFunc(jobs[0], its) || slices.ContainsFunc(jobs[1], its)
}

func (y *syncer) signal() {
	select {
	case y.wake <- struct{}{}:
	default: // it is awake already
	}
}

// forget drops c's barriers and record that wait for the syncer, and waits for the sync of
// the others. It does not wait for all that they name to be written back: nobody wants the
// answer any more.
// Only c's goroutine calls it, or anybody after that goroutine has ended.
func (y *syncer) forget(c *conn) {
	its := func(j syncJob) bool { return j.c == c }
	c.leaves.Store(true)
	defer c.leaves.Store(false)
	y.mu.Lock()
	defer y.mu.Unlock()
	defer func() { c.dropped = false }() // for its next session
	y.jobs = slices.DeleteFunc(y.jobs, its)
	if y.record != nil && y.record.c == c {
		y.record = nil
	}
	for slices.ContainsFunc(y.active[y.answered:], its) {
		y.idle.Wait()
	}
	for y.recording != nil && y.recording.c == c {
		y.idle.Wait()
	}
}

// oldest returns the oldest barrier of s that is in progress, or 0.
func (y *syncer) oldest(s *session) uint64 {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, jobs := range y.unansweredLocked() {
		for _, j := range jobs {
			if j.c.session == s {
				return j.seq
			}
		}
	}
	return 0
}

// close ends the goroutine. All lanes must have ended.
func (y *syncer) close() {
	y.mu.Lock()
	y.closed = true
	y.mu.Unlock()
	y.signal()
	<-y.done
}

func (y *syncer) isClosed() bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.closed
}

func (y *syncer) run() {
	defer close(y.done)
	var out outbox
	for range y.wake {
		y.turn.Lock()
		if !y.e.halted() { // an update of the superblock behind a save would make the image worthless
			y.work(&out)
		}
		y.turn.Unlock()
		if y.isClosed() {
			return
		}
	}
}

// work does all that there is to do.
func (y *syncer) work(out *outbox) {
	y.keepRecord(out)
	err := y.settle()
	if y.isClosed() {
		return
	}
	y.mu.Lock()
	if y.doubt.Load() && err == nil {
		y.mu.Unlock() // set again in between, and so is the token in wake
		return
	}
	y.jobs, y.active = y.active[:0], y.jobs
	jobs := y.active
	y.mu.Unlock()
	if len(jobs) > 0 && err == nil && y.e.r.MayBlock() {
		y.began.Store(clock())
		if err = y.note(jobs); err == nil && slices.ContainsFunc(jobs, func(j syncJob) bool { return j.last }) {
			err = y.e.r.Flush(nil) // the whole file, or the parts that barriers have noted
		}
		y.began.Store(0)
	}
	for i := range jobs {
		if lost := y.finish(&jobs[i], err, out); lost != nil {
			_ = jobs[i].c.interrupt() // the initiator must not wait for its answer for ever
		}
		y.mu.Lock()
		jobs[i] = syncJob{}
		y.answered++
		y.idle.Broadcast()
		y.mu.Unlock()
	}
	y.mu.Lock()
	y.active, y.answered = y.active[:0], 0
	y.mu.Unlock()
	if err == nil {
		y.look() // behind the answers, which need not wait for it
		y.mark()
	}
}

// rest returns when the syncer does nothing any more until the server resumes. All sessions have
// ended. Doubt is settled, unless the region failed: what can be read will be saved.
func (y *syncer) rest() error {
	y.turn.Lock()
	defer y.turn.Unlock()
	return y.settle()
}

// errAgain: doubt was set again during its flush.
var errAgain = errors.New("doubted again")

// finish writes back what a job names, and answers it. err is why that cannot be done. finish
// returns an error if the answer did not go out.
func (y *syncer) finish(j *syncJob, err error, out *outbox) error {
	if err == nil && (j.c.dropped || j.c.ends() && !y.e.r.MayBlock()) {
		return nil // a part before may have been dropped, and this one may name nothing
	}
	if err == nil && len(j.ranges) > 0 && !y.e.r.MayBlock() {
		y.began.Store(clock())
		began := time.Now()
		err = y.writeBack(j)
		y.e.wrote[j.c.lane].Note(time.Since(began))
		y.began.Store(0)
	}
	if err == nil {
		err = y.e.r.Failed() // the part before may have failed, and this one may name nothing
	}
	switch {
	case errors.Is(err, errEnded):
		return nil // nobody waits for the answer
	case errors.Is(err, region.ErrSave):
		return err // as in conn.flush
	case err != nil:
		return j.c.fail(j.seq, wire.CodeFailed, err.Error(), out)
	}
	return j.c.ack(wire.BarrierAck{Seq: j.seq, Last: j.last}, j.losses, out)
}

// settle settles the doubt, if there is any, by a flush of the whole extent. It starts
// again if the doubt is set again, and returns early, in doubt, if the server closes.
func (y *syncer) settle() error {
	if y.doubt.Load() {
		y.began.Store(clock())
		defer y.began.Store(0)
	}
	for y.doubt.Load() {
		began := y.doubts.Load()
		again := func() bool { return y.doubts.Load() != began }
		step := y.e.s.cfg.step
		if y.e.r.MayBlock() {
			step = y.e.r.Size() // one sync
		}
		for off := uint64(0); off < y.e.r.Size() && !again(); off += step {
			if y.isClosed() {
				return nil
			}
			n := min(step, y.e.r.Size()-off)
			if err := y.e.r.FlushReadable(persist.Range{Off: off, Len: n}); err != nil {
				return err
			}
			y.left.Store(y.e.r.Size() - off - n)
		}
		err := y.e.r.Update(func(sb *region.Superblock) error {
			if again() {
				return errAgain
			}
			sb.Doubt = false
			return nil
		})
		switch {
		case errors.Is(err, errAgain):
		case err != nil:
			return err
		default:
			y.mu.Lock()
			if !again() {
				y.doubt.Store(false)
			}
			y.mu.Unlock()
			y.e.s.log.Info("doubt settled: everything readable is durable", slog.String("region", y.e.r.Name()))
		}
	}
	return nil
}
