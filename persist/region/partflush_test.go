package region

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

// syncLog notes which parts are synced.
type syncLog struct {
	t     *testing.T
	paths []string
	mu    sync.Mutex
	got   []int
	err   map[int]error
}

func (l *syncLog) sync(fd int) error {
	var st, of unix.Stat_t
	require.NoError(l.t, unix.Fstat(fd, &st))
	for i, path := range l.paths {
		require.NoError(l.t, unix.Stat(path, &of))
		if st.Ino == of.Ino {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.got = append(l.got, i)
			return l.err[i]
		}
	}
	return nil
}

// take returns the parts that were synced since the last take.
func (l *syncLog) take() []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	got := l.got
	l.got = nil
	slices.Sort(got) // they are synced at the same time
	return got
}

func openedLogged(t *testing.T, n int) (*Region, *syncLog) {
	paths := createdParts(t, fileHost, n)
	log := &syncLog{t: t, paths: paths, err: map[int]error{}}
	r := openedParts(t, paths, fileHost.syncing(log.sync))
	return r, log
}

func at(part, off, n uint64) persist.Range { return persist.Range{Off: part*testSize + off, Len: n} }

// A flush of class file syncs the files that its ranges touch, each once.
func TestFlushParts(t *testing.T) {
	r, log := openedLogged(t, 4)
	for _, c := range []struct {
		name   string
		ranges []persist.Range
		want   []int
	}{
		{"one", []persist.Range{at(2, 0, 1)}, []int{2}},
		{"the last byte of one", []persist.Range{at(1, testSize-1, 1)}, []int{1}},
		{"across an end", []persist.Range{at(1, testSize-1, 2)}, []int{1, 2}},
		{"twice in one", []persist.Range{at(3, 0, 1), at(3, 5, 9)}, []int{3}},
		{"two apart", []persist.Range{at(3, 0, 1), at(0, 5, 9)}, []int{0, 3}},
		{"all", []persist.Range{at(0, 0, 4*testSize)}, []int{0, 1, 2, 3}},
		{"no bytes", []persist.Range{at(2, 0, 0)}, nil},
		{"nothing noted", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.NoError(t, r.Flush(c.ranges))
			require.Equal(t, c.want, log.take())
			require.NoError(t, r.Note(c.ranges))
			require.Empty(t, log.take(), "noting is not flushing")
			require.NoError(t, r.Flush(nil))
			require.Equal(t, c.want, log.take())
			require.NoError(t, r.Flush(nil))
			require.Empty(t, log.take(), "it is durable already")
		})
	}
	require.ErrorIs(t, r.Flush([]persist.Range{at(3, testSize, 1)}), ErrRange)
	require.ErrorIs(t, r.Note([]persist.Range{at(3, 1, testSize)}), ErrRange)
	require.Empty(t, log.take())
}

// The bits of a mirror's members are in the first part, so a flush there makes them durable
// with the data, wherever those are.
func TestFlushPartsWithBits(t *testing.T) {
	r, log := openedLogged(t, 3)
	require.NoError(t, r.SetRecord(recordOf(r, 0, 1, 7), 0))
	log.take()
	require.NoError(t, r.Flush([]persist.Range{at(2, 0, 1)}))
	require.Equal(t, []int{2}, log.take(), "all members are in sync")
	require.NoError(t, r.SetRecord(recordOf(r, 0, 2, 1), 0))
	log.take()
	require.NoError(t, r.SetBits(6, []persist.Range{at(2, 0, 1)}))
	require.NoError(t, r.FlushBits(6, []persist.Range{at(2, 0, 1)}))
	require.Empty(t, log.take())
	require.NoError(t, r.Flush([]persist.Range{at(2, 0, 1)}))
	require.Equal(t, []int{0, 2}, log.take())
	require.NoError(t, r.Note([]persist.Range{at(1, 0, 1)}))
	require.NoError(t, r.Flush(nil))
	require.Equal(t, []int{0, 1}, log.take())
}

// A flush is content with a sync of its own parts that began after it, and with no other.
func TestFlushJoinsLaterSyncOfItsParts(t *testing.T) {
	r, log := openedLogged(t, 3)
	begun := r.Syncs()
	for range 4 { // all of them begin before the first sync
		require.NoError(t, r.flushParts(begun, []persist.Range{at(1, 0, 1)}))
	}
	require.Equal(t, []int{1}, log.take())
	require.NoError(t, r.flushParts(begun, []persist.Range{at(1, 0, 1), at(2, 0, 1)}))
	require.Equal(t, []int{2}, log.take(), "the sync of part 1 says nothing of part 2")
	require.NoError(t, r.flushParts(begun+1, []persist.Range{at(1, 0, 1), at(2, 0, 1)}))
	require.Equal(t, []int{1}, log.take(), "it began after the sync of part 1 had begun")
	require.NoError(t, r.Update(func(sb *Superblock) error { sb.Epoch++; return nil }))
	log.take()
	require.NoError(t, r.flushParts(begun, []persist.Range{at(0, 0, 3*testSize)}))
	require.Empty(t, log.take(), "the syncs of superblocks are of the same files")
}

// A sync that fails in any part fails the region, for everybody and for good.
func TestFlushPartsFails(t *testing.T) {
	for part := range uint64(3) {
		r, log := openedLogged(t, 3)
		log.err[int(part)] = unix.EIO
		require.NoError(t, r.Flush([]persist.Range{at((part+1)%3, 0, 1)}))
		err := r.Flush([]persist.Range{at(part, 0, 1)})
		require.ErrorIs(t, err, ErrFailed)
		require.ErrorContains(t, err, log.paths[part])
		require.ErrorIs(t, r.Flush([]persist.Range{at((part+1)%3, 0, 1)}), ErrFailed)
		require.ErrorIs(t, r.Note(nil), ErrFailed)
		require.ErrorIs(t, r.Flush(nil), ErrFailed)
	}
	t.Run("of what was noted", func(t *testing.T) {
		r, log := openedLogged(t, 3)
		log.err[2] = unix.EIO
		require.NoError(t, r.Note([]persist.Range{at(2, 0, 1)}))
		require.ErrorIs(t, r.Flush(nil), ErrFailed)
	})
}

// Of files and persistent memory together the files are synced, and the cache lines of the
// memory written back, those of its superblock too.
func TestFlushMixedParts(t *testing.T) {
	for _, first := range []persist.Class{persist.ClassFile, persist.ClassPMem} {
		t.Run(first.String()+" first", func(t *testing.T) {
			paths := partPaths(t.TempDir(), 3)
			log := &syncLog{t: t, paths: paths}
			h := fileHost
			h.memoryOf = func(f *os.File) (medium.Memory, error) {
				m := medium.Memory{Class: persist.ClassFile, Flags: unix.MAP_SHARED}
				if i := slices.Index(paths, f.Name()); i == 1 || i == 0 && first == persist.ClassPMem {
					m.Class, m.Platform.Domain = persist.ClassPMem, DomainMemory
				}
				return m, nil
			}
			type run struct{ off, n uint64 }
			var lines []run
			h.back = func(_ []byte, off, n uint64) { lines = append(lines, run{off, n}) }
			_, err := create(paths[0], CreateOptions{Name: "r", Size: testSize, Parts: paths[1:]}, h)
			require.NoError(t, err)
			h.sync = log.sync
			r := openedParts(t, paths, h)
			require.Equal(t, persist.ClassFile, r.Class())
			require.True(t, r.MayBlock())
			require.False(t, r.FencesOnly())
			for _, flush := range []func(g persist.Range){
				func(g persist.Range) { require.NoError(t, r.Flush([]persist.Range{g})) },
				func(g persist.Range) {
					require.NoError(t, r.Note([]persist.Range{g}))
					require.NoError(t, r.Flush(nil))
				},
			} {
				lines = nil
				log.take()
				flush(at(0, testSize-2, testSize+4))
				want := []run{{DataOffset + testSize, testSize}}
				if first == persist.ClassPMem {
					want = slices.Insert(want, 0, run{DataOffset + testSize - 2, 2})
				}
				require.Equal(t, want, lines)
				if first == persist.ClassPMem {
					require.Equal(t, []int{2}, log.take())
				} else {
					require.Equal(t, []int{0, 2}, log.take())
				}
			}
			lines = nil
			require.NoError(t, r.Update(func(sb *Superblock) error { sb.Epoch++; return nil }))
			heads := roundUp(DataOffset+3*testSize, hugePage)
			require.True(t, slices.ContainsFunc(lines, func(l run) bool { return l.off >= heads && l.off < heads+2*CopySize }), "part 1's superblock")
			require.Equal(t, first == persist.ClassPMem, slices.ContainsFunc(lines, func(l run) bool { return l.off < 2*CopySize }))
			require.NoError(t, r.Close())
			require.NoError(t, clearRegion(paths[0], "tried", h, nil, paths[1:]...))
		})
	}
}

// A fault in any part fails the region alone.
func TestPartFault(t *testing.T) {
	h := hostOf(persist.ClassPMem, bootA)
	paths := createdParts(t, h, 3)
	r := openedParts(t, paths, h)
	require.NoError(t, os.Truncate(paths[1], DataOffset))
	require.NoError(t, r.Zero(at(0, 0, testSize)))
	require.NoError(t, r.Zero(at(2, 0, testSize)))
	err := r.Zero(at(1, 0, 1))
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorContains(t, err, ErrFault.Error())
	require.ErrorContains(t, err, "in part 1, "+paths[1])
	require.NoError(t, r.Close())
	require.Empty(t, held(t, filepath.Dir(paths[0])))
}

func TestFlushPartsDoesNotAllocate(t *testing.T) {
	for _, class := range []persist.Class{persist.ClassPMem, persist.ClassFile} {
		h := hostOf(class, bootA)
		h.sync = func(int) error { return nil }
		r := openedParts(t, createdParts(t, h, 4), h)
		ranges := []persist.Range{at(0, 5, 9), at(1, testSize-1, 2), at(3, 0, 64)}
		require.Zero(t, testing.AllocsPerRun(20, func() {
			if r.Note(ranges) != nil || r.Flush(ranges) != nil || r.Flush(nil) != nil {
				t.Error("not flushed")
			}
		}))
	}
}
