package image

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func header() Header {
	return Header{
		Generation: 7, State: Whole, UUID: [16]byte{1, 2}, Name: "log", Bytes: 3 * BlockSize, Epoch: 9,
		Contents: [16]byte{3}, Boot: [16]byte{4}, Superblock: [SuperblockSize]byte{5, SuperblockSize - 1: 6},
		SavedAt: 10, Speed: 11, Within: 2 * time.Minute, Losses: 12, LostAt: 13, Table: 14,
	}
}

func TestHeaderRoundTrip(t *testing.T) {
	h := header()
	b := make([]byte, headerSize)
	h.encode(b)
	got, err := decode(b)
	require.NoError(t, err)
	require.Equal(t, h, got)
	for i := range b { // every byte counts
		b[i] ^= 0x40
		_, err := decode(b)
		require.Error(t, err, "byte %d", i)
		b[i] ^= 0x40
	}
}

func TestHeaderRefusals(t *testing.T) {
	for _, c := range []struct {
		name string
		bad  func(b []byte)
		is   error
	}{
		{"another version", func(b []byte) { b[offVersion] = 2 }, ErrVersion},
		{"state 0", func(b []byte) { b[offState] = 0 }, ErrDamaged},
		{"state 3", func(b []byte) { b[offState] = 3 }, ErrDamaged},
		{"generation 0", func(b []byte) { clear(b[offGeneration : offGeneration+8]) }, ErrDamaged},
		{"no memory", func(b []byte) { clear(b[offBytes : offBytes+8]) }, ErrDamaged},
		{"a superblock and no data", func(b []byte) { binary.LittleEndian.PutUint64(b[offBytes:], BlockSize) }, ErrDamaged},
		{"too much memory", func(b []byte) { binary.LittleEndian.PutUint64(b[offBytes:], math.MaxUint64-4095) }, ErrDamaged},
		{"part of a page", func(b []byte) { b[offBytes] = 1 }, ErrDamaged},
		{"no name", func(b []byte) { b[offNameLen] = 0 }, ErrDamaged},
		{"a negative time", func(b []byte) { b[offWithin+7] = 0x80 }, ErrDamaged},
		{"a byte without a field", func(b []byte) { b[5000] = 1 }, ErrDamaged},
		{"a name that is longer than it says", func(b []byte) { b[offName+200] = 'x' }, ErrDamaged},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := header()
			b := make([]byte, headerSize)
			h.encode(b)
			c.bad(b)
			binary.LittleEndian.PutUint32(b[offCRC:], crc32.Checksum(b[:offCRC], castagnoli))
			_, err := decode(b)
			require.ErrorIs(t, err, c.is)
		})
	}
}

func FuzzHeader(f *testing.F) {
	h := header()
	b := make([]byte, headerSize)
	h.encode(b)
	f.Add(b)
	f.Add(make([]byte, headerSize))
	h.State, h.Name = Live, strings.Repeat("x", maxName)
	h.encode(b)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < headerSize {
			return
		}
		binary.LittleEndian.PutUint32(b[offCRC:], crc32.Checksum(b[:offCRC], castagnoli)) // or nothing gets further
		h, err := decode(b)
		if err != nil {
			return
		}
		require.LessOrEqual(t, h.Bytes, uint64(maxBytes))
		require.LessOrEqual(t, len(h.Name), maxName)
		again := make([]byte, headerSize)
		h.encode(again)
		require.Equal(t, b[:headerSize], again)
	})
}

func FuzzTable(f *testing.F) {
	f.Add(make([]byte, pageSize), 1, uint32(0))
	f.Fuzz(func(t *testing.T, b []byte, n int, crc uint32) {
		n &= 1<<20 - 1
		for _, crc := range []uint32{crc, crc32.Checksum(b, castagnoli)} {
			crcs, err := decodeTable(b, n, crc)
			if err != nil {
				require.ErrorIs(t, err, ErrTorn)
				continue
			}
			require.Len(t, crcs, n)
			again := make([]byte, len(b))
			encodeTable(again, crcs)
			require.Equal(t, b[:4*n], again[:4*n])
		}
	})
}

func TestLayout(t *testing.T) {
	for _, c := range []struct {
		name             string
		bytes            uint64
		n                int
		blocks, last, sz int64
	}{
		{"two blocks", BlockSize + pageSize, 2, BlockSize, pageSize, 5 * BlockSize},
		{"a full one", 2 * BlockSize, 2, BlockSize, BlockSize, 5 * BlockSize},
		{"1 TiB", 1 << 40, 1 << 19, 2 * BlockSize, BlockSize, 1<<40 + (2+maxScratch)*BlockSize},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := layoutOf(c.bytes)
			require.Equal(t, c.n, l.n)
			require.Equal(t, c.blocks, l.blocksOffset())
			require.GreaterOrEqual(t, l.blocksOffset(), tableOffset+l.tableSize())
			_, n := l.block(l.n - 1)
			require.EqualValues(t, c.last, n)
			require.Equal(t, c.sz, Size(c.bytes))
		})
	}
}
