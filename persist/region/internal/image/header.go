package image

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"
)

// A State says what an image is worth.
type State uint8

const (
	// Live: the memory may be newer than the blocks. If the memory is gone, so are its
	// contents.
	Live State = iota + 1
	// Whole: the blocks have everything that the memory had, and nobody has been allowed
	// to change the memory since.
	Whole
)

func (s State) String() string {
	switch s {
	case Live:
		return "live"
	case Whole:
		return "whole"
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// A Header names the memory that an image is of, and says how far it is from it.
type Header struct {
	// Generation counts the writes of a header. The image sets it.
	Generation uint64
	State      State
	// UUID and Name are the region's, Bytes is the size of its memory: superblock, bitmaps
	// and data extent.
	UUID  [16]byte
	Name  string
	Bytes uint64
	// Epoch is the highest one that may have been granted.
	Epoch uint64
	// Contents and Boot are the region's contents id, and the boot in which the header was
	// written.
	Contents, Boot [16]byte
	// Superblock is the region's when the header was written. Its owner checks it.
	Superblock [SuperblockSize]byte
	// SavedAt is the time of the last save in nanoseconds since 1970, or 0.
	SavedAt int64
	// Speed is what the disk was measured to take, in bytes a second, and Within how long a
	// save may take.
	Speed  uint64
	Within time.Duration
	// Losses counts how often the contents were lost, and LostAt is when that was last.
	Losses uint32
	LostAt int64
	// Table is the CRC32C of the table, of an image that is whole.
	Table uint32
}

// SuperblockSize is the size in bytes of a region's superblock.
const SuperblockSize = 4096

// A copy of the header, little-endian. Bytes that have no name here are 0.
//
//	   0 ┌──────────────────────────────┬───────────────────────────────┐
//	     │ magic "PMNBDIM\n"            │ generation (8)                │
//	  16 ├──────────────┬───────┬───────┼───────────────────────────────┤
//	     │ version (4)  │state 1│   0   │ bytes of the memory (8)       │
//	  32 ├──────────────┴───────┴───────┴───────────────────────────────┤
//	     │ UUID (16)                                                    │
//	  48 ├──────────────────────────────┬───────────────────────────────┤
//	     │ epoch (8)                    │ saved at (8)                  │
//	  64 ├──────────────────────────────┼───────────────────────────────┤
//	     │ speed (8)                    │ save within (8), nanoseconds  │
//	  80 ├──────────────┬───────────────┼───────────────────────────────┤
//	     │ losses (4)   │ table CRC (4) │ lost at (8)                   │
//	  96 ├──────────────┴───────────────┴───────────────────────────────┤
//	     │ contents id (16), boot id (16)                               │
//	 128 ├───────┬──────────────────────────────────────────────────────┤
//	     │name 1 │ 0                                                    │ its length
//	 256 ├───────┴──────────────────────────────────────────────────────┤
//	     │ name (255)                                                   │
//	 512 ├──────────────────────────────────────────────────────────────┤
//	     │ superblock (4096)                                            │ not at a page, or the
//	4608 ├──────────────────────────────────────────────────────────────┤ image looked like a
//	     │ 0                                                            │ region
//	8188 ├──────────────────────────────────────────────────────────────┤
//	     │ CRC32C of bytes 0 to 8188 (4)                                │
//	8192 └──────────────────────────────────────────────────────────────┘
const (
	offMagic      = 0
	offGeneration = 8
	offVersion    = 16
	offState      = 20
	offBytes      = 24
	offUUID       = 32
	offEpoch      = 48
	offSavedAt    = 56
	offSpeed      = 64
	offWithin     = 72
	offLosses     = 80
	offTable      = 84
	offLostAt     = 88
	offContents   = 96
	offBoot       = 112
	offNameLen    = 128
	offName       = 256
	offSuperblock = 512
	offCRC        = 8188
	headerSize    = 8192

	maxName = 255
	magic   = "PMNBDIM\n"
	version = 1
)

// Errors of headers. Each is wrapped with the path.
var (
	// ErrNone means that a file is no image.
	ErrNone = errors.New("no image of a pmnbd region")
	// ErrDamaged means that a file was an image, and nothing tells of what.
	ErrDamaged = errors.New("image damaged")
	// ErrVersion means that another version of pmnbd wrote the image.
	ErrVersion = errors.New("image version not supported")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode stores h, which passes check, in a copy of headerSize bytes.
func (h *Header) encode(b []byte) {
	b = b[:headerSize]
	le := binary.LittleEndian
	clear(b)
	copy(b[offMagic:], magic)
	le.PutUint64(b[offGeneration:], h.Generation)
	le.PutUint32(b[offVersion:], version)
	b[offState] = byte(h.State)
	le.PutUint64(b[offBytes:], h.Bytes)
	copy(b[offUUID:], h.UUID[:])
	le.PutUint64(b[offEpoch:], h.Epoch)
	le.PutUint64(b[offSavedAt:], uint64(h.SavedAt))
	le.PutUint64(b[offSpeed:], h.Speed)
	le.PutUint64(b[offWithin:], uint64(h.Within))
	le.PutUint32(b[offLosses:], h.Losses)
	le.PutUint32(b[offTable:], h.Table)
	le.PutUint64(b[offLostAt:], uint64(h.LostAt))
	copy(b[offContents:], h.Contents[:])
	copy(b[offBoot:], h.Boot[:])
	b[offNameLen] = byte(len(h.Name))
	copy(b[offName:], h.Name)
	copy(b[offSuperblock:], h.Superblock[:])
	le.PutUint32(b[offCRC:], crc32.Checksum(b[:offCRC], castagnoli))
}

// decode reads a copy of headerSize bytes. The error is ErrNone without the magic,
// ErrVersion for a valid copy of another version, and ErrDamaged otherwise.
func decode(b []byte) (Header, error) {
	le := binary.LittleEndian
	if string(b[offMagic:offMagic+len(magic)]) != magic {
		return Header{}, ErrNone
	}
	if crc32.Checksum(b[:offCRC], castagnoli) != le.Uint32(b[offCRC:]) {
		return Header{}, fmt.Errorf("%w: wrong CRC", ErrDamaged)
	}
	if v := le.Uint32(b[offVersion:]); v != version {
		return Header{}, fmt.Errorf("%w: it has version %d, and this pmnbd reads version %d", ErrVersion, v, version)
	}
	h := Header{
		Generation: le.Uint64(b[offGeneration:]),
		State:      State(b[offState]),
		UUID:       [16]byte(b[offUUID:]),
		Name:       string(b[offName : offName+int(b[offNameLen])]),
		Bytes:      le.Uint64(b[offBytes:]),
		Epoch:      le.Uint64(b[offEpoch:]),
		Contents:   [16]byte(b[offContents:]),
		Boot:       [16]byte(b[offBoot:]),
		Superblock: [SuperblockSize]byte(b[offSuperblock:]),
		SavedAt:    int64(le.Uint64(b[offSavedAt:])),
		Speed:      le.Uint64(b[offSpeed:]),
		Within:     time.Duration(le.Uint64(b[offWithin:])),
		Losses:     le.Uint32(b[offLosses:]),
		LostAt:     int64(le.Uint64(b[offLostAt:])),
		Table:      le.Uint32(b[offTable:]),
	}
	if err := h.check(); err != nil {
		return Header{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	// Accept only what this version would have written, byte for byte: any other bit may
	// mean something to another version.
	var again [headerSize]byte
	h.encode(again[:])
	if !bytes.Equal(again[:], b[:headerSize]) {
		return Header{}, fmt.Errorf("%w: it has fields that version %d does not know", ErrDamaged, version)
	}
	return h, nil
}

// check returns an error if h may not be written, or must not be believed.
func (h *Header) check() error {
	switch {
	case h.State != Live && h.State != Whole:
		return fmt.Errorf("%v", h.State)
	case h.Generation == 0:
		return errors.New("generation 0")
	case h.Bytes <= BlockSize || h.Bytes%pageSize != 0 || h.Bytes > maxBytes:
		return fmt.Errorf("memory of %d bytes", h.Bytes)
	case h.Name == "" || len(h.Name) > maxName:
		return fmt.Errorf("a name of %d bytes", len(h.Name))
	case h.Within < 0:
		return fmt.Errorf("a save within %v", h.Within)
	}
	return nil
}
