package region

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"runtime/debug"
	"slices"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

// The list of blocks under repair. A block that the kernel has made good has zeroes, and the kernel's list has it no
// more. So the region has a list of its own, each step durable before the next:
//
//	it has the block ─► the kernel makes it good ─► Writes, and a barrier ─► it has it no more ─► the barrier's answer
//
// So what a crash leaves of a repair is told as bad again. The list is in two copies behind those of the superblock.
// Both always have the newest one: an update writes first the copy that Open did not choose.
//
//	 0 ┌───────────────────────────┬───────────────────────────┐
//	   │ magic "PMNBDRP\n"         │ generation (8)            │
//	16 ├─────────────┬─────────────┼───────────────────────────┤
//	   │ count (4)   │ CRC32C (4)  │ offset (8), length (8) …  │
//	   └─────────────┴─────────────┴───────────────────────────┘
const (
	repairsOffset = 2 * CopySize
	repairsSize   = 56 << 10
	repairsEnd    = repairsOffset + 2*repairsSize
	repairsMagic  = "PMNBDRP\n"
	repairsHeader = 24
	// maxRepairs is how many ranges of blocks can be under repair.
	maxRepairs = (repairsSize - repairsHeader) / 16

	offRepairsGeneration = 8
	offRepairsCount      = 16
	offRepairsCRC        = 20
)

// repairs are the blocks under repair, as the header has them. The mutex of badPlaces guards them.
type repairs struct {
	list       persist.BadPlaces
	generation uint64
	at         int // which copy has them for certain
}

// encodeRepairs fills the start of b, a copy, and returns how many bytes it has.
func encodeRepairs(b []byte, generation uint64, list persist.BadPlaces) uint64 {
	le := binary.LittleEndian
	n := repairsHeader + 16*len(list)
	copy(b, repairsMagic)
	le.PutUint64(b[offRepairsGeneration:], generation)
	le.PutUint32(b[offRepairsCount:], uint32(len(list)))
	for i, g := range list {
		le.PutUint64(b[repairsHeader+16*i:], g.Off)
		le.PutUint64(b[repairsHeader+16*i+8:], g.Len)
	}
	le.PutUint32(b[offRepairsCRC:], sumRepairs(b[:n]))
	return uint64(n)
}

func sumRepairs(b []byte) uint32 {
	sum := crc32.Checksum(b[:offRepairsCRC], castagnoli)
	return crc32.Update(sum, castagnoli, b[repairsHeader:])
}

// decodeRepairs reads b, a copy, of a region with size bytes of data. The copy of a region that never repaired
// anything is zero, and has an empty list.
func decodeRepairs(b []byte, size uint64) (generation uint64, list persist.BadPlaces, err error) {
	defer caught(b, debug.SetPanicOnFault(true), &err)
	le := binary.LittleEndian
	n := int(le.Uint32(b[offRepairsCount:]))
	if n == 0 && !slices.ContainsFunc(b[:repairsHeader], func(x byte) bool { return x != 0 }) {
		return 0, nil, nil
	}
	end := repairsHeader + 16*n
	if string(b[:len(repairsMagic)]) != repairsMagic || n > maxRepairs || sumRepairs(b[:end]) != le.Uint32(b[offRepairsCRC:]) {
		return 0, nil, ErrDamaged
	}
	for at := repairsHeader; at < end; at += 16 {
		list = append(list, persist.Range{Off: le.Uint64(b[at:]), Len: le.Uint64(b[at+8:])})
	}
	if !slices.Equal(list, persist.MakeBad(list, size)) {
		return 0, nil, ErrDamaged
	}
	return le.Uint64(b[offRepairsGeneration:]), list, nil
}

// readRepairs reads both copies from header, of repairsEnd bytes, and chooses the newer valid one.
func readRepairs(header []byte, size uint64) (found repairs, err error) {
	var errs [2]error
	for i := range errs {
		copyOf := header[repairsOffset+i*repairsSize:][:repairsSize]
		generation, list, err := decodeRepairs(copyOf, size)
		if errs[i] = err; err == nil && (i == 0 || errs[0] != nil || generation > found.generation) {
			found = repairs{list, generation, i}
		}
	}
	if errs[0] != nil && errs[1] != nil {
		return found, fmt.Errorf("the list of blocks under repair: copy 0: %w, copy 1: %w", errs[0], errs[1])
	}
	return found, nil
}

// addRepairs adds the blocks under repair that a header has to those that are lost. The caller is alone.
func (b *badPlaces) addRepairs(header []byte, size uint64) {
	found, err := readRepairs(header, size)
	if b.repairs = found; err != nil {
		b.unknown = errors.Join(b.unknown, err)
	}
	if len(found.list) > 0 {
		// Of more than initiators can be told, these stay: a fault finds the others.
		known := b.lost[:min(len(b.lost), persist.MaxBad-len(found.list))]
		if len(known) < len(b.lost) && b.unknown == nil {
			b.unknown = errTooManyBad(len(b.lost) + len(found.list))
		}
		b.lost = persist.MakeBad(append(slices.Clone([]persist.Range(known)), found.list...), size)
		b.tellLocked(size)
	}
}

// inspectRepairs is addRepairs for a region of size bytes in f, which somebody may change meanwhile.
func (b *badPlaces) inspectRepairs(f *os.File, m *medium.Memory, size uint64) {
	header := make([]byte, repairsEnd)
	switch err := readHeader(f, m, header); {
	case err == nil:
		b.addRepairs(header, size)
	case !errors.Is(err, ErrNoSuperblock): // it is long enough
		b.unknown = errors.Join(b.unknown, fmt.Errorf("the list of blocks under repair: %w", err))
	}
}

// repairing makes list durable as that of the blocks under repair. The caller holds the mutex of badPlaces. An error
// has failed the region, or says that it is closed.
func (r *Region) repairing(list persist.BadPlaces) error {
	now := &r.bad.repairs
	if slices.Equal(list, now.list) {
		return nil
	}
	if len(list) > maxRepairs {
		return r.Fail(fmt.Errorf("%w: more than %d places would be under repair", ErrFault, maxRepairs))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.checkLocked(); err != nil {
		return err
	}
	next := repairs{list, now.generation + 1, now.at}
	for range 2 {
		next.at = 1 - next.at
		if err := r.storeRepairsLocked(&next); err != nil {
			return r.failLocked(err)
		}
	}
	*now = next
	return nil
}

// storeRepairsLocked makes one copy durable.
func (r *Region) storeRepairsLocked(next *repairs) (err error) {
	defer caught(r.mem, debug.SetPanicOnFault(true), &err)
	at := uint64(repairsOffset + next.at*repairsSize)
	n := encodeRepairs(r.mem[at:at+repairsSize], next.generation, next.list)
	return r.persistLocked(at, n)
}
