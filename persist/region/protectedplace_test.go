package region

import (
	"bytes"
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
)

// TestImageIsReplaced: somebody puts a backup in the place of the image while the region is in use. No
// save goes where the next start does not look, and a start with the memory is enough.
func TestImageIsReplaced(t *testing.T) {
	for name, replace := range map[string]func(t *testing.T, path string, backup []byte){
		"by another file": func(t *testing.T, path string, backup []byte) {
			require.NoError(t, os.WriteFile(path+".new", backup, 0o600))
			require.NoError(t, os.Rename(path+".new", path))
		},
		"by a copy of itself": func(t *testing.T, path string, _ []byte) {
			now, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path+".new", now, 0o600))
			require.NoError(t, os.Rename(path+".new", path))
		},
		"by a copy over it": func(t *testing.T, path string, backup []byte) { overwrite(t, path, 0, backup) },
		"by nothing, for a while": func(t *testing.T, path string, _ []byte) {
			require.NoError(t, os.Remove(path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := protectedAt(t)
			path := ImagePath(p.save, "r")
			r := p.open(t, saverIn(bootA))
			grant(t, r)
			backup, err := os.ReadFile(path)
			require.NoError(t, err)
			grant(t, r)
			store(t, r, persist.Range{Len: protectedSize}, 1)
			require.NoError(t, r.SaveTrouble())
			replace(t, path, backup)
			require.ErrorIs(t, r.SaveTrouble(), ErrSave)
			_, err = r.Save(context.Background())
			require.ErrorIs(t, err, ErrSave)
			require.False(t, protection(t, r).Whole)
			data := bytes.Clone(r.Data())
			require.NoError(t, r.Close())
			if _, err := os.Stat(path); err != nil {
				require.NoError(t, os.WriteFile(path, backup, 0o600))
			}
			r = p.open(t, saverIn(bootA))
			require.NoError(t, r.SaveTrouble())
			_, err = r.Save(context.Background())
			require.NoError(t, err)
			p.powerOff(t, r)
			require.Equal(t, data, p.open(t, saverIn(bootB)).Data())
		})
	}
}
