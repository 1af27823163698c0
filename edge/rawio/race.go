//go:build race

package rawio

import "syscall"

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
