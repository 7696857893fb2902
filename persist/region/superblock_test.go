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
		Life: 79, Record: sampleRecord(id(0x10)),
	}
}

// sampleRecord is a record of member B in which every field differs from its neighbours.
func sampleRecord(uuid [16]byte) persist.Record {
	id := func(b byte) [16]byte { return [16]byte{b, 15: b + 1} }
	rec := persist.Record{
		Set: id(0xa0), Slot: 1, MinCopies: 2, Torn: true, Arbiter: true,
		Ancestor: persist.Ancestor{Generation: persist.Generation{Life: 41, Count: 3, Nonce: id(0xa2)}, F: 5},
		Members: [persist.MaxMembers]persist.Membership{
			{UUID: id(0xb0), Contents: id(0xb2), Epoch: 42}, {UUID: uuid, Contents: id(0xb4), Epoch: 43}, {UUID: id(0xb6), Contents: id(0xb8), Epoch: 44},
		},
	}
	for i := range rec.Lineage {
		rec.Lineage[i] = persist.Ancestor{Generation: persist.Generation{Life: uint64(40 - i), Count: uint64(i + 1), Nonce: id(byte(i))}, F: 7}
	}
	return rec
}

// The layout is a promise to later versions, so this test has its own numbers.
func TestLayout(t *testing.T) {
	var b [CopySize]byte
	s := sample()
	s.encode(b[:])
	require.Equal(t, "PMNBDSB\n", string(b[:8]))
	require.Equal(t, []byte{8, 7, 6, 5, 4, 3, 0x5a, 0x5a}, b[8:16], "generation")
	require.Equal(t, []byte{2, 0, 0, 0}, b[16:20], "version")
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
	require.Equal(t, []byte{78, 0, 0, 0, 0, 0, 0, 0}, b[136:144], "mark")
	require.Equal(t, "log-2.a_b\x00", string(b[256:266]))
	require.Equal(t, "fdatasync: input/output error\x00", string(b[512:542]))
	require.Equal(t, "disk replaced\x00", string(b[1024:1038]))
	require.Equal(t, crc32.Checksum(b[:4092], crc32.MakeTable(crc32.Castagnoli)), binary.LittleEndian.Uint32(b[4092:]))
	require.Equal(t, []byte{79, 0, 0, 0, 0, 0, 0, 0}, b[144:152], "life")
	require.Equal(t, make([]byte, 256-152), b[152:256])
	require.Equal(t, make([]byte, 1536-1038), b[1038:1536])
	require.Equal(t, byte(0xa0), b[1536], "set")
	require.Equal(t, []byte{1, 2, 1, 0, 1, 0, 0, 0}, b[1552:1560], "slot, copies at least, torn, arbiter")
	require.Equal(t, []byte{41, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0xa2}, b[1560:1577], "generation")
	require.Equal(t, []byte{5, 0, 0, 0, 0, 0, 0, 0}, b[1592:1600], "F")
	require.Equal(t, byte(0xb0), b[1600], "member A's UUID")
	require.Equal(t, byte(0xb2), b[1616], "its contents id")
	require.Equal(t, []byte{42, 0, 0, 0, 0, 0, 0, 0, 0x10, 0x11}, b[1632:1642], "its epoch, then member B's UUID")
	require.Equal(t, []byte{44, 0, 0, 0, 0, 0, 0, 0}, b[1712:1720], "member C's epoch")
	require.Equal(t, make([]byte, 40), b[1720:1760], "no member D")
	require.Equal(t, []byte{40, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}, b[1760:1777], "the newest ancestor")
	require.Equal(t, []byte{7, 0, 0, 0, 0, 0, 0, 0, 39, 0}, b[1792:1802], "its F, then the one before")
	require.Equal(t, byte(9), b[3000], "the oldest ancestor")
	require.Equal(t, make([]byte, 4092-3040), b[3040:4092])
}

// TestLayoutOfMemory: a number of the memory is for class protected alone.
func TestLayoutOfMemory(t *testing.T) {
	var b [CopySize]byte
	s := sample()
	s.Class, s.Memory = persist.ClassProtected, 80
	s.encode(b[:])
	require.Equal(t, []byte{80, 0, 0, 0, 0, 0, 0, 0}, b[184:192])
	require.Equal(t, make([]byte, 256-192), b[192:256])
	got, err := decode(b[:])
	require.NoError(t, err)
	require.Equal(t, s, got)
	s.Class = persist.ClassFile
	s.encode(b[:])
	_, err = decode(b[:])
	require.ErrorIs(t, err, ErrDamaged)
}

func TestRoundTrip(t *testing.T) {
	longest := sample()
	longest.Name, longest.Failure, longest.Cleared = strings.Repeat("n", maxName), strings.Repeat("f", MaxText), strings.Repeat("c", MaxText)
	longest.Size, longest.Record = maxSize/sizeUnit*sizeUnit, persist.Record{}
	largest := sample()
	largest.Size = MaxMember
	least := Superblock{Name: "0", Size: sizeUnit, Class: persist.ClassVolatile, Generation: 1}
	for _, s := range []Superblock{sample(), longest, largest, least} {
		require.NoError(t, s.check())
		var b [CopySize]byte
		s.encode(b[:])
		got, err := decode(b[:])
		require.NoError(t, err)
		require.Equal(t, s, got)
	}
}

// decode refuses bytes that no version 2 writes, even with a valid CRC.
func TestDecodeRefuses(t *testing.T) {
	le := binary.LittleEndian
	for _, c := range []struct {
		name string
		bend func(b []byte)
		want error
	}{
		{"magic", func(b []byte) { b[0] ^= 1 }, ErrNoSuperblock},
		{"newer version", func(b []byte) { le.PutUint32(b[offVersion:], 4) }, ErrVersion},
		{"version 1, which was never released", func(b []byte) { le.PutUint32(b[offVersion:], 1) }, ErrVersion},
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
		{"gap of the record used", func(b []byte) { b[1557] = 1 }, ErrDamaged},
		{"gap behind F used", func(b []byte) { b[1593] = 1 }, ErrDamaged},
		{"torn twice", func(b []byte) { b[offTorn] = 2 }, ErrDamaged},
		{"a record without a set", func(b []byte) { clear(b[offSet : offSet+16]) }, ErrDamaged},
		{"a record in slot 4", func(b []byte) { b[offSlot] = 4 }, ErrDamaged},
		{"a record in slot 255", func(b []byte) { b[offSlot] = 255 }, ErrDamaged},
		{"another region's record", func(b []byte) { b[offSlot] = 0; b[offTorn] = 0 }, ErrDamaged},
		{"a record without F", func(b []byte) { b[offRecordGeneration+offAncestorF] = 0 }, ErrDamaged},
		{"F with a member that does not exist", func(b []byte) { b[offRecordGeneration+offAncestorF] |= 8 }, ErrDamaged},
		{"a member twice", func(b []byte) { copy(b[offMembers:offMembers+16], b[offMembers+memberSize:]) }, ErrDamaged},
		{"a lineage with a hole", func(b []byte) { clear(b[offLineage+ancestorSize : offLineage+2*ancestorSize]) }, ErrDamaged},
		{"a lineage out of order", func(b []byte) { b[offLineage] = 1 }, ErrDamaged},
		{"a member too large", func(b []byte) { le.PutUint64(b[offSize:], MaxMember+sizeUnit) }, ErrDamaged},
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
	s.Record.Torn, s.Record.F = false, 7
	s.encode(b[:])
	f.Add(b[:])
	s.Record = persist.Record{}
	s.encode(b[:])
	f.Add(b[:])
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
