package mirror

import (
	"iter"

	"pmnbd/persist"
)

// Behind reports whether nothing became active at r's member that m does not descend from. Then m's
// mirror may copy to it. Otherwise the member went its own way (mirror §4.6).
//
// Each generation that r remembers must be one of m's, or refuted. The walk ends at the first one
// that is m's, because all before it are m's too. If there is none, r must remember all generations
// back to the first one.
func Behind(r, m *persist.Record) bool {
	if r.Set != m.Set {
		return false
	}
	for a := range line(r) {
		if knows(m, a.Generation) {
			return true
		}
		if !refutes(m, r, a) {
			return false
		}
	}
	return r.Lineage[persist.MaxLineage-1] == (persist.Ancestor{})
}

// line yields the generations that r remembers, its own first.
func line(r *persist.Record) iter.Seq[persist.Ancestor] {
	return func(yield func(persist.Ancestor) bool) {
		if !yield(r.Ancestor) {
			return
		}
		for _, a := range r.Lineage {
			if a == (persist.Ancestor{}) || !yield(a) {
				return
			}
		}
	}
}

// ReadFrom returns the members from which clients of lives up to r's may have READs answered, if none of them has ended
// in order (mirror §4.7). No record tells which of them served anybody: a life changes its generation also while it waits
// for the fence of the one before. So each life counts with its last generation, without the members that a later one
// began with. That one has opened them, and an older life reads from them no more.
func ReadFrom(r *persist.Record) (from persist.Members) {
	var opened, first persist.Members
	life := r.Life + 1 // of nobody
	for a := range line(r) {
		if a.Life != life {
			life, opened = a.Life, opened|first
			from |= a.F &^ opened
		}
		first = a.F
	}
	return from & r.Present()
}

// knows reports whether g is m's generation, or one that m's came from, or one that a life on that
// way began. A life is one process at a time, which stores a generation in its window's header
// before any member sees it. So the generations of a life are a chain, and one that a record names
// stands for all with smaller counts.
func knows(m *persist.Record, g persist.Generation) bool {
	for a := range line(m) {
		if a.Life == g.Life && a.Nonce == g.Nonce && a.Count >= g.Count {
			return true
		}
	}
	return false
}

// refutes reports whether m shows that a, which r remembers, never was active, or is an ancestor of
// m: a later life on m's way held a member of a's F. It either found a there, and descends from it,
// or did not, and then a can no longer become active. A slot counts only if the same region is in
// it, because slots are used again.
func refutes(m, r *persist.Record, a persist.Ancestor) bool {
	f := a.F
	for slot := range slots(f) {
		if r.Members[slot].UUID != m.Members[slot].UUID {
			f &^= persist.Member(slot)
		}
	}
	for b := range line(m) {
		if b.Life > a.Life && b.F&f != 0 {
			return true
		}
	}
	return false
}

// Descend returns the record of generation g with F f, which comes from r: r's own generation,
// active or not, becomes the newest of the lineage. A generation that its life gave up stays there,
// because a member may have it (mirror §4.6).
func Descend(r *persist.Record, g persist.Generation, f persist.Members) persist.Record {
	next := *r
	next.Torn, next.Follows = false, persist.Point{}
	next.Ancestor = persist.Ancestor{Generation: g, F: f}
	if r.Lineage[persist.MaxLineage-1] != (persist.Ancestor{}) {
		shorten(&next.Lineage)
	}
	copy(next.Lineage[1:], next.Lineage[:persist.MaxLineage-1])
	next.Lineage[0] = r.Ancestor
	return next
}

// shorten makes the last place of a full lineage free. A life that lets a member go and takes it in
// many times fills a lineage, and a member that is away meanwhile must not become unknown. So the
// oldest two neighbours of one life become one entry. The newer generation stands for both (see
// knows). Its F has the members of both Fs, so what refutes the entry refutes both. Where there is
// no such pair, the oldest generation is forgotten.
func shorten(l *[persist.MaxLineage]persist.Ancestor) {
	for i := persist.MaxLineage - 1; i > 0; i-- {
		newer, older := &l[i-1], &l[i]
		if newer.Life == older.Life && newer.Nonce == older.Nonce && newer.F&older.F != 0 {
			newer.F &= older.F
			copy(l[i:], l[i+1:])
			break
		}
	}
	l[persist.MaxLineage-1] = persist.Ancestor{}
}
