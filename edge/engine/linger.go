package engine

import (
	"time"

	"github.com/usher-edge/usher/edge/rawio"
)

// A connection that ends while its client may still be sending is read on: closing it
// would be a reset, which destroys the answer that the client has not read yet (RFC
// 9112 §9.6), and many write all that they have before they read a byte. What comes is
// dropped. A head that was refused is no exception: a body may follow it as well, and
// whoever means harm gets as much with a head that is valid.
const (
	lingerMost  = 30 * time.Second // in all
	lingerQuiet = 5 * time.Second  // without a byte
	lingerLast  = time.Second      // in all, once the server shuts down
)

// close ends the connection. Its goroutine calls it.
func (c *conn) close() {
	if !c.broken && (c.linger || c.mem != nil && c.mem.r < c.mem.w || c.sentMore()) {
		c.drain()
	}
	c.shut()
}

// shut is close without waiting for anything.
func (c *conn) shut() {
	c.disarm()
	if c.broken {
		reset(c.nc)
		return
	}
	_ = c.nc.Close() // nothing is left to say
}

// sentMore says whether there are bytes of the client that nobody has read.
func (c *conn) sentMore() (more bool) {
	c.onSocket(func(fd uintptr) {
		n, _ := rawio.Peek(fd, new([1]byte))
		more = n > 0
	})
	return more
}

// onSocket has f do something to the client's socket, if there is one, that is not
// closed.
func (c *conn) onSocket(f func(fd uintptr)) {
	switch {
	case c.fd != noFD:
		f(uintptr(c.fd))
	case c.raw != nil:
		_ = c.raw.Control(f) // fails only if closed
	}
}

// drain tells the client that nothing more comes, and reads until it ends, or sends no
// more, or has had its time.
func (c *conn) drain() {
	if h, ok := c.nc.(interface{ CloseWrite() error }); !ok || h.CloseWrite() != nil {
		return
	}
	if c.mem == nil {
		c.mem = c.srv.stock.get()
	}
	c.unpoke()
	most, hurried := after(c.srv.now(), c.srv.opt.linger), false
	for c.srv.now() < most {
		c.clock.wait(phaseIdle, min(most, after(c.srv.now(), lingerQuiet)))
		var n int
		if hurried || !c.srv.draining.Load() { // else Shutdown may have come before the wait
			n, _ = c.nc.Read(c.mem.texts[:]) // no request needs them any more
		}
		late := c.clock.rest().late()
		switch {
		case !hurried && c.srv.draining.Load():
			hurried, most = true, min(most, after(c.srv.now(), lingerLast))
			c.unpoke()
		case n == 0 || late:
			return
		}
	}
}

func (c *conn) disarm() {
	if c.armed.Swap(false) {
		c.srv.watcher.forget(c)
	}
}
