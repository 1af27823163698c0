package engine

import (
	"golang.org/x/sys/unix"

	"github.com/usher-edge/usher/edge/rawio"
)

// A client that closes its connection sends the same FIN as one that has ended what
// it sends and waits for its answer, and its kernel answers TCP's keep-alive for a
// minute more. But one that has closed answers whatever it is sent with a reset. So
// while it is waited for the app, a client that may have left is sent a few bytes
// that mean nothing to one that has not:
//   - before the head of its answer, 100 Continue (RFC 9110 §15.2.1), once;
//   - between two chunks, a zero: the next chunk's size begins with it, or it is one
//     of those that end the body (RFC 9112 §7.1).
//
// An answer with a length, or to HTTP/1.0, has no such bytes: there the keep-alive
// finds who has left.

// knock asks a client that has ended what it sends whether it is there, and watches
// for a reset. Where nobody can ask while the request is parked, the client counts as
// having left: it would be in the way of others for nothing.
//
// It is called by the watcher. The lock keeps the connection's goroutine, which may
// come back from its wait at any time, from writing meanwhile (soleWriter). Under it is
// one write, which cannot block.
func (c *conn) knock() {
	c.poking.Lock()
	defer c.poking.Unlock()
	switch {
	case c.clock.mark(askedBit, phasePark):
		if !c.sayGoOn() {
			c.parked.Load().Abandon()
			return
		}
	case c.clock.mark(askedBit, phaseLong):
		c.sayGoOn()
	case c.clock.mark(askedBit, phaseStall):
		if c.mem.res.ChunkedTo(c.mem.req.Minor) {
			c.send([]byte{'0'})
		}
	default:
		return // the wait is over
	}
	c.armAt(c.raw, watchReset)
}

// sayGoOn asks with 100 Continue. It reports false if that is not known to the
// client, or means something to it.
func (c *conn) sayGoOn() bool {
	m := c.mem
	if m.req.Minor == 0 || m.req.Expect {
		return false
	}
	if !m.continued {
		m.continued = true
		c.send(c.srv.text.goOn)
	}
	return true
}

// send sends a few bytes to the client, unless others are still on their way: those
// ask as well, and without them there is room for all. If it fails the watcher tells.
func (c *conn) send(b []byte) {
	_ = c.raw.Control(func(fd uintptr) { // fails only if closed
		if n, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); n == 0 && err == nil && !c.severed() {
			_, _ = rawio.Write(fd, b)
		}
	})
}

// soleWriter is told how a wait was left in which the client may be asked whether it
// is there, and returns that: if it is asked just then, that comes first.
func (c *conn) soleWriter(was interrupt) interrupt {
	if was.asked() {
		c.awaitKnock()
	}
	return was
}

func (c *conn) awaitKnock() {
	c.poking.Lock()
	defer c.poking.Unlock()
}
