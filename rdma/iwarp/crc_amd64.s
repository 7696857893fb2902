//go:build amd64 && !noasm

#include "textflag.h"

// The numbers by which the halves of 16 bytes are multiplied to stand for the same bytes D
// bits further on: x^(D+32) and x^(D-32) modulo the polynomial, bits reversed, times two.
DATA fold2048<>+0(SB)/8, $0xdcb17aa4
DATA fold2048<>+8(SB)/8, $0xb9e02b86
GLOBL fold2048<>(SB), RODATA|NOPTR, $16
DATA fold512<>+0(SB)/8, $0x740eef02
DATA fold512<>+8(SB)/8, $0x9e4addf8
GLOBL fold512<>(SB), RODATA|NOPTR, $16
DATA fold128<>+0(SB)/8, $0xf20c0dfe
DATA fold128<>+8(SB)/8, $0x14cd00bd6
GLOBL fold128<>(SB), RODATA|NOPTR, $16

// FOLD makes next the bytes of acc, moved by k's distance, plus next.
#define FOLD(acc, k, next) \
	VPCLMULQDQ $0x00, k, acc, Z8; \
	VPCLMULQDQ $0x11, k, acc, Z9; \
	VPTERNLOGQ $0x96, Z8, Z9, next

// FOLD128 is FOLD of 16 bytes.
#define FOLD128(acc, next) \
	VPCLMULQDQ $0x00, X7, acc, X8; \
	VPCLMULQDQ $0x11, X7, acc, X9; \
	VPXOR X8, next, next; \
	VPXOR X9, next, next

// func foldCRC(state uint32, p []byte) uint32
TEXT ·foldCRC(SB), NOSPLIT, $0-36
	MOVL state+0(FP), AX
	MOVQ p_base+8(FP), SI
	MOVQ p_len+16(FP), CX

	// The state is added to the first bytes.
	VMOVD     AX, X4
	VMOVDQU64 (SI), Z0
	VPXORQ    Z4, Z0, Z0
	VMOVDQU64 64(SI), Z1
	VMOVDQU64 128(SI), Z2
	VMOVDQU64 192(SI), Z3
	ADDQ      $256, SI
	SUBQ      $256, CX

	VBROADCASTI32X4 fold2048<>(SB), Z7
	JMP             test256

next256:
	VMOVDQU64  (SI), Z4
	VMOVDQU64  64(SI), Z5
	VMOVDQU64  128(SI), Z6
	VMOVDQU64  192(SI), Z10
	FOLD(Z0, Z7, Z4)
	FOLD(Z1, Z7, Z5)
	FOLD(Z2, Z7, Z6)
	FOLD(Z3, Z7, Z10)
	VMOVDQA64  Z4, Z0
	VMOVDQA64  Z5, Z1
	VMOVDQA64  Z6, Z2
	VMOVDQA64  Z10, Z3
	ADDQ       $256, SI
	SUBQ       $256, CX

test256:
	CMPQ CX, $256
	JGE  next256

	// 256 bytes become the last 64 of them.
	VBROADCASTI32X4 fold512<>(SB), Z7
	FOLD(Z0, Z7, Z1)
	FOLD(Z1, Z7, Z2)
	FOLD(Z2, Z7, Z3)
	JMP  test64

next64:
	VMOVDQU64 (SI), Z4
	FOLD(Z3, Z7, Z4)
	VMOVDQA64 Z4, Z3
	ADDQ      $64, SI
	SUBQ      $64, CX

test64:
	CMPQ CX, $64
	JGE  next64

	// And these the last 16.
	VMOVDQU       fold128<>(SB), X7
	VEXTRACTI32X4 $1, Z3, X1
	VEXTRACTI32X4 $2, Z3, X2
	VEXTRACTI32X4 $3, Z3, X4
	FOLD128(X3, X1)
	FOLD128(X1, X2)
	FOLD128(X2, X4)

	// Their CRC is that of all.
	VMOVQ   X4, AX
	VPEXTRQ $1, X4, BX
	XORL    DX, DX
	CRC32Q  AX, DX
	CRC32Q  BX, DX
	VZEROUPPER
	MOVL    DX, ret+32(FP)
	RET
