package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

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
// connection of it is lost, or fails the device (design §6.1).
//
//	a lane ends ──► cut the others ──► RESUME, JOIN ──► replay, barrier ──► go on
//	                                     │    ▲ backoff
//	                                     ▼    │
//	                               not yet ───┘   never: fail
//
// Meanwhile writes are taken as long as the window has room; READs, FLUSHes and FUA
// writes wait.
func (g *leg) keep() {
	defer close(g.kept)
	var o outage
	for {
		select {
		case <-g.life.Done():
			return
		case <-g.broke:
		}
		t := g.cut()
		err := g.lasting(t.cause)
		if err == nil {
			o.lost(time.Now(), g.core.commit.succeeded(), g.owes.any(), g.core.answered(&g.owes))
			g.lostAt = o.since
			err = g.comeBack(&o, t)
		}
		if errors.Is(err, errStopped) {
			return
		}
		if err != nil {
			g.device.fail(err)
			g.core.bury()
		}
	}
}

// cut ends every connection of the session. The transition's cause is why the first one ended. When
// cut returns nothing of the old connections touches memory or counts any more.
func (g *leg) cut() transition {
	var cause error
	for _, l := range g.lanes {
		l.mu.Lock()
		if cause == nil {
			cause = l.broken
		}
		l.mu.Unlock()
	}
	t := g.core.life.step(eventLost, cause)
	g.core.commit.interrupt(g.granted.Epoch)
	select {
	case g.gone <- struct{}{}: // Close may wait for nothing
	default:
	}
	for _, l := range g.lanes {
		l.abort(cause)
	}
	for _, l := range g.lanes {
		<-l.done
		l.settle()
	}
	select {
	case <-g.broke: // by those that were cut
	default:
	}
	return t
}

// lasting is cause, if the session cannot go on after it.
func (g *leg) lasting(cause error) error {
	var barrier *BarrierError
	var end *lastingError
	accused := errors.Is(cause, rdma.ErrRemoteAccess) || errors.Is(cause, rdma.ErrRemoteOp)
	switch {
	case errors.As(cause, &barrier), errors.Is(cause, rdma.ErrLocalAccess), errors.As(cause, &end):
		return cause
	case accused && g.accused && g.core.commit.succeeded() == g.owes.count:
		return fmt.Errorf("again, right after a fresh session, so it is no fault of the network: %w", cause)
	}
	g.accused = accused
	return nil
}

// comeBack tries until the session, which t interrupted, goes on, or cannot.
func (g *leg) comeBack(o *outage, t transition) error {
	region, target := zap.String("region", g.cfg.Region), zap.String("target", g.cfg.Addr)
	if o.attempts == 0 {
		t.say(region, target, zap.Uint64("unflushed_bytes", g.core.unflushed()))
	}
	for ; ; o.attempts++ {
		if o.attempts > 0 {
			if err := g.pause(backoff(o.attempts-1, g.cfg.Jitter())); err != nil {
				return err
			}
		}
		limit := attemptLimit(o.attempts)
		if g.cfg.LossTimeout > 0 {
			limit = min(limit, g.cfg.LossTimeout-time.Since(o.since))
			if limit <= 0 {
				return fmt.Errorf("the target was away for %v: %w", g.cfg.LossTimeout, t.cause)
			}
		}
		back, err := g.resume(g.life, limit)
		if err == nil {
			o.attempts++
			o.back = time.Now()
			back.say(region, target, zap.Uint64("epoch", g.granted.Epoch), zap.Stringer("method", g.method), zap.Duration("after", o.back.Sub(o.since)), zap.Int("attempts", o.attempts))
			return nil
		}
		var end *lastingError
		if errors.As(err, &end) || errors.Is(err, errStopped) {
			return err
		}
		t = g.core.life.step(eventLost, err)
		if text := err.Error(); text != o.said {
			o.said = text
			t.say(region, target, zap.Int("attempts", o.attempts+1))
		}
	}
}

// pause waits, or fails with errStopped.
func (g *leg) pause(t time.Duration) error {
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-g.life.Done():
		return errStopped
	}
}

// A lastingError says why a session can never go on.
type lastingError struct{ error }

func (e *lastingError) Unwrap() error { return e.error }

// resume makes one attempt to have the session go on: RESUME on a new lane 0, JOIN on
// the others, then replay. Of all messages only RESUME may be followed by a replay.
func (g *leg) resume(ctx context.Context, limit time.Duration) (t transition, err error) {
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
	if err := g.openDomain(ctx); err != nil {
		return t, err
	}
	connecting, connected := context.WithTimeout(ctx, connectTimeout)
	c, err := g.connect(connecting, 0, nil)
	connected()
	if err != nil {
		return t, err
	}
	conns = append(conns, c)
	o, err := g.askResume(ctx, &conns[0])
	if err != nil {
		return t, err
	}
	if conns, err = g.joinAll(ctx, conns, &o); err != nil {
		return t, err
	}
	durable := g.revive(&o, conns)
	t = g.core.life.step(eventBack, nil) // from here on heartbeats look, and barriers start
	if c := durable; c != nil {
		g.log.Info("what was being made durable when the session was lost is durable", zap.String("region", g.cfg.Region), zap.Uint64("barrier", c.seq))
		c.answer(nil)
		g.core.commit.free(c)
	}
	g.core.commit.start(true) // the replay's barrier
	g.core.post()
	return t, nil
}

// askResume sends RESUME and compares what is granted with what was.
func (g *leg) askResume(ctx context.Context, c *dialed) (o wire.Opened, err error) {
	msg := g.request(g.owner)
	msg.Flags &^= wire.OpenTakeover
	msg.Epoch, msg.Mark = g.granted.Epoch, g.mark.Load()
	if msg.Methods, err = g.methods(c.conn); err != nil {
		return o, err
	}
	var refused wire.Refused
	t, err := g.petition(ctx, c, &msg, true, &o, &refused)
	if err != nil {
		return o, fmt.Errorf("RESUME: %w", err)
	}
	if t == wire.TypeRefused {
		return o, g.refusal(&refused)
	}
	if err := chosen(msg.Methods, &o); err != nil {
		return o, err
	}
	if err := check(&o); err != nil {
		return o, err
	}
	return o, g.compare(&o)
}

// refusal decides what a refused RESUME means: that it comes too late, or too early. Only
// the region that was granted can say that it is lost. Another target that answers at the
// address, or a region made anew under the name, knows nothing of it.
func (g *leg) refusal(r *wire.Refused) error {
	err := &RefusedError{Region: g.cfg.Region, Refused: *r}
	switch {
	case r.UUID != [16]byte{} && r.UUID != g.granted.UUID:
		return g.elsewhere(r.UUID)
	case r.UUID == g.granted.UUID && (r.Code == wire.CodeNotOwner || r.Code == wire.CodeRestored || r.Code == wire.CodeFailed):
		// Somebody else may have written: a replay would overwrite it. Or the target
		// lost what it was given.
		if taker := g.taker(r); taker != "" {
			return &lastingError{fmt.Errorf("%s has had the region since (epoch %d), and what was not flushed is lost: unmount or detach the device, then start pmnbd with --accept-loss, and with --takeover if the other still holds the region (%w)",
				taker, r.Epoch, err)}
		}
		return &lastingError{err}
	}
	return err
}

// taker names who has had the region since this session, as a refused RESUME tells it; ""
// if it tells nobody.
func (g *leg) taker(r *wire.Refused) string {
	switch {
	case r.Code != wire.CodeNotOwner || r.Holder == [16]byte{} || r.Epoch <= g.granted.Epoch:
		return ""
	case r.Holder == g.cfg.ID:
		return "another pmnbd with this initiator's id"
	}
	return "initiator " + uuid.UUID(r.Holder).String()
}

// elsewhere says that the name leads to region other. Nothing is replayed into that, and
// the device waits: the right target may come back to the address.
func (g *leg) elsewhere(other [16]byte) error {
	return fmt.Errorf("region %s at %s has UUID %s now, and this device is on %s: another target answers there, or the region was made anew. Check the address, and serve the right region there again; until then nothing is sent",
		g.cfg.Region, g.cfg.Addr, uuid.UUID(other), uuid.UUID(g.granted.UUID))
}

// compare tells whether g is what the session had: a window must never be replayed
// into something else, nor go on where contents were lost.
func (g *leg) compare(o *wire.Opened) error {
	old := &g.granted
	switch {
	case o.UUID != old.UUID:
		return g.elsewhere(o.UUID)
	case o.Size != old.Size || o.Class != old.Class:
		return &lastingError{fmt.Errorf("region %s is of another size or class than it was: it is not what this device was opened on", g.cfg.Region)}
	case o.Epoch <= old.Epoch:
		return &lastingError{fmt.Errorf("the region went back from epoch %d to %d: it was restored from a copy", old.Epoch, o.Epoch)}
	case o.Mark < g.mark.Load():
		return &lastingError{fmt.Errorf("the region went back from mark %d to %d: it was restored from a copy", g.mark.Load(), o.Mark)}
	case o.ContentsID != old.ContentsID:
		return &lastingError{errors.New("the region's contents were lost at the target")}
	}
	return nil
}

// revive gives the lanes their new connections, and the queues what was in them: the
// writes that no barrier covers, in their order, then the READs. Nothing is ahead of
// the replay. It returns the barrier that was cut off, if the target had made it durable:
// that is retired, and the caller answers and frees it.
func (g *leg) revive(o *wire.Opened, conns []dialed) (durable *barrier) {
	c := &g.core.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	g.granted = *o
	g.device.noteEpoch(o.Epoch)
	g.marked(o.Mark)
	g.method = o.Method
	durable = c.resumeLocked(o.Flags&wire.OpenedDoubt != 0, durableOn(conns))
	c.behind = false
	for i, l := range g.lanes { // behind the marks, which say what is replayed
		l.connected(conns[i])
		c.behind = c.behind || l.behind
	}
	if durable == nil && !g.lostAt.IsZero() {
		c.lost = time.Since(g.lostAt)
	}
	g.pulse.left()
	g.generation.Add(1)
	g.owes = g.core.owedLocked()
	for _, l := range g.lanes {
		l.mu.Lock()
		l.broken = nil
		l.mu.Unlock()
		go l.complete()
	}
	return durable
}
