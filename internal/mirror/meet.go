package mirror

import (
	"fmt"

	"pmnbd/persist"
)

// A Meeting says what a life does with a member that comes back.
type Meeting uint8

const (
	// Stranger: it is no member of this mirror.
	Stranger Meeting = iota
	// OwnWay: it went its own way. It stays as it is (mirror §4.6).
	OwnWay
	// Again: it knows a newer generation than the life found, and the life has none of its own
	// yet. It decides again (mirror §4.2).
	Again
	// Resume: it is in F. It gets the window again.
	Resume
	// Gone: it is in F and lost its contents. It must be let go.
	Gone
	// Resync: it is behind, and lacks what its bits say.
	Resync
	// ResyncAll: it lacks everything. Renew comes first, on all of F.
	ResyncAll
)

// Meet decides what a life does with a member that it has a session on, or could have one. A resync
// begins when no generation is pending.
func (v *View) Meet(l *Leg) Meeting {
	r := &v.Record
	switch {
	case !l.MemberOf(r):
		return Stranger
	case r.F.Has(int(l.Record.Slot)) && (v.Pending || v.Serves()):
		if l.Lost(r) {
			return Gone
		}
		return Resume
	case Behind(&l.Record, r):
	case !v.Pending && !v.Serves() && r.Before(l.Record.Generation) && (!v.Degraded || !passedOver(l)):
		return Again
	case l.Torn(): // whoever copied to it last went another way
		return ResyncAll
	default:
		return OwnWay
	}
	if !v.Serves() || l.Lost(r) || v.Lacking.Has(int(l.Record.Slot)) { // not all of F may know yet that it lacks everything
		return ResyncAll
	}
	return Resync
}

// Torn returns the record that l gets before the first byte is copied to it (mirror §5.1). A life without
// a generation of its own changes none that l knows: its target would refuse that. See Strays.
func (v *View) Torn(l *Leg) persist.Record {
	r, _ := v.RecordFor(int(l.Record.Slot))
	if !v.Serves() && !l.Record.Before(r.Generation) {
		r = l.Record
		r.Torn, r.Follows = !r.F.Has(int(r.Slot)), persist.Point{} // one that stood in is half copied without that
	}
	return r
}

// Strays reports whether l keeps the record of a generation that v does not descend from, although v's life
// copies to it. That generation's F has bits for what l lacked, and they say nothing of what v copies.
func (v *View) Strays(l *Leg) bool { return !v.Serves() && strays(&l.Record, &v.Record) }

// strays reports whether r is not older than m, and of another generation: a start by m passed l over.
func strays(r, m *persist.Record) bool {
	return !r.Before(m.Generation) && r.Generation != m.Generation
}

// Renew returns v with the contents id and the epoch that l has now, in the same generation. l is
// outside F. All of F must have its new record, with all bits of l set, before anything is copied
// to l (mirror §3.6).
func (v View) Renew(l *Leg) (next View, err error) {
	if next, err = v.Name(l); err == nil {
		next.Lacking |= persist.Member(int(l.Record.Slot))
	}
	return next, err
}

// Name returns v with the contents id and the epoch of the session that l has now, in the same generation. l is
// outside F. All of F must have its new record before a bit of l is cleared: a copy of l that is older than this session
// lacks what the bit stood for, and its epoch tells that (mirror §3.6).
func (v View) Name(l *Leg) (next View, err error) {
	slot := int(l.Record.Slot)
	switch {
	case v.Pending || !v.Serves(): // a record that may become the newest could still name it in F
		return v, fmt.Errorf("name %s: %w", l.name(), ErrChanging)
	case v.Record.F.Has(slot) || !l.MemberOf(&v.Record):
		return v, fmt.Errorf("name %s: it is in F, or no member", l.name())
	}
	v.name(slot, l.Contents, l.Epoch)
	return v, nil
}

// Renewed returns v after all of F have the record of Renew durably. A change that began in between
// has taken over what Renew asked for.
func (v View) Renewed() View {
	if !v.Pending {
		v.Lacking = 0
	}
	return v
}

// A State is what status says of a member.
type State uint8

// The states of a member (mirror §2, §9).
const (
	StateStranger State = iota // no member
	StateAway                  // no session
	StateFailed                // its region failed, or is suspect
	StateOwnWay                // it knows a generation that the mirror does not descend from
	StateTorn                  // no session, and half copied
	StateResync                // it is being copied to
	StateSync                  // in F, and equal
	StateFollows               // asynchronous: it gets one barrier after the other
)

func (s State) String() string {
	switch s {
	case StateAway:
		return "away"
	case StateFailed:
		return "failed"
	case StateOwnWay:
		return "went its own way"
	case StateTorn:
		return "torn"
	case StateResync:
		return "resync"
	case StateSync:
		return "in sync"
	case StateFollows:
		return "follows"
	}
	return "no member"
}

// State returns what status says of l. l.Record is what the region persisted when it was seen last,
// so a member that is away can be torn, too.
func (v *View) State(l *Leg) State {
	r := &v.Record
	if l.Reach == Away && l.Record == (persist.Record{}) {
		return StateAway
	}
	if !l.MemberOf(r) {
		return StateStranger
	}
	slot := int(l.Record.Slot)
	switch {
	case l.Failed:
		return StateFailed
	case !v.Active.Has(slot) && !l.Torn() && !Behind(&l.Record, r):
		return StateOwnWay
	case l.Reach == Held && v.Active.Has(slot) && v.Equal.Has(slot):
		return StateSync
	case l.Reach == Held && l.follows():
		return StateFollows
	case l.Reach == Held:
		return StateResync
	case l.follows():
		return StateAway
	case l.Torn():
		return StateTorn
	}
	return StateAway
}
