package mirror

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
)

// serving makes the View of a life whose newest generation is active, with all of F equal.
func serving(n, minCopies int, f string) View {
	v := View{Record: record(n, minCopies, "1.1{"+f+"}"), Life: 1, Nonce: [16]byte{1}, Active: members(f), Equal: members(f)}
	v.Record.Nonce = v.Nonce
	return v
}

// Who may be removed, and what the mirror is afterwards (mirror §4.9).
func TestRemove(t *testing.T) {
	for name, c := range map[string]struct {
		view View
		slot int
		f    string
		err  error
	}{
		"one of three":                  {serving(3, 2, "ABC"), 2, "AB", nil},
		"one that is away":              {serving(3, 2, "AB"), 2, "AB", nil},
		"one whose copy M needs":        {serving(3, 2, "AB"), 1, "", ErrBelowMin},
		"the last equal one":            {serving(3, 1, "A"), 0, "", ErrBelowMin},
		"one of two":                    {serving(2, 1, "AB"), 1, "", ErrTwo},
		"one that is none":              {serving(3, 1, "ABC"), 3, "", ErrNoMember},
		"one that cannot be":            {serving(3, 1, "ABC"), -1, "", ErrNoMember}, // no letter of a member
		"the only equal one of several": {func() View { v := serving(3, 1, "AB"); v.Equal = 1; return v }(), 0, "", ErrNoneEqual},
		"during a change":               {func() View { v := serving(3, 1, "ABC"); v.Pending = true; return v }(), 2, "", ErrChanging},
		"before the life serves":        {func() View { v := serving(3, 1, "ABC"); v.Active = 0; return v }(), 2, "", ErrChanging},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := c.view.Remove(c.slot)
			require.ErrorIs(t, err, c.err)
			if err != nil {
				require.Equal(t, c.view, v)
				return
			}
			require.Equal(t, members(c.f), v.Record.F)
			require.Equal(t, c.view.Record.Present()&^persist.Member(c.slot), v.Record.Present())
			require.True(t, c.view.Record.Before(v.Record.Generation))
			r, fill := v.RecordFor(0)
			require.NoError(t, r.Check())
			require.Zero(t, fill&^r.Present(), "bits of a member that is none")
			require.Equal(t, Electorate{c.view.Record.Present(), c.view.Record.MinCopies}, v.Before)
			gone := Leg{Reach: Held, Record: c.view.Record, Contents: contents(c.slot), Epoch: 5}
			gone.Record.Slot = uint8(c.slot)
			require.Equal(t, Stranger, v.Meet(&gone))
			require.Zero(t, v.Activated().Before)
		})
	}
}

// A member that is added lacks everything, and is outside F.
// A generation that replaces one which removes a member sets no bits of that member: a target refuses that,
// and the generation would never be active.
func TestRemoveThenLetGo(t *testing.T) {
	v, err := serving(4, 1, "ABC").Remove(2)
	require.NoError(t, err)
	v, err = v.LetGo(1, true)
	require.NoError(t, err)
	r, fill := v.RecordFor(0)
	require.Equal(t, members("A"), r.F)
	require.Equal(t, members("ABD"), r.Present())
	require.Equal(t, members("B"), fill)
	require.Equal(t, members("B"), v.Lacking)
}

func TestAdd(t *testing.T) {
	v := serving(2, 1, "AB")
	next, err := v.Add(2, uuid(2), 7)
	require.NoError(t, err)
	require.Equal(t, members("AB"), next.Record.F)
	require.Equal(t, members("ABC"), next.Record.Present())
	for slot := range 2 {
		r, fill := next.RecordFor(slot)
		require.NoError(t, r.Check())
		require.Equal(t, members("C"), fill)
	}
	l := Leg{Reach: Held, Contents: contents(2), Epoch: 8}
	l.Record, _ = next.RecordFor(2)
	require.True(t, l.Lost(&next.Record), "no record names what it holds")
	next = next.Activated()
	require.Equal(t, ResyncAll, next.Meet(&l))

	_, err = v.Add(1, uuid(2), 7)
	require.ErrorIs(t, err, ErrFull)
	_, err = v.Add(2, uuid(1), 7)
	require.ErrorIs(t, err, ErrFull)
	v.Pending = true
	_, err = v.Add(2, uuid(2), 7)
	require.ErrorIs(t, err, ErrChanging)
}

func TestSetMinCopies(t *testing.T) {
	v := serving(3, 2, "AB")
	for m, want := range map[int]error{0: ErrMinCopies, 1: nil, 2: nil, 3: ErrBelowMin, 4: ErrMinCopies} {
		next, err := v.SetMinCopies(m)
		require.ErrorIs(t, err, want, m)
		require.Equal(t, err == nil && m != 2, next.Pending, m)
		if err == nil {
			require.EqualValues(t, m, next.Record.MinCopies)
			require.Equal(t, v.Record.F, next.Record.F)
		}
	}
}

// While a smaller M is not active yet, its life must not use it: B and C know of M = 2 alone, and a
// start that holds both could begin (mirror §4.9).
func TestSmallerMinCopiesIsNotUsedEarly(t *testing.T) {
	v, err := serving(3, 2, "ABC").SetMinCopies(1)
	require.NoError(t, err)
	v, err = v.LetGo(2, false)
	require.NoError(t, err)
	_, err = v.LetGo(1, false)
	require.ErrorIs(t, err, ErrMajority)
	_, err = v.Activated().LetGo(1, false)
	require.NoError(t, err)

	// Of two members none is a majority, so M = 2 never let one begin alone.
	v, err = serving(2, 2, "AB").SetMinCopies(1)
	require.NoError(t, err)
	_, err = v.LetGo(1, false)
	require.NoError(t, err)
}

// Until a change is active, another life may begin by the membership before, too (mirror §4.7, §4.9).
func TestElectorates(t *testing.T) {
	v := serving(3, 2, "ABC")
	require.Equal(t, [2]Electorate{{members("ABC"), 2}}, v.Electorates())
	v, err := v.SetMinCopies(1)
	require.NoError(t, err)
	require.Equal(t, [2]Electorate{{}, {members("ABC"), 2}}, v.Electorates())
	v = v.Activated()
	require.Equal(t, [2]Electorate{}, v.Electorates())
	v, err = serving(3, 2, "ABC").Remove(2)
	require.NoError(t, err)
	require.Equal(t, [2]Electorate{{members("AB"), 2}, {members("ABC"), 2}}, v.Electorates())
}

// A start that finds a smaller M at one member of F alone begins with all of F (mirror §4.9).
func TestStartInAChange(t *testing.T) {
	v, err := serving(3, 2, "ABC").SetMinCopies(1)
	require.NoError(t, err)
	legs := mirrorOf{n: 3, m: 2}.legs("A held 1.1{ABC}", "B held 1.1{ABC}", "C held 1.1{ABC}")
	legs[0].Record, _ = v.RecordFor(0)
	d := Decide(Found{Legs: legs})
	require.Equal(t, Begin, d.Outcome, d.Why)
	require.Equal(t, members("ABC"), d.F)
	require.Equal(t, members("A"), d.Equal)
	require.Equal(t, Electorate{members("ABC"), 2}, d.Before)
	next := Start(&d, 2, [16]byte{2})
	require.Equal(t, d.Before, next.Before)
	next, err = next.LetGo(2, false)
	require.NoError(t, err)
	_, err = next.LetGo(1, false)
	require.ErrorIs(t, err, ErrMajority)
	for slot := range legs { // all of F know of it
		legs[slot].Record, _ = v.RecordFor(slot)
	}
	d = Decide(Found{Legs: legs})
	require.Equal(t, members("A"), d.F)
	require.Zero(t, d.Before)
}

// created are starts of a mirror that has never begun (mirror §4.2).
var created = []start{
	{name: "4.2 half made", n: 3, m: 2, legs: []string{"A held clean created 1.1{ABC}", "B held clean created 1.1{ABC}", "C held"},
		want: Wait, waits: "C", why: "can be run again"},
	{name: "4.2 perhaps half made", n: 3, m: 2, legs: []string{"A held clean created 1.1{ABC}", "B held clean created 1.1{ABC}", "C away"},
		want: Wait, waits: "C", why: "its first start needs all members"},
	{name: "4.2 made, and one grants no session", n: 3, m: 2, legs: []string{"A held clean created 1.1{ABC}", "B held clean created 1.1{ABC}", "C refused created 1.1{ABC}"},
		want: Begin, f: "AB", eq: "AB", clean: true},
	{name: "4.2 made", n: 3, m: 2, legs: []string{"A held clean created 1.1{ABC}", "B held clean created 1.1{ABC}", "C held clean created 1.1{ABC}"},
		want: Begin, f: "ABC", eq: "ABC", clean: true},
	{name: "4.2 the one to keep gets its record last", n: 3, m: 1, legs: []string{"A held clean created 1.1{A}", "B away", "C away"},
		want: Begin, f: "A", eq: "A", clean: true},
	{name: "4.2 half made, by force", n: 3, m: 2, legs: []string{"A held clean created 1.1{ABC}", "B held clean created 1.1{ABC}", "C held"}, degraded: true,
		want: Begin, f: "AB", eq: "AB", clean: true, why: "--degraded"},
	{name: "4.2c half made", n: 2, m: 1, arbiter: "created 1.1{AB}", legs: []string{"A held clean created 1.1{AB}", "B held"},
		want: Wait, waits: "B", why: "can be run again"},
	{name: "4.2c perhaps half made", n: 2, m: 1, arbiter: "created 1.1{AB}", legs: []string{"A held clean created 1.1{AB}", "B away"},
		want: Wait, waits: "B", why: "its first start needs all members"},
	{name: "4.2c made, and one grants no session", n: 2, m: 1, arbiter: "created 1.1{AB}", legs: []string{"A held clean created 1.1{AB}", "B refused created 1.1{AB}"},
		want: Begin, f: "A", eq: "A", clean: true, why: "the arbiter"},
	{name: "4.2c the one to keep gets its record last", n: 2, m: 1, arbiter: "created 1.1{A}", legs: []string{"A held clean created 1.1{A}", "B away"},
		want: Begin, f: "A", eq: "A", clean: true, why: "every leg"},
	{name: "4.2c half made, by force", n: 2, m: 1, arbiter: "created 1.1{AB}", legs: []string{"A held clean created 1.1{AB}", "B held"}, degraded: true,
		want: Begin, f: "A", eq: "A", clean: true, why: "--degraded"},
	{name: "4.2c begun, and a member is away", n: 2, m: 1, arbiter: "1.1{AB}", legs: []string{"A held 1.1{AB}", "B away"},
		want: Begin, f: "A", eq: "A", fill: "B", why: "the arbiter"},
}

func TestDecideCreated(t *testing.T) {
	for _, c := range created {
		t.Run(c.name, c.test)
	}
}
