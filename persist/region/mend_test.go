package region

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/internal/testhost"
	"pmnbd/persist"
)

// mending returns a region whose memory has lost ranges of the data extent, until something makes them good.
func mending(t *testing.T, ranges ...persist.Range) *Region {
	t.Helper()
	var r *Region
	h := hostOf(persist.ClassPMem, bootA)
	h.lines = func([]byte) {}
	path := created(t, h)
	h.bad = func() (bad []persist.Range, _ error) {
		for _, g := range ranges {
			bad = append(bad, persist.Range{Off: DataOffset + g.Off, Len: g.Len})
		}
		return bad, nil
	}
	h.mend = func(off, n uint64) error {
		if off%persist.BadBlock != 0 || n%persist.BadBlock != 0 {
			return unix.EINVAL
		}
		return unix.Mprotect(r.mem[off:off+n], unix.PROT_READ|unix.PROT_WRITE)
	}
	r = opened(t, path, OpenOptions{}, h)
	for i := range r.Data() {
		r.Data()[i] = 0xff
	}
	for _, g := range r.Bad() {
		require.NoError(t, unix.Mprotect(r.Data()[g.Off:g.End()], unix.PROT_NONE))
	}
	return r
}

// Zeroes over whole bad blocks make them good, and zero. They are told as bad until barriers have covered all of
// them: until then an initiator may be lost with what was to come in their place.
func TestMend(t *testing.T) {
	two := persist.BadPlaces{{Off: 8192, Len: 8192}}
	last := persist.BadPlaces{{Off: 12288, Len: 4096}}
	for name, c := range map[string]struct {
		settle []persist.Range // one barrier after the other
		want   persist.BadPlaces
	}{
		"no barrier":                {nil, two},
		"both":                      {[]persist.Range{{Off: 0, Len: testSize}}, nil},
		"exactly both":              {[]persist.Range{{Off: 8192, Len: 8192}}, nil},
		"one":                       {[]persist.Range{{Off: 8192, Len: 4096}}, last},
		"a part":                    {[]persist.Range{{Off: 8192, Len: 4095}}, two},
		"beside":                    {[]persist.Range{{Off: 0, Len: 8192}, {Off: 16384, Len: 4096}}, two},
		"in parts":                  {[]persist.Range{{Off: 8192, Len: 512}, {Off: 8704, Len: 7680}}, nil},
		"in parts, from the end":    {[]persist.Range{{Off: 8704, Len: 3584}, {Off: 8192, Len: 512}}, last},
		"in parts with a hole":      {[]persist.Range{{Off: 8192, Len: 512}, {Off: 9216, Len: 3072}}, two},
		"and then all, over a hole": {[]persist.Range{{Off: 8192, Len: 512}, {Off: 9216, Len: 3072}, {Off: 8192, Len: 8192}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := mending(t, two[0])
			require.Zero(t, r.Mending())
			require.NoError(t, r.Zero(persist.Range{Off: 4096, Len: testSize - 4096}))
			require.Equal(t, make([]byte, testSize-4096), r.Data()[4096:])
			require.Equal(t, two, r.Bad())
			require.EqualValues(t, 2, r.Mending())
			for _, g := range c.settle {
				require.NoError(t, r.Settle([]persist.Range{g}, r.Mending()))
			}
			require.Equal(t, c.want, r.Bad())
			require.Equal(t, c.want != nil, r.Mending() != 0)
			require.NoError(t, r.Zero(persist.Range{Off: 8192, Len: 100}), "its memory is good")
			require.NoError(t, r.Failed())
		})
	}
}

// A barrier that came before the zeroes says nothing about the block.
func TestMendAfterTheBarrier(t *testing.T) {
	r := mending(t, persist.Range{Off: 8192, Len: 1}, persist.Range{Off: 16384, Len: 1})
	require.NoError(t, r.Zero(persist.Range{Off: 8192, Len: 4096}))
	number := r.Mending()
	require.NoError(t, r.Zero(persist.Range{Off: 16384, Len: 4096}))
	require.NoError(t, r.Settle([]persist.Range{{Len: testSize}}, number))
	require.Equal(t, persist.BadPlaces{{Off: 16384, Len: 4096}}, r.Bad())
}

// What cannot be made good fails the zeroes if that was known before: the initiator hears of it when it comes back. A
// kernel that fails fails the region.
func TestCannotMend(t *testing.T) {
	bad := persist.Range{Off: 8192, Len: 4096}
	for name, c := range map[string]struct {
		zero   persist.Range
		change func(r *Region)
		want   error
	}{
		"a part":            {persist.Range{Off: 8192, Len: 4095}, func(*Region) {}, ErrBadPlace},
		"a part at the end": {persist.Range{Off: 0, Len: 8193}, func(*Region) {}, ErrBadPlace},
		"a device":          {bad, func(r *Region) { r.bad.clears = false }, ErrBadPlace},
		"the kernel cannot": {bad, func(r *Region) {
			h := r.medium.(host)
			h.mend = func(_, _ uint64) error { return unix.EIO }
			r.medium = h
		}, ErrFailed},
		"it does not help": {bad, func(r *Region) { h := r.medium.(host); h.mend = func(_, _ uint64) error { return nil }; r.medium = h }, ErrFailed},
	} {
		t.Run(name, func(t *testing.T) {
			r := mending(t, bad)
			c.change(r)
			err := r.Zero(c.zero)
			require.ErrorIs(t, err, c.want)
			require.Equal(t, errors.Is(c.want, ErrFailed), r.Failed() != nil)
			require.Equal(t, persist.BadPlaces{bad}, r.Bad())
		})
	}
}

// The kernel's way of writing zeroes, on files as they are.
func TestMachineMends(t *testing.T) {
	for name, dir := range map[string]string{"disk": testhost.Disk(t), "tmpfs": tinyTmpfs(t, "size=8m")} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Create(filepath.Join(dir, "f"))
			require.NoError(t, err)
			defer f.Close() //nolint:errcheck // only read
			_, err = f.Write(bytes.Repeat([]byte{1}, 16384))
			require.NoError(t, err)
			require.NoError(t, machine{}.Mend(f, 4096, 8192))
			got, err := os.ReadFile(f.Name())
			require.NoError(t, err)
			require.Equal(t, append(append(bytes.Repeat([]byte{1}, 4096), make([]byte, 8192)...), bytes.Repeat([]byte{1}, 4096)...), got)
		})
	}
}

// A file that is not on DAX keeps its pages where writing does not help: adapters may have pinned them.
func TestMendKeepsPages(t *testing.T) {
	f, err := os.Create(filepath.Join(tinyTmpfs(t, "size=64k"), "f"))
	require.NoError(t, err)
	defer f.Close() //nolint:errcheck // only looked at
	_, err = f.Write(make([]byte, 64<<10))
	require.NoError(t, err)
	require.NoError(t, f.Truncate(128<<10)) // there is no room for the rest
	blocks := func() int64 {
		var st unix.Stat_t
		require.NoError(t, unix.Fstat(int(f.Fd()), &st))
		return st.Blocks
	}
	was := blocks()
	require.ErrorIs(t, machine{}.Mend(f, 0, 128<<10), unix.ENOSPC)
	require.Equal(t, was, blocks())
}

// Each part is asked for its own blocks.
func TestMendParts(t *testing.T) {
	h := hostOf(persist.ClassPMem, bootA)
	paths := createdParts(t, h, 3)
	h.bad = func() ([]persist.Range, error) { return []persist.Range{{Off: DataOffset, Len: testSize}}, nil } // of each
	var asked []persist.Range
	h.mend = func(off, n uint64) error { asked = append(asked, persist.Range{Off: off, Len: n}); return nil }
	r := openedParts(t, paths, h)
	require.True(t, r.BadClears())
	require.NoError(t, r.Zero(persist.Range{Off: 4096, Len: 2 * testSize}))
	require.Equal(t, []persist.Range{{Off: DataOffset + 4096, Len: testSize - 4096}, {Off: DataOffset, Len: testSize}, {Off: DataOffset, Len: 4096}}, asked)
	require.NoError(t, r.Settle([]persist.Range{{Off: 4096, Len: 2 * testSize}}, r.Mending()))
	require.Equal(t, persist.BadPlaces{{Off: 0, Len: 4096}, {Off: 2*testSize + 4096, Len: testSize - 4096}}, r.Bad())
}

// A file that became shorter fails the region. To write zeroes would make it longer again, and what nobody has
// written would be zero.
func TestMendInATruncatedFile(t *testing.T) {
	h := hostOf(persist.ClassFile, bootA)
	path := created(t, h)
	h.bad = func() ([]persist.Range, error) {
		return []persist.Range{{Off: DataOffset + testSize - 4096, Len: 1}}, nil
	}
	h.mend = machine{}.mendAt(t, path)
	r := opened(t, path, OpenOptions{}, h)
	require.NoError(t, os.Truncate(path, DataOffset))
	require.ErrorIs(t, r.Zero(persist.Range{Off: testSize - 4096, Len: 4096}), ErrFailed)
	st, err := os.Stat(path)
	require.NoError(t, err)
	require.EqualValues(t, DataOffset, st.Size())
}

// mendAt is Mend of the file at path.
func (m machine) mendAt(t *testing.T, path string) func(off, n uint64) error {
	return func(off, n uint64) error {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		defer f.Close() //nolint:errcheck // the test looks at the file
		return m.Mend(f, off, n)
	}
}

// Blocks that are overwritten here and there leave no more places than initiators can be told of.
func TestMendLeavesFewPlaces(t *testing.T) {
	f, err := os.Open("/dev/null")
	require.NoError(t, err)
	defer f.Close() //nolint:errcheck // only looked at
	h := hostOf(persist.ClassPMem, bootA)
	h.mend = func(_, _ uint64) error { return nil }
	r := &Region{size: 1 << 40, file: f, medium: h, mem: make([]byte, DataOffset)}
	many := make([]persist.Range, persist.MaxBad)
	for i := range many {
		many[i] = persist.Range{Off: uint64(i) * 4 * persist.BadBlock, Len: 3 * persist.BadBlock}
	}
	r.bad.clears = true
	r.bad.keep(f, many, nil, r.size)
	require.Len(t, r.Bad(), persist.MaxBad)
	require.Error(t, r.mend(persist.Range{Off: persist.BadBlock, Len: persist.BadBlock}), "the middle of one")
	require.NoError(t, r.mend(persist.Range{Off: 0, Len: persist.BadBlock}), "its beginning")
	require.NoError(t, r.mend(persist.Range{Off: persist.BadBlock, Len: 2 * persist.BadBlock}), "the rest")
	require.NoError(t, r.mend(persist.Range{Off: 5 * persist.BadBlock, Len: persist.BadBlock}), "the middle of another")
	require.Len(t, r.Bad(), persist.MaxBad, "until a barrier")
	require.NoError(t, r.Settle([]persist.Range{{Len: 8 * persist.BadBlock}}, r.Mending()))
	require.Len(t, r.Bad(), persist.MaxBad)
	one := func(block uint64) persist.Range {
		return persist.Range{Off: block * persist.BadBlock, Len: persist.BadBlock}
	}
	require.Equal(t, persist.BadPlaces{one(4), one(6)}, r.Bad()[:2])
}
