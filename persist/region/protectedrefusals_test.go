package region

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/image"
	"pmnbd/persist/region/internal/medium"
)

func TestProtectedRefusals(t *testing.T) {
	for _, c := range []struct {
		name string
		prep func(t *testing.T, p place)
		o    OpenOptions // Save is relative to the place, if "yes"
		boot [16]byte
		says string
	}{
		{"without a directory", nil, OpenOptions{AllowVolatile: true}, bootA, "save=DIR"},
		{"without a directory, volatile not allowed", nil, OpenOptions{}, bootA, "save=DIR"},
		{"an image that is gone", func(t *testing.T, p place) {
			require.NoError(t, os.Remove(ImagePath(p.save, "r")))
		}, OpenOptions{Save: "yes"}, bootA, "region create --force"},
		{"everything is gone", func(t *testing.T, p place) {
			require.NoError(t, os.Remove(ImagePath(p.save, "r")))
			require.NoError(t, os.Remove(p.memory))
		}, OpenOptions{Save: "yes"}, bootA, "region create --force"},
		{"an image that is damaged", func(t *testing.T, p place) {
			overwrite(t, ImagePath(p.save, "r"), 0, bytes.Repeat([]byte{7}, 16<<10))
		}, OpenOptions{Save: "yes"}, bootA, "region create --force"},
		{"a short image", func(t *testing.T, p place) {
			require.NoError(t, os.Truncate(ImagePath(p.save, "r"), image.BlockSize))
		}, OpenOptions{Save: "yes"}, bootA, "region create --force"},
		{"memory of another boot", nil, OpenOptions{Save: "yes"}, bootB, "another boot"},
		{"memory of another region", func(t *testing.T, p place) {
			other := protectedAt(t)
			require.NoError(t, os.Remove(p.memory))
			require.NoError(t, os.Rename(other.memory, p.memory))
		}, OpenOptions{Save: "yes"}, bootA, "another region's"},
		{"an old copy of the memory", func(t *testing.T, p place) {
			copied, err := os.ReadFile(p.memory)
			require.NoError(t, err)
			r, err := open(p.memory, OpenOptions{Name: "r", Save: p.save}, saverIn(bootA))
			require.NoError(t, err)
			grant(t, r)
			grant(t, r)
			require.NoError(t, r.Close())
			require.NoError(t, os.WriteFile(p.memory, copied, 0o600))
		}, OpenOptions{Save: "yes"}, bootA, "old copy"},
		{"the image of another name", func(t *testing.T, p place) {
			require.NoError(t, os.Rename(ImagePath(p.save, "r"), ImagePath(p.save, "q")))
			require.NoError(t, os.Remove(p.memory))
		}, OpenOptions{Name: "q", Save: "yes"}, bootA, `image of region "r"`},
		{"another class", func(t *testing.T, p place) {
			require.NoError(t, os.Remove(p.memory))
			_, err := create(p.memory, CreateOptions{Name: "r", Size: protectedSize}, saverIn(bootA))
			require.NoError(t, err)
		}, OpenOptions{Save: "yes"}, bootA, "leave save= out"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := protectedAt(t)
			if c.prep != nil {
				c.prep(t, p)
			}
			if c.o.Save != "" {
				c.o.Save = p.save
				if c.o.Name == "" {
					c.o.Name = "r"
				}
			}
			_, err := open(p.memory, c.o, saverIn(c.boot))
			require.ErrorIs(t, err, ErrSave)
			require.ErrorContains(t, err, c.says)
			require.Empty(t, held(t, filepath.Dir(p.memory)))
		})
	}
}

func overwrite(t testing.TB, path string, off int64, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(b, off)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestSaveTakesTooLong(t *testing.T) {
	dir := t.TempDir()
	o := CreateOptions{Name: "r", Size: protectedSize, Class: persist.ClassProtected, Save: dir, SaveWithin: time.Nanosecond}
	_, err := create(filepath.Join(dir, "memory"), o, saverIn(bootA))
	require.ErrorIs(t, err, ErrSave)
	require.ErrorContains(t, err, "--save-within")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestCreateProtectedRefusals(t *testing.T) {
	for _, c := range []struct {
		name string
		o    CreateOptions
		on   medium.Medium
		is   error
		says string
	}{
		{"no directory", CreateOptions{Class: persist.ClassProtected}, saverIn(bootA), ErrSave, "--save"},
		{"a directory of another class", CreateOptions{Save: "yes"}, saverIn(bootA), ErrClass, "only class protected"},
		{"another class", CreateOptions{Class: persist.ClassPMem}, saverIn(bootA), ErrClass, "only class protected"},
		{"memory on a disk", CreateOptions{Class: persist.ClassProtected, Save: "yes"}, fileHost, ErrClass, "tmpfs"},
		{"an image in memory", CreateOptions{Class: persist.ClassProtected, Save: "yes"}, hostOf(persist.ClassVolatile, bootA), ErrSave, "lost with the power"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			c.o.Name, c.o.Size = "r", testSize
			if c.o.Save != "" {
				c.o.Save = dir
			}
			_, err := create(filepath.Join(dir, "memory"), c.o, c.on)
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, c.says)
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
	t.Run("an image that is there", func(t *testing.T) {
		p := protectedAt(t)
		require.NoError(t, os.Remove(p.memory))
		o := CreateOptions{Name: "r", Size: protectedSize, Class: persist.ClassProtected, Save: p.save}
		_, err := create(p.memory, o, saverIn(bootA))
		require.ErrorIs(t, err, os.ErrExist)
		o.Force = true
		_, err = create(p.memory, o, saverIn(bootA))
		require.NoError(t, err)
	})
	t.Run("an image in use", func(t *testing.T) {
		p := protectedAt(t)
		p.open(t, saverIn(bootA))
		o := CreateOptions{Name: "r", Size: protectedSize, Class: persist.ClassProtected, Save: p.save, Force: true}
		_, err := create(p.memory+"2", o, saverIn(bootA))
		require.ErrorIs(t, err, ErrInUse)
	})
}

func TestClearAndRemoveProtected(t *testing.T) {
	p := protectedAt(t)
	r := p.open(t, saverIn(bootA))
	store(t, r, persist.Range{Len: 4096}, 1)
	data := bytes.Clone(r.Data())
	require.ErrorIs(t, r.Fail(errors.New("the test says so")), ErrFailed)
	_, err := r.Save(context.Background())
	require.NoError(t, err, "what a failed region has may still be of use")
	p.powerOff(t, r)

	r = p.open(t, saverIn(bootB))
	require.ErrorIs(t, r.Failed(), ErrFailed, "a save and a load do not mend it")
	require.ErrorIs(t, clearSaved(p.memory, p.save, "mended", saverIn(bootB), nil), ErrInUse)
	require.NoError(t, r.Close())
	require.ErrorIs(t, clearRegion(p.memory, "mended", saverIn(bootB), nil), ErrSave)
	require.NoError(t, clearSaved(p.memory, p.save, "mended", saverIn(bootB), nil))
	r = p.open(t, saverIn(bootB))
	require.NoError(t, r.Failed())
	require.Equal(t, data, r.Data())
	require.False(t, protection(t, r).Whole)
	require.NoError(t, r.Close())

	require.ErrorIs(t, removeRegion(p.memory, false, saverIn(bootB)), ErrSave)
	require.ErrorIs(t, removeSaved(p.memory, p.save, false, saverIn(bootB)), ErrNotClean)
	require.NoError(t, removeSaved(p.memory, p.save, true, saverIn(bootB)))
	for _, path := range []string{p.memory, ImagePath(p.save, "r")} {
		require.NoFileExists(t, path)
	}
	require.ErrorIs(t, clearSaved(p.memory, p.save, "mended", saverIn(bootB), nil), os.ErrNotExist)
}

// TestRemoveWithANewerImage: an old copy of the memory lies at its path, and the image is the one thing that has what was
// flushed since. Who follows the advice of the start, and removes the region instead of the file, loses nothing.
func TestRemoveWithANewerImage(t *testing.T) {
	p := protectedAt(t)
	old, err := os.ReadFile(p.memory)
	require.NoError(t, err)
	r := p.open(t, saverIn(bootA))
	grant(t, r)
	store(t, r, persist.Range{Len: 4096}, 1)
	data := bytes.Clone(r.Data())
	_, err = r.Save(context.Background())
	require.NoError(t, err)
	p.powerOff(t, r)
	require.NoError(t, os.WriteFile(p.memory, old, 0o600))
	for _, boot := range [][16]byte{bootA, bootB} {
		_, err = open(p.memory, OpenOptions{Name: "r", Save: p.save}, saverIn(boot))
		require.ErrorContains(t, err, "remove it with rm")
		require.ErrorIs(t, removeSaved(p.memory, p.save, false, saverIn(boot)), ErrSave)
		require.FileExists(t, p.memory)
	}
	require.NoError(t, os.Remove(p.memory))
	require.Equal(t, data, p.open(t, saverIn(bootB)).Data())
}
