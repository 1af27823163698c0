// Package rawio reads from and writes to the non-blocking sockets of Go's
// poller without telling the scheduler: a call that cannot block needs nobody
// to take over meanwhile, and saying so costs more than a small read.
//
// Guarantees:
//   - No call blocks but WaitBriefly. What would block fails with EAGAIN, and the
//     caller waits in the poller (by returning false from a callback of
//     syscall.RawConn, or in its own).
//   - A call that a signal interrupted is made again.
//   - Under the race detector the calls go through package syscall, which tells
//     it that bytes which were written before they were read order what happened
//     before and after.
//
// Callers may not assume that a descriptor is still theirs outside a callback of
// syscall.RawConn, unless it was lifted out of Go's poller.
package rawio

import "syscall"

// Read is recv(2). 0 without an error is the end of the data.
func Read(fd uintptr, b []byte) (int, error) {
	for {
		n, err := read(fd, b)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

// Write is send(2). It may take less than all of b, without an error.
func Write(fd uintptr, b []byte) (int, error) {
	for {
		n, err := write(fd, b)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

// WriteBoth is Write of two pieces as if they were one.
func WriteBoth(fd uintptr, a, b []byte) (int, error) {
	switch {
	case len(b) == 0:
		return Write(fd, a)
	case len(a) == 0:
		return Write(fd, b)
	}
	for {
		n, err := writeBoth(fd, a, b)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

// Peek is recv(2) of one byte that stays where it is. The error is bare, 0 for
// none: it mostly fails with EAGAIN, which is good news.
func Peek(fd uintptr, b *[1]byte) (int, syscall.Errno) {
	for {
		n, errno := peek(fd, b)
		if errno != syscall.EINTR {
			return max(n, 0), errno
		}
	}
}
