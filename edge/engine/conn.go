package engine

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/usher-edge/usher/edge"
	"github.com/usher-edge/usher/edge/http1"
	"github.com/usher-edge/usher/edge/upstream"
)

// conn is one client connection. All but what is marked belongs to its
// goroutine. While it is idle for long it has none: see away.go.
type conn struct {
	srv  *Server
	door *door
	nc   net.Conn           // nil while a loop has it. Others than its goroutine reach it with poking held
	raw  syscall.RawConn    // nil: nc is no socket. Likewise
	loop *loop              // who serves it; nil: a goroutine of its own. Likewise
	turn func(uintptr) bool // takeTurn, kept so that waiting allocates nothing
	lane *edge.Request      // nil before the first request
	mem  *memory            // nil while idle
	ip   []byte             // of the peer; nil for unix sockets

	idleFor   time.Duration // the door's IdleTimeout, which every request needs
	idleUntil moment        // when an idle connection is closed

	ids     ids        // of the requests
	client  netip.Addr // who the connection is counted for; zero: nobody
	trusted bool
	drained bool // the last read left nothing behind, so that more will be told
	settled bool // it has had a request, and after it a read that found nothing
	alone   bool // the next exchange reads from nc, so it cannot be within a callback
	over    bool // no further request follows
	away    bool // idle for long: to be left to the loop, or the watcher
	home    bool // to be left to the loop
	keep    bool // another request may follow
	linger  bool // the client may still be sending
	broken  bool // aborted

	// For a loop.
	ready  bool  // its events are told to the loop
	asking bool  // the app has the request, and its answer is waited for
	flows  bool  // the answer has begun, and more of it is waited for
	queued bool  // it is in the loop's again
	upEnds bool  // the app has ended what it sends, which is told only once
	stays  uint8 // requests that a goroutine answers before a loop has it again

	fd int32 // while the goroutine is in a callback of raw, or a loop has it; else noFD

	clock clock

	// Read by others than the connection's goroutine.
	ending    atomic.Pointer[ending]
	parked    atomic.Pointer[edge.Request] // lane, once it has been parked
	bodyClock clock                        // of the pump
	waitUntil atomic.Uint64                // moment: the deadline of a wait for the app
	armed     atomic.Bool                  // the watcher knows the connection
	watched   int32                        // by that number; guarded by the watcher's lock
	answered  atomic.Uint32                // how far the answer has come: answerBegun and so on
	finished  atomic.Bool                  // the watcher saw the client close its sending side
	taken     uint64                       // the sweeper's: what the client had taken when it last looked

	poking sync.Mutex     // held while a wait is marked and acted on, so that both are undone together; guards up too
	up     *upstream.Conn // to the app, while a request uses it
}

// noFD is c.fd outside the callbacks of c.raw.
const noFD = -1

func newConn(s *Server, d *door, nc net.Conn, p peer) *conn {
	c := &conn{srv: s, door: d, nc: nc, client: p.client, trusted: p.trusted, fd: noFD, ids: ids(rand.Uint64()), idleFor: d.IdleTimeout}
	// Not a method value: the code of one is at the end of the package, on a page of
	// its own.
	c.turn = func(fd uintptr) bool { return c.takeTurn(fd) }
	c.raw = rawOf(nc)
	c.idleUntil = after(s.now(), c.idleFor)
	if p.ip.IsValid() {
		c.ip = p.ip.AppendTo(nil)
	}
	return c
}

// rawOf is the socket of nc, nil if it has none.
func rawOf(nc net.Conn) syscall.RawConn {
	if sc, ok := nc.(syscall.Conn); ok {
		raw, _ := sc.SyscallConn() // an error means closed, as the first read will find
		return raw
	}
	return nil
}

// serve is the life of a connection as long as it has a goroutine. It ends
// with the client, with an answer that says close, when a deadline passes, or
// with Shutdown.
func (c *conn) serve() {
	for !c.over {
		c.stretch()
		if c.alone {
			c.alone = false
			c.answer()
		}
		if !c.over && c.leave() {
			return // whoever takes it up again goes on
		}
	}
	c.close()
	c.vanish()
}

// serveAfter is serve after something that needs a goroutine.
func (c *conn) serveAfter(first func()) {
	first()
	c.serve()
}

// vanish is what follows the end of a connection.
func (c *conn) vanish() {
	if c.lane != nil {
		c.lane.Close()
	}
	if c.mem != nil {
		c.srv.stock.put(c.mem)
	}
	c.srv.forget(c)
}

// isBad says that what came is no request.
func (c *conn) isBad() bool { return c.mem != nil && c.mem.bad != nil }

// reject answers what is no request.
func (c *conn) reject() {
	c.over = true
	c.malformed(c.mem.bad)
}

// malformed answers what is no valid request.
func (c *conn) malformed(err error) {
	var e *http1.Error
	if !errors.As(err, &e) {
		c.rejectHead(edge.CauseBadRequest)
		return
	}
	c.rejectHead(causeOfStatus(e.Status))
}

// causeOfStatus turns the parser's verdict into a cause.
func causeOfStatus(status int) edge.Cause {
	switch status {
	case 405:
		return edge.CauseMethod
	case 413:
		return edge.CauseBodyTooLarge
	case 414:
		return edge.CauseTargetTooLong
	case 417:
		return edge.CauseExpectation
	case 431:
		return edge.CauseHeadTooLarge
	case 505:
		return edge.CauseVersion
	default:
		return edge.CauseBadRequest
	}
}

// sweep acts on deadlines that have passed. It runs on the sweeper's goroutine.
func (c *conn) sweep(now moment) {
	switch {
	case c.clock.lengthen(now, moment(c.waitUntil.Load())):
		c.arm(watchFin)
	case c.takes(now):
	default:
		switch c.expire(now) {
		case phaseAway:
			c.end()
		case phaseLong:
			c.interruptUp()
		case phaseTunnel, phaseLast:
			c.interruptUp()
			c.poke()
		case phaseTake:
			c.reach(stopWriting)
		default:
		}
	}
	if c.bodyClock.now() == phasePass && !oneOf(c.clock.now(), []phase{phaseWait, phaseLong}) {
		return // the answer has begun: how the app goes on is its own affair
	}
	switch c.bodyClock.expire(now) {
	case phaseBody:
		c.poke()
	case phasePass:
		c.interruptUp()
	case phaseWrite: // its 100 Continue
		c.reach(stopWriting)
	default:
	}
}

// left is told by the watcher that the client has left, or, half, has closed its
// sending side and may have left.
func (c *conn) left(half bool) {
	c.finished.Store(true)
	switch {
	case c.clock.mark(goneBit, phaseStream):
		c.interruptUp()
	case half:
		c.knock()
	case c.clock.now() == phasePark:
		c.parked.Load().Abandon()
	case c.clock.mark(goneBit, phaseWait, phaseLong, phaseFlow, phaseStall, phaseTunnel):
		c.interruptUp()
	}
}

// expire marks the wait late if it is, and interrupts a read from the client.
func (c *conn) expire(now moment) phase {
	c.poking.Lock()
	defer c.poking.Unlock()
	p := c.clock.expire(now)
	if p == phaseIdle || p == phaseHead || p == phaseQuick {
		c.reachHeld(stopReading)
	}
	return p
}

// retire is Shutdown's word to the connection: close if idle, end a stream.
func (c *conn) retire() {
	if c.clock.take(phaseAway) {
		c.end()
		return
	}
	c.poking.Lock()
	if c.clock.mark(lateBit, phaseIdle) {
		c.reachHeld(stopReading)
	}
	c.poking.Unlock()
	if e := c.ending.Load(); e != nil {
		e.ask(edge.Politely)
	}
}

func (c *conn) interruptUp() {
	c.poking.Lock()
	defer c.poking.Unlock() // so that c.up is not given back, and another's, by then
	if c.up != nil {
		c.up.Interrupt()
	}
}

// reach has f interrupt something at the socket. If a loop has it that is told to look
// why: what interrupts is never done in one of its system calls.
func (c *conn) reach(f func(nc net.Conn)) {
	c.poking.Lock()
	defer c.poking.Unlock()
	c.reachHeld(f)
}

func (c *conn) reachHeld(f func(nc net.Conn)) {
	if c.loop != nil {
		c.loop.tell(c)
		return
	}
	if c.nc != nil { // else it has ended
		f(c.nc)
	}
}

func stopReading(nc net.Conn) { _ = nc.SetReadDeadline(past()) }  // fails only if closed
func stopWriting(nc net.Conn) { _ = nc.SetWriteDeadline(past()) } // likewise

// poke makes a read from the client return.
func (c *conn) poke() { c.reach(stopReading) }

// socket is the socket for others than the connection's goroutine, nil if there is
// none, or a loop has it.
func (c *conn) socket() syscall.RawConn {
	c.poking.Lock()
	defer c.poking.Unlock()
	return c.raw
}

// arm lets the watcher look at the client. Without a socket, or if the watcher
// is full, a client that left is noticed when it is written to.
func (c *conn) arm(events uint32) bool { return c.armAt(c.socket(), events) }

func (c *conn) armAt(raw syscall.RawConn, events uint32) bool {
	if raw == nil {
		return false
	}
	c.armed.Store(true)
	err := c.srv.watcher.arm(c, raw, events)
	if err != nil && !errors.Is(err, net.ErrClosed) {
		c.srv.opt.Warn(err.Error())
	}
	return err == nil
}

// abort ends the connection, as soon as the goroutine has left the callback,
// so that the client cannot take what it got for the whole.
func (c *conn) abort() { c.keep, c.broken = false, true }

// reset closes a connection with RST where there is such a thing.
func reset(nc net.Conn) {
	if t, ok := nc.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // fails only if closed
	}
	_ = nc.Close() // it is given up
}

// past is a deadline that has passed: it interrupts.
func past() time.Time { return time.Unix(1, 0) }

// timedOut says whether an I/O error is a deadline's.
func timedOut(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
