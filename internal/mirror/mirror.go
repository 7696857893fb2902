// Package mirror decides for a mirror: which members may begin a life, which generation comes
// next, and what a member that comes back lacks. It exists because these decisions are easy to get
// wrong and hard to reach on real machines. Apart from everything else they can be tested in every
// small situation, and test/model compares them with the model that found the rules.
//
// Decide decides what a start does. A View is what a life knows of its mirror from then on; its
// methods return the View behind the next change. The caller does what they say, in that order: it
// stores the View in the window's header, sends the records, waits until they are durable.
//
// The package owns no state. It does no I/O, reads no clock, starts no goroutine, and imports
// persist alone.
package mirror

import "pmnbd/persist"

// A Reach says how far an initiator got with a member.
type Reach uint8

const (
	// Away: nothing is known of the member.
	Away Reach = iota
	// Refused: its record is known, and it does not grant a session now.
	Refused
	// Probed: its record is known, and nobody has asked for a session yet.
	Probed
	// Held: this life has a session on it.
	Held
)

// A Leg is what an initiator knows of one target of its list.
type Leg struct {
	Name  string // what people call it; it appears in messages
	Reach Reach
	// Record is what the region persists. The zero Record is that of a region that is no member.
	Record persist.Record
	// Life is the highest life that opened the region.
	Life uint64
	// Contents and Epoch are the region's contents id and its present epoch.
	Contents [16]byte
	Epoch    uint64
	// Clean: the life before had closed it when this life asked for it, or opened it.
	Clean bool
	// Failed: the region failed, or is suspect, and must not be relied on.
	Failed bool
	// Bad: its medium has lost places of the region, as far as is known; only a session tells.
	Bad bool
}

// known reports whether l is a member, and what it persists is known.
func (l *Leg) known() bool {
	return l.Record.Set != [16]byte{} && int(l.Record.Slot) < persist.MaxMembers
}

// reached reports whether l is a member that this start has spoken to.
func (l *Leg) reached() bool { return l.Reach != Away && l.known() }

// uuid returns the UUID of the region behind l, which must be known.
func (l *Leg) uuid() [16]byte { return l.Record.Members[l.Record.Slot].UUID }

// uuidOrZero returns uuid, or zero if l is not known.
func (l *Leg) uuidOrZero() (id [16]byte) {
	if l.known() {
		id = l.uuid()
	}
	return id
}

// MemberOf reports whether r names the region behind l as a member. It is false for a region
// that was removed from the mirror, and for one that was never added.
func (l *Leg) MemberOf(r *persist.Record) bool {
	return l.known() && l.Record.Set == r.Set && l.uuid() == r.Members[l.Record.Slot].UUID
}

// Lost reports whether l lost what r says that it has: its contents id is another one, or its
// epoch is smaller, because it was put back from a copy (mirror §3.6). A record that names no contents says that l
// has none that count, and a probe knows those only by the record. l must be a member of r.
func (l *Leg) Lost(r *persist.Record) bool {
	m := &r.Members[l.Record.Slot]
	return m.Contents == [16]byte{} || l.Contents != m.Contents || l.Epoch < m.Epoch
}

// Torn reports whether l, which must be known, has no data of its own: its own record leaves it out
// of F, because a resync writes such a record before the first byte (mirror §5.1). It serves nobody,
// unless a newer record has it in F. It cannot have gone its own way, and may always be copied to. The same holds for
// one that stands in: its record has it in F, and names no contents of it, but an epoch (mirror §3.3). The record of a
// region that was served alone names neither, and such a region has data of its own.
func (l *Leg) Torn() bool {
	r := &l.Record
	return !r.F.Has(int(r.Slot)) || standsIn(r, int(r.Slot))
}

// standsIn reports whether the member in slot stands in by r, and has not got everything.
func standsIn(r *persist.Record, slot int) bool {
	is := &r.Members[slot]
	return r.F.Has(slot) && is.Contents == [16]byte{} && is.Epoch != 0
}

// slots yields the slots of m, lowest first.
func slots(m persist.Members) func(func(int) bool) {
	return func(yield func(int) bool) {
		for slot := range persist.MaxMembers {
			if m.Has(slot) && !yield(slot) {
				return
			}
		}
	}
}
