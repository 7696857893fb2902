package region

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/internal/flush"
	"pmnbd/persist"
)

// onBoth runs a test on a region of class file, on the disk, and on one of class
// volatile, on a tmpfs.
func onBoth(t *testing.T, f func(t *testing.T, path string, h host)) {
	t.Run("file", func(t *testing.T) { f(t, created(t, fileHost), fileHost) })
	t.Run("tmpfs", func(t *testing.T) {
		path := filepath.Join(tinyTmpfs(t, "size=8m"), "region")
		_, err := create(path, CreateOptions{Name: "r", Size: testSize}, thisHost)
		require.NoError(t, err)
		f(t, path, thisHost)
	})
}

// Lost memory fails the region, whatever touches it, and not the process. What remains of
// the superblock keeps the failure.
func TestFaultFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		left  int64 // the size of the file
		touch func(*Region) error
		kept  bool // the failure survives a restart
	}{
		{"zero", DataOffset, func(r *Region) error { return r.Zero(persist.Range{Off: testSize - 1, Len: 1}) }, true},
		{"told by who had the fault", DataOffset, func(r *Region) error { return r.Fail(ErrFault) }, true},
		{"set bits", 2 * CopySize, func(r *Region) error { return r.SetBits(2, []persist.Range{{Len: 1}}) }, true},
		{"clear bits", 2 * CopySize, func(r *Region) error { return r.ClearBits(1, []persist.Range{{Len: testSize}}) }, true},
		{"read bits", 2 * CopySize, func(r *Region) error { _, err := r.ReadBits(1, 0, make([]byte, 1)); return err }, true},
		{"set a record", 2 * CopySize, func(r *Region) error { return r.SetRecord(recordOf(r, 0, 2, 1), 2) }, true},
		{"digest", DataOffset, func(r *Region) error { _, err := r.Digest(persist.Range{Len: testSize}); return err }, true},
		{"update", 0, func(r *Region) error { return r.Update(func(sb *Superblock) error { sb.Epoch++; return nil }) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, path string, h host) {
				r := opened(t, path, OpenOptions{}, h)
				require.NoError(t, r.SetRecord(recordOf(r, 0, 1, 1), 0))
				require.NoError(t, os.Truncate(path, c.left))
				err := c.touch(r)
				require.ErrorIs(t, err, ErrFailed)
				require.ErrorContains(t, err, ErrFault.Error())
				require.Equal(t, err, r.Failed())
				require.Equal(t, err, r.FlushAll())
				require.Equal(t, err, r.Flush(nil))
				require.Equal(t, err, r.Fail(os.ErrInvalid), "the first cause stays")
				require.ErrorIs(t, r.Update(func(*Superblock) error { return nil }), ErrFailed)
				require.NoError(t, r.Close())
				require.Error(t, r.Fail(ErrFault))
				info, err := Inspect(path)
				if !c.kept {
					require.Error(t, err)
					return
				}
				require.NoError(t, err)
				require.True(t, info.Superblock.Failed)
				require.Contains(t, info.Superblock.Failure, ErrFault.Error())
				require.ErrorIs(t, clearRegion(path, "x", h, nil), ErrTruncated)
				require.NoError(t, os.Truncate(path, DataOffset+testSize)) // restores as much as possible
				require.NoError(t, clearRegion(path, "x", h, nil))
			})
		})
	}
}

// Cache lines of lost memory cannot be written back. The barrier fails whose Writes were
// placed before the file became shorter.
func TestFaultInFlush(t *testing.T) {
	if flush.Instruction() == flush.None {
		t.Skipf("%s without assembly: nothing is touched", runtime.GOARCH)
	}
	for name, class := range map[string]persist.Class{"volatile": persist.ClassVolatile, "pmem": persist.ClassPMem} {
		t.Run(name, func(t *testing.T) {
			h := hostOf(class, bootA)
			path := created(t, h)
			r := opened(t, path, OpenOptions{}, h)
			r.Data()[0] = 1
			require.NoError(t, r.FlushAll())
			require.NoError(t, os.Truncate(path, DataOffset))
			err := r.Flush([]persist.Range{{Len: 1}})
			require.ErrorIs(t, err, ErrFailed)
			require.ErrorContains(t, err, ErrFault.Error()+" at offset 0x200000")
			require.Equal(t, err, r.Flush(nil))
		})
		t.Run(name+" bits", func(t *testing.T) {
			h := hostOf(class, bootA)
			path := created(t, h)
			r := opened(t, path, OpenOptions{}, h)
			require.NoError(t, r.SetRecord(recordOf(r, 0, 1, 1), 0))
			require.NoError(t, os.Truncate(path, 2*CopySize))
			require.ErrorIs(t, r.FlushBits(2, []persist.Range{{Len: 1}}), ErrFailed)
		})
	}
}

// If somebody finds the memory broken during a barrier, the barrier must fail.
func TestFailDuringFlush(t *testing.T) {
	var r *Region
	h := volatileHost
	h.lines = func([]byte) { _ = r.Fail(ErrFault) }
	r = opened(t, created(t, volatileHost), OpenOptions{}, h)
	require.ErrorIs(t, r.FlushAll(), ErrFailed)
}

// A fault elsewhere, and any other panic, is not taken for a fault of the region.
func TestCaughtIsNarrow(t *testing.T) {
	path := created(t, fileHost)
	r := opened(t, path, OpenOptions{}, fileHost)
	other, err := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	touch := func(f func()) (err error) {
		defer caught(r.mem, false, &err)
		f()
		return nil
	}
	require.NoError(t, touch(func() {}))
	require.PanicsWithValue(t, "ours", func() { _ = touch(func() { panic("ours") }) })
	require.Panics(t, func() {
		_ = touch(func() {
			var err error
			debug.SetPanicOnFault(true)
			defer caught(r.mem, false, &err)
			clear(other)
		})
	})
	require.NoError(t, unix.Munmap(other))
	require.Panics(t, func() {
		var none *Region
		_ = touch(func() { none.size++ })
	})
}

// Catching faults does not allocate.
func TestFlushAllocatesNothing(t *testing.T) {
	r := opened(t, created(t, volatileHost), OpenOptions{}, volatileHost)
	ranges := []persist.Range{{Off: 5, Len: 4096}, {Off: 8192, Len: 1}}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if err := r.Flush(ranges); err != nil {
			t.Fatal(err)
		}
		if err := r.Zero(ranges[0]); err != nil {
			t.Fatal(err)
		}
	}))
}
