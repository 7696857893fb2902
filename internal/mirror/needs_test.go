package mirror

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
)

// A smaller M may replace a pending generation, which may need a member that is gone for good: then this one can be
// let go. What starts can begin by stays in mind (mirror §4.9).
func TestSmallerMinCopiesEndsAWait(t *testing.T) {
	add := func(v View) (View, error) { return v.Add(3, uuid(4), 7) }
	for name, c := range map[string]struct {
		v    View
		do   func(v View) (View, error)
		m    int
		gone []int // members, one after the other
		want error
	}{
		"two of four, let go one by one": {v: serving(4, 3, "ABCD"), do: func(v View) (View, error) { return v.LetGo(2, false) }, m: 2, gone: []int{3}},
		"one of three is a minority":     {v: serving(3, 2, "ABC"), do: func(v View) (View, error) { return v.LetGo(2, false) }, m: 1, gone: []int{1}, want: ErrMajority},
		"of two, one is added":           {v: serving(2, 2, "AB"), do: add, m: 1, gone: []int{1}},
		"of three, one is added":         {v: serving(3, 2, "ABC"), do: add, m: 1, gone: []int{1, 2}, want: ErrMajority},
		"a larger M":                     {v: serving(2, 1, "AB"), do: func(v View) (View, error) { return v.SetMinCopies(2) }, m: 1, gone: []int{1}},
		"a larger M of three":            {v: serving(3, 1, "ABC"), do: func(v View) (View, error) { return v.SetMinCopies(2) }, m: 1, gone: []int{1, 2}, want: ErrMajority},
		"a smaller M, and smaller again": {v: serving(4, 4, "ABCD"), do: func(v View) (View, error) { return v.SetMinCopies(3) }, m: 2, gone: []int{2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := c.do(c.v)
			require.NoError(t, err)
			at := v.Record.Generation
			_, err = v.SetMinCopies(int(v.Record.MinCopies) + 1)
			require.ErrorIs(t, err, ErrChanging, "a larger one waits")
			v, err = v.SetMinCopies(c.m)
			require.NoError(t, err)
			require.True(t, v.Pending)
			require.Equal(t, at.Count+1, v.Record.Count)
			for _, slot := range c.gone {
				require.NoError(t, err)
				v, err = v.LetGo(slot, false)
			}
			require.ErrorIs(t, err, c.want)
			if c.want == nil {
				require.NoError(t, v.Needs(0))
				require.EqualValues(t, c.m, v.Activated().Record.MinCopies)
			}
		})
	}

	v, err := serving(4, 3, "ABCD").Remove(3)
	require.NoError(t, err)
	_, err = v.SetMinCopies(1)
	require.ErrorIs(t, err, ErrChanging, "starts begin by three of four, or by two of three")
	v, err = serving(3, 2, "AB").TakeIn(2, contents(2), 5)
	require.NoError(t, err)
	_, err = v.SetMinCopies(1)
	require.ErrorIs(t, err, ErrChanging, "C may know an older M")
	v = serving(2, 2, "AB")
	v.Equal = 1
	v, err = v.Regained(1, contents(9), 5)
	require.NoError(t, err)
	v, err = v.SetMinCopies(1)
	require.NoError(t, err)
	require.Equal(t, "B", v.Joiner.String())
}

// A generation does not wait for a member that is away while one that was let go before could do as well
// (mirror §3.3).
func TestTakeBack(t *testing.T) {
	v, err := serving(3, 2, "ABC").LetGo(0, false)
	require.NoError(t, err)
	require.NoError(t, v.Needs(0))
	require.NoError(t, v.Needs(members("A")))
	require.ErrorIs(t, v.Needs(members("C")), ErrBelowMin)
	next, ok := v.TakeBack()
	require.True(t, ok)
	require.Equal(t, "ABC", next.Record.F.String())
	require.Equal(t, "ABC", next.Equal.String())
	require.Equal(t, v.Record.Count+1, next.Record.Count)
	next, err = next.LetGo(2, false)
	require.NoError(t, err)
	require.Equal(t, "AB", next.Record.F.String())
	require.NoError(t, next.Needs(members("C")))

	unequal := serving(3, 2, "ABC")
	unequal.Equal = members("BC")
	must := func(v View, err error) View {
		require.NoError(t, err)
		return v
	}
	for name, v := range map[string]View{
		"it lost its contents": must(serving(3, 2, "ABC").LetGo(0, true)),
		"it was not equal":     must(unequal.LetGo(0, false)),
	} {
		t.Run(name, func(t *testing.T) {
			next, ok := v.TakeBack()
			require.True(t, ok)
			require.Equal(t, "ABC", next.Record.F.String())
			require.Equal(t, "BC", next.Equal.String())
			again, err := next.LetGo(0, false)
			require.NoError(t, err)
			_, fill := again.RecordFor(1)
			require.Equal(t, "A", fill.String(), "nobody knows what it lacks")
		})
	}
	for name, v := range map[string]View{
		"nothing is pending":                 serving(3, 2, "BC"),
		"nobody was let go":                  must(serving(3, 2, "ABC").SetMinCopies(3)),
		"a start goes by the M before":       must(must(serving(3, 2, "ABC").LetGo(0, false)).SetMinCopies(1)),
		"all of an attempt, none of another": must(serving(3, 1, "ABC").LetGo(0, false)),
		"it is removed":                      must(serving(3, 2, "ABC").Remove(0)),
	} {
		t.Run(name, func(t *testing.T) {
			next, ok := v.TakeBack()
			require.False(t, ok)
			require.Equal(t, v, next)
		})
	}
}

// A member that lacks something takes the place of one that is away and that the mirror cannot do without. No start
// believes it before it has everything (mirror §3.3).
func TestStandIn(t *testing.T) {
	away := members("A")
	v := serving(3, 2, "AB")
	next, ok := v.StandIn(2, away, 0)
	require.True(t, ok)
	require.True(t, next.Pending)
	require.Equal(t, "BC", next.Record.F.String())
	require.Equal(t, "B", next.Equal.String())
	_, fill := next.RecordFor(1)
	require.Zero(t, fill)
	restored, ok := v.StandIn(2, away, away)
	require.True(t, ok)
	_, fill = restored.RecordFor(1)
	require.Equal(t, away, fill, "nobody knows what it lacks")
	l := Leg{Reach: Held, Contents: contents(2), Epoch: 5}
	l.Record, _ = next.RecordFor(2)
	require.NoError(t, l.Record.Check())
	require.False(t, l.Record.Torn)
	require.Equal(t, Gone, next.Meet(&l))
	next, ok = next.Regains(2, away)
	require.True(t, ok)
	next = next.Activated()
	require.Equal(t, "B", next.Equal.String())
	require.False(t, next.Flushes())
	require.True(t, next.Lacks(2, contents(2)))
	d := Decide(Found{Legs: []Leg{l, {Reach: Held, Contents: contents(0), Epoch: 5, Record: func() persist.Record { r := v.Record; return r }()}}})
	require.Equal(t, Wait, d.Outcome, "A and C are a majority, and C has nothing: %s", d.Why)
	a := Leg{Reach: Held, Contents: contents(0), Epoch: 5, Record: v.Record}
	for _, c := range []struct {
		reach    Reach
		contents [16]byte // a probe has what the record says
	}{{Probed, [16]byte{}}, {Held, contents(2)}} {
		l.Reach, l.Contents = c.reach, c.contents
		require.True(t, l.Torn())
		d = Decide(Found{Legs: []Leg{l, a}})
		require.Equal(t, Wait, d.Outcome)
		require.Contains(t, d.Why, "; C stands in for another member, and is half copied")
		require.NotContains(t, d.Why, "C lost its contents")
		d = Decide(Found{Legs: []Leg{l, a}, Degraded: true})
		require.Equal(t, Copy, d.Outcome, d.Why)
		require.Equal(t, "A", d.Equal.String(), "A has all that was flushed")
		began := Start(&d, 9, [16]byte{9})
		require.Equal(t, ResyncAll, began.Meet(&l), "and C nothing of its own")
		require.NoError(t, new(began.Torn(&l)).Check())
	}
	next, err := next.Regained(2, contents(2), 6)
	require.NoError(t, err)
	require.True(t, new(next.Activated()).Flushes())

	pending, err := serving(4, 3, "ABC").LetGo(2, false)
	require.ErrorIs(t, err, ErrBelowMin)
	require.False(t, pending.Pending)
	pending, err = serving(3, 2, "ABC").LetGo(2, false)
	require.NoError(t, err)
	next, ok = pending.StandIn(2, away, 0)
	require.True(t, ok, "one that the pending generation lets go")
	require.Equal(t, "BC", next.Record.F.String())

	must := func(v View, err error) View {
		require.NoError(t, err)
		return v
	}
	unequal := serving(3, 2, "AB")
	unequal.Equal = members("A")
	for name, c := range map[string]struct {
		v    View
		away string
		leg  int
	}{
		"nobody is away":                  {serving(3, 2, "AB"), "", 2},
		"it can be let go":                {serving(3, 1, "AB"), "A", 2},
		"it is in F":                      {serving(3, 2, "AB"), "A", 1},
		"it is no member":                 {serving(3, 2, "AB"), "A", 3},
		"no equal one is left":            {unequal, "A", 2},
		"too few are left":                {serving(4, 3, "ABC"), "AB", 3},
		"the life has no generation yet":  {begun(t, 3, 2, three...), "A", 2},
		"in a change of M":                {must(serving(4, 3, "ABC").SetMinCopies(2)), "AB", 3},
		"pending, and no majority begins": {must(serving(4, 2, "ABC").LetGo(2, false)), "A", 3},
	} {
		t.Run(name, func(t *testing.T) {
			next, ok := c.v.StandIn(c.leg, members(c.away), members(c.away))
			require.False(t, ok)
			require.Equal(t, c.v, next)
		})
	}
}
