package region

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"runtime/debug"
)

// renewLocked makes sb durable, and gives all parts a new stamp, in the steps that part.go
// lists. If the last change of the stamp was interrupted, it finishes that one instead.
func (r *Region) renewLocked(sb Superblock) error {
	if r.parts == nil {
		return r.writeLocked(sb)
	}
	was := r.sb.Load()
	if sb.Stamp, sb.StampNonces = was.Stamp, was.StampNonces; !was.Stamping {
		sb.Stamp++
		sb.StampNonces = [2]uint64{r.nonceLocked(sb.Stamp), was.StampNonces[0]}
	}
	sb.Stamping = true
	if err := r.writeLocked(sb); err != nil {
		return err
	}
	if err := r.stampLocked(sb.Stamp, sb.StampNonces[0]); err != nil {
		return err
	}
	sb.Stamping = false
	return r.writeLocked(sb)
}

// nonceLocked returns the nonce for a new stamp: that of the parts which have it already, if the region's superblock lost
// the copy that had begun it.
func (r *Region) nonceLocked(stamp uint64) uint64 {
	for i := range r.parts {
		if h := &r.parts[i].found.best; i > 0 && h.stamp == stamp {
			return h.nonce
		}
	}
	return newNonce()
}

func newNonce() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: it would end the program
	return binary.LittleEndian.Uint64(b[:])
}

// renewAtOpenLocked makes next durable, which Open found or changed, and brings the parts'
// stamps and copies into order.
func (r *Region) renewAtOpenLocked(next Superblock) error {
	if next.Failed || !r.unsettled(&next) {
		return r.writeLocked(next) // a failed region waits for Clear
	}
	return r.renewLocked(next)
}

// unsettled reports whether a change of the stamp was interrupted, or a copy is bad, in any
// of the parts.
func (r *Region) unsettled(sb *Superblock) bool {
	if sb.Failed || r.parts == nil {
		return false
	}
	bad := sb.Stamping
	for i := range r.parts {
		if c := &r.parts[i].found; i > 0 && (!c.good() || c.best.stamp != sb.Stamp) {
			bad = true
		}
	}
	return bad
}

// stampLocked gives the further parts the stamp with its nonce, durably, one after the other.
func (r *Region) stampLocked(stamp, nonce uint64) (err error) {
	defer caught(r.mem, debug.SetPanicOnFault(true), &err)
	for i := range r.parts {
		if i == 0 {
			continue
		}
		p := &r.parts[i]
		if p.found.best.stamp >= stamp {
			continue // it had got the stamp before the interruption
		}
		h := p.found.best
		h.stamp, h.nonce = stamp, nonce
		var next [CopySize]byte
		h.encode(next[:])
		at := 1 - p.found.at
		persist := func(off, n uint64) error { return r.persistPartLocked(i, off, n) }
		if err := r.replaceLocked(persist, p.head+uint64(at*CopySize), &next, &p.left[at]); err != nil {
			return fmt.Errorf("part %d, %s: %w", i, p.path, err)
		}
		p.found.best, p.found.at, p.found.states[at] = h, at, CopyGood
	}
	return nil
}

// ownPartsLocked is ownLocked for the further parts.
func (r *Region) ownPartsLocked() (err error) {
	defer caught(r.mem, debug.SetPanicOnFault(true), &err)
	for i := range r.parts {
		if i == 0 {
			continue
		}
		p := &r.parts[i]
		for c, left := range p.left {
			page := r.mem[p.head+uint64(c*CopySize):]
			if found := loadGeneration(page[offGeneration : offGeneration+8]); found != left {
				return fmt.Errorf("%w: copy %d of part %d has stamp %#x, and this process wrote %#x: another pmnbd-target serves this memory through another device node, such as a container's, or something else wrote to %s: stop it, then start pmnbd-target again",
					ErrForeign, c, i, found, left, p.path)
			}
		}
	}
	return nil
}
