//go:build arm64 && !noasm

#include "textflag.h"

// func dccvap(p *byte, lines, size int)
//
// Cleans `lines` lines of `size` bytes to the point of persistence, starting with the one
// that holds *p. Then it waits on the same core until they are there: a DC CVAP is
// complete only behind a DSB (Arm ARM DDI 0487). It does so even if there were no lines.
TEXT ·dccvap(SB), NOSPLIT, $0-24
	MOVD p+0(FP), R0
	MOVD lines+8(FP), R1
	MOVD size+16(FP), R2
	SUB  $1, R2, R3
	BIC  R3, R0, R0
	B    test

next:
	DC  CVAP, R0
	ADD R2, R0, R0
	SUB $1, R1, R1

test:
	CMP $0, R1
	BGT next
	DSB $15         // SY
	RET

// func dsb()
TEXT ·dsb(SB), NOSPLIT, $0-0
	DSB $15 // SY
	RET

// func ctr() uint64
TEXT ·ctr(SB), NOSPLIT, $0-8
	MRS  CTR_EL0, R0
	MOVD R0, ret+0(FP)
	RET
