//go:build arm64 && !noasm

package flush

import "golang.org/x/sys/cpu"

// Implemented in flush_arm64.s. p escapes on purpose: see address.
func dccvap(p *byte, lines, size int)
func dsb()
func ctr() uint64

// detect returns the best method of this CPU.
func detect() method { return available()[0] }

// available lists the methods of this CPU, best first. DC CVAP cleans to the point of
// persistence. It needs ARMv8.2's FEAT_DPB, which the kernel reports and lets us use. DC
// CVAC is no substitute: its point of coherency may lie in front of the memory, and the
// architecture does not say that what has reached it survives a power failure.
func available() []method {
	// CTR_EL0 bits 19:16: the binary logarithm of the size of the smallest data cache
	// line, in words of 4 bytes.
	size := 4 << (ctr() >> 16 & 0xf)
	if !cpu.ARM64.HasDCPOP || size > pieceSize {
		return []method{portable}
	}
	return []method{{
		name: "dc cvap", line: size, fence: dsb,
		writeBack: func(p *byte, lines int) { dccvap(p, lines, size) },
	}, portable}
}
