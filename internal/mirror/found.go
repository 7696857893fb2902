package mirror

import (
	"bytes"

	"pmnbd/persist"
)

// Found is what a start knows.
type Found struct {
	// Legs has the targets of the start, in any order.
	Legs []Leg
	// Degraded: an operator says that the mirror may begin without proof, and may lose what only
	// members that are away have.
	Degraded bool
	// Prefer has the members that the life before read from. One of them becomes the source.
	Prefer persist.Members
	// Read: clients of that life may be there still. Only what they have read from can be the source.
	Read bool
	// Asked: this start has asked the mirror's arbiter. Arbiter is the record that it holds; zero: it
	// holds none of this mirror.
	Asked   bool
	Arbiter persist.Record
	// WithoutArbiter: an operator says that a degraded start does without the mirror's arbiter, which it
	// has not asked: another initiator may have the mirror there.
	WithoutArbiter bool
}

// NextLife returns the number of the life that opens f's members: above all that f knows of
// (mirror §2).
func NextLife(f *Found) uint64 {
	last := f.Arbiter.Life
	for i := range f.Legs {
		last = max(last, f.Legs[i].Life, f.Legs[i].Record.Life)
	}
	return last + 1
}

// newest returns the newest record that f knows of, or nil: what the arbiter holds, where there is one.
func (f *Found) newest() *persist.Record {
	if f.arbitrates() {
		return &f.Arbiter
	}
	return f.newestOf((*Found).passedOver)
}

// arbitrates reports whether the arbiter decides, and not what the members say. It does if their newest
// record says that there is one. A record that does not is of a time before, or an operator began without
// the arbiter.
func (f *Found) arbitrates() bool {
	return f.arbitrated() && f.Asked && f.Arbiter != (persist.Record{})
}

// arbitrated reports whether the mirror has an arbiter, as far as its members know.
func (f *Found) arbitrated() bool {
	m := f.newestOf(func(*Found, *Leg) bool { return false })
	return m != nil && m.Arbiter
}

// newestOf returns the newest record of the members that are not passed over, or nil. A member that is
// torn, or lost its contents, counts, too: it proves that the generation was begun. An operator who wants
// to begin without it says Degraded.
func (f *Found) newestOf(passed func(*Found, *Leg) bool) *persist.Record {
	var m *persist.Record
	for i := range f.Legs {
		l := &f.Legs[i]
		if !l.reached() || passed(f, l) {
			continue
		}
		// Two nonces in one generation are a split brain, whichever comes first here.
		r := &l.Record
		if m == nil || m.Before(r.Generation) || !r.Before(m.Generation) && bytes.Compare(m.Nonce[:], r.Nonce[:]) < 0 {
			m = r
		}
	}
	return m
}

// passedOver reports whether a degraded start ignores what l's record says.
func (f *Found) passedOver(l *Leg) bool { return f.Degraded && passedOver(l) }

// passedOver reports whether l has nothing that its own record promises.
func passedOver(l *Leg) bool { return l.Torn() || l.Lost(&l.Record) }

// find returns the member of m in a slot, or nil if it was not reached.
func (f *Found) find(m *persist.Record, slot int) *Leg {
	for i := range f.Legs {
		if l := &f.Legs[i]; l.reached() && l.MemberOf(m) && int(l.Record.Slot) == slot {
			return l
		}
	}
	return nil
}

// lost reports whether l lost what m says that it has. Records of one generation may differ in
// what they name of members outside F, while one of them is renewed. l has what m says only if all
// of them say so.
func (f *Found) lost(l *Leg, m *persist.Record) bool {
	if l.Lost(m) {
		return true
	}
	for i := range f.Legs {
		if o := &f.Legs[i]; o.reached() && o.Record.Generation == m.Generation && l.MemberOf(&o.Record) && l.Lost(&o.Record) {
			return true
		}
	}
	return false
}

// nameOutside has m name of the members outside its F what those in F do: all of F name the session of such a member
// before a bit of it is cleared, and nobody else hears of that, neither the arbiter nor a member that is half copied
// (mirror §3.6). If they differ, it lacks everything.
func (f *Found) nameOutside(m *persist.Record) {
	var named persist.Members
	for i := range f.Legs {
		l := &f.Legs[i]
		r := &l.Record
		if !l.reached() || r.Generation != m.Generation || !l.MemberOf(m) || !m.F.Has(int(r.Slot)) {
			continue
		}
		for slot := range slots(m.Present() &^ m.F) {
			is, says := &m.Members[slot], &r.Members[slot]
			switch {
			case says.UUID != is.UUID:
				continue
			case !named.Has(slot):
				is.Contents = says.Contents
			case is.Contents != says.Contents:
				is.Contents = [16]byte{}
			}
			is.Epoch = max(is.Epoch, says.Epoch)
			named |= persist.Member(slot)
		}
	}
}

// A survey sorts the members of the newest record by what a start can do with them.
type survey struct {
	m       *persist.Record
	arbiter bool // m is what the arbiter holds
	reached persist.Members
	lost    persist.Members // reached, without the contents that m names
	held    persist.Members // sessions, with the contents that m names
	open    persist.Members // the same, if this life opens them
	busy    persist.Members // the same, but they grant no session now, or are not to be opened like that (see Strays)
	torn    persist.Members // half copied, and the newest record is not one that took them in
	clean   persist.Members
	bad     persist.Members // their media have lost places
}

func (f *Found) survey(m *persist.Record) survey {
	s := survey{m: m, arbiter: m == &f.Arbiter}
	for slot := range slots(m.Present()) {
		l, bit := f.find(m, slot), persist.Member(slot)
		if l == nil {
			continue
		}
		s.reached |= bit
		if l.Clean && l.Record.Generation == m.Generation {
			s.clean |= bit
		}
		if l.Bad {
			s.bad |= bit
		}
		newer := !l.Record.Before(m.Generation)
		if l.Torn() && newer {
			s.torn |= bit
		}
		switch {
		case f.lost(l, m), newer && l.Lost(&l.Record):
			s.lost |= bit
		case l.Failed, l.Reach == Refused, strays(&l.Record, m):
			s.busy |= bit
		case l.Reach == Probed:
			s.open |= bit
		default:
			s.held |= bit
		}
	}
	return s
}

// candidates returns the members of held that a life may begin with.
func (s *survey) candidates(held persist.Members) persist.Members { return s.m.F & held &^ s.torn }

// proof reports why a life that holds these members may begin, or "" if it may not (mirror §4.2).
func (s *survey) proof(f *Found, held persist.Members) string {
	held &= s.m.Voters()
	switch {
	case s.candidates(held) == 0:
		return ""
	case s.arbiter && f.made(s.m):
		return "the arbiter holds this generation"
	case s.m.F&^held == 0:
		return "every leg of F is here"
	case electorate(s.m).majority(held) && f.made(s.m):
		return "a majority of the members is here"
	case f.Degraded:
		return "--degraded"
	}
	return ""
}
