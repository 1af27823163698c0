//go:build !race && !amd64

package rawio

import (
	"syscall"
	"unsafe"
)

// call makes a system call: what is negative is an error's number.
func call(trap, fd uintptr, p unsafe.Pointer, n, flags uintptr) int {
	r, _, errno := syscall.RawSyscall6(trap, fd, uintptr(p), n, flags, 0, 0)
	if errno != 0 {
		return -int(errno)
	}
	return int(r)
}
