package region

import (
	"errors"
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

const crashParts = 3

// headers are the superblocks of all parts.
type headers [crashParts][2 * CopySize]byte

// A tape notes what is durable of the superblocks, and what is stored, before each step of
// whoever makes something durable.
type tape struct {
	t       *testing.T
	paths   []string
	durable headers
	steps   []step
	off     bool
}

type step struct{ durable, stored headers }

func (p *tape) stored() (h headers) {
	for i, path := range p.paths {
		h[i] = header(p.t, path)
	}
	return h
}

func (p *tape) note() (stored headers) {
	stored = p.stored()
	p.steps = append(p.steps, step{p.durable, stored})
	return stored
}

// host returns a machine of the class on which the tape notes every step.
func (p *tape) host(class persist.Class) host {
	h := hostOf(class, bootA)
	h.sync = func(fd int) error {
		if p.off {
			return nil
		}
		stored := p.note()
		var st, of unix.Stat_t
		require.NoError(p.t, unix.Fstat(fd, &st))
		for i, path := range p.paths {
			require.NoError(p.t, unix.Stat(path, &of))
			if st.Ino == of.Ino {
				p.durable[i] = stored[i]
			}
		}
		return nil
	}
	h.back = func(_ []byte, off, n uint64) {
		if p.off {
			return
		}
		stored := p.note()
		i := uint64(0)
		if heads := roundUp(DataOffset+crashParts*testSize, hugePage); off >= heads {
			i, off = (off-heads)/hugePage+1, (off-heads)%hugePage
		}
		copy(p.durable[i][off:off+n], stored[i][off:])
	}
	return h
}

// crashed returns what a crash leaves: what is durable, and any words of what is stored.
func (s *step) crashed(rnd *rand.Rand, round int) headers {
	h := s.durable
	for i := range h {
		for w := 0; w < len(h[i]); w += 8 {
			if round == 1 || round > 1 && rnd.IntN(2) == 0 {
				copy(h[i][w:w+8], s.stored[i][w:w+8])
			}
		}
	}
	return h
}

// update does the update number i.
func update(t *testing.T, r *Region, i int) {
	require.NoError(t, r.Update(func(sb *Superblock) error {
		sb.Epoch += 5
		sb.Mark++
		sb.Owner.ID[i], sb.Clean = byte(i+1), i%2 == 0
		return nil
	}))
}

// A crash at any step of an update leaves parts that open, with the old superblock or the
// new one. So does a crash at any step of that Open. A part that was restored from an older
// copy in between is found, whichever it is.
func TestPartsCrash(t *testing.T) {
	for _, class := range []persist.Class{persist.ClassFile, persist.ClassPMem} {
		t.Run(class.String(), func(t *testing.T) { crashAtEachStep(t, class) })
	}
}

func crashAtEachStep(t *testing.T, class persist.Class) {
	p := &tape{t: t, off: true, paths: createdParts(t, hostOf(class, bootA), crashParts)}
	r, err := open(p.paths[0], OpenOptions{Parts: p.paths[1:]}, p.host(class))
	require.NoError(t, err)
	p.durable, p.off = p.stored(), false
	type state struct {
		sb    Superblock
		heads headers
		steps int
	}
	states := []state{{sb: r.Superblock(), heads: p.durable}}
	const updates = 3
	for i := range updates {
		update(t, r, i)
		require.Equal(t, p.durable, p.stored(), "all is durable when Update returns")
		states = append(states, state{r.Superblock(), p.durable, len(p.steps)})
	}
	require.NoError(t, r.Close())
	require.Len(t, p.steps, updates*3*(crashParts+1), "three steps for each superblock, and twice for the first part's")

	dir := testhost.Memory(t)
	crash := &tape{t: t, off: true, paths: partPaths(dir, crashParts)}
	for i, path := range p.paths {
		whole, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(crash.paths[i], whole, 0o600))
	}
	// found opens what a crash left.
	found := func(h headers) (sb Superblock, err error) {
		for i, path := range crash.paths {
			setHeader(t, path, h[i])
		}
		c, err := open(crash.paths[0], OpenOptions{Parts: crash.paths[1:]}, crash.host(class))
		if err != nil {
			return sb, err
		}
		defer func() { require.NoError(t, c.Close()) }()
		return c.Superblock(), nil
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	at := 0
	for n, s := range p.steps {
		for n >= states[at+1].steps {
			at++
		}
		before, after := states[at], states[at+1]
		for round := range 4 {
			left := s.crashed(rnd, round)
			crash.durable, crash.steps, crash.off = left, nil, false
			if round == 1 { // the process is killed, and the power fails while the next one opens the region
				crash.durable = s.durable
			}
			sb, err := found(left)
			crash.off = true
			require.NoError(t, err, "step %d", n)
			requireOneOf(t, sb, before.sb, after.sb)
			for _, again := range crash.steps {
				for round := range 2 * (1 + n%2) { // half of them lose all or keep all
					sb, err := found(again.crashed(rnd, round))
					require.NoError(t, err, "step %d, and again", n)
					requireOneOf(t, sb, before.sb, after.sb)
				}
			}
			if at == 0 || round == 1 {
				continue
			}
			// The copy is one change older than the oldest part that belongs here.
			for i := range crashParts {
				restored := left
				restored[i] = states[at-1].heads[i]
				_, err := found(restored)
				require.ErrorIs(t, err, ErrOlder, "step %d, part %d", n, i)
				require.ErrorContains(t, err, crash.paths[i])
			}
		}
	}
	// At rest, a copy of the state before is found, too.
	for i := range crashParts {
		for old := range updates {
			restored := states[updates].heads
			restored[i] = states[old].heads[i]
			_, err := found(restored)
			require.ErrorIs(t, err, ErrOlder)
			require.ErrorContains(t, err, crash.paths[i])
			for other, path := range crash.paths {
				if other > 0 && i > 0 && other != i {
					require.NotContains(t, err.Error(), path)
				}
			}
		}
	}
	// Copies of all parts of one moment are the region as it was.
	for _, s := range states {
		sb, err := found(s.heads)
		require.NoError(t, err)
		requireOneOf(t, sb, s.sb, s.sb)
	}
}

// requireOneOf fails the test unless got is one of two superblocks, but for what opening
// changes.
func requireOneOf(t *testing.T, got, before, after Superblock) {
	t.Helper()
	require.False(t, got.Stamping)
	for _, sb := range []*Superblock{&got, &before, &after} {
		sb.Generation, sb.Stamp, sb.StampNonces = 0, 0, [2]uint64{}
	}
	if got != before {
		require.Equal(t, after, got)
	}
}

// The stamps of a further part that fit those of the first one.
func TestStale(t *testing.T) {
	good, unfinished, rotten := [2]CopyState{CopyGood, CopyGood}, [2]CopyState{CopyGood, CopyUnfinished}, [2]CopyState{CopyRotten, CopyGood}
	for _, c := range []struct {
		name     string
		stamping bool
		first    [2]CopyState
		part     [2]CopyState
		from, to uint64 // what fits, of a first part with the stamp 10
	}{
		{"at rest", false, good, good, 10, 10},
		{"at rest, the next update has begun", false, unfinished, good, 10, 10},
		{"stamping", true, good, good, 9, 10},
		{"stamping, into this part", true, good, unfinished, 9, 10},
		{"the first part lost a copy that may be newer", false, rotten, good, 10, 11},
		{"stamping, and it lost the older copy or the end", true, rotten, good, 9, 10},
		{"this part lost a copy that may be newer", false, good, rotten, 9, 10},
		{"stamping, and this part lost one", true, good, rotten, 8, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			first := copies{chosen: chosen[Superblock]{best: Superblock{Stamp: 10, Stamping: c.stamping}, states: c.first}}
			for stamp := uint64(6); stamp < 14; stamp++ {
				firstIs, partIs := stale(&first, &chosen[partHead]{best: partHead{stamp: stamp}, states: c.part})
				require.Equal(t, stamp > c.to, firstIs, stamp)
				require.Equal(t, stamp < c.from, partIs, stamp)
			}
		})
	}
}

// A crash while a region of several parts is being created leaves no region or a whole one:
// the first part's superblock comes last.
func TestCreatePartsCrash(t *testing.T) {
	paths := partPaths(t.TempDir(), crashParts)
	var order []string
	h := hostOf(persist.ClassPMem, bootA)
	h.memoryOf = func(*os.File) (medium.Memory, error) {
		return medium.Memory{Class: persist.ClassPMem, Device: DataOffset + testSize, Flags: unix.MAP_SHARED}, nil
	}
	h.back = func(mem []byte, _, _ uint64) {
		for _, path := range paths {
			if b := header(t, path); string(b[:8]) == string(mem[:8]) && string(b[32:64]) == string(mem[32:64]) && string(b[16:24]) == string(mem[16:24]) {
				order = append(order, filepath.Base(path))
			}
		}
	}
	for _, path := range paths {
		require.NoError(t, os.WriteFile(path, make([]byte, DataOffset+testSize), 0o600))
	}
	_, err := create(paths[0], CreateOptions{Name: "r", Size: testSize, Parts: paths[1:]}, h)
	require.NoError(t, err)
	require.Equal(t, []string{"part2", "part1", "part0", "part0"}, order)
}

// A rotten copy of a further part is repaired. If it may have been the newer one, nobody
// knows who owned the region.
func TestPartRot(t *testing.T) {
	for at := range 2 {
		paths := createdParts(t, fileHost, crashParts)
		r := openedParts(t, paths, fileHost)
		update(t, r, 0)
		before := r.Superblock()
		require.NoError(t, r.Close())
		h := header(t, paths[2])
		newer, err := readPart(h[:])
		require.NoError(t, err)
		h[at*CopySize+100] ^= 1
		setHeader(t, paths[2], h)
		r = openedParts(t, paths, fileHost)
		sb := r.Superblock()
		if newer.at == at {
			require.Equal(t, persist.Owner{}, sb.Owner)
			require.Equal(t, before.Epoch+1, sb.Epoch)
			require.True(t, sb.Doubt)
		} else {
			require.Equal(t, before.Owner, sb.Owner)
			require.False(t, sb.Doubt)
		}
		require.NoError(t, r.Close())
		info, err := inspectPath(paths[0], fileHost, paths[1:]...)
		require.NoError(t, err)
		require.Equal(t, [2]CopyState{CopyGood, CopyGood}, info.Parts[2].Copies)
		require.Equal(t, sb.Stamp, info.Parts[2].Stamp)
		both := header(t, paths[1])
		both[50], both[CopySize+50] = both[50]^1, both[CopySize+50]^1
		setHeader(t, paths[1], both)
		_, err = open(paths[0], OpenOptions{Parts: paths[1:]}, fileHost)
		require.ErrorIs(t, err, ErrDamaged)
		require.ErrorContains(t, err, paths[1])
	}
}

// A part whose superblock another process changes fails the region, and its superblock
// stays as that process left it.
func TestForeignPart(t *testing.T) {
	paths := createdParts(t, fileHost, crashParts)
	r := openedParts(t, paths, fileHost)
	require.NoError(t, r.Check())
	foreign := header(t, paths[1])
	clear(foreign[CopySize+offGeneration : CopySize+offGeneration+8])
	setHeader(t, paths[1], foreign)
	err := r.Check()
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorContains(t, err, paths[1])
	require.ErrorIs(t, r.Update(func(*Superblock) error { return nil }), ErrFailed)
	require.Equal(t, foreign, header(t, paths[1]))
}

// A region whose part cannot be stamped fails, opens as failed, and is whole again after
// Clear, whatever the parts have.
func TestPartFails(t *testing.T) {
	for after := range 15 { // syncs of an update
		paths := createdParts(t, fileHost, crashParts)
		left := after
		r, err := open(paths[0], OpenOptions{Parts: paths[1:]}, fileHost)
		require.NoError(t, err)
		update(t, r, 0)
		require.NoError(t, r.Close())
		broken := false
		r = openedParts(t, paths, fileHost.syncing(func(fd int) error {
			if left--; left == -1 {
				broken = true
				return unix.EIO
			}
			return unix.Fdatasync(fd)
		}))
		err = r.Update(func(sb *Superblock) error { sb.Epoch++; return nil })
		require.Equal(t, broken, errors.Is(err, ErrFailed))
		require.NoError(t, r.Close())
		if !broken {
			continue
		}
		r = openedParts(t, paths, fileHost)
		require.ErrorIs(t, r.Failed(), ErrFailed)
		require.NoError(t, r.Close())
		require.NoError(t, clearRegion(paths[0], "tried", fileHost, nil, paths[1:]...))
		r = openedParts(t, paths, fileHost)
		require.NoError(t, r.Failed())
		sb := r.Superblock()
		require.Equal(t, "tried", sb.Cleared)
		require.True(t, sb.Doubt)
		require.NoError(t, r.Close())
		info, err := inspectPath(paths[0], fileHost, paths[1:]...)
		require.NoError(t, err)
		for _, p := range info.Parts {
			require.Equal(t, sb.Stamp, p.Stamp)
		}
	}
}
