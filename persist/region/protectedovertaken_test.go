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
	r := p.open(t, saverIn(bootA))
	next := r.Superblock()
	next.Epoch++
	r.mu.Lock()
	require.NoError(t, r.liveLocked(&next))
	r.mu.Unlock()
	require.NoError(t, r.Close())
	require.Equal(t, next.Epoch-1, p.open(t, saverIn(bootA)).Superblock().Epoch)
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
