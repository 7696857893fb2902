package persist

import (
	"fmt"
	"math/bits"
	"strings"
)

const (
	// MaxMembers is how many members a set has at most.
	MaxMembers = 4
	// MaxLineage is how many generations a record remembers.
	MaxLineage = 32
)

// Members is a set of members of a mirror: bit 1<<slot stands for the member of that slot.
type Members uint8

// Member returns the set that has the member of this slot alone.
func Member(slot int) Members { return 1 << slot }

// Has reports whether the member of this slot is in the set.
func (m Members) Has(slot int) bool { return m&Member(slot) != 0 }

// Count returns how many members are in the set.
func (m Members) Count() int { return bits.OnesCount8(uint8(m)) }

// String names the members by letters, slot 0 being A: "AC".
func (m Members) String() string {
	var s strings.Builder
	for slot := range 8 {
		if m.Has(slot) {
			s.WriteByte(byte('A' + slot))
		}
	}
	return s.String()
}

// A Generation numbers a state of a mirror (mirror §2). The zero Generation is none. Life is the
// number of the life that began it, and Nonce what that life drew, so that two lives of one number
// are told apart. Count is 1 for a life's first generation.
type Generation struct {
	Life, Count uint64
	Nonce       [16]byte
}

// Before reports whether g is older than h: by life first, then by count. Of two generations that
// are both not before each other and not equal, neither came from the other: a split brain.
func (g Generation) Before(h Generation) bool {
	return g.Life < h.Life || g.Life == h.Life && g.Count < h.Count
}

func (g Generation) String() string { return fmt.Sprintf("%d.%d", g.Life, g.Count) }

// An Ancestor is a generation, and the members that were in F, which have every flushed write as
// of then.
type Ancestor struct {
	Generation
	F Members
}

// A Membership is what a record says of one member. All is zero in a slot that is free.
type Membership struct {
	// UUID is the region's.
	UUID [16]byte
	// Contents and Epoch are the region's contents id, and the lowest epoch that it can be in.
	// A region with another contents id, or in a smaller epoch, lost what it had, or was restored
	// from a copy: it lacks everything (mirror §3.6). They stay when the member leaves F. Both
	// are zero if the member never had contents.
	Contents [16]byte
	Epoch    uint64
}

// A Point says how far an asynchronous member has surely followed: it has all that was flushed up to
// barrier Barrier of its life, which the others had at time At. What it has beyond that are writes of
// the next barriers, in their order. The zero Point says nothing.
type Point struct {
	Barrier uint64
	At      int64 // nanoseconds since 1970, by the initiator's clock
}

// A Record is what each member persists of its mirror. The zero Record is that of a region that is
// no member.
type Record struct {
	// Set is the mirror's UUID.
	Set [16]byte
	// Slot is the number of the member that keeps this record. It differs from member to member;
	// all else is equal in records of one generation, but for Torn and Follows.
	Slot uint8
	// MinCopies is how many members F must have for a FLUSH to succeed.
	MinCopies uint8
	// Torn: data of a resync may have arrived, and not all of it has. The member serves nobody.
	Torn bool
	// Async has the members that follow the others without being waited for. They are never in F
	// (mirror §7).
	Async Members
	// Follows is how far the member that keeps this record has followed. It is zero unless that
	// member is in Async and not torn.
	Follows Point
	// Arbiter: an arbiter holds the newest generation, too, and no life may begin without asking it.
	Arbiter bool
	// Ancestor is the generation of this record, and its F.
	Ancestor
	// Members has the members by slot.
	Members [MaxMembers]Membership
	// Lineage has the generations that came before, newest first, and those that were begun and
	// never became active. Unused places are zero, and come last.
	Lineage [MaxLineage]Ancestor
}

// Present returns the slots that have a member.
func (r *Record) Present() (m Members) {
	for slot := range r.Members {
		if r.Members[slot].UUID != [16]byte{} {
			m |= Member(slot)
		}
	}
	return m
}

// Voters returns the members that can be in F, and that count in a majority: all but the
// asynchronous ones.
func (r *Record) Voters() Members { return r.Present() &^ r.Async }

// Check returns an error if no mirror can have the record. The zero Record passes.
func (r *Record) Check() error {
	if *r == (Record{}) {
		return nil
	}
	present := r.Present()
	switch {
	case r.Set == [16]byte{}:
		return fmt.Errorf("a record without a set")
	case int(r.Slot) >= MaxMembers || !present.Has(int(r.Slot)):
		return fmt.Errorf("a record in slot %d, which has no member", r.Slot)
	case r.Async&^present != 0:
		return fmt.Errorf("members %v are asynchronous, and there are %v", r.Async, present)
	case r.MinCopies == 0 || int(r.MinCopies) > r.Voters().Count():
		return fmt.Errorf("%d copies at least of %d members", r.MinCopies, r.Voters().Count())
	case r.F == 0 || r.F&^r.Voters() != 0:
		return fmt.Errorf("members in F are %v, and there are %v", r.F, r.Voters())
	case r.Generation == Generation{}:
		return fmt.Errorf("a record without a generation")
	case r.Torn && r.F.Has(int(r.Slot)):
		return fmt.Errorf("member %v is torn, and in F", Member(int(r.Slot)))
	case r.Follows != (Point{}) && (r.Torn || !r.Async.Has(int(r.Slot)) || r.Follows.At < 0):
		return fmt.Errorf("member %v cannot have followed up to barrier %d", Member(int(r.Slot)), r.Follows.Barrier)
	}
	for slot, m := range r.Members {
		if m.UUID == [16]byte{} && m != (Membership{}) {
			return fmt.Errorf("slot %d has no member, and has contents", slot)
		}
		for other := range slot {
			if m.UUID != [16]byte{} && m.UUID == r.Members[other].UUID {
				return fmt.Errorf("members %v and %v are one region", Member(other), Member(slot))
			}
		}
	}
	used := true
	for i, a := range r.Lineage {
		if a == (Ancestor{}) {
			used = false
			continue
		}
		if !used || a.F == 0 || a.F >= 1<<MaxMembers || i > 0 && r.Lineage[i-1].Before(a.Generation) {
			return fmt.Errorf("the lineage is out of order at %v", a.Generation)
		}
	}
	return nil
}
