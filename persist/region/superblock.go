package region

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"pmnbd/persist"
)

const (
	// DataOffset is the offset in bytes at which the data extent starts in a region's
	// memory. It is the size of a huge page, so that huge pages can map the extent.
	DataOffset = 2 << 20
	// CopySize is the size in bytes of each copy of the superblock. The copies are at 0
	// and at CopySize.
	CopySize = 4096
	// The size of a data extent is a multiple of sizeUnit, in bytes.
	sizeUnit = 4096
	// maxName is the length in bytes of the longest name of a region.
	maxName = 255
	// MaxText is the length in bytes of the longest text in the superblock.
	MaxText = 512
	// Version is the version of the superblock that this package writes, unless the region
	// has several parts: then it is VersionParts, so that an older pmnbd refuses the region.
	Version = 2
	// VersionParts is Version with the fields of a region of several parts (part.go).
	VersionParts = 3

	maxSize = math.MaxInt64 - DataOffset // so every offset fits an off_t
)

// A copy of the superblock, little-endian. Bytes that have no name here are 0.
//
//	   0 ┌──────────────────────────────┬───────────────────────────────┐
//	     │ magic "PMNBDSB\n"            │ generation (6), 0x5a5a (2)    │
//	  16 ├──────────────┬───────────────┼───────────────────────────────┤
//	     │ version (4)  │ flags (4)     │ size of the data extent (8)   │
//	  32 ├──────────────┴───────────────┴───────────────────────────────┤
//	     │ UUID (16)                                                    │
//	  48 ├──────────────────────────────┬───────────────────────────────┤
//	     │ epoch (8)                    │ unsafe shutdowns (8)          │
//	  64 ├──────────────────────────────┴───────────────────────────────┤
//	     │ owner: id (16), nonce (16)                                   │
//	  96 ├──────────────────────────────┬───────────────────────────────┤
//	     │ contents id (16)             │ boot id (16)                  │
//	 128 ├───────┬───────┬──────────────┼──────────────┬─────┬──────────┤
//	     │class 1│name 1 │ failure (2)  │ clearing (2) │  0  │ mark (8) │ lengths of the texts
//	 144 ├───────┴───────┴──────────────┼──────────────┴─────┴──────────┤
//	     │ life (8)                     │ parts (1), 0 (7)              │
//	 160 ├──────────────────────────────┼───────────────────────────────┤
//	     │ stamp of the parts (8)       │ its nonce (8)                 │
//	 176 ├──────────────────────────────┼───────────────────────────────┤
//	     │ nonce of the one before (8)  │ memory (8)                    │
//	 192 ├──────────────────────────────┴───────────────────────────────┤
//	     │ 0                                                            │
//	 256 ├──────────────────────────────────────────────────────────────┤
//	     │ name (255)                                                   │
//	 512 ├──────────────────────────────────────────────────────────────┤
//	     │ why it failed (512)                                          │
//	1024 ├──────────────────────────────────────────────────────────────┤
//	     │ why it was last cleared (512)                                │
//	1536 ├──────────────────────────────────────────────────────────────┤
//	     │ set of the mirror (16)                                       │ the record of
//	1552 ├──────┬──────────────┬────────┬─────────┬─────────────────────┤ the mirror
//	     │slot 1│ min copies 1 │ torn 1 │async 1│arb 1│ gen., F (40)  │
//	1600 ├──────┴──────────────┴────────┴─────────┴─────────────────────┤
//	     │ members (4×40)                                               │
//	1760 ├──────────────────────────────────────────────────────────────┤
//	     │ lineage (32×40)                                              │
//	3040 ├──────────────────────────────┬───────────────────────────────┤
//	     │ followed to barrier (8)      │ and time (8)                  │
//	3056 ├──────────────────────────────┴───────────────────────────────┤
//	     │ 0                                                            │
//	4092 ├──────────────────────────────────────────────────────────────┤
//	     │ CRC32C of bytes 0 to 4092 (4)                                │
//	4096 └──────────────────────────────────────────────────────────────┘
const (
	offMagic      = 0
	offGeneration = 8
	offVersion    = 16
	offFlags      = 20
	offSize       = 24
	offUUID       = 32
	offEpoch      = 48
	offUnsafe     = 56
	offOwnerID    = 64
	offOwnerNonce = 80
	offContents   = 96
	offBoot       = 112
	offClass      = 128
	offNameLen    = 129
	offFailureLen = 130
	offClearedLen = 132
	offMark       = 136
	offLife       = 144
	offParts      = 152
	offStamp      = 160
	offNonce      = 168
	offNonceOld   = 176
	offMemory     = 184
	offName       = 256
	offFailure    = 512
	offCleared    = 1024
	offSet        = 1536
	offSlot       = 1552
	offMinCopies  = 1553
	offTorn       = 1554
	offAsync      = 1555
	offArbiter    = 1556

	offRecordGeneration = 1560

	offMembers = 1600
	offLineage = 1760
	offFollows = 3040
	offCRC     = 4092
)

const magic = "PMNBDSB\n"

// generationTag is in the top 16 bits of every generation except 0. Generation 0 marks an
// unfinished update (see writeLocked). Without the tag, one flipped bit could make a
// finished copy look unfinished.
const (
	generationTag  = 0x5a5a << 48
	generationMask = 1<<48 - 1
)

// Bits of the flags.
const (
	flagClean = 1 << iota
	flagDoubt
	flagFailed
	flagSuspect
	flagStamping // version 3 alone
	flagsKnown   = flagClean | flagDoubt | flagFailed | flagSuspect | flagStamping
)

// A Superblock is what a region persists about itself.
type Superblock struct {
	UUID  [16]byte
	Name  string
	Size  uint64 // of the data extent, in bytes
	Class persist.Class

	// Generation counts the updates, starting with 1. Update sets it.
	Generation uint64
	// Epoch numbers the sessions.
	Epoch uint64
	// Mark advances while a session makes writes durable, and when it ends. Nothing else
	// changes it. If an initiator was told a higher mark than the region has, it knows
	// that the region was restored from a copy.
	Mark uint64
	// Owner is the owner of the last session. The zero Owner cannot RESUME.
	Owner persist.Owner
	// Clean: the last session ended with CLOSE.
	Clean bool
	// Doubt: somebody may have read bytes that are not durable (design §3.8).
	Doubt bool
	// Failed: the region could not make writes durable. Only Clear resets it. Failure
	// says why.
	Failed  bool
	Failure string
	// Suspect: the platform lost power without saving (design §3.9).
	Suspect bool
	// Cleared is the reason that the operator gave at the last clear.
	Cleared string
	// UnsafeShutdowns is the platform's count at the last clean close.
	UnsafeShutdowns uint64
	// Boot is the host's boot id when the region was last opened.
	Boot [16]byte
	// Contents changes when readable contents may have been lost (design §2).
	Contents [16]byte
	// Life is the highest life of a mirror that opened the region, or 0. It goes back only
	// when the membership ends.
	Life uint64
	// Record is the region's part in a mirror. It is zero for a region that is no member.
	// Only SetRecord changes it.
	Record persist.Record

	// Parts is how many parts the region has, or 0 for a region that is one file or device.
	Parts uint8
	// Stamp is the number that every part's superblock has, too. Update raises it. While
	// Stamping is set, parts may still have the number before (part.go).
	Stamp    uint64
	Stamping bool
	// StampNonces are random numbers that belong to the stamp and to the one before.
	StampNonces [2]uint64

	// Memory is a random number of the memory of a region of class protected. A start that makes memory
	// draws it, so two memories made from one image differ. It is 0 until then, and for other classes.
	Memory uint64
}

// Version returns the version of the superblock's layout.
func (s *Superblock) Version() int {
	if s.Parts > 0 {
		return VersionParts
	}
	return Version
}

// Errors of superblocks. Each is wrapped with the path.
var (
	// ErrNoSuperblock means that the memory is not a region.
	ErrNoSuperblock = errors.New("no pmnbd superblock")
	// ErrDamaged means that the memory was a region, and neither copy of its superblock
	// is valid.
	ErrDamaged = errors.New("superblock damaged")
	// ErrVersion means that another version of pmnbd wrote the superblock.
	ErrVersion = errors.New("superblock version not supported")
	// ErrName means that a region cannot have the name, or has another one.
	ErrName = errors.New("region name")
	// ErrSize means that a region cannot have the size, or has another one.
	ErrSize = errors.New("region size")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CheckName returns an error if a region cannot have the name. A name is 1 to 255 ASCII
// letters, digits, '.', '_' and '-', and starts with a letter or digit. So it needs no
// escaping in a URI, a flag, a log or the name of a file.
func CheckName(name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("%w has %d bytes: use 1 to %d", ErrName, len(name), maxName)
	}
	for i := range len(name) {
		c := name[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return fmt.Errorf("%w %q: use letters, digits, '.', '_' and '-', and begin with a letter or digit", ErrName, name)
		}
	}
	return nil
}

// CheckSize returns an error if a data extent cannot have that size in bytes. Sizes are
// multiples of 4096.
func CheckSize(size uint64) error {
	if size == 0 || size%sizeUnit != 0 || size > maxSize {
		return fmt.Errorf("%w %d bytes: use a positive multiple of %d", ErrSize, size, sizeUnit)
	}
	return nil
}

// check returns an error if s may not be written, or must not be believed.
func (s *Superblock) check() error {
	if err := CheckName(s.Name); err != nil {
		return err
	}
	if err := CheckSize(s.Size); err != nil {
		return err
	}
	if !s.Class.Known() {
		return fmt.Errorf("unknown %v", s.Class)
	}
	if len(s.Failure) > MaxText || len(s.Cleared) > MaxText {
		return fmt.Errorf("a text is longer than %d bytes", MaxText)
	}
	if s.Generation == 0 || s.Generation > generationMask {
		return fmt.Errorf("generation %d", s.Generation)
	}
	if s.Failed != (s.Failure != "") {
		return errors.New("the flag failed and the reason for the failure contradict each other")
	}
	if s.Memory != 0 && s.Class != persist.ClassProtected {
		return fmt.Errorf("class %v, and memory that was made from an image", s.Class)
	}
	if err := s.checkParts(); err != nil {
		return err
	}
	return s.checkMember()
}

// checkMember returns an error if the region cannot have its record.
func (s *Superblock) checkMember() error {
	if s.Record == (persist.Record{}) {
		return nil
	}
	if err := s.Record.Check(); err != nil {
		return err
	}
	if s.Record.Members[s.Record.Slot].UUID != s.UUID {
		return fmt.Errorf("the record's member %v is another region", persist.Member(int(s.Record.Slot)))
	}
	if s.Size > MaxMember {
		return fmt.Errorf("%w %d bytes: a member of a mirror has at most %d", ErrSize, s.Size, uint64(MaxMember))
	}
	return nil
}

// encode fills b, of CopySize bytes, with s and its CRC. s must pass check.
func (s *Superblock) encode(b []byte) {
	le := binary.LittleEndian
	clear(b)
	copy(b[offMagic:], magic)
	le.PutUint64(b[offGeneration:], generationTag|s.Generation)
	le.PutUint32(b[offVersion:], uint32(s.Version()))
	var flags uint32
	for _, f := range [...]struct {
		set bool
		bit uint32
	}{{s.Clean, flagClean}, {s.Doubt, flagDoubt}, {s.Failed, flagFailed}, {s.Suspect, flagSuspect}, {s.Stamping, flagStamping}} {
		if f.set {
			flags |= f.bit
		}
	}
	le.PutUint32(b[offFlags:], flags)
	le.PutUint64(b[offSize:], s.Size)
	copy(b[offUUID:], s.UUID[:])
	le.PutUint64(b[offEpoch:], s.Epoch)
	le.PutUint64(b[offMark:], s.Mark)
	le.PutUint64(b[offLife:], s.Life)
	b[offParts] = s.Parts
	le.PutUint64(b[offStamp:], s.Stamp)
	le.PutUint64(b[offNonce:], s.StampNonces[0])
	le.PutUint64(b[offNonceOld:], s.StampNonces[1])
	le.PutUint64(b[offMemory:], s.Memory)
	le.PutUint64(b[offUnsafe:], s.UnsafeShutdowns)
	copy(b[offOwnerID:], s.Owner.ID[:])
	copy(b[offOwnerNonce:], s.Owner.Nonce[:])
	copy(b[offContents:], s.Contents[:])
	copy(b[offBoot:], s.Boot[:])
	b[offClass] = byte(s.Class)
	b[offNameLen] = byte(len(s.Name))
	le.PutUint16(b[offFailureLen:], uint16(len(s.Failure)))
	le.PutUint16(b[offClearedLen:], uint16(len(s.Cleared)))
	copy(b[offName:], s.Name)
	copy(b[offFailure:], s.Failure)
	copy(b[offCleared:], s.Cleared)
	putRecord(b, &s.Record)
	le.PutUint32(b[offCRC:], crc32.Checksum(b[:offCRC], castagnoli))
}

// decode reads a copy of CopySize bytes. The error is ErrNoSuperblock without the magic,
// ErrVersion for a valid copy of another version, and ErrDamaged otherwise.
func decode(b []byte) (Superblock, error) {
	le := binary.LittleEndian
	if string(b[offMagic:offMagic+len(magic)]) != magic {
		return Superblock{}, ErrNoSuperblock
	}
	if crc32.Checksum(b[:offCRC], castagnoli) != le.Uint32(b[offCRC:]) {
		return Superblock{}, fmt.Errorf("%w: wrong CRC", ErrDamaged)
	}
	if v := le.Uint32(b[offVersion:]); v != Version && v != VersionParts {
		return Superblock{}, fmt.Errorf("%w: it has version %d, and this pmnbd reads versions %d and %d", ErrVersion, v, Version, VersionParts)
	}
	nName := int(b[offNameLen])
	nFailure, nCleared := int(le.Uint16(b[offFailureLen:])), int(le.Uint16(b[offClearedLen:]))
	flags := le.Uint32(b[offFlags:])
	if nFailure > MaxText || nCleared > MaxText {
		return Superblock{}, fmt.Errorf("%w: a text of %d bytes", ErrDamaged, max(nFailure, nCleared))
	}
	s := Superblock{
		UUID:            [16]byte(b[offUUID:]),
		Name:            string(b[offName : offName+nName]),
		Size:            le.Uint64(b[offSize:]),
		Class:           persist.Class(b[offClass]),
		Generation:      le.Uint64(b[offGeneration:]) & generationMask,
		Epoch:           le.Uint64(b[offEpoch:]),
		Mark:            le.Uint64(b[offMark:]),
		Owner:           persist.Owner{ID: [16]byte(b[offOwnerID:]), Nonce: [16]byte(b[offOwnerNonce:])},
		Clean:           flags&flagClean != 0,
		Doubt:           flags&flagDoubt != 0,
		Failed:          flags&flagFailed != 0,
		Failure:         string(b[offFailure : offFailure+nFailure]),
		Suspect:         flags&flagSuspect != 0,
		Cleared:         string(b[offCleared : offCleared+nCleared]),
		UnsafeShutdowns: le.Uint64(b[offUnsafe:]),
		Boot:            [16]byte(b[offBoot:]),
		Contents:        [16]byte(b[offContents:]),
		Life:            le.Uint64(b[offLife:]),
		Record:          getRecord(b),
		Parts:           b[offParts],
		Stamp:           le.Uint64(b[offStamp:]),
		Stamping:        flags&flagStamping != 0,
		StampNonces:     [2]uint64{le.Uint64(b[offNonce:]), le.Uint64(b[offNonceOld:])},
		Memory:          le.Uint64(b[offMemory:]),
	}
	if err := s.check(); err != nil {
		return Superblock{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	// Accept only what this version would have written, byte for byte: any other bit may
	// mean something to another version.
	var again [CopySize]byte
	s.encode(again[:])
	if flags&^flagsKnown != 0 || !bytes.Equal(again[:], b[:CopySize]) {
		return Superblock{}, fmt.Errorf("%w: it has fields that version %d does not know", ErrDamaged, le.Uint32(b[offVersion:]))
	}
	return s, nil
}
