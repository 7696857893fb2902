package remote

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"pmnbd/backend"
)

// A phase is where a device is in its life. The package comment has the table of phases and
// events.
type phase uint8

const (
	phaseOpening   phase = iota // no session yet
	phaseOpen                   // the session is up
	phaseWaiting                // the session is lost: READ and FLUSH wait, writes are taken
	phaseDraining               // Close has begun: new ops are refused, what was taken is flushed
	phaseStranded               // likewise, and the session is lost
	phaseLeaving                // the session is being given back, or dropped
	phaseDeparting              // likewise, and the session is lost
	phaseFailed                 // for good
	phaseClosed
	phases int = iota
)

// An event moves a device from one phase to another.
type event uint8

const (
	eventOpened event = iota // the target has granted the session
	eventLost                // a connection of the session is lost, or an attempt to resume failed
	eventBack                // the session goes on
	eventDrain               // Close begins
	eventLeave               // Close has flushed what it could
	eventEnd                 // the device cannot go on, or Close is through
	events      int   = iota
)

// phaseAfter is the table of transitions. Where it has no phase the event is a mistake of this package.
var phaseAfter = [phases][events]phase{
	phaseOpening:   {eventOpened: phaseOpen, eventLost: phaseWaiting, eventLeave: phaseDeparting, eventEnd: phaseFailed},
	phaseOpen:      {eventLost: phaseWaiting, eventDrain: phaseDraining, eventLeave: phaseLeaving, eventEnd: phaseFailed},
	phaseWaiting:   {eventLost: phaseWaiting, eventBack: phaseOpen, eventDrain: phaseStranded, eventLeave: phaseDeparting, eventEnd: phaseFailed},
	phaseDraining:  {eventLost: phaseStranded, eventLeave: phaseLeaving, eventEnd: phaseFailed},
	phaseStranded:  {eventLost: phaseStranded, eventBack: phaseDraining, eventLeave: phaseDeparting, eventEnd: phaseFailed},
	phaseLeaving:   {eventLost: phaseDeparting, eventLeave: phaseLeaving, eventEnd: phaseClosed},
	phaseDeparting: {eventLost: phaseDeparting, eventBack: phaseLeaving, eventLeave: phaseDeparting, eventEnd: phaseClosed},
	phaseFailed:    {phaseFailed, phaseFailed, phaseFailed, phaseFailed, phaseFailed, phaseFailed},
	phaseClosed:    {phaseClosed, phaseClosed, phaseClosed, phaseClosed, phaseClosed, phaseClosed},
}

// away reports whether the session is not there.
func (p phase) away() bool {
	return p == phaseOpening || p == phaseWaiting || p == phaseStranded || p == phaseDeparting
}

// up reports whether the session is there.
func (p phase) up() bool { return p == phaseOpen || p == phaseDraining || p == phaseLeaving }

// ended reports whether the device will never serve again.
func (p phase) ended() bool { return p == phaseFailed || p == phaseClosed }

func (p phase) String() string {
	return [...]string{"opening", "open", "waiting", "draining", "stranded", "leaving", "departing", "failed", "closed"}[p]
}

// A life is a device's phase, and the only place that knows it. Everything else asks, with one
// atomic load.
type life struct {
	log *slog.Logger // set once
	mu  sync.Mutex   // held during a transition; nothing else is locked meanwhile
	now atomic.Pointer[condition]
}

// A condition is a phase and what follows from it.
type condition struct {
	phase phase
	cause error     // why the session is not there
	since time.Time // when it was lost; zero while it is there
	at    time.Time // when the state that status tells began
	err   error     // new ops are refused with it; once the device has ended, ops that wait, too
}

// shown is the phase as status tells it, and why it is not open.
func (c *condition) shown() (s State, cause string) {
	switch {
	case c.phase == phaseFailed:
		return StateFailed, c.err.Error()
	case c.phase == phaseClosed:
		return StateClosed, c.err.Error()
	case c.phase.away() && c.cause != nil:
		return StateWaiting, c.cause.Error()
	}
	return StateOpen, ""
}

func newLife(log *slog.Logger) *life {
	l := &life{log: log}
	l.now.Store(&condition{at: time.Now()})
	return l
}

// awaySince is when the session was lost, zero while it is there.
func (l *life) awaySince() time.Time { return l.now.Load().since }

// phase is the present one.
func (l *life) phase() phase { return l.now.Load().phase }

// refusal is the error for new ops, nil while they are taken.
func (l *life) refusal() error { return l.now.Load().err }

// failed is the error for all ops once the device failed or was closed, nil before.
func (l *life) failed() error {
	if c := l.now.Load(); c.phase.ended() {
		return c.err
	}
	return nil
}

// step makes the transition of e. cause is why, if there is a reason. A device that has ended stays
// as it is.
func (l *life) step(e event, cause error) transition {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.now.Load()
	to := phaseAfter[was.phase][e]
	if to == phaseOpening {
		panic(fmt.Sprintf("remote: event %d while a device is %v", e, was.phase))
	}
	t := transition{l, e, was.phase, to, cause}
	if was.phase.ended() {
		return t
	}
	c := &condition{phase: to}
	if to.away() {
		if c.since = was.since; c.since.IsZero() {
			c.since = time.Now()
		}
	}
	switch to {
	case phaseWaiting:
		c.cause = cause
	case phaseStranded, phaseDeparting:
		if c.cause = cause; cause == nil {
			c.cause = was.cause
		}
		c.err = backend.ErrClosed
	case phaseDraining, phaseLeaving:
		c.err = backend.ErrClosed
	case phaseFailed:
		c.err = fmt.Errorf("%w: %w", backend.ErrFailed, cause)
	case phaseClosed:
		if c.err = backend.ErrClosed; cause != nil {
			c.err = fmt.Errorf("%w: %w", backend.ErrClosed, cause)
		}
	}
	before, _ := was.shown()
	if now, _ := c.shown(); now == before {
		c.at = was.at
	} else {
		c.at = time.Now()
	}
	l.now.Store(c)
	return t
}

// A transition has been made. It has one line in the log.
type transition struct {
	life     *life
	event    event
	from, to phase
	cause    error
}

// first reports whether the device was in another phase before.
func (t transition) first() bool { return t.from != t.to }

// say writes the transition's line.
func (t transition) say(attrs ...slog.Attr) {
	level, message := slog.LevelDebug, fmt.Sprintf("the device is %v", t.to)
	switch {
	case t.event == eventDrain, t.event == eventLeave, t.from.ended() && t.event != eventEnd:
		// Nothing has happened that the log does not tell at the end.
	case t.from.ended(), t.to == phaseClosed:
		level, message = slog.LevelInfo, "session closed"
	case t.to == phaseFailed:
		level, message = slog.LevelError, "the device failed for good: writes that it acknowledged may be lost"
	case t.from == phaseOpening && t.to == phaseOpen:
		level, message = slog.LevelInfo, "session opened"
	case t.from.away() && t.to.away():
		level, message = slog.LevelWarn, "the session does not come back yet"
	case t.to.away():
		level, message = slog.LevelWarn, "the session is interrupted: READ and FLUSH wait, writes are taken while the window has room"
	case t.from.away():
		level, message = slog.LevelInfo, "the session goes on"
	}
	if t.cause != nil {
		attrs = append(attrs, slog.Any("error", t.cause))
	}
	t.life.log.LogAttrs(context.Background(), level, message, attrs...)
}
