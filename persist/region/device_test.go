package region

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

const deviceSize = 4 << 20

// deviceHost is a machine on which every file stands for a device-dax device.
func deviceHost(p Platform) host {
	return host{
		memoryOf: func(f *os.File) (medium.Memory, error) {
			info, err := f.Stat()
			if err != nil {
				return medium.Memory{}, err
			}
			return medium.Memory{Class: persist.ClassPMem, Platform: p, Device: uint64(info.Size()), Flags: unix.MAP_SHARED}, nil
		},
		bootID: func() ([16]byte, error) { return bootA, nil },
	}
}

// newDevice makes a device of n bytes. They are zero, except one byte at each offset in
// data.
func newDevice(t *testing.T, n int64, data ...int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dax0.0")
	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(n))
	for _, off := range data {
		_, err = f.WriteAt([]byte{1}, off)
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
	return path
}

func TestCreateOnDevice(t *testing.T) {
	h := deviceHost(Platform{Domain: DomainMemory, Counted: true, UnsafeShutdowns: 4})
	for _, c := range []struct {
		name string
		path string
		o    CreateOptions
		want error
		size uint64
	}{
		{"all of it", newDevice(t, deviceSize), CreateOptions{Name: "r"}, nil, deviceSize - DataOffset},
		{"less", newDevice(t, deviceSize), CreateOptions{Name: "r", Size: 4096}, nil, 4096},
		{"more", newDevice(t, deviceSize), CreateOptions{Name: "r", Size: deviceSize}, ErrSize, 0},
		{"far more", newDevice(t, deviceSize), CreateOptions{Name: "r", Size: math.MaxInt64 &^ 4095}, ErrSize, 0},
		{"odd", newDevice(t, deviceSize), CreateOptions{Name: "r", Size: 5000}, ErrSize, 0},
		{"too small", newDevice(t, DataOffset), CreateOptions{Name: "r"}, ErrSize, 0},
		{"not even a header", newDevice(t, 4096), CreateOptions{Name: "r"}, ErrSize, 0},
		{"bad name", newDevice(t, deviceSize), CreateOptions{Name: "a/b"}, ErrName, 0},
		{"data", newDevice(t, deviceSize, deviceSize-1), CreateOptions{Name: "r"}, ErrNotEmpty, 0},
		{"data, forced", newDevice(t, deviceSize, 12, deviceSize-1), CreateOptions{Name: "r", Force: true}, nil, deviceSize - DataOffset},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, err := os.ReadFile(c.path)
			require.NoError(t, err)
			info, err := create(c.path, c.o, h)
			require.Empty(t, held(t, filepath.Dir(c.path)))
			require.ErrorIs(t, err, c.want)
			after, err := os.ReadFile(c.path)
			require.NoError(t, err)
			require.Len(t, after, len(before), "a device keeps its size")
			if c.want != nil {
				require.Equal(t, before, after)
				return
			}
			require.Equal(t, c.size, info.Superblock.Size)
			require.Equal(t, persist.ClassPMem, info.Superblock.Class)
			require.Equal(t, persist.ClassPMem, info.Class)
			require.EqualValues(t, 4, info.Superblock.UnsafeShutdowns)
			require.Equal(t, [2]CopyState{CopyGood, CopyGood}, info.Copies)
			require.Equal(t, make([]byte, deviceSize-2*CopySize), after[2*CopySize:])

			seen, err := inspectPath(c.path, h)
			require.NoError(t, err)
			require.Equal(t, info, seen)
			r := opened(t, c.path, OpenOptions{Name: "r"}, h)
			require.Len(t, r.Data(), int(c.size))
			_, err = create(c.path, CreateOptions{Name: "r", Force: true}, h)
			require.ErrorIs(t, err, ErrInUse)
			_, err = inspectPath(c.path, h)
			require.NoError(t, err)
		})
	}
}

// A region on a device lives as one in a file does, through its mapping alone.
func TestDeviceLife(t *testing.T) {
	h := deviceHost(Platform{Domain: DomainMemory})
	path := newDevice(t, deviceSize)
	_, err := open(path, OpenOptions{Name: "r", CreateSize: 1 << 20}, h)
	require.ErrorIs(t, err, ErrNoSuperblock, "serve must not create a region on an existing device")
	_, err = create(path, CreateOptions{Name: "r", Size: 1 << 20}, h)
	require.NoError(t, err)
	never := func(int) error { t.Error("a device was synced"); return nil }
	r := opened(t, path, OpenOptions{}, h.syncing(never))
	require.False(t, r.MayBlock())
	require.NoError(t, r.Update(func(sb *Superblock) error { sb.Epoch, sb.Clean = 7, false; return nil }))
	copy(r.Data()[4096:], "data")
	require.NoError(t, r.FlushAll())
	require.NoError(t, r.Close())
	r = opened(t, path, OpenOptions{Name: "r", CreateSize: 1 << 20}, h.syncing(never))
	require.EqualValues(t, 7, r.Superblock().Epoch)
	require.Equal(t, "data", string(r.Data()[4096:4100]))
	require.ErrorIs(t, r.Fail(ErrFault), ErrFailed)
	require.NoError(t, r.Close())
	require.NoError(t, clearRegion(path, "repaired", h.syncing(never), nil))
	r = opened(t, path, OpenOptions{}, h.syncing(never))
	require.NoError(t, r.Failed())
	require.EqualValues(t, 8, r.Superblock().Epoch)
	require.True(t, r.Superblock().Doubt)
	require.NoError(t, r.Close())

	require.NoError(t, os.Truncate(path, DataOffset+4096))
	_, err = open(path, OpenOptions{}, h)
	require.ErrorIs(t, err, ErrTruncated)
	require.NoError(t, os.Truncate(path, 4096))
	_, err = inspectPath(path, h)
	require.ErrorIs(t, err, ErrNoSuperblock)
}

// On ADR a flush writes back cache lines. On eADR it fences once, however many ranges it
// has, and does nothing else.
func TestFlushByDomain(t *testing.T) {
	for _, c := range []struct {
		domain        Domain
		lines, fences int
	}{{DomainMemory, 2, 0}, {DomainCaches, 0, 1}} {
		t.Run(string(c.domain), func(t *testing.T) {
			h := deviceHost(Platform{Domain: c.domain})
			path := newDevice(t, deviceSize)
			_, err := create(path, CreateOptions{Name: "r"}, h)
			require.NoError(t, err)
			lines, fences := 0, 0
			h.lines, h.fence = func([]byte) { lines++ }, func() { fences++ }
			r := opened(t, path, OpenOptions{}, h)
			require.Equal(t, c.domain, r.Platform().Domain)
			require.NoError(t, r.Flush([]persist.Range{{Off: 1, Len: 1}, {Off: 100, Len: 1}}))
			require.Equal(t, c.lines, lines)
			require.Equal(t, c.fences, fences)
			require.ErrorIs(t, r.Flush([]persist.Range{{Off: r.Size(), Len: 1}}), ErrRange)
		})
	}
}

// A power-fail save that did not happen makes a region suspect until an operator clears
// it, even if the count stays the same from then on.
func TestUnsafeShutdown(t *testing.T) {
	counting := func(n uint64) host {
		return deviceHost(Platform{Domain: DomainMemory, Counted: true, UnsafeShutdowns: n})
	}
	path := newDevice(t, deviceSize)
	_, err := create(path, CreateOptions{Name: "r"}, counting(3))
	require.NoError(t, err)
	unclean := func(sb *Superblock) error { sb.Clean = false; return nil }
	clean := func(sb *Superblock) error { sb.Clean = true; return nil }
	with := func(n uint64, f func(*Superblock) error) Superblock {
		t.Helper()
		r := opened(t, path, OpenOptions{}, counting(n))
		if f != nil {
			require.NoError(t, r.Update(f))
		}
		sb := r.Superblock()
		require.NoError(t, r.Close())
		return sb
	}
	require.False(t, with(3, unclean).Suspect)
	require.False(t, with(3, nil).Suspect, "the power failed, and the platform saved what was in flight")
	require.False(t, with(2, clean).Suspect, "another module counts from the start")
	sb := with(2, unclean)
	require.EqualValues(t, 2, sb.UnsafeShutdowns)

	sb = with(4, nil)
	require.True(t, sb.Suspect)
	require.EqualValues(t, 2, sb.UnsafeShutdowns, "only a clean close and a clear change it")
	sb = with(4, unclean)
	require.True(t, sb.Suspect)
	require.EqualValues(t, 2, sb.UnsafeShutdowns)
	info, err := inspectPath(path, counting(4))
	require.NoError(t, err)
	require.True(t, info.Superblock.Suspect, "durable")
	require.EqualValues(t, 4, info.Platform.UnsafeShutdowns)

	require.NoError(t, clearRegion(path, "fsck", counting(4), nil))
	sb = with(4, nil)
	require.False(t, sb.Suspect)
	require.EqualValues(t, 4, sb.UnsafeShutdowns)

	// A platform that does not count tells nothing.
	require.False(t, with(4, unclean).Suspect)
	r := opened(t, path, OpenOptions{}, deviceHost(Platform{Domain: DomainMemory}))
	require.NoError(t, r.Update(clean))
	require.False(t, r.Superblock().Suspect)
	require.EqualValues(t, 4, r.Superblock().UnsafeShutdowns)
}

// A region on a device stays failed if Clear cannot read the data.
func TestClearUnreadable(t *testing.T) {
	path := newDevice(t, deviceSize)
	_, err := create(path, CreateOptions{Name: "r"}, deviceHost(Platform{Domain: DomainCaches}))
	require.NoError(t, err)
	// The machine believes in the device's old size, so what lies behind is SIGBUS.
	broken := host{bootID: func() ([16]byte, error) { return bootA, nil }, memoryOf: func(*os.File) (medium.Memory, error) {
		return medium.Memory{Class: persist.ClassPMem, Platform: Platform{Domain: DomainCaches}, Device: deviceSize, Flags: unix.MAP_SHARED}, nil
	}}
	r := opened(t, path, OpenOptions{}, broken)
	require.ErrorIs(t, r.Fail(ErrFault), ErrFailed)
	require.NoError(t, r.Close())
	require.NoError(t, os.Truncate(path, DataOffset))
	require.ErrorIs(t, clearRegion(path, "x", broken, nil), ErrFault)
	info, err := inspectPath(path, broken)
	require.NoError(t, err)
	require.True(t, info.Superblock.Failed)
	_, err = create(path, CreateOptions{Name: "r", Force: true}, broken)
	require.ErrorIs(t, err, ErrFault)
	require.Empty(t, held(t, filepath.Dir(path)))
	require.NoError(t, os.Truncate(path, 0))
	_, err = inspectPath(path, broken)
	require.ErrorIs(t, err, ErrFault)
}

// A region in a file on DAX has blocks that are written, and is never synced again.
func TestFileOnDAX(t *testing.T) {
	h := hostOf(persist.ClassPMem, bootA)
	path := created(t, h)
	f, err := os.Open(path)
	require.NoError(t, err)
	// SEEK_DATA takes cached pages for data, even if their blocks are unwritten.
	require.NoError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	for off := int64(0); off < DataOffset+testSize; off += 4096 {
		at, err := unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
		require.NoError(t, err)
		require.Equal(t, off, at, "the blocks must be written, not only allocated")
	}
	require.NoError(t, f.Close())
	r := opened(t, path, OpenOptions{}, h.syncing(func(int) error { t.Error("synced"); return nil }))
	require.NoError(t, r.Update(func(sb *Superblock) error { sb.Epoch++; return nil }))
	require.NoError(t, r.FlushAll())
}

// A device that has lost a block of its superblock says how to repair it. Until then nothing is written there.
func TestLostHeader(t *testing.T) {
	path := newDevice(t, deviceSize)
	h := deviceHost(Platform{Domain: DomainCaches})
	_, err := create(path, CreateOptions{Name: "r"}, h)
	require.NoError(t, err)
	h.memoryOf = func(*os.File) (medium.Memory, error) {
		return medium.Memory{Class: persist.ClassPMem, Platform: Platform{Domain: DomainCaches}, Device: deviceSize, Flags: unix.MAP_SHARED}, nil
	}
	require.NoError(t, os.Truncate(path, CopySize)) // touching the second copy is a fault
	_, err = open(path, OpenOptions{}, h)
	require.ErrorIs(t, err, ErrFault)
	require.ErrorContains(t, err, "ndctl clear-errors")
	require.NoError(t, os.Truncate(path, deviceSize)) // repaired, and zeroes
	r := opened(t, path, OpenOptions{}, h)
	require.True(t, r.Superblock().Doubt)
	require.Equal(t, persist.Owner{}, r.Superblock().Owner)
}
