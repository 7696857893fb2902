package region

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/image"
	"pmnbd/persist/region/internal/medium"
)

// TestSaveOfAFailureAfterASave: a failure changes the superblock, and makes no image live. A save
// behind it writes the first block, too.
func TestSaveOfAFailureAfterASave(t *testing.T) {
	p := protectedAt(t)
	r := p.open(t, saverIn(bootA))
	grant(t, r)
	store(t, r, persist.Range{Len: protectedSize}, 1)
	_, err := r.Save(context.Background())
	require.NoError(t, err)
	require.ErrorIs(t, r.Fail(errors.New("broken")), ErrFailed)
	saved, err := r.Save(context.Background())
	require.NoError(t, err)
	require.EqualValues(t, image.BlockSize, saved.Bytes)
	data := bytes.Clone(r.Data())
	p.powerOff(t, r)
	r = p.open(t, saverIn(bootB))
	require.Zero(t, protection(t, r).Losses)
	require.ErrorIs(t, r.Failed(), ErrFailed)
	require.Equal(t, data, r.Data())
}

// TestMemoryOlderThanItsSave: somebody puts back a copy of the memory that was made in the session
// before the save. Epochs do not tell.
func TestMemoryOlderThanItsSave(t *testing.T) {
	p := protectedAt(t)
	r := p.open(t, saverIn(bootA))
	grant(t, r)
	old, err := os.ReadFile(p.memory)
	require.NoError(t, err)
	store(t, r, persist.Range{Len: protectedSize}, 1)
	require.NoError(t, r.Update(func(sb *Superblock) error { sb.Mark++; return nil }))
	_, err = r.Save(context.Background())
	require.NoError(t, err)
	data := bytes.Clone(r.Data())
	require.NoError(t, r.Close())
	require.NoError(t, os.WriteFile(p.memory, old, 0o600))
	_, err = open(p.memory, OpenOptions{Name: "r", Save: p.save}, saverIn(bootA))
	require.ErrorIs(t, err, ErrSave)
	require.ErrorContains(t, err, "older than the save: remove it")
	require.NoError(t, os.Remove(p.memory))
	require.Equal(t, data, p.open(t, saverIn(bootA)).Data())
}

// TestNothingIsLostBeforeThereIsMemory: starts that have no memory to put the region into, because
// its filesystem is not mounted yet, count as no loss.
func TestNothingIsLostBeforeThereIsMemory(t *testing.T) {
	p := protectedAt(t)
	r := p.open(t, saverIn(bootA))
	grant(t, r)
	p.powerOff(t, r)
	image := filepath.Base(ImagePath(p.save, "r"))
	unmounted := saverIn(bootB)
	memoryOf := unmounted.memoryOf
	unmounted.memoryOf = func(f *os.File) (medium.Memory, error) {
		m, err := memoryOf(f)
		m.RAM = m.RAM && filepath.Base(f.Name()) == image
		return m, err
	}
	before, err := os.ReadFile(ImagePath(p.save, "r"))
	require.NoError(t, err)
	_, err = open(p.memory, OpenOptions{Name: "r", Save: p.save}, unmounted)
	require.ErrorIs(t, err, ErrClass)
	after, err := os.ReadFile(ImagePath(p.save, "r"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(before, after))
	require.EqualValues(t, 1, protection(t, p.open(t, saverIn(bootB))).Losses)
}
