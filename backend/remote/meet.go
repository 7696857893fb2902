package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"pmnbd/backend"
	"pmnbd/internal/mirror"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

var (
	errNoMember = errors.New("it is no member of this mirror")
	errOwnWay   = errors.New("it went its own way: see pmnbd mirror discard")
	errNewer    = errors.New("it knows a newer generation of the mirror")
	errAgain    = errors.New("the start decides again")
	errChanges  = errors.New("the mirror changes its generation")
	errGivenUp  = errors.New("the mirror gave this member up during its return")
)

// errContents: a member came back without what it had.
var errContents = errors.New("its contents were lost, or it was restored from a copy")

// probe asks the target of g, on which this life never had a session, what it has. OPEN would change
// its superblock: that is not for a member that went its own way (mirror §4.6).
func (k *copies) probe(ctx context.Context, g *leg) error {
	said, err := g.probe(ctx)
	if err != nil {
		return err
	}
	k.greetsFor(ctx, g, int(said.Record.Slot))
	k.core.commit.mu.Lock()
	defer k.core.commit.mu.Unlock()
	g.restored = false
	said.Record = k.joiningLocked(g, said.UUID, said.Record)
	l := mirror.Leg{Name: g.cfg.Region + " at " + g.cfg.Addr, Reach: mirror.Probed, Record: said.Record, Life: said.Life, Epoch: said.Epoch}
	if slot := int(said.Record.Slot); slot < len(said.Record.Members) {
		l.Contents = said.Record.Members[slot].Contents // OPENED tells what they are
	}
	switch meeting := k.view.Meet(&l); meeting {
	case mirror.Stranger:
		return errNoMember
	case mirror.OwnWay:
		g.met, g.record = meeting, said.Record
		return errOwnWay
	case mirror.Again:
		return k.decideAgain(errNewer)
	case mirror.Resume, mirror.Gone: // one that stands in: its contents are named nowhere
		return nil
	}
	if k.view.Pending {
		k.standInLocked(g, int(said.Record.Slot))
		return errChanges
	}
	// Its epoch alone says that it was put back from a copy, and each OPEN raises that (mirror §3.6). And the members
	// of the generation that a stray knows would copy to it by their bits (mirror §5.1).
	if g.restored = l.Epoch < k.view.Record.Members[l.Record.Slot].Epoch || k.view.Strays(&l); g.restored {
		g.record = said.Record
		return k.mayMeetLocked(int(said.Record.Slot))
	}
	return nil
}

// decideAgain has the start decide again: a member knows a newer generation than the one from which this
// life was to begin (mirror §4.2), or lost what was to be copied from it (mirror §4.4). why says which. It
// returns what the member's leg waits for.
func (k *copies) decideAgain(why error) error {
	select {
	case k.newer <- struct{}{}:
	default:
	}
	return fmt.Errorf("%w: %w", why, errAgain)
}

// sourceLocked has the start decide again if the life copies first, and every leg that it could copy from has
// been away for Config.LegTimeout: another member may have come that has everything. The copy begins anew then, so
// a loss that is over at once costs nothing. left is how long the last of these legs may still be away. The caller
// holds commit.mu.
func (k *copies) sourceLocked() (left time.Duration) {
	for _, g := range k.core.legs {
		switch {
		case !k.view.Equal.Has(g.slot):
		case g.up.Load():
			return 0
		default:
			left = max(left, max(k.timeout, leastPatience)-time.Since(g.silentAt))
		}
	}
	if left <= 0 {
		_ = k.decideAgain(errNoSource)
		return 0
	}
	return left
}

// meet decides what becomes of g, whose target has just granted o on a connection. If it may go on,
// the caller connects the lanes. It is read from only if it is equal; else all that it lacks is copied
// to it first, and its record says so already (mirror §5.1).
func (k *copies) meet(ctx context.Context, g *leg, o *wire.Opened, c *dialed) (err error) {
	k.greetsFor(ctx, g, int(o.Record.Slot))
	commit := &k.core.commit
	commit.mu.Lock()
	if size := k.sizeLocked(); g.joins && o.Size != size {
		commit.mu.Unlock()
		return fmt.Errorf("region %s has %d bytes, and the mirror has %d", g.cfg.Region, o.Size, size)
	}
	o.Record = k.joiningLocked(g, o.UUID, o.Record)
	l := mirror.Leg{Name: g.cfg.Region + " at " + g.cfg.Addr, Reach: mirror.Held, Record: o.Record, Life: o.Life, Contents: o.ContentsID, Epoch: o.Epoch}
	l.Epoch-- // the grant has raised it: what counts is the epoch in which the member came
	old := &g.granted
	restored := old.Epoch != 0 && (o.Epoch <= old.Epoch || o.Mark < g.mark.Load() || o.ContentsID != old.ContentsID)
	if restored {
		l.Epoch = 0 // as one that was put back from a copy
	}
	meeting := k.view.Meet(&l)
	serves := k.view.Serves()
	if !serves && meeting == mirror.ResyncAll && k.view.Equal.Has(int(o.Record.Slot)) && !l.Lost(&k.view.Record) {
		meeting = mirror.Resume // the source of the copies that come first (mirror §4.4)
	}
	lost := meeting == mirror.Gone || errors.As(g.bad, new(*BarrierError))
	meeting = k.retriedLocked(g, meeting, o)
	switch {
	case meeting == mirror.Gone:
		switch {
		case g.bad == nil:
			g.bad = errContents
		case lost && !errors.Is(g.bad, errContents):
			g.bad = fmt.Errorf("%w: %w", errContents, g.bad)
		}
		g.faulty = true
		k.rouse()
		err = g.bad
	case meeting == mirror.Stranger:
		err = errNoMember
	case meeting == mirror.OwnWay:
		err = errOwnWay
	case meeting == mirror.Again:
		err = k.decideAgain(errNewer)
	case restored && !serves && !k.view.Pending && k.view.Equal.Has(int(o.Record.Slot)): // no record would tell that it lost everything
		err = k.decideAgain(errContents)
	case k.seatTakenLocked(g, int(o.Record.Slot)):
		err = errors.New("another of the targets leads to the same member")
	case meeting != mirror.Resume && (k.standInLocked(g, int(o.Record.Slot)) || k.view.Pending):
		err = errChanges
	default:
		if err = k.mayMeetLocked(int(o.Record.Slot)); err == nil {
			k.placeLocked(g, int(o.Record.Slot))
		}
	}
	follows := g.follow.on && meeting == mirror.Resync && err == nil
	freed := g.follow.on && !follows && err == nil // it lost what it had
	if freed {
		k.unfollowLocked(g)
	}
	g.met, g.goesOn, g.record = meeting, follows, o.Record
	commit.mu.Unlock()
	if freed { // FLUSHes need not wait until it has been copied to
		commit.start(true)
		k.core.post()
	}
	if err != nil || meeting == mirror.Resume || follows {
		return err
	}
	if meeting == mirror.ResyncAll && serves { // before, no record names what it has
		l.Epoch = o.Epoch
		r := &renewal{leg: l, lacks: true, done: make(chan error, 1)}
		if err := k.ask(ctx, r); err != nil {
			return err
		}
	}
	commit.mu.Lock()
	torn := k.view.Torn(&l)
	commit.mu.Unlock()
	m := wire.Record{Seq: 1, Record: torn}
	var done wire.Recorded
	var refused wire.Refused
	plain := *c
	plain.secret = nil // within a session nothing is signed
	if _, err := g.ask(ctx, &plain, m.Append(nil), &done, &refused); err != nil {
		return fmt.Errorf("note that it is half copied: %w", err)
	}
	commit.mu.Lock()
	g.record, g.joins = torn, false
	commit.mu.Unlock()
	return nil
}

// leftLocked reports whether the mirror gave g up after meet had decided that g goes on. Then g lacks
// writes, and its record does not say so. The caller holds commit.mu.
func (k *copies) leftLocked(g *leg) bool {
	resumes := g.met == mirror.Resume && !(k.view.Record.F | k.view.Equal).Has(g.slot)
	return resumes || g.goesOn && !g.follow.on
}

// ask has the goroutine carry r out, and waits for that.
func (k *copies) ask(ctx context.Context, r *renewal) error {
	c := &k.core.commit
	c.mu.Lock()
	if k.renew != nil && k.renew.lacks {
		c.mu.Unlock()
		return errors.New("another member is being renewed")
	}
	k.renew = r
	c.mu.Unlock()
	k.rouse()
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		if k.renew == r {
			k.renew = nil
		}
		return context.Cause(ctx)
	}
}

// seatTakenLocked reports whether another leg has a session on the member in slot: two addresses can
// lead to one region. The caller holds commit.mu.
func (k *copies) seatTakenLocked(g *leg, slot int) bool {
	return slices.ContainsFunc(k.core.legs, func(other *leg) bool { return other != g && other.slot == slot && other.up.Load() })
}

// placeLocked gives g the slot of its member. A leg that was not reached before may have had another
// one, which then goes to g's. The caller holds commit.mu.
func (k *copies) placeLocked(g *leg, slot int) {
	if g.slot == slot {
		return // others read it without the mutex
	}
	for _, other := range k.core.legs {
		if other.slot == slot {
			other.slot = g.slot
		}
	}
	g.slot = slot
}

// blames notes that g is of no use because of err, unless the device has to fail with it. It is false
// without a mirror.
func (k *copies) blames(g *leg, err error) bool {
	if k == nil || err == nil || errors.Is(err, rdma.ErrLocalAccess) || errors.Is(err, backend.ErrFailed) {
		return false
	}
	c := &k.core.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	var refused *RefusedError
	said := errors.As(err, &refused)
	if said && refused.said.Code == wire.CodeNotOwner && k.needsLocked(g) && !g.wentBack(&refused.said) {
		return false // another life has begun (mirror §4.5)
	}
	if said && refused.said.Code == wire.CodeRestored {
		k.disownLocked(g)
	}
	if g.bad == nil {
		g.bad = err
		k.log.Warn("a target is of no use for the mirror", slog.String("region", g.cfg.Region), slog.String("target", g.cfg.Addr), slog.Any("error", err))
	}
	k.rouse()
	return true
}

// wentBack reports whether the target of g refuses as it does in r because its region was put back from a copy of an
// earlier life. Whoever took the region since would have raised both numbers.
func (g *leg) wentBack(r *wire.Refused) bool {
	return r.Epoch < g.granted.Epoch && r.Life < g.life
}

// notOurs reports whether g is of no use because its region is of an earlier life (wentBack). Its target will not have
// this life again. The caller holds commit.mu.
func (g *leg) notOurs() bool {
	var refused *RefusedError
	return errors.As(g.bad, &refused) && refused.said.Code == wire.CodeNotOwner
}
