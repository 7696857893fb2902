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
			v, ok := c.v.Regains(c.leg)
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
			_, again := next.Regains(c.leg)
			require.False(t, again, "a generation is pending")
			_, err = next.Regained(c.leg, other, 7)
			require.ErrorIs(t, err, ErrChanging)
			next = next.Activated()
			require.True(t, next.Equal.Has(c.leg))
			require.False(t, next.Lacks(c.leg, other))
			_, err = next.Regained(c.leg, other, 7)
			require.Error(t, err, "it has everything already")
		})
	}
}
