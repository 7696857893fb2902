package mirror

import (
	"errors"
	"fmt"

	"pmnbd/persist"
)

// Errors of changes of the membership that must not begin.
var (
	// ErrNoMember: the slot has no member.
	ErrNoMember = errors.New("the mirror has no such member")
	// ErrTwo: a mirror has two members at least.
	ErrTwo = errors.New("a mirror has two members at least")
	// ErrFull: the slot has a member, or the region is a member already.
	ErrFull = errors.New("the place is taken")
	// ErrMinCopies: M is 0, or more than there are members.
	ErrMinCopies = errors.New("the mirror has not so many members")
)

// An Electorate is what a record says of a start by majority (mirror §4.2): who the members are that
// can be in F, and how many of them F has at least. The zero Electorate elects nobody.
type Electorate struct {
	Members   persist.Members
	MinCopies uint8
}

func electorate(r *persist.Record) Electorate { return Electorate{r.Voters(), r.MinCopies} }

// votes reports whether a majority can begin a life: any two majorities share a member, and every F
// has a member of each majority.
func (e Electorate) votes() bool { return 2*int(e.MinCopies) > e.Members.Count() }

// majority reports whether a start that holds these members may begin by majority.
func (e Electorate) majority(held persist.Members) bool {
	return e.votes() && 2*(held&e.Members).Count() > e.Members.Count()
}

// passesBy reports whether a start may begin by majority with nobody of f. While some members know
// the electorate and no newer one, no generation may become active on f alone: such a start would
// never hear of it (mirror §4.9).
func (e Electorate) passesBy(f persist.Members) bool { return e.majority(e.Members &^ f) }

// cover returns an Electorate by which as many starts can begin as by a or b, which changes a. ok is false if
// that takes both. A member that b adds begins nothing by b: it has no record before b is active.
func cover(a, b Electorate) (e Electorate, ok bool) {
	switch {
	case !a.votes():
		return b, true
	case !b.votes(), a.Members&^b.Members == 0:
		return a, true
	}
	return Electorate{}, false
}

// Electorates returns those by which another life may begin while this one serves: that of Record, and
// the one before while that may still count. One by which no majority begins is zero.
func (v *View) Electorates() (all [2]Electorate) {
	for i, e := range [2]Electorate{electorate(&v.Record), v.Before} {
		if e.votes() {
			all[i] = e
		}
	}
	return all
}

// Remove returns v with a generation pending in which the member in slot is none (mirror §4.9).
func (v View) Remove(slot int) (next View, err error) {
	if slot < 0 || slot >= persist.MaxMembers {
		return v, ErrNoMember
	}
	member := persist.Member(slot)
	f := v.Record.F &^ member
	switch {
	case v.Pending || !v.Serves():
		err = ErrChanging
	case !v.Record.Present().Has(slot):
		err = ErrNoMember
	case v.Record.Present().Count() <= 2:
		err = ErrTwo
	case f.Count() < int(v.Record.MinCopies):
		err = fmt.Errorf("%w: %d of at least %d", ErrBelowMin, f.Count(), v.Record.MinCopies)
	case f&v.Equal == 0:
		err = ErrNoneEqual
	}
	if err != nil {
		return v, fmt.Errorf("remove %v: %w", member, err)
	}
	next = v.change(f)
	next.Record.Members[slot] = persist.Membership{}
	next.Record.Async &^= member
	next.Equal &^= member
	next.Lacking &^= member
	return next, nil
}

// Add returns v with a generation pending in which a region is the member in slot, outside F. It
// lacks everything, whatever it holds: the record names no contents of it.
func (v View) Add(slot int, uuid [16]byte, epoch uint64) (next View, err error) {
	switch {
	case v.Pending || !v.Serves():
		err = ErrChanging
	case v.Record.Present().Has(slot):
		err = ErrFull
	}
	for _, m := range v.Record.Members {
		if m.UUID == uuid {
			err = ErrFull
		}
	}
	if err != nil {
		return v, fmt.Errorf("add %v: %w", persist.Member(slot), err)
	}
	next = v.change(v.Record.F)
	next.Record.Members[slot] = persist.Membership{UUID: uuid, Epoch: epoch}
	next.Lacking |= persist.Member(slot)
	return next, nil
}

// SetMinCopies returns v with a generation pending that has another M. A smaller M may replace a pending
// generation, because that may need a member which is gone for good.
func (v View) SetMinCopies(m int) (next View, err error) {
	before, joiner, ok := electorate(&v.Record), persist.Members(0), !v.Pending
	if v.Pending && m < int(v.Record.MinCopies) && v.Joiner&^v.Active == 0 { // a new one may know an older M
		before, ok = cover(v.Before, before)
		joiner = v.Joiner
	}
	switch {
	case !ok || !v.Serves():
		err = ErrChanging
	case m < 1 || m > v.Record.Voters().Count():
		err = ErrMinCopies
	case v.Record.F.Count() < m:
		err = fmt.Errorf("%w: %d are in sync", ErrBelowMin, v.Record.F.Count())
	case m == int(v.Record.MinCopies):
		return v, nil
	}
	if err != nil {
		return v, fmt.Errorf("set the least number of copies to %d: %w", m, err)
	}
	next = v.begin(v.Record.F, joiner)
	next.Before = before
	next.Record.MinCopies = uint8(m)
	return next, nil
}

// change returns v with the next generation pending, whose members or M the caller changes.
func (v View) change(f persist.Members) View {
	before := electorate(&v.Record)
	v = v.begin(f, 0)
	v.Before = before
	return v
}

// made reports whether all members of m are known to have records of the mirror. Before the mirror's
// second generation a member without one may be none yet: the creation of the mirror was interrupted
// (mirror §4.2).
func (f *Found) made(m *persist.Record) bool {
	if m.Lineage[0] != (persist.Ancestor{}) {
		return true
	}
	for slot := range slots(m.Present()) {
		if f.find(m, slot) == nil {
			return false
		}
	}
	return true
}

// before returns the electorate that a member of F still has, where it is another one than that of
// the newest record, and a majority can begin by it. Of two it is the one with fewer members (see cover). A start
// that holds all of F sees it, if it may still count. One that begins by a majority needs no such look: it begins
// with M members, and every other majority has one of these.
func (f *Found) before(s *survey) (e Electorate) {
	if s.m.F&^s.held != 0 {
		return e
	}
	for slot := range slots(s.m.F) {
		l := f.find(s.m, slot)
		if l == nil || electorate(&l.Record) == electorate(s.m) {
			continue
		}
		if has := electorate(&l.Record); has.votes() && (!e.votes() || has.Members.Count() < e.Members.Count()) {
			e = has
		}
	}
	return e
}
