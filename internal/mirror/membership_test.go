package mirror

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
)

// A world has regions, and lives that take them from each other and change the mirror.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	regions []Leg
	owner   []int // the life that has a session, counted from 1
	lives   []*worldLife
	active  persist.Record // the newest one
	log     []event
	begun   [2]int // lives that became active by (a) and by (b) or after a change of the membership
}

// An event is for the message of a failure.
type event struct {
	life int
	what string
	g    persist.Ancestor
	of   Electorate
}

func (e event) String() string {
	return fmt.Sprintf("\nlife %d %s: %v{%v} of %v, M = %d", e.life, e.what, e.g.Generation, e.g.F, e.of.Members, e.of.MinCopies)
}

func (w *world) note(life int, what string, v *View) {
	w.log = append(w.log, event{life, what, v.Record.Ancestor, electorate(&v.Record)})
}

type worldLife struct {
	View
	written persist.Members
}

func newWorld(t *testing.T, rng *rand.Rand) *world {
	w := &world{t: t, rng: rng}
	n := 2 + rng.IntN(persist.MaxMembers-1)
	r := record(n, 1+rng.IntN(n), "1.1{"+persist.Members(1<<n-1).String()+"}")
	for slot := range persist.MaxMembers + 1 {
		l := Leg{Reach: Held, Contents: contents(slot), Epoch: 5, Life: 1}
		if slot < n {
			l.Record = r
			l.Record.Slot = uint8(slot)
		}
		w.regions, w.owner = append(w.regions, l), append(w.owner, 0)
	}
	w.active = r
	return w
}

// start lets a life start with the regions that it can reach, and reports whether it begins.
func (w *world) start(reached int) bool {
	var f Found
	var at []int
	for i, l := range w.regions {
		if reached>>i&1 != 0 {
			l.Reach = Probed
			f.Legs, at = append(f.Legs, l), append(at, i)
		}
	}
	if Decide(f).Outcome != Open {
		return false
	}
	number := NextLife(&f)
	id := len(w.lives) + 1
	for i := range f.Legs {
		if f.Legs[i].known() {
			f.Legs[i].Reach, f.Legs[i].Life = Held, number
			w.owner[at[i]], w.regions[at[i]].Life = id, number
		}
	}
	v := View{}
	if d := Decide(f); d.Outcome == Begin {
		v = Start(&d, number, [16]byte{byte(id)})
	}
	w.lives = append(w.lives, &worldLife{View: v})
	w.note(id, "starts", &v)
	return v.Life != 0
}

// at returns the region of a member of r, or -1.
func (w *world) at(r *persist.Record, slot int) int {
	for i := range w.regions {
		if r.Members[slot].UUID == uuid(i) {
			return i
		}
	}
	return -1
}

// act lets life id take a step.
func (w *world) act(id int) {
	p := w.lives[id-1]
	was := p.View
	defer func() {
		if p.Record.Generation != was.Record.Generation || p.Pending != was.Pending {
			w.note(id, "changes", &p.View)
		}
	}()
	if p.Life == 0 {
		return
	}
	before, slot := p.Record.Generation, w.rng.IntN(persist.MaxMembers)
	switch w.rng.IntN(9) {
	case 0:
		p.View, _ = p.LetGo(slot, false)
	case 5:
		p.View, _ = p.TakeBack()
	case 6:
		p.View, _ = p.StandIn(slot, persist.Members(w.rng.IntN(16)), 0)
	case 1:
		p.View, _ = p.Remove(slot)
	case 2:
		if p.View, _ = p.SetMinCopies(1 + slot); slot > 0 { // 1 is the interesting one
			p.View, _ = p.SetMinCopies(1)
		}
	case 3:
		w.adds(p, slot, w.rng.IntN(len(w.regions)))
	case 4:
		w.joins(id, p, slot)
	default:
		w.writes(id, 15)
	}
	if p.Record.Generation != before {
		p.written = 0
	}
}

// adds lets a region become a member. What an operator gives to a mirror is no member of any.
func (w *world) adds(p *worldLife, slot, i int) {
	if w.at(&p.Record, slot) >= 0 || slices.ContainsFunc(w.active.Members[:], func(m persist.Membership) bool { return m.UUID == uuid(i) }) {
		return
	}
	next, err := p.Add(slot, uuid(i), 1)
	if err == nil {
		w.regions[i].Record, w.regions[i].Life, w.owner[i] = persist.Record{}, 0, 0
		p.View = next
	}
}

// joins lets a member be copied to and taken in, at once.
func (w *world) joins(id int, p *worldLife, slot int) {
	i := w.at(&p.Record, slot)
	if i < 0 || p.Pending || !p.Serves() || p.Record.F.Has(slot) || w.owner[i] != id && w.regions[i].Life >= p.Life {
		return
	}
	l := w.regions[i]
	if l.Record == (persist.Record{}) {
		l.Record, _ = p.RecordFor(slot)
	}
	if m := p.Meet(&l); m != Resync && m != ResyncAll {
		return
	}
	w.owner[i], w.regions[i].Life = id, p.Life
	w.regions[i].Record, _ = p.RecordFor(slot)
	p.View, _ = p.TakeIn(slot, contents(i), 5)
}

// writes lets a record become durable at one member of those that are asked for, and of F.
func (w *world) writes(id int, asked persist.Members) (progress bool) {
	p := w.lives[id-1]
	for slot := range slots(p.Next(p.written) & asked) {
		i := w.at(&p.Record, slot)
		if w.owner[i] != id {
			continue
		}
		progress = true
		w.regions[i].Record, _ = p.RecordFor(slot)
		w.note(id, "writes to "+persist.Member(i).String(), &p.View)
		p.written |= persist.Member(slot)
		break
	}
	if p.Pending && p.Next(p.written) == 0 {
		p.View = p.Activated()
		if knows(&w.active, p.Record.Generation) {
			return progress // late news: a life has found it, and gone beyond
		}
		if !knows(&p.Record, w.active.Generation) {
			require.Fail(w.t, "two generations are active", "%v", w.log)
		}
		if w.active.Life != p.Life {
			w.begun[0]++
		}
		if electorate(&w.active) != electorate(&p.Record) {
			w.begun[1]++
		}
		w.active = p.Record
	}
	return progress
}

// clone returns a world that goes on by itself.
func (w *world) clone() *world {
	n := *w
	n.regions, n.owner, n.log, n.lives = slices.Clone(w.regions), slices.Clone(w.owner), slices.Clone(w.log), nil
	for _, p := range w.lives {
		is := *p
		n.lives = append(n.lives, &is)
	}
	return &n
}

// letsGo has the newest life let go of members, and write its records where it can.
func (w *world) letsGo(gone persist.Members) *world {
	id := len(w.lives)
	p := w.lives[id-1]
	for slot := range slots(gone) {
		if next, err := p.LetGo(slot, false); err == nil && next.Record.Generation != p.Record.Generation {
			p.View, p.written = next, 0
			w.note(id, "lets go", &p.View)
		}
	}
	for w.writes(id, 15) {
	}
	return w
}

// changes are all changes of a View.
func (v View) changes() (all []View) {
	add := func(next View, err error) {
		if err == nil && next.Pending {
			all = append(all, next)
		}
	}
	for slot := range persist.MaxMembers {
		add(v.Remove(slot))
		add(v.SetMinCopies(slot + 1))
	}
	add(v.Add(3, uuid(4), 1))
	return all
}

// smallerM are the changes that replace a pending one.
func (v View) smallerM() (all []View) {
	for m := 1; v.Pending && m < int(v.Record.MinCopies); m++ {
		if next, err := v.SetMinCopies(m); err == nil {
			all = append(all, next)
		}
	}
	return all
}

// TestMembershipChanges lets a life of three members die in every change of members or M, wherever its
// record came to, or replace it by a smaller M, or lose members first. Then one life begins with what
// it reaches, perhaps lets members go, and another one does (mirror §4.9).
func TestMembershipChanges(t *testing.T) {
	const n, subsets = 3, 8
	changes, chains, begun := 0, 0, 0
	for m := 1; m <= n; m++ {
		for f := persist.Members(1); f < subsets; f++ {
			if f.Count() < m {
				continue
			}
			v := View{Record: record(n, m, "1.1{ABC} 1.2{"+f.String()+"}"), Life: 1, Nonce: [16]byte{1}, Active: f, Equal: f}
			for _, next := range v.changes() {
				changes++
				for at := range persist.Members(subsets) {
					w := &world{t: t, active: v.Record, lives: []*worldLife{{View: next}}}
					for slot := range n + 2 {
						l := Leg{Contents: contents(slot), Epoch: 5, Life: 1}
						if slot < n {
							l.Record = record(n, m, "1.1{ABC}")
							if f.Has(slot) {
								l.Record = v.Record
							}
							l.Record.Slot = uint8(slot)
						}
						w.regions, w.owner = append(w.regions, l), append(w.owner, 1)
					}
					w.note(1, "served", &v)
					w.note(1, "changes", &next)
					for w.writes(1, at) {
					}
					begun += w.starts(subsets, 2)
					for gone := persist.Members(1); gone < subsets; gone++ {
						if gone&^f != 0 {
							continue
						}
						begun += w.clone().letsGo(gone).starts(subsets, 2)
					}
					for _, smaller := range w.lives[0].smallerM() {
						chains++
						x := w.clone()
						x.lives[0] = &worldLife{View: smaller}
						x.note(1, "changes M", &smaller)
						for gone := persist.Members(0); gone < subsets; gone++ {
							if gone&^f == 0 {
								begun += x.clone().letsGo(gone).starts(subsets, 2)
							}
						}
					}
				}
			}
		}
	}
	t.Logf("%d changes, %d that replace one, %d lives", changes, chains, begun)
	require.Greater(t, changes, 40)
	require.Greater(t, chains, 50)
	require.Greater(t, begun, 10_000)
}

// starts has a life begin with whatever it may reach, and let go of whatever it may, and others after it.
func (w *world) starts(subsets, depth int) (begun int) {
	for reached := 1; depth > 0 && reached < subsets; reached++ {
		x := w.clone()
		if !x.start(reached) {
			continue
		}
		begun++
		lost := persist.Members(1)
		if depth > 1 {
			lost = persist.Members(subsets)
		}
		for gone := range lost {
			if gone&^x.lives[len(x.lives)-1].Record.F != 0 {
				continue
			}
			y := x.clone().letsGo(gone)
			begun += y.starts(subsets, depth-1)
		}
	}
	return begun
}

// TestMembershipProperty changes members and M of mirrors while lives begin with whatever they reach,
// and go on without each other's knowledge. Each generation that becomes active comes from the one that
// was active before (mirror §4.9).
func TestMembershipProperty(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 4))
	var begun [2]int
	for range 2_000 {
		w := newWorld(t, rng)
		for range 40 {
			if len(w.lives) == 0 || len(w.lives) < 5 && rng.IntN(6) == 0 {
				w.start(1 + rng.IntN(1<<len(w.regions)-1))
				continue
			}
			id := len(w.lives) // the newest, mostly
			if rng.IntN(4) == 0 {
				id = 1 + rng.IntN(id)
			}
			w.act(id)
		}
		begun[0] += w.begun[0]
		begun[1] += w.begun[1]
	}
	t.Logf("%d lives became active, and %d changes of members or M", begun[0], begun[1])
	require.Greater(t, begun[0], 500)
	require.Greater(t, begun[1], 500)
}
