package mirror

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
)

// A member of F that lost its contents stays in F only where it cannot be let go, and where the others have
// the data.
func TestRegain(t *testing.T) {
	serving := func(m int, history, equal string) View {
		v := View{Record: record(3, m, history), Equal: members(equal)}
		v.Life, v.Nonce, v.Active = v.Record.Life, v.Record.Nonce, v.Record.F
		return v
	}
	for name, c := range map[string]struct {
		v    View
		leg  int
		want bool
	}{
		"too few would remain":      {v: serving(2, "1.1{ABC} 1.2{AB}", "AB"), leg: 1, want: true},
		"it can be let go":          {v: serving(2, "1.1{ABC}", "ABC"), leg: 1},
		"it is out":                 {v: serving(2, "1.1{ABC} 1.2{AB}", "AB"), leg: 2},
		"the others are not equal":  {v: serving(2, "1.1{ABC} 1.2{AB}", "B"), leg: 1},
		"it was not equal anyway":   {v: serving(2, "1.1{ABC} 1.2{AB}", "A"), leg: 1, want: true},
		"no generation is active":   {v: View{Record: record(3, 2, "1.1{AB}"), Equal: members("A")}, leg: 1},
		"M is all":                  {v: serving(3, "1.1{ABC}", "ABC"), leg: 0, want: true},
		"M is one, and it is alone": {v: serving(1, "1.1{ABC} 1.2{A}", "A"), leg: 0},
	} {
		t.Run(name, func(t *testing.T) {
			v, ok := c.v.Regains(c.leg, 0)
			require.Equal(t, c.want, ok)
			if !ok {
				require.Equal(t, c.v, v)
				return
			}
			require.False(t, v.Flushes())
			require.Equal(t, c.v.Record, v.Record, "the record names what it had")
			other := [16]byte{99}
			require.True(t, v.Lacks(c.leg, other))
			require.False(t, v.Lacks(c.leg, contents(c.leg)))
			next, err := v.Regained(c.leg, other, 7)
			require.NoError(t, err)
			require.Equal(t, v.Record.F, next.Record.F)
			require.Equal(t, persist.Membership{UUID: uuid(c.leg), Contents: other, Epoch: 7}, next.Record.Members[c.leg])
			require.Equal(t, v.Record.F&^persist.Member(c.leg), next.Next(0), "its record comes last")
			require.False(t, next.Flushes())
			_, err = next.Regained(c.leg, other, 7)
			require.ErrorIs(t, err, ErrChanging)
			again, ok := next.Regains(c.leg, 0) // it has lost its contents once more
			require.True(t, ok)
			require.Equal(t, v.Record.F, again.Next(0))
			again = again.Activated()
			require.False(t, again.Flushes())
			require.True(t, again.Lacks(c.leg, [16]byte{98}))
			next = next.Activated()
			require.True(t, next.Equal.Has(c.leg))
			require.False(t, next.Lacks(c.leg, other))
			_, err = next.Regained(c.leg, other, 7)
			require.Error(t, err, "it has everything already")
		})
	}
}

// While a generation is pending that needs it, a member that lost its contents gets the record, and is not
// equal when the generation is active.
func TestRegainInAChange(t *testing.T) {
	serving := func(m int, history string) View {
		v := View{Record: record(3, m, history)}
		v.Life, v.Nonce, v.Active, v.Equal = v.Record.Life, v.Record.Nonce, v.Record.F, v.Record.F
		return v
	}
	must := func(v View, err error) View {
		require.NoError(t, err)
		require.True(t, v.Pending)
		return v
	}
	for name, c := range map[string]struct {
		v   View
		leg int
		can bool // be let go
	}{
		"another is let go":           {v: must(serving(2, "1.1{ABC}").LetGo(2, false)), leg: 1},
		"a member is added":           {v: must(serving(2, "1.1{ABC} 1.2{AB}").Add(3, [16]byte{4}, 1)), leg: 1},
		"M grows":                     {v: must(serving(2, "1.1{ABC}").SetMinCopies(3)), leg: 0},
		"M shrinks":                   {v: must(serving(2, "1.1{ABC}").SetMinCopies(1)), leg: 1, can: true},
		"a start goes by M before":    {v: must(must(serving(2, "1.1{ABC}").SetMinCopies(1)).LetGo(2, false)), leg: 1},
		"the one that is taken in":    {v: must(must(serving(2, "1.1{ABC} 1.2{AB}").TakeIn(2, contents(2), 5)).LetGo(1, false)), leg: 2},
		"one of three is taken in":    {v: must(serving(2, "1.1{ABC} 1.2{AB}").TakeIn(2, contents(2), 5)), leg: 2, can: true},
		"the first generation":        {v: Start(&Decision{Outcome: Begin, Newest: record(2, 2, "1.1{AB}"), F: 3, Equal: 1, Fill: 2}, 2, [16]byte{2}), leg: 1},
		"the first one after a close": {v: Start(&Decision{Outcome: Begin, Newest: record(2, 2, "1.1{AB}"), F: 3, Equal: 3}, 2, [16]byte{2}), leg: 0},
	} {
		t.Run(name, func(t *testing.T) {
			v, ok := c.v.Regains(c.leg, 0)
			require.Equal(t, !c.can, ok)
			if !ok {
				return
			}
			require.Equal(t, c.v.Record, v.Record)
			require.Equal(t, v.Record.F, v.Next(0), "nobody's record comes last")
			v = v.Activated()
			require.False(t, v.Equal.Has(c.leg))
			require.False(t, v.Flushes())
			require.True(t, v.Lacks(c.leg, [16]byte{9}))
			v = must(v.Regained(c.leg, [16]byte{9}, 7)).Activated()
			require.True(t, v.Equal.Has(c.leg))
		})
	}
	v := Start(&Decision{Outcome: Begin, Newest: record(2, 2, "1.1{AB}"), F: 3, Equal: 1, Fill: 2}, 2, [16]byte{2})
	_, ok := v.Regains(0, 0)
	require.False(t, ok, "nobody else has the data")
}
