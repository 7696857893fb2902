package mirror

import (
	"fmt"
	"strings"

	"pmnbd/persist"
)

// name returns what messages call a leg that was reached.
func (l *Leg) name() string {
	letter := persist.Member(int(l.Record.Slot)).String()
	if l.Name == "" {
		return letter
	}
	return fmt.Sprintf("%s (%s)", letter, l.Name)
}

// names returns what messages call the members of m in a set.
func (f *Found) names(m *persist.Record, set persist.Members) string {
	var names []string
	for slot := range slots(set) {
		if l := f.find(m, slot); l != nil {
			names = append(names, l.name())
		} else {
			names = append(names, persist.Member(slot).String())
		}
	}
	return join(names)
}

// join makes "A", "A and B", "A, B and C".
func join(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// generation names m's generation and its F: "3.2{AB}".
func generation(m *persist.Record) string { return fmt.Sprintf("%v{%v}", m.Generation, m.F) }

// witnesses says who knows of m's generation, where that are only members that are half copied: they have to be
// given up, too.
func (f *Found) witnesses(m *persist.Record) string {
	var names []string
	for i := range f.Legs {
		if l := &f.Legs[i]; l.reached() && l.Record.Generation == m.Generation {
			if !l.Torn() {
				return ""
			}
			names = append(names, l.name())
		}
	}
	switch len(names) {
	case 0:
		return ""
	case 1:
		return ", which only " + names[0] + " knows, half copied"
	}
	return ", which only " + join(names) + " know, half copied"
}

// ills says what is wrong with the members of a set, one clause each.
func (f *Found) ills(s *survey, set persist.Members) string {
	var b strings.Builder
	for slot := range slots(set) {
		bit, l := persist.Member(slot), f.find(s.m, slot)
		ill := ""
		switch {
		case l == nil:
			ill = "was not reached"
		case standsIn(s.m, slot) || standsIn(&l.Record, slot):
			ill = "stands in for another member, and is half copied"
		case s.lost&bit != 0:
			ill = "lost its contents"
		case l.Failed:
			ill = "failed"
		case l.follows():
			ill = "follows the others, and may lack what was flushed last"
		case l.Torn():
			ill = "is half copied"
		case s.busy&bit != 0:
			ill = "grants no session"
		}
		if ill != "" {
			fmt.Fprintf(&b, "; %s %s", f.names(s.m, bit), ill)
		}
	}
	return b.String()
}

// offer says what a degraded start would do that no member with all flushed data is there for.
func (f *Found) offer() string {
	l := f.promotable()
	if l == nil {
		return ""
	}
	return fmt.Sprintf("; --degraded with %s alone as target promotes it: it has all that was flushed up to barrier %d of life %d", l.name(), l.Record.Follows.Barrier, l.Record.Life)
}

// majority says how many members would do, where a majority is enough, or that the mirror has never begun.
func (f *Found) majority(s *survey) string {
	n := s.m.Voters().Count()
	switch {
	case s.arbiter && f.made(s.m), !s.arbiter && !electorate(s.m).votes():
		return ""
	case !f.made(s.m):
		return "; the mirror has never begun, and its first start needs all members: pmnbd mirror create may have been interrupted, and can be run again"
	}
	return fmt.Sprintf("; %d of %d members would do, with one of %v", n/2+1, n, s.m.F)
}

// beginning says how a life begins.
func (f *Found) beginning(s *survey, d *Decision) string {
	m := s.m
	end := "the life before did not close it: reads and copies from "
	if d.Clean {
		end = "the life before closed it: reads from "
	}
	why := fmt.Sprintf("generation %s is the newest, and %s; %s%s", generation(m), s.proof(f, s.held), end, f.names(m, d.Equal))
	if d.Outcome == Copy {
		why += fmt.Sprintf("; copies first, because the least number of copies is %d", m.MinCopies)
	}
	return why
}
