package region

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
)

func TestOpen(t *testing.T) {
	path := created(t, fileHost)
	info, err := Inspect(path)
	require.NoError(t, err)
	r := opened(t, path, OpenOptions{Name: "r"}, fileHost)
	require.Equal(t, "r", r.Name())
	require.Equal(t, path, r.Path())
	require.EqualValues(t, testSize, r.Size())
	require.Equal(t, persist.ClassFile, r.Class())
	require.Equal(t, info.Superblock.UUID, r.UUID())
	require.Equal(t, info.Superblock, r.Superblock(), "Open wrote the superblock although nothing had changed")
	require.NoError(t, r.Failed())
	sb := r.Superblock()
	require.True(t, sb.Clean)
	require.False(t, sb.Doubt)
	require.Equal(t, persist.Owner{}, sb.Owner)
	require.NotZero(t, sb.Contents)
	require.Equal(t, bootA, sb.Boot)

	data := r.Data()
	require.Len(t, data, testSize)
	require.Equal(t, testSize, cap(data), "the slice must not reach behind the extent")
	for i := range data {
		data[i] = byte(i * 3)
	}
	require.NoError(t, r.FlushAll())
	require.NoError(t, r.Close())
	require.NoError(t, r.Close(), "again")
	require.ErrorIs(t, r.Update(func(*Superblock) error { return nil }), ErrClosed)
	require.ErrorIs(t, r.FlushAll(), ErrClosed)

	file, err := os.ReadFile(path)
	require.NoError(t, err)
	for i, b := range file[DataOffset:] {
		if b != byte(i*3) {
			t.Fatalf("byte %d", i)
		}
	}
	require.Len(t, file, DataOffset+testSize)
}

func TestUpdate(t *testing.T) {
	path := created(t, fileHost)
	r := opened(t, path, OpenOptions{}, fileHost)
	require.NoError(t, r.Update(func(sb *Superblock) error { sb.Mark = 3; return nil }))
	before := r.Superblock()
	refused := errors.New("lease taken")
	require.ErrorIs(t, r.Update(func(sb *Superblock) error { sb.Epoch = 5; return refused }), refused)
	for _, f := range []func(*Superblock){
		func(sb *Superblock) { sb.UUID[0]++ },
		func(sb *Superblock) { sb.Name = "other" },
		func(sb *Superblock) { sb.Size += sizeUnit },
		func(sb *Superblock) { sb.Class = persist.ClassVolatile },
		func(sb *Superblock) { sb.Failed, sb.Failure = true, "x" },
		func(sb *Superblock) { sb.Mark = 2 },
	} {
		require.Error(t, r.Update(func(sb *Superblock) error { f(sb); return nil }))
	}
	require.Equal(t, before, r.Superblock())
	info, err := Inspect(path)
	require.NoError(t, err)
	require.Equal(t, before, info.Superblock, "nothing changed")

	// Many at once: each sees what the one before it left.
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 5 {
				if err := r.Update(func(sb *Superblock) error { sb.Epoch++; return nil }); err != nil {
					t.Error(err)
				}
				if err := r.Flush(nil); err != nil {
					t.Error(err)
				}
				_ = r.Superblock()
			}
		})
	}
	all.Wait()
	require.EqualValues(t, before.Epoch+40, r.Superblock().Epoch)
	require.EqualValues(t, before.Generation+40, r.Superblock().Generation)
	info, err = Inspect(path)
	require.NoError(t, err)
	require.Equal(t, r.Superblock(), info.Superblock)
}

// Only sessions advance the mark. If a start, another boot or a clear did, a region that
// was restored from a copy could reach the mark that it had before.
func TestMarkStays(t *testing.T) {
	path := created(t, fileHost)
	r := opened(t, path, OpenOptions{}, fileHost)
	require.NoError(t, r.Update(func(sb *Superblock) error { sb.Mark = 7; return nil }))
	require.NoError(t, r.Close())
	require.NoError(t, clearRegion(path, "tried", hostOf(persist.ClassFile, bootB), nil))
	r = opened(t, path, OpenOptions{}, fileHost)
	require.EqualValues(t, 7, r.Superblock().Mark)
	require.NoError(t, r.Close())
}

// The target finds that a region is suspect, and only an operator clears that.
func TestSuspectSurvives(t *testing.T) {
	path := created(t, fileHost)
	r := opened(t, path, OpenOptions{}, fileHost)
	require.NoError(t, r.Update(func(sb *Superblock) error { sb.Suspect, sb.UnsafeShutdowns = true, 4; return nil }))
	require.NoError(t, r.Close())
	r = opened(t, path, OpenOptions{}, hostOf(persist.ClassFile, bootB))
	require.True(t, r.Superblock().Suspect)
	require.EqualValues(t, 4, r.Superblock().UnsafeShutdowns)
}

func TestInUse(t *testing.T) {
	path := created(t, fileHost)
	r := opened(t, path, OpenOptions{}, fileHost)
	_, err := open(path, OpenOptions{}, fileHost)
	require.ErrorIs(t, err, ErrInUse)
	_, err = create(path, CreateOptions{Name: "r", Force: true}, fileHost)
	require.ErrorIs(t, err, ErrInUse)
	require.ErrorIs(t, clearRegion(path, "x", fileHost, nil), ErrInUse)
	_, err = Inspect(path)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.NoError(t, opened(t, path, OpenOptions{}, fileHost).Close())
}

func TestOpenRefuses(t *testing.T) {
	punch := func(t *testing.T, path string) {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		require.NoError(t, unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, DataOffset, testSize))
		require.NoError(t, f.Close())
	}
	for _, c := range []struct {
		name string
		bend func(t *testing.T, path string)
		o    OpenOptions
		h    host
		want error
	}{
		{"another name", nil, OpenOptions{Name: "s"}, fileHost, ErrName},
		{"another size", nil, OpenOptions{Name: "r", CreateSize: 2 * testSize}, fileHost, ErrSize},
		{"volatile without permission", nil, OpenOptions{}, volatileHost, ErrVolatile},
		{"made as another class", nil, OpenOptions{AllowVolatile: true}, volatileHost, ErrClass},
		{"truncated", func(t *testing.T, p string) { require.NoError(t, os.Truncate(p, DataOffset+testSize-1)) }, OpenOptions{}, fileHost, ErrTruncated},
		{"truncated to the header", func(t *testing.T, p string) { require.NoError(t, os.Truncate(p, 2*CopySize)) }, OpenOptions{}, fileHost, ErrTruncated},
		{"truncated in the header", func(t *testing.T, p string) { require.NoError(t, os.Truncate(p, CopySize)) }, OpenOptions{}, fileHost, ErrNoSuperblock},
		{"empty", func(t *testing.T, p string) { require.NoError(t, os.Truncate(p, 0)) }, OpenOptions{}, fileHost, ErrNoSuperblock},
		{"gone", func(t *testing.T, p string) { require.NoError(t, os.Remove(p)) }, OpenOptions{}, fileHost, os.ErrNotExist},
		{"holes", punch, OpenOptions{}, fileHost, nil},
		{"longer", func(t *testing.T, p string) { require.NoError(t, os.Truncate(p, 8<<20)) }, OpenOptions{}, fileHost, nil},
		{"the same size", nil, OpenOptions{Name: "r", CreateSize: testSize}, fileHost, nil},
		{"boot id unknown", nil, OpenOptions{}, host{memoryOf: fileHost.memoryOf, bootID: func() ([16]byte, error) { return bootA, os.ErrPermission }}, os.ErrPermission},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := created(t, fileHost)
			if c.bend != nil {
				c.bend(t, path)
			}
			r, err := open(path, c.o, c.h)
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
				require.Empty(t, held(t, filepath.Dir(path)))
				return
			}
			require.NoError(t, err)
			have, err := allocated(r.file)
			require.NoError(t, err)
			require.GreaterOrEqual(t, have, uint64(DataOffset+testSize), "holes were filled")
			require.NoError(t, r.Close())
			require.Empty(t, held(t, filepath.Dir(path)))
		})
	}
}

func TestOpenCreates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "region")
	_, err := open(path, OpenOptions{Name: "r", CreateSize: testSize}, volatileHost)
	require.ErrorIs(t, err, ErrVolatile)
	_, err = open(path, OpenOptions{Name: "r", CreateSize: 5}, fileHost)
	require.ErrorIs(t, err, ErrSize)
	_, err = open(path, OpenOptions{CreateSize: testSize}, fileHost)
	require.ErrorIs(t, err, ErrName)
	require.NoFileExists(t, path)

	r := opened(t, path, OpenOptions{Name: "r", CreateSize: testSize}, fileHost)
	id := r.UUID()
	_, err = open(path, OpenOptions{Name: "r", CreateSize: testSize}, fileHost)
	require.ErrorIs(t, err, ErrInUse)
	require.NoError(t, r.Close())
	r = opened(t, path, OpenOptions{Name: "r", CreateSize: testSize}, fileHost)
	require.Equal(t, id, r.UUID(), "Open must not format an existing region")
}

func TestMemfd(t *testing.T) {
	o := OpenOptions{Name: "m", CreateSize: testSize}
	_, err := Open(PathMemfd, o)
	require.ErrorIs(t, err, ErrVolatile)
	o.AllowVolatile = true
	_, err = Open(PathMemfd, OpenOptions{Name: "m", AllowVolatile: true})
	require.ErrorIs(t, err, ErrSize)
	a, err := Open(PathMemfd, o)
	require.NoError(t, err)
	b, err := Open(PathMemfd, o)
	require.NoError(t, err)
	require.Equal(t, persist.ClassVolatile, a.Class())
	require.Equal(t, PathMemfd, a.Path())
	require.NotEqual(t, a.UUID(), b.UUID())
	require.NotEqual(t, a.Superblock().Contents, b.Superblock().Contents)
	a.Data()[0] = 1
	require.Zero(t, b.Data()[0])
	require.NoError(t, a.Update(func(sb *Superblock) error { sb.Epoch = 3; return nil }))
	require.EqualValues(t, 3, a.Superblock().Epoch)
	require.NoError(t, a.FlushAll())
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	require.Empty(t, held(t, "/memfd:pmnbd"))
}
