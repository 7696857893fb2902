package region

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/image"
)

// TestRestartWithBadPlaces: memory that has lost something is served by the next process, which finds out what that is.
func TestRestartWithBadPlaces(t *testing.T) {
	lost := persist.BadPlaces{{Off: 8192, Len: 4096}, {Off: image.BlockSize - 4096, Len: 8192}}
	p := protectedAt(t)
	r := p.open(t, saverIn(bootA))
	grant(t, r)
	require.NoError(t, unix.Munlock(r.mem))
	for _, g := range lost {
		require.NoError(t, unix.Mprotect(r.Data()[g.Off:g.End()], unix.PROT_NONE))
	}
	require.NoError(t, r.saving.prepare(r)) // mlock(2) fails as at a page that the kernel has poisoned
	require.NoError(t, r.Failed())
	require.Equal(t, lost, r.Bad())
	require.ErrorIs(t, r.SaveTrouble(), ErrBadPlace)
	r.Data()[0]++
}

// TestRestartWithALostHeader: what is no place of the data extent fails the region, and keeps the process from no
// other one.
func TestRestartWithALostHeader(t *testing.T) {
	r := protectedAt(t).open(t, saverIn(bootA))
	require.NoError(t, unix.Munlock(r.mem))
	require.NoError(t, unix.Mprotect(r.mem[DataOffset-4096:DataOffset], unix.PROT_NONE))
	require.NoError(t, r.saving.prepare(r))
	require.ErrorContains(t, r.Failed(), ErrFault.Error())
}
