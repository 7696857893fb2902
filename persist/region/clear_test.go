package region

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
)

// failedRegion makes a region with an owner and data, whose sync has failed.
func failedRegion(t *testing.T) (path string, before Superblock) {
	path = created(t, fileHost)
	d := &disk{fail: once(4)}
	r := opened(t, path, OpenOptions{}, fileHost.syncing(d.sync))
	require.NoError(t, r.Update(func(sb *Superblock) error {
		sb.Owner, sb.Clean, sb.Suspect, sb.Epoch = persist.Owner{ID: [16]byte{1}}, false, true, 4
		return nil
	}))
	for i := range r.Data() {
		r.Data()[i] = byte(i * 5)
	}
	require.ErrorIs(t, r.FlushAll(), ErrFailed)
	before = r.Superblock()
	require.NoError(t, r.Close())
	return path, before
}

func TestClear(t *testing.T) {
	path, before := failedRegion(t)
	require.Error(t, clearRegion(path, " \n", fileHost, nil), "a reason is needed")

	// When the first sync begins, every page must be dirty.
	var dirty []uint64
	sync := func(fd int) error {
		cr := unix.CachestatRange{Len: DataOffset + testSize}
		var cs unix.Cachestat_t
		switch err := unix.Cachestat(uint(fd), &cr, &cs, 0); {
		case err == nil:
			dirty = append(dirty, cs.Dirty+cs.Writeback)
		case !errors.Is(err, unix.ENOSYS):
			t.Error(err)
		}
		return unix.Fdatasync(fd)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	require.NoError(t, f.Sync(), "the page cache now believes that everything is clean")
	require.NoError(t, f.Close())
	require.NoError(t, clearRegion(path, "disk replaced\nfsck clean", fileHost.syncing(sync), nil))
	if len(dirty) > 0 {
		require.EqualValues(t, (DataOffset+testSize)/sizeUnit, dirty[0])
	} else {
		t.Log("this kernel has no cachestat(2) (needs 6.5): the test did not check that every page was dirty")
	}

	info, err := Inspect(path)
	require.NoError(t, err)
	sb := info.Superblock
	require.False(t, sb.Failed)
	require.Empty(t, sb.Failure)
	require.False(t, sb.Suspect)
	require.True(t, sb.Doubt)
	require.False(t, sb.Clean)
	require.Equal(t, persist.Owner{}, sb.Owner)
	require.Equal(t, before.Epoch+1, sb.Epoch)
	require.Equal(t, before.UUID, sb.UUID)
	require.Equal(t, before.Contents, sb.Contents)
	require.Equal(t, "disk replaced fsck clean", sb.Cleared)

	r := opened(t, path, OpenOptions{}, fileHost)
	require.NoError(t, r.Failed())
	require.NoError(t, r.FlushAll())
	for i, b := range r.Data() {
		if b != byte(i*5) {
			t.Fatalf("byte %d", i)
		}
	}
}

// A clear that fails leaves the region failed, whichever sync fails.
func TestClearFails(t *testing.T) {
	for at := 1; at <= 7; at++ { // the data's sync, then two updates with three each
		path, before := failedRegion(t)
		d := &disk{fail: once(at)}
		require.ErrorIs(t, clearRegion(path, "hope", fileHost.syncing(d.sync), nil), ErrFailed, "sync %d", at)
		require.Empty(t, held(t, filepath.Dir(path)))
		r := opened(t, path, OpenOptions{}, fileHost)
		require.ErrorIs(t, r.Failed(), ErrFailed, "sync %d", at)
		require.GreaterOrEqual(t, r.Superblock().Epoch, before.Epoch)
		require.NoError(t, r.Close())
		require.NoError(t, clearRegion(path, "again", fileHost, nil))
	}
}

// Data that are lost and cannot be read are an error, not a fault.
func TestClearTruncated(t *testing.T) {
	path, _ := failedRegion(t)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	require.Error(t, rewrite(f, DataOffset, 2*testSize, nil))
	require.NoError(t, f.Close())
	require.NoError(t, os.Truncate(path, DataOffset))
	require.ErrorIs(t, clearRegion(path, "x", fileHost, nil), ErrTruncated)
}

func TestClearVolatile(t *testing.T) {
	path := created(t, volatileHost)
	require.NoError(t, clearRegion(path, "x", volatileHost, nil))
	r := opened(t, path, OpenOptions{}, volatileHost)
	require.True(t, r.Superblock().Doubt)
	require.EqualValues(t, 2, r.Superblock().Epoch)
}

// Clear makes bits dirty, like data: what a failed sync left in the page cache is not on
// the disk, and setting a bit that is set there already would write nothing.
func TestClearRewritesBits(t *testing.T) {
	path := createdMember(t, fileHost)
	r := opened(t, path, OpenOptions{}, fileHost)
	require.NoError(t, r.SetRecord(recordOf(r, 0, 1, 1), 0))
	require.NoError(t, r.Close())
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	dirty, syncs := uint64(0), 0
	require.NoError(t, clearRegion(path, "x", fileHost.syncing(func(fd int) error {
		if syncs++; syncs == 2 { // the first is Open's
			var cs unix.Cachestat_t
			if err := unix.Cachestat(uint(fd), &unix.CachestatRange{Off: bitsOffset, Len: DataOffset - bitsOffset}, &cs, 0); err != nil {
				t.Skipf("cachestat(2): %v", err)
			}
			dirty = cs.Dirty + cs.Writeback
		}
		return unix.Fdatasync(fd)
	}), nil))
	require.NoError(t, f.Close())
	require.EqualValues(t, (DataOffset-bitsOffset)/4096, dirty)
}

// So it does with the superblocks of further parts, whose last sync failed: a power cut while the region is cleared
// would bring back older ones. What is bad cannot be read, and is left out.
func TestClearRewritesParts(t *testing.T) {
	h := fileHost
	paths := createdParts(t, h, 2)
	h.bad = func() ([]persist.Range, error) { return []persist.Range{{Off: DataOffset + 8192, Len: 1}}, nil } // of each
	for _, path := range paths {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		require.NoError(t, f.Sync())
		require.NoError(t, f.Close())
	}
	dirty := make(map[string][]uint64)
	require.NoError(t, clearRegion(paths[0], "x", h.syncing(func(fd int) error {
		path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		require.NoError(t, err)
		for _, g := range []unix.CachestatRange{{Len: 2 * CopySize}, {Off: DataOffset, Len: testSize}} {
			var cs unix.Cachestat_t
			if err := unix.Cachestat(uint(fd), &g, &cs, 0); err != nil {
				t.Skipf("cachestat(2): %v", err)
			}
			dirty[path] = append(dirty[path], cs.Dirty+cs.Writeback)
		}
		return unix.Fdatasync(fd)
	}), nil, paths[1:]...))
	for _, path := range paths {
		require.Equal(t, []uint64{2, testSize/sizeUnit - 1}, dirty[path][2:4], "behind Open's sync")
	}
}

// Nothing tells what memory of class volatile lost before a clear, so its contents id
// changes, and a mirror copies all of it (mirror §8). So does that of any member, if another
// one has the data. Its owner, whose session was not closed, finds that out. If none has, the others get all from it.
func TestClearDrawsContents(t *testing.T) {
	for name, c := range map[string]struct {
		f            persist.Members
		clean        bool
		draws, keeps bool
	}{
		"it alone has the data":     {f: 1},
		"another one has them":      {f: 3, draws: true, keeps: true},
		"its session was closed":    {f: 3, clean: true, draws: true},
		"it was behind":             {f: 2, draws: true, keeps: true},
		"alone, and it was closed":  {f: 1, clean: true},
		"behind, and it was closed": {f: 2, clean: true, draws: true},
	} {
		t.Run(name, func(t *testing.T) {
			onEachClass(t, func(t *testing.T, h host) {
				path := createdMember(t, h)
				r := opened(t, path, OpenOptions{}, h)
				require.NoError(t, r.SetRecord(recordOf(r, 0, 1, c.f), 0))
				require.NoError(t, r.Update(func(sb *Superblock) error {
					sb.Owner, sb.Clean = persist.Owner{ID: [16]byte{1}}, c.clean
					return nil
				}))
				before := r.Superblock()
				if c.f == 1 { // as memory that has lost the bits
					require.NoError(t, r.ClearBits(1, []persist.Range{{Len: r.Size()}}))
				}
				require.NoError(t, r.Close())
				require.NoError(t, clearRegion(path, "x", h, nil))
				r = opened(t, path, OpenOptions{}, h)
				after := r.Superblock()
				require.Equal(t, !c.draws && r.Class() != persist.ClassVolatile, before.Contents == after.Contents)
				require.Equal(t, c.keeps, after.Owner == before.Owner)
				require.Equal(t, before.Record, after.Record)
				require.False(t, after.Clean)
				if c.f == 1 {
					require.Equal(t, everyChunk(), chunksOf(t, r, 1))
				}
			})
		})
	}
}
