package region

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"pmnbd/persist"
)

// A region can have several parts, which are files or devices. The first one has the
// header of any region: superblock and bitmaps. Each further part has a superblock of its
// own, a partHead, in two copies at 0 and at CopySize. The data extents of the parts, one
// behind the other, are the region's.
//
// The stamp finds a part that was restored from an older copy. It is a number in the
// region's superblock and in those of the further parts. Update changes it in three steps,
// each durable before the next:
//
//  1. the region's superblock gets the new stamp S, and the flag stamping;
//  2. every further part gets S;
//  3. the region's superblock loses the flag.
//
// So after a crash at any step, a part has S if the flag is not set, and S or S-1 if it is.
// Everything else comes from an older copy: a part below that was restored from one, and if
// a part is above that, the first part was. The opposite order, or two steps, would not do.
// A crash between the parts and the region's superblock would then look like an older copy
// that missed one change.
//
// Open finishes steps 2 and 3 with the same S. If it began a new S, a part could be two
// behind.
//
// Each S has a nonce. Somebody can copy all parts, and both copies go on. A part of the other copy, whose stamp has come
// to the same number, has another nonce.
const (
	// MaxParts is how many parts a region can have.
	MaxParts = 32

	maxStamp = generationMask - 1
)

// ErrPart means that the parts that were named are not those of the region, in their order.
var ErrPart = errors.New("wrong parts")

// ErrCopied means that a part is of another copy of the region, which went its own way.
var ErrCopied = errors.New("of another copy of the region")

// ErrOlder means that a part is older than the others: it was restored from a copy.
var ErrOlder = errors.New("older than the other parts")

// checkParts returns an error if the region cannot have these parts and this stamp.
func (s *Superblock) checkParts() error {
	switch {
	case s.Parts == 0 && (s.Stamp != 0 || s.Stamping || s.StampNonces != [2]uint64{}):
		return errors.New("a stamp, and no parts")
	case s.Parts == 0:
		return nil
	case s.Class == persist.ClassProtected:
		return fmt.Errorf("%d parts of class %v", s.Parts, s.Class)
	case s.Parts < 2 || s.Parts > MaxParts:
		return fmt.Errorf("%d parts", s.Parts)
	case s.Stamp == 0 || s.Stamp > maxStamp:
		return fmt.Errorf("stamp %d", s.Stamp)
	}
	return nil
}

// A partHead is the superblock of a further part. A copy of it, little-endian; bytes that
// have no name here are 0, and those that a copy of the region's superblock has, too, are
// in the same places.
//
//	   0 ┌──────────────────────────────┬───────────────────────────────┐
//	     │ magic "PMNBDPT\n"            │ stamp (6), 0x5a5a (2)         │
//	  16 ├──────────────┬───┬───┬───┬───┼───────────────────────────────┤
//	     │ version (4)  │ 1 │ 2 │ 3 │ 0 │ size of the part's data (8)   │ 1 class, 2 place,
//	  32 ├──────────────┴───┴───┴───┴───┴───────────────────────────────┤ 3 parts
//	     │ UUID of the region (16)                                      │
//	  48 ├──────────────────────────────┬───────────────────────────────┤
//	     │ its place in the region (8)  │ its place in the part (8)     │ of the data
//	  64 ├──────────────────────────────┼───────────────────────────────┤
//	     │ nonce of the stamp (8)       │ 0                             │
//	4092 ├──────────────────────────────┴───────────────────────────────┤
//	     │ CRC32C of bytes 0 to 4092 (4)                                │
//	4096 └──────────────────────────────────────────────────────────────┘
type partHead struct {
	region [16]byte
	stamp  uint64
	nonce  uint64 // of the stamp
	class  persist.Class
	place  uint8 // from 1; the first part, with the region's superblock, is 0
	parts  uint8
	size   uint64 // of the data, in bytes
	start  uint64 // where in the region the data begin
	data   uint64 // where in the part
}

const (
	partMagic   = "PMNBDPT\n"
	partVersion = 1

	offPartClass = 20
	offPartPlace = 21
	offPartParts = 22
	offPartStart = 48
	offPartData  = 56
	offPartNonce = 64
)

// check returns an error if h may not be written, or must not be believed.
func (h *partHead) check() error {
	switch {
	case h.parts < 2 || h.parts > MaxParts || h.place == 0 || h.place >= h.parts:
		return fmt.Errorf("part %d of %d", h.place, h.parts)
	case h.stamp == 0 || h.stamp > maxStamp+1:
		return fmt.Errorf("stamp %d", h.stamp)
	case !h.class.Known():
		return fmt.Errorf("unknown %v", h.class)
	case h.data < DataOffset || h.data%sizeUnit != 0 || h.start%sizeUnit != 0 || h.start == 0 || h.start > maxSize || h.data > maxSize:
		return fmt.Errorf("data at %d of the part, and at %d of the region", h.data, h.start)
	}
	return CheckSize(h.size)
}

// encode fills b, of CopySize bytes.
func (h *partHead) encode(b []byte) {
	le := binary.LittleEndian
	clear(b)
	copy(b[offMagic:], partMagic)
	le.PutUint64(b[offGeneration:], generationTag|h.stamp)
	le.PutUint32(b[offVersion:], partVersion)
	b[offPartClass], b[offPartPlace], b[offPartParts] = byte(h.class), h.place, h.parts
	le.PutUint64(b[offSize:], h.size)
	copy(b[offUUID:], h.region[:])
	le.PutUint64(b[offPartStart:], h.start)
	le.PutUint64(b[offPartData:], h.data)
	le.PutUint64(b[offPartNonce:], h.nonce)
	le.PutUint32(b[offCRC:], crc32.Checksum(b[:offCRC], castagnoli))
}

// decodePart reads a copy of CopySize bytes. Its errors are those of decode.
func decodePart(b []byte) (partHead, error) {
	le := binary.LittleEndian
	if !isPart(b) {
		return partHead{}, ErrNoSuperblock
	}
	if crc32.Checksum(b[:offCRC], castagnoli) != le.Uint32(b[offCRC:]) {
		return partHead{}, fmt.Errorf("%w: wrong CRC", ErrDamaged)
	}
	if v := le.Uint32(b[offVersion:]); v != partVersion {
		return partHead{}, fmt.Errorf("%w: the part has version %d, and this pmnbd reads version %d", ErrVersion, v, partVersion)
	}
	h := partHead{
		region: [16]byte(b[offUUID:]),
		stamp:  le.Uint64(b[offGeneration:]) & generationMask,
		class:  persist.Class(b[offPartClass]), place: b[offPartPlace], parts: b[offPartParts],
		size: le.Uint64(b[offSize:]), start: le.Uint64(b[offPartStart:]), data: le.Uint64(b[offPartData:]),
		nonce: le.Uint64(b[offPartNonce:]),
	}
	if err := h.check(); err != nil {
		return partHead{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	var again [CopySize]byte
	h.encode(again[:])
	if !bytes.Equal(again[:], b[:CopySize]) {
		return partHead{}, fmt.Errorf("%w: it has fields that version %d does not know", ErrDamaged, partVersion)
	}
	return h, nil
}

func isPart(page []byte) bool { return bytes.HasPrefix(page, []byte(partMagic)) }

// readPart reads both copies of a further part's head from header.
func readPart(header []byte) (chosen[partHead], error) {
	return choose(header, partMagic, decodePart, func(a, b partHead) (bool, error) {
		newer := b.stamp > a.stamp
		a.stamp, b.stamp, a.nonce, b.nonce = 0, 0, 0, 0
		if a != b {
			return false, fmt.Errorf("%w: its copies belong to different parts", ErrDamaged)
		}
		return newer, nil
	})
}

// leastStamp is the lowest stamp that a further part can have.
func (s *Superblock) leastStamp() uint64 {
	if s.Stamping {
		return s.Stamp - 1
	}
	return s.Stamp
}

// stale reports whether the stamps show that the first part, or this further one, was
// restored from an older copy than the other.
//
// A rotten copy may have been the newer one. If it is the part's, the part may have had one
// stamp more. If it is the region's, that may have begun one stamp more: its copies are
// replaced in turn, so behind a copy without the flag comes one with it.
func stale(first *copies, p *chosen[partHead]) (firstIs, partIs bool) {
	least, most := first.best.leastStamp(), first.best.Stamp
	if first.rotten() && !first.best.Stamping {
		most++
	}
	from, to := p.best.stamp, p.best.stamp
	if p.rotten() {
		to++
	}
	return from > most, to < least
}

// copied reports whether the part is of another copy of the region than the first part, of the same age. What the nonce
// of an age must be is not known if the superblock was lost that said it.
func (s *Superblock) copied(h *partHead) bool {
	switch h.stamp {
	case s.Stamp:
		return h.nonce != s.StampNonces[0]
	case s.Stamp - 1:
		return h.nonce != s.StampNonces[1]
	}
	return false
}
