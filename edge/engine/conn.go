package engine

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/usher-edge/usher/edge"
	"github.com/usher-edge/usher/edge/http1"
	"github.com/usher-edge/usher/edge/upstream"
)

// How a connection is closed while the client may still be sending: it gets
// this long, and this many bytes, to read the answer before a reset could
// destroy it.
const (
	lingerTime  = time.Second
	lingerBytes = 256 << 10
)

// conn is one client connection. All but the atomics belong to its goroutine.
type conn struct {
	srv  *Server
	door *door
	nc   net.Conn
	raw  syscall.RawConn    // nil: nc is no socket
	look func(uintptr) bool // readable, kept so that waiting allocates nothing
	lane *edge.Request      // nil before the first request

	mem     *memory // nil while idle
	clock   clock
	ip      []byte     // of the peer; nil for unix sockets
	client  netip.Addr // who the connection is counted for; zero: nobody
	trusted bool

	keep   bool // another request may follow
	linger bool // the client may still be sending
	broken bool // aborted

	try       attempt
	continued bool // 100 Continue was sent for this request
	vec       [4][]byte
	bufs      net.Buffers

	// Read by others than the connection's goroutine.
	up        atomic.Pointer[upstream.Conn]
	ending    atomic.Pointer[ending]
	bodyClock clock         // of the pump
	waitUntil atomic.Uint64 // moment: the deadline of a wait for the app
	armed     atomic.Bool   // the watcher knows the connection
	cutShort  atomic.Bool   // Shutdown's time was up
	finished  atomic.Bool   // the watcher saw the client close its sending side
	taken     uint64        // the sweeper's: what the client had taken when it last looked
}

func newConn(s *Server, d *door, nc net.Conn, p peer) *conn {
	c := &conn{srv: s, door: d, nc: nc, client: p.client, trusted: p.trusted}
	c.look = c.readable
	if sc, ok := nc.(syscall.Conn); ok {
		c.raw, _ = sc.SyscallConn() // an error means closed, as the first read will find
	}
	if p.ip.IsValid() {
		c.ip = p.ip.AppendTo(nil)
	}
	return c
}

// serve is the life of a connection. It ends with the client, with an answer
// that says close, when a deadline passes, or with Shutdown.
func (c *conn) serve() {
	defer c.srv.forget(c)
	for c.await() && c.readHead() {
		if c.lane == nil {
			c.lane = c.srv.opt.Edge.Open(c)
		}
		c.exchange()
		if !c.keep {
			break
		}
		c.rest()
	}
	c.close()
	if c.lane != nil {
		c.lane.Close()
	}
	if c.mem != nil {
		c.srv.stock.put(c.mem)
	}
}

// rest gives the memory back unless the next request has begun to arrive.
func (c *conn) rest() {
	if c.mem.r == c.mem.w {
		c.srv.stock.put(c.mem)
		c.mem = nil
	}
}

// await waits for the first bytes of a request.
func (c *conn) await() bool {
	if c.mem != nil {
		return true
	}
	c.clock.wait(phaseIdle, after(c.srv.now(), c.door.IdleTimeout))
	if c.srv.draining.Load() {
		return false
	}
	err := c.readFirst()
	return !c.clock.rest().any() && err == nil && c.mem != nil
}

// readFirst reads into memory that it takes only once there is something to
// read. It leaves c.mem nil at the end of the client's data.
func (c *conn) readFirst() error {
	if c.raw != nil {
		return c.raw.Read(c.look)
	}
	m := c.srv.stock.get()
	n, err := c.nc.Read(m.in)
	if n == 0 {
		c.srv.stock.put(m)
		return err
	}
	m.w, c.mem = n, m
	return nil
}

// readable is told that fd may have something to read, and says whether it had.
func (c *conn) readable(fd uintptr) bool {
	m := c.srv.stock.get()
	for {
		n, err := syscall.Read(int(fd), m.in)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if n > 0 {
			m.w, c.mem = n, m
			return true
		}
		c.srv.stock.put(m)
		return !errors.Is(err, syscall.EAGAIN)
	}
}

// readHead reads up to the end of a request head. It reports false if there is
// no request: the client left within it, was too slow, or sent something else,
// which has been answered.
func (c *conn) readHead() bool {
	m := c.mem
	m.compact()
	c.clock.wait(phaseHead, after(c.srv.now(), c.door.HeadTimeout))
	for {
		n, err := m.req.Parse(m.unread(), &c.srv.opt.Limits)
		if err != nil {
			c.clock.rest()
			c.malformed(err)
			return false
		}
		if n > 0 {
			m.r += n
			if !c.clock.rest().any() {
				return true
			}
			c.rejectHead(edge.CauseHeadTimeout)
			return false
		}
		if m.w == len(m.in) {
			m.grow()
		}
		k, err := c.nc.Read(m.in[m.w:])
		m.w += k
		if err == nil {
			continue
		}
		if c.clock.rest().late() {
			c.rejectHead(edge.CauseHeadTimeout)
		}
		return false
	}
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
		c.arm(watchReset)
	case c.takes(now):
	default:
		switch c.clock.expire(now) {
		case phaseIdle, phaseHead:
			c.poke()
		case phaseLong, phaseStream:
			c.interruptUp()
		case phaseTake:
			_ = c.nc.SetWriteDeadline(past()) // fails only if closed
		default:
		}
	}
	switch c.bodyClock.expire(now) {
	case phaseBody:
		c.poke()
	case phaseWrite: // its 100 Continue
		_ = c.nc.SetWriteDeadline(past()) // fails only if closed
	default:
	}
}

// left is told by the watcher that the client has left, or has only closed its
// sending side.
func (c *conn) left(half bool) {
	c.finished.Store(true)
	if c.clock.now() == phasePark {
		c.lane.Abandon()
		return
	}
	marked := c.clock.mark(goneBit, phaseStream)
	if !marked && !half {
		marked = c.clock.mark(goneBit, phaseWait, phaseLong, phaseFlow, phaseStall)
	}
	if marked {
		c.interruptUp()
	}
}

// retire is Shutdown's word to the connection: close if idle, end a stream.
func (c *conn) retire() {
	if c.clock.mark(lateBit, phaseIdle) {
		c.poke()
	}
	if e := c.ending.Load(); e != nil {
		e.ask()
	}
}

// Cut breaks the connection off: a reset, never a neat ending.
func (c *conn) Cut() {
	reset(c.nc)
	c.interruptUp()
}

func (c *conn) interruptUp() {
	if up := c.up.Load(); up != nil {
		up.Interrupt()
	}
}

// poke makes a read from the client return.
func (c *conn) poke() {
	_ = c.nc.SetReadDeadline(past()) // fails only if closed
}

// arm lets the watcher look for the client's leaving. Without a socket, or if
// the watcher is full, a client that left is noticed when it is written to.
func (c *conn) arm(events uint32) {
	if c.raw == nil {
		return
	}
	c.armed.Store(true)
	if err := c.srv.watcher.arm(c.raw, events, c.left); err != nil && !errors.Is(err, net.ErrClosed) {
		c.srv.opt.Warn(err.Error())
	}
}

// abort ends the connection so that the client cannot take what it got for the
// whole.
func (c *conn) abort() {
	c.keep, c.broken = false, true
	c.disarm()
	reset(c.nc)
}

func (c *conn) close() {
	if c.broken {
		return
	}
	if c.linger || c.mem != nil && c.mem.r < c.mem.w {
		c.drain()
	}
	c.disarm()
	_ = c.nc.Close() // nothing is left to say
}

// drain lets the client read the last answer before the connection closes: a
// close with unread data would be a reset, which destroys it (RFC 9112 §9.6).
func (c *conn) drain() {
	if h, ok := c.nc.(interface{ CloseWrite() error }); !ok || h.CloseWrite() != nil {
		return
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(lingerTime)) // fails only if closed
	_, _ = io.CopyN(io.Discard, c.nc, lingerBytes)       // whatever ends it, we close
}

func (c *conn) disarm() {
	if c.armed.Load() {
		c.srv.watcher.forget(c.raw)
	}
}

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
