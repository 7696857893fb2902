package region

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/image"
)

// image returns where the image is, and what it is now.
func (p place) image(t testing.TB) (path string, now []byte) {
	t.Helper()
	path = ImagePath(p.save, "r")
	now, err := os.ReadFile(path)
	require.NoError(t, err)
	return path, now
}

// replace puts another file in the place of one.
func replace(t *testing.T, path string, by []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", by, 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

// rotCopy spoils the copy of an image's header that has that generation.
func rotCopy(t *testing.T, path string, generation uint64) {
	t.Helper()
	now, err := os.ReadFile(path)
	require.NoError(t, err)
	for at := range int64(2) {
		if binary.LittleEndian.Uint64(now[at*8192+8:]) == generation {
			overwrite(t, path, at*8192+100, []byte("rot"))
		}
	}
}

// TestImageIsReplaced: somebody puts a backup in the place of the image while the region is in use. No
// save goes where the next start does not look, and a start with the memory is enough.
func TestImageIsReplaced(t *testing.T) {
	for name, act := range map[string]func(t *testing.T, path string, backup []byte){
		"by another file": replace,
		"by a copy of itself": func(t *testing.T, path string, _ []byte) {
			now, err := os.ReadFile(path)
			require.NoError(t, err)
			replace(t, path, now)
		},
		"by a link to itself": func(t *testing.T, path string, _ []byte) {
			require.NoError(t, os.Rename(path, path+".there"))
			require.NoError(t, os.Symlink(path+".there", path))
		},
		"by nothing, for a while": func(t *testing.T, path string, _ []byte) {
			require.NoError(t, os.Remove(path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := protectedAt(t)
			r := p.open(t, saverIn(bootA))
			grant(t, r)
			path, backup := p.image(t)
			grant(t, r)
			store(t, r, persist.Range{Len: protectedSize}, 1)
			require.NoError(t, r.SaveTrouble())
			act(t, path, backup)
			require.ErrorIs(t, r.SaveTrouble(), ErrSave)
			_, err := r.Save(context.Background())
			require.ErrorIs(t, err, ErrSave)
			require.False(t, protection(t, r).Whole)
			data := bytes.Clone(r.Data())
			require.NoError(t, r.Close())
			if _, err := os.Stat(path); err != nil {
				require.NoError(t, os.WriteFile(path, backup, 0o600))
			} else if there, err := os.Readlink(path); err == nil {
				require.NoError(t, os.Rename(there, path))
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

// TestReplacedImageIsLive: a backup in the place of the image says that it is whole. If the power fails, the
// region is lost, and not old.
func TestReplacedImageIsLive(t *testing.T) {
	for _, looks := range []int{1, 2} {
		t.Run(fmt.Sprint(looks), func(t *testing.T) {
			p := protectedAt(t)
			path, backup := p.image(t)
			r := p.open(t, saverIn(bootA))
			grant(t, r)
			store(t, r, persist.Range{Len: protectedSize}, 1)
			was := r.Superblock()
			replace(t, path, backup)
			for range looks {
				require.ErrorIs(t, r.SaveTrouble(), errReplaced)
			}
			p.powerOff(t, r)
			r = p.open(t, saverIn(bootB))
			require.EqualValues(t, 1, protection(t, r).Losses)
			require.Greater(t, r.Superblock().Epoch, was.Epoch)
			require.Greater(t, r.Superblock().Mark, was.Mark)
		})
	}
}

// TestImageIsWrittenOver: somebody copies a backup over the image while the region is in use, or the disk
// loses a header. A save goes there, and writes everything. If the power fails before one, the region is
// lost, and not old.
func TestImageIsWrittenOver(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, path string, backup []byte){
		"by a backup": func(t *testing.T, path string, backup []byte) { overwrite(t, path, 0, backup) },
		"by a backup of another region": func(t *testing.T, path string, _ []byte) {
			other, err := os.ReadFile(ImagePath(protectedAt(t).save, "r"))
			require.NoError(t, err)
			overwrite(t, path, 0, other)
		},
		"by half of one": func(t *testing.T, path string, _ []byte) {
			other, err := os.ReadFile(ImagePath(protectedAt(t).save, "r"))
			require.NoError(t, err)
			overwrite(t, path, 0, other[:8192])
		},
		"by zeroes": func(t *testing.T, path string, _ []byte) { overwrite(t, path, 0, make([]byte, 16384)) },
		"by rot of the newer header": func(t *testing.T, path string, _ []byte) {
			f, err := os.Open(path)
			require.NoError(t, err)
			found, err := image.Inspect(f)
			require.NoError(t, errors.Join(err, f.Close()))
			rotCopy(t, path, found.Generation)
		},
	} {
		for _, saved := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, saved %v", name, saved), func(t *testing.T) {
				p := protectedAt(t)
				path, backup := p.image(t)
				r := p.open(t, saverIn(bootA))
				grant(t, r)
				store(t, r, persist.Range{Len: protectedSize}, 1)
				_, err := r.Save(context.Background())
				require.NoError(t, err)
				grant(t, r)
				store(t, r, persist.Range{Len: 4096}, 2)
				r.Known() // so that not everything is dirty
				spoil(t, path, backup)
				data := bytes.Clone(r.Data())
				if saved {
					saved, err := r.Save(context.Background())
					require.NoError(t, err)
					require.EqualValues(t, DataOffset+protectedSize, saved.Bytes)
					require.NoError(t, r.SaveTrouble())
					p.powerOff(t, r)
					require.Equal(t, data, p.open(t, saverIn(bootB)).Data())
					return
				}
				require.ErrorIs(t, r.SaveTrouble(), errOverwritten)
				require.NoError(t, r.SaveTrouble(), "it is live again")
				p.powerOff(t, r)
				after := p.open(t, saverIn(bootB))
				require.EqualValues(t, 1, protection(t, after).Losses)
				require.Greater(t, after.Superblock().Epoch, uint64(3))
			})
		}
	}
}

// TestImageIsWrittenOverBetweenSaves: no header is written between two saves, which would find it, and the second one has
// nothing to save.
func TestImageIsWrittenOverBetweenSaves(t *testing.T) {
	p := protectedAt(t)
	path, backup := p.image(t)
	r := p.open(t, saverIn(bootA))
	grant(t, r)
	store(t, r, persist.Range{Len: protectedSize}, 1)
	_, err := r.Save(context.Background())
	require.NoError(t, err)
	overwrite(t, path, 0, backup)
	data := bytes.Clone(r.Data())
	saved, err := r.Save(context.Background())
	require.NoError(t, err)
	require.EqualValues(t, DataOffset+protectedSize, saved.Bytes)
	p.powerOff(t, r)
	require.Equal(t, data, p.open(t, saverIn(bootB)).Data())
}

// TestNewerImageIsWrittenOver: somebody has put an old backup back, and copies a newer one over it while the
// region is in use. What counts is the memory.
func TestNewerImageIsWrittenOver(t *testing.T) {
	for _, saved := range []bool{true, false} {
		t.Run(fmt.Sprintf("saved %v", saved), func(t *testing.T) {
			p := protectedAt(t)
			path, old := p.image(t)
			r := p.open(t, saverIn(bootA))
			for range 3 {
				grant(t, r)
			}
			store(t, r, persist.Range{Len: protectedSize}, 1)
			_, err := r.Save(context.Background())
			require.NoError(t, err)
			newer, err := os.ReadFile(path)
			require.NoError(t, err)
			p.powerOff(t, r)
			overwrite(t, path, 0, old)
			r = p.open(t, saverIn(bootB))
			grant(t, r)
			store(t, r, persist.Range{Len: 4096}, 2)
			r.Known()
			overwrite(t, path, 0, newer)
			data := bytes.Clone(r.Data())
			if saved {
				_, err = r.Save(context.Background())
				require.NoError(t, err)
				p.powerOff(t, r)
				require.Equal(t, data, p.open(t, saverIn(bootA)).Data())
				return
			}
			require.ErrorIs(t, r.SaveTrouble(), errOverwritten)
			require.NoError(t, r.SaveTrouble(), "it is live again")
			p.powerOff(t, r)
			require.EqualValues(t, 1, protection(t, p.open(t, saverIn(bootA))).Losses)
		})
	}
}

// A meddler replaces an image between its opening and the first look at it.
type meddler struct {
	saver
	meddle func()
}

func (m meddler) Storage(f image.File) image.File {
	m.meddle()
	return m.saver.Storage(f)
}

// TestImageIsReplacedWhileItIsOpened: the image that a start opened is the one that a save must reach.
func TestImageIsReplacedWhileItIsOpened(t *testing.T) {
	p := protectedAt(t)
	path, backup := p.image(t)
	meddle := sync.OnceFunc(func() {
		replace(t, path, backup)
	})
	r := p.open(t, meddler{saverIn(bootA), meddle})
	require.ErrorIs(t, r.Update(func(sb *Superblock) error { sb.Epoch++; return nil }), errReplaced)
	_, err := r.Save(context.Background())
	require.ErrorIs(t, err, errReplaced, "or the next start would find the backup")
	require.ErrorIs(t, r.SaveTrouble(), errReplaced)
}

// TestImageIsReplacedDuringASave: a save is told of only if the next start finds it.
func TestImageIsReplacedDuringASave(t *testing.T) {
	for name, c := range map[string]struct {
		replace func(t *testing.T, path string, backup []byte)
		want    error
	}{
		"replaced": {replace, errReplaced},
		"removed":  {func(t *testing.T, path string, _ []byte) { require.NoError(t, os.Remove(path)) }, os.ErrNotExist},
	} {
		t.Run(name, func(t *testing.T) {
			p := protectedAt(t)
			path, backup := p.image(t)
			on := saverIn(bootA)
			r := p.open(t, on)
			grant(t, r)
			store(t, r, persist.Range{Len: protectedSize}, 1)
			once := sync.OnceFunc(func() { c.replace(t, path, backup) })
			*on.fail = func(op string) error { once(); return nil }
			_, err := r.Save(context.Background())
			require.ErrorIs(t, err, c.want)
		})
	}
}

// TestLateLookChangesNothing: a look that hung in the disk ends after its region was given up. What is in the
// place of the image then is somebody else's: it may have been saved since.
func TestLateLookChangesNothing(t *testing.T) {
	p := protectedAt(t)
	path, backup := p.image(t)
	r := p.open(t, saverIn(bootA))
	grant(t, r)
	replace(t, path, backup)
	require.NoError(t, r.Close())
	require.ErrorContains(t, r.guardImage(), "closed")
	_, now := p.image(t)
	require.Equal(t, backup, now)
}

// TestReplacedImageStaysWhole: somebody moves the image of a region that is saved to another disk. The copy is
// what the memory is.
func TestReplacedImageStaysWhole(t *testing.T) {
	p := protectedAt(t)
	path := ImagePath(p.save, "r")
	r := p.open(t, saverIn(bootA))
	grant(t, r)
	store(t, r, persist.Range{Len: protectedSize}, 1)
	_, err := r.Save(context.Background())
	require.NoError(t, err)
	moved, err := os.ReadFile(path)
	require.NoError(t, err)
	replace(t, path, moved)
	require.ErrorIs(t, r.SaveTrouble(), errReplaced)
	data := bytes.Clone(r.Data())
	p.powerOff(t, r)
	after := p.open(t, saverIn(bootB))
	require.Zero(t, protection(t, after).Losses)
	require.Equal(t, data, after.Data())
}

// TestImageIsGuardedWhateverElseIsWrong: memory that has lost something, or its name, cannot be saved for that
// reason. A backup over the image becomes live all the same.
func TestImageIsGuardedWhateverElseIsWrong(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, r *Region){
		"a bad place": func(t *testing.T, r *Region) {
			_, err := r.Lose(address(r.Data()))
			require.NoError(t, err)
		},
		"no name": func(t *testing.T, r *Region) { require.NoError(t, os.Remove(r.Path())) },
	} {
		t.Run(name, func(t *testing.T) {
			p := protectedAt(t)
			path, backup := p.image(t)
			r := p.open(t, saverIn(bootA))
			grant(t, r)
			store(t, r, persist.Range{Len: protectedSize}, 1)
			spoil(t, r)
			overwrite(t, path, 0, backup)
			require.Error(t, r.SaveTrouble())
			require.NoError(t, r.Close())
			_ = os.Remove(p.memory)
			require.EqualValues(t, 1, protection(t, p.open(t, saverIn(bootB))).Losses)
		})
	}
}

// TestImageWithHoles: a copy of an image that a backup put back may have holes. A save needs no space.
func TestImageWithHoles(t *testing.T) {
	p := protectedAt(t)
	f, err := os.OpenFile(ImagePath(p.save, "r"), os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	size := image.Size(DataOffset + protectedSize)
	punched := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, image.BlockSize, image.BlockSize)
	if errors.Is(punched, unix.EOPNOTSUPP) {
		t.Skip("the filesystem of TMPDIR punches no holes")
	}
	require.NoError(t, punched)
	have, err := allocated(f)
	require.NoError(t, err)
	require.Less(t, have, uint64(size))
	require.NoError(t, p.open(t, saverIn(bootA)).SaveTrouble())
	have, err = allocated(f)
	require.NoError(t, err)
	require.GreaterOrEqual(t, have, uint64(size))
}

// TestMemoryIsRemoved: the memory of a region that lives loses its name, as by a cleaner of /dev/shm.
// The target says so before the memory ends.
func TestMemoryIsRemoved(t *testing.T) {
	for name, remove := range map[string]func(t *testing.T, path string){
		"removed": func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
		"replaced": func(t *testing.T, path string) {
			require.NoError(t, os.Remove(path))
			require.NoError(t, os.WriteFile(path, nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := protectedAt(t)
			r := p.open(t, saverIn(bootA))
			grant(t, r)
			store(t, r, persist.Range{Len: protectedSize}, 1)
			require.False(t, r.Nameless())
			remove(t, p.memory)
			require.True(t, r.Nameless())
			require.ErrorContains(t, r.SaveTrouble(), "somebody has removed its memory")
			_, err := r.Save(context.Background())
			require.NoError(t, err)
			data := bytes.Clone(r.Data())
			require.NoError(t, r.Close())
			_ = os.Remove(p.memory)
			require.Equal(t, data, p.open(t, saverIn(bootA)).Data())
		})
	}
}
