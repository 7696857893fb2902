//go:build amd64 && !noasm

package iwarp

import (
	"hash/crc32"

	"golang.org/x/sys/cpu"
)

// wideCRC says whether this CPU multiplies 64 bytes at a time.
var wideCRC = cpu.X86.HasAVX512F && cpu.X86.HasAVX512VPCLMULQDQ && cpu.X86.HasSSE42

// minWide is the least length, in bytes, for which the wide instructions are worth while.
// Control messages and headers are shorter.
const minWide = 512

// updateCRC is crc32.Update with the table castagnoli.
func updateCRC(crc uint32, p []byte) uint32 {
	if !wideCRC || len(p) < minWide {
		return crc32.Update(crc, castagnoli, p)
	}
	n := len(p) &^ 63
	return crc32.Update(^foldCRC(^crc, p[:n]), castagnoli, p[n:])
}

// foldCRC returns the state of the CRC behind p, whose length is a multiple of 64 and at
// least 256. The state is the CRC with all bits inverted.
//
//go:noescape
func foldCRC(state uint32, p []byte) uint32
