package rawio

import "unsafe"

// Ahead has the processor fetch n bytes at p, n > 0, which are about to be used. A
// connection that was waited for has gone cold where there are hundreds: what it
// needs is fetched while a system call runs, and not line by line afterwards.
//
//go:noescape
func Ahead(p unsafe.Pointer, n uintptr)

// StackAhead is Ahead for the caller's stack: what calls will use, below, and what
// returns will, above. One of them must not be 0. It may reach beyond the stack.
func StackAhead(below, above uintptr)
