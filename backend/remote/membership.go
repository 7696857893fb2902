package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"pmnbd/internal/mirror"
	"pmnbd/persist"
	"pmnbd/persist/wire"
)

// The members of a mirror change while it serves (mirror §4.9). A device has a leg for each place that
// a mirror can have, so that no queue has to learn of a new one: those without a member are vacant.
//
//	change the view ─► a generation, active ─► the leg that left: RECORD zero, CLOSE ─► vacant

var (
	errRemoved   = errors.New("it was removed from the mirror")
	errNotActive = errors.New("the change has begun, and is not active yet: a member in sync does not answer. pmnbd mirror status shows when it is")
)

const (
	// farewellAfter bounds the attempts to tell the target of a removed member that it is one no longer.
	farewellAfter = 10 * time.Second
	// farewells is how many attempts there are.
	farewells = 2
)

// A leaver is a member that was removed, whose target does not know it yet.
type leaver struct {
	uuid [16]byte   // of its region
	told chan error // takes what became of it
}

// makeSpares makes the legs that have no member yet. A region alone has none.
func (d *Device) makeSpares() error {
	if len(d.cfg.Members) == 0 {
		return nil
	}
	for slot := len(d.legs); slot < persist.MaxMembers; slot++ {
		cfg := d.cfg
		cfg.Addr, cfg.Region, cfg.LossTimeout = "", "", 0
		g, err := newLeg(cfg, slot, d)
		if err != nil {
			return err
		}
		g.vacant = true
		d.spares = append(d.spares, g)
	}
	return nil
}

// RemoveMember makes the member in slot none of the mirror's. When it returns without an error the
// generation is active that says so. told is nil if the member's region is an ordinary one now, whose
// contents count as lost. Otherwise it says why the region could not be told: it keeps its record, and
// no start that reaches a member takes it for one.
//
// The error wraps mirror.ErrBelowMin or mirror.ErrNoneEqual if the mirror cannot do without the member.
// If ctx ends first the change may have begun, and goes on.
func (d *Device) RemoveMember(ctx context.Context, slot int) (told, err error) {
	k := d.core.copies
	if k == nil {
		return nil, ErrNoMirror
	}
	c := &k.core.commit
	_, err = k.alter(ctx, func(v *mirror.View) (mirror.View, error) { return v.Remove(slot) })
	switch {
	case errors.Is(err, mirror.ErrBelowMin):
		return nil, fmt.Errorf("%w: FLUSH would wait for ever. Add another member first, or lower what the mirror needs with pmnbd mirror set --min-copies", err)
	case errors.Is(err, mirror.ErrNoneEqual):
		return nil, fmt.Errorf("%w: the others are copied from it, wait until one is in sync", err)
	case err != nil:
		return nil, err
	}
	c.mu.Lock()
	left := k.left[slot]
	c.mu.Unlock()
	if left == nil {
		return errors.New("no --target leads to it"), nil
	}
	select {
	case told = <-left.told:
	case <-ctx.Done():
		told = context.Cause(ctx)
	case <-k.life.Done():
		told = errStopped
	}
	return told, nil
}

// SetMinCopies makes M the least number of members that have a write before its FLUSH succeeds. When it
// returns without an error, that is so. The error wraps mirror.ErrBelowMin if fewer are in sync. A smaller M
// that somebody sets meanwhile may replace m before that is active: then the error says so.
func (d *Device) SetMinCopies(ctx context.Context, m int) error {
	k := d.core.copies
	if k == nil {
		return ErrNoMirror
	}
	has, err := k.alter(ctx, func(v *mirror.View) (mirror.View, error) { return v.SetMinCopies(m) })
	if err == nil && int(has.MinCopies) != m {
		err = fmt.Errorf("somebody set the least number of copies to %d meanwhile, and that counts", has.MinCopies)
	}
	return err
}

// alter begins the generation that next returns, when no other is pending, and waits until it is
// active, or one that has replaced it. It returns the record of the active one.
func (k *copies) alter(ctx context.Context, next func(v *mirror.View) (mirror.View, error)) (has persist.Record, err error) {
	c := &k.core.commit
	for begun, asks := false, false; ; {
		var asked <-chan time.Time
		var needs error
		c.mu.Lock()
		if err := k.core.failed(); err != nil {
			c.mu.Unlock()
			return has, err
		}
		turned, came := k.turned, k.came
		if begun && !k.view.Pending {
			has = k.view.Record
			c.mu.Unlock()
			return has, nil
		}
		if !begun {
			v, err := next(&k.view)
			if err == nil && v.Pending {
				needs = v.Needs(k.awayLocked(0))
			}
			switch {
			case k.settled != nil:
				err = errStopped
			case ctx.Err() != nil: // the caller waited too long for another order, or has ended
				err = context.Cause(ctx)
			case errors.Is(err, mirror.ErrChanging): // after that one
				err = nil
			case err == nil && !v.Pending:
				c.mu.Unlock()
				return v.Record, nil
			case needs != nil: // it would wait for ever if they are gone for good
			case err == nil && !k.office.mayChangeLocked():
				if !asks {
					k.office.cause = nil // of an earlier question
				}
				if asks = true; k.office.cause != nil {
					err = fmt.Errorf("%w (%w)", errArbiterAway, k.office.cause)
				}
				asked = time.After(arbiterPause / 10) // the goroutine asks the arbiter first
			case err == nil:
				k.log.Info("the members of the mirror change, or M", slog.String("generation", v.Record.String()),
					slog.String("members", v.Record.Present().String()), slog.Int("min_copies", int(v.Record.MinCopies)))
				k.changeLocked(v)
				begun = true
			}
			if err != nil {
				c.mu.Unlock()
				return has, err
			}
		}
		c.mu.Unlock()
		k.rouse()
		select {
		case <-turned:
		case <-came:
		case <-asked:
		case <-ctx.Done():
			if needs != nil {
				return has, fmt.Errorf("nothing was changed: %w. Bring it back. If it is gone for good, %s", needs, withoutIt(needs))
			}
			if !begun {
				return has, fmt.Errorf("another change of the mirror is under way: %w", context.Cause(ctx))
			}
			return has, fmt.Errorf("%w: %w", errNotActive, context.Cause(ctx))
		case <-k.life.Done():
			return has, errStopped
		}
	}
}

// withoutIt says how the mirror goes on without a member that is gone for good, and without which it cannot.
func withoutIt(why error) string {
	if errors.Is(why, mirror.ErrBelowMin) {
		return "lower what the mirror needs with pmnbd mirror set --min-copies"
	}
	return "end pmnbd, and begin with --degraded"
}

// departLocked has the legs leave whose members the active generation has no longer. It returns those
// that have connections to end. The caller holds commit.mu.
func (k *copies) departLocked() (up []*leg) {
	gone := k.known.Present() &^ k.view.Record.Present()
	for _, g := range k.core.legs {
		if !gone.Has(g.slot) {
			continue
		}
		if k.left[g.slot] = nil; g.vacant {
			continue
		}
		k.forsakeLocked(g)
		g.vacant, g.leaver = true, &leaver{k.known.Members[g.slot].UUID, make(chan error, 1)}
		k.left[g.slot] = g.leaver
		k.log.Info("a member is removed from the mirror", slog.String("region", g.cfg.Region), slog.String("target", g.cfg.Addr))
		if g.up.Load() {
			up = append(up, g)
		}
	}
	// It names no session of a member that is gone, so no bit of that one is cleared (namesLocked). The targets of F keep
	// none, and a barrier that clears some fails there.
	k.known = k.view.Record
	return up
}

// forsakeLocked ends what the others do for g, which is no member any more. The caller holds commit.mu, and no
// barrier is in flight.
func (k *copies) forsakeLocked(g *leg) {
	if r := g.copying; r != nil {
		r.detach()
		r.end()
	}
	g.follow.dropped = g.follow.on // here, because another change may begin before followersLocked looks
}

// leaves returns the member of g that was removed, or nil.
func (k *copies) leaves(g *leg) *leaver {
	if k == nil {
		return nil
	}
	c := &k.core.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	return g.leaver
}

// departs tells the target of g, whose member was removed, that it is none, and makes g an empty place.
// It is false if g's member was not removed. Only g's keeper calls it.
func (k *copies) departs(g *leg) bool {
	left := k.leaves(g)
	if left == nil {
		return false
	}
	c := &k.core.commit
	ctx, cancel := context.WithTimeout(g.keeping, farewellAfter)
	defer cancel()
	var err error
	for n := range farewells {
		if err = g.farewell(ctx, left.uuid); err == nil || ctx.Err() != nil || errors.As(err, new(*RefusedError)) {
			break
		}
		if g.pause(backoff(n, g.cfg.Jitter())) != nil {
			break
		}
	}
	if err != nil {
		g.log.Warn("a removed member could not be told, and keeps its record", slog.String("region", g.cfg.Region), slog.String("target", g.cfg.Addr), slog.Any("error", err))
	}
	g.device.forgetSession(left.uuid)
	if e := g.device.dropClaim(left.uuid); e != nil {
		g.log.Warn("the lock of a removed member was not given back", slog.String("region", g.cfg.Region), slog.Any("error", e))
	}
	c.mu.Lock()
	g.leaver, g.granted, g.record, g.bad, g.hung, g.lostBy, g.joins = nil, wire.Opened{}, persist.Record{}, nil, nil, nil, false
	g.silentAt, g.sits = time.Time{}, sitting{}
	g.mark.Store(0)
	c.mu.Unlock()
	left.told <- err
	return true
}

// farewell ends the membership of the region of g, and closes it. Nothing of g is connected.
func (g *leg) farewell(ctx context.Context, region [16]byte) (err error) {
	var c dialed
	o := wire.Opened{UUID: region}
	if g.granted.Epoch != 0 {
		if err := g.openDomain(ctx); err != nil {
			return err
		}
		if c, err = g.connect(ctx, 0, nil); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.conn.Close()) }()
		if o, err = g.askResume(ctx, &c); err != nil {
			return err
		}
	} else {
		said, err := g.probe(ctx)
		switch {
		case err != nil:
			return err
		case said.UUID != region:
			return g.elsewhereNow(said.UUID)
		case said.Record == persist.Record{}:
			return nil
		}
		g.opening = opening{}
		var conns []dialed
		if o, conns, err = g.tryOpen(ctx); err != nil {
			return err
		}
		c = conns[0]
		for _, other := range conns[1:] {
			_ = other.conn.Close() // nothing was sent on it
		}
		defer func() { err = errors.Join(err, c.conn.Close()) }()
	}
	if o.UUID != region {
		return g.elsewhereNow(o.UUID)
	}
	return g.renounce(ctx, &c, o.Epoch)
}

func (g *leg) elsewhereNow(other [16]byte) error {
	return fmt.Errorf("region %s at %s is another region than the member that was removed (UUID %x)", g.cfg.Region, g.cfg.Addr, other)
}

// renounce writes the zero record on a session of this epoch, and closes it.
func (g *leg) renounce(ctx context.Context, c *dialed, epoch uint64) error {
	c.secret = nil // within a session nothing is signed
	m := wire.Record{Seq: 1}
	var done wire.Recorded
	if err := g.demand(ctx, c, m.Append(nil), &done); err != nil {
		return fmt.Errorf("end its membership: %w", err)
	}
	end := wire.Close{Epoch: epoch}
	var closed wire.Closed
	if err := g.demand(ctx, c, end.Append(nil), &closed); err != nil {
		return fmt.Errorf("close it: %w", err)
	}
	return nil
}

// demand is ask for a request that is not to be refused. It waits maxAttempt at most: no heartbeats tell
// whether the target is still there.
func (g *leg) demand(ctx context.Context, c *dialed, msg []byte, answer interface{ Decode([]byte) error }) error {
	ctx, cancel := context.WithTimeout(ctx, maxAttempt)
	defer cancel()
	var refused wire.Refused
	t, err := g.ask(ctx, c, msg, answer, &refused)
	if err == nil && t == wire.TypeRefused {
		err = &RefusedError{Region: g.cfg.Region, said: refused}
	}
	return err
}

// MemberSlot returns the slot of the member that is called by a letter, or -1.
func MemberSlot(letter string) int {
	return slices.IndexFunc([]string{"A", "B", "C", "D"}, func(s string) bool { return s == letter })
}

// MemberLetter returns the letter by which people call the member in slot.
func MemberLetter(slot int) string { return persist.Member(slot).String() }
