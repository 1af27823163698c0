//go:build !race

package rawio

import "unsafe"

// call makes a system call as syscall.RawSyscall6 does: what is negative is an
// error's number. It stands here and not two packages away because a system call
// leaves the processor without a way to find any code: each place on another page
// that is returned through is looked up again, which costs more than what is done
// there.
//
//go:noescape
func call(trap, fd uintptr, p unsafe.Pointer, n, flags uintptr) int
