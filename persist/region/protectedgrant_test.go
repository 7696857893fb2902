package region

import (
	"bytes"
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
)

// TestImageIsReplacedBeforeAGrant: a copy has taken the place of an image that is whole, and nobody has looked since.
// The memory does not change before the copy is live, too: a power failure would bring the copy back.
func TestImageIsReplacedBeforeAGrant(t *testing.T) {
	p := protectedAt(t)
	path, now := p.image(t)
	r := p.open(t, saverIn(bootA))
	replace(t, path, now)
	begin := func(sb *Superblock) error { sb.Epoch++; return nil }
	err := r.Update(begin)
	require.ErrorIs(t, err, ErrSave)
	require.ErrorIs(t, err, errReplaced)
	require.NoError(t, os.Remove(path))
	require.ErrorIs(t, r.Update(begin), os.ErrNotExist)
	require.ErrorIs(t, r.Flush(nil), os.ErrNotExist)
	require.NoError(t, r.Failed())
	require.EqualValues(t, 1, r.Superblock().Epoch)
}

// TestImageIsWrittenOverBeforeAGrant: somebody copies a backup over the image, and before the next look a new header
// hides that. The next save writes all of it.
func TestImageIsWrittenOverBeforeAGrant(t *testing.T) {
	again := func(t *testing.T, r *Region) { grant(t, r); r.Known() }
	for name, c := range map[string]struct {
		live bool
		head func(t *testing.T, r *Region) // writes the header
	}{
		"of a whole image":                 {false, again},
		"of a live one":                    {true, again},
		"of a live one, before a record":   {true, func(t *testing.T, r *Region) { require.NoError(t, r.SetRecord(recordOf(r, 0, 1, 3), 0)) }},
		"of a whole one, before a barrier": {false, func(t *testing.T, r *Region) { store(t, r, persist.Range{Len: 4096}, 3) }},
	} {
		t.Run(name, func(t *testing.T) {
			p := protectedAt(t)
			path, backup := p.image(t)
			r := p.open(t, saverIn(bootA))
			grant(t, r)
			store(t, r, persist.Range{Len: protectedSize}, 1)
			_, err := r.Save(context.Background())
			require.NoError(t, err)
			if c.live {
				grant(t, r)
				r.Known()
			}
			require.NoError(t, r.SaveTrouble())
			overwrite(t, path, 0, backup)
			c.head(t, r)
			require.NoError(t, r.SaveTrouble(), "nothing shows it any more")
			data := bytes.Clone(r.Data())
			saved, err := r.Save(context.Background())
			require.NoError(t, err)
			require.EqualValues(t, DataOffset+protectedSize, saved.Bytes)
			p.powerOff(t, r)
			require.Equal(t, data, p.open(t, saverIn(bootB)).Data())
		})
	}
}
