package region

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/internal/testhost"
	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

const chunk = 64 << 10

// aside is a size with a short last chunk, number 20.
const aside = 20*chunk + 8192

// memberUUID is the UUID of another member.
func memberUUID(slot int) [16]byte { return [16]byte{0xee, byte(slot)} }

// recordOf returns a record of r in a slot of a mirror with three members or, if the slot
// is 3, four. generation counts within life 1.
func recordOf(r *Region, slot int, generation uint64, f persist.Members) persist.Record {
	rec := persist.Record{
		Set: [16]byte{0x5e}, Slot: uint8(slot), MinCopies: 1,
		Ancestor: persist.Ancestor{Generation: persist.Generation{Life: 1, Count: generation, Nonce: [16]byte{7}}, F: f},
	}
	for s := range max(3, slot+1) {
		rec.Members[s].UUID = memberUUID(s)
	}
	rec.Members[slot].UUID = r.UUID()
	return rec
}

// createdMember makes a region with aside bytes of data, on h.
func createdMember(t testing.TB, h host) string {
	t.Helper()
	path := filepath.Join(testhost.Disk(t), "region")
	_, err := create(path, CreateOptions{Name: "r", Size: aside}, h)
	require.NoError(t, err)
	return path
}

// chunksOf returns the numbers of the chunks that the member in slot may lack.
func chunksOf(t testing.TB, r *Region, slot int) (all []int) {
	t.Helper()
	buf := make([]byte, 1000)
	n, err := r.ReadBits(slot, 0, buf)
	require.NoError(t, err)
	require.Equal(t, int(r.bits.chunks+7)/8, n)
	for i := range 8 * n {
		if buf[i/8]>>(i%8)&1 != 0 {
			all = append(all, i)
		}
	}
	require.EqualValues(t, len(all), r.BitsSet(slot))
	return all
}

func everyChunk() (all []int) {
	for i := range 21 {
		all = append(all, i)
	}
	return all
}

// The place of a bitmap is a promise to later versions, so this test has its own numbers.
func TestBitmapLayout(t *testing.T) {
	for own, places := range [persist.MaxMembers][persist.MaxMembers]int{
		0: {-1, 1, 2, 0},
		1: {0, -1, 2, 1},
		2: {0, 1, -1, 2},
		3: {0, 1, 2, -1},
	} {
		r := opened(t, createdMember(t, volatileHost), OpenOptions{}, volatileHost)
		for slot, place := range places {
			if place < 0 {
				continue
			}
			rec := recordOf(r, own, uint64(slot+1), persist.Member(own))
			if own != 3 {
				rec.Members[3].UUID = memberUUID(3)
			}
			require.NoError(t, r.SetRecord(rec, 0))
			for s := range persist.MaxMembers {
				if s != own {
					require.NoError(t, r.ClearBits(s, []persist.Range{{Len: aside}}))
				}
			}
			require.NoError(t, r.SetBits(persist.Member(slot), []persist.Range{{Off: 9 * chunk, Len: 1}}))
			want := make([]byte, 1920<<10)
			want[place*640<<10+1] = 2
			require.Equal(t, want, r.mem[128<<10:2<<20], "member %d of a region in slot %d", slot, own)
		}
	}
}

// A bit stands for the smallest chunk with which the extent fits the bitmap.
func TestChunkSize(t *testing.T) {
	for _, c := range []struct {
		size          uint64
		chunk, chunks uint64
	}{
		{4096, 64 << 10, 1},
		{64 << 10, 64 << 10, 1},
		{64<<10 + 4096, 64 << 10, 2},
		{320 << 30, 64 << 10, 5 << 20},
		{320<<30 + 4096, 128 << 10, 5<<19 + 1},
		{640 << 30, 128 << 10, 5 << 20},
		{1<<40 + 4096, 256 << 10, 4<<20 + 1},
		{2 << 40, 512 << 10, 4 << 20},
		{MaxMember, 1 << 20, 5 << 20},
	} {
		var r Region
		r.bits.shape(c.size)
		require.Equal(t, c.chunk, r.ChunkSize(), c.size)
		require.Equal(t, c.chunks, r.bits.chunks, c.size)
	}
	var r Region
	r.bits.shape(maxSize / sizeUnit * sizeUnit)
	require.EqualValues(t, 1<<20, r.ChunkSize(), "no member, and nothing overflows")
}

// SetBits sets the bits of every chunk that a range touches, ClearBits clears those of
// chunks that lie wholly inside one range.
func TestSetAndClear(t *testing.T) {
	for _, c := range []struct {
		name       string
		set, clear []persist.Range
		want       []int
	}{
		{"a byte", []persist.Range{{Off: 3*chunk + 5, Len: 1}}, nil, []int{3}},
		{"nothing", []persist.Range{{Off: 3 * chunk}, {Off: aside}}, []persist.Range{{Off: aside}}, nil},
		{"two bytes at an edge", []persist.Range{{Off: 4*chunk - 1, Len: 2}}, nil, []int{3, 4}},
		{"the last chunk", []persist.Range{{Off: aside - 1, Len: 1}}, nil, []int{20}},
		{"everything", []persist.Range{{Len: aside}}, nil, everyChunk()},
		{"all but an edge is cleared", []persist.Range{{Len: 4 * chunk}}, []persist.Range{{Off: 1, Len: 3*chunk - 1}}, []int{0, 3}},
		{"all but the other edge", []persist.Range{{Len: 4 * chunk}}, []persist.Range{{Off: chunk, Len: 3*chunk - 1}}, []int{0, 3}},
		{"two halves clear nothing", []persist.Range{{Len: 1}}, []persist.Range{{Len: chunk / 2}, {Off: chunk / 2, Len: chunk / 2}}, []int{0}},
		{"part of a chunk", []persist.Range{{Len: 1}}, []persist.Range{{Off: 5, Len: 10}}, []int{0}},
		{"the short last chunk", []persist.Range{{Len: aside}}, []persist.Range{{Off: 20 * chunk, Len: 8192}, {Len: 19 * chunk}}, []int{19}},
		{"part of the last chunk", []persist.Range{{Off: aside - 1, Len: 1}}, []persist.Range{{Off: 20 * chunk, Len: 8191}}, []int{20}},
		{"everything is cleared", []persist.Range{{Len: aside}}, []persist.Range{{Len: aside}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := opened(t, createdMember(t, volatileHost), OpenOptions{}, volatileHost)
			require.NoError(t, r.SetRecord(recordOf(r, 0, 1, 7), 0))
			require.NoError(t, r.SetRecord(recordOf(r, 0, 2, 1), 0))
			require.NoError(t, r.SetBits(6, c.set))
			require.NoError(t, r.ClearBits(1, c.clear))
			require.Equal(t, c.want, chunksOf(t, r, 1))
			want := r.BitsSet(2)
			require.Len(t, chunksOf(t, r, 2), int(want), "the other member keeps its bits")
		})
	}
}

// Runs of bits are what setting and clearing each bit by itself makes.
func TestRuns(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	const n = 512
	var want [n]bool
	m := make([]byte, n/8)
	total := uint64(0)
	for range 5000 {
		first := rnd.Uint64N(n + 1)
		end := first + rnd.Uint64N(n+1-first)
		set, changed := rnd.IntN(2) == 0, uint64(0)
		for i := first; i < end; i++ {
			if want[i] != set {
				want[i] = set
				changed++
			}
		}
		if set {
			require.Equal(t, changed, setRun(m, first, end))
			total += changed
		} else {
			require.Equal(t, changed, clearRun(m, first, end))
			total -= changed
		}
		for i := range want {
			if got := m[i/8]>>(i%8)&1 != 0; got != want[i] {
				t.Fatalf("bit %d is %v after %d to %d", i, got, first, end)
			}
		}
		require.Equal(t, total, ones(m))
	}
}

// Nobody gets bits but members outside F: not the region itself, not those in F, nor slots
// without a member.
func TestWhoGetsBits(t *testing.T) {
	r := opened(t, createdMember(t, volatileHost), OpenOptions{}, volatileHost)
	some := []persist.Range{{Len: 1}}
	require.Zero(t, r.Outside())
	require.NoError(t, r.SetBits(0xff, some), "no member of a mirror")
	require.Equal(t, make([]byte, DataOffset-bitsOffset), r.mem[bitsOffset:DataOffset])
	require.ErrorIs(t, r.ClearBits(1, some), ErrSlot)
	_, err := r.ReadBits(1, 0, make([]byte, 8))
	require.ErrorIs(t, err, ErrSlot)

	require.NoError(t, r.SetRecord(recordOf(r, 1, 1, 7), 0))
	require.NoError(t, r.SetRecord(recordOf(r, 1, 2, 3), 0))
	require.Equal(t, persist.Members(4), r.Outside())
	require.NoError(t, r.SetBits(0xff, some))
	require.Empty(t, chunksOf(t, r, 0))
	require.Equal(t, []int{0}, chunksOf(t, r, 2))
	for _, slot := range []int{-1, 1, 3, 4, 300} {
		require.ErrorIs(t, r.ClearBits(slot, some), ErrSlot, slot)
		_, err := r.ReadBits(slot, 0, make([]byte, 8))
		require.ErrorIs(t, err, ErrSlot, slot)
		require.Zero(t, r.BitsSet(slot), slot)
	}
}

// A range outside the extent changes nothing, whatever else is asked for.
func TestBitsRanges(t *testing.T) {
	r := opened(t, createdMember(t, volatileHost), OpenOptions{}, volatileHost)
	require.NoError(t, r.SetRecord(recordOf(r, 0, 1, 1), 0)) // sets all bits of B and C
	require.NoError(t, r.ClearBits(1, []persist.Range{{Len: aside}}))
	for _, bad := range []persist.Range{{Off: aside + 1}, {Off: aside, Len: 1}, {Off: 1, Len: ^uint64(0)}, {Off: ^uint64(0), Len: 2}} {
		both := []persist.Range{{Len: chunk}, bad}
		require.ErrorIs(t, r.SetBits(2, both), ErrRange)
		require.ErrorIs(t, r.ClearBits(2, both), ErrRange)
		require.ErrorIs(t, r.FlushBits(2, both), ErrRange)
		_, err := r.Digest(bad)
		if bad.Len > 0 || bad.Off > aside {
			require.ErrorIs(t, err, ErrRange)
		}
	}
	require.Empty(t, chunksOf(t, r, 1))
	require.Equal(t, everyChunk(), chunksOf(t, r, 2))
}

func TestReadBits(t *testing.T) {
	r := opened(t, createdMember(t, volatileHost), OpenOptions{}, volatileHost)
	require.NoError(t, r.SetRecord(recordOf(r, 0, 1, 1), 0))
	for _, c := range []struct {
		from uint64
		buf  int
		want []byte
	}{
		{0, 9, []byte{0xff, 0xff, 0x1f}}, {8, 9, []byte{0xff, 0x1f}}, {16, 9, []byte{0x1f}}, {8, 1, []byte{0xff}},
		{24, 9, []byte{}}, {1 << 40, 9, []byte{}}, {^uint64(7), 9, []byte{}}, {0, 0, []byte{}},
	} {
		buf := make([]byte, c.buf)
		n, err := r.ReadBits(1, c.from, buf)
		require.NoError(t, err)
		require.Equal(t, c.want, buf[:n], "from %d", c.from)
	}
	_, err := r.ReadBits(1, 4, make([]byte, 8))
	require.ErrorIs(t, err, ErrRange)
}

// FlushBits writes back the cache lines of the bits, each part once, and for class file
// nothing: the sync of the data covers the bits.
func TestFlushBits(t *testing.T) {
	type part struct{ off, n uint64 }
	var parts []part
	h := hostOf(persist.ClassPMem, bootA)
	h.back = func(_ []byte, off, n uint64) { parts = append(parts, part{off, n}) }
	r := opened(t, createdMember(t, h), OpenOptions{}, h)
	require.NoError(t, r.SetRecord(recordOf(r, 3, 1, 8|2), 0))
	const a, c = 128 << 10, 128<<10 + 2*640<<10 // where the bitmaps of A and C are
	for _, tt := range []struct {
		name    string
		members persist.Members
		ranges  []persist.Range
		want    []part
	}{
		{"one", 1, []persist.Range{{Off: 9 * chunk, Len: 1}}, []part{{a + 1, 1}}},
		{"two members", 5, []persist.Range{{Off: 7 * chunk, Len: chunk + 1}}, []part{{a, 2}, {c, 2}}},
		{"neighbours", 1, []persist.Range{{Off: 1, Len: 1}, {Off: 3, Len: 1}, {Off: 20 * chunk, Len: 5}, {Off: 8 * chunk, Len: 1}}, []part{{a, 3}}},
		{"none", 0, []persist.Range{{Len: 1}}, nil},
		{"no bytes", 1, []persist.Range{{Off: 1}}, nil},
		{"one in F", 2, []persist.Range{{Len: 1}}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			parts = nil
			require.NoError(t, r.FlushBits(tt.members, tt.ranges))
			require.Equal(t, tt.want, parts)
		})
	}

	syncs := 0
	f := opened(t, createdMember(t, fileHost), OpenOptions{}, fileHost.syncing(func(int) error { syncs++; return nil }))
	require.NoError(t, f.SetRecord(recordOf(f, 0, 1, 1), 0))
	syncs = 0
	require.NoError(t, f.FlushBits(2, []persist.Range{{Len: aside}}))
	require.Zero(t, syncs)

	fences := 0
	h = hostOf(persist.ClassPMem, bootA)
	of := h.memoryOf
	h.memoryOf = func(f *os.File) (m medium.Memory, err error) {
		m, err = of(f)
		m.Platform.Domain = DomainCaches
		return m, err
	}
	h.fence = func() { fences++ }
	e := opened(t, createdMember(t, h), OpenOptions{}, h)
	require.NoError(t, e.SetRecord(recordOf(e, 0, 1, 1), 0))
	require.NoError(t, e.FlushBits(2, []persist.Range{{Len: aside}}))
	require.Equal(t, 1, fences)
}

// A barrier sets, clears and flushes bits without allocating. Without a member outside F it
// takes no lock.
func TestBitsAllocateNothing(t *testing.T) {
	r := opened(t, createdMember(t, volatileHost), OpenOptions{}, volatileHost)
	require.NoError(t, r.SetRecord(recordOf(r, 0, 1, 1), 0))
	ranges := []persist.Range{{Off: 5, Len: 4096}, {Off: 3 * chunk, Len: 1}}
	buf := make([]byte, 16)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		err := r.SetBits(r.Outside(), ranges)
		if err == nil {
			err = r.ClearBits(2, ranges)
		}
		if err == nil {
			err = r.FlushBits(6, ranges)
		}
		if err == nil {
			_, err = r.ReadBits(1, 0, buf)
		}
		if err != nil {
			t.Fatal(err)
		}
	}))
	r.mu.Lock()
	r.bits.mu.Lock()
	require.NoError(t, r.SetBits(0, ranges))
	require.NoError(t, r.FlushBits(0, ranges))
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = r.SetBits(0, ranges) }))
	r.bits.mu.Unlock()
	r.mu.Unlock()
}

// Lanes set and clear bits at the same time. None of them loses a bit of another's.
func TestBitsOfManyLanes(t *testing.T) {
	r := opened(t, createdMember(t, volatileHost), OpenOptions{}, volatileHost)
	require.NoError(t, r.SetRecord(recordOf(r, 0, 1, 1), 0))
	require.NoError(t, r.ClearBits(1, []persist.Range{{Len: aside}}))
	done := make(chan error)
	for lane := range 4 { // all in one byte of the bitmap
		go func() {
			own := []persist.Range{{Off: uint64(lane) * chunk, Len: chunk}}
			var err error
			for range 1000 {
				for _, f := range []func() error{
					func() error { return r.SetBits(2, own) }, func() error { return r.FlushBits(2, own) },
					func() error { return r.ClearBits(1, own) }, func() error { return r.SetBits(2, own) },
				} {
					if err == nil {
						err = f()
					}
				}
			}
			done <- err
		}()
	}
	for range 4 {
		require.NoError(t, <-done)
	}
	require.Equal(t, []int{0, 1, 2, 3}, chunksOf(t, r, 1))
}

// Who asks how many bits are set waits for nobody: barriers that change some can wait for a disk, in a page fault.
func TestBitsSetDoesNotWait(t *testing.T) {
	var r Region
	r.bits.mu.Lock()
	defer r.bits.mu.Unlock()
	require.Zero(t, r.BitsSet(1))
}
