package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"pmnbd/internal/mirror"
	"pmnbd/persist"
	"pmnbd/rdma"
)

const (
	// copiesAhead is how many chunks of a leg are compared or copied at the same time (mirror §5.6).
	copiesAhead = 8
	// pieceSize is how many bytes one Read fetches and one Write stores: what is ahead of a client's
	// request is no more than that at a time.
	pieceSize = 256 << 10
	// settleBytes is after how many copied bytes a resync asks for a barrier. A barrier that a FLUSH
	// waits for makes no more than about that durable for the resync's sake.
	settleBytes = 16 << 20
	// resyncPatience is how long a resync may move nothing before it counts as lost (mirror §5.6).
	// crowdedPatience is the same while the leg carries other things: a slow network may have a whole
	// window ahead of a copy.
	resyncPatience  = 60 * time.Second
	crowdedPatience = 20 * time.Minute
	// bitsPatience bounds the wait for the answer to a BITS.
	bitsPatience = 60 * time.Second
)

// A resync copies to a leg what it lacks, in one session of that leg (mirror §5). The leg takes all
// writes meanwhile, and serves nobody.
//
//	bits ─► chunk ─► DIGEST at both ─► equal ────────────────────► barrier ─► clean
//	                      └─ different ─► Read at the source,        (settlement)
//	                                      Write at the leg ──────────►
//
// What is at the source and what is at the leg are at the same place of the two queues of a stream.
// So a copy has the writes ahead of it, and those behind it come later at the leg (mirror §5.3).
//
// One goroutine drives it, which copies.end waits for. It sleeps until rouse. It outlives the leg's
// session until no Read into its memory is under way at the source.
type resync struct {
	copies *copies
	leg    *leg
	pieces []piece // copiesAhead of them
	all    bool    // everything is to be copied, whatever the bits say
	clears bool    // the others keep bits for the leg

	wake chan struct{} // holds a token while there may be something to do
	lost chan struct{} // closed once the leg's session is lost
	once sync.Once     // closes lost

	verify *verification // whose part it is; nil: it is a resync

	shares []settlement // by stream, each guarded by that stream's mutex

	// Of the goroutine.
	todo  chunks
	moved time.Time // when a copy last came further
	carry uint64    // what the leg had carried when watch last looked
	crowd time.Time // when that was more than before
	due   time.Time // ResyncRate allows no further chunk before
	bytes uint64    // to settle, by guess: since the last barrier was asked for

	compared atomic.Uint64 // bytes, of a Verify
}

// startResyncsLocked starts a resync for each leg that is there and not equal. It returns a leg that
// must come back first: it left F while it had a session, so its record does not say that it is half
// copied. The caller holds commit.mu.
func (k *copies) startResyncsLocked() (again *leg) {
	if k.view.Pending || k.core.failed() != nil || k.life.Err() != nil {
		return nil
	}
	for i, g := range k.core.legs {
		inF := k.view.Record.F.Has(g.slot)
		switch {
		case !g.up.Load() || g.vacant || k.view.Equal.Has(g.slot) || g.follow.on: // vacant: its connections are about to end
			continue
		case !inF && !g.record.Torn && k.view.Serves(): // before, its record is as meet left it
			again = g
			continue
		case g.copying != nil:
			continue
		}
		r := &resync{
			copies: k, leg: g, pieces: k.pieces[i*copiesAhead : (i+1)*copiesAhead],
			all: inF || !k.view.Serves() || g.met == mirror.ResyncAll, clears: !inF && k.view.Serves(),
			wake: make(chan struct{}, 1), lost: make(chan struct{}), shares: make([]settlement, len(k.core.streams)),
		}
		for p := range r.pieces { // what an earlier session had begun counts nothing (mirror §5.4)
			r.pieces[p].state = pieceFree
		}
		g.copying = r
		for _, l := range g.lanes { // they are connected: g is up
			l.mu.Lock()
			l.copying = r
			l.mu.Unlock()
		}
		k.ended.Add(1)
		go r.run()
	}
	return again
}

// stopResyncsLocked ends copying to legs that leave F before they are equal: their records do not say
// that they are half copied. The caller holds commit.mu.
func (k *copies) stopResyncsLocked(f persist.Members) {
	for _, g := range k.core.legs {
		if r := g.copying; r != nil && !f.Has(g.slot) && !g.record.Torn {
			r.detach()
			r.end()
		}
	}
}

// detach has no more copies queued for the leg.
func (r *resync) detach() {
	for _, l := range r.leg.lanes {
		l.mu.Lock()
		if l.copying == r {
			l.copying = nil
		}
		l.mu.Unlock()
	}
}

// errLetGo ends the session of a leg that left F before it was equal.
var errLetGo = fmt.Errorf("%w: the mirror let it go before it had everything", rdma.ErrLost)

// rouse has the goroutine look again.
func (r *resync) rouse() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// end has the goroutine end: the leg's session is lost.
func (r *resync) end() {
	r.once.Do(func() { close(r.lost) })
	r.rouse()
}

// over reports whether the leg's session is lost.
func (r *resync) over() bool {
	select {
	case <-r.lost:
		return true
	default:
		return false
	}
}

// run is the goroutine.
func (r *resync) run() {
	k, g := r.copies, r.leg
	defer k.ended.Done()
	began := time.Now()
	err := r.copy(began)
	r.drain()
	for i := range r.pieces { // the next session has bits of its own
		r.pieces[i].state = pieceFree
	}
	r.detach()
	g.progress.set(resyncProgress{})
	c := &k.core.commit
	c.mu.Lock()
	g.copying = nil
	c.mu.Unlock()
	region, target := slog.String("region", g.cfg.Region), slog.String("target", g.cfg.Addr)
	if err != nil {
		g.log.Info("a resync was interrupted", region, target, slog.Any("error", err))
	} else {
		g.log.Info("a resync is through: the target has what the others have", region, target, slog.Duration("after", time.Since(began)))
	}
	k.rouse() // for the next session
}

// copy copies until the leg has everything and the mirror takes it in, or an error ends that.
func (r *resync) copy(began time.Time) error {
	for {
		err := r.readBits()
		if err == nil {
			break
		}
		if err := r.wait(time.Second); err != nil {
			return err
		}
	}
	total := r.todo.bytes()
	r.leg.progress.set(resyncProgress{Total: total, Since: began})
	r.leg.log.Info("a resync begins", slog.String("region", r.leg.cfg.Region), slog.String("target", r.leg.cfg.Addr), slog.Uint64("bytes", total))
	r.moved = time.Now()
	for {
		pause, done := r.step()
		if done {
			return nil
		}
		if err := r.wait(pause); err != nil {
			return err
		}
	}
}

// errResyncEnded ends a resync with its session, or with the device.
var errResyncEnded = errors.New("the session is lost, or the device ends")

// wait waits until there may be something to do, at most for d; 0: without a limit.
func (r *resync) wait(d time.Duration) error {
	var timer <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-r.wake:
	case <-timer:
	case <-r.lost:
	case <-r.copies.life.Done():
	}
	if r.over() || r.copies.life.Err() != nil {
		return errResyncEnded
	}
	return nil
}

// drain waits until no piece is under way: a target may still store in its memory. It posts, because step
// no longer does: the Write that waits for a source's Read leaves only with a post of its lane.
func (r *resync) drain() {
	for r.copies.life.Err() == nil && r.outstanding() {
		r.copies.core.post()
		select {
		case <-r.wake:
		case <-r.copies.life.Done():
		}
	}
}

// step does what can be done now. pause is when to look again; 0: when something has happened. done
// reports that the leg is the mirror's again.
func (r *resync) step() (pause time.Duration, done bool) {
	now := time.Now()
	busy := 0
	for i := range r.pieces {
		p := &r.pieces[i]
		if p.state == pieceFree {
			continue
		}
		if r.advance(p) {
			r.moved = now
		}
		if p.state != pieceFree {
			busy++
		}
	}
	limit := r.limit()
	for i := range r.pieces {
		p := &r.pieces[i]
		if busy >= limit || r.todo.left == 0 {
			break
		}
		if p.state != pieceFree {
			continue
		}
		if wait := r.due.Sub(now); wait > 0 {
			pause = wait
			break
		}
		r.begin(p, now)
		r.advance(p)
		busy++
		r.moved = now
	}
	unsettled := r.unsettled()
	if unsettled > 0 && (busy == 0 || r.bytes >= settleBytes || unsettled >= settleRanges) {
		r.bytes = 0
		r.copies.core.commit.start(true)
		r.copies.core.post()
	}
	switch {
	case busy > 0 && r.verify == nil:
		return r.watch(now, pause), false
	case busy > 0 || unsettled > 0 || r.todo.left > 0:
		return pause, false
	}
	if r.verify != nil {
		return 0, true
	}
	if err := r.copies.takeIn(r.leg); errors.Is(err, errArbiterAway) {
		return arbiterPause, false
	} else if err != nil {
		return 0, false // a change that is under way rouses when it is through
	}
	r.copies.core.commit.start(false) // what waited for an equal copy
	r.copies.core.post()
	return 0, true
}

// begin has p take the next chunk.
func (r *resync) begin(p *piece, now time.Time) {
	off, n := r.todo.take()
	x := r.copies.core
	p.stream = x.streams[off/stripe%uint64(len(x.streams))]
	p.start, p.off, p.end = off, off, off+n
	p.state = pieceWaits
	if rate := r.leg.cfg.ResyncRate; rate > 0 {
		if r.due.Before(now) {
			r.due = now
		}
		r.due = r.due.Add(time.Duration(float64(n) / float64(rate) * float64(time.Second)))
	}
}

// limit is how many chunks may be under way: fewer while clients wait.
func (r *resync) limit() int {
	x := r.copies.core
	c := &x.commit
	c.mu.Lock()
	waits := len(c.waiting)+len(c.listed) > 0 && r.copies.view.Flushes() || c.current != nil && len(c.current.ops) > 0
	c.mu.Unlock()
	for _, s := range x.streams {
		if waits {
			break
		}
		s.mu.Lock()
		waits = s.waitingReadsLocked() > 0
		s.mu.Unlock()
	}
	if waits || x.window.HalfFull() {
		return 1
	}
	return copiesAhead
}

// outstanding reports whether a piece is under way at a target.
func (r *resync) outstanding() bool {
	for i := range r.pieces {
		p := &r.pieces[i]
		if p.stream == nil {
			continue
		}
		p.stream.mu.Lock()
		out := p.atSource || p.atTarget
		p.stream.mu.Unlock()
		if out {
			return true
		}
	}
	return false
}

// context is that of a request which must end before the resync does.
func (r *resync) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.copies.asking, bitsPatience)
}
