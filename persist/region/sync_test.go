package region

import (
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
)

// A disk counts syncs, and fails those that the test names.
type disk struct {
	syncs int
	fail  func(n int) bool // reports whether sync n, counted from 1, fails
}

func (d *disk) sync(fd int) error {
	d.syncs++
	if d.fail != nil && d.fail(d.syncs) {
		return unix.EIO
	}
	return unix.Fdatasync(fd)
}

func once(at int) func(int) bool { return func(n int) bool { return n == at } }

// The kernel reports a failed sync once. The region reports it for ever, to everybody,
// and after restarts.
func TestFailureSticks(t *testing.T) {
	path := created(t, fileHost)
	d := &disk{fail: once(2)}
	r := opened(t, path, OpenOptions{}, fileHost.syncing(d.sync))
	write := []persist.Range{{Off: 0, Len: 4096}}
	require.NoError(t, r.Flush(write))
	before := r.Superblock()

	first := r.Flush(write)
	require.ErrorIs(t, first, ErrFailed)
	require.ErrorContains(t, first, unix.EIO.Error())
	require.Equal(t, 2+2*3, d.syncs, "the failure went into both copies")
	require.Equal(t, first, r.Flush(write), "the same failure, although the disk would sync now")
	require.Equal(t, first, r.FlushAll())
	require.Equal(t, first, r.Failed())
	require.Equal(t, first, r.Update(func(*Superblock) error { t.Error("called"); return nil }))
	require.ErrorIs(t, r.Flush([]persist.Range{{Off: testSize + 1}}), ErrRange)
	require.Equal(t, 8, d.syncs, "no sync follows the failure")
	require.NoError(t, r.Close())

	info, err := Inspect(path)
	require.NoError(t, err)
	require.True(t, info.Superblock.Failed)
	require.Contains(t, info.Superblock.Failure, unix.EIO.Error())
	require.Equal(t, before.Epoch, info.Superblock.Epoch)

	for at := range 2 { // rot of either copy does not make the region healthy
		h := header(t, path)
		h[at*CopySize+700] ^= 1
		setHeader(t, path, h)
		r = opened(t, path, OpenOptions{}, fileHost)
		require.ErrorIs(t, r.Failed(), ErrFailed)
		require.ErrorContains(t, r.Failed(), unix.EIO.Error())
		require.ErrorIs(t, r.FlushAll(), ErrFailed)
		require.NoError(t, r.Close())
	}
}

// A sync that fails during an update fails the region as well, because it was everybody's
// sync. The superblock is the old one.
func TestFailureInUpdate(t *testing.T) {
	for at := 1; at <= 3; at++ {
		path := created(t, fileHost)
		d := &disk{fail: once(at)}
		r := opened(t, path, OpenOptions{}, fileHost.syncing(d.sync))
		err := r.Update(func(sb *Superblock) error { sb.Epoch = 9; return nil })
		require.ErrorIs(t, err, ErrFailed)
		require.ErrorIs(t, r.FlushAll(), ErrFailed)
		require.EqualValues(t, 1, r.Superblock().Epoch)
		require.NoError(t, r.Close())

		r = opened(t, path, OpenOptions{}, fileHost)
		require.ErrorIs(t, r.Failed(), ErrFailed)
		sb := r.Superblock()
		require.EqualValues(t, 1, sb.Epoch)
		require.False(t, sb.Doubt, "no copy looks damaged")
	}
}

// If a failure cannot be recorded, the region is failed while it is open, and says that
// the record is missing. Whoever opens the same page cache sees the failure.
func TestFailureNotRecorded(t *testing.T) {
	for from := 1; from <= 8; from++ { // every sync fails from this one on
		path := created(t, fileHost)
		d := &disk{fail: func(n int) bool { return n == 1 || n >= from }}
		r := opened(t, path, OpenOptions{}, fileHost.syncing(d.sync))
		require.ErrorIs(t, r.FlushAll(), ErrFailed)
		if from <= 7 {
			require.ErrorContains(t, r.Failed(), "could not be recorded")
		} else {
			require.NotContains(t, r.Failed().Error(), "could not be recorded")
		}
		require.True(t, r.Superblock().Failed == (from > 4), "from %d", from)
		require.NoError(t, r.Close())
		r = opened(t, path, OpenOptions{}, fileHost)
		require.ErrorIs(t, r.Failed(), ErrFailed, "from %d", from)
	}
}

// If the sync in Open fails, nobody else learns of it, so the region fails.
func TestFailureInOpen(t *testing.T) {
	path := created(t, fileHost)
	d := &disk{fail: once(2)}
	_, err := open(path, OpenOptions{}, hostOf(persist.ClassFile, bootB).syncing(d.sync))
	require.ErrorIs(t, err, unix.EIO)
	r := opened(t, path, OpenOptions{}, fileHost)
	require.ErrorIs(t, r.Failed(), ErrFailed)
}

// A flush is content with any sync that began after it, and with no other.
func TestFlushJoinsLaterSync(t *testing.T) {
	d := &disk{}
	r := opened(t, created(t, fileHost), OpenOptions{}, fileHost.syncing(d.sync))
	for range 16 { // all of them begin before the first sync
		require.NoError(t, r.flushFile(0))
	}
	require.Equal(t, 1, d.syncs)
	require.NoError(t, r.flushFile(1), "it began after sync 1 had begun")
	require.Equal(t, 2, d.syncs)
	require.NoError(t, r.flushFile(0))
	require.NoError(t, r.flushFile(1))
	require.Equal(t, 2, d.syncs)
	require.NoError(t, r.FlushAll())
	require.Equal(t, 3, d.syncs)
}

// While a sync hangs, everybody can read the state. A flush that waits behind a sync that
// fails gets the failure, although its own sync would succeed.
func TestSyncHangs(t *testing.T) {
	hung, release := make(chan struct{}), make(chan struct{})
	n := 0 // under the region's lock
	r := opened(t, created(t, fileHost), OpenOptions{}, fileHost.syncing(func(int) error {
		if n++; n > 1 {
			return nil
		}
		close(hung)
		<-release
		return unix.EIO
	}))
	letGo := sync.OnceFunc(func() { close(release) })
	t.Cleanup(letGo)
	errs := make(chan error, 5)
	flush := func() { errs <- r.Flush([]persist.Range{{Len: 1}}) }
	go flush()
	<-hung
	for range 4 {
		go flush()
	}
	require.NoError(t, r.Failed())
	require.EqualValues(t, 1, r.Superblock().Epoch)
	require.Len(t, r.Data(), testSize)
	took := r.SyncLatency()
	require.Zero(t, took.Count(), "nobody waits to learn it")
	letGo()
	for range 5 {
		require.ErrorIs(t, <-errs, ErrFailed)
	}
}

func TestFlushBounds(t *testing.T) {
	const size = testSize
	good := persist.Range{Len: 1}
	for _, c := range []struct {
		name   string
		ranges []persist.Range
		ok     bool
	}{
		{"none", nil, true},
		{"empty", []persist.Range{{}}, true},
		{"whole", []persist.Range{{Len: size}}, true},
		{"last byte", []persist.Range{{Off: size - 1, Len: 1}}, true},
		{"empty at the end", []persist.Range{{Off: size}}, true},
		{"odd", []persist.Range{{Off: 63, Len: 2}, {Off: 1, Len: size - 1}}, true},
		{"one past", []persist.Range{{Off: size - 1, Len: 2}}, false},
		{"empty past the end", []persist.Range{{Off: size + 1}}, false},
		{"too long", []persist.Range{{Len: size + 1}}, false},
		{"far", []persist.Range{{Off: math.MaxUint64, Len: 1}}, false},
		{"sum is 0", []persist.Range{{Off: math.MaxUint64, Len: 1}}, false},
		{"sum is small", []persist.Range{{Off: math.MaxUint64 - 9, Len: 20}}, false},
		{"length wraps", []persist.Range{{Off: 16, Len: math.MaxUint64 - 8}}, false},
		{"both largest", []persist.Range{{Off: math.MaxUint64, Len: math.MaxUint64}}, false},
		{"into the header", []persist.Range{{Off: math.MaxUint64 - DataOffset + 1, Len: DataOffset}}, false},
		{"second of two", []persist.Range{good, {Off: size, Len: 1}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &disk{}
			file := opened(t, created(t, fileHost), OpenOptions{}, fileHost.syncing(d.sync))
			for _, r := range []*Region{file, opened(t, created(t, volatileHost), OpenOptions{}, volatileHost)} {
				err := r.Flush(c.ranges)
				if c.ok {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, ErrRange)
					require.NoError(t, r.Failed())
				}
			}
			if c.ok {
				require.Equal(t, 1, d.syncs, "one sync whatever the ranges")
			} else {
				require.Zero(t, d.syncs, "nothing flushed")
			}
		})
	}
}

func TestFlushDoesNotAllocate(t *testing.T) {
	ranges := []persist.Range{{Off: 1, Len: 4096}, {Off: 9000, Len: 64}}
	v := opened(t, created(t, volatileHost), OpenOptions{}, volatileHost)
	f := opened(t, created(t, fileHost), OpenOptions{}, fileHost.syncing(func(int) error { return nil }))
	require.False(t, v.MayBlock())
	require.True(t, f.MayBlock())
	for _, r := range []*Region{v, f} {
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if err := r.Flush(ranges); err != nil {
				t.Error(err)
			}
			if r.Failed() != nil || r.FlushAll() != nil {
				t.Error("failed")
			}
		}), r.Class())
	}
}

func BenchmarkFlush(b *testing.B) {
	for _, h := range []host{volatileHost, fileHost} {
		r := opened(b, created(b, h), OpenOptions{}, h)
		b.Run(r.Class().String(), func(b *testing.B) {
			ranges := []persist.Range{{Off: 4096, Len: 4096}}
			data := r.Data()
			for i := range b.N {
				data[4096+i%4096]++
				if err := r.Flush(ranges); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
