//go:build race

package rawio

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func read(fd uintptr, b []byte) (int, error) { return syscall.Read(int(fd), b) }

func writeBoth(fd uintptr, a, b []byte) (int, error) {
	n, err := Write(fd, a)
	if n < len(a) || err != nil {
		return n, err
	}
	m, err := Write(fd, b)
	if err == syscall.EAGAIN {
		err = nil // as if it had taken a part of one piece
	}
	return n + m, err
}

func write(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }

func peek(fd uintptr, b *[1]byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(b)), 1,
		unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}
