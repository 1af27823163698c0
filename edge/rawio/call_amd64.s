//go:build !race

#include "textflag.h"

// func call(trap, fd uintptr, p unsafe.Pointer, n, flags uintptr) int
TEXT ·call(SB), NOSPLIT, $0-48
	MOVQ trap+0(FP), AX
	MOVQ fd+8(FP), DI
	MOVQ p+16(FP), SI
	MOVQ n+24(FP), DX
	MOVQ flags+32(FP), R10
	XORL R8, R8
	XORL R9, R9
	SYSCALL
	MOVQ AX, ret+40(FP)
	RET
