package region

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
)

// TestMemoryIsReplacedByACopy: somebody puts a copy of the memory in its place, which was made in the same session.
// The save contains later stores, so the next start must not mistake the copy for the saved memory.
func TestMemoryIsReplacedByACopy(t *testing.T) {
	p := protectedAt(t)
	r := p.open(t, saverIn(bootA))
	grant(t, r)
	store(t, r, persist.Range{Len: protectedSize}, 1)
	old, err := os.ReadFile(p.memory)
	require.NoError(t, err)
	store(t, r, persist.Range{Len: protectedSize}, 2)
	data := bytes.Clone(r.Data())
	replace(t, p.memory, old)
	_, err = r.Save(context.Background())
	require.NoError(t, err)
	require.NoError(t, r.Close())
	_, err = open(p.memory, OpenOptions{Name: "r", Save: p.save}, saverIn(bootA))
	require.ErrorContains(t, err, "the memory is older than the save: remove it")
	require.NoError(t, os.Remove(p.memory))
	require.Equal(t, data, p.open(t, saverIn(bootA)).Data())
}

// TestMemoryIsMadeBesideAnother: the memory of a region is made under a name that somebody has given to that of
// another region, whether or not that is open.
func TestMemoryIsMadeBesideAnother(t *testing.T) {
	for _, opened := range []bool{true, false} {
		for _, whole := range []bool{true, false} {
			t.Run(fmt.Sprintf("open %v, whole %v", opened, whole), func(t *testing.T) {
				p := protectedAt(t)
				if !whole {
					r := p.open(t, saverIn(bootA))
					grant(t, r)
					require.NoError(t, r.Close())
				}
				other := place{p.memory + ".new", p.save}
				o := CreateOptions{Name: "other", Size: protectedSize, Class: persist.ClassProtected, Save: p.save}
				_, err := create(other.memory, o, saverIn(bootA))
				require.NoError(t, err)
				if opened {
					r, err := open(other.memory, OpenOptions{Name: "other", Save: p.save}, saverIn(bootA))
					require.NoError(t, err)
					defer func() {
						require.False(t, r.Nameless())
						require.NoError(t, r.Close())
					}()
				}
				require.NoError(t, os.Remove(p.memory))
				_, err = open(p.memory, OpenOptions{Name: "r", Save: p.save}, saverIn(bootB))
				require.ErrorIs(t, err, ErrInUse)
				require.ErrorContains(t, err, "give one of the two another path")
				require.FileExists(t, other.memory)
			})
		}
	}
}

// TestMemoryInTheMaking: what a process left that was killed while it made the memory does not keep the region away.
func TestMemoryInTheMaking(t *testing.T) {
	p := protectedAt(t)
	now, err := os.ReadFile(p.memory)
	require.NoError(t, err)
	for name, left := range map[string][]byte{
		"nothing": nil, "zeroes": make([]byte, DataOffset), "all of it": now,
		"half a superblock": slices.Concat(now[:100], make([]byte, DataOffset)),
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.Remove(p.memory))
			require.NoError(t, os.WriteFile(p.memory+".new", left, 0o600))
			r := p.open(t, saverIn(bootA))
			require.Equal(t, now[DataOffset:], r.Data())
			require.NoFileExists(t, p.memory+".new")
			require.NoError(t, r.Close())
		})
	}
}

// TestServedAtTheNameOfUnfinishedMemory: the region was served at a path that ends like the name of unfinished memory, and
// now that is the name that a start makes its memory under. The start removes nothing.
func TestServedAtTheNameOfUnfinishedMemory(t *testing.T) {
	p := protectedAt(t)
	require.NoError(t, os.Rename(p.memory, p.memory+newMemory))
	served := place{p.memory + newMemory, p.save}
	r := served.open(t, saverIn(bootA))
	grant(t, r)
	store(t, r, persist.Range{Len: 4096}, 1)
	data := slices.Clone(r.Data())
	require.NoError(t, r.Close())
	_, err := open(p.memory, OpenOptions{Name: "r", Save: p.save}, saverIn(bootA))
	require.ErrorIs(t, err, ErrSave)
	require.ErrorContains(t, err, "name that path")
	require.NoError(t, os.Rename(served.memory, p.memory))
	r = p.open(t, saverIn(bootA))
	require.Equal(t, data, r.Data())
	require.Zero(t, protection(t, r).Losses)
}
