package mirror

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
)

// What the arbiter holds counts where the members' newest record says that there is one. A mirror that has
// one does not begin without it (mirror §4.8).
func TestDecideWithAnArbiter(t *testing.T) {
	of := mirrorOf{n: 2, m: 1}
	for name, c := range map[string]struct {
		legs     []string
		flagged  string // members whose records say that there is an arbiter
		asked    bool
		held     string // at the arbiter
		degraded bool
		without  bool
		want     Outcome
		newest   string
		why      string
	}{
		"nobody asks it":                          {legs: []string{"A held 1.1{AB}", "B held 1.1{AB}"}, flagged: "AB", want: Refuse, newest: "1.1", why: "--arbiter"},
		"one record says so":                      {legs: []string{"A held 1.1{AB} 1.2{A}", "B held 1.1{AB}"}, flagged: "A", want: Refuse, newest: "1.2", why: "--arbiter"},
		"an operator does without":                {legs: []string{"A held 1.1{AB}", "B away"}, flagged: "A", degraded: true, without: true, want: Begin, newest: "1.1", why: "--degraded"},
		"an operator forgets it":                  {legs: []string{"A held 1.1{AB}", "B away"}, flagged: "A", degraded: true, want: Refuse, newest: "1.1", why: "--without-arbiter"},
		"only one that lost its contents says so": {legs: []string{"A held lost 1.1{AB} 2.1{AB}", "B held 1.1{AB}"}, flagged: "A", degraded: true, want: Refuse, newest: "1.1", why: "--without-arbiter"},
		"what it holds is away":                   {legs: []string{"A held 1.1{AB}", "B away"}, flagged: "A", asked: true, held: "1.1{AB} 1.2{B}", degraded: true, want: Refuse, newest: "1.2", why: "pmnbd mirror forget"},
		"it knows nothing":                        {legs: []string{"A held 1.1{AB}", "B held 1.1{AB}"}, flagged: "AB", asked: true, want: Refuse, newest: "1.1", why: "knows nothing"},
		"it is to learn it again":                 {legs: []string{"A held 1.1{AB}", "B held 1.1{AB}"}, flagged: "AB", asked: true, degraded: true, want: Begin, newest: "1.1", why: "every leg"},
		"the first time":                          {legs: []string{"A held 1.1{AB}", "B held 1.1{AB}"}, asked: true, want: Begin, newest: "1.1", why: "every leg"},
		"the first time, not all":                 {legs: []string{"A held 1.1{AB}", "B away"}, asked: true, want: Wait, newest: "1.1", why: "waits for B"},
		"begun without it since":                  {legs: []string{"A held 1.1{AB} 2.1{A}", "B held 1.1{AB}"}, flagged: "B", asked: true, held: "1.1{AB}", want: Begin, newest: "2.1", why: "every leg"},
		"it holds what no member has":             {legs: []string{"A held 1.1{AB}", "B held 1.1{AB}"}, flagged: "AB", asked: true, held: "1.1{AB} 1.2{B}", want: Begin, newest: "1.2", why: "the arbiter"},
		"nobody is there":                         {legs: []string{"A away", "B away"}, asked: true, held: "1.1{AB}", want: Wait, why: "none was reached"},
	} {
		t.Run(name, func(t *testing.T) {
			found := Found{Legs: of.legs(c.legs...), Asked: c.asked, Degraded: c.degraded, WithoutArbiter: c.without}
			for i := range found.Legs {
				l := &found.Legs[i]
				l.Record.Arbiter = l.known() && members(c.flagged).Has(int(l.Record.Slot))
			}
			if c.held != "" {
				found.Arbiter = record(2, 1, c.held)
				found.Arbiter.Arbiter = true
			}
			d := Decide(found)
			require.Equal(t, c.want, d.Outcome, d.Why)
			require.Contains(t, d.Why, c.why)
			if c.newest != "" {
				require.Equal(t, c.newest, d.Newest.String())
			}
			if d.Outcome != Begin {
				return
			}
			require.Equal(t, c.asked, d.Arbiter)
			v := Start(&d, 9, [16]byte{9})
			require.Equal(t, c.asked, v.Record.Arbiter, "the members learn whether there is one")
			require.Equal(t, c.asked, v.Arbitrated().Arbiter)
			require.NoError(t, new(v.Arbitrated()).Check())
		})
	}
}

// A generation takes the place of one that it descends from, and of no other.
func TestReplaces(t *testing.T) {
	v := View{Record: record(2, 1, "1.1{AB} 2.1{AB} 2.2{A}"), Life: 2, Nonce: ancestor("2.1{A}").Nonce, Arbiter: true, Pending: true}
	for held, want := range map[string]bool{
		"1.1{AB}": true, "1.1{AB} 2.1{AB}": true, "1.1{AB} 2.1{AB} 2.2{A}": true,
		"1.1{AB} 2'.1{AB}": false, "1.1{AB} 3.1{B}": false, "1.1{AB} 2.1{AB} 2.2{A} 2.3{AB}": false,
	} {
		r := record(2, 1, held)
		require.Equal(t, want, v.Replaces(&r), held)
	}
	other := record(2, 1, "1.1{AB}")
	other.Set[0]++
	require.False(t, v.Replaces(&other))
	none := persist.Record{}
	require.False(t, v.Replaces(&none), "it has forgotten what this life told it")
	v.Record = record(2, 1, "1.1{AB} 2.1{AB}")
	require.True(t, v.Replaces(&none), "the first generation of a life that decided to tell it")
	require.True(t, v.Own(new(record(2, 1, "1.1{AB} 2.1{AB}"))))
	require.False(t, v.Own(new(record(2, 1, "1.1{AB} 2'.1{AB}"))))
}
