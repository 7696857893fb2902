package region

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/internal/testhost"
	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

// A repairTape is a region in memory that forgets, in which a block is bad. Before the product makes something
// durable, and before the kernel repairs the block, it notes what is durable and what is stored.
type repairTape struct {
	t       *testing.T
	path    string
	durable []byte
	bad     persist.BadPlaces // as the kernel knows them
	steps   []repairStep
	off     bool
}

type repairStep struct {
	durable, stored []byte
	bad             persist.BadPlaces
}

func (p *repairTape) stored() []byte {
	b, err := os.ReadFile(p.path)
	require.NoError(p.t, err)
	return b
}

func (p *repairTape) note() (stored []byte) {
	stored = p.stored()
	p.steps = append(p.steps, repairStep{append([]byte(nil), p.durable...), stored, p.bad})
	return stored
}

func (p *repairTape) host(class persist.Class) host {
	h := hostOf(class, bootA)
	h.bad = func() (all []persist.Range, _ error) {
		for _, g := range p.bad {
			all = append(all, persist.Range{Off: DataOffset + g.Off, Len: g.Len})
		}
		return all, nil
	}
	h.mend = func(off, n uint64) error {
		p.note()
		p.bad = p.bad.Without(persist.Range{Off: off - DataOffset, Len: n})
		clear(p.durable[off : off+n])
		f, err := os.OpenFile(p.path, os.O_WRONLY, 0)
		require.NoError(p.t, err)
		_, err = f.WriteAt(make([]byte, n), int64(off))
		require.NoError(p.t, err)
		return f.Close()
	}
	h.sync = func(int) error {
		if !p.off {
			p.durable = p.note()
		}
		return nil
	}
	h.back = func(_ []byte, off, n uint64) {
		if !p.off {
			copy(p.durable[off:off+n], p.note()[off:])
		}
	}
	return h
}

// crashed returns what a crash leaves: what is durable, and any words of what is stored.
func (s *repairStep) crashed(rnd *rand.Rand, round int) []byte {
	b := append([]byte(nil), s.durable...)
	for w := 0; w < len(b); w += 8 {
		if w == repairsEnd {
			w = DataOffset // nobody stores between them
		}
		if round == 1 || round > 1 && rnd.IntN(2) == 0 {
			copy(b[w:w+8], s.stored[w:w+8])
		}
	}
	return b
}

// A crash at any step between the zeroes for two bad blocks and the barriers behind what is written there leaves each of
// them bad, or with all that was written. Once a barrier has its answer it has that. So it is if the crash comes while
// the next owner writes there, too.
func TestRepairCrash(t *testing.T) {
	for _, class := range []persist.Class{persist.ClassFile, persist.ClassPMem} {
		t.Run(class.String(), func(t *testing.T) { crashRepairs(t, class) })
	}
}

var repaired = []persist.Range{{Off: 8192, Len: 4096}, {Off: 20480, Len: 4096}}

// repair overwrites the two blocks, one after the other and each with bytes of its own. acked hears which has its
// barrier's answer.
func repair(t *testing.T, r *Region, value byte, acked func(i int)) {
	for _, g := range repaired {
		require.NoError(t, r.Zero(g))
	}
	for i, g := range repaired {
		for at := g.Off; at < g.End(); at++ {
			r.Data()[at] = value + byte(i)
		}
		require.NoError(t, r.Flush([]persist.Range{g}))
		require.NoError(t, r.Settle([]persist.Range{g}, r.Mending()))
		acked(i)
	}
}

func crashRepairs(t *testing.T, class persist.Class) {
	p := &repairTape{t: t, off: true, path: filepath.Join(testhost.Memory(t), "region")}
	h := p.host(class)
	_, err := create(p.path, CreateOptions{Name: "r", Size: testSize}, h)
	require.NoError(t, err)
	p.bad = persist.BadPlaces(repaired)
	r, err := open(p.path, OpenOptions{}, h)
	require.NoError(t, err)
	p.durable, p.off = p.stored(), false
	var acks []int // by block: how many steps there were when it had its answer
	repair(t, r, 0x11, func(int) { acks = append(acks, len(p.steps)) })
	require.Nil(t, r.Bad())
	p.note()
	require.NoError(t, r.Close())

	// check opens what a crash left, and returns the region.
	dir := testhost.Memory(t)
	check := func(s *repairStep, left []byte, n int, acks []int, values ...byte) (*Region, *repairTape) {
		again := &repairTape{t: t, path: filepath.Join(dir, "crashed"), bad: s.bad, durable: append([]byte(nil), s.durable...)}
		require.NoError(t, os.WriteFile(again.path, left, 0o600))
		h := again.host(class)
		info, err := inspectPath(again.path, h)
		require.NoError(t, err)
		r, err := open(again.path, OpenOptions{}, h)
		require.NoError(t, err)
		require.Equal(t, r.Bad(), info.Bad)
		require.NoError(t, r.BadUnknown())
		for i, g := range repaired {
			_, bad := r.Bad().Touched(g.Off, g.Len)
			_, lost := r.Lost([]persist.Range{g})
			require.Equal(t, bad, lost)
			if len(acks) > i && n >= acks[i] {
				require.False(t, bad, "step %d: block %d was flushed", n, i)
			}
			if bad {
				continue
			}
			is := r.Data()[g.Off]
			require.Contains(t, values, is-byte(i), "step %d, block %d", n, i)
			for _, b := range r.Data()[g.Off:g.End()] {
				require.Equal(t, is, b, "step %d, block %d", n, i)
			}
		}
		return r, again
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for n := range p.steps {
		s := &p.steps[n]
		for round := range 3 {
			r, next := check(s, s.crashed(rnd, round), n, acks, 0x11)
			if round != 1 {
				require.NoError(t, r.Close())
				continue
			}
			next.steps = nil // the process was killed, and what it had stored is there
			var acks []int
			was := r.Bad()
			repair(t, r, 0x55, func(int) { acks = append(acks, len(next.steps)) })
			next.note()
			require.NoError(t, r.Close())
			for m := range next.steps {
				if len(was) < len(repaired) {
					break // a write to a good block may be half there
				}
				if m%5 != n%5 {
					continue // it takes long
				}
				r, _ := check(&next.steps[m], next.steps[m].crashed(rnd, 2), m, acks, 0x55)
				require.NoError(t, r.Close())
			}
		}
	}
}

// The list of blocks under repair bounds what can be under repair, and what rots in it is found.
func TestRepairs(t *testing.T) {
	var b [repairsEnd]byte
	found, err := readRepairs(b[:], 1<<40)
	require.NoError(t, err)
	require.Zero(t, found)
	many := make(persist.BadPlaces, maxRepairs)
	for i := range many {
		many[i] = persist.Range{Off: uint64(i) * 2 * persist.BadBlock, Len: persist.BadBlock}
	}
	require.EqualValues(t, repairsHeader+16*5, encodeRepairs(b[repairsOffset:][:repairsSize], 1, many[:5]))
	encodeRepairs(b[repairsOffset+repairsSize:][:repairsSize], 2, many)
	found, err = readRepairs(b[:], 1<<40)
	require.NoError(t, err)
	require.Equal(t, repairs{many, 2, 1}, found)
	for name, c := range map[string]struct {
		at   int
		want repairs
		says error
	}{
		"the newer one": {repairsOffset + repairsSize + 100, repairs{many[:5], 1, 0}, nil},
		"the older one": {repairsOffset + 30, repairs{many, 2, 1}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			rotten := b
			rotten[c.at] ^= 1
			found, err := readRepairs(rotten[:], 1<<40)
			require.NoError(t, err)
			require.Equal(t, c.want, found)
			rotten[repairsOffset+repairsSize+40] ^= 1
			rotten[repairsOffset+40] ^= 1
			_, err = readRepairs(rotten[:], 1<<40)
			require.ErrorIs(t, err, ErrDamaged)
		})
	}
	_, _, err = decodeRepairs(b[repairsOffset+repairsSize:], 1<<20)
	require.ErrorIs(t, err, ErrDamaged, "outside of the region")
}

// Blocks under repair are told of although the kernel knows of more than a region may have.
func TestRepairsAmongManyBadPlaces(t *testing.T) {
	var b [repairsEnd]byte
	last := persist.Range{Off: 1 << 40, Len: persist.BadBlock}
	encodeRepairs(b[repairsOffset:][:repairsSize], 1, persist.BadPlaces{last})
	var bad badPlaces
	for i := range uint64(persist.MaxBad) {
		bad.lost = append(bad.lost, persist.Range{Off: i * 2 * persist.BadBlock, Len: persist.BadBlock})
	}
	bad.addRepairs(b[:], 1<<41)
	require.Len(t, bad.places(), persist.MaxBad)
	require.Equal(t, last, bad.places()[persist.MaxBad-1])
	require.ErrorContains(t, bad.unknown, "65537 bad places")
}

// A block under repair stays bad if either copy of the list rots, and whether or not the next target knows why.
func TestRepairsRot(t *testing.T) {
	for at := range 2 {
		h := hostOf(persist.ClassFile, bootA)
		path := created(t, h)
		bad := persist.Range{Off: 8192, Len: 4096}
		h.bad = func() ([]persist.Range, error) { return []persist.Range{{Off: DataOffset + bad.Off, Len: 1}}, nil }
		h.mend = func(_, _ uint64) error { return nil }
		r := opened(t, path, OpenOptions{}, h)
		require.NoError(t, r.Zero(bad))
		require.NoError(t, r.Close())
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte{1}, int64(repairsOffset+at*repairsSize+17))
		require.NoError(t, err)
		require.NoError(t, f.Close())
		r = opened(t, path, OpenOptions{}, fileHost)
		require.Equal(t, persist.BadPlaces{bad}, r.Bad())
		require.NoError(t, r.BadUnknown())
	}
}

// A region of several parts has its list in the first one, whatever that is.
func TestRepairsOfParts(t *testing.T) {
	for _, first := range []persist.Class{persist.ClassFile, persist.ClassPMem} {
		t.Run(first.String()+" first", func(t *testing.T) {
			h := fileHost
			paths := partPaths(t.TempDir(), 2)
			h.memoryOf = func(f *os.File) (medium.Memory, error) {
				m := medium.Memory{Class: persist.ClassFile, Flags: unix.MAP_SHARED}
				if f.Name() == paths[0] && first == persist.ClassPMem {
					m.Class, m.Platform.Domain = persist.ClassPMem, DomainMemory
				}
				return m, nil
			}
			_, err := create(paths[0], CreateOptions{Name: "r", Size: testSize, Parts: paths[1:]}, h)
			require.NoError(t, err)
			lost := persist.Range{Off: testSize - 4096, Len: 8192} // in both
			lossy := h
			lossy.bad = func() ([]persist.Range, error) { // of each
				return []persist.Range{{Off: DataOffset, Len: 1}, {Off: DataOffset + testSize - 1, Len: 1}}, nil
			}
			lossy.mend = func(_, _ uint64) error { return nil }
			r := openedParts(t, paths, lossy)
			require.NoError(t, r.Zero(lost))
			require.NoError(t, r.Close())
			info, err := inspectPath(paths[0], h, paths[1:]...)
			require.NoError(t, err)
			require.Equal(t, persist.BadPlaces{lost}, info.Bad)
			h.mend = lossy.mend
			r = openedParts(t, paths, h)
			require.Equal(t, persist.BadPlaces{lost}, r.Bad())
			require.NoError(t, r.Zero(lost))
			require.NoError(t, r.Settle([]persist.Range{lost}, r.Mending()))
			require.NoError(t, r.Close())
			r = openedParts(t, paths, h)
			require.Empty(t, r.Bad())
		})
	}
}

// A barrier behind a repair has no good answer if the list cannot be brought up to date: after a restart the block
// would be bad again.
func TestSettleFails(t *testing.T) {
	h := hostOf(persist.ClassFile, bootA)
	path := created(t, h)
	bad := persist.Range{Off: 8192, Len: 4096}
	h.bad = func() ([]persist.Range, error) { return []persist.Range{{Off: DataOffset + bad.Off, Len: 1}}, nil }
	h.mend = func(_, _ uint64) error { return nil }
	d := &disk{fail: once(4)} // behind those of the zeroes, and the flush
	r := opened(t, path, OpenOptions{}, h.syncing(d.sync))
	require.NoError(t, r.Zero(bad))
	require.NoError(t, r.FlushAll())
	require.ErrorIs(t, r.Settle([]persist.Range{bad}, r.Mending()), ErrFailed)
	require.Equal(t, persist.BadPlaces{bad}, r.Bad())
}

// More blocks than the list has room for fail the region, and none of them is repaired that is not in it.
func TestTooManyRepairs(t *testing.T) {
	h := hostOf(persist.ClassPMem, bootA)
	path := filepath.Join(t.TempDir(), "region")
	const size = 2 * (maxRepairs + 1) * persist.BadBlock // every other block
	_, err := create(path, CreateOptions{Name: "r", Size: size}, h)
	require.NoError(t, err)
	h.bad = func() (all []persist.Range, _ error) {
		for off := uint64(0); off < size; off += 2 * persist.BadBlock {
			all = append(all, persist.Range{Off: DataOffset + off, Len: 1})
		}
		return all, nil
	}
	mended := 0
	h.mend = func(_, _ uint64) error { mended++; return nil }
	r := opened(t, path, OpenOptions{}, h)
	const last = size - 4*persist.BadBlock
	r.bad.repairs.list = r.Bad()[:maxRepairs-1] // as if all these were
	require.ErrorIs(t, r.Zero(persist.Range{Off: last, Len: 4 * persist.BadBlock}), ErrFailed)
	require.Equal(t, 1, mended)
}
