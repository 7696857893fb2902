package mirror

import (
	"fmt"

	"pmnbd/persist"
)

// An asynchronous member is never in F. It gets the barriers of the others one by one, and is not
// waited for (mirror §7). So it says nothing about what was flushed, and no start counts it. But unless
// it is torn its contents are those of a disk that lost its power a while ago, and an operator may begin
// with them: that is a promotion.

// follows reports whether l, which must be known, has contents of its own although it is outside F.
func (l *Leg) follows() bool { return l.Record.Async.Has(int(l.Record.Slot)) && !l.Record.Torn }

// promotable returns the member that a degraded start can promote, or nil: of those that follow the one
// that came furthest.
func (f *Found) promotable() (best *Leg) {
	for i := range f.Legs {
		l := &f.Legs[i]
		if !l.reached() || !l.follows() || l.Lost(&l.Record) || l.Failed {
			continue
		}
		if best == nil || best.Record.Before(l.Record.Generation) || !l.Record.Before(best.Record.Generation) && best.Record.Follows.At < l.Record.Follows.At {
			best = l
		}
	}
	return best
}

// promotion decides a degraded start that reached no member with all flushed data. m is the newest record,
// nil or the arbiter's. With an arbiter its life replaces what the arbiter holds, so that the life which the
// member followed begins no further generation (mirror §7.6).
func (f *Found) promotion(m *persist.Record) (Decision, bool) {
	l := f.promotable()
	if l == nil || !f.Degraded || f.newestOf((*Found).passedOver) != nil {
		return Decision{}, false
	}
	if m != nil {
		s := f.survey(m)
		if !l.MemberOf(m) || s.candidates(s.held|s.open|s.busy) != 0 {
			return Decision{}, false
		}
	}
	r := &l.Record
	if d, ok := f.unasked(r); ok {
		return d, true
	}
	if d, ok := f.conflict(r); ok {
		return d, true
	}
	slot := persist.Member(int(r.Slot))
	d := Decision{Newest: *r, Degraded: true, Arbiter: f.Asked, Why: f.promises(l)}
	d.Newest.Follows = persist.Point{}
	switch l.Reach {
	case Probed:
		d.Outcome, d.Open = Open, slot
	case Held:
		d.Outcome, d.F, d.Equal, d.Promoted = Begin, slot, slot, r.Follows
		d.Fill = r.Present() &^ slot
		d.Newest.Members[r.Slot].Epoch = max(d.Newest.Members[r.Slot].Epoch, l.Epoch)
	default:
		d.Outcome, d.Waits = Wait, slot
		d.Why = l.name() + " grants no session: " + d.Why
	}
	return d, true
}

// outlived refuses a degraded start that has reached a follower which knows more than each member in sync that is there:
// the follower has what was flushed since, and the start would copy older data over it. An operator chooses by the targets.
func (f *Found) outlived(m *persist.Record) (Decision, bool) {
	l := f.promotable()
	if l == nil || !f.Degraded || !m.Before(l.Record.Generation) {
		return Decision{}, false
	}
	return Decision{Outcome: Refuse, Newest: *m, Why: fmt.Sprintf("%s followed generation %s, and no member in sync that was reached knows more than generation %s: "+
		"name it alone as target to promote it, or take its target out of --target to give up what only it has", l.name(), generation(&l.Record), generation(m))}, true
}

// promises says what a promotion of l keeps, and what it loses.
func (f *Found) promises(l *Leg) string {
	r := &l.Record
	return fmt.Sprintf("promotes %s, which followed generation %s of %s: it has all that was flushed up to barrier %d of that life; "+
		"what was flushed later is lost, unless it had arrived, and %s went their own way",
		l.name(), generation(r), f.names(r, r.F), r.Follows.Barrier, f.names(r, r.Present()&^persist.Member(int(r.Slot))))
}

// promoted returns the record from which the life goes on that promotes the member in slot. Nothing of
// the life that it followed is in the lineage: the members of that life may have flushed data that it
// lacks, whatever generation they are in. So each of them went its own way (mirror §4.6). All of the
// lives before is there: a member that follows has everything that was flushed in those.
func promoted(r persist.Record, slot int) persist.Record {
	followed := r.Life
	r.Async &^= persist.Member(slot)
	r.MinCopies = 1
	line := r.Lineage
	r.Ancestor, r.Lineage = persist.Ancestor{}, [persist.MaxLineage]persist.Ancestor{}
	n := 0
	for _, a := range line {
		switch {
		case a == persist.Ancestor{} || a.Life >= followed:
		case r.Ancestor == persist.Ancestor{}:
			r.Ancestor = a
		default:
			r.Lineage[n] = a
			n++
		}
	}
	return r
}

// FollowRecord returns what an asynchronous member persists that has followed up to p: it is not torn,
// and can be promoted. ok is false while no generation is active that it could follow.
func (v *View) FollowRecord(leg int, p persist.Point) (r persist.Record, ok bool) {
	if v.Pending || !v.Serves() || !v.Record.Async.Has(leg) {
		return r, false
	}
	r = v.Record
	r.Slot, r.Torn, r.Follows = uint8(leg), false, p
	return r, true
}
