package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"pmnbd/internal/mirror"
	"pmnbd/persist"
)

// An Arbiter keeps, apart from the members of a mirror, which generation the mirror is in, and which
// initiator may have it (mirror §4.8). With one, a single member in sync is enough to begin: no other
// life can have gone on without it.
type Arbiter interface {
	// Join makes the initiator id the one that may have the mirror of set. It waits while another one
	// may, or returns an error. waits is told for whom, whenever that changes. What an earlier run of
	// the same id left in this boot of the host ends: only one process of a host at a time calls Join for an id
	// and a set.
	Join(ctx context.Context, set, id [16]byte, waits func(why string)) (Term, error)
}

// A Term is the time during which an initiator is the one that may have a mirror. Its methods may be
// called at the same time.
type Term interface {
	// Held returns the record that the arbiter holds. It is zero if it holds none.
	Held(ctx context.Context) (persist.Record, error)
	// Swap has the arbiter hold next, if it holds old and the term lasts; the zero Record is none. It
	// returns what the arbiter holds then. After an error nobody knows whether it holds next.
	Swap(ctx context.Context, old, next persist.Record) (held persist.Record, err error)
	// Until is up to when nobody else can have the mirror, by the monotonic clock. It moves on while the
	// arbiter answers, and lies in the past once the term may be over. A term that was over may go on with
	// another lease. gained counts its leases, from 1: between two of them another initiator may have had
	// the mirror, which shows in what the arbiter holds.
	Until() (until time.Time, gained uint64)
	// End ends the term. If yields is set another initiator may have the mirror at once, and End returns
	// when the arbiter knows that, or ctx ends; otherwise it may once the lease is over. Only the first
	// call counts.
	End(ctx context.Context, yields bool) error
}

const (
	// askTimeout bounds a question to the arbiter. Nothing but a change of generation waits for it.
	askTimeout = 3 * time.Second
	// arbiterPause is the pause before the arbiter is asked again.
	arbiterPause = 500 * time.Millisecond
	// arbiterFresh is how long an answer of the arbiter counts as a sign that it will answer again.
	arbiterFresh = 2 * arbiterPause
)

// errArbiterAway: the arbiter does not answer, so no generation may begin.
var errArbiterAway = errors.New("the arbiter does not answer, and must know of the change first")

// errLeaseOver: another initiator may have the mirror.
var errLeaseOver = errors.New("the lease is over, and another initiator may begin")

// join waits until this initiator is the one that may have the mirror of set. It is for the start alone.
func (d *Device) join(ctx context.Context, set [16]byte) error {
	if d.cfg.Arbiter == nil || d.term != nil {
		return nil
	}
	if err := d.takeClaim(set); err != nil { // no other process of this id may join
		return err
	}
	waits := func(why string) {
		d.log.Info("the mirror does not begin yet", slog.String("why", why))
		if d.cfg.Waits != nil {
			d.cfg.Waits(why)
		}
	}
	term, err := d.cfg.Arbiter.Join(ctx, set, d.cfg.ID, waits)
	if err != nil {
		return fmt.Errorf("ask the arbiter of the mirror: %w", err)
	}
	d.term, d.set = term, set
	return nil
}

// endTerm ends the device's term.
func (d *Device) endTerm(yields bool) {
	if d.term == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	if err := d.term.End(ctx, yields); err != nil {
		d.log.Warn("the arbiter was not told of the end: another initiator waits until the lease is over", slog.Any("error", err))
	}
}

// ask notes what the arbiter holds. It reports whether that is known now, and this initiator may still
// have the mirror.
func (b *beginning) ask(ctx context.Context) error {
	term := b.device.term
	if term == nil {
		return nil
	}
	b.found.Asked = false
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, gained := term.Until()
	held, err := term.Held(ctx)
	if until, _ := term.Until(); err == nil && time.Until(until) <= 0 {
		err = errLeaseOver
	}
	if err != nil {
		return fmt.Errorf("ask the arbiter of the mirror: %w", err)
	}
	b.found.Asked, b.found.Arbiter, b.gained = true, held, gained
	return nil
}

// arbitrate has the arbiter, if there is one, hold the first generation of a new mirror. What it holds of
// the set is of a creation that was interrupted.
func (c *creation) arbitrate(ctx context.Context) (err error) {
	d := c.device
	if d.cfg.Arbiter == nil {
		return nil
	}
	if err := d.join(ctx, c.record.Set); err != nil {
		return err
	}
	d.yields = true
	c.record.Arbiter = true
	v := mirror.View{Record: c.record}
	next := v.Arbitrated()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	held, err := d.term.Held(ctx)
	if err == nil {
		held, err = d.term.Swap(ctx, held, next)
	}
	if err == nil && held != next {
		err = takenAt(&held)
	}
	if err != nil {
		return fmt.Errorf("tell the arbiter of the mirror: %w", err)
	}
	return nil
}

// quietAfter returns up to when clients of the life before may still have READs answered, from members
// that this life does not hold, and the members from which they may have them: until a lease after its last
// OPEN was granted (mirror §4.7). Behind a start that served nobody nothing tells what the life before that held, and a
// life that was closed may be its own.
func (b *beginning) quietAfter(d *mirror.Decision) (t time.Time, by persist.Members) {
	var held persist.Members
	lease := time.Duration(0)
	for i := range b.grants {
		if o := &b.grants[i].o; o.Epoch != 0 {
			held |= persist.Member(int(b.found.Legs[i].Record.Slot))
			lease = max(lease, time.Duration(o.Lease)*time.Millisecond)
		}
	}
	by = mirror.ReadFrom(&d.Newest)
	if b.behindUnserved() {
		by = d.Newest.Present()
	} else if d.Clean {
		by = 0
	}
	if !b.fences(d) || by&^held == 0 {
		return t, 0
	}
	return b.opened.Add(lease), by
}

// behindUnserved reports whether the start before took members, and ended before it served anybody.
func (b *beginning) behindUnserved() bool { return b.device.behind }

// fences reports whether the life before may answer READs now, and will not for long. Without a takeover the
// targets have waited for its leases. Where no majority begins a life, nothing ever tells it not to, and a
// promotion tells none of its members.
func (b *beginning) fences(d *mirror.Decision) bool {
	before := mirror.View{Record: d.Newest, Before: d.Before}
	byMajority := before.Electorates() != [2]mirror.Electorate{} && d.Promotes() == 0
	return b.device.term != nil || (b.device.cfg.Takeover || b.behindUnserved()) && byMajority
}

// awaitQuiet waits until d.quiet, or until this life has opened all members that the life before it could
// read from.
func (d *Device) awaitQuiet(ctx context.Context) error {
	if time.Until(d.quiet) <= 0 {
		return nil
	}
	d.log.Info("waits until no client of the life before has a READ answered by a member that was not reached", slog.Duration("wait", time.Until(d.quiet)))
	timer := time.NewTimer(time.Until(d.quiet))
	defer timer.Stop()
	for {
		held, came := d.core.copies.holds(d.quietBy)
		if held {
			return nil
		}
		select {
		case <-came:
		case <-timer.C:
			return nil
		case <-d.core.over:
			return fmt.Errorf("wait until the life before cannot be read from: %w", d.core.failed())
		case <-ctx.Done():
			return fmt.Errorf("wait until the life before cannot be read from: %w", context.Cause(ctx))
		}
	}
}

// holds reports whether this life has opened all of members. came is closed when the next leg comes back.
func (k *copies) holds(members persist.Members) (held bool, came <-chan struct{}) {
	c := &k.core.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range k.core.legs {
		if g.up.Load() {
			members &^= persist.Member(g.slot)
		}
	}
	return members == 0, k.came
}

// cameLocked wakes a start that waits for a leg to come back. The caller holds commit.mu.
func (k *copies) cameLocked() {
	close(k.came)
	k.came = make(chan struct{})
}

// start notes what the start of a life found, with that lease of the term.
func (o *office) start(term Term, found *mirror.Found, gained uint64) {
	o.term, o.held, o.asked, o.gained = term, found.Arbiter, found.Asked, gained
}

// An office is what copies knows of the mirror's arbiter.
type office struct {
	term Term // nil: there is no arbiter; set once
	// held is what the arbiter held when this life looked last. Only the goroutine of copies uses it
	// once that runs.
	held  persist.Record
	asked bool      // held is known
	pause time.Time // it is not asked before; of the goroutine

	// Guarded by commit.mu.
	agreed  bool            // the arbiter has the pending generation
	members persist.Members // F of any generation that the arbiter may hold
	shared  persist.Members // those in F of each of these generations, whether there is an arbiter or not
	cause   error           // why it does not answer, or nil
	fresh   time.Time       // when it answered last
	wanted  bool            // a change, or a lease that was gained again, waits for an answer
	// gained is the last lease of the term in which the arbiter held what this life knows. It stays 0 in a
	// life that goes on after a kill: no READ is answered by that, and a change of it begins with the
	// comparison.
	gained uint64
}

// begin notes that v has a generation pending.
func (o *office) begin(v *mirror.View) {
	o.agreed = false
	if o.members == 0 {
		o.shared = v.Record.F
	}
	o.members |= v.Record.F
	o.shared &= v.Record.F
}

// mayChangeLocked reports whether a generation may begin now: one that the arbiter cannot learn of would
// only keep FLUSHes waiting, although the member that it lets go may come back. If the arbiter has not
// answered lately it is asked first. The caller holds commit.mu, and looks again after arbiterPause.
func (o *office) mayChangeLocked() bool {
	if o.term == nil || time.Since(o.fresh) < arbiterFresh && time.Until(o.untilLocked()) > 0 {
		return true
	}
	o.wanted = true
	return false
}

// untilLocked returns up to when no other life can have begun, by the term. A lease that was gained again
// does not count before greet has seen that nobody else had the mirror in between (mirror §4.7). The caller
// holds commit.mu.
func (o *office) untilLocked() time.Time {
	until, gained := o.term.Until()
	if o.gained != 0 && gained != o.gained {
		o.wanted = true
		return time.Time{}
	}
	return until
}

// greet asks the arbiter for an answer, because a change waits for that, or a lease that was gained again. It
// reports whether there is one. If the arbiter holds another life's generation the device ends.
func (k *copies) greet() bool {
	o, c := &k.office, &k.core.commit
	until, gained := o.term.Until()
	over := time.Until(until) <= 0
	c.mu.Lock()
	o.wanted = false
	if over {
		o.cause = errLeaseOver
	}
	c.mu.Unlock()
	if over || time.Until(o.pause) > 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(k.asking, askTimeout)
	defer cancel()
	held, err := o.term.Held(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil:
		o.cause, o.pause = err, time.Now().Add(arbiterPause)
		return false
	case o.gained == 0:
	case held == o.held || k.view.Own(&held): // also by a Swap whose answer was lost
		o.gained = gained
	default:
		k.failSoonLocked(&lastingError{takenAt(&held)})
		return false
	}
	o.cause, o.fresh = nil, time.Now()
	return true
}

// agree gives the pending generation to the arbiter, by compare and swap, before any member gets it
// (mirror §4.8). It reports whether the arbiter has it; else wait is when to ask again.
func (k *copies) agree() (ok bool, wait time.Duration) {
	o, c := &k.office, &k.core.commit
	c.mu.Lock()
	v := k.view
	c.mu.Unlock()
	if left := time.Until(o.pause); left > 0 {
		return false, left
	}
	err := k.swap(&v)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case k.view.Record.Generation != v.Record.Generation:
		return false, 0
	case err == nil:
		o.agreed, o.cause, o.fresh = true, nil, time.Now()
		return true, 0
	case errors.As(err, new(*TakenError)):
		k.failSoonLocked(&lastingError{err})
		return false, 0
	}
	if o.cause == nil {
		k.log.Warn("the arbiter does not answer: FLUSH waits until it knows of the change", slog.String("generation", v.Record.String()), slog.Any("error", err))
	}
	o.cause, o.pause = err, time.Now().Add(arbiterPause)
	return false, arbiterPause
}

// shownLocked is what status says of the arbiter, nil without one. The caller holds commit.mu.
func (o *office) shownLocked() *ArbiterSnapshot {
	if o.term == nil {
		return nil
	}
	s := &ArbiterSnapshot{Lease: max(0, time.Until(o.untilLocked()).Round(time.Millisecond).Seconds())}
	if o.cause != nil {
		s.Cause = o.cause.Error()
	}
	return s
}

// agreedLocked reports whether the members may get the pending generation. The caller holds commit.mu.
func (o *office) agreedLocked() bool { return o.term == nil || o.agreed }

// swap has the arbiter hold v's pending generation. The error is a *TakenError if another life has begun.
func (k *copies) swap(v *mirror.View) error {
	o := &k.office
	ctx, cancel := context.WithTimeout(k.asking, askTimeout)
	defer cancel()
	if !o.asked { // a life that goes on does not know how far the process before it came
		held, err := o.term.Held(ctx)
		if err != nil {
			return err
		}
		if !v.Replaces(&held) {
			return takenAt(&held)
		}
		o.held, o.asked = held, true
	}
	next := v.Arbitrated()
	for {
		held, err := o.term.Swap(ctx, o.held, next)
		switch {
		case err != nil:
			return err
		case held == next:
			o.held = next
			return nil
		case held != o.held && v.Own(&held) && v.Replaces(&held): // by a Swap whose answer was lost
			o.held = held
			continue
		}
		return takenAt(&held)
	}
}

// takenAt is the error of a life that finds another one's generation at the arbiter. It is final
// (mirror §4.8).
func takenAt(held *persist.Record) error {
	return &TakenError{Taker: "another life of the mirror", err: fmt.Errorf("the arbiter holds generation %s", held)}
}
