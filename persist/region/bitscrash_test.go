package region

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"pmnbd/internal/testhost"
	"pmnbd/persist"
	"pmnbd/test/pmemsim"
)

// chunkSet has a bit for each of the 21 chunks.
type chunkSet uint32

const allChunks chunkSet = 1<<21 - 1

// chunksIn returns the chunks that g touches, and those that lie wholly inside, one by one.
func chunksIn(g persist.Range) (touched, inner chunkSet) {
	for i := range uint64(21) {
		from, to := i*chunk, min((i+1)*chunk, aside)
		if g.Len > 0 && g.Off < to && g.Off+g.Len > from {
			touched |= 1 << i
		}
		if g.Off <= from && g.Off+g.Len >= to {
			inner |= 1 << i
		}
	}
	return touched, inner
}

// A bitsState is what a test knows of a region's bits: the record, what is set now, and by
// slot what a crash must leave and what it may leave.
type bitsState struct {
	rec             persist.Record
	live, must, may [persist.MaxMembers]chunkSet
}

// behind returns the members for which the region must keep bits.
func (s *bitsState) behind() (m persist.Members) {
	for slot, member := range s.rec.Members {
		if member.UUID != ([16]byte{}) && !s.rec.F.Has(slot) && slot != int(s.rec.Slot) {
			m |= persist.Member(slot)
		}
	}
	return m
}

func (s *bitsState) set(members persist.Members, ranges []persist.Range) {
	for slot := range s.live {
		for _, g := range ranges {
			if touched, _ := chunksIn(g); (members & s.behind()).Has(slot) {
				s.live[slot] |= touched
				s.may[slot] |= touched
			}
		}
	}
}

func (s *bitsState) clear(slot int, ranges []persist.Range) {
	for _, g := range ranges {
		_, inner := chunksIn(g)
		s.live[slot] &^= inner
		s.must[slot] &^= inner
	}
}

func (s *bitsState) flush(members persist.Members, ranges []persist.Range) {
	for slot := range s.live {
		for _, g := range ranges {
			if touched, _ := chunksIn(g); members.Has(slot) {
				s.must[slot] |= s.live[slot] & touched
				s.may[slot] = s.may[slot]&^touched | s.live[slot]&touched
			}
		}
	}
}

func (s *bitsState) record(rec persist.Record, fill persist.Members) {
	old := s.rec
	s.rec = rec
	for slot := range s.live {
		switch {
		case !s.behind().Has(slot):
			s.live[slot], s.must[slot], s.may[slot] = 0, 0, 0
		case fill.Has(slot) || rec.Members[slot].UUID != old.Members[slot].UUID:
			s.live[slot], s.must[slot], s.may[slot] = allChunks, allChunks, allChunks
		}
	}
}

// found checks what a crash left, and returns it as the new state. before and after are the
// states around the step in which the crash was.
func found(t require.TestingT, r *Region, before, after *bitsState) (now bitsState) {
	now.rec = r.Superblock().Record
	if now.rec != before.rec {
		require.Equal(t, after.rec, now.rec)
	}
	for slot := range persist.MaxMembers {
		if !now.behind().Has(slot) {
			require.Zero(t, r.BitsSet(slot))
			continue
		}
		is := bitsOf(t, r, slot)
		now.live[slot], now.must[slot], now.may[slot] = is, is, is
		must, may := after.must[slot], before.may[slot]|after.may[slot]
		switch {
		case before.rec == after.rec:
			must &= before.must[slot]
		case now.rec == before.rec:
			must = before.must[slot]
		}
		require.Zero(t, must&^is, "member %d lost bits that were flushed: it has %b", slot, is)
		require.Zero(t, is&^may, "member %d has bits that nobody set: %b", slot, is)
	}
	requireNoOtherBits(t, r, now.behind())
	return now
}

func bitsOf(t require.TestingT, r *Region, slot int) chunkSet {
	var b [4]byte
	n, err := r.ReadBits(slot, 0, b[:])
	require.NoError(t, err)
	require.Equal(t, 3, n)
	return chunkSet(b[0]) | chunkSet(b[1])<<8 | chunkSet(b[2])<<16
}

// requireNoOtherBits fails the test if a bitmap is not empty that belongs to none of these
// members of a region that has a record.
func requireNoOtherBits(t require.TestingT, r *Region, members persist.Members) {
	rec := r.Superblock().Record
	if rec == (persist.Record{}) {
		return
	}
	for slot := range persist.MaxMembers {
		if slot != int(rec.Slot) && !members.Has(slot) {
			require.Zero(t, ones(r.bitmap(int(rec.Slot), slot)), "bits of member %d, which has none", slot)
		}
	}
}

// A power failure or a kill at any step of setting, clearing and flushing bits, and of
// changing the record, loses no bit that was flushed and not cleared. Members of F have no
// bits afterwards.
func TestBitsSurviveCrashes(t *testing.T) {
	testhost.Memory(t) // a check cannot skip the test

	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue { // make soak makes more
		require.NoError(t, f.Value.Set("30"))
		defer func() { _ = f.Value.Set(f.DefValue) }()
	}
	for _, class := range []persist.Class{persist.ClassPMem, persist.ClassFile} {
		t.Run(class.String(), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) { crashBits(rt, class, 1) })
		})
		t.Run(class.String()+", parts", func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) { crashBits(rt, class, bitsParts) })
		})
	}
}

func crashBits(t *rapid.T, class persist.Class, parts int) {
	dir := testhost.Memory(t)
	path := filepath.Join(dir, "region")
	h := hostOf(class, bootA)
	var further []string
	var mem *pmemsim.Memory
	if parts == 1 {
		_, err := create(path, CreateOptions{Name: "r", Size: aside}, h)
		require.NoError(t, err)
		mem, err = pmemsim.Open(path, false)
		require.NoError(t, err)
		h.sync = func(int) error { mem.Lines(0, DataOffset+aside); return nil }
	} else {
		path, further, mem, h.sync = simulatedParts(t, dir, h)
	}
	defer mem.Close() //nolint:errcheck // it only unmaps
	h.back = func(_ []byte, off, n uint64) { mem.Lines(off, n) }
	start := func() *Region {
		r, err := open(path, OpenOptions{Parts: further}, h)
		require.NoError(t, err)
		return r
	}
	r := start()
	defer func() { require.NoError(t, r.Close()) }()
	var s bitsState
	own := rapid.IntRange(0, 3).Draw(t, "own")
	for count, f := range []persist.Members{15, persist.Member(own)} { // all others leave F, and lack nothing
		rec := recordOf(r, own, uint64(count+1), f)
		rec.F &= rec.Present()
		require.NoError(t, r.SetRecord(rec, 0))
		s.record(rec, 0)
	}
	off := false // the machine is off
	crash := func(kill bool, chance pmemsim.Chance) func() {
		return func() {
			off = true
			if kill {
				mem.Kill()
			} else {
				mem.PowerOff(chance)
			}
		}
	}
	for range rapid.IntRange(1, 30).Draw(t, "steps") {
		chance := pmemsim.Seeded(rapid.Uint64().Draw(t, "seed"), rapid.SampledFrom([]uint8{0, 0, 128, 255}).Draw(t, "part"))
		fatal := crash(rapid.Bool().Draw(t, "kill"), chance)
		if rapid.IntRange(0, 2).Draw(t, "crash") == 0 {
			mem.Trap(rapid.IntRange(1, 9).Draw(t, "at"), fatal)
		}
		before := s
		drawStep(t, r, &s, fatal, func() { mem.Evict(chance) })
		mem.Trap(0, nil)
		if !off {
			for slot := range persist.MaxMembers {
				if s.behind().Has(slot) {
					require.Equal(t, s.live[slot], bitsOf(t, r, slot))
				}
			}
			requireNoOtherBits(t, r, s.behind())
			continue
		}
		// Open may crash while it finishes what the first crash interrupted.
		for again := rapid.Bool().Draw(t, "again"); off; again = false {
			require.NoError(t, r.Close())
			mem.Restart()
			off = false
			if again {
				mem.Trap(rapid.IntRange(1, 5).Draw(t, "at"), fatal)
			}
			r = start()
			mem.Trap(0, nil)
		}
		s = found(t, r, &before, &s)
	}
}

// drawStep does something to r and to what the test knows of it.
func drawStep(t *rapid.T, r *Region, s *bitsState, fatal, evict func()) {
	ranges := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) persist.Range {
		off := rapid.Uint64Range(0, aside).Draw(t, "off")
		end := rapid.Uint64Range(off, aside).Draw(t, "end")
		if rapid.Bool().Draw(t, "whole") {
			off, end = off/chunk*chunk, min((end+chunk-1)/chunk*chunk, aside)
		}
		return persist.Range{Off: off, Len: end - off}
	}), 0, 4).Draw(t, "ranges")
	members := persist.Members(rapid.IntRange(0, 15).Draw(t, "members"))
	switch step := rapid.SampledFrom([]string{"set", "set and flush", "clear", "clear and flush", "flush", "record", "record", "crash", "evict"}).Draw(t, "step"); step {
	case "set", "set and flush", "flush":
		if step != "flush" {
			require.NoError(t, r.SetBits(members, ranges))
			s.set(members, ranges)
		}
		if step != "set" {
			flushDrawn(t, r, s, members, ranges)
		}
	case "clear", "clear and flush":
		slot := rapid.IntRange(0, 3).Draw(t, "slot")
		if !s.behind().Has(slot) {
			return
		}
		require.NoError(t, r.ClearBits(slot, ranges))
		s.clear(slot, ranges)
		if step != "clear" {
			flushDrawn(t, r, s, persist.Member(slot), ranges)
		}
	case "record":
		rec, fill := drawRecord(t, r, s)
		require.NoError(t, r.SetRecord(rec, fill))
		s.record(rec, fill)
	case "crash":
		fatal()
	case "evict":
		evict()
	}
}

func flushDrawn(t *rapid.T, r *Region, s *bitsState, members persist.Members, ranges []persist.Range) {
	require.NoError(t, r.FlushBits(members, ranges))
	if r.Class() == persist.ClassFile {
		require.NoError(t, r.FlushAll())
		members, ranges = 15, []persist.Range{{Len: aside}}
	}
	s.flush(members, ranges)
}

// drawRecord draws a record that may follow that of r, and members outside its F.
func drawRecord(t *rapid.T, r *Region, s *bitsState) (rec persist.Record, fill persist.Members) {
	rec = s.rec
	switch {
	case rec == persist.Record{}:
		own := rapid.IntRange(0, 3).Draw(t, "own")
		rec = recordOf(r, own, 1, persist.Member(own))
	case rapid.IntRange(0, 9).Draw(t, "leave") == 0:
		return persist.Record{}, 0
	default:
		rec.Count++
	}
	if slot := rapid.IntRange(0, 3).Draw(t, "changed"); slot != int(rec.Slot) && rapid.Bool().Draw(t, "change") {
		rec.Members[slot].UUID = [16]byte{0xdd, byte(slot), rapid.Byte().Draw(t, "uuid")}
		if rapid.Bool().Draw(t, "remove") {
			rec.Members[slot] = persist.Membership{}
		}
	}
	rec.F = persist.Members(rapid.IntRange(1, 15).Draw(t, "F")) & rec.Present()
	if rec.F == 0 {
		rec.F = persist.Member(int(rec.Slot))
	}
	after := bitsState{rec: rec}
	return rec, persist.Members(rapid.IntRange(0, 15).Draw(t, "fill")) & after.behind()
}

// bitsParts is how many parts a region has in these tests. Its data cannot be divided alike.
const bitsParts = 3

// simulatedParts makes a region of aside bytes in several parts. mem has them where the
// region maps them, and sync makes the file with a descriptor durable.
func simulatedParts(t require.TestingT, dir string, h host) (path string, further []string, mem *pmemsim.Memory, sync func(fd int) error) {
	paths := partPaths(dir, bitsParts)
	for i, size := range []int64{5 * sizeUnit, aside - 305*sizeUnit, 300 * sizeUnit} {
		require.NoError(t, os.WriteFile(paths[i], nil, 0o600))
		require.NoError(t, os.Truncate(paths[i], DataOffset+size))
	}
	var parts []part
	end := uint64(0)
	for i, path := range paths {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		defer f.Close() //nolint:errcheck // the region is opened again
		info, err := f.Stat()
		require.NoError(t, err)
		m, err := h.Identify(f)
		require.NoError(t, err)
		parts = append(parts, part{path: path, file: f, mem: m, start: end, data: DataOffset, size: uint64(info.Size()) - DataOffset})
		end = parts[i].end()
	}
	require.EqualValues(t, aside, end)
	m, err := weakest(parts)
	require.NoError(t, err)
	require.NoError(t, formatParts(parts, CreateOptions{Name: "r"}, &m, h))
	heads := roundUp(DataOffset+aside, hugePage)
	spans := []pmemsim.Span{{Path: paths[0], Len: DataOffset + parts[0].size}}
	for i, p := range parts[1:] {
		spans = append(spans, pmemsim.Span{Path: p.path, Off: DataOffset, At: DataOffset + p.start, Len: p.size},
			pmemsim.Span{Path: p.path, At: heads + uint64(i)*hugePage, Len: 2 * CopySize})
	}
	mem, err = pmemsim.OpenSpans(spans, heads+(bitsParts-1)*hugePage, false)
	require.NoError(t, err)
	return paths[0], paths[1:], mem, func(fd int) error {
		var st, of unix.Stat_t
		require.NoError(t, unix.Fstat(fd, &st))
		for _, s := range spans {
			require.NoError(t, unix.Stat(s.Path, &of))
			if st.Ino == of.Ino {
				mem.Lines(s.At, s.Len)
			}
		}
		return nil
	}
}
