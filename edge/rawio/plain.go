//go:build !race

package rawio

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What read(2) and write(2) do on a socket, by the calls that are for sockets:
// they leave out what is for files, which is a tenth of a small read.
func read(fd uintptr, b []byte) (int, error) {
	return result(call(unix.SYS_RECVFROM, fd, unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)), 0))
}

func write(fd uintptr, b []byte) (int, error) {
	return result(call(unix.SYS_SENDTO, fd, unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)), unix.MSG_NOSIGNAL))
}

func writeBoth(fd uintptr, a, b []byte) (int, error) {
	v := [2]unix.Iovec{{Base: unsafe.SliceData(a)}, {Base: unsafe.SliceData(b)}}
	v[0].SetLen(len(a))
	v[1].SetLen(len(b))
	return result(call(unix.SYS_WRITEV, fd, unsafe.Pointer(&v[0]), uintptr(len(v)), 0))
}

func peek(fd uintptr, b *[1]byte) (int, syscall.Errno) {
	n := call(unix.SYS_RECVFROM, fd, unsafe.Pointer(b), 1, unix.MSG_PEEK|unix.MSG_DONTWAIT)
	if n < 0 {
		return 0, syscall.Errno(-n)
	}
	return n, 0
}

func result(n int) (int, error) {
	if n < 0 {
		return 0, syscall.Errno(-n)
	}
	return n, nil
}
