package region

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"pmnbd/persist"
)

// The header of a region, in KiB. Between the superblock and the bitmaps is the list of blocks under repair (repair.go).
//
//	0        4        8         128            768            1408           2048
//	├────────┼────────┼─────────┼──────────────┼──────────────┼──────────────┤
//	│ copy 0 │ copy 1 │ repairs │ bitmap 0     │ bitmap 1     │ bitmap 2     │ data extent
//	└────────┴────────┴─────────┴──────────────┴──────────────┴──────────────┘
//
// A bitmap belongs to another member of the region's mirror. Bit n is bit n%8 of byte n/8
// and stands for chunk n of the data extent. If it is set, the member may lack the chunk
// (mirror §2). Bits behind the last chunk are 0.
//
// Slots 0 to 2 have the bitmap of their number. Slot 3 has that of the region's own slot,
// for which the region needs none. So only slot 3 depends on the region's slot. A member
// never changes its slot (SetRecord): it would have to leave the mirror and join again,
// and joining resets every bitmap.
const (
	bitmapSize  = 640 << 10
	bitmapCount = persist.MaxMembers - 1
	bitsOffset  = DataOffset - bitmapCount*bitmapSize

	minChunkShift = 16 // 64 KiB
	maxChunkShift = 20 // 1 MiB

	// MaxMember is the size in bytes of the largest data extent of a member of a mirror:
	// 5 TiB.
	MaxMember = bitmapSize * 8 << maxChunkShift

	// nearby is the gap in bytes up to which a flush takes two parts of a bitmap for one:
	// within it, both mostly touch the same cache line.
	nearby = 64
)

// ErrSlot means that the region keeps no bits for a slot: it is no member of a mirror, the
// slot is its own, or the slot has no member.
var ErrSlot = errors.New("no bits for the slot")

// bitmaps are the bits of the other members.
//
// Lanes use them all the time, so they have a mutex of their own, and nobody holds it
// during a sync or a write-back. Who needs both takes the region's lock first. A
// goroutine that had a fault releases the mutex before it calls Fail.
type bitmaps struct {
	shift  uint   // a chunk has 1<<shift bytes
	chunks uint64 // of the data extent; the last one may be short

	mu  sync.Mutex
	set [persist.MaxMembers]atomic.Uint64 // how many bits are set, by slot; stored with mu held, which can wait for a disk
}

// shape chooses the size of a chunk: the smallest with which the extent fits a bitmap.
func (b *bitmaps) shape(size uint64) {
	b.shift = minChunkShift
	for b.shift < maxChunkShift && size > bitmapSize*8<<b.shift {
		b.shift++
	}
	b.chunks = (size + 1<<b.shift - 1) >> b.shift
}

// touched returns the chunks that g touches, from first up to end. g has bytes.
func (b *bitmaps) touched(g persist.Range) (first, end uint64) {
	return g.Off >> b.shift, (g.Off+g.Len-1)>>b.shift + 1
}

// inner returns the chunks that lie wholly inside g, from first up to end.
func (b *bitmaps) inner(g persist.Range, size uint64) (first, end uint64) {
	first, end = (g.Off+1<<b.shift-1)>>b.shift, (g.Off+g.Len)>>b.shift
	if g.Off+g.Len == size {
		end = b.chunks // the last one may be short
	}
	return first, end
}

// ChunkSize returns how many bytes of the data extent a bit stands for: a power of two from
// 64 KiB to 1 MiB.
func (r *Region) ChunkSize() uint64 { return 1 << r.bits.shift }

// ChunkSize returns the ChunkSize of the region that has the superblock.
func (s *Superblock) ChunkSize() uint64 {
	var b bitmaps
	b.shape(s.Size)
	return 1 << b.shift
}

// Outside returns the members of the region's mirror that are outside F, without the region
// itself: those for which it keeps bits. A region that is no member has none.
func (r *Region) Outside() persist.Members { return outside(&r.sb.Load().Record) }

func outside(rec *persist.Record) persist.Members {
	if rec.F == 0 {
		return 0 // no member
	}
	return rec.Present() &^ rec.F &^ persist.Member(int(rec.Slot))
}

// SetBits notes that members may lack the chunks that ranges touch. Like any other store
// the bits are durable only after FlushBits, or after a Flush for class file. Only members
// that Outside returns get bits: those in F never have any. If a range lies outside the
// extent, SetBits changes nothing. A fault fails the region.
func (r *Region) SetBits(members persist.Members, ranges []persist.Range) error {
	if members == 0 {
		return nil
	}
	if err := r.usable(ranges); err != nil {
		return err
	}
	if err := r.setBits(members, ranges); err != nil {
		return r.Fail(err)
	}
	return nil
}

func (r *Region) setBits(members persist.Members, ranges []persist.Range) (err error) {
	defer caught(r.mem, debug.SetPanicOnFault(true), &err)
	b := &r.bits
	b.mu.Lock()
	defer b.mu.Unlock()
	// Look at the record under the mutex. SetRecord takes the mutex after it has changed
	// the record, and then clears the bits of F: also those of a barrier that began under
	// the record before.
	rec := &r.sb.Load().Record
	members &= outside(rec)
	for slot := range persist.MaxMembers {
		if !members.Has(slot) {
			continue
		}
		m := r.bitmap(int(rec.Slot), slot)
		for _, g := range ranges {
			if g.Len > 0 {
				first, end := b.touched(g)
				b.set[slot].Add(setRun(m, first, end))
			}
		}
	}
	return nil
}

// ClearBits notes that the member in slot has the chunks that lie wholly inside one of
// ranges. FlushBits makes that durable. A bit that comes back in a crash does no harm: the
// chunk is copied once more. If a range lies outside the extent, or the region has no bits
// for the slot (ErrSlot), ClearBits changes nothing. A fault fails the region.
func (r *Region) ClearBits(slot int, ranges []persist.Range) error {
	if err := r.usable(ranges); err != nil {
		return err
	}
	known, err := r.clearBits(slot, ranges)
	if err != nil {
		return r.Fail(err)
	}
	if !known {
		return r.errSlot(slot)
	}
	return nil
}

func (r *Region) clearBits(slot int, ranges []persist.Range) (known bool, err error) {
	defer caught(r.mem, debug.SetPanicOnFault(true), &err)
	b := &r.bits
	b.mu.Lock()
	defer b.mu.Unlock()
	rec := &r.sb.Load().Record
	if !hasBitmap(rec, slot) {
		return false, nil
	}
	m := r.bitmap(int(rec.Slot), slot)
	for _, g := range ranges {
		if first, end := b.inner(g, r.size); first < end {
			b.set[slot].Add(-clearRun(m, first, end))
		}
	}
	return true, nil
}

// ReadBits copies the bits of the member in slot to buf, from the chunk with the number
// from, which is a multiple of 8, and returns how many bytes it copied: 0 behind the last
// chunk. The error is ErrSlot if the region has no bits for the slot. A fault fails the
// region.
func (r *Region) ReadBits(slot int, from uint64, buf []byte) (n int, err error) {
	if from%8 != 0 {
		return 0, fmt.Errorf("region %q: read bits from chunk %d: %w: use a multiple of 8", r.name, from, ErrRange)
	}
	if err := r.Failed(); err != nil {
		return 0, err
	}
	n, known, err := r.readBits(slot, from/8, buf)
	if err != nil {
		return 0, r.Fail(err)
	}
	if !known {
		return 0, r.errSlot(slot)
	}
	return n, nil
}

func (r *Region) readBits(slot int, at uint64, buf []byte) (n int, known bool, err error) {
	defer caught(r.mem, debug.SetPanicOnFault(true), &err)
	r.bits.mu.Lock()
	defer r.bits.mu.Unlock()
	rec := &r.sb.Load().Record
	if !hasBitmap(rec, slot) {
		return 0, false, nil
	}
	m := r.bitmap(int(rec.Slot), slot)[:(r.bits.chunks+7)/8]
	if at >= uint64(len(m)) {
		return 0, true, nil
	}
	return copy(buf, m[at:]), true, nil
}

// BitsSet returns how many chunks the member in slot may lack: how many of its bits are
// set. It is 0 for a slot without bits, and for a region that was opened failed.
func (r *Region) BitsSet(slot int) uint64 {
	if slot < 0 || slot >= persist.MaxMembers {
		return 0
	}
	return r.bits.set[slot].Load()
}

// FlushBits makes the bits of members for the chunks that ranges touch durable, as they are
// now. For class file it does nothing: a Flush that begins after SetBits and ClearBits
// syncs the bits with the data. If a range lies outside the extent, FlushBits makes
// nothing durable. On a failed region it returns the failure.
func (r *Region) FlushBits(members persist.Members, ranges []persist.Range) error {
	if members == 0 || r.headSynced() {
		return nil
	}
	if err := r.usable(ranges); err != nil {
		return err
	}
	if err := r.writeBackBits(members, ranges); err != nil {
		return r.Fail(err)
	}
	return r.Failed() // somebody may have found the memory broken in between
}

func (r *Region) writeBackBits(members persist.Members, ranges []persist.Range) (err error) {
	rec := &r.sb.Load().Record
	if members &= outside(rec); members == 0 {
		return nil
	}
	if r.FencesOnly() {
		r.medium.Fence()
		return nil
	}
	defer caught(r.mem, debug.SetPanicOnFault(true), &err)
	for slot := range persist.MaxMembers {
		if !members.Has(slot) {
			continue
		}
		start := bitmapOffset(int(rec.Slot), slot)
		var from, to uint64 // the bytes to write back
		for _, g := range ranges {
			if g.Len == 0 {
				continue
			}
			first, end := r.bits.touched(g)
			lo, hi := first/8, (end-1)/8+1
			if to > 0 && lo <= to+nearby && from <= hi+nearby {
				from, to = min(from, lo), max(to, hi)
				continue
			}
			if to > 0 {
				r.medium.WriteBack(r.mem, start+from, to-from)
			}
			from, to = lo, hi
		}
		if to > 0 {
			r.medium.WriteBack(r.mem, start+from, to-from)
		}
	}
	return nil
}

// usable returns an error if the region has failed, or if a range lies outside its extent.
func (r *Region) usable(ranges []persist.Range) error {
	for _, g := range ranges {
		if g.Off > r.size || g.Len > r.size-g.Off {
			return fmt.Errorf("region %q: %w: offset %d, length %d, size %d", r.name, ErrRange, g.Off, g.Len, r.size)
		}
	}
	return r.Failed()
}

func (r *Region) errSlot(slot int) error {
	return fmt.Errorf("region %q: %w %d", r.name, ErrSlot, slot)
}

// hasBitmap reports whether a region with this record has a bitmap for the slot.
func hasBitmap(rec *persist.Record, slot int) bool {
	present := rec.Present()
	return slot >= 0 && slot < persist.MaxMembers && present.Has(slot) && slot != int(rec.Slot)
}

// bitmapOffset returns where the bitmap of another slot is, in the memory of a region in
// slot own.
func bitmapOffset(own, slot int) uint64 {
	place := slot
	if slot == bitmapCount {
		place = own
	}
	return bitsOffset + uint64(place)*bitmapSize
}

// bitmap returns the bitmap of another slot, of a region in slot own.
func (r *Region) bitmap(own, slot int) []byte {
	at := bitmapOffset(own, slot)
	return r.mem[at : at+bitmapSize : at+bitmapSize]
}

// setRun sets the bits from first up to end and returns how many were not set. It does not
// store what is there already, so nothing becomes dirty for it.
func setRun(m []byte, first, end uint64) (changed uint64) {
	for at := first; at < end; {
		if at%64 == 0 && end-at >= 64 {
			word := m[at/8 : at/8+8]
			if old := binary.LittleEndian.Uint64(word); old != ^uint64(0) {
				binary.LittleEndian.PutUint64(word, ^uint64(0))
				changed += uint64(64 - bits.OnesCount64(old))
			}
			at += 64
			continue
		}
		mask, next := maskOf(at, end)
		if missing := mask &^ m[at/8]; missing != 0 {
			m[at/8] |= mask
			changed += uint64(bits.OnesCount8(missing))
		}
		at = next
	}
	return changed
}

// clearRun clears the bits from first up to end and returns how many were set.
func clearRun(m []byte, first, end uint64) (changed uint64) {
	for at := first; at < end; {
		if at%64 == 0 && end-at >= 64 {
			word := m[at/8 : at/8+8]
			if old := binary.LittleEndian.Uint64(word); old != 0 {
				binary.LittleEndian.PutUint64(word, 0)
				changed += uint64(bits.OnesCount64(old))
			}
			at += 64
			continue
		}
		mask, next := maskOf(at, end)
		if found := mask & m[at/8]; found != 0 {
			m[at/8] &^= mask
			changed += uint64(bits.OnesCount8(found))
		}
		at = next
	}
	return changed
}

// maskOf returns the bits from at up to end that are in the byte of bit at, and the first
// bit behind them.
func maskOf(at, end uint64) (mask byte, next uint64) {
	next = min(end, at/8*8+8)
	return byte((1<<(next-at) - 1) << (at % 8)), next
}

// ones counts the bits that are set in m, whose length is a multiple of 8.
func ones(m []byte) (n uint64) {
	for ; len(m) > 0; m = m[8:] {
		n += uint64(bits.OnesCount64(binary.LittleEndian.Uint64(m)))
	}
	return n
}
