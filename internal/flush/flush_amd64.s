//go:build amd64 && !noasm

#include "textflag.h"

// Each loop writes back `lines` lines of 64 bytes, starting with the one that holds *p.
// Then it fences on the same core, even if there were no lines.

// func clwb(p *byte, lines int)
TEXT ·clwb(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ lines+8(FP), CX
	ANDQ $~63, AX
	JMP  test

next:
	CLWB (AX)
	ADDQ $64, AX
	DECQ CX

test:
	TESTQ CX, CX
	JG    next
	SFENCE
	RET

// func clflushopt(p *byte, lines int)
TEXT ·clflushopt(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ lines+8(FP), CX
	ANDQ $~63, AX
	JMP  test

next:
	CLFLUSHOPT (AX)
	ADDQ $64, AX
	DECQ CX

test:
	TESTQ CX, CX
	JG    next
	SFENCE
	RET

// func clflush(p *byte, lines int)
TEXT ·clflush(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ lines+8(FP), CX
	ANDQ $~63, AX
	JMP  test

next:
	CLFLUSH (AX)
	ADDQ $64, AX
	DECQ CX

test:
	TESTQ CX, CX
	JG    next
	SFENCE
	RET

// func sfence()
TEXT ·sfence(SB), NOSPLIT, $0-0
	SFENCE
	RET

// func cpuid(leaf, sub uint32) (eax, ebx, ecx, edx uint32)
TEXT ·cpuid(SB), NOSPLIT, $0-24
	MOVL leaf+0(FP), AX
	MOVL sub+4(FP), CX
	CPUID
	MOVL AX, eax+8(FP)
	MOVL BX, ebx+12(FP)
	MOVL CX, ecx+16(FP)
	MOVL DX, edx+20(FP)
	RET
