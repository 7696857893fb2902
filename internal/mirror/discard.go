package mirror

import "pmnbd/persist"

// Parted reports whether somebody has to give up what l knows before the mirror whose newest record is m can have l
// back (mirror §4.6). l went its own way. Or it is half copied, and a start would take its record for the newest: it
// proves that the other side was there, also when every member has given that side up.
func (l *Leg) Parted(m *persist.Record) bool {
	r := &l.Record
	return !Behind(r, m) && !Behind(m, r) && (!l.Torn() || !r.Before(m.Generation))
}

// GivenUpWith returns the members that may have writes of generations which m does not know, and which count as
// refuted once l is in F again: whoever gives up l gives up these, too.
func (l *Leg) GivenUpWith(m *persist.Record) (also persist.Members) {
	slot := int(l.Record.Slot)
	for a := range line(&l.Record) {
		if knows(m, a.Generation) {
			break
		}
		if a.F.Has(slot) {
			also |= a.F
		}
	}
	return also &^ persist.Member(slot)
}
