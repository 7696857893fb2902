package mirror

import (
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
)

// A source of small numbers: random ones, or those of a fuzzer, whose end is an endless run of 0.
type numbers func(n int) int

func fromBytes(b []byte) numbers {
	return func(n int) int {
		if len(b) == 0 {
			return 0
		}
		x := int(b[0])
		b = b[1:]
		return x % n
	}
}

// found makes a situation. Few lives, generations and contents ids make members of one mirror meet
// often.
func (next numbers) found() Found {
	n := 2 + next(persist.MaxMembers-1)
	var async persist.Members
	if n > 2 && next(3) == 0 {
		async = persist.Member(next(n))
	}
	all := persist.Members(1<<n-1) &^ async
	first := record(n, 1+next(all.Count()), "1.1{"+all.String()+"}")
	first.Async = async
	// A tree of records; each member has one of them.
	tree := []persist.Record{first}
	for range next(6) {
		r := tree[next(len(tree))]
		g := r.Generation
		if next(2) == 0 {
			g.Count++
		} else {
			life := g.Life + 1 + uint64(next(2))
			g = persist.Generation{Life: life, Count: 1, Nonce: [16]byte{byte(life), byte(next(2))}}
		}
		if f := persist.Members(next(1<<n)) &^ async; f != 0 {
			tree = append(tree, Descend(&r, g, f))
		}
	}
	var f Found
	for slot := range n {
		l := Leg{Reach: Reach(next(4)), Record: tree[next(len(tree))], Contents: contents(slot), Epoch: 5, Clean: next(3) == 0}
		l.Record.Slot = uint8(slot)
		if l.Record.Torn = l.Torn(); async.Has(slot) && next(2) == 0 {
			l.Record.Torn, l.Record.Follows = false, persist.Point{Barrier: 1, At: int64(next(3))}
		}
		switch next(8) {
		case 0:
			l.Contents = [16]byte{9}
		case 1:
			l.Epoch = 4
		case 2:
			l.Failed = true
		case 3:
			l.Record = persist.Record{}
		case 4:
			l.Record.Members[slot].Contents = [16]byte{9}
		}
		f.Legs = append(f.Legs, l)
	}
	f.Degraded, f.Prefer = next(3) == 0, persist.Members(next(16))
	if async != 0 && next(2) == 0 { // the others are gone
		f.Degraded = true
		for slot := range f.Legs {
			if !async.Has(slot) && next(4) > 0 {
				f.Legs[slot].Reach = Away
			}
		}
	}
	if next(4) == 0 {
		f.Asked, f.Arbiter = true, tree[next(len(tree))]
		f.Arbiter.Arbiter = true
		for i := range f.Legs {
			f.Legs[i].Record.Arbiter = f.Legs[i].known() && next(4) > 0
		}
		if next(4) == 0 { // nobody names it
			f.Asked, f.Arbiter, f.WithoutArbiter = false, persist.Record{}, next(2) == 0
		}
	}
	return f
}

// checkDecision checks what holds for each decision, and for the life that begins with it.
func checkDecision(t require.TestingT, f *Found) Decision {
	d := Decide(*f)
	require.NotEmpty(t, d.Why)
	m := &d.Newest
	var held persist.Members
	for i := range f.Legs {
		if l := &f.Legs[i]; l.Reach == Held && !l.Failed && l.MemberOf(m) && !l.Lost(m) {
			held |= persist.Member(int(l.Record.Slot))
		}
	}
	require.Equal(t, d.Outcome == Open, d.Open != 0)
	require.False(t, d.Outcome == Wait && d.Waits == 0 && m.F != 0, "it waits for nobody: %s", d.Why)
	if d.Outcome != Begin && d.Outcome != Copy {
		require.Zero(t, d.F|d.Equal|d.Fill)
		return d
	}
	require.NotZero(t, d.Equal)
	if newest := f.newestOf(func(*Found, *Leg) bool { return false }); newest.Arbiter && !f.Asked {
		require.True(t, f.Degraded && f.WithoutArbiter, "§4.8: nobody asked the arbiter")
	}
	require.Zero(t, d.Equal&^held, "§4.2: a source that no session holds, or without contents")
	require.Zero(t, d.F&^held)
	if promotes := d.Promotes(); promotes != 0 {
		checkPromotion(t, f, &d)
		return d
	}
	require.Zero(t, d.Equal&^m.F, "§4.2: a source outside F")
	require.Zero(t, d.F&^m.F)
	require.Zero(t, d.Fill&d.Equal)
	if !d.Clean {
		require.Equal(t, 1, d.Equal.Count(), "§4.4: one source")
		require.Equal(t, m.Present(), d.Fill|d.Equal, "§4.4: all others get all bits")
	}
	for i := range f.Legs {
		l := &f.Legs[i]
		if l.reached() && d.Equal.Has(int(l.Record.Slot)) {
			require.False(t, l.Torn() && !l.Record.Before(m.Generation), "§5.1")
		}
		if l.reached() && !f.Degraded && f.Arbiter == (persist.Record{}) {
			require.False(t, m.Before(l.Record.Generation), "§4.2: it begins with an older one")
			require.True(t, l.Torn() || Behind(&l.Record, m), "§4.6: it saw a split brain")
		}
	}
	v := Start(&d, NextLife(f), [16]byte{42})
	require.Equal(t, d.Outcome == Begin, v.Pending)
	if v.Pending {
		require.GreaterOrEqual(t, v.Record.F.Count(), int(m.MinCopies), "§3.3")
	}
	for slot := range slots(v.Record.F) {
		r, fill := v.RecordFor(slot)
		require.NoError(t, r.Check())
		require.Zero(t, fill&r.F)
		require.True(t, Behind(m, &r), "a generation that does not come from the newest")
	}
	return d
}

// checkPromotion checks the start of a life with an asynchronous member (mirror §7): an operator asked
// for it, no other member that was reached has data of its own, and each that was in F of the life
// that the member followed has gone its own way.
func checkPromotion(t require.TestingT, f *Found, d *Decision) {
	require.True(t, f.Degraded, "§7: nobody asked for it")
	slot := bits.TrailingZeros8(uint8(d.F))
	v := Start(d, NextLife(f), [16]byte{42})
	require.Equal(t, d.F, v.Record.F)
	require.Zero(t, v.Record.Async&d.F)
	arbitrated := f.newestOf(func(*Found, *Leg) bool { return false }).Arbiter
	for i := range f.Legs {
		l := &f.Legs[i]
		if arbitrated && f.Asked && l.Reach == Held && !l.Failed && l.reached() && l.MemberOf(&f.Arbiter) && !f.lost(l, &f.Arbiter) && !l.Lost(&l.Record) {
			require.False(t, f.Arbiter.F.Has(int(l.Record.Slot)), "it promotes although %v has all flushed data", l.Record.Slot)
		}
		if !l.reached() || !l.MemberOf(&d.Newest) {
			continue
		}
		if int(l.Record.Slot) == slot {
			require.False(t, l.Record.Torn, "§5.1: it promotes a member that is half copied")
			continue
		}
		require.True(t, passedOver(l), "it promotes although %v is there", l.Record.Slot)
		if l.Record.Life >= d.Newest.Life {
			require.False(t, Behind(&l.Record, &v.Record), "§4.6: it would copy over data that it lacks")
		}
	}
}

// TestDecideProperty checks random situations, and that the order of the targets changes nothing.
func TestDecideProperty(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 1))
	outcomes, promotions := map[Outcome]int{}, 0
	for range 6_000 {
		f := numbers(rng.IntN).found()
		d := checkDecision(t, &f)
		outcomes[d.Outcome]++
		if d.Promotes() != 0 {
			promotions++
		}
		other := f
		other.Legs = append([]Leg(nil), f.Legs...)
		rng.Shuffle(len(other.Legs), func(i, j int) { other.Legs[i], other.Legs[j] = other.Legs[j], other.Legs[i] })
		require.Equal(t, d, Decide(other))
	}
	t.Log(outcomes, promotions)
	require.Greater(t, promotions, 20, "promotions")
	for o := Wait; o <= Begin; o++ {
		require.Greater(t, outcomes[o], 20, o.String())
	}
}

// TestViewProperty lets lives go on at random: no generation is below M, or without an equal leg,
// each descends from the ones before, and what the next one owes is never forgotten.
func TestViewProperty(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range 20_000 {
		f := numbers(rng.IntN).found()
		d := Decide(f)
		if d.Outcome != Begin && d.Outcome != Copy {
			continue
		}
		v := Start(&d, NextLife(&f), [16]byte{42})
		var written, lost persist.Members
		for range 40 {
			before, slot := v, rng.IntN(persist.MaxMembers)
			switch rng.IntN(12) {
			case 11:
				var ok bool
				useless := persist.Members(rng.IntN(16))
				if v, ok = v.StandIn(slot, persist.Members(rng.IntN(16)), useless); ok {
					lost |= persist.Member(slot) | useless&before.Record.F&^v.Record.F
				}
			case 10:
				v, _ = v.TakeBack()
			case 8:
				var ok bool
				if v, ok = v.Regains(slot, persist.Members(rng.IntN(16))); ok {
					lost |= persist.Member(slot)
				}
			case 9:
				if next, err := v.Regained(slot, [16]byte{byte(slot), byte(rng.IntN(9)), 2}, 9); err == nil {
					v, lost = next, lost&^persist.Member(slot)
				}
			case 5:
				v, _ = v.Remove(slot)
			case 6:
				v, _ = v.Add(slot, [16]byte{byte(slot), byte(rng.IntN(9)), 1}, 9)
			case 7:
				v, _ = v.SetMinCopies(slot)
			case 0:
				v, _ = v.LetGo(slot, rng.IntN(3) == 0)
			case 1:
				if v.Record.Present().Has(slot) {
					v, _ = v.TakeIn(slot, [16]byte{byte(slot), 1}, 9)
				}
			case 2:
				if v.Record.Present().Has(slot) && (v.Active.Has(slot) || !v.Serves()) && !lost.Has(slot) {
					v = v.Equaled(slot, &[persist.MaxMembers]persist.Membership{})
				}
			case 3:
				v, _ = v.Enough()
			case 4:
				if next := v.Next(written); next != 0 {
					written |= lowest(next)
				}
				if v.Pending && v.Next(written) == 0 {
					require.Equal(t, v.Record.F, written&v.Record.F)
					v = v.Activated()
				}
			}
			if v.Record.Generation != before.Record.Generation {
				written = 0
				require.True(t, before.Record.Before(v.Record.Generation))
				require.True(t, Behind(&before.Record, &v.Record))
				require.False(t, Behind(&v.Record, &before.Record))
				if before.Pending || before.Serves() {
					require.Zero(t, before.Lacking&v.Record.Present()&^v.Lacking&^(v.Record.F&^v.Equal), "what was owed")
				}
				require.GreaterOrEqual(t, v.Record.F.Count(), int(v.Record.MinCopies))
				require.Zero(t, lost&v.Record.Present()&^v.Record.F&^v.Lacking, "it left F, and nobody knows that it lacks everything")
				lost &= v.Record.F
			}
			require.Zero(t, lost&v.Equal, "it has nothing of what its record says")
			if v.Pending {
				require.NotZero(t, v.Record.F&(v.Equal|v.Joiner))
				require.NotEqual(t, v.Record.F, v.Joiner)
			}
			if v.Serves() {
				require.NotZero(t, v.Equal&(v.Active|v.Record.F))
			}
			for slot := range slots(v.Record.Present()) {
				r, fill := v.RecordFor(slot)
				require.NoError(t, r.Check())
				require.Zero(t, fill&r.F)
				require.Zero(t, fill&^r.Present(), "bits of a member that is none: its target refuses that")
			}
		}
	}
}

func FuzzDecide(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{1, 1, 3, 0, 1, 0, 3, 0, 0, 1, 5, 3, 1, 0, 7, 0, 3, 2, 2, 7, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		found := fromBytes(b).found()
		checkDecision(t, &found)
	})
}

// TestDecideIsTotal gives Decide records that no mirror can have.
func TestDecideIsTotal(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for range 3_000 {
		f := numbers(rng.IntN).found()
		for i := range f.Legs {
			r := &f.Legs[i].Record
			switch rng.IntN(6) {
			case 0:
				r.Slot = uint8(rng.Uint32())
			case 1:
				r.F = persist.Members(rng.Uint32())
			case 2:
				r.MinCopies = uint8(rng.Uint32())
			case 3:
				r.Lineage[rng.IntN(4)] = persist.Ancestor{F: persist.Members(rng.Uint32())}
			case 4:
				r.Set[0] ^= byte(rng.UintN(2))
			}
		}
		d := Decide(f)
		require.NotEmpty(t, d.Why)
		if d.Outcome == Begin && d.Promotes() == 0 {
			require.GreaterOrEqual(t, d.F.Count(), int(d.Newest.MinCopies))
		}
	}
}
