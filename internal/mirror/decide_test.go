package mirror

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
)

// A start is a situation, and what Decide makes of it. Sets of members are letters.
type start struct {
	name     string
	n, m     int
	legs     []string
	degraded bool
	prefer   string
	read     bool // clients have read from those
	arbiter  string
	async    string // members that follow

	want        Outcome
	f, eq, fill string
	waits, open string
	clean       bool
	split       bool
	why         string // is in Why
}

func (c *start) test(t *testing.T) {
	of := mirrorOf{c.n, c.m, c.async}
	found := Found{Legs: of.legs(c.legs...), Degraded: c.degraded, Prefer: members(c.prefer), Read: c.read}
	if c.arbiter != "" {
		found.Asked, found.Arbiter = true, record(c.n, c.m, c.arbiter)
		for i := range found.Legs {
			found.Legs[i].Record.Arbiter = found.Legs[i].known()
		}
		found.Arbiter.Arbiter = true
		found.Arbiter.Async = members(c.async)
	}
	d := Decide(found)
	t.Log(d.Why)
	require.Equal(t, c.want, d.Outcome, d.Why)
	for what, pair := range map[string][2]persist.Members{
		"F": {members(c.f), d.F}, "Equal": {members(c.eq), d.Equal}, "Fill": {members(c.fill), d.Fill},
		"Waits": {members(c.waits), d.Waits}, "Open": {members(c.open), d.Open},
	} {
		require.Equal(t, pair[0].String(), pair[1].String(), what)
	}
	require.Equal(t, c.clean, d.Clean, "clean")
	require.Equal(t, c.split, d.SplitBrain, "split brain")
	require.Contains(t, d.Why, c.why)
	require.NotEmpty(t, d.Why)
	for _, legs := range permuted(found.Legs) {
		found.Legs = legs
		require.Equal(t, d, Decide(found), "in another order")
	}
}

func TestDecide(t *testing.T) {
	for _, list := range [][]start{starts, proofs, sources, contentsOf, torn, splits, mistakes, followers} {
		for _, c := range list {
			t.Run(c.name, c.test)
		}
	}
}

// starts are steps of a start (mirror §4.1).
var starts = []start{
	{name: "4.1 nobody was reached", n: 2, m: 1, legs: []string{"A away", "B away"},
		want: Wait, why: "none was reached"},
	{name: "4.1 probed members are opened first", n: 2, m: 1, legs: []string{"A probed 1.1{AB}", "B probed 1.1{AB}"},
		want: Open, open: "AB"},
	{name: "4.1 one more is opened before a start with what is held", n: 2, m: 1, legs: []string{"A held 1.1{AB} 1.2{A}", "B probed 1.1{AB}"},
		want: Open, open: "B"},
	{name: "4.1 nothing is opened before the start can succeed", n: 2, m: 1, legs: []string{"A probed 1.1{AB}", "B away"},
		want: Wait, waits: "B", why: "B was not reached"},
	{name: "4.1 a member that grants no session is waited for", n: 2, m: 1, legs: []string{"A held 1.1{AB}", "B refused 1.1{AB}"},
		want: Wait, waits: "B", why: "B (b.example) grants no session"},
	{name: "4.1 a member outside F that grants no session is not", n: 2, m: 1, legs: []string{"A held clean 1.1{AB} 1.2{A}", "B refused 1.1{AB}"},
		want: Begin, f: "A", eq: "A", clean: true},
	{name: "4.1 nobody waits for a failed member outside F", n: 2, m: 1, legs: []string{"A held clean 1.1{AB} 1.2{A}", "B probed failed 1.1{AB}"},
		want: Begin, f: "A", eq: "A", clean: true},
	{name: "4.1 a failed member of F is waited for", n: 2, m: 1, legs: []string{"A held 1.1{AB}", "B held failed 1.1{AB}"},
		want: Wait, waits: "B", why: "B (b.example) failed"},
}

// proofs are reasons to begin (mirror §4.2).
var proofs = []start{
	{name: "4.2a every leg of F", n: 2, m: 1, legs: []string{"A held clean 1.1{AB}", "B held 1.1{AB}"},
		want: Begin, f: "AB", eq: "AB", clean: true, why: "every leg of F"},
	{name: "4.2a the one that says that it is alone", n: 2, m: 1, legs: []string{"A held clean 1.1{AB} 1.2{A}", "B away"},
		want: Begin, f: "A", eq: "A", clean: true},
	{name: "4.2a the other one waits for it", n: 2, m: 1, legs: []string{"A away", "B held clean 1.1{AB}"},
		want: Wait, waits: "A"},
	{name: "4.2 numbers of a later life are newer", n: 3, m: 2, legs: []string{"A held 1.1{ABC} 2.1{AC}", "B held 1.1{ABC} 1.2{BC} 1.3{BC}", "C held 1.1{ABC}"},
		want: Begin, f: "AC", eq: "A", fill: "BC", why: "2.1{AC}"},
	{name: "4.2b a majority", n: 3, m: 2, legs: []string{"A held clean 1.1{ABC}", "B held 1.1{ABC}", "C away"},
		want: Begin, f: "AB", eq: "AB", clean: true, why: "a majority"},
	{name: "4.2b a majority with one of F copies first", n: 3, m: 2, legs: []string{"A held 1.1{ABC} 1.2{AB}", "B away", "C held 1.1{ABC}"},
		want: Copy, eq: "A", fill: "BC", why: "the least number of copies is 2"},
	{name: "4.2b one of three is none", n: 3, m: 2, legs: []string{"A held 1.1{ABC}", "B away", "C away"},
		want: Wait, waits: "BC", why: "2 of 3 members would do"},
	{name: "4.2b M = 1 of three needs all of F", n: 3, m: 1, legs: []string{"A held 1.1{ABC}", "B held 1.1{ABC}", "C away"},
		want: Wait, waits: "C"},
	{name: "4.2b M = 2 of four needs all of F", n: 4, m: 2, legs: []string{"A held 1.1{ABCD}", "B held 1.1{ABCD}", "C held 1.1{ABCD}", "D away"},
		want: Wait, waits: "D"},
	{name: "4.2b three of four", n: 4, m: 3, legs: []string{"A held 1.1{ABCD}", "B held clean 1.1{ABCD}", "C held 1.1{ABCD}", "D away"},
		want: Begin, f: "ABC", eq: "ABC", clean: true},
	{name: "4.2b two of four are no majority", n: 4, m: 3, legs: []string{"A held 1.1{ABCD}", "B held 1.1{ABCD}", "C away", "D away"},
		want: Wait, waits: "CD", why: "3 of 4"},
	{name: "4.2b probes are no sessions", n: 3, m: 2, legs: []string{"A held 1.1{ABC}", "B refused 1.1{ABC}", "C refused 1.1{ABC}"},
		want: Wait, waits: "BC"},
	{name: "4.2c a leg of the F that the arbiter holds", n: 2, m: 1, arbiter: "1.1{AB} 1.2{A}", legs: []string{"A held 1.1{AB}", "B held 1.1{AB}"},
		want: Begin, f: "A", eq: "A", fill: "B", why: "the arbiter"},
	{name: "4.2c not one of another F", n: 2, m: 1, arbiter: "1.1{AB} 1.2{A}", legs: []string{"A away", "B held 1.1{AB}"},
		want: Wait, waits: "A"},
	{name: "4.2d degraded", n: 2, m: 1, degraded: true, legs: []string{"A away", "B held 1.1{AB}"},
		want: Begin, f: "B", eq: "B", fill: "A", why: "--degraded"},
	{name: "4.2d degraded without a leg of F", n: 3, m: 1, degraded: true, legs: []string{"A away", "B held lost 1.1{ABC} 1.2{AB}", "C refused lost 1.1{ABC}"},
		want: Refuse, why: "each lost its contents"},
	{name: "4.2d degraded, and nobody there yet", n: 2, m: 1, degraded: true, legs: []string{"A away", "B away"},
		want: Wait},
	{name: "4.2d degraded, and its lease has not ended", n: 2, m: 1, degraded: true, legs: []string{"A away", "B refused 1.1{AB}"},
		want: Wait, waits: "AB"},
}

// sources are sources, and those that lack something (mirror §4.3, §4.4).
var sources = []start{
	{name: "4.3 closed at any leg of F", n: 2, m: 1, legs: []string{"A held 1.1{AB}", "B held clean 1.1{AB}"},
		want: Begin, f: "AB", eq: "AB", clean: true},
	{name: "4.3 closed outside F says nothing", n: 2, m: 1, legs: []string{"A held 1.1{AB} 1.2{A}", "B held clean 1.1{AB}"},
		want: Begin, f: "A", eq: "A", fill: "B"},
	{name: "4.3 closed with an older record says nothing", n: 3, m: 2, legs: []string{"A held 1.1{ABC} 2.1{ABC}", "B held clean 1.1{ABC}", "C held 1.1{ABC}"},
		want: Begin, f: "ABC", eq: "A", fill: "BC"},
	{name: "4.4 M = 1 begins with the source", n: 2, m: 1, legs: []string{"A held 1.1{AB}", "B held 1.1{AB}"},
		want: Begin, f: "A", eq: "A", fill: "B"},
	{name: "4.4 it prefers the one that was read from", n: 2, m: 1, prefer: "B", legs: []string{"A held 1.1{AB}", "B held 1.1{AB}"},
		want: Begin, f: "B", eq: "B", fill: "A"},
	{name: "4.4 the source has lost no place", n: 3, m: 2, prefer: "A", legs: []string{"A held bad 1.1{ABC}", "B held 1.1{ABC}", "C held 1.1{ABC}"},
		want: Begin, f: "ABC", eq: "B", fill: "AC"},
	{name: "4.4 it has if clients have read from it", n: 3, m: 2, prefer: "A", read: true, legs: []string{"A held bad 1.1{ABC}", "B held 1.1{ABC}", "C held 1.1{ABC}"},
		want: Begin, f: "ABC", eq: "A", fill: "BC"},
	{name: "4.4 it waits for the one that clients have read from", n: 3, m: 2, prefer: "A", read: true, legs: []string{"A away", "B held 1.1{ABC}", "C held 1.1{ABC}"},
		want: Wait, waits: "A", why: "clients have read from there"},
	{name: "4.4 and opens nobody meanwhile", n: 3, m: 2, prefer: "A", read: true, legs: []string{"A away", "B probed 1.1{ABC}", "C probed 1.1{ABC}"},
		want: Wait, waits: "A", why: "clients have read from there"},
	{name: "4.4 but one that may have closed it", n: 3, m: 2, prefer: "A", read: true, legs: []string{"A away", "B probed clean 1.1{ABC}", "C probed 1.1{ABC}"},
		want: Open, open: "BC"},
	{name: "4.4 --degraded does not", n: 3, m: 2, degraded: true, prefer: "A", read: true, legs: []string{"A away", "B held 1.1{ABC}", "C held 1.1{ABC}"},
		want: Begin, f: "BC", eq: "B", fill: "AC"},
	{name: "4.4 nor one that had the same bytes as another", n: 3, m: 2, prefer: "ABC", read: true, legs: []string{"A away", "B held 1.1{ABC}", "C held 1.1{ABC}"},
		want: Begin, f: "BC", eq: "B", fill: "AC"},
	{name: "4.4 it has if all have", n: 2, m: 1, prefer: "B", legs: []string{"A held bad 1.1{AB}", "B held bad 1.1{AB}"},
		want: Begin, f: "B", eq: "B", fill: "A"},
	{name: "4.4 it prefers nobody who is not in F", n: 2, m: 1, prefer: "B", legs: []string{"A held 1.1{AB} 1.2{A}", "B held 1.1{AB}"},
		want: Begin, f: "A", eq: "A", fill: "B"},
	{name: "4.4 M = 2 begins with all of F that is held", n: 3, m: 2, legs: []string{"A held 1.1{ABC}", "B held 1.1{ABC}", "C held 1.1{ABC}"},
		want: Begin, f: "ABC", eq: "A", fill: "BC"},
	{name: "4.4 too few copies", n: 3, m: 2, degraded: true, legs: []string{"A held clean 1.1{ABC}", "B away", "C away"},
		want: Copy, eq: "A", clean: true},
}

// contentsOf are members without the contents that the newest record names (mirror §3.6, §4.2).
var contentsOf = []start{
	{name: "3.6 booted: waits for an operator", n: 2, m: 1, legs: []string{"A held 1.1{AB}", "B held lost 1.1{AB}"},
		want: Wait, waits: "B", why: "--degraded begins with what A (a.example) has"},
	{name: "3.6 booted, degraded", n: 2, m: 1, degraded: true, legs: []string{"A held 1.1{AB}", "B held lost 1.1{AB}"},
		want: Begin, f: "A", eq: "A", fill: "B"},
	{name: "3.6 put back from a copy", n: 2, m: 1, legs: []string{"A held 1.1{AB}", "B held restored 1.1{AB}"},
		want: Wait, waits: "B", why: "B (b.example) lost its contents"},
	{name: "3.6 is not part of a majority", n: 3, m: 2, legs: []string{"A held 1.1{ABC}", "B held lost 1.1{ABC}", "C away"},
		want: Wait, waits: "BC"},
	{name: "3.6 gets all bits, after a clean end, too", n: 3, m: 2, legs: []string{"A held clean 1.1{ABC}", "B held 1.1{ABC}", "C held lost 1.1{ABC}"},
		want: Begin, f: "AB", eq: "AB", fill: "C", clean: true},
	{name: "3.6 its record still counts", n: 2, m: 1, legs: []string{"A held lost 1.1{AB} 1.2{A}", "B held 1.1{AB}"},
		want: Refuse, why: "the data are gone"},
	{name: "3.6 its record does not count for an operator", n: 2, m: 1, degraded: true, legs: []string{"A held lost 1.1{AB} 1.2{A}", "B held 1.1{AB}"},
		want: Begin, f: "B", eq: "B", fill: "A"},
	{name: "8 all are gone", n: 2, m: 1, legs: []string{"A probed lost 1.1{AB}", "B probed lost 1.1{AB}"},
		want: Refuse, why: "the data are gone"},
	{name: "8 all are gone, degraded", n: 2, m: 1, degraded: true, legs: []string{"A probed lost 1.1{AB}", "B probed lost 1.1{AB}"},
		want: Refuse, why: "each lost its contents"},
	{name: "8 one may still have them", n: 2, m: 1, legs: []string{"A probed lost 1.1{AB}", "B away"},
		want: Wait, waits: "AB"},
}

// torn are members that are half copied (mirror §5.1).
var torn = []start{
	{name: "5.1 waits for the source", n: 2, m: 1, legs: []string{"A away", "B held 1.1{AB} 1.2{A}"},
		want: Wait, waits: "A", why: "half copied"},
	{name: "5.1 nothing newer is known, degraded", n: 2, m: 1, degraded: true, legs: []string{"A away", "B held 1.1{AB} 1.2{A}"},
		want: Refuse, why: "half copied"},
	{name: "5.1 another has the same generation", n: 3, m: 2, legs: []string{"A held 1.1{ABC} 1.2{BC}", "B held 1.1{ABC} 1.2{BC}", "C away"},
		want: Copy, eq: "B", fill: "AC"},
	{name: "5.1 a newer one is known, with it in F", n: 2, m: 1, prefer: "B", legs: []string{"A held 1.1{AB} 1.2{A} 1.3{AB}", "B held 1.1{AB} 1.2{A}"},
		want: Begin, f: "B", eq: "B", fill: "A"},
	{name: "5.1 degraded goes back to one that is whole", n: 3, m: 1, degraded: true, legs: []string{"A away", "B held 1.1{ABC} 1.2{A}", "C held 1.1{ABC}"},
		want: Begin, f: "C", eq: "C", fill: "AB"},
	{name: "5.1 it cannot have gone its own way", n: 3, m: 1, legs: []string{"A away", "B held 1.1{ABC} 1.2{A}", "C held 1.1{ABC} 2.1{C}"},
		want: Begin, f: "C", eq: "C", fill: "AB"},
}

// splits are members that went their own way, and some that did not (mirror §4.6).
var splits = []start{
	{name: "4.6 both were alone", n: 2, m: 1, legs: []string{"A probed 1.1{AB} 1.2{A}", "B probed 1.1{AB} 2.1{B}"},
		want: Refuse, split: true, why: "A (a.example) went another way"},
	{name: "4.6 not even degraded", n: 2, m: 1, degraded: true, legs: []string{"A held 1.1{AB} 1.2{A}", "B held 1.1{AB} 2.1{B}"},
		want: Refuse, split: true},
	{name: "4.2 two lives of one number", n: 2, m: 1, legs: []string{"A held 1.1{AB} 2.1{A}", "B held 1.1{AB} 2'.1{B}"},
		want: Refuse, split: true},
	{name: "4.6 what never was active is no way", n: 3, m: 2, legs: []string{"A held 1.1{ABC} 2.1{AC}", "B held 1.1{ABC} 1.2{BC}", "C held 1.1{ABC} 2.1{AC}"},
		want: Begin, f: "AC", eq: "A", fill: "BC"},
	{name: "4.6 a member of F may be behind", n: 3, m: 2, legs: []string{"A held 1.1{ABC}", "B held 1.1{ABC} 1.2{AB}", "C away"},
		want: Begin, f: "AB", eq: "A", fill: "BC"},
	{name: "4.6 a half copied member alone knows the other side", n: 3, m: 1, legs: []string{"A away", "B held 1.1{ABC} 3.1{A}", "C held 1.1{ABC} 2.1{C}"},
		want: Refuse, split: true, why: "C (c.example) went another way than generation 3.1{A}, which only B (b.example) knows, half copied"},
	{name: "4.6 the other side, that was given up, is known to members that were not", n: 4, m: 1, legs: []string{"A held 1.1{ABCD} 2.1{C}", "B held 1.1{ABCD} 3.1{A}", "C held 1.1{ABCD} 2.1{C}", "D held 1.1{ABCD} 3.1{A}"},
		want: Refuse, split: true, why: "which only B (b.example) and D (d.example) know, half copied"},
	{name: "4.6 the other side is known to its member", n: 3, m: 1, legs: []string{"A held 1.1{ABC} 3.1{A}", "B held 1.1{ABC} 3.1{A}", "C held 1.1{ABC} 2.1{C}"},
		want: Refuse, split: true, why: "than generation 3.1{A}: choose"},
	{name: "4.6 a degraded start goes without a half copied member", n: 3, m: 1, degraded: true, legs: []string{"A away", "B held 1.1{ABC} 3.1{A}", "C held 1.1{ABC} 2.1{C}"},
		want: Begin, f: "C", eq: "C", fill: "AB"},
	{name: "4.6 a leg is newer than the arbiter", n: 2, m: 1, arbiter: "1.1{AB}", legs: []string{"A held 1.1{AB} 1.2{A}", "B held 1.1{AB}"},
		want: Refuse, split: true},
}

// mistakes are targets that make no mirror.
var mistakes = []start{
	{name: "no member at all", n: 2, m: 1, legs: []string{"A probed"}, want: Refuse, why: "no target is a member"},
	{name: "no member beside one that is away", n: 2, m: 1, legs: []string{"A probed", "B away"}, want: Wait,
		why: "none was reached; no mirror has a.example"},
	{name: "a region that was made anew", n: 2, m: 1, legs: []string{"A probed 1.1{AB}", "B probed"}, want: Wait, waits: "B"},
	{name: "one region twice", n: 2, m: 1, legs: []string{"A probed 1.1{AB}", "A probed 1.1{AB}"}, want: Refuse, why: "one region"},
}

// TestDecideSets has targets of two mirrors.
func TestDecideSets(t *testing.T) {
	found := Found{Legs: mirrorOf{n: 2, m: 1}.legs("A probed 1.1{AB}", "B probed 1.1{AB}")}
	found.Legs[1].Record.Set = [16]byte{7}
	d := Decide(found)
	require.Equal(t, Refuse, d.Outcome)
	require.Contains(t, d.Why, "another mirror")
}

// TestDecideRemoved has a target that was a member. It counts for nothing, unless it went its own
// way (mirror §4.6).
func TestDecideRemoved(t *testing.T) {
	found := Found{Legs: mirrorOf{n: 2, m: 1}.legs("A held clean 1.1{AB} 1.2{A}", "B held 1.1{AB}")}
	found.Legs[0].Record.Members[1].UUID = [16]byte{7}
	d := Decide(found)
	require.Equal(t, Begin, d.Outcome, d.Why)
	require.Equal(t, "A", d.F.String())

	found.Legs[1] = mirrorOf{n: 2, m: 1}.leg("B held 1.1{AB} 2.1{B}")
	found.Legs[1].Record.Life = 1 // older than 1.2, and unknown to it
	found.Legs[1].Record.Nonce = [16]byte{8}
	d = Decide(found)
	require.True(t, d.SplitBrain, d.Why)
	require.Contains(t, d.Why, "B (b.example) is no member any more: to give it up, take its target out of --target")
}

// TestDecideRenewed stops between the records of Renew at A and at B: C has what one of them names
// (mirror §3.6).
func TestDecideRenewed(t *testing.T) {
	found := Found{Legs: mirrorOf{n: 3, m: 2}.legs("A held 1.1{ABC} 1.2{AB}", "B away", "C held lost 1.1{ABC}")}
	found.Legs[0].Record.Members[2].Contents = found.Legs[2].Contents
	require.Equal(t, Copy, Decide(found).Outcome, "A and C are a majority")
	found.Legs[1] = mirrorOf{n: 3, m: 2}.leg("B refused 1.1{ABC} 1.2{AB}")
	require.Equal(t, Wait, Decide(found).Outcome)
}

// TestDecidePassedOver is degraded, and B lost what its own record promises. The record of C, which
// is older, does not notice that, but B is no source (mirror §3.6).
func TestDecidePassedOver(t *testing.T) {
	found := Found{Degraded: true, Prefer: members("B"), Legs: mirrorOf{n: 3, m: 1}.legs("A away", "B held 1.1{ABC} 1.2{B}", "C held 1.1{ABC}")}
	require.Equal(t, "B", Decide(found).Equal.String())
	found.Legs[1].Record.Members[1].Epoch = 7
	d := Decide(found)
	require.Equal(t, "1.1", d.Newest.String())
	require.Equal(t, "C", d.Equal.String())
}

func TestNextLife(t *testing.T) {
	found := Found{Legs: mirrorOf{n: 2, m: 1}.legs("A probed 1.1{AB} 3.1{A}", "B probed 1.1{AB}", "C away")}
	require.EqualValues(t, 4, NextLife(&found))
	found.Legs[1].Life = 7 // it opened B, and began nothing
	require.EqualValues(t, 8, NextLife(&found))
}

// TestEpochs checks that a generation names the epochs of the sessions that began it (mirror §3.6).
func TestEpochs(t *testing.T) {
	found := Found{Legs: mirrorOf{n: 2, m: 1}.legs("A held clean 1.1{AB}", "B held 1.1{AB}")}
	found.Legs[0].Epoch = 9
	d := Decide(found)
	v := Start(&d, 2, [16]byte{2})
	r, _ := v.RecordFor(1)
	require.EqualValues(t, 9, r.Members[0].Epoch)
	require.EqualValues(t, 5, r.Members[1].Epoch)
	require.EqualValues(t, 1, r.Slot)
	require.NoError(t, r.Check())
}
