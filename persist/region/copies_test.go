package region

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

// Every update survives a crash at every step. The disk then has what the last sync left,
// mixed in any way with what was stored since. Readers find the old or the new
// superblock, whole, and never take it for a damaged one.
func TestUpdateCrash(t *testing.T) {
	path := created(t, fileHost)
	steps := [][2 * CopySize]byte{header(t, path)} // what each sync made durable
	r := opened(t, path, OpenOptions{}, fileHost.syncing(func(int) error {
		steps = append(steps, header(t, path))
		return nil
	}))

	states := []Superblock{r.Superblock()} // before and after each update
	for i := range 6 {
		require.NoError(t, r.Update(func(sb *Superblock) error {
			sb.Epoch += 5
			sb.Owner.ID[i], sb.Clean, sb.Doubt = byte(i), !sb.Clean, i%3 == 0
			sb.Cleared = "reason"[:i]
			return nil
		}))
		states = append(states, r.Superblock())
	}
	const syncs = 3 // per update
	require.Len(t, steps, 1+6*syncs)

	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	copied := filepath.Join(t.TempDir(), "copy")
	for at := range len(steps) - 1 {
		before, after := states[at/syncs], states[at/syncs+1]
		for round := range 200 {
			crash := steps[at]
			for w := 0; w < len(crash); w += 8 { // memory and sectors tear at multiples of 8 bytes
				if round > 0 && rnd.IntN(2) == 0 || round == 1 {
					copy(crash[w:w+8], steps[at+1][w:w+8])
				}
			}
			found, err := readCopies(crash[:])
			require.NoError(t, err, "step %d", at)
			require.False(t, found.rotten(), "step %d", at)
			if found.best != before {
				require.Equal(t, after, found.best, "step %d", at)
				require.Equal(t, syncs-1, at%syncs, "only the last step may show the new superblock")
			}
			if round == 0 { // also through Open, which repairs the other copy
				whole, err := os.ReadFile(path)
				require.NoError(t, err)
				copy(whole, crash[:])
				require.NoError(t, os.WriteFile(copied, whole, 0o600))
				c, err := open(copied, OpenOptions{}, fileHost)
				require.NoError(t, err)
				got := c.Superblock()
				require.NoError(t, c.Close())
				got.Generation = found.best.Generation
				require.Equal(t, found.best, got)
				info, err := Inspect(copied)
				require.NoError(t, err)
				require.Equal(t, [2]CopyState{CopyGood, CopyGood}, info.Copies)
			}
		}
	}
	found, err := readCopies(steps[len(steps)-1][:])
	require.NoError(t, err)
	require.Equal(t, states[len(states)-1], found.best)
}

// What a copy says may not be durable, if its writer was killed before its last step was
// durable. Open makes it durable before it returns.
func TestOpeningMakesDurable(t *testing.T) {
	for name, tt := range map[string]struct {
		host
		syncs, lines int
	}{
		"file":     {fileHost, 1, 0},
		"volatile": {volatileHost, 0, 2 * CopySize},
	} {
		t.Run(name, func(t *testing.T) {
			h := tt.host
			path := created(t, h)
			r, err := open(path, OpenOptions{AllowVolatile: true}, h) // writes the boot id
			require.NoError(t, err)
			require.NoError(t, r.Close())
			before := header(t, path)
			syncs, lines := 0, 0
			h.sync = func(int) error { syncs++; return nil }
			h.header = func(b []byte) { lines += len(b) }
			r, err = open(path, OpenOptions{AllowVolatile: true}, h)
			require.NoError(t, err)
			require.NoError(t, r.Close())
			require.Equal(t, before, header(t, path), "there was nothing to change")
			require.Equal(t, tt.syncs, syncs)
			require.Equal(t, tt.lines, lines, "bytes of the header that were written back, for classes without syncs")
		})
	}
	t.Run("which fails", func(t *testing.T) {
		path := created(t, fileHost)
		_, err := open(path, OpenOptions{}, fileHost.syncing(func(int) error { return unix.EIO }))
		require.ErrorIs(t, err, unix.EIO)
	})
}

// A crash while a region is being created leaves no region or a whole one.
func TestCreateCrash(t *testing.T) {
	path := created(t, fileHost)
	done := header(t, path)
	generations := [2]uint64{1, 2}
	for mask := range 4 { // the generations that reached the disk
		crash := done
		for at := range 2 {
			g := crash[at*CopySize+offGeneration:][:8]
			require.Equal(t, generationTag|generations[at], binary.LittleEndian.Uint64(g))
			if mask>>at&1 == 0 {
				clear(g)
			}
		}
		found, err := readCopies(crash[:])
		if mask == 0 {
			require.ErrorIs(t, err, ErrDamaged)
			continue
		}
		require.NoError(t, err)
		require.False(t, found.rotten())
	}
}

// A rotten copy may have been the newer one, so the owner is unknown.
func TestRot(t *testing.T) {
	owner := persist.Owner{ID: [16]byte{1}, Nonce: [16]byte{2}}
	rot := map[string]func(page []byte){
		"a bit of the body":                  func(p []byte) { p[offOwnerID] ^= 4 },
		"a bit of the generation":            func(p []byte) { p[offGeneration] ^= 4 },
		"the only bit of a small generation": func(p []byte) { p[offGeneration] ^= p[offGeneration] & -p[offGeneration] },
		"a bit of the CRC":                   func(p []byte) { p[offCRC] ^= 4 },
		"a bit of the magic":                 func(p []byte) { p[0] ^= 4 },
		"the first sector is zeroes":         func(p []byte) { clear(p[:512]) },
		"the whole copy is zeroes":           func(p []byte) { clear(p) },
		"another program wrote there":        func(p []byte) { copy(p, "\x7fELF") },
		"a field that nobody wrote":          func(p []byte) { p[200] = 1 },
		"the last sector is zeroes":          func(p []byte) { clear(p[CopySize-512:]) },
	}
	for name, bend := range rot {
		for at := range 2 {
			t.Run(name, func(t *testing.T) {
				path := created(t, fileHost)
				r, err := open(path, OpenOptions{}, fileHost)
				require.NoError(t, err)
				require.NoError(t, r.Update(func(sb *Superblock) error { sb.Epoch, sb.Owner, sb.Clean = 7, owner, false; return nil }))
				require.NoError(t, r.Update(func(sb *Superblock) error { sb.Clean = true; return nil }))
				require.NoError(t, r.Close())

				h := header(t, path)
				bend(h[at*CopySize : (at+1)*CopySize])
				setHeader(t, path, h)
				info, err := Inspect(path)
				require.NoError(t, err)
				require.Equal(t, CopyRotten, info.Copies[at])
				require.Equal(t, CopyGood, info.Copies[1-at])

				r = opened(t, path, OpenOptions{}, fileHost)
				sb := r.Superblock()
				require.Equal(t, persist.Owner{}, sb.Owner, "nobody can RESUME")
				require.True(t, sb.Doubt)
				require.False(t, sb.Clean)
				require.EqualValues(t, 8, sb.Epoch, "the next grant uses best + 2")
				require.Equal(t, info.Superblock.Contents, sb.Contents)
				require.NoError(t, r.Close())

				// All of that is durable, and happens only once.
				again := opened(t, path, OpenOptions{}, fileHost)
				require.Equal(t, sb, again.Superblock())
			})
		}
	}
}

func TestBothCopiesBad(t *testing.T) {
	path := created(t, fileHost)
	good := header(t, path)
	other := good
	decoded, err := decode(good[:CopySize])
	require.NoError(t, err)
	decoded.UUID[0] ^= 1
	decoded.encode(other[:CopySize])
	same := good
	copy(same[CopySize:], same[:CopySize])
	newer := good
	newer[offVersion] = 4
	binary.LittleEndian.PutUint32(newer[offCRC:], crc32.Checksum(newer[:offCRC], castagnoli))
	for _, c := range []struct {
		name string
		h    func() [2 * CopySize]byte
		want error
	}{
		{"both rotten", func() [2 * CopySize]byte { h := good; h[50] ^= 1; h[CopySize+50] ^= 1; return h }, ErrDamaged},
		{"both unfinished", func() [2 * CopySize]byte {
			h := good
			clear(h[8:16])
			clear(h[CopySize+8 : CopySize+16])
			return h
		}, ErrDamaged},
		{"one rotten, one foreign", func() [2 * CopySize]byte { h := good; h[50] ^= 1; clear(h[CopySize:]); return h }, ErrDamaged},
		{"zeroes", func() [2 * CopySize]byte { return [2 * CopySize]byte{} }, ErrNoSuperblock},
		{"two regions", func() [2 * CopySize]byte { return other }, ErrDamaged},
		{"one copy twice", func() [2 * CopySize]byte { return same }, ErrDamaged},
		{"a newer version", func() [2 * CopySize]byte { return newer }, ErrVersion},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := c.h()
			setHeader(t, path, h)
			_, err := open(path, OpenOptions{CreateSize: testSize, Name: "r"}, fileHost)
			require.ErrorIs(t, err, c.want)
			_, err = Inspect(path)
			require.ErrorIs(t, err, c.want)
			require.ErrorIs(t, clearRegion(path, "x", fileHost, nil), c.want)
			require.Equal(t, h, header(t, path), "nothing was written")
			require.Empty(t, held(t, filepath.Dir(path)))
		})
	}
}

// The contents id changes when readable contents may have been lost, and never otherwise
// (design §2).
func TestContentsID(t *testing.T) {
	old, fresh := [16]byte{1}, [16]byte{2}
	for _, c := range []struct {
		name                 string
		volatile, doubt, rot bool
		boot                 [16]byte
		want                 [16]byte
	}{
		{"volatile, same boot", true, false, false, bootA, old},
		{"volatile in doubt, same boot", true, true, false, bootA, old},
		{"volatile, new boot", true, false, false, bootB, fresh},
		{"file, same boot", false, false, false, bootA, old},
		{"file, new boot", false, false, false, bootB, old},
		{"file in doubt, same boot", false, true, false, bootA, old},
		{"file in doubt, new boot", false, true, false, bootB, fresh},
		{"file with rot, same boot", false, false, true, bootA, old},
		{"file with rot, new boot: the lost copy may have had doubt", false, false, true, bootB, fresh},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := copies{chosen: chosen[Superblock]{best: Superblock{Boot: bootA, Contents: old, Doubt: c.doubt}, states: [2]CopyState{CopyGood, CopyGood}}}
			if c.rot {
				found.states[1] = CopyRotten
			}
			m := medium.Memory{Class: persist.ClassFile}
			if c.volatile {
				m.Class = persist.ClassVolatile
			}
			sb := onOpen(found, &m, c.boot, fresh)
			require.Equal(t, c.want, sb.Contents)
			require.Equal(t, c.boot, sb.Boot)
			require.Equal(t, c.doubt || c.rot, sb.Doubt, "a boot does not settle doubt")
		})
	}
}

// What a new boot changes is durable when Open returns. If it cannot be made durable, the
// region does not open.
func TestOpenAppliesBoot(t *testing.T) {
	path := created(t, volatileHost)
	before, err := Inspect(path)
	require.NoError(t, err)
	r := opened(t, path, OpenOptions{}, hostOf(persist.ClassVolatile, bootB))
	after, err := Inspect(path)
	require.NoError(t, err)
	require.Equal(t, r.Superblock(), after.Superblock)
	require.NotEqual(t, before.Superblock.Contents, after.Superblock.Contents)

	path = created(t, fileHost)
	_, err = open(path, OpenOptions{}, hostOf(persist.ClassFile, bootB).syncing(func(int) error { return unix.EIO }))
	require.ErrorIs(t, err, unix.EIO)
	require.Empty(t, held(t, filepath.Dir(path)))
}
