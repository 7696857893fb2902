package image

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

const (
	// BlockSize is the size in bytes of a block, which has a CRC of its own.
	BlockSize = 2 << 20
	// pageSize is what offsets, lengths and addresses of direct I/O are multiples of.
	pageSize = 4096
	// maxBytes is the size of the largest memory: 64 TiB.
	maxBytes = 1 << 46
	// maxScratch is how many blocks the scratch extent has at most. Writing them takes a
	// disk of 100 MB/s less than a second.
	maxScratch = 32
)

// A layout says where things are in an image of some memory.
//
//	0          8 KiB      16 KiB         a multiple of 2 MiB
//	┌──────────┬──────────┬─────────────┬──────────┬─────┬──────────┬─────────┐
//	│ copy 0   │ copy 1   │ table       │ block 0  │  …  │ block n-1│ scratch │
//	└──────────┴──────────┴─────────────┴──────────┴─────┴──────────┴─────────┘
//	  header                CRC32C of each block
//
// The last block may be shorter than the others; its place is not. The scratch extent means
// nothing: it is written to measure the disk.
type layout struct {
	bytes uint64 // of the memory
	n     int    // blocks
}

const tableOffset = 2 * headerSize

func layoutOf(bytes uint64) layout {
	return layout{bytes: bytes, n: int((bytes + BlockSize - 1) / BlockSize)}
}

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

// tableSize is the length of the table in the file, zeroes behind the last CRC included.
func (l layout) tableSize() int64 { return roundUp(4*int64(l.n), pageSize) }

func (l layout) blocksOffset() int64 { return roundUp(tableOffset+l.tableSize(), BlockSize) }

func (l layout) blockOffset(i int) int64 { return l.blocksOffset() + int64(i)*BlockSize }

// block returns where block i is in the memory.
func (l layout) block(i int) (off, n uint64) {
	off = uint64(i) * BlockSize
	return off, min(BlockSize, l.bytes-off)
}

func (l layout) scratchOffset() int64 { return l.blockOffset(l.n) }

func (l layout) scratchBlocks() int { return min(l.n, maxScratch) }

func (l layout) total() int64 { return l.blockOffset(l.n + l.scratchBlocks()) }

// encodeTable stores the CRCs of the blocks in b, of tableSize bytes, and returns the CRC of
// that.
func encodeTable(b []byte, crcs []uint32) uint32 {
	clear(b)
	for i, crc := range crcs {
		binary.LittleEndian.PutUint32(b[4*i:], crc)
	}
	return crc32.Checksum(b, castagnoli)
}

// decodeTable reads n CRCs from b, a table whose CRC should be want.
func decodeTable(b []byte, n int, want uint32) ([]uint32, error) {
	if crc32.Checksum(b, castagnoli) != want {
		return nil, fmt.Errorf("%w: wrong CRC of the table", ErrTorn)
	}
	if len(b)/4 < n {
		return nil, fmt.Errorf("%w: a table of %d bytes for %d blocks", ErrTorn, len(b), n)
	}
	crcs := make([]uint32, n)
	for i := range crcs {
		crcs[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return crcs, nil
}
