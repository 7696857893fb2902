package region

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

// The places of a device-dax device come from its nd_region, less where the device begins in it.
func TestBadOfDevice(t *testing.T) {
	const dax = acpi + "region0/dax0.0/dax0.0/"
	at := map[string]string{acpi + "region0/resource": "0x140000000\n", dax + "resource": "0x140200000\n"}
	list := func(text string) map[string]string { return map[string]string{acpi + "region0/badblocks": text} }
	const begin = 0x200000 / sector
	for name, c := range map[string]struct {
		files map[string]string
		want  []persist.Range
		says  string
	}{
		"a kernel without badblocks": {tree(nfit("cpu_cache"), at), nil, ""},
		"none":                       {tree(nfit("cpu_cache"), at, list("\n")), nil, ""},
		"in the device":              {tree(nfit("cpu_cache"), at, list(fmt.Sprintf("%d 1\n%d 8\n", begin, begin+64))), []persist.Range{{Off: 0, Len: 512}, {Off: 64 * 512, Len: 4096}}, ""},
		"in front of it":             {tree(nfit("cpu_cache"), at, list("0 8\n")), nil, ""},
		"across its begin":           {tree(nfit("cpu_cache"), at, list(fmt.Sprintf("%d 3\n", begin-1))), []persist.Range{{Off: 0, Len: 1024}}, ""},
		"no nd_region":               {map[string]string{null: "-> devices/x", "devices/x/badblocks": "1 1\n"}, nil, ""},
		"hidden addresses":           {tree(nfit("cpu_cache"), map[string]string{acpi + "region0/resource": "0x0\n"}, list("1 1\n")), nil, "only root can read it"},
		"hidden addresses, and none": {tree(nfit("cpu_cache"), list("\n")), nil, ""},
		"no number":                  {tree(nfit("cpu_cache"), at, list("1 x\n")), nil, "no range of sectors"},
		"past all":                   {tree(nfit("cpu_cache"), at, list("18446744073709551615 1\n")), nil, "no range of sectors"},
		"one word":                   {tree(nfit("cpu_cache"), at, list("1\n")), nil, "no range of sectors"},
		"a device before its region": {tree(nfit("cpu_cache"), at, map[string]string{dax + "resource": "0x1000\n"}, list("1 1\n")), nil, "in front of its region"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Open("/dev/null")
			require.NoError(t, err)
			defer f.Close() //nolint:errcheck // only read
			got, err := machine{sys: sysfs(t, c.files)}.Bad(f, &medium.Memory{Device: 1 << 30})
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

// The places of a file are those of its block device, where the file's extents lie.
func TestBadOfFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
	info, err := os.Stat(path)
	require.NoError(t, err)
	dev := info.Sys().(*syscall.Stat_t).Dev
	block := fmt.Sprintf("dev/block/%d:%d", unix.Major(dev), unix.Minor(dev))
	disk := map[string]string{block: "-> devices/pmem0", "devices/pmem0/badblocks": "80 8\n1000 1\n"}
	part := map[string]string{
		block: "-> devices/pmem0/pmem0p1", "devices/pmem0/badblocks": "80 8\n", "devices/pmem0/pmem0p1/partition": "1\n", "devices/pmem0/pmem0p1/start": "40\n",
	}
	two := []extent{{0, 40960, 4096}, {8192, 512000, 8192}} // in the file, on the device
	for name, c := range map[string]struct {
		files   map[string]string
		extents []extent
		fails   error
		want    []persist.Range
		says    string
	}{
		"two extents":         {disk, two, nil, []persist.Range{{Off: 0, Len: 4096}, {Off: 8192, Len: 512}}, ""},
		"elsewhere":           {disk, []extent{{0, 8192, 4096}}, nil, nil, ""},
		"a part of an extent": {disk, []extent{{0, 0, 1 << 20}}, nil, []persist.Range{{Off: 40960, Len: 4096}, {Off: 512000, Len: 512}}, ""},
		"a partition":         {part, []extent{{4096, 20480, 4096}}, nil, []persist.Range{{Off: 4096, Len: 4096}}, ""},
		"no block device":     {nil, two, nil, nil, ""},
		"a volume":            {map[string]string{block: "-> devices/dm-0", "devices/dm-0/size": "1\n"}, two, nil, nil, ""},
		"none":                {tree(disk, map[string]string{"devices/pmem0/badblocks": "\n"}), nil, errors.New("not asked"), nil, ""},
		"no FIEMAP":           {disk, nil, unix.EOPNOTSUPP, nil, "which of them are the file's is not known"},
		"a bad start":         {tree(part, map[string]string{"devices/pmem0/pmem0p1/start": "x\n"}), two, nil, nil, "start says"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Open(path)
			require.NoError(t, err)
			defer f.Close() //nolint:errcheck // only read
			m := machine{sys: sysfs(t, c.files), extents: func(_ *os.File, each func(extent)) error {
				for _, e := range c.extents {
					each(e)
				}
				return c.fails
			}}
			got, err := m.Bad(f, &medium.Memory{})
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

// The kernel tells the extents of a file where its filesystem can.
func TestFileExtents(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	require.NoError(t, err)
	defer f.Close() //nolint:errcheck // only read
	_, err = f.WriteAt(make([]byte, 3<<20), 0)
	require.NoError(t, err)
	var bytes uint64
	err = fileExtents(f, func(e extent) { bytes += e.len })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOTTY) {
		t.Skipf("no FIEMAP here: %v", err)
	}
	require.NoError(t, err)
	require.EqualValues(t, 3<<20, bytes)
}

// A region has the places of its data extent, in whole blocks, whatever else of the file is bad.
func TestBadOfRegion(t *testing.T) {
	many := make([]persist.Range, persist.MaxBad+1)
	for i := range many {
		many[i] = persist.Range{Off: DataOffset + uint64(i)*2*persist.BadBlock, Len: 1}
	}
	for name, c := range map[string]struct {
		bad   []persist.Range
		fails error
		want  persist.BadPlaces
		says  string
	}{
		"none":                       {nil, nil, nil, ""},
		"a sector":                   {[]persist.Range{{Off: DataOffset + 5000, Len: 512}}, nil, persist.BadPlaces{{Off: 4096, Len: 4096}}, ""},
		"in the header":              {[]persist.Range{{Off: 65536, Len: 512}}, nil, nil, ""},
		"across the header's end":    {[]persist.Range{{Off: DataOffset - 1, Len: 2}}, nil, persist.BadPlaces{{Off: 0, Len: 4096}}, ""},
		"behind the extent":          {[]persist.Range{{Off: DataOffset + testSize, Len: 512}}, nil, nil, ""},
		"some, and an error":         {[]persist.Range{{Off: DataOffset, Len: 512}}, unix.EIO, persist.BadPlaces{{Off: 0, Len: 4096}}, "input/output error"},
		"numbers that make no sense": {[]persist.Range{{Off: 1 << 63, Len: 1 << 63}}, nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := hostOf(persist.ClassPMem, bootA)
			path := created(t, h)
			h.bad = func() ([]persist.Range, error) { return c.bad, c.fails }
			r := opened(t, path, OpenOptions{}, h)
			info, err := inspectPath(path, h)
			require.NoError(t, err)
			require.Equal(t, c.want, r.Bad())
			require.Equal(t, c.want, info.Bad)
			for _, err := range []error{r.BadUnknown(), info.BadUnknown} {
				if c.says == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, c.says)
				}
			}
		})
	}
	t.Run("too many", func(t *testing.T) {
		var b badPlaces
		h := hostOf(persist.ClassPMem, bootA)
		h.bad = func() ([]persist.Range, error) { return many, nil }
		f, err := os.Open("/dev/null")
		require.NoError(t, err)
		defer f.Close() //nolint:errcheck // only read
		b.find(f, &medium.Memory{}, 1<<30, h)
		require.Len(t, b.places(), persist.MaxBad)
		require.ErrorContains(t, b.unknown, "65537 bad places")
	})
}

// The flush that settles doubt, and clear, leave bad places alone. A barrier that names one fails the region.
func TestFlushAroundBadPlaces(t *testing.T) {
	h := hostOf(persist.ClassPMem, bootA)
	path := created(t, h)
	h.bad = func() ([]persist.Range, error) { return []persist.Range{{Off: DataOffset + 8192, Len: 512}}, nil }
	var wrote []uint64
	h.lines = func(b []byte) {
		wrote = append(wrote, uint64(len(b)))
		_ = b[0] + b[len(b)-1] // as writing a line back does, and this is a fault where nothing is mapped
		for i := 0; i < len(b); i += 64 {
			b[i]++
		}
	}
	r := opened(t, path, OpenOptions{}, h)
	lose := func(r *Region) {
		require.NoError(t, unix.Mprotect(r.Data()[8192:12288], unix.PROT_NONE))
	}
	lose(r)
	require.NoError(t, r.FlushReadable(persist.Range{Len: testSize}))
	require.Equal(t, []uint64{8192, testSize - 12288}, wrote)
	require.NoError(t, r.FlushReadable(persist.Range{Off: 8192, Len: 4096}))
	require.ErrorIs(t, r.Flush([]persist.Range{{Len: testSize}}), ErrFailed)
	require.NoError(t, r.Close())

	f, mem, err := openLocked(path, h)
	require.NoError(t, err)
	r, err = load(f, path, mem, h)
	require.NoError(t, err)
	lose(r)
	require.NoError(t, r.clear("the rest is good", nil))
	require.False(t, r.Superblock().Failed)
	require.NoError(t, r.Close())
}

// A fault of a reader adds the blocks that cannot be read, and fails the region only if it is no loss of blocks.
func TestLose(t *testing.T) {
	for name, c := range map[string]struct {
		lost  []persist.Range // in the data extent
		at    int             // where the fault was
		left  int64           // the size of the file; 0: as it was
		want  persist.BadPlaces
		fails bool
	}{
		"a block":                 {[]persist.Range{{Off: 8192, Len: 4096}}, 8200, 0, persist.BadPlaces{{Off: 4096, Len: 8192}}, false},
		"the last one":            {[]persist.Range{{Off: testSize - 4096, Len: 4096}}, testSize - 1, 0, persist.BadPlaces{{Off: 4096, Len: 4096}, {Off: testSize - 4096, Len: 4096}}, false},
		"and those behind":        {[]persist.Range{{Off: 16384, Len: 12288}}, 16384, 0, persist.BadPlaces{{Off: 4096, Len: 4096}, {Off: 16384, Len: 12288}}, false},
		"not those after a good":  {[]persist.Range{{Off: 16384, Len: 4096}, {Off: 24576, Len: 4096}}, 16384, 0, persist.BadPlaces{{Off: 4096, Len: 4096}, {Off: 16384, Len: 4096}}, false},
		"known already":           {nil, 4096, 0, persist.BadPlaces{{Off: 4096, Len: 4096}}, false},
		"in the superblock":       {nil, -1, 0, persist.BadPlaces{{Off: 4096, Len: 4096}}, true},
		"behind the extent":       {nil, testSize, 0, persist.BadPlaces{{Off: 4096, Len: 4096}}, true},
		"the file became shorter": {nil, testSize - 1, DataOffset + 4096, persist.BadPlaces{{Off: 4096, Len: 4096}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := hostOf(persist.ClassFile, bootA)
			path := created(t, h)
			h.bad = func() ([]persist.Range, error) { return []persist.Range{{Off: DataOffset + 4096, Len: 512}}, nil }
			r := opened(t, path, OpenOptions{}, h)
			for _, g := range c.lost {
				require.NoError(t, unix.Mprotect(r.Data()[g.Off:g.End()], unix.PROT_NONE))
			}
			if c.left != 0 {
				require.NoError(t, os.Truncate(path, c.left))
			}
			_, err := r.Lose(address(r.Data()) + uintptr(c.at))
			if c.fails {
				require.ErrorIs(t, err, ErrFailed)
				require.ErrorIs(t, r.Failed(), ErrFailed)
			} else {
				require.NoError(t, err)
				require.NoError(t, r.Failed())
			}
			require.Equal(t, c.want, r.Bad())
		})
	}
}

// What is lost differs from everything. A digest that finds it lost adds it, and says so.
func TestDigestOfBadPlaces(t *testing.T) {
	h := hostOf(persist.ClassFile, bootA)
	r := opened(t, created(t, h), OpenOptions{}, h)
	sum := func(off, n uint64) [32]byte {
		t.Helper()
		s, err := r.Digest(persist.Range{Off: off, Len: n})
		require.NoError(t, err)
		return s
	}
	whole := sum(0, testSize)
	require.Equal(t, whole, sum(0, testSize))
	require.NoError(t, unix.Mprotect(r.Data()[8192:12288], unix.PROT_NONE))
	_, err := r.Digest(persist.Range{Len: testSize})
	require.ErrorIs(t, err, ErrBadPlace)
	first := sum(0, testSize)
	require.NotEqual(t, whole, first)
	require.NotEqual(t, first, sum(0, testSize), "not even itself")
	require.Equal(t, persist.BadPlaces{{Off: 8192, Len: 4096}}, r.Bad())
	require.Equal(t, sum(0, 8192), sum(12288, 8192), "beside it")
	require.NoError(t, r.Failed())
}
