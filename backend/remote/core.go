package remote

import (
	"sync/atomic"

	"pmnbd/backend"
)

// A core is what does not depend on the target: the window, the streams that order all
// requests, and the group commit over them. A target's leg carries out what they say.
//
// Mutexes are locked in this order: groupCommit.mu, lane.polling, stream.mu, what a Sink locks.
type core struct {
	window  *backend.Window
	streams []*stream
	commit  groupCommit
	failure atomic.Pointer[error] // set once, under commit.mu
}

// newCore makes the core on a window, with a stream for each ring of its index.
func newCore(w *backend.Window, streams int) *core {
	x := &core{window: w}
	x.commit.env = x
	for i := range streams {
		x.streams = append(x.streams, newStream(x, i))
	}
	return x
}

// failed is the error to answer ops with since the device failed or was closed;
// nil before.
func (x *core) failed() error {
	if err := x.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// unflushed is how many bytes of acknowledged writes no successful barrier covers.
func (x *core) unflushed() (bytes uint64) {
	x.commit.mu.Lock()
	defer x.commit.mu.Unlock()
	for _, s := range x.streams {
		s.mu.Lock()
		bytes += s.wrote - s.flushed
		s.mu.Unlock()
	}
	return bytes
}

// empty reports whether successful barriers cover all that was enqueued.
func (x *core) empty() bool {
	for _, s := range x.streams {
		if s.ring.Covered() != s.ring.Head() {
			return false
		}
	}
	return true
}

// refuse makes Submit answer new ops with err. It returns when no op is being enqueued
// that did not see that.
func (x *core) refuse(err error) {
	for _, s := range x.streams {
		s.refuse(err)
	}
}

// fail makes the device's failure final, or its end if err is ErrClosed, and answers all that
// waits for a barrier. The first error stays. note is called before anybody hears of it.
func (x *core) fail(err error, note func()) (first bool) {
	c := &x.commit
	c.mu.Lock()
	if x.failed() != nil {
		c.mu.Unlock()
		return false
	}
	x.refuse(err)
	x.failure.Store(&err)
	note()
	b := c.abandonLocked()
	c.mu.Unlock()
	b.answer(err)
	return true
}

// bury ends what the streams still hold, after the device failed or was closed. The
// connections have ended.
func (x *core) bury() {
	for _, s := range x.streams {
		s.bury()
	}
}

// endPart ends a part of op, and op with the last of them. Parts fail only when
// the device does; op.Err is set if Submit could not enqueue all of them.
func (x *core) endPart(op *backend.Op) (completed bool) {
	if op.Parts.Add(-1) > 0 {
		return false
	}
	if op.Err == nil {
		op.Err = x.failed()
	}
	op.Sink.Complete(op)
	return true
}

// The rest is the environment of the group commit.

func (x *core) streamCount() int  { return len(x.streams) }
func (x *core) head(i int) uint64 { return x.streams[i].ring.Head() }
func (x *core) halfFull() bool    { return x.window.HalfFull() }

func (x *core) enqueue(i int, seq uint64, force, doubt bool) (s share, behind bool) {
	return x.streams[i].enqueueBarrier(seq, force, doubt)
}

func (x *core) cover(i int, s *share) {
	x.streams[i].ring.Cover(s.to)
	x.streams[i].flushed = s.wrote
}

func (x *core) free(i int, s *share) { x.window.Free(i, s.from, s.to) }

func (x *core) post() {
	for _, s := range x.streams {
		s.lane.post()
	}
}
