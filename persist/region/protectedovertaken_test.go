package region

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/image"
)

// TestMemoryIsOvertaken: a start with another path, where it cannot find the memory, loads the image. Both memories have
// the same then. The first grant decides which of them is the region's: the other one lacks what comes after it.
func TestMemoryIsOvertaken(t *testing.T) {
	for name, granted := range map[string]bool{"granted at the other path": true, "granted at the old path": false} {
		t.Run(name, func(t *testing.T) {
			p := protectedAt(t)
			r := p.open(t, saverIn(bootA))
			grant(t, r)
			store(t, r, persist.Range{Len: protectedSize}, 1)
			_, err := r.Save(context.Background())
			require.NoError(t, err)
			require.NoError(t, r.Close())
			other := place{filepath.Join(t.TempDir(), "memory"), p.save}
			r = other.open(t, saverIn(bootA))
			require.True(t, protection(t, r).Loaded)
			require.NoError(t, r.Close())
			used, old := other, p
			if !granted {
				used, old = p, other
			}
			r = used.open(t, saverIn(bootA))
			require.True(t, protection(t, r).Whole, "the image stays whole, whichever memory it is")
			grant(t, r)
			store(t, r, persist.Range{Len: 4096}, 2)
			data := bytes.Clone(r.Data())
			require.NoError(t, r.Close())
			_, err = open(old.memory, OpenOptions{Name: "r", Save: p.save}, saverIn(bootA))
			require.ErrorIs(t, err, ErrSave)
			require.ErrorContains(t, err, "a start with another path has made the memory that the image belongs to")
			require.Equal(t, data, used.open(t, saverIn(bootA)).Data())
		})
	}
}

// TestGrantThatIsCutInLoadedMemory: the image names the next epoch, and the process ends before the memory has it. The
// memory is the right one all the same.
func TestGrantThatIsCutInLoadedMemory(t *testing.T) {
	p := protectedAt(t)
	p.powerOff(t, p.open(t, saverIn(bootA)))
	epoch := cutGrant(t, p.open(t, saverIn(bootA)))
	require.Equal(t, epoch, p.open(t, saverIn(bootA)).Superblock().Epoch)
}

// TestGrantThatIsCutBeforeASave: the next run saves, and the image keeps the epoch that it names. The boot behind that
// makes other memory from it, which is the right one, too.
func TestGrantThatIsCutBeforeASave(t *testing.T) {
	p := protectedAt(t)
	r := p.open(t, saverIn(bootA))
	grant(t, r)
	epoch := cutGrant(t, r)
	r = p.open(t, saverIn(bootA))
	_, err := r.Save(t.Context())
	require.NoError(t, err)
	require.Equal(t, epoch+1, r.saving.im.Header().Epoch)
	p.powerOff(t, r)
	require.Equal(t, epoch, p.open(t, saverIn(bootB)).Superblock().Epoch)
}

// cutGrant has the image of r name the next epoch, and ends r before its memory does. It returns the epoch of that.
func cutGrant(t *testing.T, r *Region) uint64 {
	next := r.Superblock()
	next.Epoch++
	r.mu.Lock()
	require.NoError(t, r.liveLocked(&next))
	r.mu.Unlock()
	require.NoError(t, r.Close())
	return next.Epoch - 1
}

// TestLossBelowARottenHeader: the copy of the header that named the last epoch has rotted, so a loss counts from the one
// before. Its epoch is one above that of the memory which it did not find.
func TestLossBelowARottenHeader(t *testing.T) {
	p := protectedAt(t)
	r := p.open(t, saverIn(bootA))
	grant(t, r)
	grant(t, r)
	path := ImagePath(p.save, "r")
	newest := r.saving.im.Header().Generation
	require.NoError(t, r.Close())
	rotCopy(t, path, newest)
	other := place{filepath.Join(t.TempDir(), "memory"), p.save}
	lost := other.open(t, saverIn(bootA))
	require.EqualValues(t, 1, protection(t, lost).Losses)
	require.Equal(t, r.Superblock().Epoch+1, lost.Superblock().Epoch)
	require.NoError(t, lost.Close())
	_, err := open(p.memory, OpenOptions{Name: "r", Save: p.save}, saverIn(bootA))
	require.ErrorIs(t, err, ErrSave)
	require.ErrorContains(t, err, "copy it elsewhere before you remove it")
	require.Equal(t, image.Live, lost.saving.head.Load().State)
}
