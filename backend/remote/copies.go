package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"pmnbd/internal/mirror"
	"pmnbd/persist"
)

// copies decides for the device of a mirror which members have every flushed write: it lets go of a
// leg that stays away, and takes one in that has all again. What may be decided is package mirror's
// business; copies does it, in this order (mirror §3.3):
//
//	the barrier in flight is cut off ─► the window's header ─► the arbiter ─► RECORD on each leg of F ─► active
//
// One goroutine does all that has to wait for a target. It sleeps until wake.
type copies struct {
	core    *core
	log     *slog.Logger
	timeout time.Duration       // Config.LegTimeout
	late    time.Duration       // Config.SyncTimeout
	loss    time.Duration       // Config.LossTimeout
	note    func(v mirror.View) // keeps the view for the next run; called with commit.mu held
	fail    func(cause error)
	office  office // what it knows of the arbiter
	fence   fence
	adding  chan struct{} // has one while a member is added, or the device given back

	// Guarded by commit.mu.
	view    mirror.View
	written persist.Members             // they have the pending record
	renew   *renewal                    // or nil
	settled chan struct{}               // not nil once the device ends: see settle
	turned  chan struct{}               // closed when a generation becomes active
	came    chan struct{}               // closed when a leg comes back
	known   persist.Record              // the active generation's, of this life; all of F have it
	left    [persist.MaxMembers]*leaver // the last that left each place
	said    string                      // in the log, of what cannot be done yet
	givesUp bool                        // a replay that an operator gives up if it waits for a member; set once
	sources persist.Members             // each can be the source of this start; set once
	copied  time.Time                   // when a life that copies first had enough copies

	following // what it has for followers

	pieces []piece // of the resyncs, copiesAhead for each leg, and then of a Verify
	checks bool    // a Verify is under way
	memory memory  // theirs

	newer  chan struct{} // takes a token if the start is to decide again
	serves chan struct{} // closed once a generation of this life is active
	wake   chan struct{} // holds a token while there may be something to do
	life   context.Context
	stop   context.CancelFunc
	asking context.Context // of calls to targets; it outlives life
	hush   context.CancelFunc
	ended  sync.WaitGroup
}

func newCopies(x *core, cfg Config, note func(mirror.View), fail func(error)) *copies {
	k := &copies{core: x, log: cfg.Log, timeout: cfg.LegTimeout, late: cfg.SyncTimeout, loss: cfg.LossTimeout, note: note, fail: fail, wake: make(chan struct{}, 1), serves: make(chan struct{}), newer: make(chan struct{}, 1), turned: make(chan struct{}), came: make(chan struct{}), adding: make(chan struct{}, 1)}
	k.fence.start()
	k.startFollowing(&cfg)
	k.pieces = make([]piece, len(x.legs)*copiesAhead+(len(x.legs)-1)*verifyAhead)
	for i := range k.pieces {
		k.pieces[i].index = i
	}
	k.life, k.stop = context.WithCancel(context.Background())
	k.asking, k.hush = context.WithCancel(context.Background())
	return k
}

// begin starts the goroutine. The view has a pending generation, or an active one.
func (k *copies) begin() {
	follows := k.view.Record.Async != 0 && !k.replays // before run changes the view
	k.ended.Add(1)
	go k.run()
	if follows {
		for _, g := range k.core.legs {
			k.ended.Add(1)
			go k.teller(g)
		}
	}
	k.rouse()
}

// end ends the goroutines. A call that is under way has its answer first, until ctx ends: to give up a
// call is to give up its session, which is to be closed. A target whose disk hangs has closeTimeout.
func (k *copies) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	defer k.hush()
	defer context.AfterFunc(ctx, k.hush)()
	k.stop()
	k.core.commit.mu.Lock()
	k.core.commit.mu.Unlock() //nolint:staticcheck // a goroutine that held it has started its resyncs
	k.ended.Wait()
}

// rouse has the goroutine look again.
func (k *copies) rouse() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *copies) run() {
	defer k.ended.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-k.life.Done():
			return
		case <-k.wake:
		case <-timer.C:
		}
		for {
			again, wait := k.act()
			if k.life.Err() != nil {
				return
			}
			if wait > 0 {
				timer.Reset(wait)
			}
			if !again {
				break
			}
		}
	}
}

// act does the next thing that can be done, and reports whether there may be another. wait is when
// to look again, if nothing happens before; 0: never.
func (k *copies) act() (again bool, wait time.Duration) {
	c := &k.core.commit
	c.mu.Lock()
	if k.core.failed() != nil {
		c.mu.Unlock()
		return false, 0
	}
	next, changes, wait := k.leaverLocked()
	if !changes && len(c.waiting)+len(c.listed) > 0 {
		next, changes = k.enoughLocked()
	}
	if changes {
		k.changeLocked(next)
		c.mu.Unlock()
		return true, 0
	}
	if g := k.substituteLocked(); g != nil {
		c.mu.Unlock()
		g.lanes[0].abort(errStandsIn)
		return true, 0
	}
	if k.office.wanted {
		c.mu.Unlock()
		if k.greet() {
			return true, 0
		}
		c.mu.Lock()
	}
	freed, lagged, due := k.followersLocked()
	wait = sooner(wait, due)
	if lagged != nil || freed {
		c.mu.Unlock()
		if lagged != nil {
			lagged.lanes[0].abort(errLagged)
		}
		if freed {
			c.start(true) // what waited for it
			k.core.post()
		}
		return freed, wait
	}
	look, opened := k.fenceLocked()
	wait = sooner(wait, look)
	if opened {
		c.mu.Unlock()
		k.core.post() // READs that waited
		return true, wait
	}
	if k.view.Pending {
		if !k.office.agreedLocked() {
			c.mu.Unlock()
			again, pause := k.agree()
			return again, sooner(wait, pause)
		}
		todo := k.view.Next(k.written)
		if todo == 0 {
			k.activateLocked()
			left := k.departLocked()
			c.mu.Unlock()
			for _, g := range left {
				g.lanes[0].abort(errRemoved)
			}
			c.start(true)
			k.core.post()
			return true, wait
		}
		k.sendPendingLocked(todo)
		c.mu.Unlock()
		return false, wait
	}
	early := k.startResyncsLocked()
	k.nameSessionLocked()
	again = k.renew != nil && k.renewLocked(k.renew)
	c.mu.Unlock()
	if early != nil {
		early.lanes[0].abort(errLetGo)
	}
	return again, wait
}

// leaverLocked returns the view without a leg that is to be let go: one that was away for too long, or
// that is of no use. left is how long the next one may still be away.
func (k *copies) leaverLocked() (next mirror.View, ok bool, left time.Duration) {
	if k.settled != nil && !k.view.Pending {
		return next, false, 0
	}
	if !k.view.Pending && !k.view.Serves() {
		return next, false, k.sourceLocked()
	}
	waits := k.replaceSourceLocked()
	now := time.Now()
	var why error
	for _, g := range k.core.legs {
		if !k.view.Record.F.Has(g.slot) || g.up.Load() {
			continue
		}
		if patience := k.timeout - now.Sub(g.silentAt); g.bad == nil && g.hung == nil && patience > 0 {
			if left == 0 || patience < left {
				left = patience
			}
			continue
		}
		next, err := k.letGoLocked(g, g.bad != nil)
		if err == nil && !k.office.mayChangeLocked() {
			err, left = errArbiterAway, sooner(left, arbiterPause)
		}
		if err == nil {
			k.log.Warn("A TARGET IS LET GO: the mirror goes on with fewer copies", slog.String("region", g.cfg.Region), slog.String("target", g.cfg.Addr),
				slog.String("generation", next.Record.String()), slog.String("members_left", next.Record.F.String()), slog.Any("error", g.cause()))
			return next, true, 0
		}
		last := k.view.Equal&^persist.Member(g.slot) == 0
		if last && (errors.Is(g.bad, errContents) || g.notOurs()) {
			err = mirror.ErrNoneEqual // however few copies would remain: what it had is on no other
		}
		why = fmt.Errorf("%w (%s at %s: %w)", err, g.cfg.Region, g.cfg.Addr, g.cause())
		if last && g.bad != nil && errors.Is(err, mirror.ErrNoneEqual) && !waits {
			k.failSoonLocked(why)
		}
	}
	if why != nil {
		if next, ok := k.view.TakeBack(); ok && k.office.mayChangeLocked() {
			k.log.Warn("the mirror waits again for a target that it had let go",
				slog.String("generation", next.Record.String()), slog.String("members", next.Record.F.String()), slog.Any("error", why))
			return next, true, 0
		}
	}
	if why != nil && k.givesUp && !errors.Is(why, errArbiterAway) {
		k.failSoonLocked(&lastingError{why})
		return next, false, 0
	}
	if since := k.core.life.awaySince(); k.loss > 0 && !since.IsZero() {
		patience := k.loss - min(now.Sub(since), now.Sub(k.copied))
		if patience <= 0 {
			if why == nil {
				why = errNotReached
			}
			k.failSoonLocked(fmt.Errorf("the mirror could not go on for %v: %w", k.loss, why))
		} else if left == 0 || patience < left {
			left = patience
		}
	}
	if why != nil && why.Error() != k.said {
		k.said = why.Error()
		k.log.Warn("the mirror waits for a target that it cannot do without", slog.Any("error", why))
	}
	return next, false, left
}

// letGoLocked returns the view without g. The error says why the mirror cannot go on so: perhaps others are
// away, too. The caller holds commit.mu.
func (k *copies) letGoLocked(g *leg, lost bool) (next mirror.View, err error) {
	if next, err = k.view.LetGo(g.slot, lost); err == nil {
		err = next.Needs(k.awayLocked(0))
	}
	return next, err
}

// awayLocked returns the members that have not answered for so long, and those that are of no use. The caller
// holds commit.mu.
func (k *copies) awayLocked(long time.Duration) (away persist.Members) {
	for _, g := range k.core.legs {
		if !g.up.Load() && (long == 0 || g.bad != nil || g.hung != nil || !g.silentAt.IsZero() && time.Since(g.silentAt) >= long) {
			away |= persist.Member(g.slot)
		}
	}
	return away
}

// failSoonLocked fails the device, whose last equal leg is gone for good. The caller holds commit.mu.
func (k *copies) failSoonLocked(cause error) {
	k.ended.Add(1)
	go func() {
		defer k.ended.Done()
		k.fail(cause)
		k.core.abort()
		k.core.buryFailed()
	}()
}

// changeLocked begins the generation that next has pending.
func (k *copies) changeLocked(next mirror.View) {
	k.core.commit.interruptLocked(0)
	k.stopResyncsLocked(next.Record.F)
	k.nameEpochsLocked(&next)
	k.view, k.written, k.said = next, 0, ""
	k.office.begin(&next)
	k.core.readableLocked() // before anybody else hears of it
	k.note(next)
}

// nameEpochsLocked has the record of v name the epochs that the members have come to. So the next life takes a copy
// that is older than the last session of a member for one (mirror §3.6). If v has no new generation, its record stays as
// it is: a member that has the generation already would refuse another record of it. The caller holds commit.mu.
func (k *copies) nameEpochsLocked(v *mirror.View) {
	if v.Record.Generation == k.view.Record.Generation {
		return
	}
	for _, g := range k.core.legs {
		m := &v.Record.Members[g.slot]
		if o := &g.granted; o.UUID == m.UUID && o.ContentsID == m.Contents {
			m.Epoch = max(m.Epoch, o.Epoch)
		}
	}
}

// activateLocked makes the pending generation the active one.
func (k *copies) activateLocked() {
	first := !k.view.Serves()
	k.view, k.written = k.view.Activated(), 0
	k.office.members, k.office.shared = k.view.Active, k.view.Active
	k.note(k.view)
	k.log.Info("the mirror has a new generation", slog.String("generation", k.view.Record.String()), slog.String("members", k.view.Active.String()))
	k.fenceLocked()
	k.core.readableLocked()
	k.core.completeLocked()
	close(k.turned)
	k.turned = make(chan struct{})
	if first {
		close(k.serves)
	}
	for _, g := range k.core.legs {
		g.tell() // none is told while a generation is pending
	}
	if k.settled != nil {
		close(k.settled)
	}
}

// takeIn has the mirror take g in, which has all that the others have. contents and epoch are those
// of its session.
func (k *copies) takeIn(g *leg) error {
	c := &k.core.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	if !g.up.Load() || g.copying == nil || g.copying.over() {
		return errors.New("it is lost again")
	}
	if k.view.Record.Async.Has(g.slot) {
		if !k.followLocked(g) {
			return errors.New("it follows from the next barrier on")
		}
		return nil
	}
	if k.view.Lacks(g.slot, g.granted.ContentsID) {
		return k.generationLocked(k.view.Regained(g.slot, g.granted.ContentsID, g.granted.Epoch))
	}
	if k.view.Active.Has(g.slot) || !k.view.Serves() {
		next := k.view.Equaled(g.slot, k.sessionsLocked())
		if begins := next.Record.Generation != k.view.Record.Generation; begins {
			if !k.office.mayChangeLocked() {
				k.rouse()
				return errArbiterAway
			}
			k.office.begin(&next)
			k.copied = time.Now()
		}
		k.view = next
		k.note(k.view)
		k.core.readableLocked()
		k.rouse()
		return nil
	}
	return k.generationLocked(k.view.TakeIn(g.slot, g.granted.ContentsID, g.granted.Epoch))
}

// generationLocked begins the generation that makes the view next, unless err says why there can be none.
// The caller holds commit.mu.
func (k *copies) generationLocked(next mirror.View, err error) error {
	if k.settled != nil {
		return errStopped
	}
	if err != nil {
		return err
	}
	if !k.office.mayChangeLocked() {
		k.rouse()
		return errArbiterAway
	}
	k.changeLocked(next)
	k.rouse()
	return nil
}

// sessionsLocked returns what the sessions on the members found, by slot.
func (k *copies) sessionsLocked() *[persist.MaxMembers]persist.Membership {
	var has [persist.MaxMembers]persist.Membership
	for _, g := range k.core.legs {
		if o := &g.granted; o.Epoch != 0 {
			has[g.slot] = persist.Membership{UUID: o.UUID, Contents: o.ContentsID, Epoch: o.Epoch}
		}
	}
	return &has
}

// servesLocked reports whether READs may come from g. While a generation is pending the next life may find that one, or
// any that it replaces, and does not wait until a member that this one leaves out is quiet (mirror §4.7).
func (k *copies) servesLocked(g *leg) bool {
	v := &k.view
	return k.view.Equal.Has(g.slot) && !k.fence.closed && (!v.Pending || !v.Serves() || k.office.shared.Has(g.slot))
}

// needsLocked reports whether the device waits for g while g is away.
func (k *copies) needsLocked(g *leg) bool {
	return (k.view.Record.F | k.view.Active).Has(g.slot)
}
