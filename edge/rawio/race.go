//go:build race

package rawio

import "syscall"

func read(fd uintptr, b []byte) (int, error) { return syscall.Read(int(fd), b) }

func write(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }
