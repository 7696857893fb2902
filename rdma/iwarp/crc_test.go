package iwarp

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func randomBytes(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(p)
	return p
}

// The wide instructions, on a CPU that has them, compute the same CRC as the standard library, for every length and
// alignment, and from every state.
func TestCRC(t *testing.T) {
	p := randomBytes(3*maxFPDU + 64)
	check := func(crc uint32, p []byte) {
		if want, got := crc32.Update(crc, castagnoli, p), updateCRC(crc, p); want != got {
			require.Equal(t, want, got, "%d bytes", len(p))
		}
	}
	for n := range 2100 {
		check(rand.Uint32(), p[n%64:n%64+n])
	}
	for range 200 {
		at := rand.IntN(len(p))
		check(rand.Uint32(), p[at:at+rand.IntN(len(p)-at+1)])
	}
}

func BenchmarkCRC(b *testing.B) {
	for _, n := range []int{64, 512, 4096, 64 << 10} {
		p := randomBytes(n)
		for name, update := range map[string]func(uint32, []byte) uint32{
			"standard": func(crc uint32, p []byte) uint32 { return crc32.Update(crc, castagnoli, p) },
			"ours":     updateCRC,
		} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.SetBytes(int64(n))
				crc := uint32(0)
				for b.Loop() {
					crc = update(crc, p)
				}
			})
		}
	}
}

// The CRC reads nothing beside what it is given: there may be no memory.
func TestCRCReadsNothingBeside(t *testing.T) {
	page := os.Getpagesize()
	mem, err := unix.Mmap(-1, 0, 4*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(mem)) }()
	require.NoError(t, unix.Mprotect(mem[:page], unix.PROT_NONE))
	require.NoError(t, unix.Mprotect(mem[3*page:], unix.PROT_NONE))
	in := mem[page : 3*page]
	copy(in, randomBytes(len(in)))
	for n := range len(in) + 1 {
		for _, p := range [][]byte{in[:n], in[len(in)-n:]} {
			if want, got := crc32.Update(1, castagnoli, p), updateCRC(1, p); want != got {
				require.Equal(t, want, got, "%d bytes", n)
			}
		}
	}
}
