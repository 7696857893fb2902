package flush

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// counter is a method that counts how often it wrote back each line.
type counter struct {
	line   int     // the size of a line in bytes
	first  uintptr // the address of the first line
	lines  []int
	fences int
	most   int // the most bytes between two fences
}

func (c *counter) method() method {
	return method{name: "counter", line: c.line, fence: func() { c.fences++ }, writeBack: func(p *byte, lines int) {
		at := (addressOf(p) - c.first) / uintptr(c.line)
		for i := range lines {
			c.lines[int(at)+i]++
		}
		c.fences++
		c.most = max(c.most, lines*c.line)
	}}
}

func mapped(t testing.TB, n int) []byte {
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(mem)) })
	return mem
}

// Lines writes back every line that a range touches exactly once, and no other line. A
// fence follows at least every pieceSize. This holds for every alignment and for each
// size of line: 64 bytes on amd64, 16 to 2048 on arm64.
func TestEachLineOnce(t *testing.T) {
	mem := mapped(t, 4<<20)
	lines := map[int]bool{32: true, 64: true, 128: true}
	for _, m := range available() {
		lines[m.line] = true
	}
	for line := range lines {
		t.Run(fmt.Sprintf("lines of %d", line), func(t *testing.T) { testEachLineOnce(t, mem, line) })
	}
}

func testEachLineOnce(t *testing.T, mem []byte, line int) {
	var spans []span
	for off := range 2*line + 1 { // every alignment of both ends
		for n := range 3*line + 1 {
			spans = append(spans, span{off, n})
		}
	}
	for _, off := range []int{0, 1, line - 1, line} { // the ends of pieces
		for _, n := range []int{
			pieceSize - line - 1, pieceSize - line, pieceSize - 1, pieceSize, pieceSize + 1,
			2*pieceSize - 1, 2 * pieceSize, 2*pieceSize + line, 3*pieceSize + 1,
		} {
			spans = append(spans, span{off, n})
		}
	}
	counts := make([]int, len(mem)/line)
	for _, s := range spans {
		c := counter{line: line, first: address(mem), lines: counts}
		m := c.method()
		m.lines(mem[s.off : s.off+s.n])
		touched := 0
		if s.n > 0 {
			first, last := s.off/line, (s.off+s.n-1)/line
			touched = last - first + 1
			for i := first; i <= last; i++ {
				if counts[i] != 1 {
					t.Fatalf("%+v: line %d was written back %d times", s, i, counts[i])
				}
				counts[i] = 0
			}
			for _, i := range []int{first - 1, last + 1} {
				if i >= 0 && counts[i] != 0 {
					t.Fatalf("%+v: line %d was written back and lies outside", s, i)
				}
			}
		}
		if want := (touched*line + pieceSize - 1) / pieceSize; c.most > pieceSize || c.fences != want {
			t.Fatalf("%+v: %d fences instead of %d; %d bytes before one of them", s, c.fences, want, c.most)
		}
	}
	for i, n := range counts {
		if n != 0 {
			t.Fatalf("line %d lies outside every range", i)
		}
	}
}

// Every method of the CPU runs over real memory, changes none of its bytes, and stays
// inside it: a touch of the page behind would be a fault.
func TestMethodsLeaveDataAlone(t *testing.T) {
	const size = pieceSize + 4096
	mem := mapped(t, size+4096)
	require.NoError(t, unix.Mprotect(mem[size:], unix.PROT_NONE))
	mem = mem[:size]
	for i := range mem {
		mem[i] = byte(i * 7)
	}
	for _, m := range available() {
		t.Run(m.name, func(t *testing.T) {
			for _, s := range [][2]int{{0, 0}, {0, 1}, {1, 65}, {63, 65}, {0, size}, {1, size}, {size - 1, size}} {
				m.lines(mem[s[0]:s[1]])
			}
			m.fence()
			for i := range mem {
				if mem[i] != byte(i*7) {
					t.Fatalf("byte %d changed", i)
				}
			}
		})
	}
}

// Lines works on memory that is mapped read-only.
func TestLinesOnReadOnlyMapping(t *testing.T) {
	mem, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	Lines(mem)
	Lines(mem[1:2])
	Lines(nil)
	Fence()
	require.NoError(t, unix.Munmap(mem))
}

func TestInstruction(t *testing.T) {
	require.Contains(t, []string{"clwb", "clflushopt", "clflush", "dc cvap", None}, Instruction())
	require.Equal(t, available()[0].name, Instruction())
	t.Logf("this CPU and build: %s", Instruction())
}

func TestNoAllocation(t *testing.T) {
	mem := mapped(t, 8192)
	require.Zero(t, testing.AllocsPerRun(100, func() { Lines(mem[1:4099]); Fence() }))
}

func BenchmarkLines(b *testing.B) {
	mem := mapped(b, pieceSize)
	for _, m := range available() {
		for _, n := range []int{4096, pieceSize} {
			b.Run(fmt.Sprintf("%s/%d", m.name, n), func(b *testing.B) {
				b.SetBytes(int64(n))
				for i := range b.N {
					mem[i%n]++
					m.lines(mem[:n])
				}
			})
		}
	}
}
