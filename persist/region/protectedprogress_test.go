package region

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/image"
)

// During a save its status shows how much the save writes, and how much is left.
func TestSaveShowsHowFarItIs(t *testing.T) {
	p := protectedAt(t)
	on := saverIn(bootA)
	r := p.open(t, on)
	grant(t, r)
	store(t, r, persist.Range{Len: protectedSize}, 1)
	require.Nil(t, protection(t, r).Saving)
	var mu sync.Mutex
	var first, last *Saving
	*on.fail = func(string) error {
		now, _ := r.Protection()
		mu.Lock()
		defer mu.Unlock()
		if last = now.Saving; first == nil {
			first = last
		}
		return nil
	}
	_, err := r.Save(context.Background())
	require.NoError(t, err)
	require.Equal(t, Saving{Of: DataOffset + protectedSize, Left: first.Left}, *first)
	require.Positive(t, first.Left)
	require.Equal(t, Saving{Written: DataOffset + protectedSize, Of: DataOffset + protectedSize}, *last, "with the sync of the header")
	require.Nil(t, protection(t, r).Saving)
}

func TestSavingLeft(t *testing.T) {
	disk := &Protection{Speed: image.BlockSize}
	var p progress
	p.Of.Store(100 * image.BlockSize)
	require.Equal(t, 100*time.Second, p.saving(disk).Left, "at the speed of the disk")
	p.Written.Store(50 * image.BlockSize)
	p.began = time.Now().Add(-time.Hour)
	require.InDelta(t, time.Hour, p.saving(disk).Left, float64(time.Minute), "at that of the save")
}
