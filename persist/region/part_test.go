package region

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/internal/testhost"
	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

// createdParts makes a region named "r" of n parts of testSize bytes in new files, on h.
func createdParts(t testing.TB, h host, n int) []string {
	t.Helper()
	paths := partPaths(testhost.Disk(t), n)
	_, err := create(paths[0], CreateOptions{Name: "r", Size: testSize, Parts: paths[1:]}, h)
	require.NoError(t, err)
	return paths
}

func partPaths(dir string, n int) (paths []string) {
	for i := range n {
		paths = append(paths, filepath.Join(dir, "part"+strconv.Itoa(i)))
	}
	return paths
}

// openedParts is opened for a region of several parts.
func openedParts(t testing.TB, paths []string, h host) *Region {
	t.Helper()
	return opened(t, paths[0], OpenOptions{Parts: paths[1:]}, h)
}

// samplePart is a partHead in which every field differs from its neighbours.
func samplePart() partHead {
	return partHead{
		region: [16]byte{0x10, 15: 0x1f}, stamp: 0x030405060708, nonce: 0x0910111213141516, class: persist.ClassPMem, place: 4, parts: 5,
		size: 1 << 30, start: 3 << 30, data: 1 << 21,
	}
}

// The layout is a promise to later versions, so this test has its own numbers.
func TestPartLayout(t *testing.T) {
	var b [CopySize]byte
	h := samplePart()
	h.encode(b[:])
	require.Equal(t, "PMNBDPT\n", string(b[:8]))
	require.Equal(t, []byte{8, 7, 6, 5, 4, 3, 0x5a, 0x5a}, b[8:16], "stamp")
	require.Equal(t, []byte{1, 0, 0, 0}, b[16:20], "version")
	require.Equal(t, []byte{3, 4, 5, 0}, b[20:24], "class, place, parts")
	require.Equal(t, []byte{0, 0, 0, 0x40, 0, 0, 0, 0}, b[24:32], "size")
	require.Equal(t, byte(0x10), b[32], "UUID of the region")
	require.Equal(t, byte(0x1f), b[47])
	require.Equal(t, []byte{0, 0, 0, 0xc0, 0, 0, 0, 0}, b[48:56], "place in the region")
	require.Equal(t, []byte{0, 0, 0x20, 0, 0, 0, 0, 0}, b[56:64], "place in the part")
	require.Equal(t, []byte{0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x10, 9}, b[64:72], "nonce")
	require.Equal(t, make([]byte, 4092-72), b[72:4092])
	require.Equal(t, crc32.Checksum(b[:4092], crc32.MakeTable(crc32.Castagnoli)), binary.LittleEndian.Uint32(b[4092:]))
	got, err := decodePart(b[:])
	require.NoError(t, err)
	require.Equal(t, h, got)

	s := sample()
	s.Parts, s.Stamp, s.Stamping, s.StampNonces = 7, 0x0102, true, [2]uint64{0x0304, 0x0506}
	s.encode(b[:])
	require.Equal(t, []byte{3, 0, 0, 0, 0x1f, 0, 0, 0}, b[16:24], "version and flags of the first part")
	require.Equal(t, []byte{7, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0, 6, 5, 0, 0, 0, 0, 0, 0, 0}, b[152:185], "parts, stamp and nonces")
	again, err := decode(b[:])
	require.NoError(t, err)
	require.Equal(t, s, again)
}

func TestDecodePartRefuses(t *testing.T) {
	le := binary.LittleEndian
	for name, bend := range map[string]func(b []byte){
		"the first part's place": func(b []byte) { b[offPartPlace] = 0 },
		"a place behind all":     func(b []byte) { b[offPartPlace] = 5 },
		"one part":               func(b []byte) { b[offPartParts] = 1 },
		"too many":               func(b []byte) { b[offPartParts] = MaxParts + 1 },
		"no class":               func(b []byte) { b[offPartClass] = 0 },
		"no stamp":               func(b []byte) { le.PutUint64(b[offGeneration:], generationTag) },
		"no bytes":               func(b []byte) { le.PutUint64(b[offSize:], 0) },
		"data over the header":   func(b []byte) { le.PutUint64(b[offPartData:], 4096) },
		"data beyond all":        func(b []byte) { le.PutUint64(b[offPartData:], 1<<63) },
		"the start of the first": func(b []byte) { le.PutUint64(b[offPartStart:], 0) },
		"a start beyond all":     func(b []byte) { le.PutUint64(b[offPartStart:], 1<<63) },
		"an odd start":           func(b []byte) { le.PutUint64(b[offPartStart:], 4097) },
		"an unknown field":       func(b []byte) { b[100] = 1 },
		"no tag":                 func(b []byte) { b[15] = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			var b [CopySize]byte
			h := samplePart()
			h.encode(b[:])
			bend(b[:])
			_, err := decodePart(b[:])
			require.ErrorIs(t, err, ErrDamaged)
			require.ErrorContains(t, err, "CRC")
			le.PutUint32(b[offCRC:], crc32.Checksum(b[:offCRC], castagnoli))
			_, err = decodePart(b[:])
			require.ErrorIs(t, err, ErrDamaged)
			require.NotContains(t, err.Error(), "CRC")
		})
	}
	var b [CopySize]byte
	h := samplePart()
	h.encode(b[:])
	b[offVersion] = 2
	le.PutUint32(b[offCRC:], crc32.Checksum(b[:offCRC], castagnoli))
	_, err := decodePart(b[:])
	require.ErrorIs(t, err, ErrVersion)
	_, err = decode(b[:])
	require.ErrorIs(t, err, ErrNoSuperblock, "a part is no region")

	// A region without parts has no stamp.
	s := sample()
	s.Parts, s.Stamp = 2, 1
	s.encode(b[:])
	b[offParts] = 0
	le.PutUint32(b[offCRC:], crc32.Checksum(b[:offCRC], castagnoli))
	_, err = decode(b[:])
	require.ErrorIs(t, err, ErrDamaged)
}

// The data of the parts lie behind each other in the region, and each file has its own.
func TestParts(t *testing.T) {
	onEachClass(t, func(t *testing.T, h host) {
		const n = 4
		paths := createdParts(t, h, n)
		r := openedParts(t, paths, h)
		require.Equal(t, paths, r.Parts())
		require.Equal(t, paths[0], r.Path())
		require.EqualValues(t, n*testSize, r.Size())
		require.EqualValues(t, n, r.Superblock().Parts)
		require.Equal(t, VersionParts, func() int { sb := r.Superblock(); return sb.Version() }())
		data := r.Data()
		require.Len(t, data, n*testSize)
		require.Equal(t, n*testSize, cap(data))
		for i := range data {
			data[i] = byte(i/testSize*64 + i%61)
		}
		require.NoError(t, r.FlushAll())
		require.NoError(t, r.Zero(persist.Range{Off: testSize - 1, Len: 2}))
		require.NoError(t, r.Update(func(sb *Superblock) error { sb.Epoch = 9; return nil }))
		data[testSize-1], data[testSize] = 1, 2
		stamp := r.Superblock().Stamp
		require.NoError(t, r.Close())
		require.NoError(t, r.Close(), "again")
		require.ErrorIs(t, r.Update(func(*Superblock) error { return nil }), ErrClosed)
		require.Empty(t, held(t, filepath.Dir(paths[0])))

		var all []byte
		for i, path := range paths {
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Len(t, b, DataOffset+testSize)
			all = append(all, b[DataOffset:]...)
			require.Equal(t, i > 0, isPart(b))
		}
		for i, b := range all {
			want := byte(i/testSize*64 + i%61)
			switch i {
			case testSize - 1:
				want = 1
			case testSize:
				want = 2
			}
			if b != want {
				t.Fatalf("byte %d", i)
			}
		}
		info, err := inspectPath(paths[0], h, paths[1:]...)
		require.NoError(t, err)
		require.EqualValues(t, 9, info.Superblock.Epoch)
		require.Equal(t, stamp, info.Superblock.Stamp)
		require.Len(t, info.Parts, n)
		for i, p := range info.Parts {
			require.Equal(t, PartInfo{
				Path: paths[i], Size: testSize, Start: uint64(i) * testSize, Stamp: stamp,
				Copies: [2]CopyState{CopyGood, CopyGood}, Class: info.Class,
			}, p)
		}
		r = openedParts(t, paths, h)
		require.Equal(t, stamp, r.Superblock().Stamp, "a start raises no stamp")
	})
}

// Each part can have a size and a kind of its own.
func TestPartsOfDevices(t *testing.T) {
	h := deviceHost(Platform{Domain: DomainMemory})
	file := hostOf(persist.ClassPMem, bootA)
	identify := h.memoryOf
	h.memoryOf = func(f *os.File) (medium.Memory, error) {
		if filepath.Base(f.Name()) != "dax0.0" {
			return file.memoryOf(f)
		}
		m, err := identify(f)
		m.Align = hugePage
		return m, err
	}
	a, c := newDevice(t, 4<<20), newDevice(t, 6<<20)
	b := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(b, make([]byte, 5<<20), 0o600))
	info, err := create(a, CreateOptions{Name: "r", Parts: []string{b, c}}, h)
	require.NoError(t, err)
	require.EqualValues(t, (2+2+4)<<20, info.Superblock.Size, "the file's odd MiB would leave the device behind it no place")
	require.Equal(t, []uint64{0, 2 << 20, 4 << 20}, []uint64{info.Parts[0].Start, info.Parts[1].Start, info.Parts[2].Start})
	r := openedParts(t, []string{a, b, c}, h)
	require.Equal(t, DomainNone, r.Platform().Domain, "the file's platform promises nothing")
	r.Data()[len(r.Data())-1] = 7
	require.NoError(t, r.FlushAll())
	require.NoError(t, r.Close())
	last, err := os.ReadFile(c)
	require.NoError(t, err)
	require.Equal(t, byte(7), last[len(last)-1])

	require.NoError(t, removeParts(a, false, h, []string{b, c}))
	require.NoFileExists(t, b)
	_, err = inspectPath(a, h)
	require.ErrorIs(t, err, ErrNoSuperblock)
	_, err = inspectPath(c, h)
	require.ErrorIs(t, err, ErrNoSuperblock)
}

// Parts that cannot be mapped behind each other are refused, before anything is changed.
func TestPartsAlign(t *testing.T) {
	const page, huge, giant = 4096, 2 << 20, 1 << 30
	whole := func(n uint64) uint64 { return n - DataOffset }
	for _, c := range []struct {
		name  string
		parts []part
		want  error
	}{
		{"files", []part{{mem: medium.Memory{}, size: 5 * page}, {size: 3 * page}, {size: page}}, nil},
		{"devices", []part{{mem: medium.Memory{Align: huge}, size: whole(8 * huge)}, {mem: medium.Memory{Align: huge}, size: 3 * huge}, {mem: medium.Memory{Align: huge}, size: page}}, nil},
		{"a file before a device", []part{{size: 5 * page}, {mem: medium.Memory{Align: huge}, size: huge}}, ErrAlign},
		{"a file behind a device that is not whole", []part{{mem: medium.Memory{Align: huge}, size: page}, {size: huge}}, ErrAlign},
		{"giant pages", []part{{mem: medium.Memory{Align: giant}, size: whole(giant)}, {mem: medium.Memory{Align: giant}, size: giant, data: giant}}, nil},
		{"giant pages behind huge ones", []part{{mem: medium.Memory{Align: huge}, size: whole(3 * huge)}, {mem: medium.Memory{Align: giant}, size: giant, data: giant}}, ErrAlign},
		{"giant pages with data in the first", []part{{mem: medium.Memory{Align: giant}, size: whole(giant)}, {mem: medium.Memory{Align: giant}, size: giant, data: huge}}, ErrAlign},
	} {
		t.Run(c.name, func(t *testing.T) {
			end := uint64(0)
			for i := range c.parts {
				p := &c.parts[i]
				p.path, p.start = "/dev/dax"+strconv.Itoa(i)+".0", end
				if end += p.size; p.data == 0 {
					p.data = DataOffset
				}
			}
			err := checkAligned(c.parts)
			require.ErrorIs(t, err, c.want)
			if c.want != nil {
				require.ErrorContains(t, err, "/dev/dax")
			}
		})
	}
	// With giant pages, a further part's data begin at the second one.
	parts := []part{{mem: medium.Memory{Device: 2 * giant, Align: giant}}, {mem: medium.Memory{Device: 3 * giant, Align: giant}}}
	require.NoError(t, divide(parts, make([]newPart, 2), 0))
	require.Equal(t, []uint64{whole(2 * giant), 2 * giant}, []uint64{parts[0].size, parts[1].size})
	require.EqualValues(t, giant, parts[1].data)
}

// The weakest part decides what the region is, and the reason names it.
func TestWeakestPart(t *testing.T) {
	of := func(class persist.Class, domain Domain, why string) medium.Memory {
		return medium.Memory{Class: class, Why: why, Platform: Platform{Domain: domain, Regions: []string{"region" + strconv.Itoa(int(class))}, Counted: domain != "", UnsafeShutdowns: 2}}
	}
	eadr, adr := of(persist.ClassPMem, DomainCaches, ""), of(persist.ClassPMem, DomainMemory, "")
	file, volatile := of(persist.ClassFile, "", ""), of(persist.ClassVolatile, "", "it may be DRAM")
	for _, c := range []struct {
		name   string
		parts  []medium.Memory
		class  persist.Class
		domain Domain
		why    string
	}{
		{"eADR", []medium.Memory{eadr, eadr}, persist.ClassPMem, DomainCaches, ""},
		{"eADR and ADR", []medium.Memory{eadr, adr, eadr}, persist.ClassPMem, DomainMemory, ""},
		{"ADR and a file", []medium.Memory{adr, file}, persist.ClassFile, DomainNone, "part B is"},
		{"a file and ADR", []medium.Memory{file, adr}, persist.ClassFile, DomainNone, "part A is"},
		{"eADR and DRAM", []medium.Memory{eadr, eadr, volatile}, persist.ClassVolatile, DomainNone, "part C: it may be DRAM"},
		{"a file and DRAM", []medium.Memory{file, volatile}, 0, "", "B is class volatile and A is class file"},
		{"no class for parts", []medium.Memory{file, of(99, "", "")}, 0, "", "B: memory refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var parts []part
			for i, m := range c.parts {
				parts = append(parts, part{path: string(rune('A' + i)), mem: m})
			}
			m, err := weakest(parts)
			if c.class == 0 {
				require.ErrorIs(t, err, ErrClass)
				require.ErrorContains(t, err, c.why)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.class, m.Class)
			require.Equal(t, c.domain, m.Platform.Domain)
			require.Contains(t, m.Why, c.why)
			r := Region{class: m.Class, platform: m.Platform}
			require.Equal(t, c.domain == DomainCaches, r.FencesOnly())
		})
	}
	m, err := weakest([]part{{mem: adr}, {mem: eadr}, {mem: medium.Memory{Class: persist.ClassPMem, DAX: true}}})
	require.NoError(t, err)
	require.True(t, m.DAX)
	require.Equal(t, []string{"region3"}, m.Platform.Regions)
	require.EqualValues(t, 4, m.Platform.UnsafeShutdowns)
}
