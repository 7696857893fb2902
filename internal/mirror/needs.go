package mirror

import (
	"fmt"

	"pmnbd/persist"
)

// A pending generation becomes active when all of its F have it. So one that needs a member which is gone for
// good would wait for ever, and all FLUSHes with it. Such a member is let go. Where the mirror cannot do
// without it,
//
//   - a member that was let go before, and could do as well, is taken back (TakeBack): two of three are lost, and
//     the one of them that comes back is not the one that the generation needs,
//   - a member that lacks something takes its place, and is copied to (StandIn),
//   - an operator sets a smaller M (SetMinCopies),
//   - no change of members or M begins (Needs).

// suffices reports why no generation of f alone may replace v's, or nil.
func (v *View) suffices(f persist.Members) error {
	switch {
	case f.Count() < int(v.Record.MinCopies):
		return fmt.Errorf("%w: %d of at least %d", ErrBelowMin, f.Count(), v.Record.MinCopies)
	case f&v.Equal == 0:
		return ErrNoneEqual
	case v.Before.passesBy(f):
		return ErrMajority
	}
	return nil
}

// Needs reports why the generation that v has pending cannot become active while these members are away:
// it could not be replaced by one without them either. It is nil if it can.
func (v *View) Needs(away persist.Members) error {
	if v.Record.F&away == 0 {
		return nil
	}
	if err := v.suffices(v.Record.F &^ away); err != nil {
		return fmt.Errorf("without %v, which does not answer: %w", v.Record.F&away, err)
	}
	return nil
}

// TakeBack returns v with a generation pending that has all members in F again that were let go since the last
// one was active. Those that were equal are equal again: nothing was flushed without them. It is for a generation
// that cannot become active without a member that is away: whichever comes back first, the mirror goes on with it.
// ok is false if there is none, or if M lets a start begin with all members of one attempt that has none of another.
func (v View) TakeBack() (next View, ok bool) {
	back := v.Active & v.Record.Voters() &^ v.Record.F
	if !v.Pending || back == 0 || v.Before != (Electorate{}) || !electorate(&v.Record).votes() {
		return v, false
	}
	whole := back &^ v.Lacking
	next = v.begin(v.Record.F|back, v.Joiner)
	next.Equal |= whole
	next.Lacking &^= back
	return next, true
}

// StandIn returns v with a generation pending that has leg in F, in place of members that are away and that the
// mirror cannot do without. leg lacks what its bits say, and more: it is not equal, everything is copied to it, and
// no FLUSH succeeds before. No record names its contents, so no start takes it for one that has the data. When it
// has everything a generation names it (Regained). lost has those of away that may lack what Record names, as one does
// whose region failed, or was put back from a copy: they leave with all their bits set, as with LetGo. ok is false where
// leg does not help.
func (v View) StandIn(leg int, away, lost persist.Members) (next View, ok bool) {
	rest, member := v.Record.F&^away, persist.Member(leg)
	f := rest | member
	switch {
	case !v.Serves() || v.Record.F.Has(leg) || !v.Record.Voters().Has(leg) || v.Needs(away) == nil:
		return v, false
	case rest&v.Equal == 0 || f.Count() < int(v.Record.MinCopies) || v.Before.passesBy(f):
		return v, false
	case v.Pending && (v.Before != (Electorate{}) || !electorate(&v.Record).votes()): // as TakeBack
		return v, false
	}
	next = v.begin(f, v.Joiner&f)
	next.Equal &= rest
	next.Lacking = next.Lacking&^member | v.Record.F&away&lost
	next.Record.Members[leg].Contents = [16]byte{}
	return next, true
}
