package region

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

// sample is a superblock in which every field differs from its neighbours.
func sample() Superblock {
	id := func(b byte) (a [16]byte) {
		for i := range a {
			a[i] = b + byte(i)
		}
		return a
	}
	return Superblock{
		UUID: id(0x10), Name: "log-2.a_b", Size: 1 << 30, Class: persist.ClassFile,
		Generation: 0x030405060708, Epoch: 77, Mark: 78, Owner: persist.Owner{ID: id(0x30), Nonce: id(0x50)},
		Clean: true, Doubt: true, Failed: true, Failure: "fdatasync: input/output error", Suspect: true,
		Cleared: "disk replaced", UnsafeShutdowns: 3, Boot: id(0x70), Contents: id(0x90),
	}
}

// The layout is a promise to later versions, so this test has its own numbers.
func TestLayout(t *testing.T) {
	var b [CopySize]byte
	s := sample()
	s.encode(b[:])
	require.Equal(t, "PMNBDSB\n", string(b[:8]))
	require.Equal(t, []byte{8, 7, 6, 5, 4, 3, 0x5a, 0x5a}, b[8:16], "generation")
	require.Equal(t, []byte{1, 0, 0, 0}, b[16:20], "version")
	require.Equal(t, []byte{0x0f, 0, 0, 0}, b[20:24], "flags")
	require.Equal(t, []byte{0, 0, 0, 0x40, 0, 0, 0, 0}, b[24:32], "size")
	require.Equal(t, byte(0x10), b[32], "UUID")
	require.Equal(t, []byte{77, 0, 0, 0, 0, 0, 0, 0}, b[48:56], "epoch")
	require.Equal(t, byte(3), b[56], "unsafe shutdowns")
	require.Equal(t, byte(0x30), b[64], "owner's id")
	require.Equal(t, byte(0x50), b[80], "owner's nonce")
	require.Equal(t, byte(0x90), b[96], "contents id")
	require.Equal(t, byte(0x70), b[112], "boot id")
	require.Equal(t, []byte{2, 9, 29, 0, 13, 0, 0, 0}, b[128:136], "class and lengths")
	require.Equal(t, []byte{78, 0, 0, 0, 0, 0, 0, 0, 0}, b[136:145], "mark")
	require.Equal(t, "log-2.a_b\x00", string(b[256:266]))
	require.Equal(t, "fdatasync: input/output error\x00", string(b[512:542]))
	require.Equal(t, "disk replaced\x00", string(b[1024:1038]))
	require.Equal(t, crc32.Checksum(b[:4092], crc32.MakeTable(crc32.Castagnoli)), binary.LittleEndian.Uint32(b[4092:]))
	require.Equal(t, make([]byte, 4092-1038), b[1038:4092])
}

func TestRoundTrip(t *testing.T) {
	longest := sample()
	longest.Name, longest.Failure, longest.Cleared = strings.Repeat("n", maxName), strings.Repeat("f", MaxText), strings.Repeat("c", MaxText)
	longest.Size = maxSize / sizeUnit * sizeUnit
	least := Superblock{Name: "0", Size: sizeUnit, Class: persist.ClassVolatile, Generation: 1}
	for _, s := range []Superblock{sample(), longest, least} {
		require.NoError(t, s.check())
		var b [CopySize]byte
		s.encode(b[:])
		got, err := decode(b[:])
		require.NoError(t, err)
		require.Equal(t, s, got)
	}
}

// decode refuses bytes that no version 1 writes, even with a valid CRC.
func TestDecodeRefuses(t *testing.T) {
	le := binary.LittleEndian
	for _, c := range []struct {
		name string
		bend func(b []byte)
		want error
	}{
		{"magic", func(b []byte) { b[0] ^= 1 }, ErrNoSuperblock},
		{"newer version", func(b []byte) { le.PutUint32(b[offVersion:], 2) }, ErrVersion},
		{"generation 0", func(b []byte) { le.PutUint64(b[offGeneration:], 0) }, ErrDamaged},
		{"generation without its tag", func(b []byte) { b[offGeneration+7] = 0 }, ErrDamaged},
		{"unknown flag", func(b []byte) { b[offFlags] |= 0x10 }, ErrDamaged},
		{"failed without why", func(b []byte) { clear(b[offFailure : offFailure+MaxText]); le.PutUint16(b[offFailureLen:], 0) }, ErrDamaged},
		{"why without failed", func(b []byte) { b[offFlags] &^= flagFailed }, ErrDamaged},
		{"size 0", func(b []byte) { le.PutUint64(b[offSize:], 0) }, ErrDamaged},
		{"odd size", func(b []byte) { le.PutUint64(b[offSize:], 4097) }, ErrDamaged},
		{"size past off_t", func(b []byte) { le.PutUint64(b[offSize:], math.MaxUint64-4095) }, ErrDamaged},
		{"size past off_t with the header", func(b []byte) { le.PutUint64(b[offSize:], math.MaxInt64-4095) }, ErrDamaged},
		{"class 0", func(b []byte) { b[offClass] = 0 }, ErrDamaged},
		{"class 9", func(b []byte) { b[offClass] = 9 }, ErrDamaged},
		{"no name", func(b []byte) { b[offNameLen] = 0 }, ErrDamaged},
		{"name with zeroes", func(b []byte) { b[offNameLen] = 255 }, ErrDamaged},
		{"name with a slash", func(b []byte) { b[offName+1] = '/' }, ErrDamaged},
		{"name behind its end", func(b []byte) { b[offName+100] = 'x' }, ErrDamaged},
		{"text too long", func(b []byte) { le.PutUint16(b[offFailureLen:], MaxText+1) }, ErrDamaged},
		{"text much too long", func(b []byte) { le.PutUint16(b[offClearedLen:], math.MaxUint16) }, ErrDamaged},
		{"gap used", func(b []byte) { b[4000] = 1 }, ErrDamaged},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b [CopySize]byte
			s := sample()
			s.encode(b[:])
			c.bend(b[:])
			le.PutUint32(b[offCRC:], crc32.Checksum(b[:offCRC], castagnoli))
			_, err := decode(b[:])
			require.ErrorIs(t, err, c.want)
		})
	}
}

// decode notices every single flipped bit.
func TestEveryBitCounts(t *testing.T) {
	var b [CopySize]byte
	s := sample()
	s.encode(b[:])
	for i := range b {
		b[i] ^= 1 << (i % 8)
		_, err := decode(b[:])
		require.Error(t, err, "byte %d", i)
		b[i] ^= 1 << (i % 8)
	}
}

func FuzzDecode(f *testing.F) {
	var b [CopySize]byte
	s := sample()
	s.encode(b[:])
	f.Add(b[:])
	f.Add(b[:offName+20])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, in []byte) {
		var b [CopySize]byte
		copy(b[:], in)
		binary.LittleEndian.PutUint32(b[offCRC:], crc32.Checksum(b[:offCRC], castagnoli))
		s, err := decode(b[:])
		if err != nil {
			return
		}
		require.NoError(t, s.check())
		var again [CopySize]byte
		s.encode(again[:])
		require.Equal(t, b, again)
	})
}

func FuzzReadCopies(f *testing.F) {
	var h [2 * CopySize]byte
	s := sample()
	s.encode(h[:CopySize])
	s.Generation++
	s.encode(h[CopySize:])
	f.Add(h[:], byte(3))
	f.Add(make([]byte, 2*CopySize), byte(0))
	f.Fuzz(func(t *testing.T, in []byte, seal byte) {
		var h [2 * CopySize]byte
		copy(h[:], in)
		for at := range 2 { // gets the fuzzer past the CRC
			if page := h[at*CopySize : (at+1)*CopySize]; seal>>at&1 != 0 {
				binary.LittleEndian.PutUint32(page[offCRC:], crc32.Checksum(page[:offCRC], castagnoli))
			}
		}
		c, err := readCopies(h[:])
		if err != nil {
			return
		}
		require.Equal(t, CopyGood, c.states[c.at])
		require.NoError(t, c.best.check())
		opened := onOpen(c, &medium.Memory{Class: c.best.Class}, bootA, [16]byte{1})
		require.NoError(t, opened.check())
	})
}

func TestCheckName(t *testing.T) {
	for _, name := range []string{"a", "0", "log", "db-1.wal_2", strings.Repeat("x", 255)} {
		require.NoError(t, CheckName(name), name)
	}
	for _, name := range []string{"", strings.Repeat("x", 256), ".a", "-a", "_a", "a b", "a/b", "a=b", "a,b", "a\n", "a\x00", "ä", "a%"} {
		require.ErrorIs(t, CheckName(name), ErrName, name)
	}
}

func TestText(t *testing.T) {
	require.Equal(t, "one line", text("one\nline"))
	require.Equal(t, "a b c", text("a\tb\x7fc"))
	require.Equal(t, strings.Repeat("x", MaxText), text(strings.Repeat("x", MaxText+9)))
	require.Equal(t, strings.Repeat("x", MaxText-1), text(strings.Repeat("x", MaxText-1)+"ä"), "no half runes")
	require.Equal(t, "\ufffd", text("\xff"))
}
