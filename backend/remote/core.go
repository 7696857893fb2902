package remote

import (
	"slices"
	"time"

	"pmnbd/backend"
)

// A core is what does not depend on a target: the window, the streams that order all
// requests, and the group commit over them. The legs, one for each copy, carry out what they say.
//
// Mutexes are locked in this order: groupCommit.mu, lane.polling, stream.mu, what a Sink locks.
type core struct {
	life    *life
	window  *backend.Window
	streams []*stream
	commit  groupCommit
	legs    []*leg        // set once, by attach
	copies  *copies       // nil if the device has a region alone; set once
	gone    chan struct{} // holds one token once a leg's session was lost
	over    chan struct{} // closed once the device has failed or was closed
	bad     badCore
	still   standstill // guarded by commit.mu
}

// newCore makes the core on a window, with a stream for each ring of its index.
func newCore(l *life, w *backend.Window, streams int) *core {
	x := &core{life: l, window: w, gone: make(chan struct{}, 1), over: make(chan struct{})}
	x.commit.env = x
	for i := range streams {
		x.streams = append(x.streams, newStream(x, i))
	}
	return x
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

// quiesce waits until no op is being enqueued that has not seen the present phase.
func (x *core) quiesce() {
	for _, s := range x.streams {
		s.mu.Lock()
		s.mu.Unlock() //nolint:staticcheck // whoever had it is through
	}
}

// lost notes that the session of g, which was of this epoch, is lost. READ then comes from another
// leg; FLUSH waits for g.
func (x *core) lost(g *leg, epoch uint64, cause error) transition {
	c := &x.commit
	c.mu.Lock()
	was := g.up.Swap(false)
	g.silentAt, g.lostBy = time.Now(), cause
	if silence := g.pulse.silence(); silence > g.lease()/2 { // else its connection ended, and it may be back at once
		g.silentAt = g.silentAt.Add(-silence)
	}
	p := x.life.phase()
	t := transition{x.life, eventLost, p, p, cause}
	if x.needsLocked(g) {
		t = x.life.step(eventLost, cause)
		select {
		case x.gone <- struct{}{}: // Close may wait for nothing
		default:
		}
	}
	for _, l := range g.lanes {
		l.leaveLocked()
	}
	x.copies.interruptedLocked(g)
	if was && !g.follow.on { // else no barrier is on its lanes
		c.interruptLocked(epoch)
	}
	c.mu.Unlock()
	if x.copies != nil {
		x.copies.rouse()
	}
	return t
}

// stillLost notes that an attempt to bring g back failed, and why.
func (x *core) stillLost(g *leg, cause error) transition {
	c := &x.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	g.lostBy = cause
	if x.needsLocked(g) {
		return x.life.step(eventLost, cause)
	}
	p := x.life.phase()
	return transition{x.life, eventLost, p, p, cause}
}

// needsLocked reports whether barriers wait for g while it is away. The caller holds commit.mu.
func (x *core) needsLocked(g *leg) bool { return x.copies == nil || x.copies.needsLocked(g) }

// spares reports whether the device does without g, and nothing in the window waits for it.
func (x *core) spares(g *leg) bool {
	x.commit.mu.Lock()
	defer x.commit.mu.Unlock()
	return !x.needsLocked(g) && !g.follow.on
}

// backLocked notes that the session of g goes on. The device does when those of all legs do that it
// needs. The caller holds commit.mu.
func (x *core) backLocked(g *leg) transition {
	g.up.Store(true)
	g.backAt = time.Now()
	g.bad, g.hung = nil, nil
	if x.copies != nil {
		x.copies.cameLocked()
		x.copies.rouse()
	}
	return x.completeLocked()
}

// completeLocked lets the device go on if all legs that it needs are there. The caller holds
// commit.mu.
func (x *core) completeLocked() transition {
	p := x.life.phase()
	stays := transition{x.life, eventBack, p, p, nil}
	if !p.away() || x.copies != nil && !x.copies.view.Serves() {
		return stays
	}
	for _, g := range x.legs {
		if !g.up.Load() && x.needsLocked(g) {
			return stays
		}
	}
	if p == phaseOpening {
		return x.life.step(eventOpened, nil)
	}
	return x.life.step(eventBack, nil)
}

// readableLocked has READs come from the legs that are equal. The caller holds commit.mu.
func (x *core) readableLocked() {
	x.forgetBadLocked()
	for _, s := range x.streams {
		s.mu.Lock()
		for _, l := range s.lanes {
			l.serves = x.servesLocked(l.leg)
			l.readable = l.connected && l.serves
		}
		s.chooseReaderLocked()
		s.mu.Unlock()
	}
}

// servesLocked reports whether g may be read from. The caller holds commit.mu.
func (x *core) servesLocked(g *leg) bool { return x.copies == nil || x.copies.servesLocked(g) }

// behind reports whether a lane has a replay under way.
func (x *core) behind() bool {
	for _, s := range x.streams {
		s.mu.Lock()
		behind := slices.ContainsFunc(s.lanes, func(l *lane) bool { return l.connected && l.behind && !l.follows })
		s.mu.Unlock()
		if behind {
			return true
		}
	}
	return false
}

// down reports whether no leg has connections.
func (x *core) down() bool {
	return !slices.ContainsFunc(x.legs, func(g *leg) bool { return g.touches.Load() })
}

// ending reports whether the session of a leg is lost, and its connections may still send payloads. A
// barrier would give these free without the leg.
func (x *core) ending() bool {
	return slices.ContainsFunc(x.legs, func(g *leg) bool { return g.touches.Load() && !g.up.Load() })
}

// ended notes that the connections of g have ended.
func (x *core) ended(g *leg) {
	g.touches.Store(false)
	if x.copies != nil {
		x.commit.mu.Lock()
		x.forgetBadLocked()
		x.commit.mu.Unlock()
		x.copies.rouse()
		x.commit.start(true) // the others go on without a leg that they do not need
		x.post()
	}
}

// abort ends the connections of a device that failed.
func (x *core) abort() {
	for _, g := range x.legs {
		if g.up.Load() {
			for _, l := range g.lanes {
				l.abort(backend.ErrFailed)
			}
		}
	}
}

// buryFailed buries what a failed device still holds once the connections of the last leg have
// ended: until then an adapter may store what a READ asked for.
func (x *core) buryFailed() {
	if x.down() {
		x.bury()
	}
}

// end makes the device's failure, or its end, final, and answers all that waits for a barrier. If it
// was not before, note is called before anybody hears of it.
func (x *core) end(cause error, note func(transition)) transition {
	c := &x.commit
	c.mu.Lock()
	t := x.life.step(eventEnd, cause)
	if !t.first() {
		c.mu.Unlock()
		return t
	}
	close(x.over)
	x.quiesce()
	note(t)
	b := c.abandonLocked()
	c.mu.Unlock()
	b.answer(x.failed())
	return t
}

// bury ends what the streams still hold, after the device failed or was closed. The
// connections have ended.
func (x *core) bury() {
	x.copies.endFollowing()
	for _, s := range x.streams {
		s.bury()
	}
}

// endPart ends a part of op, and op with the last of them. Parts fail when the device does, and where
// the medium has lost what they ask for; op.Err is set if Submit could not enqueue all of them.
func (x *core) endPart(op *backend.Op) (completed bool) {
	left := op.Parts.Add(-1)
	if left&^partBad > 0 {
		return false
	}
	if left&partBad != 0 && op.Err == nil {
		op.Err = ErrBadPlace
	}
	if op.Err == nil {
		op.Err = x.failed()
	}
	op.Sink.Complete(op)
	return true
}

// The rest is the environment of the group commit.

func (x *core) failed() error { return x.life.failed() }
func (x *core) up() bool {
	p := x.life.phase()
	if x.copies == nil {
		return p.up()
	}
	v := &x.copies.view
	return !v.Pending && !x.ending() && !x.copies.lagsLocked() && (p.up() || !p.ended() && !v.Serves()) // copies come first (mirror §4.4)
}

func (x *core) answers() bool {
	if x.copies == nil || x.copies.view.Flushes() {
		return true
	}
	x.copies.rouse() // it may do with those that are equal
	return false
}
func (x *core) bits() bool {
	return x.copies != nil && x.copies.view.Active != x.copies.view.Record.Present()
}
func (x *core) legCount() int     { return len(x.legs) }
func (x *core) streamCount() int  { return len(x.streams) }
func (x *core) head(i int) uint64 { return x.streams[i].ring.Head() }
func (x *core) halfFull() bool    { return x.window.HalfFull() }

func (x *core) enqueue(i int, seq uint64, force, doubt bool) (s share, behind bool) {
	return x.streams[i].enqueueBarrier(seq, force, doubt)
}

func (x *core) cover(i int, s *share) {
	x.streams[i].ring.Cover(s.to)
	s.bytes = s.wrote - x.streams[i].flushed
	x.streams[i].flushed = s.wrote
	if x.streams[i].carries {
		x.streams[i].settle()
	}
}

func (x *core) retired(b *barrier) {
	if x.copies != nil {
		x.copies.retiredLocked(b)
	}
}

func (x *core) needed(b *barrier) bool { return x.copies != nil && x.copies.needs(b) }

// done counts the answer of lane l to barrier seq.
func (x *core) done(l *lane, seq uint64) {
	if !l.leg.following.Load() || !x.copies.followed(l.leg, l.index, seq) {
		x.commit.done(l.index, l.leg.slot, seq)
	}
}

func (x *core) free(i int, s *share) { x.window.Free(i, s.from, s.to) }

func (x *core) post() {
	for _, s := range x.streams {
		for _, l := range s.lanes {
			l.post()
		}
	}
}
