package upstream

import (
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/usher-edge/usher/edge/http1"
	"github.com/usher-edge/usher/edge/rawio"
)

// Home is a poller beside Go's: an event loop that looks after connections by their
// descriptors. A connection that is there is bare: only what never waits can be done
// with it, AskNow, GoOn, Piece, ReadBody, Move, Put and Discard, until it lands.
type Home struct{ Epoll int }

// ErrWait means that nothing has come yet on a bare connection: its loop will be told.
var ErrWait = errors.New("upstream: nothing to read yet")

// Take is Get for a loop, which does not wait: nil means that there is nothing idle, or
// nothing that this request may use. new says that the connection has just come to h
// and is to be added to its epoll set.
func (p *Pool) Take(h *Home, idempotent bool) (c *Conn, isNew bool) {
	p.mu.Lock()
	c = p.pick(h, idempotent)
	p.mu.Unlock()
	if c == nil {
		return nil, false
	}
	if c.home != h {
		if c.moveTo(h) != nil {
			p.Discard(c)
			return nil, false
		}
		isNew = true
	}
	c.reuse()
	return c, isNew
}

// moveTo makes an idle connection that nobody else has bare, or takes a bare one from
// another loop.
func (c *Conn) moveTo(h *Home) error {
	if c.home != nil {
		if err := unix.EpollCtl(c.home.Epoll, unix.EPOLL_CTL_DEL, c.fd, nil); err != nil {
			return err
		}
		c.settle(nil, c.fd, h)
		return nil
	}
	nc := c.net
	fd, err := rawio.Lift(nc)
	if err == nil {
		c.settle(nil, fd, h)
		_ = nc.Close() // the socket lives on
	}
	return err
}

// Land gives a bare connection to Go's poller, by a function like rawio.Land. After an
// error it is as it was, but for its loop's events.
func (c *Conn) Land(land func(fd int) (net.Conn, error)) error {
	_ = unix.EpollCtl(c.home.Epoll, unix.EPOLL_CTL_DEL, c.fd, nil) // fails only if it was never added
	fd := c.fd
	nc, err := land(fd)
	if err == nil {
		c.settle(nc, 0, nil)
		_ = unix.Close(fd) // the socket lives on
	}
	return err
}

// settle changes by what the socket is known, which by then is known by both.
func (c *Conn) settle(nc net.Conn, fd int, h *Home) {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	c.net, c.raw, c.fd, c.home = nc, nil, fd, h
	if nc != nil {
		c.raw = rawOf(nc)
	}
	if c.pool.closed {
		c.shut()
	}
}

// shut ends the socket, whoever uses it: he closes it. The pool's lock is held.
func (c *Conn) shut() {
	if c.home != nil {
		_ = unix.Shutdown(c.fd, unix.SHUT_RDWR) // fails only if the app has ended it
		return
	}
	_ = c.net.Close() // what is closed already is ended
}

// close closes the socket.
func (c *Conn) close() {
	if c.home != nil {
		_ = unix.Close(c.fd) // nothing was left to say
		return
	}
	_ = c.net.Close()
}

// FD is the descriptor of a bare connection.
func (c *Conn) FD() int { return c.fd }

// Bare says whether a loop has the connection.
func (c *Conn) Bare() bool { return c.home != nil }

// AskNow is Ask without waiting: it sends what the app takes at once. over means that
// there is nothing to wait for, as after GoOn.
func (c *Conn) AskNow(head, body []byte, res *http1.Response, method []byte) (over bool) {
	res.Reset()
	c.asked = question{out: head, body: body, res: res, method: method, sent: true}
	return c.sendOn(uintptr(c.fd))
}

// GoOn is for when there is something to read after AskNow. over means that the head of
// the answer is here, or will never be, as Outcome says.
func (c *Conn) GoOn() (over bool) { return c.headOn(uintptr(c.fd)) }

// Emptied says that the last read took less than it could have taken, so that more will
// be told by an event.
func (c *Conn) Emptied() bool { return c.emptied }

// Unsent says that AskNow is over because the app did not take all of it at once. Then
// Outcome waits, so the connection has to land before.
func (c *Conn) Unsent() bool { return c.asked.err == nil && !c.Sent }

// Outcome is what Ask would have returned. It follows AskNow or GoOn, once.
func (c *Conn) Outcome() error { return c.outcome(nil) }

// Forgo takes AskNow back without an outcome: ReadHead may follow.
func (c *Conn) Forgo() { c.asked = question{} }

// Stirs is told by a loop that something has happened on a bare connection over which
// nobody asks anything. One that has ended, or speaks unasked, is closed.
func (c *Conn) Stirs() {
	p := c.pool
	if p.pull(c) && !p.lay(c, p.judge(c)) {
		p.Discard(c)
	}
}

// pull takes c out of the idle ones for a look. It reports false if it is not one.
func (p *Pool) pull(c *Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.row(c.home).remove(c) {
		return false
	}
	p.looking++
	c.idleFor = time.Since(c.idleSince)
	return true
}

// lay puts c back where it was, if it is alive. It reports false if there is no use for
// it any more.
func (p *Pool) lay(c *Conn, alive bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looking--
	if limit := p.opt.MaxConns; !alive || p.retired || p.closed || limit > 0 && len(p.open)+p.dialing-p.looking > limit {
		return false
	}
	p.row(c.home).restore(c)
	p.arm()
	return true
}
