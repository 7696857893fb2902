package remote

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"pmnbd/persist"
	"pmnbd/rdma"
)

// A fence keeps READs from showing what another life has replaced (mirror §4.7). Nothing else needs a
// clock: a life that cannot get its barriers acknowledged by all of F completes no FLUSH.
//
// The fence is closed from a moment that is known in advance, unless something is heard before. A READ
// whose data come after that moment has no answer, even if nobody has looked at the clock since: the
// process may have been stopped in between.
type fence struct {
	epoch  time.Time    // when the clock of until was 0; set once
	until  atomic.Int64 // up to when READs may be answered; written under commit.mu
	closed bool         // READs wait; guarded by commit.mu
}

// start opens the fence for ever, until somebody looks.
func (f *fence) start() {
	f.epoch = time.Now()
	f.until.Store(math.MaxInt64)
}

// errFenced: data came for READs when another life may have replaced them. The session is taken up
// anew, because its target then says whether another one has begun.
var errFenced = fmt.Errorf("%w: the answer to a READ came when another initiator may have begun with the mirror", rdma.ErrLost)

// over reports whether data that have come may show what another life has replaced.
func (k *copies) over() bool {
	if k == nil {
		return false
	}
	until := k.fence.until.Load()
	return until != math.MaxInt64 && int64(time.Since(k.fence.epoch)) >= until
}

// fenceLocked closes the fence if another life may have begun, and opens it again. look is when to look
// again, at the latest; 0: never. opened says that READs that waited can go on. The caller holds
// commit.mu.
func (k *copies) fenceLocked() (look time.Duration, opened bool) {
	until, why := k.aloneUntilLocked()
	if until.IsZero() { // M or the members may have changed since
		k.fence.until.Store(math.MaxInt64)
		opened, k.fence.closed = k.fence.closed, false
		if opened {
			k.core.readableLocked()
		}
		return 0, opened
	}
	k.fence.until.Store(int64(until.Sub(k.fence.epoch)))
	left := time.Until(until)
	if closed := left <= 0; closed != k.fence.closed {
		k.fence.closed = closed
		if closed {
			k.log.Warn("READs wait: another initiator may have begun with the mirror", slog.String("why", why))
		} else {
			k.log.Info("READs go on: no other initiator can have begun with the mirror")
		}
		k.core.readableLocked()
		opened = !closed
	}
	look = usualLease / 10
	if left > 0 {
		look = min(look, left)
	}
	return look, opened
}

// lookAtFence does fenceLocked for the heartbeats: the goroutine may be waiting for a slow RECORD.
func (k *copies) lookAtFence() {
	if k == nil {
		return
	}
	c := &k.core.commit
	c.mu.Lock()
	_, opened := k.fenceLocked()
	c.mu.Unlock()
	if opened {
		k.core.post() // READs that waited
	}
}

// aloneUntilLocked returns up to when no other life can have begun, as far as is known now, and why not
// longer. It is zero if that cannot happen without this life. The caller holds commit.mu.
func (k *copies) aloneUntilLocked() (until time.Time, why string) {
	switch {
	case !k.view.Serves():
		return until, ""
	case k.office.term != nil:
		// Another life holds a member of the F that the arbiter has, and first waits until this one's
		// lease is over. Then it waits for a lease of the targets, unless it holds all of F.
		all := time.Now()
		for i, heard := range k.heardLocked(k.office.members | k.view.Active) {
			if i == 0 || heard.Before(all) {
				all = heard
			}
		}
		if until = k.office.untilLocked(); until.Before(all) {
			until = all
		}
		return until, "the lease at the arbiter is over, and not all members in sync are heard"
	}
	for _, e := range k.view.Electorates() {
		members := e.Members.Count()
		if members == 0 {
			continue
		}
		// Another life holds most of the members.
		heard := k.heardLocked(e.Members)
		slices.SortFunc(heard, func(a, b time.Time) int { return b.Compare(a) })
		if at := heard[(members+1)/2-1]; until.IsZero() || at.Before(until) {
			until, why = at, "most members are silent"
		}
	}
	return until, why
}

// heardLocked returns up to when each of these members counts as heard: nearly a lease after the last message that
// its target has answered was sent. The target's own lease began no earlier. When the answer was handled, or data came,
// tells nothing of that lease: the process may have been stopped since, and an adapter answers Reads without the
// target. The caller holds commit.mu.
func (k *copies) heardLocked(members persist.Members) (until []time.Time) {
	for _, g := range k.core.legs {
		if !members.Has(g.slot) {
			continue
		}
		members &^= persist.Member(g.slot)
		at := k.fence.epoch // it is silent
		if g.up.Load() {
			at = g.pulse.epoch.Add(time.Duration(g.pulse.proven.Load()) + g.lease() - g.lease()/10)
		}
		until = append(until, at)
	}
	for range members.Count() { // nobody named their targets
		until = append(until, k.fence.epoch)
	}
	return until
}

// sooner returns the shorter of two waits, where 0 is for ever.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
