package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"pmnbd/backend"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

const (
	// minBackoff and maxBackoff bound the wait between two attempts to come back: at
	// first a target that restarts should not be missed, later a network that heals.
	minBackoff = 10 * time.Millisecond
	maxBackoff = 250 * time.Millisecond
	// connectTimeout bounds a connection: TCP itself asks ever more rarely, and should
	// not be in such a pause when the network heals.
	connectTimeout = 5 * time.Second
	// minAttempt and maxAttempt bound an attempt. An answer may never come, if its
	// length was damaged; but the grant may also have to join a large zero of the
	// session before it.
	minAttempt = 5 * time.Second
	maxAttempt = 30 * time.Second
)

// attemptLimit is how long attempt n may take, the first of which is 0: doubling.
func attemptLimit(n int) time.Duration {
	if n > 2 {
		return maxAttempt
	}
	return minAttempt << n
}

// backoff is how long to wait after attempt n, the first of which is 0: doubling,
// and up to a half less by r, which is in [0, 1), so that initiators whose target
// restarts do not come all at once.
func backoff(n int, r float64) time.Duration {
	d := maxBackoff
	if n < 5 {
		d = min(minBackoff<<n, maxBackoff)
	}
	return d - time.Duration(r*float64(d)/2)
}

// errStopped: the device is being closed.
var errStopped = errors.New("closing")

// keep is the device's keeper: the goroutine that brings the session back when a
// connection of it is lost, or fails the device (design §6).
//
//	a lane ends ──► cut the others ──► RESUME, JOIN ──► replay, barrier ──► go on
//	                                     │    ▲ backoff
//	                                     ▼    │
//	                               not yet ───┘   never: fail
//
// Meanwhile writes are taken as long as the window has room; READs, FLUSHes and FUA
// writes wait.
func (d *Device) keep() {
	defer close(d.kept)
	var o outage
	for {
		select {
		case <-d.life.Done():
			return
		case <-d.broke:
		}
		cause := d.cut()
		err := d.lasting(cause)
		if err == nil {
			o.lost(time.Now(), d.Barriers(), d.owes.any(), d.core.answered(&d.owes))
			d.lostAt = o.since
			err = d.comeBack(&o, cause)
		}
		if errors.Is(err, errStopped) {
			return
		}
		if err != nil {
			d.fail(err)
			d.core.bury()
		}
	}
}

// cut ends every connection of the session and returns why the first one ended. When it
// returns nothing of the old connections touches memory or counts any more.
func (d *Device) cut() (cause error) {
	d.core.commit.interrupt(d.granted.Epoch)
	select {
	case d.gone <- struct{}{}: // Close may wait for nothing
	default:
	}
	for _, l := range d.lanes {
		l.mu.Lock()
		if cause == nil {
			cause = l.broken
		}
		l.mu.Unlock()
	}
	for _, l := range d.lanes {
		l.abort(cause)
	}
	for _, l := range d.lanes {
		<-l.done
		l.settle()
	}
	select {
	case <-d.broke: // by those that were cut
	default:
	}
	return cause
}

// lasting is cause, if the session cannot go on after it.
func (d *Device) lasting(cause error) error {
	var barrier *BarrierError
	var end *lastingError
	accused := errors.Is(cause, rdma.ErrRemoteAccess) || errors.Is(cause, rdma.ErrRemoteOp)
	switch {
	case errors.As(cause, &barrier), errors.Is(cause, rdma.ErrLocalAccess), errors.As(cause, &end):
		return cause
	case accused && d.accused && d.Barriers() == d.owes.count:
		return fmt.Errorf("again, right after a fresh session, so it is no fault of the network: %w", cause)
	}
	d.accused = accused
	return nil
}

// comeBack tries until the session goes on, or cannot.
func (d *Device) comeBack(o *outage, cause error) error {
	log := d.log.With(zap.String("region", d.cfg.Region), zap.String("target", d.cfg.Addr))
	if o.attempts == 0 {
		log.Warn("the session is interrupted: READ and FLUSH wait, writes are taken while the window has room",
			zap.Uint64("unflushed_bytes", d.Unflushed()), zap.Error(cause))
	}
	d.trouble(cause)
	for ; ; o.attempts++ {
		if o.attempts > 0 {
			if err := d.pause(backoff(o.attempts-1, d.cfg.Jitter())); err != nil {
				return err
			}
		}
		limit := attemptLimit(o.attempts)
		if d.cfg.LossTimeout > 0 {
			limit = min(limit, d.cfg.LossTimeout-time.Since(o.since))
			if limit <= 0 {
				return fmt.Errorf("the target was away for %v: %w", d.cfg.LossTimeout, cause)
			}
		}
		err := d.resume(d.life, limit)
		if err == nil {
			o.attempts++
			o.back = time.Now()
			log.Info("the session goes on", zap.Uint64("epoch", d.granted.Epoch), zap.Stringer("method", d.method), zap.Duration("after", o.back.Sub(o.since)), zap.Int("attempts", o.attempts))
			return nil
		}
		var end *lastingError
		if errors.As(err, &end) || errors.Is(err, errStopped) {
			return err
		}
		cause = err
		d.trouble(err)
		if text := err.Error(); text != o.said {
			o.said = text
			log.Warn("the session does not come back yet", zap.Int("attempts", o.attempts+1), zap.Error(err))
		}
	}
}

// pause waits, or fails with errStopped.
func (d *Device) pause(t time.Duration) error {
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-d.life.Done():
		return errStopped
	}
}

// trouble notes why the device waits, for status; nil when it does not any more.
func (d *Device) trouble(err error) {
	if err == nil {
		d.waits.Store(nil)
		return
	}
	d.waits.Store(&err)
}

// A lastingError says why a session can never go on.
type lastingError struct{ error }

func (e *lastingError) Unwrap() error { return e.error }

// resume makes one attempt to have the session go on: RESUME on a new lane 0, JOIN on
// the others, then replay. Of all messages only RESUME may be followed by a replay.
func (d *Device) resume(ctx context.Context, limit time.Duration) (err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var conns []dialed
	defer func() {
		if err == nil {
			return
		}
		for _, c := range conns {
			_ = c.conn.Close() // err says why
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			err = errStopped
		}
	}()
	if err := d.openDomain(ctx); err != nil {
		return err
	}
	connecting, connected := context.WithTimeout(ctx, connectTimeout)
	c, err := d.connect(connecting, 0, nil)
	connected()
	if err != nil {
		return err
	}
	conns = append(conns, c)
	g, err := d.askResume(ctx, &conns[0])
	if err != nil {
		return err
	}
	if conns, err = d.joinAll(ctx, conns, &g); err != nil {
		return err
	}
	if c := d.revive(&g, conns); c != nil {
		d.log.Info("what was being made durable when the session was lost is durable", zap.String("region", d.cfg.Region), zap.Uint64("barrier", c.seq))
		c.answer(nil)
		d.core.commit.free(c)
	}
	d.core.commit.start(true) // the replay's barrier
	d.Post()
	return nil
}

// askResume sends RESUME and compares what is granted with what was.
func (d *Device) askResume(ctx context.Context, c *dialed) (g wire.Opened, err error) {
	msg := d.request(d.owner)
	msg.Flags &^= wire.OpenTakeover
	msg.Epoch, msg.Mark = d.granted.Epoch, d.mark.Load()
	if msg.Methods, err = d.methods(c.conn); err != nil {
		return g, err
	}
	var refused wire.Refused
	t, err := d.petition(ctx, c, &msg, true, &g, &refused)
	if err != nil {
		return g, fmt.Errorf("RESUME: %w", err)
	}
	if t == wire.TypeRefused {
		return g, d.refusal(&refused)
	}
	if err := chosen(msg.Methods, &g); err != nil {
		return g, err
	}
	if err := check(&g); err != nil {
		return g, err
	}
	return g, d.compare(&g)
}

// refusal decides what a refused RESUME means: that it comes too late, or too early. Only
// the region that was granted can say that it is lost. Another target that answers at the
// address, or a region made anew under the name, knows nothing of it.
func (d *Device) refusal(r *wire.Refused) error {
	err := &RefusedError{Region: d.cfg.Region, Refused: *r}
	switch {
	case r.UUID != [16]byte{} && r.UUID != d.granted.UUID:
		return d.elsewhere(r.UUID)
	case r.UUID == d.granted.UUID && (r.Code == wire.CodeNotOwner || r.Code == wire.CodeRestored || r.Code == wire.CodeFailed):
		// Somebody else may have written: a replay would overwrite it. Or the target
		// lost what it was given.
		if taker := d.taker(r); taker != "" {
			return &lastingError{fmt.Errorf("%s has had the region since (epoch %d), and what was not flushed is lost: unmount or detach the device, then start pmnbd with --accept-loss, and with --takeover if the other still holds the region (%w)",
				taker, r.Epoch, err)}
		}
		return &lastingError{err}
	}
	return err
}

// taker names who has had the region since this session, as a refused RESUME tells it; ""
// if it tells nobody.
func (d *Device) taker(r *wire.Refused) string {
	switch {
	case r.Code != wire.CodeNotOwner || r.Holder == [16]byte{} || r.Epoch <= d.granted.Epoch:
		return ""
	case r.Holder == d.cfg.ID:
		return "another pmnbd with this initiator's id"
	}
	return "initiator " + uuid.UUID(r.Holder).String()
}

// elsewhere says that the name leads to region other. Nothing is replayed into that, and
// the device waits: the right target may come back to the address.
func (d *Device) elsewhere(other [16]byte) error {
	return fmt.Errorf("region %s at %s has UUID %s now, and this device is on %s: another target answers there, or the region was made anew. Check the address, and serve the right region there again; until then nothing is sent",
		d.cfg.Region, d.cfg.Addr, uuid.UUID(other), uuid.UUID(d.granted.UUID))
}

// compare tells whether g is what the session had: a window must never be replayed
// into something else, nor go on where contents were lost.
func (d *Device) compare(g *wire.Opened) error {
	old := &d.granted
	switch {
	case g.UUID != old.UUID:
		return d.elsewhere(g.UUID)
	case g.Size != old.Size || g.Class != old.Class:
		return &lastingError{fmt.Errorf("region %s is of another size or class than it was: it is not what this device was opened on", d.cfg.Region)}
	case g.Epoch <= old.Epoch:
		return &lastingError{fmt.Errorf("the region went back from epoch %d to %d: it was restored from a copy", old.Epoch, g.Epoch)}
	case g.Mark < d.mark.Load():
		return &lastingError{fmt.Errorf("the region went back from mark %d to %d: it was restored from a copy", d.mark.Load(), g.Mark)}
	case g.ContentsID != old.ContentsID:
		return &lastingError{errors.New("the region's contents were lost at the target")}
	}
	return nil
}

// marked keeps the mark that the target told, for the run that adopts the window, too.
func (d *Device) marked(mark uint64) {
	for {
		old := d.mark.Load()
		if mark <= old {
			return
		}
		if d.mark.CompareAndSwap(old, mark) {
			break
		}
	}
	if d.file != nil {
		d.file.update(func(h *header) { h.Mark = max(h.Mark, mark) })
	}
}

// revive gives the lanes their new connections, and the queues what was in them: the
// writes that no barrier covers, in their order, then the READs. Nothing is ahead of
// the replay. It returns the barrier that was cut off, if the target had made it durable:
// that is retired, and the caller answers and frees it.
func (d *Device) revive(g *wire.Opened, conns []dialed) (durable *barrier) {
	c := &d.core.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	d.granted = *g
	if d.file != nil {
		d.file.update(func(h *header) { h.Epoch = g.Epoch })
	}
	d.marked(g.Mark)
	d.method = g.Method
	durable = c.resumeLocked(g.Flags&wire.OpenedDoubt != 0, durableOn(conns))
	c.behind = false
	for i, l := range d.lanes { // behind the marks, which say what is replayed
		l.connected(conns[i])
		c.behind = c.behind || l.behind
	}
	if durable == nil && !d.lostAt.IsZero() {
		c.lost = time.Since(d.lostAt)
	}
	d.heard.Store(d.clock())
	d.beatWaits.Store(false)
	d.generation.Add(1)
	d.trouble(nil) // from here on heartbeats look at the two
	d.owes = d.core.owedLocked()
	for _, l := range d.lanes {
		l.mu.Lock()
		l.broken = nil
		l.mu.Unlock()
		go l.complete()
	}
	return durable
}

// fail makes the device's failure final and answers all that waits for a barrier.
// The first cause stays.
func (d *Device) fail(cause error) {
	closing := d.closing.Load()
	err := fmt.Errorf("%w: %w", backend.ErrFailed, cause)
	if closing {
		err = fmt.Errorf("%w: %w", backend.ErrClosed, cause)
	}
	lost := !closing && !d.adopted // the window that was adopted is there still
	if d.core.fail(err, func() {
		if lost && d.file != nil {
			d.file.fail(cause)
		}
	}) && lost {
		d.log.Error("the device failed for good: writes that it acknowledged may be lost",
			zap.Error(cause), zap.Uint64("unflushed_bytes", d.Unflushed()))
	}
}
