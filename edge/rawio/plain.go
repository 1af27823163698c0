//go:build !race

package rawio

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What read(2) and write(2) do on a socket, by the calls that are for sockets:
// they leave out what is for files, which is a tenth of a small read. They are
// made through package syscall, as x/sys has one more layer on top of it.
func read(fd uintptr, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0, 0, 0)
	return result(n, errno)
}

func write(fd uintptr, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_NOSIGNAL, 0, 0)
	return result(n, errno)
}

func writeBoth(fd uintptr, a, b []byte) (int, error) {
	v := [2]unix.Iovec{{Base: unsafe.SliceData(a)}, {Base: unsafe.SliceData(b)}}
	v[0].SetLen(len(a))
	v[1].SetLen(len(b))
	n, _, errno := syscall.RawSyscall(unix.SYS_WRITEV, fd, uintptr(unsafe.Pointer(&v[0])), uintptr(len(v)))
	return result(n, errno)
}

func result(n uintptr, errno syscall.Errno) (int, error) {
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
