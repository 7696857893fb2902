package region

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime/debug"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

// A CopyState says what Open found in one copy of the superblock.
type CopyState uint8

const (
	// CopyGood is a valid superblock.
	CopyGood CopyState = iota + 1
	// CopyUnfinished is an update that was interrupted. The other copy is valid.
	CopyUnfinished
	// CopyRotten is damaged by something else. It may have been the newer copy.
	CopyRotten
)

func (c CopyState) String() string {
	switch c {
	case CopyGood:
		return "good"
	case CopyUnfinished:
		return "unfinished update"
	case CopyRotten:
		return "damaged"
	}
	return fmt.Sprintf("copy state %d", uint8(c))
}

// chosen has what the two copies of a superblock, or of a part's head, say.
type chosen[T any] struct {
	best   T
	at     int // which copy is the best
	states [2]CopyState
}

// rotten reports whether something other than an unfinished update damaged a copy. Then
// what the copy said is unknown, and with it the region's owner or the part's stamp.
func (c *chosen[T]) rotten() bool {
	return c.states[0] == CopyRotten || c.states[1] == CopyRotten
}

func (c *chosen[T]) good() bool { return c.states == [2]CopyState{CopyGood, CopyGood} }

// choose reads both copies from header, of 2×CopySize bytes, and chooses the newer valid one.
// second reports whether the second of two valid copies is the newer one.
func choose[T any](header []byte, magic string, decode func(page []byte) (T, error), second func(a, b T) (bool, error)) (chosen[T], error) {
	var c chosen[T]
	var read [2]T
	var errs [2]error
	for i := range read {
		page := header[i*CopySize : (i+1)*CopySize]
		read[i], errs[i] = decode(page)
		switch {
		case errs[i] == nil:
			c.states[i] = CopyGood
		case errors.Is(errs[i], ErrVersion):
			return c, errs[i]
		case unfinished(page, magic):
			c.states[i] = CopyUnfinished
		default:
			c.states[i] = CopyRotten
		}
	}
	switch {
	case errs[0] != nil && errs[1] != nil:
		if errors.Is(errs[0], ErrNoSuperblock) && errors.Is(errs[1], ErrNoSuperblock) {
			return c, ErrNoSuperblock
		}
		return c, fmt.Errorf("%w: copy 0: %w, copy 1: %w", ErrDamaged, errs[0], errs[1])
	case errs[0] != nil:
		c.at = 1
	case errs[1] == nil:
		newer, err := second(read[0], read[1])
		if err != nil {
			return c, err
		}
		if newer {
			c.at = 1
		}
	}
	c.best = read[c.at]
	return c, nil
}

// unfinished reports whether a bad copy is what an interrupted update of ours leaves. An
// update never touches the magic. If the magic is gone too, as in a sector of zeroes,
// something else has damaged the page.
func unfinished(page []byte, magic string) bool {
	return bytes.HasPrefix(page, []byte(magic)) && binary.LittleEndian.Uint64(page[offGeneration:]) == 0
}

// copies has what the two copies of a region's superblock say.
type copies struct {
	chosen[Superblock]
	// lost: a further part lost a copy that may have been newer than the region's stamp
	// allows.
	lost bool
}

// readCopies reads both copies of a superblock from header.
func readCopies(header []byte) (copies, error) {
	c, err := choose(header, magic, decode, func(a, b Superblock) (bool, error) {
		if a.UUID != b.UUID || a.Name != b.Name || a.Size != b.Size || a.Class != b.Class || a.Generation == b.Generation {
			return false, fmt.Errorf("%w: its copies belong to different regions", ErrDamaged)
		}
		return b.Generation > a.Generation, nil
	})
	return copies{chosen: c}, err
}

// onOpen returns the superblock that a region gets when it is opened in the boot named
// boot. It applies the consequences of rot (design §5), of a new boot (design §2,
// contents id) and of a power-fail save that did not happen (design §3.9). fresh is the
// contents id to use if the old one no longer holds.
func onOpen(c copies, m *medium.Memory, boot, fresh [16]byte) Superblock {
	sb := c.best
	if c.rotten() || c.lost {
		// The lost copy may have been newer, and may have granted epoch+1 to somebody.
		// Nobody may mistake that owner for the one named here, and nobody else may get
		// the same epoch. So the next epoch is best+2.
		sb.Owner, sb.Clean, sb.Doubt = persist.Owner{}, false, true
		sb.Epoch++
	}
	if sb.Boot != boot {
		if m.Class == persist.ClassVolatile || sb.Doubt {
			sb.Contents = fresh
		}
		sb.Boot = boot
	}
	if m.Platform.Counted && m.Platform.UnsafeShutdowns > sb.UnsafeShutdowns {
		sb.Suspect = true
	}
	return sb
}

// writeLocked makes sb, which passes check, durable as the region's superblock. It
// replaces the older copy, so the newer one stays valid until the update is complete. Its
// only errors are those of a sync, and faults.
func (r *Region) writeLocked(sb Superblock) (err error) {
	defer caught(r.mem, debug.SetPanicOnFault(true), &err)
	r.generation++ // also after a failed update: no number is used twice
	sb.Generation = r.generation
	at := 1 - r.newer
	var next [CopySize]byte
	sb.encode(next[:])
	if err := r.replaceLocked(r.persistLocked, uint64(at*CopySize), &next, &r.left[at]); err != nil {
		return err
	}
	r.newer = at
	r.sb.Store(&sb)
	return nil
}

// replaceLocked replaces the copy of a superblock that is at start of the mapping. persist
// makes bytes there durable. left gets the generation that the copy has after each step.
func (r *Region) replaceLocked(persist func(off, n uint64) error, start uint64, next *[CopySize]byte, left *uint64) error {
	page := r.mem[start : start+CopySize]
	generation := page[offGeneration : offGeneration+8]
	// Each step is durable before the next one. Generation 0 shows that a copy is
	// unfinished, whatever mixture of old and new bytes its body has.
	storeGeneration(generation, 0)
	*left = 0
	if err := persist(start+offGeneration, 8); err != nil {
		return err
	}
	copy(page[:offGeneration], next[:offGeneration])
	copy(page[offVersion:], next[offVersion:])
	if err := persist(start, CopySize); err != nil {
		return err
	}
	*left = binary.LittleEndian.Uint64(next[offGeneration:])
	storeGeneration(generation, *left)
	return persist(start+offGeneration, 8)
}
