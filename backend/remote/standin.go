package remote

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"pmnbd/internal/mirror"
	"pmnbd/persist"
	"pmnbd/rdma"
)

// A member of F that is gone for good, and that the mirror cannot do without, is replaced by one that is there, and
// outside F: one that was let go, and came back. It stands in (mirror §3.3):
//
//	a generation that has it in F, and names nothing of what it has ─► RESUME ─► resync, of everything ─► a generation names it
//
// From the RESUME on it is as a member that lost its contents (regain.go). A region that is being added, and has no record
// yet, does not stand in.

// errStandsIn ends the session of a leg that comes into F before it has everything.
var errStandsIn = fmt.Errorf("%w: it stands in for another member of the mirror", rdma.ErrLost)

// substituteLocked has a leg stand in that has a session, and returns it: its session must begin anew. It is nil if
// nobody has to, or can. The caller holds commit.mu.
func (k *copies) substituteLocked() *leg {
	for _, g := range k.core.legs {
		if g.up.Load() && k.standInLocked(g, g.slot) {
			return g
		}
	}
	return nil
}

// standsInLocked returns the view with a generation in which the member in slot stands in for those of away
// (mirror.View.StandIn). ok is also false while a member that this generation needs is away, even briefly: one of those in
// away may come back first. The caller holds commit.mu.
func (k *copies) standsInLocked(slot int, away, lost persist.Members) (next mirror.View, ok bool) {
	next, ok = k.view.StandIn(slot, away, lost)
	return next, ok && next.Needs(k.awayLocked(0)&^persist.Member(slot)) == nil
}

// standInLocked has g, whose member is in slot, stand in for legs that have been away for Config.LegTimeout, if the
// mirror cannot do without those. The caller holds commit.mu.
func (k *copies) standInLocked(g *leg, slot int) bool {
	next, ok := k.standsInLocked(slot, k.awayLocked(k.timeout), k.uselessLocked())
	if !ok || g.joins || k.settled != nil || !k.office.mayChangeLocked() {
		return false
	}
	k.log.Warn("A TARGET STANDS IN for one that the mirror cannot do without: FLUSH waits until everything is copied to it",
		slog.String("region", g.cfg.Region), slog.String("target", g.cfg.Addr),
		slog.String("generation", next.Record.String()), slog.String("members", next.Record.F.String()))
	g.silentAt = time.Now() // it is there
	k.changeLocked(next)
	k.rouse()
	return true
}

// greetsFor has the arbiter asked if g could stand in then, and waits for the answer, for askTimeout at most. Without
// that g's session could be in vain, and when g comes again the answer is old again.
func (k *copies) greetsFor(ctx context.Context, g *leg, slot int) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c := &k.core.commit
	for {
		c.mu.Lock()
		_, could := k.standsInLocked(slot, k.awayLocked(k.timeout), 0)
		waits := could && !g.joins && k.settled == nil && k.core.failed() == nil && !k.office.mayChangeLocked()
		c.mu.Unlock()
		if !waits {
			return
		}
		k.rouse()
		select {
		case <-time.After(arbiterPause / 10):
		case <-ctx.Done():
			return
		}
	}
}

// uselessLocked returns the members that may lack what the newest record says that they have. The caller holds
// commit.mu.
func (k *copies) uselessLocked() (useless persist.Members) {
	for _, g := range k.core.legs {
		if g.bad != nil {
			useless |= persist.Member(g.slot)
		}
	}
	return useless
}
