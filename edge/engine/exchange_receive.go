package engine

import (
	"syscall"
	"unsafe"

	"github.com/usher-edge/usher/edge"
	"github.com/usher-edge/usher/edge/http1"
	"github.com/usher-edge/usher/edge/rawio"
)

// A connection reads, decides and answers within one callback of
// syscall.RawConn.Read, for as many requests as follow each other. The poller
// is reset once, when the callback is entered, and notes from then on whatever
// happens on the socket. So a read that took less than it could have taken has
// emptied the socket, and the next one can wait to be told: there is no read
// that comes too early and fails. Returning false is waiting.
//
// What reads from the connection by itself, a pump or a tunnel, must not be
// within the callback, which would make it wait for ever; so it is left for
// those. Neither may anything within it close the connection.

// stretch serves requests until one cannot be served within the callback, the
// connection is over, or it waits for the next one for long.
func (c *conn) stretch() {
	if c.raw == nil {
		c.talk()
		return
	}
	c.drained = false
	err := c.raw.Read(c.turn)
	c.fd = noFD
	if err != nil {
		c.endWait()
	}
}

// takeTurn is called at once, and then whenever there may be something to read.
// It reports false to wait.
func (c *conn) takeTurn(fd uintptr) (leave bool) {
	c.fd, c.drained = int32(fd), false
	c.fetch()
	if c.clock.rest().late() {
		if c.mem != nil {
			return c.lateHead()
		}
		c.unpoke() // it was not too late after all
	}
	for !c.over {
		got, wait := c.receive()
		switch {
		case wait && c.goesHome():
			c.home = true
			return true
		case wait:
			return c.await()
		case c.isBad():
			c.reject()
		case !got:
		case c.readsItself():
			c.alone = true
			return true
		default:
			c.answer()
		}
	}
	return true
}

// fetch has what a request needs at hand by the time it has been read.
func (c *conn) fetch() {
	rawio.StackAhead(1792, 0)
	if c.lane != nil {
		rawio.Ahead(unsafe.Pointer(c.lane), unsafe.Sizeof(*c.lane))
	}
}

// talk is takeTurn where there is no socket: reading blocks.
func (c *conn) talk() {
	for !c.over {
		if got, wait := c.receive(); got {
			c.answer()
		} else if c.isBad() {
			c.reject()
		} else if wait {
			c.over = true
		}
	}
}

// await notes what is waited for. It reports true if that is over: an idle
// connection, when the server shuts down.
func (c *conn) await() (over bool) {
	if c.mem != nil {
		c.clock.wait(phaseHead, c.mem.headUntil)
		return false
	}
	c.clock.wait(phaseIdle, c.idleFrom())
	if c.srv.draining.Load() {
		c.clock.rest()
		c.over = true
	}
	return c.over
}

// receive reads until a head is complete (got), or there is nothing to read
// (wait), or the connection is over.
func (c *conn) receive() (got, wait bool) {
	for {
		if c.mem != nil {
			if got = c.parse(); got || c.isBad() {
				return got, false
			}
		}
		if c.drained && c.mem == nil {
			return false, true
		}
		n, err := c.readSome()
		switch {
		case err == syscall.EAGAIN:
			return false, true
		case n == 0 || err != nil:
			c.over = true
			return false, false
		}
	}
}

// parse looks for a whole head in what has been read.
func (c *conn) parse() (got bool) {
	m := c.mem
	n, err := m.req.Parse(m.unread(), &c.srv.opt.Limits)
	if err != nil {
		c.mem.bad = err
		return false
	}
	m.r += n
	if n == 0 && c.mem.headUntil == 0 {
		c.mem.headUntil = after(c.srv.now(), c.door.HeadTimeout)
	}
	return n > 0
}

// readSome reads into memory that it takes only for that. A read that fills its
// buffer may have left something behind, and so may one after a read that did:
// when data and the end of data arrive together the poller tells of both at once.
// That is why a client's first requests are followed by one more read.
func (c *conn) readSome() (int, error) {
	m := c.mem
	if m == nil {
		m = c.srv.stock.get()
	} else if m.w == len(m.in) {
		m.grow()
	}
	room := m.in[m.w:]
	var n int
	var err error
	if c.fd == noFD {
		n, err = c.readBlocking(room)
	} else {
		n, err = rawio.Read(uintptr(c.fd), room)
		c.drained = n > 0 && n < len(room) && c.settled
		c.settled = c.settled || n == 0 && c.lane != nil
	}
	switch {
	case n > 0:
		m.w += n
		c.mem = m
	case c.mem == nil:
		c.srv.stock.put(m)
	}
	return n, err
}

// readBlocking reads from what is no socket.
func (c *conn) readBlocking(room []byte) (int, error) {
	if c.mem == nil {
		c.clock.wait(phaseIdle, c.idleUntil)
		if c.srv.draining.Load() {
			c.clock.rest()
			return 0, nil
		}
	} else {
		c.clock.wait(phaseHead, c.mem.headUntil)
	}
	n, err := c.nc.Read(room)
	if c.clock.rest().late() && n == 0 && c.mem != nil {
		c.lateHead()
	}
	return n, err
}

// lateHead ends a connection whose head has taken too long.
func (c *conn) lateHead() (leave bool) {
	c.over = true
	c.rejectHead(edge.CauseHeadTimeout)
	return true
}

// readsItself says whether the exchange reads from the client: a body that is
// not here yet, or a tunnel.
func (c *conn) readsItself() bool {
	q := &c.mem.req
	return q.Upgrade != nil || q.Length == http1.Chunked || q.Length > int64(c.mem.w-c.mem.r)
}

// gather takes as much of a body as has come and fits into one buffer, so that
// most bodies need no pump. What has been gathered is kept until the request has
// ended: a second try finds it again. It reports whether that is all.
func (c *conn) gather() (all bool) {
	m := c.mem
	left := m.req.Length - m.try.bytesIn
	if left < 0 || m.req.Expect || c.raw == nil && c.loop == nil {
		return false
	}
	if m.more == nil {
		m.more, m.moreLen = c.srv.stock.bodies.Get(0), 0
	}
	if want := min(left, pumpSize); int64(m.moreLen) < want {
		c.onSocket(func(fd uintptr) { // what fails here fails where it is waited for
			for n := 1; n > 0 && int64(m.moreLen) < want; m.moreLen += n {
				n, _ = rawio.Read(fd, (*m.more)[m.moreLen:want])
			}
		})
	}
	_, n, all, _ := m.body.Next(m.gathered()) // no error: the body has a length
	m.try.bytesIn += int64(n)
	return all
}

// gathered is what gather has taken.
func (m *memory) gathered() []byte {
	if m.more == nil {
		return nil
	}
	return (*m.more)[:m.moreLen]
}
