package mirror

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A source can be replaced by any member that the life begins with, until clients are served (mirror §4.4).
func TestSources(t *testing.T) {
	v := begun(t, 3, 2, crashed...)
	require.Equal(t, "A", v.Equal.String())
	require.Equal(t, "BC", v.Sources().String())
	v = v.From(1)
	require.Equal(t, "AC", v.Sources().String())
	v, err := v.LetGo(0, true)
	require.NoError(t, err)
	require.Equal(t, "2.2{BC}", v.Record.String()+"{"+v.Record.F.String()+"}")
	_, fill := v.RecordFor(1)
	require.True(t, fill.Has(0), "nobody knows what A lacks")
	v = v.Activated()
	require.Equal(t, "B", v.Equal.String())
	require.Zero(t, v.Sources())
	v, err = v.TakeIn(0, contents(0), 6)
	require.NoError(t, err)
	require.Zero(t, v.Sources(), "clients have read from B")
	v = begun(t, 3, 1, crashed...)
	require.Zero(t, v.Sources(), "it begins with A alone")
}
