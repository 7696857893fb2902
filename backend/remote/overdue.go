package remote

import (
	"fmt"
	"log/slog"
	"time"

	"pmnbd/persist"
	"pmnbd/rdma"
)

// In a mirror a target can live and answer heartbeats while its disk hangs. A region alone waits for
// that (stall). In a mirror the others have what a FLUSH needs, so the member is let go once it has kept
// them waiting for Config.SyncTimeout (mirror §3.3).
//
//	others of F have acknowledged ─► this one has not ─► SyncTimeout without any progress of it ─► let go
//
// The time counts from when enough others were through, so disks that are equally slow wait for each
// other. Each acknowledgement of the member, and each byte of doubt that it settles, starts the time anew:
// a disk that is slow and moves is not let go. Bytes that it receives are no progress.

// An overdue finds that the mirror waits for a leg alone. It belongs to the goroutine of the leg's
// heartbeats.
type overdue struct {
	alone  step // another leg is through, at least
	enough step // those that are through could go on without the leg
	owes   step // whoever else is through
}

// find returns an error if g is to be let go, or to end its session, because it has kept the others
// waiting for too long.
func (o *overdue) find(g *leg, now int64) error {
	k := g.core.copies
	if k == nil {
		return nil
	}
	c := &k.core.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.core.failed() != nil || k.life.Err() != nil {
		return nil
	}
	through := k.throughLocked(g)
	at := progress{seq: 1 + c.answers[g.slot], doubtLeft: g.pulse.doubt.Load(), moved: g.generation.Load()}
	alone, enough, owes := at, at, at
	if !g.up.Load() || !k.owesLocked(g) {
		owes = progress{}
	}
	if through == 0 {
		alone = progress{}
	}
	replaced := k.replacedLocked(g)
	source := k.otherSourceLocked(g, through)
	if through&k.view.Equal == 0 && !source || through.Count() < int(k.view.Record.MinCopies) && !replaced {
		enough = progress{}
	}
	g.late.Store(int64(o.alone.stays(alone, now)))
	bound, waited, owed := k.late, o.enough.stays(enough, now), o.owes.stays(owes, now)
	if k.loss > 0 && (bound == 0 || k.loss < bound) {
		bound = k.loss
	}
	goes, late := enough != (progress{}) && (replaced || source || k.doesWithoutLocked(g)), owed
	if goes && k.view.Record.F.Has(g.slot) && k.arbiterAwayLocked() {
		goes = false  // the end of its session would be in vain, and a new one makes all pages dirty again
		late = waited // for so long the arbiter has been asked
	}
	if k.loss > 0 && late > k.loss && !goes {
		k.failSoonLocked(fmt.Errorf("%s at %s lives, but has kept the mirror waiting for %v, and the loss timeout is %v: its disk is too slow, or hangs: %w",
			g.cfg.Region, g.cfg.Addr, late.Round(time.Millisecond), k.loss, rdma.ErrTimeout))
		return nil
	}
	if bound == 0 || waited <= bound || !goes {
		return nil
	}
	g.hung = fmt.Errorf("%w: the target lives, and has kept the others waiting for %v without any progress: its disk hangs, or is too slow: %w",
		rdma.ErrLost, waited.Round(time.Second), rdma.ErrTimeout)
	pause := g.sits.again(time.Now(), bound)
	g.log.Warn("A TARGET HANGS: the mirror goes on without it", slog.String("region", g.cfg.Region), slog.String("target", g.cfg.Addr),
		slog.Duration("for", waited), slog.Duration("stays_out_for", pause))
	*o = overdue{}
	return g.hung
}

// none notes that nobody waits for g in its session: there is none.
func (o *overdue) none(g *leg) {
	*o = overdue{}
	g.late.Store(0)
}

// throughLocked returns the members of F that have acknowledged what g has not, none if g owes nothing.
// The caller holds commit.mu.
func (k *copies) throughLocked(g *leg) (members persist.Members) {
	if !g.up.Load() || !k.owesLocked(g) || !k.view.Serves() && !k.view.Pending {
		return 0
	}
	for _, other := range k.core.legs {
		if other != g && other.up.Load() && k.view.Record.F.Has(other.slot) && !k.owesLocked(other) {
			members |= persist.Member(other.slot)
		}
	}
	return members
}

// owesLocked reports whether the target of g, which is up, has not acknowledged the barrier in flight, or
// the record that it is to have. The caller holds commit.mu.
func (k *copies) owesLocked(g *leg) bool {
	if b := k.core.commit.current; b != nil && b.owed(g.slot) > 0 {
		return true
	}
	if k.view.Pending {
		return k.view.Next(k.written).Has(g.slot)
	}
	return k.renew != nil && k.renew.todo(&k.view).Has(g.slot)
}

// arbiterAwayLocked reports whether no generation can begin, because the arbiter did not answer the last question, or the
// lease there is over. It then has greet ask again, because perhaps nobody has since. An answer counts however old it is,
// unlike in mayChangeLocked, because heartbeats look more rarely than an answer stays fresh. The caller holds commit.mu.
func (k *copies) arbiterAwayLocked() bool {
	o := &k.office
	if o.term == nil || o.cause == nil && time.Until(o.untilLocked()) > 0 {
		return false
	}
	o.wanted = true
	k.rouse()
	return true
}

// doesWithoutLocked reports whether the mirror can go on without g. The caller holds commit.mu.
func (k *copies) doesWithoutLocked(g *leg) bool {
	if !k.view.Record.F.Has(g.slot) {
		return true
	}
	_, err := k.letGoLocked(g, false)
	return err == nil && (k.settled == nil || k.view.Pending) // see leaverLocked
}

// replacedLocked reports whether another member could be in F instead of g, which hangs: one that is there, and owes
// nothing, stands in, or one is taken back that the pending generation is without. A member that could stand in for g, and
// not for the others that are away as well, replaces nobody: g would be left out until they are back. The caller holds
// commit.mu.
func (k *copies) replacedLocked(g *leg) bool {
	if k.settled != nil || !k.view.Record.F.Has(g.slot) || k.view.Needs(persist.Member(g.slot)) == nil {
		return false
	}
	if _, ok := k.view.TakeBack(); ok {
		return true
	}
	away := k.awayLocked(k.timeout) | persist.Member(g.slot)
	for _, other := range k.core.legs {
		if other == g || other.joins || !other.up.Load() || k.owesLocked(other) {
			continue
		}
		if _, ok := k.standsInLocked(other.slot, away, 0); ok {
			return true
		}
	}
	return false
}

// otherSourceLocked reports whether g, the only source of a life that has no active generation yet, could be let go because
// one of through takes its place (mirror §4.4). The caller holds commit.mu.
func (k *copies) otherSourceLocked(g *leg, through persist.Members) bool {
	if k.view.Equal != persist.Member(g.slot) {
		return false
	}
	for _, other := range k.core.legs {
		if other.up.Load() && (through & k.view.Sources() & k.sources).Has(other.slot) && other.granted.ContentsID == k.view.Record.Members[other.slot].Contents {
			next, err := k.view.From(other.slot).LetGo(g.slot, false)
			return err == nil && next.Needs(k.awayLocked(0)) == nil
		}
	}
	return false
}

// maxSitting bounds how long a leg stays out, forgiven is after how long without another time nothing
// of it counts any more.
const (
	maxSitting = 30 * time.Minute
	forgiven   = 2 * time.Hour
)

// A sitting is how long a leg stays out that was let go because it hung. Each time is twice as long as
// the one before: whenever its disk hangs again, all FLUSHes hang for SyncTimeout.
type sitting struct {
	pause time.Duration
	last  time.Time
	until time.Time
}

// again begins the next one, and returns how long it takes; first is the shortest.
func (s *sitting) again(now time.Time, first time.Duration) time.Duration {
	if s.pause *= 2; s.last.IsZero() || now.Sub(s.last) > forgiven {
		s.pause = first
	}
	s.pause = min(s.pause, max(maxSitting, first))
	s.last, s.until = now, now.Add(s.pause)
	return s.pause
}

// sitOut waits while g stays out, or fails with errStopped.
func (g *leg) sitOut() error {
	for g.core.copies.sitsOut(g) {
		if err := g.pause(sparePause); err != nil {
			return err
		}
	}
	return nil
}

// sitsOut reports whether g must not come back yet. One that hung stays out for its time, unless the
// mirror needs it, or the arbiter is away. One that is of no use must be let go before its target is asked
// again, and one outside F waits until no generation is pending: whatever its target granted before would
// be in vain.
func (k *copies) sitsOut(g *leg) bool {
	if k == nil {
		return false
	}
	c := &k.core.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	inF := k.view.Record.F.Has(g.slot)
	switch {
	case k.core.failed() != nil || g.granted.Epoch == 0: // nobody knows yet which member it is
		return false
	case g.leaver != nil: // its target is to be told
		return false
	case inF && g.bad != nil:
		return k.doesWithoutLocked(g) // it is about to be let go
	case !inF && k.view.Pending:
		_, stands := k.standsInLocked(g.slot, k.awayLocked(k.timeout), 0)
		return !stands
	case inF && g.hung != nil && k.arbiterAwayLocked():
		return false // nobody can let it go, or replace it, and FLUSHes wait for it
	case inF && g.hung != nil && k.replacedLocked(g):
		return true // it is about to be replaced
	case !k.doesWithoutLocked(g):
		return false
	case k.needsLocked(g):
		return g.hung != nil // it is about to be let go
	}
	return time.Now().Before(g.sits.until) && !k.core.life.phase().away()
}
