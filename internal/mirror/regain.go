package mirror

import (
	"fmt"

	"pmnbd/persist"
)

// A member of F that lost its contents is let go. Where too few copies would remain, it stays in F
// instead: it is equal no more, so no FLUSH succeeds and nobody reads from it, and everything is copied to
// it. Its record and those of the others name the contents that it had, so no start takes it for a member
// that has the data. When it has everything again, a generation names what it has now (mirror §3.6).
//
// The same holds while a generation is pending that cannot become active without the member. The member gets
// the record. A generation says who has which data by the contents ids that it names, and a region that
// lost its contents persists a record as well as any. Otherwise that generation could neither become
// active nor be replaced, and nothing would ever go on.

// Regains returns v with leg in F and no longer equal, because it lost its contents and cannot be let go.
// A pending generation does not make it equal either. away has the others that do not answer. ok is false if
// leg can be let go, if there is no generation of this life yet, or if no other leg of F is equal.
func (v View) Regains(leg int, away persist.Members) (next View, ok bool) {
	member := persist.Member(leg)
	if !v.Pending && !v.Serves() || !v.Record.F.Has(leg) || v.Record.F&v.Equal&^member == 0 {
		return v, false
	}
	if without, err := v.LetGo(leg, true); err == nil && without.Needs(away) == nil {
		return v, false
	}
	v.Equal &^= member
	v.Joiner &^= member
	return v, true
}

// Lacks reports whether leg is in F of the newest active generation without the contents that its
// record names; contents are what it has.
func (v *View) Lacks(leg int, contents [16]byte) bool {
	return v.Active.Has(leg) && v.Record.F.Has(leg) && !v.Equal.Has(leg) && v.Record.Members[leg].Contents != contents
}

// Regained returns v with a generation pending that has the same F, and names contents and epoch of leg.
// It has everything again that the others have.
func (v View) Regained(leg int, contents [16]byte, epoch uint64) (next View, err error) {
	if v.Pending || !v.Lacks(leg, contents) {
		return v, fmt.Errorf("name what %v has: %w", persist.Member(leg), ErrChanging)
	}
	next = v.begin(v.Record.F, persist.Member(leg))
	next.name(leg, contents, epoch)
	return next, nil
}
