package upstream

import (
	"syscall"

	"github.com/usher-edge/usher/edge/rawio"
)

// sight is what a look at a socket shows.
type sight uint8

const (
	quiet   sight = iota // open, nothing to read
	closed               // FIN, RST or error
	talking              // bytes to read
)

// noFD stands for a socket whose descriptor is not at hand.
const noFD = -1

// look peeks at the socket without blocking and without taking anything. fd is as
// for begin.
func (c *Conn) look(fd int) sight {
	if c.home != nil {
		fd = c.fd
	}
	switch {
	case c.raw == nil && c.home == nil:
		return quiet
	case fd != noFD:
		c.peekAt(uintptr(fd))
		return c.seen
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
	n, errno := rawio.Peek(fd, &c.peeked)
	switch {
	case errno == syscall.EAGAIN:
		c.seen = quiet
	case errno != 0 || n == 0:
		c.seen = closed
	default:
		c.seen = talking
	}
}
