package mirror

import (
	"errors"
	"fmt"
	"math/bits"

	"pmnbd/persist"
)

// Errors of changes that must not begin.
var (
	// ErrBelowMin: the generation would have fewer legs than MinCopies.
	ErrBelowMin = errors.New("too few copies would remain")
	// ErrNoneEqual: no leg of the generation would be equal, so nothing could be read.
	ErrNoneEqual = errors.New("no equal leg would remain")
	// ErrMajority: the members that are left out could begin the mirror by themselves.
	ErrMajority = errors.New("the other members are a majority, and could begin the mirror by themselves")
	// ErrChanging: another change is not active yet.
	ErrChanging = errors.New("another generation is not active yet")
)

// A View is what a life knows of its mirror. It has no pointers: the life keeps it in its window's
// header, and the next run of the same life goes on with it (mirror §4.5). Each change is stored
// there before any member sees it (mirror §3.3).
//
// The zero View is none. A method that begins or ends a change returns the View that replaces this
// one.
type View struct {
	// Record is the newest generation that this life began, or found.
	Record persist.Record
	// Life and Nonce are the life's own.
	Life  uint64
	Nonce [16]byte
	// Degraded: an operator began the life without proof.
	Degraded bool
	// Arbiter: the life gives each generation to the mirror's arbiter before any member gets it.
	Arbiter bool
	// Pending: Record is not active yet. Its legs get it in the order of Next.
	Pending bool
	// Active is F of the newest active generation of this life. It is empty until there is one.
	Active persist.Members
	// Equal has the members that the life may read from and copy from.
	Equal persist.Members
	// Joiner is the member that Record takes in, while it is pending.
	Joiner persist.Members
	// Lacking has the members of which nobody knows what they lack. The next record that becomes
	// active sets all bits of those that it leaves out.
	Lacking persist.Members
	// Before has the members and M of the newest active generation, while Record is pending and has
	// others (mirror §4.9). It is zero otherwise.
	Before Electorate
}

// Start returns the View of a life that begins with d, which says Begin or Copy. After Begin it has
// the life's first generation pending. life is larger than any that a member has seen, and nonce
// was drawn for it.
func Start(d *Decision, life uint64, nonce [16]byte) View {
	newest := d.Newest
	if slot := d.Promotes(); slot != 0 {
		newest = promoted(newest, bits.TrailingZeros8(uint8(slot)))
	}
	v := View{Record: newest, Life: life, Nonce: nonce, Degraded: d.Degraded, Arbiter: d.Arbiter, Equal: d.Equal, Lacking: d.Fill, Before: d.Before}
	if d.Outcome == Begin {
		v = v.begin(d.F, 0)
	}
	return v
}

// begin returns v with the next generation pending.
func (v View) begin(f, joiner persist.Members) View {
	g := persist.Generation{Life: v.Life, Count: 1, Nonce: v.Nonce}
	if last := v.Record.Generation; last.Life == v.Life && last.Nonce == v.Nonce {
		g.Count = last.Count + 1
	}
	had := v.Active
	if v.Pending {
		had |= v.Record.F &^ v.Joiner // of which the others know what it lacks
	}
	v.Lacking |= had &^ v.Equal &^ f // a leg that leaves F before it was equal (mirror §3.6)
	v.Lacking &= v.Record.Present()  // nobody keeps bits of one that a pending generation removes (mirror §4.9)
	v.Record = Descend(&v.Record, g, f)
	v.Record.Arbiter = v.Arbiter
	v.Pending, v.Joiner = true, joiner
	return v
}

// Serves reports whether the life has had an active generation. Before that it serves, writes and
// copies nothing into F (mirror §4.1).
func (v *View) Serves() bool { return v.Active != 0 }

// LetGo returns v with a generation pending that is without leg (mirror §3.3). Set lost if leg's
// contents are not those that Record names. It may replace a pending generation. If err is not nil
// the generation must not begin: the life waits for leg.
func (v View) LetGo(leg int, lost bool) (next View, err error) {
	f := v.Record.F &^ persist.Member(leg)
	switch {
	case !v.Pending && !v.Serves():
		err = ErrChanging
	case f == v.Record.F:
		return v, nil // it is gone already
	default:
		err = v.suffices(f)
	}
	if err != nil {
		return v, fmt.Errorf("let %v go: %w", persist.Member(leg), err)
	}
	next = v.begin(f, v.Joiner&f)
	next.Equal &^= persist.Member(leg)
	if lost {
		next.Lacking |= persist.Member(leg)
	}
	return next, nil
}

// TakeIn returns v with a generation pending that has leg in F (mirror §5.5). No bit of leg is left,
// and contents and epoch are what its session found.
func (v View) TakeIn(leg int, contents [16]byte, epoch uint64) (next View, err error) {
	switch {
	case v.Pending || !v.Serves():
		return v, fmt.Errorf("take %v in: %w", persist.Member(leg), ErrChanging)
	case !v.Record.Present().Has(leg): // it was removed meanwhile
		return v, fmt.Errorf("take %v in: %w", persist.Member(leg), ErrNoMember)
	case v.Record.F.Has(leg):
		return v, nil
	case v.Record.Async.Has(leg):
		return v, fmt.Errorf("take %v in: it is asynchronous", persist.Member(leg))
	}
	next = v.begin(v.Record.F|persist.Member(leg), persist.Member(leg))
	next.name(leg, contents, epoch)
	return next, nil
}

// Equaled returns v with leg equal: it has all that the source has. In a life that copies first
// (Copy) the first generation is pending as soon as there are enough copies. It names what the
// sessions on its members found, which has that by slot. Until then Record stays as the members have
// it: a target refuses a record that changes a generation.
func (v View) Equaled(leg int, has *[persist.MaxMembers]persist.Membership) View {
	if v.Record.Async.Has(leg) {
		return v
	}
	v.Equal |= persist.Member(leg)
	if v.Pending || v.Serves() || v.Equal.Count() < int(v.Record.MinCopies) || v.Before.passesBy(v.Equal) {
		return v
	}
	v.Lacking = v.Record.Present() &^ v.Equal
	v = v.begin(v.Equal, 0)
	for slot := range slots(v.Equal) {
		v.name(slot, has[slot].Contents, has[slot].Epoch)
	}
	return v
}

// name says in Record what leg has.
func (v *View) name(leg int, contents [16]byte, epoch uint64) {
	m := &v.Record.Members[leg]
	m.Contents, m.Epoch = contents, epoch
}

// Enough returns v with a generation pending of the equal legs alone, so that a FLUSH need not wait
// until all of F is equal (mirror §4.4). ok is false where FLUSH need not wait, or must.
func (v View) Enough() (next View, ok bool) {
	f := v.Active & v.Equal
	if v.Pending || v.Active&^v.Equal == 0 || f == 0 || f.Count() < int(v.Record.MinCopies) {
		return v, false
	}
	return v.begin(f, 0), true
}

// Flushes reports whether a barrier that all of F acknowledges completes a FLUSH (mirror §3.2).
func (v *View) Flushes() bool {
	return !v.Pending && v.Active != 0 && v.Active&^v.Equal == 0 && v.Active.Count() >= int(v.Record.MinCopies)
}

// Next returns the legs that the pending record may be sent to, when written has it durably: the
// joiner comes last, so that a start that finds it there finds it everywhere (mirror §5.5). It is
// empty when all have it, and then the record is active.
func (v *View) Next(written persist.Members) persist.Members {
	if !v.Pending {
		return 0
	}
	rest := v.Record.F &^ written
	if others := rest &^ v.Joiner; others != 0 {
		return others
	}
	return rest
}

// RecordFor returns what leg persists of the newest generation, and the members whose bits are all
// set there. A leg outside F is torn: it must have this record durably before the first byte is
// copied to it (mirror §5.1). The joiner does not know what members outside F lack, so it gets all
// their bits (mirror §5.5): more than they lack, and never less.
func (v *View) RecordFor(leg int) (r persist.Record, fill persist.Members) {
	r = v.Record
	r.Slot, r.Torn = uint8(leg), !r.F.Has(leg)
	switch {
	case r.Torn:
		return r, 0
	case v.Joiner.Has(leg):
		return r, r.Present() &^ r.F
	}
	return r, v.Lacking &^ r.F
}

// Activated returns v after all of F have the pending record durably.
func (v View) Activated() View {
	v.Equal = (v.Equal | v.Joiner) & v.Record.F
	v.Active, v.Pending, v.Joiner, v.Lacking = v.Record.F, false, 0, 0
	v.Before = Electorate{}
	return v
}
