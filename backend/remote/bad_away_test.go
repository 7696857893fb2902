package remote

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
)

// What a member has lost that the mirror has let go refuses no writes. It gets them with everything else when it comes
// back.
func TestBadPlacesOfAMemberThatIsAway(t *testing.T) {
	s, contents := mendable(t, 2)
	s[1].losesBlock(t, 3*block)
	d := s.dialImpatient(t, 1)
	c := backendtest.NewClient(t, d)
	require.ErrorIs(t, c.Do(c.Write(3*block, []byte("part"), 0)), ErrBadPlace)
	s.network(1).Down()
	require.NoError(t, c.Do(c.Write(0, []byte("beside it"), 0), c.Flush()))
	require.NoError(t, c.Do(c.Write(3*block, []byte("part"), 0), c.Flush()))
	copy(contents, "beside it")
	copy(contents[3*block:], "part")
	s.network(1).Up()
	require.Eventually(t, func() bool { return d.equal() == 3 }, patience, tick)
	require.NoError(t, d.Sync(t.Context()))
	require.Equal(t, contents, s[1].region.Data())
	require.Empty(t, s[1].region.Bad())
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}
