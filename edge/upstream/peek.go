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
	n, err := rawio.Peek(fd, &c.peeked)
	switch {
	case err == syscall.EAGAIN:
		c.seen = quiet
	case err != nil || n == 0:
		c.seen = closed
	default:
		c.seen = talking
	}
}
