package mirror

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
)

// Nobody gives up a member that a start copies to, or from. One that is half copied is given up where it alone
// says that the other side was there (mirror §4.6).
func TestParted(t *testing.T) {
	of := mirrorOf{4, 1, "D"}
	for _, c := range []struct {
		kept, leg  string
		want       bool
		also, name string
	}{
		{"B held 1.1{ABC} 1.2{BC}", "A held 1.1{ABC} 2.1{A}", true, "", "it went its own way"},
		{"B held 1.1{ABC} 2.1{B}", "A held 1.1{ABC} 1.2{AC}", true, "C", "so did another one"},
		{"B held 1.1{ABC} 2.1{B}", "A held 1.1{ABC} 1.2{AC} 3.1{A}", true, "C", "so did another one, in a life before"},
		{"B held 1.1{ABC} 1.2{B}", "A held 1.1{ABC}", false, "", "it is behind"},
		{"B held 1.1{ABC}", "A held 1.1{ABC} 1.2{A}", false, "", "the others are behind"},
		{"B held 1.1{ABC} 2.1{B}", "C held 1.1{ABC} 1.2{A}", false, "", "it is half copied, and older"},
		{"B held 1.1{ABC} 2.1{B}", "C held 1.1{ABC} 3.1{A}", true, "", "it is half copied, and newer"},
		{"B held 1.1{ABC} 2.1{B}", "C held 1.1{ABC} 2'.1{A}", true, "", "it is half copied, and as new"},
		{"B held 1.1{ABC} 2.1{B}", "D held follows 1.1{ABC} 3.1{A}", true, "", "it follows, and is newer"},
		{"B held 1.1{ABC}", "C held 1.1{ABC} 3.1{A}", false, "", "it is half copied from one that is away"},
	} {
		t.Run(c.name, func(t *testing.T) {
			kept, l := of.leg(c.kept), of.leg(c.leg)
			require.Equal(t, c.want, l.Parted(&kept.Record))
			if c.want {
				require.Equal(t, members(c.also).String(), l.GivenUpWith(&kept.Record).String())
			}
		})
	}
}

// parted makes members of one mirror, each with a record of any life. Each life is a chain.
func (next numbers) parted() (legs []Leg) {
	n := 2 + next(persist.MaxMembers-1)
	tree := []persist.Record{record(n, 1, "1.1{"+persist.Members(1<<n-1).String()+"}")}
	for i := range 2 + next(6) {
		at := next(len(tree))
		r := tree[at]
		g := persist.Generation{Life: r.Life, Count: r.Count + 1, Nonce: r.Nonce}
		last := !slices.ContainsFunc(tree, func(o persist.Record) bool { return o.Generation == g })
		if !last || next(2) == 0 {
			g = persist.Generation{Life: r.Life + 1 + uint64(next(2)), Count: 1, Nonce: [16]byte{byte(i), 1}}
		}
		tree = append(tree, Descend(&r, g, persist.Members(1+next(1<<n-1))))
	}
	for slot := range n {
		l := Leg{Reach: Probed, Record: tree[next(len(tree))], Contents: contents(slot), Epoch: 5}
		l.Record.Slot = uint8(slot)
		l.Record.Torn = l.Torn()
		legs = append(legs, l)
	}
	return legs
}

// Once everybody has been given up who has to be, no start sees a split brain, whichever side is kept, and whoever of
// the others was half copied.
func TestDiscardsEndASplit(t *testing.T) {
	next := numbers(rand.New(rand.NewPCG(4, 6)).IntN)
	splits, witnesses := 0, 0
	for range 20_000 {
		f := Found{Legs: next.parted()}
		keep := &f.Legs[next(len(f.Legs))]
		m := keep.Record
		if keep.Torn() || !Decide(f).SplitBrain {
			continue
		}
		newer, given := false, 0 // the mirror goes on with a newer one
		for i := range f.Legs {
			l := &f.Legs[i]
			if l.Parted(&m) {
				if l.Torn() {
					given++
				}
				l.Record, l.Contents = m, [16]byte{7}
				l.Record.Slot = uint8(i)
				l.Record.Torn = l.Torn()
			} else if m.Before(l.Record.Generation) {
				newer = true
			}
		}
		if newer || slices.ContainsFunc(f.Legs, func(l Leg) bool { return m.F.Has(int(l.Record.Slot)) && l.Contents == [16]byte{7} }) {
			continue // the others cannot begin without one that they would give up
		}
		splits, witnesses = splits+1, witnesses+given
		d := Decide(f)
		require.False(t, d.SplitBrain, "%v{%v} is kept: %s", m.Generation, m.F, d.Why)
	}
	t.Log(splits, witnesses)
	require.Greater(t, min(splits, witnesses), 100)
}
