package rawio

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Lift is a descriptor of the same socket, for who looks after descriptors by itself. The
// caller closes nc, which takes that one out of Go's poller; the socket lives on.
func Lift(nc net.Conn) (fd int, err error) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return 0, fmt.Errorf("lift: %T has no descriptor", nc)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("lift: %w", err)
	}
	var failed error
	err = raw.Control(func(old uintptr) { fd, failed = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, failed); err != nil {
		return 0, fmt.Errorf("lift: %w", err)
	}
	return fd, nil
}

// Land is the way back: it gives a socket to Go's poller. The caller closes fd. For a
// moment that takes two descriptors more. After an error fd is as it was.
func Land(fd int) (net.Conn, error) {
	lent, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("land: %w", err)
	}
	f := os.NewFile(uintptr(lent), "")
	nc, err := net.FileConn(f)
	_ = f.Close() // nothing was written
	if err != nil {
		_ = unix.SetNonblock(fd, true) // os.File has unset that, for all descriptors of the socket
		return nil, fmt.Errorf("land: %w", err)
	}
	return nc, nil
}

// WaitBriefly is epoll_pwait(2) for no longer than that, in whole milliseconds, without
// telling the scheduler: meanwhile its processor runs nobody else, unless the runtime
// interrupts it. No event without an error means that none came, or it was interrupted.
func WaitBriefly(epoll int, events []unix.EpollEvent, limit time.Duration) (int, error) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(unsafe.SliceData(events))),
		uintptr(len(events)), uintptr(limit/time.Millisecond), 0, 0)
	switch errno {
	case 0:
		return int(n), nil
	case unix.EINTR:
		return 0, nil
	default:
		return 0, fmt.Errorf("wait for events: %w", errno)
	}
}
