package region

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/internal/testhost"
	"pmnbd/persist"
	"pmnbd/persist/region/internal/image"
	"pmnbd/persist/region/internal/medium"
)

// protectedSize is the data extent of regions of class protected in tests: three blocks, the
// last of which is shorter. With one block more a region would be more than many users may lock.
const protectedSize = 2*image.BlockSize + 64<<10

// A saver is a host on which images are on a disk, and everything else is memory. Its disk
// fails when fail says so.
type saver struct {
	host
	fail *func(op string) error // called before each write and sync of an image, and behind each read; nil: never
}

func (s saver) Storage(f image.File) image.File { return faulty{f, s.fail} }

type faulty struct {
	image.File
	fail *func(op string) error
}

func (f faulty) ReadAt(b []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(b, off)
	if err == nil && *f.fail != nil && (*f.fail)("read") != nil {
		b[n/2] ^= 1 // the disk says nothing of it
	}
	return n, err
}

func (f faulty) WriteAt(b []byte, off int64) (int, error) {
	if *f.fail != nil {
		if err := (*f.fail)("write"); err != nil {
			return 0, err
		}
	}
	return f.File.WriteAt(b, off)
}

func (f faulty) Sync() error {
	if *f.fail != nil {
		if err := (*f.fail)("sync"); err != nil {
			return err
		}
	}
	return f.File.Sync()
}

func saverIn(boot [16]byte) saver {
	return saver{host: host{
		memoryOf: func(f *os.File) (medium.Memory, error) {
			if strings.HasSuffix(f.Name(), imageSuffix) {
				return medium.Memory{Class: persist.ClassFile, Flags: unix.MAP_SHARED}, nil
			}
			return medium.Memory{Class: persist.ClassVolatile, RAM: true, Flags: unix.MAP_SHARED}, nil
		},
		bootID: func() ([16]byte, error) { return boot, nil },
	}, fail: new(func(string) error)}
}

// place is where a test keeps a region of class protected.
type place struct{ memory, save string }

func protectedAt(t testing.TB) place {
	t.Helper()
	testhost.CanLock(t, DataOffset+protectedSize)
	dir := t.TempDir()
	p := place{filepath.Join(dir, "memory"), filepath.Join(dir, "disk")}
	require.NoError(t, os.Mkdir(p.save, 0o700))
	_, err := create(p.memory, CreateOptions{Name: "r", Size: protectedSize, Class: persist.ClassProtected, Save: p.save}, saverIn(bootA))
	require.NoError(t, err)
	return p
}

func (p place) open(t testing.TB, on medium.Medium) *Region {
	t.Helper()
	r, err := open(p.memory, OpenOptions{Name: "r", Save: p.save}, on)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// powerOff takes the memory away.
func (p place) powerOff(t testing.TB, r *Region) {
	t.Helper()
	require.NoError(t, r.Close())
	require.NoError(t, os.Remove(p.memory))
}

// grant does what a session's begin does to a region.
func grant(t testing.TB, r *Region) {
	t.Helper()
	require.NoError(t, r.Update(func(sb *Superblock) error {
		sb.Epoch++
		sb.Owner, sb.Clean = persist.Owner{ID: [16]byte{1}}, false
		return nil
	}))
}

// store writes random bytes into a range as a session does: a flush tells it.
func store(t testing.TB, r *Region, g persist.Range, seed uint64) {
	t.Helper()
	random(r.Data()[g.Off:g.Off+g.Len], seed)
	require.NoError(t, r.Flush([]persist.Range{g}))
}

func random(b []byte, seed uint64) {
	c := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = c.Read(b) // never fails
}

func protection(t testing.TB, r *Region) Protection {
	t.Helper()
	p, ok := r.Protection()
	require.True(t, ok)
	return p
}

func TestProtectedSurvivesAPowerFailureAfterASave(t *testing.T) {
	p := protectedAt(t)
	r := p.open(t, saverIn(bootA))
	require.Equal(t, persist.ClassProtected, r.Class())
	require.True(t, r.FencesOnly())
	require.True(t, protection(t, r).Whole, "a new region is saved")
	grant(t, r)
	require.False(t, protection(t, r).Whole)
	store(t, r, persist.Range{Len: protectedSize}, 1)
	_, err := r.Save(context.Background())
	require.NoError(t, err)
	require.True(t, protection(t, r).Whole)
	was, data := r.Superblock(), bytes.Clone(r.Data())
	p.powerOff(t, r)

	r = p.open(t, saverIn(bootB))
	after := protection(t, r)
	require.True(t, after.Loaded)
	require.True(t, after.Whole, "the next power failure may come before anybody uses it")
	require.Zero(t, after.Dirty)
	require.Zero(t, after.Losses)
	require.Equal(t, data, r.Data())
	now := r.Superblock()
	require.NotEqual(t, was.Memory, now.Memory, "each memory has a number of its own")
	was.Boot, was.Memory = bootB, now.Memory
	require.Equal(t, was, now, "all of it, with its owner, epoch and contents id")
	p.powerOff(t, r)
	require.Equal(t, data, p.open(t, saverIn(bootA)).Data())
}

func TestProtectedIsLostWithoutASave(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(t *testing.T, r *Region)
		why    string
	}{
		{"a session that was never saved", func(t *testing.T, r *Region) {
			grant(t, r)
		}, "not saved"},
		{"a session after a save", func(t *testing.T, r *Region) {
			grant(t, r)
			store(t, r, persist.Range{Len: 4096}, 1)
			_, err := r.Save(context.Background())
			require.NoError(t, err)
			grant(t, r)
		}, "not saved"},
		{"zeroes after a save", func(t *testing.T, r *Region) {
			require.NoError(t, r.Zero(persist.Range{Len: 4096}))
		}, "not saved"},
		{"a flush after a save", func(t *testing.T, r *Region) {
			store(t, r, persist.Range{Len: 4096}, 1)
		}, "not saved"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := protectedAt(t)
			r := p.open(t, saverIn(bootA))
			c.before(t, r)
			was := r.Superblock()
			p.powerOff(t, r)

			r = p.open(t, saverIn(bootB))
			after, now := protection(t, r), r.Superblock()
			require.EqualValues(t, 1, after.Losses)
			require.Contains(t, after.Lost, c.why)
			require.False(t, after.LostAt.IsZero())
			require.False(t, after.Whole)
			require.Equal(t, make([]byte, protectedSize), r.Data())
			require.Equal(t, was.UUID, now.UUID)
			require.Equal(t, was.Owner, now.Owner, "it resumes, and finds other contents")
			require.NotEqual(t, was.Contents, now.Contents)
			require.Greater(t, now.Epoch, was.Epoch)
			require.Greater(t, now.Mark, was.Mark)
			p.powerOff(t, r)
			r = p.open(t, saverIn([16]byte{0xc}))
			require.EqualValues(t, 2, protection(t, r).Losses)
			require.Greater(t, r.Superblock().Epoch, now.Epoch)
		})
	}
}

func TestProtectedKeepsItsMemoryOverARestart(t *testing.T) {
	p := protectedAt(t)
	r := p.open(t, saverIn(bootA))
	grant(t, r)
	store(t, r, persist.Range{Len: protectedSize}, 1)
	was, data := r.Superblock(), bytes.Clone(r.Data())
	require.NoError(t, r.Close())
	r = p.open(t, saverIn(bootA))
	require.Equal(t, was, r.Superblock())
	require.Equal(t, data, r.Data())
	require.EqualValues(t, DataOffset+protectedSize, protection(t, r).Dirty, "nobody knows what was stored")
	saved, err := r.Save(context.Background())
	require.NoError(t, err)
	require.EqualValues(t, DataOffset+protectedSize, saved.Bytes)
	require.NoError(t, r.Close())
	r = p.open(t, saverIn(bootA))
	require.Zero(t, protection(t, r).Dirty)
	saved, err = r.Save(context.Background())
	require.NoError(t, err)
	require.Zero(t, saved.Bytes)
	require.True(t, protection(t, r).Whole)
}

// TestSaveSettlesDoubt: a start that had to settle doubt would make the image live, and the next
// power failure would lose the region although nobody has used it.
func TestSaveSettlesDoubt(t *testing.T) {
	p := protectedAt(t)
	r := p.open(t, saverIn(bootA))
	grant(t, r)
	require.NoError(t, r.Update(func(sb *Superblock) error { sb.Doubt = true; return nil }))
	_, err := r.Save(context.Background())
	require.NoError(t, err)
	require.False(t, r.Superblock().Doubt)
	contents := r.Superblock().Contents
	p.powerOff(t, r)
	r = p.open(t, saverIn(bootB))
	require.True(t, protection(t, r).Whole)
	require.False(t, r.Superblock().Doubt)
	require.Equal(t, contents, r.Superblock().Contents)
}

// TestOnlyWhatIsDirtyIsSaved: after a session that told everything, a save writes the blocks
// that it named and the one with the superblock, and that is enough.
func TestOnlyWhatIsDirtyIsSaved(t *testing.T) {
	whole := uint64(DataOffset + protectedSize)
	second := persist.Range{Off: image.BlockSize + 4096, Len: 8192}
	for _, c := range []struct {
		name  string
		use   func(t *testing.T, r *Region)
		dirty uint64
	}{
		{"nothing", func(*testing.T, *Region) {}, 0},
		{"a session that lives", func(t *testing.T, r *Region) {
			grant(t, r)
			store(t, r, second, 2)
		}, whole},
		{"a session that told all", func(t *testing.T, r *Region) {
			grant(t, r)
			store(t, r, second, 2)
			r.Known()
		}, 2 * image.BlockSize},
		{"zeroes of such a session", func(t *testing.T, r *Region) {
			grant(t, r)
			require.NoError(t, r.Zero(second))
			r.Known()
		}, 2 * image.BlockSize},
		{"a range over two blocks", func(t *testing.T, r *Region) {
			grant(t, r)
			store(t, r, persist.Range{Off: image.BlockSize - 4096, Len: 8192}, 2)
			r.Known()
		}, 3 * image.BlockSize},
		{"two that told all", func(t *testing.T, r *Region) {
			for range 2 {
				grant(t, r)
				store(t, r, second, 2)
				r.Known()
			}
		}, 2 * image.BlockSize},
		{"one that told all after one that did not end", func(t *testing.T, r *Region) {
			grant(t, r)
			random(r.Data()[:4096], 3)
			grant(t, r)
			store(t, r, second, 2)
			r.Known()
		}, whole},
		{"one whose method tells nothing", func(t *testing.T, r *Region) {
			grant(t, r)
			random(r.Data()[:4096], 3)
		}, whole},
		{"something unknown after one that told all", func(t *testing.T, r *Region) {
			grant(t, r)
			r.Known()
			r.saving.unknownFrom(r.Superblock().Epoch)
			random(r.Data()[:4096], 3)
		}, whole},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := protectedAt(t)
			r := p.open(t, saverIn(bootA))
			grant(t, r)
			store(t, r, persist.Range{Len: protectedSize}, 1)
			_, err := r.Save(context.Background())
			require.NoError(t, err)
			c.use(t, r)
			require.Equal(t, c.dirty, protection(t, r).Dirty)
			saved, err := r.Save(context.Background())
			require.NoError(t, err)
			require.Equal(t, c.dirty, saved.Bytes)
			require.Zero(t, protection(t, r).Dirty)
			data := bytes.Clone(r.Data())
			p.powerOff(t, r)
			require.Equal(t, data, p.open(t, saverIn(bootB)).Data())
		})
	}
}

func TestTornImageIsALoss(t *testing.T) {
	for _, c := range []struct {
		name string
		off  int64
	}{{"table", 16 << 10}, {"first block", image.BlockSize + 100}, {"last block", image.BlockSize + DataOffset + protectedSize - 4096}} {
		t.Run(c.name, func(t *testing.T) {
			p := protectedAt(t)
			overwrite(t, ImagePath(p.save, "r"), c.off, []byte{0xff, 0, 0xff})
			require.NoError(t, os.Remove(p.memory))
			r := p.open(t, saverIn(bootB))
			require.EqualValues(t, 1, protection(t, r).Losses)
			require.Contains(t, protection(t, r).Lost, "CRC")
			require.Equal(t, make([]byte, protectedSize), r.Data())
		})
	}
}

// TestImageIsReadAgain: a loss is for good. What fails its check once may only have been read wrongly.
func TestImageIsReadAgain(t *testing.T) {
	p := protectedAt(t)
	r := p.open(t, saverIn(bootA))
	grant(t, r)
	store(t, r, persist.Range{Len: protectedSize}, 1)
	_, err := r.Save(context.Background())
	require.NoError(t, err)
	data := bytes.Clone(r.Data())
	p.powerOff(t, r)
	on := saverIn(bootB)
	var reads atomic.Int64
	*on.fail = func(op string) error {
		if op == "read" && reads.Add(1) == 5 { // behind two copies of the header, table and the first block
			return errors.New("wrong")
		}
		return nil
	}
	r = p.open(t, on)
	require.Zero(t, protection(t, r).Losses)
	require.Equal(t, data, r.Data())
}

// TestProtectedAndADiskThatFails: what the image cannot announce does not happen, and the region
// goes on when the disk does.
func TestProtectedAndADiskThatFails(t *testing.T) {
	p := protectedAt(t)
	on := saverIn(bootA)
	r := p.open(t, on)
	broken := errors.New("broken")
	*on.fail = func(string) error { return broken }
	was := r.Superblock()
	err := r.Update(func(sb *Superblock) error { sb.Epoch++; return nil })
	require.ErrorIs(t, err, ErrSave)
	require.ErrorIs(t, err, broken)
	require.NoError(t, r.Failed(), "its memory is good")
	require.Equal(t, was, r.Superblock())
	require.ErrorIs(t, r.Zero(persist.Range{Len: 4096}), ErrSave)
	require.ErrorIs(t, r.SaveTrouble(), broken)
	*on.fail = nil
	require.NoError(t, r.SaveTrouble())
	grant(t, r)
	*on.fail = func(string) error { return broken }
	store(t, r, persist.Range{Len: 4096}, 1) // needs no disk
	_, err = r.Save(context.Background())
	require.ErrorIs(t, err, broken)
	*on.fail = nil
	_, err = r.Save(context.Background())
	require.NoError(t, err)
	data := bytes.Clone(r.Data())
	p.powerOff(t, r)
	require.Equal(t, data, p.open(t, saverIn(bootB)).Data())
}

func TestSaveIsInterrupted(t *testing.T) {
	p := protectedAt(t)
	r := p.open(t, saverIn(bootA))
	grant(t, r)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := r.Save(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, protection(t, r).Whole)
	p.powerOff(t, r)
	require.EqualValues(t, 1, protection(t, p.open(t, saverIn(bootB))).Losses)
}

// TestSaveGoesLiveFirst: a save that begins with an image that is whole, for whatever reason, does
// not overwrite its blocks before the header says so.
func TestSaveGoesLiveFirst(t *testing.T) {
	p := protectedAt(t)
	on := saverIn(bootA)
	r := p.open(t, on)
	r.saving.unknownFrom(r.Superblock().Epoch) // dirty, and still whole: nobody has changed anything
	random(r.Data(), 1)
	broken := errors.New("broken")
	var n atomic.Int64
	*on.fail = func(op string) error {
		if n.Add(1) > 5 && op == "write" { // both copies of the header have been written and synced, and one block
			return broken
		}
		return nil
	}
	_, err := r.Save(context.Background())
	require.ErrorIs(t, err, broken)
	*on.fail = nil
	p.powerOff(t, r)
	after := protection(t, p.open(t, saverIn(bootB)))
	require.EqualValues(t, 1, after.Losses)
	require.NotContains(t, after.Lost, "CRC", "the header tells")
}
