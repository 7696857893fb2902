package mirror

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"pmnbd/persist"
)

// An Outcome is what a start does next.
type Outcome uint8

const (
	// Wait: probe again later. For members, or for their sessions.
	Wait Outcome = iota
	// Refuse: end for good, with exit code 3.
	Refuse
	// Open: open the members of Decision.Open, and decide again.
	Open
	// Copy: there are too few copies. Copy from Equal to other members, and begin a generation
	// when there are enough of them (View.Equaled).
	Copy
	// Begin: begin a generation with F, and serve when it is active.
	Begin
)

func (o Outcome) String() string {
	switch o {
	case Wait:
		return "wait"
	case Refuse:
		return "refuse"
	case Open:
		return "open"
	case Copy:
		return "copy"
	case Begin:
		return "begin"
	}
	return "unknown"
}

// A Decision is what a start does next, and why.
type Decision struct {
	Outcome Outcome
	// Why says it in words, for people.
	Why string
	// Newest is the newest record, or zero if no member was reached. Slots below are its.
	// With Begin its F has the epochs of the sessions that this life has.
	Newest persist.Record
	// Waits has the members that a start waits for.
	Waits persist.Members
	// GoesBack: the start could begin, but clients that are attached still could read older data than before.
	GoesBack bool
	// Open has the members to open.
	Open persist.Members
	// SplitBrain: at least one member went its own way (mirror §4.6).
	SplitBrain bool
	// Degraded: what Found says.
	Degraded bool
	// Promoted is how far the asynchronous member had surely followed that is in F now. It is zero if
	// the member never said that, and if F has none (see Promotes).
	Promoted persist.Point
	// Arbiter: the life asks the arbiter before each generation.
	Arbiter bool
	// Clean: the life before closed the mirror, and all of Equal have the same bytes.
	Clean bool
	// F has the members that the generation begins with.
	F persist.Members
	// Equal has the members that this life may read from and copy from: one, or all of F.
	Equal persist.Members
	// Sources has the members of F of which each could be the source: clients have read from nobody else.
	Sources persist.Members
	// Fill has the members of which nobody knows what they lack. All their bits must be set, in
	// the first record that is written while they are outside F.
	Fill persist.Members
	// Before has other members or another M than Newest, if a member of F still has a record that
	// says so: nobody knows whether the change was ever active (mirror §4.9).
	Before Electorate
}

// Promotes returns the asynchronous member that the start promotes, or none (mirror §7).
func (d *Decision) Promotes() persist.Members { return d.F & d.Newest.Async }

// Decide decides what a start does, from what each member says. It begins nothing before every
// member that it could have a session on is held, because one more record can change the decision
// (mirror §4.1 to §4.4, §4.6).
func Decide(found Found) Decision {
	f := &found
	f.Legs = slices.SortedFunc(slices.Values(f.Legs), bySlot)
	for i := range f.Legs {
		if l := &f.Legs[i]; l.Record.Check() != nil {
			l.Record = persist.Record{} // no member persists that
		}
	}
	m := f.newest()
	if d, ok := f.promotion(m); ok {
		return d
	}
	if d, ok := f.nobody(m); ok {
		return d
	}
	if d, ok := f.unasked(m); ok {
		return d
	}
	if d, ok := f.conflict(m); ok {
		return d
	}
	if d, ok := f.outlived(m); ok {
		return d
	}
	s := f.survey(m)
	d := Decision{Newest: *m, Degraded: f.Degraded, Arbiter: f.Asked}
	d.Newest.Torn, d.Newest.Follows = false, persist.Point{}
	f.nameOutside(&d.Newest)
	if s.proof(f, s.held|s.open) == "" {
		return f.wait(&s, d)
	}
	if f.goesBack(&s, s.candidates(s.held|s.open)) {
		d.Outcome, d.Waits, d.GoesBack = Wait, f.Prefer, true
		d.Why = "waits for " + f.names(m, f.Prefer) + ": clients have read from there and may be attached still, and the others may have older data" + f.ills(&s, f.Prefer)
		return d
	}
	if s.open != 0 {
		d.Outcome, d.Open = Open, s.open
		d.Why = "opens " + f.names(m, s.open) + " to hold them: generation " + generation(m) + " is the newest"
		return d
	}
	return f.begin(&s, d)
}

// bySlot orders legs. What a start decides, and says, must not depend on the order of its targets.
func bySlot(a, b Leg) int {
	x, y := a.uuidOrZero(), b.uuidOrZero()
	return cmp.Or(cmp.Compare(a.Record.Slot, b.Record.Slot), bytes.Compare(x[:], y[:]), strings.Compare(a.Name, b.Name))
}

// begin returns how a life begins that holds enough (mirror §4.3, §4.4). After a clean end all
// candidates are equal. Otherwise what was acknowledged and not flushed may differ anywhere: one
// candidate becomes the source, and nobody knows what the others lack.
func (f *Found) begin(s *survey, d Decision) Decision {
	m := s.m
	candidates := s.candidates(s.held)
	d.F, d.Equal, d.Fill = candidates, candidates, s.lost
	d.Clean, d.Before = candidates&s.clean != 0, f.before(s)
	if !d.Clean {
		if d.Sources = candidates; f.Read && candidates&f.Prefer != 0 {
			d.Sources &= f.Prefer
		}
		d.Equal = f.source(s, d.Sources)
		d.Fill = m.Present() &^ d.Equal
		if m.MinCopies == 1 && !d.Before.passesBy(d.Equal) {
			d.F = d.Equal
		}
	}
	d.Outcome = Begin
	if d.F.Count() < int(m.MinCopies) {
		d.Outcome, d.F = Copy, 0
	} else {
		for slot := range slots(s.held) {
			d.Newest.Members[slot].Epoch = max(d.Newest.Members[slot].Epoch, f.find(m, slot).Epoch)
		}
	}
	d.Why = f.beginning(s, &d)
	return d
}

// goesBack reports whether clients that are attached still could read older data than before from a life that begins with
// these candidates: the life before was not closed, and its clients have read from none of them (mirror §4.4).
func (f *Found) goesBack(s *survey, candidates persist.Members) bool {
	return f.Read && f.Prefer&s.m.F != 0 && candidates&(s.clean|f.Prefer) == 0 && !f.Degraded
}

// source returns the candidate that becomes the source. One whose medium has lost a place is the last choice: the others
// may have what was flushed there, and nobody copies from them.
func (f *Found) source(s *survey, candidates persist.Members) persist.Members {
	sound := candidates &^ s.bad
	if sound == 0 {
		sound = candidates
	}
	if preferred := sound & f.Prefer; preferred != 0 {
		return lowest(preferred)
	}
	return lowest(sound)
}

func lowest(m persist.Members) persist.Members { return m & -m }

// wait returns what a start does that may not begin: it waits, or refuses where waiting cannot help.
func (f *Found) wait(s *survey, d Decision) Decision {
	m := s.m
	where := "generation " + generation(m) + " is on " + f.names(m, m.F)
	candidates := s.candidates(s.held | s.open | s.busy)
	switch {
	case candidates == 0 && s.reached == m.Present():
		d.Outcome = Refuse
		d.Why = "the data are gone: " + where + f.ills(s, m.Present()) + f.offer()
		return d
	case candidates == 0 && f.Degraded:
		d.Outcome = Refuse
		d.Why = "no member that was reached has the flushed data: " + where + f.ills(s, m.Present())
		if s.arbiter {
			d.Why += "; so the arbiter says. pmnbd mirror forget has it forget that, and gives up what only those members have"
		}
		return d
	}
	ready := s.candidates(s.held | s.open)
	d.Outcome, d.Waits = Wait, m.F&^ready
	if !f.made(m) {
		d.Waits |= m.Present() &^ s.reached
	}
	d.Why = "waits for " + f.names(m, d.Waits) + ": " + where + f.ills(s, m.Present()) + f.majority(s)
	if ready != 0 {
		d.Why += "; --degraded begins with what " + f.names(m, lowest(ready)) + " has"
	} else if candidates == 0 {
		d.Why += f.offer()
	}
	return d
}

// nobody decides where there is no newest record.
func (f *Found) nobody(m *persist.Record) (Decision, bool) {
	if m != nil {
		return Decision{}, false
	}
	members := false
	var strangers []string
	for i := range f.Legs {
		l := &f.Legs[i]
		members = members || l.reached()
		if l.Reach != Away && !l.reached() {
			strangers = append(strangers, l.Name)
		}
	}
	d := Decision{Outcome: Wait, Why: "waits for members: none was reached"}
	switch {
	case members: // the start is degraded, and passed over each
		return Decision{Outcome: Refuse, Why: "no member that was reached has the data: each lost its contents, or is half copied"}, true
	case len(strangers) == len(f.Legs) && len(strangers) > 0:
		return Decision{Outcome: Refuse, Why: "no target is a member of a mirror: see pmnbd mirror create"}, true
	case len(strangers) > 0:
		d.Why += "; no mirror has " + join(strangers)
	}
	return d, true
}

// unasked refuses to begin a mirror that has an arbiter without what that holds: another life may have
// begun with fewer members than a proof by members looks at, or may be serving now (mirror §4.8).
func (f *Found) unasked(m *persist.Record) (Decision, bool) {
	d := Decision{Outcome: Refuse, Newest: *m}
	switch {
	case !f.arbitrated(), f.Degraded && (f.Asked || f.WithoutArbiter):
		return Decision{}, false
	case !f.Asked:
		d.Why = "this mirror has an arbiter, and generation " + generation(m) + " may not be the newest: name the arbiter with --arbiter; " +
			"if it is gone for good, and no other host serves the mirror, --degraded --without-arbiter begins without it"
	case f.Arbiter == (persist.Record{}):
		d.Why = "the arbiter knows nothing of this mirror, whose members are in generation " + generation(m) +
			": is it the right one, and does it have its data? --degraded begins by what the members say, and tells the arbiter"
	default:
		return Decision{}, false
	}
	return d, true
}

// conflict refuses what no start may choose between: targets of several mirrors, one region twice,
// and a member that went its own way.
func (f *Found) conflict(m *persist.Record) (Decision, bool) {
	d := Decision{Outcome: Refuse, Newest: *m}
	for i := range f.Legs {
		l := &f.Legs[i]
		if !l.reached() {
			continue
		}
		if l.Record.Set != m.Set {
			d.Why = l.name() + " is a member of another mirror than the other targets"
			return d, true
		}
		for j := range f.Legs[:i] {
			if o := &f.Legs[j]; o.reached() && o.uuid() == l.uuid() {
				d.Why = o.name() + " and " + l.name() + " are one region"
				return d, true
			}
		}
	}
	ways, former := f.ownWays(m)
	if len(ways) == 0 {
		return Decision{}, false
	}
	d.SplitBrain = true
	d.Why = "split brain: " + join(ways) + " went another way than generation " + generation(m) + f.witnesses(m) +
		": choose what to keep, and discard the rest with pmnbd mirror discard"
	for _, name := range former {
		d.Why += "; " + name + " is no member any more: to give it up, take its target out of --target"
	}
	return d, true
}

// ownWays returns the names of the members that went their own way, seen from m, and of those among them
// that m has no more.
func (f *Found) ownWays(m *persist.Record) (names, former []string) {
	for i := range f.Legs {
		l := &f.Legs[i]
		if !l.reached() || l.Torn() || f.passedOver(l) {
			continue
		}
		r := &l.Record
		if !Behind(r, m) || r.Generation == m.Generation && !sameGeneration(r, m) {
			names = append(names, l.name())
			if !l.MemberOf(m) {
				former = append(former, l.name())
			}
		}
	}
	return names, former
}

// sameGeneration reports whether two records of one generation say the same of it. If not, one of
// them is no record that a life wrote.
func sameGeneration(r, m *persist.Record) bool {
	same := r.F == m.F && r.Async == m.Async && r.MinCopies == m.MinCopies && r.Lineage == m.Lineage
	for slot := range r.Members {
		same = same && r.Members[slot].UUID == m.Members[slot].UUID
	}
	return same
}
