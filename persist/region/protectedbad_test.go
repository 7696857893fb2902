package region

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/image"
)

// Memory that lost something cannot be saved, and the region says so before somebody relies on a save. The kernel does
// not make it good while it is in use, so nothing overwrites it, and the region goes on. Somebody can repair it by hand
// while the region is closed.
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
	require.ErrorIs(t, r.SaveTrouble(), ErrBadPlace)
	_, err = r.Save(context.Background())
	require.Error(t, err)
	require.False(t, r.BadClears())
	require.ErrorIs(t, r.Zero(bad), ErrBadPlace)
	require.NoError(t, r.Failed())
	require.NoError(t, r.Zero(persist.Range{Off: bad.End(), Len: 4096}))
	require.NoError(t, r.Close())
	r = p.open(t, saverIn(bootA)) // which maps a good page there
	require.NoError(t, r.SaveTrouble())
	_, err = r.Save(context.Background())
	require.NoError(t, err)
}

// A bad place keeps the owner out of nothing, so it hides no reason that does.
func TestBadPlaceHidesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, p place, r *Region)
		says  string
	}{
		"the memory is removed": {func(t *testing.T, _ place, r *Region) { require.NoError(t, os.Remove(r.Path())) }, "has removed its memory"},
		"the image is removed":  {func(t *testing.T, p place, _ *Region) { require.NoError(t, os.Remove(ImagePath(p.save, "r"))) }, "somebody removed the image"},
		"the image is replaced": {func(t *testing.T, p place, _ *Region) { path, now := p.image(t); replace(t, path, now) }, "another file in the place"},
		"the image is written on": {func(t *testing.T, p place, _ *Region) {
			path, _ := p.image(t)
			overwrite(t, path, 0, make([]byte, 16384))
		}, "written over the image"},
	} {
		t.Run(name, func(t *testing.T) {
			p := protectedAt(t)
			r := p.open(t, saverIn(bootA))
			grant(t, r)
			_, err := r.Lose(address(r.Data()))
			require.NoError(t, err)
			require.ErrorIs(t, r.SaveTrouble(), ErrBadPlace)
			c.spoil(t, p, r)
			err = r.SaveTrouble()
			require.ErrorContains(t, err, c.says)
			require.NotErrorIs(t, err, ErrBadPlace)
		})
	}
}

// A member of a mirror fails instead: others have what is there, and the device goes on without this one.
func TestProtectedMemberWithABadPlace(t *testing.T) {
	for name, c := range map[string]struct {
		f    persist.Members
		fail bool
	}{"others have it": {3, true}, "nobody else has it": {1, false}} {
		t.Run(name, func(t *testing.T) {
			p := protectedAt(t)
			r := p.open(t, saverIn(bootA))
			grant(t, r)
			rec := persist.Record{Set: [16]byte{1}, MinCopies: 1, Ancestor: persist.Ancestor{Generation: persist.Generation{Count: 1, Nonce: [16]byte{2}}, F: c.f}}
			rec.Members[0] = persist.Membership{UUID: r.UUID(), Contents: r.Superblock().Contents, Epoch: r.Superblock().Epoch}
			rec.Members[1] = persist.Membership{UUID: [16]byte{9}, Contents: [16]byte{9}, Epoch: 1}
			require.NoError(t, r.SetRecord(rec, 0))
			bad := persist.Range{Off: 8192, Len: 4096}
			require.NoError(t, unix.Mprotect(r.Data()[bad.Off:bad.End()], unix.PROT_NONE))
			_, err := r.Digest(bad)
			require.ErrorIs(t, err, ErrBadPlace)
			require.Equal(t, c.fail, r.BadClears())
			err = r.Zero(bad)
			if c.fail {
				require.ErrorIs(t, err, ErrFailed)
			} else {
				require.ErrorIs(t, err, ErrBadPlace)
				require.NoError(t, r.Failed())
			}
		})
	}
}

// A save is the first to touch memory that nobody has read for long. It says what it cannot read.
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
	require.ErrorContains(t, err, "has lost 4096 bytes at 2105344: copy the device elsewhere")
	require.NoError(t, r.Failed())
	require.Equal(t, persist.BadPlaces{bad}, r.Bad())
	require.ErrorContains(t, r.SaveTrouble(), "lost 4096 bytes at 2105344")
}
