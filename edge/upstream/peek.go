package upstream

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// sight is what a look at a socket shows.
type sight uint8

const (
	quiet   sight = iota // open, nothing to read
	closed               // FIN, RST or error
	talking              // bytes to read
)

// look peeks at the socket without blocking and without taking anything.
func (c *Conn) look() sight {
	if c.raw == nil {
		return quiet
	}
	c.seen = closed // unless peek is called
	if err := c.raw.Control(c.peek); err != nil {
		return closed
	}
	return c.seen
}

// peekAt is the callback of look, kept in c.peek so that looking allocates
// nothing.
func (c *Conn) peekAt(fd uintptr) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&c.peeked)), 1,
			unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0)
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			c.seen = quiet
		case errno != 0 || n == 0:
			c.seen = closed
		default:
			c.seen = talking
		}
		return
	}
}
