package region

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime/debug"

	"pmnbd/persist"
)

// ErrRecord means that a region cannot take a record: it is another region's, of another
// mirror, or older than the one that the region has.
var ErrRecord = errors.New("record refused")

// ServeAlone notes in the superblock, within an Update, that a session changes a member alone. No
// record of the mirror names the new contents id, so nobody takes the member for equal to the others
// again. All further sessions of this kind keep that id.
func (s *Superblock) ServeAlone() {
	if alone := aloneRecord(s.Record); alone != s.Record {
		s.Record, s.Contents = alone, newID()
	}
}

// Forget notes in the superblock, within an Update, that a life of the mirror takes the member for one that lost its
// contents. Unlike ServeAlone it draws a new contents id each time: a record of the mirror may name the one that
// the member had when it was served alone, and a copy of that time was put back. And the record still names an epoch of
// the member: a record with neither would say that somebody served the member alone, and that it has data of its own.
func (s *Superblock) Forget() {
	if s.Record != (persist.Record{}) {
		s.Record, s.Contents = forgottenRecord(s.Record), newID()
	}
}

// forgottenRecord returns what a member's record becomes with Forget: it names no contents of its own.
func forgottenRecord(r persist.Record) persist.Record {
	r.Members[r.Slot%persist.MaxMembers].Contents = [16]byte{}
	return r
}

// aloneRecord returns what a member's record becomes when it is served alone: it names no contents of
// its own, and no epoch.
func aloneRecord(r persist.Record) persist.Record {
	if r = forgottenRecord(r); r != (persist.Record{}) {
		r.Members[r.Slot%persist.MaxMembers].Epoch = 0
	}
	return r
}

// SetRecord makes rec durable as the region's record of its mirror, and with it the bits
// that the record means: all of the members in fill, none of those in F. The zero record
// ends the membership: the region gets a new contents id, and forgets the lives of the mirror. Members that the record before did not have, and that are outside F,
// lack everything and get all their bits without being asked for.
//
// SetRecord refuses (ErrRecord) and changes nothing if rec is no record, or not this
// region's; if the region is in another mirror or has another slot; if the generation goes
// back, or is of the same number and another nonce; if the generation is the same and
// anything changes but Torn, Follows, and the contents and epochs of members outside F; or if fill
// has a member that is in F or does not exist. The region's own slot in fill means nothing.
//
// Barriers of other lanes may set and clear bits meanwhile, by the record before. Nobody may
// clear bits of a member in fill during the call or later for what the member got earlier:
// such a clear would undo the fill. The initiator sees to that.
//
// A sync that fails, or a fault, fails the region. On a failed region SetRecord returns the
// failure.
func (r *Region) SetRecord(rec persist.Record, fill persist.Members) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.checkLocked(); err != nil {
		return err
	}
	sb := r.Superblock()
	old := sb.Record
	sb.Record = rec
	if rec == (persist.Record{}) && old != rec { // what it has is nobody's any more
		sb.Life, sb.Contents = 0, newID()
	}
	err := sb.checkMember()
	if err == nil {
		err = follows(&old, &rec)
	}
	if err == nil && rec != (persist.Record{}) {
		fill &^= persist.Member(int(rec.Slot))
	}
	if wrong := fill &^ outside(&rec); err == nil && wrong != 0 {
		err = fmt.Errorf("to set the bits of %v, and the members outside F are %v", wrong, outside(&rec))
	}
	if err != nil {
		return fmt.Errorf("region %q: %w: %w", r.name, ErrRecord, err)
	}
	if err := r.liveLocked(&sb); err != nil {
		return err
	}
	if err := r.recordLocked(sb, fill|newcomers(&old, &rec)); err != nil {
		return r.failLocked(err)
	}
	return nil
}

// follows returns an error if a member with the record old must not get rec. rec passes
// Check.
func follows(old, rec *persist.Record) error {
	switch {
	case *old == persist.Record{}, *rec == persist.Record{}:
		return nil
	case rec.Set != old.Set:
		return errors.New("the region is a member of another mirror")
	case rec.Slot != old.Slot:
		return fmt.Errorf("the region is member %v, not %v", persist.Member(int(old.Slot)), persist.Member(int(rec.Slot)))
	case rec.Before(old.Generation):
		return fmt.Errorf("its generation is %v, and the region has %v", rec.Generation, old.Generation)
	case old.Before(rec.Generation):
		return nil
	}
	same := *rec
	same.Torn, same.Follows = old.Torn, old.Follows
	for slot := range same.Members {
		if m := &same.Members[slot]; !rec.F.Has(slot) && m.UUID == old.Members[slot].UUID {
			*m = old.Members[slot]
		}
	}
	if same != *old {
		return fmt.Errorf("it changes generation %v, which the region has", old.Generation)
	}
	return nil
}

// newcomers returns the members outside F of rec that old does not have.
func newcomers(old, rec *persist.Record) (m persist.Members) {
	out := outside(rec)
	for slot := range rec.Members {
		if out.Has(slot) && rec.Members[slot].UUID != old.Members[slot].UUID {
			m |= persist.Member(slot)
		}
	}
	return m
}

// recordLocked makes the superblock sb with a new record durable. A crash between two steps
// must not lose a bit of a member outside F, by the record before or by the new one.
//
//  1. Set all bits of fill, durably. If the record before stays, they are too many, which
//     is harmless; those of its F are cleared by the next Open.
//  2. Write the superblock, in both copies. If one copy rots, the other must not tell an
//     older F: Open would clear bits that the newer record needs.
//  3. Clear the bits of F. Until now the record before may have needed them. If a crash
//     comes first, the next Open clears them.
func (r *Region) recordLocked(sb Superblock, fill persist.Members) error {
	if err := r.fillBitsLocked(&sb.Record, fill); err != nil {
		return err
	}
	for range 2 {
		if err := r.writeLocked(sb); err != nil {
			return err
		}
	}
	return r.resetBitsLocked()
}

// fillBitsLocked sets all bits of members, durably.
func (r *Region) fillBitsLocked(rec *persist.Record, members persist.Members) (err error) {
	if members == 0 {
		return nil
	}
	defer caught(r.mem, debug.SetPanicOnFault(true), &err)
	own := int(rec.Slot)
	r.storeBits(func(b *bitmaps) {
		for slot := range persist.MaxMembers {
			if members.Has(slot) {
				setRun(r.bitmap(own, slot), 0, b.chunks)
				b.set[slot].Store(b.chunks)
			}
		}
	})
	return r.persistBitsLocked(own, members)
}

// resetBitsLocked clears, durably, all bits that the region's record does not know of. A target that
// was killed may have cleared them already, and in the caches alone. So it writes back what it finds
// clear, too: a power failure would bring the bits back, for a member that has left F since.
func (r *Region) resetBitsLocked() (err error) {
	defer caught(r.mem, debug.SetPanicOnFault(true), &err)
	rec := &r.sb.Load().Record
	own, out := int(rec.Slot), outside(rec)
	changed := false
	r.storeBits(func(b *bitmaps) {
		for slot := range persist.MaxMembers {
			if out.Has(slot) {
				continue
			}
			b.set[slot].Store(0)
			if slot != own && clearRun(r.bitmap(own, slot), 0, bitmapSize*8) > 0 {
				changed = true
			}
		}
	})
	switch {
	case !r.headSynced():
		r.medium.WriteBack(r.mem, bitsOffset, bitmapCount*bitmapSize)
	case changed: // the sync of Open covers the rest
		return r.persistLocked(0, 0)
	}
	return nil
}

// settleBitsLocked brings the bitmaps that Open found into order: it makes durable what
// they say, finishes what a crash interrupted in recordLocked, and counts. The bitmaps of a
// region that is no member mean nothing, and SetRecord resets them before they do.
func (r *Region) settleBitsLocked() (err error) {
	defer caught(r.mem, debug.SetPanicOnFault(true), &err)
	rec := &r.sb.Load().Record
	if *rec == (persist.Record{}) {
		return nil
	}
	own, out := int(rec.Slot), outside(rec)
	r.storeBits(func(b *bitmaps) {
		for slot := range persist.MaxMembers {
			if out.Has(slot) {
				b.set[slot].Store(ones(r.bitmap(own, slot)))
			}
		}
	})
	return r.resetBitsLocked()
}

// storeBits calls f under the mutex of the bitmaps, also if f has a fault.
func (r *Region) storeBits(f func(*bitmaps)) {
	r.bits.mu.Lock()
	defer r.bits.mu.Unlock()
	f(&r.bits)
}

// persistBitsLocked makes the bitmaps of members durable, of a region in slot own.
func (r *Region) persistBitsLocked(own int, members persist.Members) error {
	if r.headSynced() {
		return r.persistLocked(0, 0)
	}
	for slot := range persist.MaxMembers {
		if members.Has(slot) {
			r.medium.WriteBack(r.mem, bitmapOffset(own, slot), bitmapSize)
		}
	}
	return nil
}

// Digest returns the SHA-256 of a range of the data extent. If somebody writes there
// meanwhile, it is that of some mixture. A bad place makes it a random number, which equals that of no other
// region: what is there counts as different. A fault adds a bad place, and is an error (ErrBadPlace): the caller must hear
// of the place, because it writes next what differs.
func (r *Region) Digest(g persist.Range) ([sha256.Size]byte, error) {
	if g.Off > r.size || g.Len > r.size-g.Off {
		return [sha256.Size]byte{}, fmt.Errorf("region %q: %w: offset %d, length %d, size %d", r.name, ErrRange, g.Off, g.Len, r.size)
	}
	var sum [sha256.Size]byte
	if _, bad := r.Bad().Touched(g.Off, g.Len); bad {
		_, _ = rand.Read(sum[:]) // never fails: it would end the program
		return sum, nil
	}
	sum, err := r.digest(g)
	if err == nil {
		return sum, nil
	}
	var fault *faultError
	if !errors.As(err, &fault) {
		return sum, r.Fail(err)
	}
	lost, err := r.Lose(address(r.mem) + fault.off)
	if err != nil {
		return sum, err
	}
	return sum, fmt.Errorf("region %q: %w: the medium has lost %d bytes at %d", r.name, ErrBadPlace, lost.Len, lost.Off)
}

func (r *Region) digest(g persist.Range) (sum [sha256.Size]byte, err error) {
	defer caught(r.mem, debug.SetPanicOnFault(true), &err)
	return sha256.Sum256(r.Data()[g.Off : g.Off+g.Len]), nil
}
