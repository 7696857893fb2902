package region

import (
	"bytes"
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/image"
)

// TestMemoryAtAnotherPath: a start with the wrong path, in the boot that has the memory, changes nothing, and names the
// right one. Where there is none any more the region is lost.
func TestMemoryAtAnotherPath(t *testing.T) {
	for name, save := range map[string]bool{"not saved": false, "a damaged save": true} {
		t.Run(name, func(t *testing.T) {
			p := protectedAt(t)
			r := p.open(t, saverIn(bootA))
			grant(t, r)
			store(t, r, persist.Range{Len: protectedSize}, 1)
			if save {
				_, err := r.Save(context.Background())
				require.NoError(t, err)
				overwrite(t, ImagePath(p.save, "r"), image.BlockSize+100, []byte{0xff, 0, 0xff})
			}
			data := bytes.Clone(r.Data())
			require.NoError(t, r.Close())
			_, before := p.image(t)
			_, err := open(p.memory+".typo", OpenOptions{Name: "r", Save: p.save}, saverIn(bootA))
			require.ErrorIs(t, err, ErrSave)
			require.ErrorContains(t, err, "lies at "+p.memory+": name that path")
			_, after := p.image(t)
			require.True(t, bytes.Equal(before, after), "the image is as it was")
			require.NoFileExists(t, p.memory+".typo")
			require.NoFileExists(t, p.memory+".typo.new")
			r = p.open(t, saverIn(bootA))
			require.Equal(t, data, r.Data())
			require.NoError(t, r.Close())
			require.NoError(t, os.Remove(p.memory))
			require.EqualValues(t, 1, protection(t, p.open(t, saverIn(bootA))).Losses)
		})
	}
}
