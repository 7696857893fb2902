// Package flush writes CPU cache lines back to memory: the mechanism with which
// a CPU makes stores to persistent memory durable (design §3.3).
//
// It exists so that the instruction, its fence and the arithmetic of lines are in
// one place, and can be counted. It owns nothing and imports nothing of ours.
// The assembly has a portable twin, which builds everywhere and cannot write
// back anything: Instruction says which one runs.
package flush

// pieceSize is the most that is written back before a fence, in bytes: the loop
// in assembly cannot be preempted, and at 1 MiB it takes some tens of
// microseconds (design §3.3).
const pieceSize = 1 << 20

// A method is one way to write lines back.
type method struct {
	name string
	line int // what it writes back at a time, in bytes: the CPU's cache line
	// writeBack writes back lines cache lines from the one that holds *p on, then
	// fences, all on one core: the goroutine must not move between the two.
	writeBack func(p *byte, lines int)
	fence     func()
}

// portable is the twin without assembly. Go has no instruction that writes a
// line back, so it does nothing, and its name says so.
var portable = method{
	name:      None,
	line:      64, // any would do
	writeBack: func(*byte, int) {},
	fence:     func() {},
}

var best = detect()

// Lines writes back every cache line that b touches, each once, in pieces of at
// most pieceSize, each followed by a store fence. On persistent memory of an ADR
// platform b is durable when it returns.
func Lines(b []byte) { best.lines(b) }

// Fence orders and drains stores without writing lines back: all that is needed
// where the CPU caches are in the persistence domain (eADR).
func Fence() { best.fence() }

// Instruction names what Lines uses: "clwb", "clflushopt", "clflush", "dc cvap",
// or None where lines cannot be written back.
func Instruction() string { return best.name }

// None is the Instruction of CPUs and builds that cannot write lines back.
const None = "none"

func (m *method) lines(b []byte) {
	for len(b) > 0 {
		n, lines := m.piece(address(b), len(b))
		m.writeBack(&b[0], lines)
		b = b[n:]
	}
}

// piece is the first piece of n > 0 bytes at addr: its length in bytes and how
// many lines it touches. A piece ends on a line's end, so that the next one
// starts on a line of its own.
func (m *method) piece(addr uintptr, n int) (size, lines int) {
	head := int(addr % uintptr(m.line))
	size = min(n, pieceSize-head)
	return size, (head + size + m.line - 1) / m.line
}
