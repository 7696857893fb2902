// Package flush writes CPU cache lines back to memory, only for this module; it promises
// nothing to other programs. It is how a CPU makes stores to persistent memory durable
// (design §3.3).
//
// It exists so that the instruction, its fence and the arithmetic of lines are in one
// place and can be counted. The assembly has a portable twin, which builds everywhere and
// writes nothing back. Instruction says which one runs.
package flush

// pieceSize is the most bytes that are written back before a fence. The loop in assembly
// cannot be preempted, and 1 MiB takes it some tens of microseconds (design §3.3).
const pieceSize = 1 << 20

// A method is one way to write lines back.
type method struct {
	name string
	line int // the size in bytes of a cache line, which the instruction writes back
	// writeBack writes back lines cache lines, starting with the one that holds *p, and
	// then fences. The goroutine must not change its core between the two.
	writeBack func(p *byte, lines int)
	fence     func()
}

// portable is the twin without assembly. Go cannot write a line back, so portable does
// nothing. Its name says so.
var portable = method{
	name:      None,
	line:      64, // any size would do
	writeBack: func(*byte, int) {},
	fence:     func() {},
}

var best = detect()

// Lines writes back every cache line that b touches, each once. It works in pieces of at
// most pieceSize, with a store fence behind each. When it returns, b is durable if it is
// persistent memory of an ADR platform.
func Lines(b []byte) { best.lines(b) }

// Fence orders and drains stores and writes no lines back. Nothing else is needed where
// the CPU caches are in the persistence domain (eADR).
func Fence() { best.fence() }

// Instruction names the instruction that Lines uses: "clwb", "clflushopt", "clflush", "dc
// cvap", or None if this CPU or build cannot write lines back.
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

// piece returns the size in bytes of the first piece of n > 0 bytes at addr, and how many
// lines the piece touches. A piece ends where a line ends, so no line is in two pieces.
func (m *method) piece(addr uintptr, n int) (size, lines int) {
	head := int(addr % uintptr(m.line))
	size = min(n, pieceSize-head)
	return size, (head + size + m.line - 1) / m.line
}
