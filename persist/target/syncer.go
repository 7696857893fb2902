package target

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/wire"
)

// A syncer does for a region, beside the lanes, what they must not wait for: the
// sync of class file behind barriers, the flush of the whole extent that clears the
// doubt which a new owner inherits (design §3.8), and the mark (mark.go). One sync serves every
// barrier that arrived before it began, of whatever lane (design §3.5). While there
// is doubt no barrier is acknowledged.
type syncer struct {
	e    *export
	wake chan struct{} // holds one token while there may be work
	done chan struct{}

	doubt  atomic.Bool   // as persisted
	left   atomic.Uint64 // bytes that the whole-extent flush still has to do
	began  atomic.Int64  // since when the flush that is under way runs, by clock; 0 if none does
	doubts atomic.Uint64 // how often doubt was set: a flush clears only what it began after

	mu     sync.Mutex
	idle   sync.Cond // active is empty
	jobs   []syncJob
	active []syncJob // being synced
	closed bool

	marking  bool   // the mark shall advance
	marked   uint64 // how many barriers were acknowledged when it last did
	markedAt int64  // when that was, by clock
	looking  bool   // the superblock shall be looked at
	lookedAt int64  // when that was last done, by clock
}

// A syncJob is the last part of a barrier on a lane.
type syncJob struct {
	c   *conn
	seq uint64
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

// doubted starts the whole-extent flush, or starts it again. A grant calls it after it
// has joined the session that left the doubt, and before it persists the doubt.
func (y *syncer) doubted() {
	y.mu.Lock()
	y.doubts.Add(1)
	y.left.Store(y.e.r.Size())
	y.doubt.Store(true)
	y.mu.Unlock()
	y.signal()
}

// add queues the last part of barrier seq of c's lane. A peer that has more
// barriers unanswered than it has credits is cut off: it would fill the memory.
func (y *syncer) add(c *conn, seq uint64) error {
	y.mu.Lock()
	unanswered := 1
	for _, jobs := range [][]syncJob{y.active, y.jobs} {
		for _, j := range jobs {
			if j.c == c {
				unanswered++
			}
		}
	}
	if unanswered > credits {
		y.mu.Unlock()
		return fmt.Errorf("%w: more than %d barriers without an answer", errStranger, credits)
	}
	y.jobs = append(y.jobs, syncJob{c, seq})
	y.mu.Unlock()
	y.signal()
	return nil
}

func (y *syncer) signal() {
	select {
	case y.wake <- struct{}{}:
	default: // it is awake already
	}
}

// forget drops c's barriers that wait for a sync, and waits for the sync of those that
// do not. c's goroutine calls it, or has ended.
func (y *syncer) forget(c *conn) {
	its := func(j syncJob) bool { return j.c == c }
	y.mu.Lock()
	defer y.mu.Unlock()
	y.jobs = slices.DeleteFunc(y.jobs, its)
	for slices.ContainsFunc(y.active, its) {
		y.idle.Wait()
	}
}

// oldest is the barrier of s in progress; 0 if none.
func (y *syncer) oldest(s *session) uint64 {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, jobs := range [][]syncJob{y.active, y.jobs} {
		for _, j := range jobs {
			if j.c.session == s {
				return j.seq
			}
		}
	}
	return 0
}

// close ends the goroutine. The lanes have ended.
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
		err := y.settle()
		if y.isClosed() {
			return
		}
		y.mu.Lock()
		if y.doubt.Load() && err == nil {
			y.mu.Unlock() // set again meanwhile; the token for it is there
			continue
		}
		y.jobs, y.active = y.active[:0], y.jobs
		jobs := y.active
		y.mu.Unlock()
		if len(jobs) > 0 && err == nil && y.e.r.MayBlock() {
			y.began.Store(clock())
			err = y.e.r.Flush(nil) // the whole file
			y.began.Store(0)
		}
		for _, j := range jobs {
			var lost error
			if err != nil {
				lost = j.c.fail(j.seq, wire.CodeFailed, err.Error(), &out)
			} else {
				lost = j.c.ack(wire.BarrierAck{Seq: j.seq, Last: true}, &out)
			}
			if lost != nil {
				_ = j.c.interrupt() // the initiator must not wait for ever for its answer
			}
		}
		y.mu.Lock()
		clear(y.active)
		y.active = y.active[:0]
		y.idle.Broadcast()
		y.mu.Unlock()
		if err == nil {
			y.look() // behind the answers, which do not wait for it
			y.mark()
		}
	}
}

// errAgain: doubt was set again while its flush was under way.
var errAgain = errors.New("doubted again")

// settle clears the doubt, if there is any, by a flush of the whole extent. It
// returns early, in doubt, when the doubt is set again or the server closes.
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
			if err := y.e.r.Flush([]persist.Range{{Off: off, Len: n}}); err != nil {
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
			y.e.s.log.Info("doubt cleared: all that can be read is durable", zap.String("region", y.e.r.Name()))
		}
	}
	return nil
}
