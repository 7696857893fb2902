//go:build amd64 && !noasm

package flush

// lineSize is the size in bytes of a line that the assembly assumes. No known CPU has
// another one, and available verifies it.
const lineSize = 64

// The methods in assembly. CLWB keeps the line in the cache. CLFLUSHOPT evicts it.
// CLFLUSH evicts it and waits for the CLFLUSH before it (Intel SDM vol. 2A).
var (
	byCLWB       = method{name: "clwb", line: lineSize, writeBack: clwb, fence: sfence}
	byCLFLUSHOPT = method{name: "clflushopt", line: lineSize, writeBack: clflushopt, fence: sfence}
	byCLFLUSH    = method{name: "clflush", line: lineSize, writeBack: clflush, fence: sfence}
)

// Implemented in flush_amd64.s. p escapes on purpose: see address.
func clwb(p *byte, lines int)
func clflushopt(p *byte, lines int)
func clflush(p *byte, lines int)
func sfence()
func cpuid(leaf, sub uint32) (eax, ebx, ecx, edx uint32)

// detect returns the best method of this CPU.
func detect() method { return available()[0] }

// available lists the methods of this CPU, best first.
func available() []method {
	// CPUID leaf 1: EDX bit 19 is CLFSH, EBX bits 15:8 are the size of a line in units of
	// 8 bytes. Leaf 7: EBX bit 23 is CLFLUSHOPT, bit 24 is CLWB.
	maxLeaf, _, _, _ := cpuid(0, 0)
	_, ebx1, _, edx1 := cpuid(1, 0)
	if edx1>>19&1 == 0 || ebx1>>8&0xff*8 != lineSize {
		return []method{portable}
	}
	var ms []method
	if maxLeaf >= 7 {
		_, ebx7, _, _ := cpuid(7, 0)
		if ebx7>>24&1 != 0 {
			ms = append(ms, byCLWB)
		}
		if ebx7>>23&1 != 0 {
			ms = append(ms, byCLFLUSHOPT)
		}
	}
	return append(ms, byCLFLUSH, portable)
}
