package region

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
)

// member opens a new region that is member A of a mirror with three members. Its record is
// generation 1.5, and F is A and B.
func member(t *testing.T, h host) *Region {
	t.Helper()
	r := opened(t, createdMember(t, h), OpenOptions{}, h)
	require.NoError(t, r.SetRecord(recordOf(r, 0, 5, 3), 0))
	return r
}

// A region takes a record only if it is its own, of its mirror and its slot, and does not
// go back. A refused one changes nothing.
func TestSetRecordRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*persist.Record)
		fill   persist.Members
		says   string // "" if it is taken
	}{
		{"the same", func(*persist.Record) {}, 0, ""},
		{"the next generation", func(rec *persist.Record) { rec.Count++ }, 0, ""},
		{"a later life counts from 1", func(rec *persist.Record) { rec.Life, rec.Count, rec.Nonce = 2, 1, [16]byte{8} }, 0, ""},
		{"the end", func(rec *persist.Record) { *rec = persist.Record{} }, 0, ""},
		{"fewer members", func(rec *persist.Record) { rec.Count++; rec.Members[2] = persist.Membership{} }, 0, ""},
		{"the same, with bits", func(*persist.Record) {}, 4, ""},
		{"bits of the region itself", func(*persist.Record) {}, 1, ""},
		{"the same, contents of one outside F", func(rec *persist.Record) { rec.Members[2].Contents, rec.Members[2].Epoch = [16]byte{4}, 9 }, 0, ""},

		{"no mirror's", func(rec *persist.Record) { rec.F = 0 }, 0, "members in F"},
		{"another region's", func(rec *persist.Record) { rec.Members[0].UUID[3] ^= 1 }, 0, "another region"},
		{"another member's", func(rec *persist.Record) { rec.Slot = 1 }, 0, "another region"},
		{"of another mirror", func(rec *persist.Record) { rec.Set[0]++; rec.Count++ }, 0, "another mirror"},
		{"another slot", func(rec *persist.Record) {
			rec.Slot, rec.Count = 2, 9
			rec.Members[0], rec.Members[2] = rec.Members[2], rec.Members[0]
		}, 0, "the region is member A, not C"},
		{"an older one", func(rec *persist.Record) { rec.Count-- }, 0, "its generation is 1.4, and the region has 1.5"},
		{"of an earlier life", func(rec *persist.Record) { rec.Life, rec.Count = 0, 99 }, 0, "its generation is 0.99"},
		{"of another life with the same number", func(rec *persist.Record) { rec.Nonce[0]++ }, 0, "changes generation 1.5"},
		{"the same with another F", func(rec *persist.Record) { rec.F = 1 }, 0, "changes generation 1.5"},
		{"the same with more copies", func(rec *persist.Record) { rec.MinCopies = 2 }, 0, "changes generation 1.5"},
		{"the same with another member", func(rec *persist.Record) { rec.Members[2].UUID[1]++ }, 0, "changes generation 1.5"},
		{"the same without a member", func(rec *persist.Record) { rec.Members[2] = persist.Membership{} }, 0, "changes generation 1.5"},
		{"the same with another past", func(rec *persist.Record) {
			rec.Lineage[0] = persist.Ancestor{Generation: persist.Generation{Life: 1, Count: 4}, F: 7}
		}, 0, "changes generation 1.5"},
		{"the same, contents of one in F", func(rec *persist.Record) { rec.Members[1].Contents[0]++ }, 0, "changes generation 1.5"},
		{"the same, an epoch of one in F", func(rec *persist.Record) { rec.Members[0].Epoch++ }, 0, "changes generation 1.5"},
		{"torn, and in F", func(rec *persist.Record) { rec.Count++; rec.Torn = true }, 0, "torn"},
		{"bits of one in F", func(rec *persist.Record) { rec.Count++ }, 2, "to set the bits of B"},
		{"bits of nobody", func(rec *persist.Record) { rec.Count++ }, 8, "to set the bits of D"},
		{"bits at the end", func(rec *persist.Record) { *rec = persist.Record{} }, 1, "to set the bits of A"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := member(t, volatileHost)
			require.NoError(t, r.ClearBits(2, []persist.Range{{Len: 3 * chunk}}))
			before, bits := r.Superblock(), bytes.Clone(r.mem[bitsOffset:DataOffset])
			rec := before.Record
			c.change(&rec)
			err := r.SetRecord(rec, c.fill)
			require.NoError(t, r.Failed())
			if c.says == "" {
				require.NoError(t, err)
				require.Equal(t, rec, r.Superblock().Record)
				return
			}
			require.ErrorIs(t, err, ErrRecord)
			require.ErrorContains(t, err, c.says)
			require.Equal(t, before, r.Superblock())
			require.Equal(t, bits, r.mem[bitsOffset:DataOffset])
		})
	}
	t.Run("follows, and says how far it is", func(t *testing.T) {
		r := opened(t, createdMember(t, volatileHost), OpenOptions{}, volatileHost)
		rec := recordOf(r, 1, 1, 1)
		rec.Count++
		rec.Async = persist.Member(1)
		for barrier := range uint64(3) { // in one generation
			rec.Follows = persist.Point{Barrier: barrier, At: int64(barrier)}
			require.NoError(t, r.SetRecord(rec, 0))
			require.Equal(t, rec, r.Superblock().Record)
		}
		rec.Async = 0
		rec.Follows = persist.Point{}
		require.ErrorIs(t, r.SetRecord(rec, 0), ErrRecord, "who follows is the generation's")
	})
	t.Run("torn outside F, and whole again", func(t *testing.T) {
		r := opened(t, createdMember(t, volatileHost), OpenOptions{}, volatileHost)
		rec := recordOf(r, 1, 1, 1)
		for _, torn := range []bool{false, true, false} {
			rec.Torn = torn
			require.NoError(t, r.SetRecord(rec, 0))
			require.Equal(t, torn, r.Superblock().Record.Torn)
		}
	})
}

// With a record, members of F have no bits, those in fill and those that are new have all,
// and the others keep theirs.
func TestSetRecordAndBits(t *testing.T) {
	onEachClass(t, func(t *testing.T, h host) {
		path := createdMember(t, h)
		r := opened(t, path, OpenOptions{}, h)
		bits := func(of, want persist.Members) {
			t.Helper()
			for slot := range persist.MaxMembers {
				if !of.Has(slot) {
					continue
				}
				if want.Has(slot) {
					require.Equal(t, everyChunk(), chunksOf(t, r, slot))
				} else {
					require.Empty(t, chunksOf(t, r, slot))
				}
			}
		}
		rec := recordOf(r, 3, 1, 15)
		step := func(f, fill persist.Members) {
			t.Helper()
			rec.Count++
			rec.F = f
			require.NoError(t, r.SetRecord(rec, fill))
		}
		require.NoError(t, r.SetRecord(rec, 0))
		bits(7, 0)
		step(14, 0) // A leaves F
		bits(7, 0)
		require.NoError(t, r.SetBits(1, []persist.Range{{Off: 2 * chunk, Len: chunk}}))
		step(12, 2) // B leaves F with all its bits
		bits(6, 2)
		require.Equal(t, []int{2}, chunksOf(t, r, 0), "A keeps its own")
		step(8, 0)
		step(9, 0) // A is back, C is away
		bits(7, 2)
		rec.Members[1].UUID[5]++ // B was replaced
		require.NoError(t, r.ClearBits(1, []persist.Range{{Len: aside}}))
		step(9, 0)
		bits(7, 2)

		rec.Members[1] = persist.Membership{} // B is gone
		step(9, 4)
		require.Zero(t, r.BitsSet(1))
		require.NoError(t, r.Update(func(sb *Superblock) error { sb.Life = 7; return nil }))
		was := r.Superblock().Contents
		require.NoError(t, r.SetRecord(persist.Record{}, 0))
		require.NotEqual(t, was, r.Superblock().Contents, "what it has is nobody's")
		require.Zero(t, r.Superblock().Life)
		was = r.Superblock().Contents
		require.NoError(t, r.SetRecord(persist.Record{}, 0))
		require.Equal(t, was, r.Superblock().Contents)
		require.Equal(t, make([]byte, DataOffset-bitsOffset), r.mem[bitsOffset:DataOffset], "no member has no bits")
		require.NoError(t, r.SetRecord(recordOf(r, 1, 1, 3), 0)) // in another place
		bits(5, 4)

		require.NoError(t, r.Close())
		r = opened(t, path, OpenOptions{}, h)
		require.Equal(t, recordOf(r, 1, 1, 3), r.Superblock().Record)
		bits(5, 4)
	})
}

// A record is in both copies of the superblock: if one rots, the region must not go back to
// an older F.
func TestRecordIsInBothCopies(t *testing.T) {
	for at := range 2 {
		path := createdMember(t, fileHost)
		r := opened(t, path, OpenOptions{}, fileHost)
		require.NoError(t, r.SetRecord(recordOf(r, 0, 1, 7), 0))
		rec := recordOf(r, 0, 2, 1)
		require.NoError(t, r.SetRecord(rec, 2))
		require.NoError(t, r.Close())
		h := header(t, path)
		h[at*CopySize+700] ^= 1
		setHeader(t, path, h)
		r = opened(t, path, OpenOptions{}, fileHost)
		require.Equal(t, rec, r.Superblock().Record, "copy %d rots", at)
		require.Equal(t, everyChunk(), chunksOf(t, r, 1))
	}
}

// A member that was served alone must not look equal to the others again, if a copy rots. Nor must one that a life of
// the mirror took for one without its contents, after it had been served alone.
func TestServedAloneIsInBothCopies(t *testing.T) {
	for n := range 4 {
		at, again := n%2, n/2 == 1
		path := createdMember(t, fileHost)
		r := opened(t, path, OpenOptions{}, fileHost)
		rec := recordOf(r, 0, 1, 7)
		rec.Members[0].Contents = r.Superblock().Contents
		require.NoError(t, r.SetRecord(rec, 0))
		require.NoError(t, r.Update(func(sb *Superblock) error { sb.ServeAlone(); return nil }))
		alone := r.Superblock()
		require.NotEqual(t, rec.Members[0].Contents, alone.Contents)
		if again {
			require.NoError(t, r.Update(func(sb *Superblock) error { sb.Forget(); return nil }))
			require.NotEqual(t, alone.Contents, r.Superblock().Contents)
			alone = r.Superblock()
		}
		require.NoError(t, r.Close())
		h := header(t, path)
		h[at*CopySize+700] ^= 1
		setHeader(t, path, h)
		r = opened(t, path, OpenOptions{}, fileHost)
		require.Equal(t, alone.Contents, r.Superblock().Contents, "copy %d rots", at)
		require.Equal(t, alone.Record, r.Superblock().Record)
	}
}

// A sync that fails during SetRecord fails the region.
func TestFailureInSetRecord(t *testing.T) {
	for at := 1; at <= 8; at++ { // the bits to set, two updates with three each, the bits to clear
		path := createdMember(t, fileHost)
		d := &disk{}
		r := opened(t, path, OpenOptions{}, fileHost.syncing(d.sync))
		require.NoError(t, r.SetRecord(recordOf(r, 0, 1, 5), 0)) // sets B's bits
		d.syncs, d.fail = 0, once(at)
		rec := recordOf(r, 0, 2, 3)
		require.ErrorIs(t, r.SetRecord(rec, 4), ErrFailed, "sync %d", at)
		require.ErrorIs(t, r.SetRecord(rec, 4), ErrFailed)
		require.ErrorIs(t, r.SetBits(4, []persist.Range{{Len: 1}}), ErrFailed)
		require.ErrorIs(t, r.ClearBits(2, []persist.Range{{Len: 1}}), ErrFailed)
		_, err := r.ReadBits(2, 0, nil)
		require.ErrorIs(t, err, ErrFailed)
		require.NoError(t, r.Close())
		r = opened(t, path, OpenOptions{}, fileHost)
		require.ErrorIs(t, r.Failed(), ErrFailed)
		require.NoError(t, r.Close())

		require.NoError(t, clearRegion(path, "x", fileHost, nil))
		r = opened(t, path, OpenOptions{}, fileHost)
		if r.Superblock().Record == rec {
			require.Empty(t, chunksOf(t, r, 1), "sync %d", at)
			require.Equal(t, everyChunk(), chunksOf(t, r, 2))
		} else {
			require.Equal(t, everyChunk(), chunksOf(t, r, 1))
			require.Zero(t, r.BitsSet(2))
		}
	}
	r := member(t, fileHost)
	require.NoError(t, r.Close())
	require.ErrorIs(t, r.SetRecord(persist.Record{}, 0), ErrClosed)
}

// create --force on a member makes a region that is no member, and leaves no bits.
func TestCreateForgetsTheMirror(t *testing.T) {
	file := filepath.Join(t.TempDir(), "region")
	for name, c := range map[string]struct {
		path string
		h    host
	}{
		"file":   {file, fileHost},
		"device": {newDevice(t, deviceSize), deviceHost(Platform{Domain: DomainMemory})},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := create(c.path, CreateOptions{Name: "r", Size: testSize}, c.h)
			require.NoError(t, err)
			r := opened(t, c.path, OpenOptions{}, c.h)
			require.NoError(t, r.SetRecord(recordOf(r, 0, 1, 1), 0))
			require.NoError(t, r.Update(func(sb *Superblock) error { sb.Life = 4; return nil }))
			require.NoError(t, r.Close())
			_, err = create(c.path, CreateOptions{Name: "r", Size: testSize}, c.h)
			require.ErrorIs(t, err, ErrNotEmpty)
			info, err := create(c.path, CreateOptions{Name: "r", Size: testSize, Force: true}, c.h)
			require.NoError(t, err)
			require.Zero(t, info.Superblock.Record)
			require.Zero(t, info.Superblock.Life)
			r = opened(t, c.path, OpenOptions{}, c.h)
			require.Equal(t, make([]byte, DataOffset-bitsOffset), r.mem[bitsOffset:DataOffset])
		})
	}
}

// The life never goes back, and only SetRecord changes a record.
func TestUpdateKeepsTheRecord(t *testing.T) {
	r := member(t, volatileHost)
	require.NoError(t, r.Update(func(sb *Superblock) error { sb.Life = 3; return nil }))
	before := r.Superblock()
	require.Error(t, r.Update(func(sb *Superblock) error { sb.Life--; return nil }))
	require.Error(t, r.Update(func(sb *Superblock) error { sb.Record.Count++; return nil }))
	require.Error(t, r.Update(func(sb *Superblock) error { sb.Record = persist.Record{}; return nil }))
	require.Equal(t, before, r.Superblock())
}

func TestDigest(t *testing.T) {
	r := opened(t, created(t, volatileHost), OpenOptions{}, volatileHost)
	for i := range r.Data() {
		r.Data()[i] = byte(i * 3)
	}
	for _, g := range []persist.Range{{}, {Len: testSize}, {Off: 4097, Len: 1}, {Off: 4096, Len: 8192}, {Off: testSize}} {
		sum, err := r.Digest(g)
		require.NoError(t, err)
		require.Equal(t, sha256.Sum256(r.Data()[g.Off:g.Off+g.Len]), sum)
	}
	_, err := r.Digest(persist.Range{Off: 1, Len: testSize})
	require.ErrorIs(t, err, ErrRange)
}

// Inspect shows a member while it is served, and one whose file became shorter.
func TestInspectMember(t *testing.T) {
	for name, c := range map[string]struct {
		path string
		h    host
	}{
		"file":   {filepath.Join(t.TempDir(), "region"), fileHost},
		"device": {newDevice(t, 4<<20), deviceHost(Platform{Domain: DomainMemory})},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := create(c.path, CreateOptions{Name: "r", Size: aside}, c.h)
			require.NoError(t, err)
			info, err := inspectPath(c.path, c.h)
			require.NoError(t, err)
			require.Nil(t, info.Bits)
			r := opened(t, c.path, OpenOptions{}, c.h)
			require.NoError(t, r.SetRecord(recordOf(r, 3, 1, 2|8), 0))
			require.NoError(t, r.ClearBits(2, []persist.Range{{Len: 4 * chunk}}))
			info, err = inspectPath(c.path, c.h)
			require.NoError(t, err)
			require.Equal(t, []uint64{21, 0, 17, 0}, info.Bits)
			require.EqualValues(t, chunk, info.Superblock.ChunkSize())
		})
	}
	path := createdMember(t, fileHost)
	r := opened(t, path, OpenOptions{}, fileHost)
	require.NoError(t, r.SetRecord(recordOf(r, 0, 1, 1), 0))
	require.NoError(t, os.Truncate(path, 2*CopySize))
	info, err := inspectPath(path, fileHost)
	require.NoError(t, err)
	require.Nil(t, info.Bits)
	require.Equal(t, r.Superblock().Record, info.Superblock.Record)
}

// Barriers of other lanes go on while a record changes. At every step of it one may set bits
// by the record before: in F nobody has bits afterwards. One that comes behind the record
// sets them for the members that have left F.
func TestBarrierDuringSetRecord(t *testing.T) {
	some := []persist.Range{{Off: 5 * chunk, Len: 1}}
	var r *Region
	steps := 0
	h := hostOf(persist.ClassPMem, bootA)
	h.back = func([]byte, uint64, uint64) {
		if steps++; r != nil {
			require.NoError(t, r.SetBits(15, some))
		}
	}
	opening := opened(t, createdMember(t, h), OpenOptions{}, h)
	require.NoError(t, opening.SetRecord(recordOf(opening, 0, 1, 7), 0))
	require.NoError(t, opening.SetRecord(recordOf(opening, 0, 2, 5), 0)) // B is outside F
	r, steps = opening, 0
	require.NoError(t, r.SetRecord(recordOf(r, 0, 3, 3), 0)) // B is back, C leaves
	require.Equal(t, 2*3+1, steps, "two updates, and the bits of B")
	require.Empty(t, chunksOf(t, r, 1))
	require.Equal(t, []int{5}, chunksOf(t, r, 2))
}
