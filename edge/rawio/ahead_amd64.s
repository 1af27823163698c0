#include "textflag.h"

// func Ahead(p unsafe.Pointer, n uintptr)
TEXT ·Ahead(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ n+8(FP), CX
line:
	PREFETCHT0 (AX)
	ADDQ $64, AX
	SUBQ $64, CX
	JHI line
	RET

// func StackAhead(below, above uintptr)
TEXT ·StackAhead(SB), NOSPLIT, $0-16
	MOVQ below+0(FP), CX
	MOVQ SP, AX
	SUBQ CX, AX
	ADDQ above+8(FP), CX
line:
	PREFETCHT0 (AX)
	ADDQ $64, AX
	SUBQ $64, CX
	JHI line
	RET
