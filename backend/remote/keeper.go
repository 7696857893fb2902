package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"pmnbd/rdma"
)

const (
	// minBackoff and maxBackoff bound the wait between two attempts to come back. The first
	// attempts should not miss a target that restarts, the later ones a network that heals.
	minBackoff = 10 * time.Millisecond
	maxBackoff = 250 * time.Millisecond
	// sparePause is the least wait for a target that nothing waits for: its member was let go.
	// maxSparePause bounds that wait. It grows while sessions come to nothing, because each one makes
	// the target write its superblock.
	sparePause    = time.Second
	maxSparePause = time.Minute
	// connectTimeout bounds an attempt to connect. TCP itself tries ever more rarely, and should
	// not be in such a pause when the network heals.
	connectTimeout = 5 * time.Second
	// minAttempt and maxAttempt bound an attempt. An answer never comes if the network damaged
	// its length. But a grant may also wait for a large zero of the session before it.
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

// spareBackoff is backoff for a target that nothing waits for, after so many sessions that came to
// nothing.
func spareBackoff(vain int) time.Duration {
	if vain > 6 {
		return maxSparePause
	}
	return min(sparePause<<vain, maxSparePause)
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
		case <-g.keeping.Done():
			return
		case <-g.broke:
		}
		t := g.cut()
		if time.Since(o.back) > lasts {
			g.faulty, g.accused = false, false
		}
		if g.vain++; !g.core.spares(g) && !g.faulty || time.Since(o.back) > lasts || errors.Is(t.cause, errLetGo) {
			g.vain = 0
		}
		if g.core.failed() != nil {
			g.core.buryFailed() // another leg failed the device
			continue
		}
		if g.core.copies.departs(g) {
			o = outage{}
			continue
		}
		err := g.lasting(t.cause)
		if g.blamed(err) {
			err = nil
		}
		if err == nil {
			o.lost(time.Now(), g.core.commit.succeeded(), g.owes.any(), g.core.answered(&g.owes))
			g.lostAt = o.since
			err = g.comeBack(&o, t)
		}
		if errors.Is(err, errStopped) {
			return
		}
		if errors.Is(err, errRemoved) {
			g.core.copies.departs(g)
			o, err = outage{}, nil
		}
		if err != nil {
			g.device.fail(err)
		}
		if g.core.failed() != nil {
			g.core.abort()
			g.core.buryFailed()
		}
	}
}

// cut ends every connection of the session. The transition's cause is why the first of them ended.
// When cut returns, the old connections touch no memory, and none of their completions counts.
func (g *leg) cut() transition {
	var cause error
	for _, l := range g.lanes {
		l.mu.Lock()
		if cause == nil {
			cause = l.broken
		}
		l.mu.Unlock()
	}
	t := g.core.lost(g, g.granted.Epoch, cause)
	if g.lanes[0].conn == nil { // it was not up before
		return t
	}
	for _, l := range g.lanes {
		l.abort(cause)
	}
	for _, l := range g.lanes {
		<-l.done
		l.settle()
		l.disconnect()
	}
	g.core.ended(g)
	select {
	case <-g.broke: // by those that were cut
	default:
	}
	return t
}

// lasting returns the cause if the session cannot go on after it, else nil.
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

// say writes the line of t. In a mirror that is about one target of several, and READs go on.
func (g *leg) say(t transition, attrs ...slog.Attr) {
	if g.core.copies == nil {
		t.say(attrs...)
		return
	}
	level, message := slog.LevelWarn, "a target of the mirror is away: FLUSH waits until it is back, or is let go"
	switch {
	case t.event == eventBack:
		level, message = slog.LevelInfo, "a target of the mirror is back"
	case g.following.Load():
		message = "a target that follows the mirror is away: what it lacks waits in the window"
	case g.core.spares(g):
		message = "a target of the mirror is away: the mirror does without it"
	}
	if t.cause != nil {
		attrs = append(attrs, slog.Any("error", t.cause))
	}
	g.log.LogAttrs(context.Background(), level, message, attrs...)
}

// comeBack tries until the session, which t interrupted, goes on, or cannot.
func (g *leg) comeBack(o *outage, t transition) error {
	absence := g.interruption()
	region, target := slog.String("region", g.cfg.Region), slog.String("target", g.cfg.Addr)
	if o.attempts == 0 {
		g.say(t, region, target, slog.Uint64("unflushed_bytes", g.core.unflushed()))
	}
	alone := false // it found nobody to follow, and nobody has come since
	for ; ; o.attempts++ {
		if err := g.sitOut(); err != nil {
			return err
		}
		if spares := g.core.spares(g) || g.faulty || alone; o.attempts > 0 || spares && g.vain > 0 {
			pause := backoff(max(o.attempts, 1)-1, g.cfg.Jitter())
			if spares {
				pause = max(pause, spareBackoff(g.vain))
			}
			var err error
			if alone, err = g.pauseAlone(pause, alone); err != nil {
				return err
			}
		}
		if g.core.failed() != nil {
			return nil // a session would be of no use, and have the target write its superblock
		}
		if g.core.copies.leaves(g) != nil {
			return errRemoved
		}
		limit := attemptLimit(o.attempts)
		if g.cfg.LossTimeout > 0 {
			limit = min(limit, g.cfg.LossTimeout-time.Since(o.since))
			if limit <= 0 {
				return fmt.Errorf("the target was away for %v: %w", g.cfg.LossTimeout, t.cause)
			}
		}
		back, err := g.resume(g.keeping, limit)
		if err == nil {
			o.attempts++
			o.back = time.Now()
			absence.over()
			g.say(back, region, target, slog.Uint64("epoch", g.granted.Epoch), slog.String("method", g.method.String()), slog.Duration("after", o.back.Sub(o.since)), slog.Int("attempts", o.attempts))
			return nil
		}
		var end *lastingError
		switch {
		case errors.Is(err, errStopped), errors.Is(err, errRemoved):
			return err
		case errors.As(err, &end):
			if !g.blamed(err) {
				return err
			}
			g.vain++
		}
		alone = alone || errors.Is(err, errNoSourceYet)
		t = g.core.stillLost(g, err)
		if text := err.Error(); text != o.said {
			o.said = text
			g.say(t, region, target, slog.Int("attempts", o.attempts+1))
		}
	}
}

// pause waits for t, or fails with errStopped.
func (g *leg) pause(t time.Duration) error {
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-g.keeping.Done():
		return errStopped
	}
}

// pauseAlone is pause, also for a follower that is alone, and reports whether it still is. Once a member has
// come that it can follow, it waits no longer, and the sessions that found none say nothing against it. That is
// seen without its target: each RESUME would have that write its superblock, and begin the lease again that a
// promotion waits for.
func (g *leg) pauseAlone(t time.Duration, alone bool) (still bool, err error) {
	for ; alone && t > maxBackoff; t -= maxBackoff {
		if err := g.pause(maxBackoff); err != nil {
			return true, err
		}
		if g.core.copies.mayMeet(g) {
			g.vain = 0
			return false, nil
		}
	}
	return alone, g.pause(t)
}

// A lastingError says why a session can never go on.
type lastingError struct{ error }

func (e *lastingError) Unwrap() error { return e.error }
