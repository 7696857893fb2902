package region

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

// Overwriting a bad block makes it good, in three steps that a crash can separate:
//
//	ZERO: the kernel makes the block good, and zeroes ─► Writes ─► a barrier covers all of it: Settle
//
// The block stays among the bad ones until the last, over a crash too (repair.go). Otherwise an initiator that died with
// its window after the first step would leave zeroes where a FLUSH had promised something else.

// ErrBadPlace means that zeroes were for a part of a bad block, or for a block that cannot be made good,
// or that the medium has lost what was to be read.
var ErrBadPlace = errors.New("bad place")

// A mended block is good for its medium, and bad for whoever opens the region.
type mended struct {
	number  uint64 // how many there had been, with it
	block   persist.Range
	covered persist.Range // by barriers
}

// mendable reports whether the kernel can make bad blocks of memory good: those of a file on a medium. It cannot
// through the mapping of a device. In a file that is RAM it keeps a broken page, and each write there fails, until
// somebody punches a hole; and adapters have pinned its pages.
func mendable(m *medium.Memory) bool { return m.Device == 0 && !m.RAM }

// BadClears reports whether a Zero of whole bad blocks is welcome: it makes them good, or fails a region that spared says
// its mirror can do without.
func (r *Region) BadClears() bool { return r.bad.clears || r.spared() }

// spared reports whether a region in RAM is a member of a mirror in which others have what it has. Where the kernel
// cannot make a block good, it fails rather than the write, and the mirror goes on without it.
func (r *Region) spared() bool { return r.bad.ram && hasOthers(&r.sb.Load().Record) }

// Mending returns how many bad blocks have ever been made good, or 0 if none of them is still told as bad.
func (r *Region) Mending() uint64 { return r.bad.mends.Load() }

// mend makes the bad blocks in g good.
func (r *Region) mend(g persist.Range) error {
	if _, bad := r.Bad().Touched(g.Off, g.Len); !bad {
		return nil
	}
	b := &r.bad
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lost.Torn(g.Off, g.Len) {
		return fmt.Errorf("region %q: %w: zeroes for a part of a bad block, in %d bytes at %d", r.name, ErrBadPlace, g.Len, g.Off)
	}
	for {
		lost, ok := b.lost.Touched(g.Off, g.Len)
		if !ok {
			break
		}
		if !b.clears && r.spared() {
			return fmt.Errorf("%w: the kernel cannot make %d bad bytes at %d of RAM good while it is in use", ErrFault, lost.Len, lost.Off)
		}
		if !b.clears {
			return fmt.Errorf("region %q: %w: the kernel cannot make %d bad bytes at %d good here", r.name, ErrBadPlace, lost.Len, lost.Off)
		}
		left := b.lost.Without(lost)
		if len(left) > persist.MaxBad { // initiators could not be told of them
			return fmt.Errorf("%w: more than %d places would be bad apart from each other", ErrFault, persist.MaxBad)
		}
		if err := r.repairing(persist.MakeBad(append(slices.Clone([]persist.Range(b.repairs.list)), lost), r.size)); err != nil {
			return err
		}
		if err := r.mendMemory(lost); err != nil {
			return fmt.Errorf("make %d bad bytes at %d good: %w", lost.Len, lost.Off, err)
		}
		b.lost = left
		b.gone.Store(&left)
		for off := lost.Off; off < lost.End(); off += persist.BadBlock {
			b.mended++
			b.mending = append(b.mending, mended{number: b.mended, block: persist.Range{Off: off, Len: persist.BadBlock}})
		}
		b.mends.Store(b.mended)
	}
	return nil
}

// mendMemory has the kernel make whole blocks good, in the parts where they lie.
func (r *Region) mendMemory(g persist.Range) error {
	if err := r.whole(); err != nil {
		return err // writing would make the file longer again, with zeroes that nobody wrote
	}
	if r.parts == nil {
		return r.medium.Mend(r.file, DataOffset+g.Off, g.Len)
	}
	for i := range r.parts {
		p := &r.parts[i]
		from, to := max(g.Off, p.start), min(g.End(), p.start+p.size)
		if from >= to {
			continue
		}
		if err := r.medium.Mend(p.file, p.data+from-p.start, to-from); err != nil {
			return fmt.Errorf("part %d, %s: %w", i, p.path, err)
		}
	}
	return nil
}

// Settle notes that ranges are durable, which a barrier named when Mending said number. A bad block that had been
// made good then, and that barriers have covered as a whole since, is not bad any more. Before an error, which has
// failed the region, the barrier must not be acknowledged.
func (r *Region) Settle(ranges []persist.Range, number uint64) error {
	b := &r.bad
	b.mu.Lock()
	defer b.mu.Unlock()
	var settled []persist.Range
	for i := range b.mending {
		m := &b.mending[i]
		for _, g := range ranges {
			if m.number <= number {
				m.cover(g)
			}
		}
		if m.durable() {
			settled = append(settled, m.block)
		}
	}
	if settled == nil {
		return nil
	}
	left := b.repairs.list
	for _, g := range persist.MakeBad(settled, r.size) {
		left = left.Without(g)
	}
	if err := r.repairing(left); err != nil {
		return err
	}
	b.mending = slices.DeleteFunc(b.mending, func(m mended) bool { return m.durable() })
	if len(b.mending) == 0 {
		b.mends.Store(0)
	}
	b.tellLocked(r.size)
	return nil
}

// durable reports whether barriers have covered all of m.
func (m *mended) durable() bool { return m.covered == m.block }

// cover adds g to what barriers have covered of m.
func (m *mended) cover(g persist.Range) {
	from, to := max(g.Off, m.block.Off), min(g.End(), m.block.End())
	switch c := m.covered; {
	case from >= to:
	case c.Len > 0 && from <= c.End() && to >= c.Off:
		from, to = min(from, c.Off), max(to, c.End())
		m.covered = persist.Range{Off: from, Len: to - from}
	case to-from > c.Len:
		m.covered = persist.Range{Off: from, Len: to - from}
	}
}

// Mend writes zeroes as any program writes to a file. For a file on DAX the kernel then makes the place good
// (Linux 5.19 and later); for one on a disk the disk does. Where
// writing does not help, a file on DAX gets another block in its place. Another file does not: an adapter that has
// pinned its pages would go on with the one that is no longer the file's.
func (machine) Mend(f *os.File, off, n uint64) error {
	zeroes := make([]byte, n)
	_, err := f.WriteAt(zeroes, int64(off))
	fd := int(f.Fd())
	if err == nil || !onDAX(fd) {
		return err
	}
	if again := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(off), int64(n)); again != nil {
		return errors.Join(err, fmt.Errorf("punch a hole: %w", again))
	}
	if again := unix.Fallocate(fd, 0, int64(off), int64(n)); again != nil {
		return errors.Join(err, fmt.Errorf("allocate: %w", again))
	}
	if _, again := f.WriteAt(zeroes, int64(off)); again != nil {
		return errors.Join(err, again)
	}
	return nil
}

// onDAX reports whether the pages of a file are those of its medium. Adapters never pin these (Linux refuses it).
func onDAX(fd int) bool {
	var st unix.Statx_t
	return unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, &st) == nil && st.Attributes&unix.STATX_ATTR_DAX != 0
}
