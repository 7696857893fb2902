package region

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/image"
)

// Memory that lost something cannot be saved, and the region says so before somebody relies on a save. It can be once
// the place was overwritten, before a barrier has covered it, too.
func TestProtectedWithABadPlace(t *testing.T) {
	p := protectedAt(t)
	r := p.open(t, saverIn(bootA))
	grant(t, r)
	require.NoError(t, r.SaveTrouble())
	bad := persist.Range{Off: 8192, Len: 4096}
	page := r.Data()[bad.Off:bad.End()]
	require.NoError(t, unix.Mprotect(page, unix.PROT_NONE))
	_, err := r.Digest(bad)
	require.ErrorIs(t, err, ErrBadPlace)
	require.ErrorContains(t, r.SaveTrouble(), "lost 4096 bytes at 8192")
	_, err = r.Save(context.Background())
	require.Error(t, err)
	require.NoError(t, unix.Mprotect(page, unix.PROT_READ|unix.PROT_WRITE))
	require.NoError(t, r.Zero(bad))
	require.NoError(t, r.SaveTrouble())
	_, err = r.Save(context.Background())
	require.NoError(t, err)
}

// A save is the first to touch memory that nobody has read for long. It says what it cannot read, and the next
// session can make that good.
func TestSaveFindsABadPlace(t *testing.T) {
	p := protectedAt(t)
	r := p.open(t, saverIn(bootA))
	grant(t, r)
	bad := persist.Range{Off: image.BlockSize + 8192, Len: 4096}
	page := r.Data()[bad.Off:bad.End()]
	require.NoError(t, unix.Mprotect(page, unix.PROT_NONE))
	require.NoError(t, r.SaveTrouble(), "nobody knows yet")
	_, err := r.Save(context.Background())
	require.ErrorIs(t, err, ErrFault)
	require.ErrorContains(t, err, "has lost 4096 bytes at 2105344: overwrite them")
	require.NoError(t, r.Failed())
	require.Equal(t, persist.BadPlaces{bad}, r.Bad())
	require.ErrorContains(t, r.SaveTrouble(), "lost 4096 bytes at 2105344")
	require.NoError(t, unix.Mprotect(page, unix.PROT_READ|unix.PROT_WRITE))
	require.NoError(t, r.Zero(bad))
	_, err = r.Save(context.Background())
	require.NoError(t, err)
}
