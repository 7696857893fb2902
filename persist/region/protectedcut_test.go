package region

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/image"
)

// TestImageIsCutOff: somebody cuts the image off while the region is in use, or a copy over it ends early. The next
// save writes all of it, and the next start takes what it wrote.
func TestImageIsCutOff(t *testing.T) {
	size := image.Size(DataOffset + protectedSize)
	for name, left := range map[string]int64{"to nothing": 0, "to the half": size / 2, "by a page": size - 4096} {
		for _, whole := range []bool{false, true} {
			for _, looked := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, whole %v, looked %v", name, whole, looked), func(t *testing.T) {
					p := protectedAt(t)
					r := p.open(t, saverIn(bootA))
					grant(t, r)
					store(t, r, persist.Range{Len: protectedSize}, 1)
					_, err := r.Save(context.Background())
					require.NoError(t, err)
					if !whole {
						grant(t, r)
						store(t, r, persist.Range{Len: 4096}, 2)
						r.Known() // so that not everything is dirty
					}
					require.NoError(t, os.Truncate(ImagePath(p.save, "r"), left))
					data := bytes.Clone(r.Data())
					if looked {
						require.ErrorIs(t, r.SaveTrouble(), errOverwritten)
						require.False(t, protection(t, r).Whole)
						require.NoError(t, r.SaveTrouble(), "it has its size again")
					}
					saved, err := r.Save(context.Background())
					require.NoError(t, err)
					require.EqualValues(t, DataOffset+protectedSize, saved.Bytes)
					p.powerOff(t, r)
					require.Equal(t, data, p.open(t, saverIn(bootB)).Data())
				})
			}
		}
	}
}

// TestProbeHidesNoCut: somebody cuts the image off between the two halves of a look. Its size is all that tells.
func TestProbeHidesNoCut(t *testing.T) {
	p := protectedAt(t)
	r := p.open(t, saverIn(bootA))
	grant(t, r)
	store(t, r, persist.Range{Len: protectedSize}, 1)
	_, err := r.Save(context.Background())
	require.NoError(t, err)
	require.NoError(t, r.guardImage())
	require.NoError(t, os.Truncate(ImagePath(p.save, "r"), image.Size(DataOffset+protectedSize)/4))
	require.ErrorIs(t, r.saving.probe(DataOffset+protectedSize, r.medium), errOverwritten)
	data := bytes.Clone(r.Data())
	_, err = r.Save(context.Background())
	require.NoError(t, err)
	p.powerOff(t, r)
	require.Equal(t, data, p.open(t, saverIn(bootB)).Data())
}
