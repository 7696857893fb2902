package region

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/image"
)

// TestMemoryAtAnotherPath: a start with the wrong path, in the boot that has the memory, changes nothing, and names the
// right one. Otherwise a grant there would leave memory at the right path that is old. Where there is none any more the region comes from its image, or is lost.
func TestMemoryAtAnotherPath(t *testing.T) {
	for name, is := range map[string]struct{ saved, damaged bool }{
		"saved": {true, false}, "not saved": {false, false}, "a damaged save": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := protectedAt(t)
			r := p.open(t, saverIn(bootA))
			grant(t, r)
			store(t, r, persist.Range{Len: protectedSize}, 1)
			if is.saved {
				_, err := r.Save(context.Background())
				require.NoError(t, err)
			}
			if is.damaged {
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
			last := protection(t, p.open(t, saverIn(bootA)))
			require.Equal(t, is.saved && !is.damaged, last.Loaded)
			require.Equal(t, !last.Loaded, last.Losses == 1)
		})
	}
}

// TestMemoryOnAnotherMount: memory on a filesystem of its own is found from anywhere, wherever that is mounted.
func TestMemoryOnAnotherMount(t *testing.T) {
	p := protectedAt(t)
	r := p.open(t, saverIn(bootA))
	grant(t, r)
	require.NoError(t, r.Close())
	_, before := p.image(t)
	on := saverIn(bootA)
	on.mounts = []string{filepath.Join(t.TempDir(), "gone"), filepath.Dir(p.memory)}
	wrong := filepath.Join(t.TempDir(), "memory")
	_, err := open(wrong, OpenOptions{Name: "r", Save: p.save}, on)
	require.ErrorIs(t, err, ErrSave)
	require.ErrorContains(t, err, "lies at "+p.memory+": name that path")
	_, after := p.image(t)
	require.True(t, bytes.Equal(before, after), "the image is as it was")
	require.NoFileExists(t, wrong)
}

// TestOwnUnfinishedMemory: what a killed start left at this very path is no memory elsewhere, although a mount has
// another name for it.
func TestOwnUnfinishedMemory(t *testing.T) {
	p := protectedAt(t)
	require.NoError(t, os.Rename(p.memory, p.memory+newMemory))
	alias := filepath.Join(t.TempDir(), "alias")
	require.NoError(t, os.Symlink(filepath.Dir(p.memory), alias))
	on := saverIn(bootA)
	on.mounts = []string{alias}
	require.True(t, protection(t, p.open(t, on)).Loaded)
}

// TestUnfinishedMemoryElsewhere: what a killed start left at another path says that it is the region's memory of this
// boot, if the save was in this boot, and has zeroes behind its first block. Nobody is told to use that.
func TestUnfinishedMemoryElsewhere(t *testing.T) {
	p := protectedAt(t)
	r := p.open(t, saverIn(bootA))
	grant(t, r)
	_, err := r.Save(context.Background())
	require.NoError(t, err)
	require.NoError(t, r.Close())
	at := p.memory + ".typo"
	require.NoError(t, os.Rename(p.memory, p.memory+newMemory))
	_, err = open(at, OpenOptions{Name: "r", Save: p.save}, saverIn(bootA))
	require.ErrorContains(t, err, p.memory+".new has a part or all of it: if a start left that when it was killed, remove it")
	require.NoError(t, os.Remove(p.memory+newMemory))
	require.NoError(t, os.WriteFile(at+newMemory, nil, 0o600))
	r, err = open(at, OpenOptions{Name: "r", Save: p.save}, saverIn(bootA))
	require.NoError(t, err)
	require.True(t, protection(t, r).Loaded)
	require.NoError(t, r.Close())
}
