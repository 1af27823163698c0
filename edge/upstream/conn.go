package upstream

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/usher-edge/usher/edge/http1"
	"github.com/usher-edge/usher/edge/rawio"
)

// Conn is one connection to an app, held by one request at a time. One
// goroutine may write while another reads; everything else is for one at a
// time. Calls must have returned before Put or Discard: Interrupt them first.
type Conn struct {
	Reused bool // it served a request before this one

	// Sent is set by the holder when the whole request, body included, has been
	// written. Put keeps no connection without it.
	Sent bool

	pool *Pool
	net  net.Conn        // nil while it is bare
	raw  syscall.RawConn // nil: it is bare, or the socket cannot be looked at, so it is never reused
	home *Home           // nil: Go's poller; else it is bare. Changed with the pool's lock held, as fd is
	fd   int             // while it is bare
	peek func(fd uintptr)

	seen   sight
	peeked [1]byte
	looked bool // since it was handed out, before a byte was written

	asked question
	ask   func(fd uintptr) bool // answers asked, kept so that it allocates nothing

	into   *rawio.Pipes // where the next piece goes; nil: into buffer
	filled *rawio.Pipe  // and is

	drawn error                 // what the last call of draw came to
	draw  func(fd uintptr) bool // reads once, kept for the same reason

	wrote       atomic.Int64
	started     atomic.Bool // a write was begun
	broken      atomic.Bool // no response can come any more
	interrupted atomic.Bool

	buffer  []byte  // nil while nothing is read
	stocked *[]byte // buffer, if it is from the stock; nil: it is lent
	most    int     // bytes of a buffer from the stock
	lent    []byte  // where an answer that is likely to be small goes; nil: nowhere
	moves   bool    // and the beginning of a large one, as the rest will be moved
	r, w    int     // unread bytes of buffer
	emptied bool    // the last read has taken all that was there
	got     int64   // bytes of the answer that have come
	last    int64   // bytes of the answer before
	final   bool    // the head of a final response was read
	keep    bool    // and lets the connection live
	head    int     // how long it is
	framer  http1.Framer
	length  int64

	readBy, writeBy time.Time // deadlines in force
	idleSince       time.Time
	idleFor         time.Duration // before it was handed out
}

func newConn(p *Pool, nc net.Conn) *Conn {
	c := &Conn{pool: p, net: nc, raw: rawOf(nc), most: p.opt.Buffers.size}
	c.peek, c.draw = c.peekAt, c.drawOn
	// Not a method value: the code of one is at the end of the package, on a page of
	// its own, and each request comes by four times.
	c.ask = func(fd uintptr) bool { return c.askOn(fd) }
	return c
}

// rawOf is the socket of a connection, nil if it has none.
func rawOf(nc net.Conn) syscall.RawConn {
	if s, ok := nc.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}

// reuse makes an idle connection ready for the next request.
func (c *Conn) reuse() {
	c.Reused, c.Sent = true, false
	c.looked = false
	c.wrote.Store(0)
	c.started.Store(false)
	c.got, c.last = 0, c.got
	c.final, c.keep = false, false
}

// clean reports whether the next request can follow on this connection.
func (c *Conn) clean() bool {
	return (c.raw != nil || c.home != nil) && c.Sent && c.final && c.keep && c.framer.Done() && c.r == c.w &&
		!c.broken.Load() && !c.interrupted.Load()
}

// Write sends bytes of the request. Before the first byte it looks whether the
// app has closed or spoken already.
func (c *Conn) Write(b []byte) (int, error) {
	if err := c.begin(noFD); err != nil {
		return 0, err
	}
	n, err := c.net.Write(b)
	c.wrote.Add(int64(n))
	if err != nil {
		return n, c.writeFailed(err)
	}
	return n, nil
}

// WriteBuffers sends several pieces in one go and consumes them.
func (c *Conn) WriteBuffers(b *net.Buffers) (int64, error) {
	if err := c.begin(noFD); err != nil {
		return 0, err
	}
	n, err := b.WriteTo(c.net)
	c.wrote.Add(n)
	if err != nil {
		return n, c.writeFailed(err)
	}
	return n, nil
}

// begin comes before every write. Together with headFailed it makes sure that
// a failure to read proves something: either the reader sees that a write was
// begun, or the writer sees that the reader gave up and sends nothing. fd is the
// socket if the caller is in a callback of raw, else noFD.
func (c *Conn) begin(fd int) error {
	c.started.Store(true)
	if c.broken.Load() {
		return &Error{Op: "write", Err: errBroken, undelivered: c.wrote.Load() == 0}
	}
	if c.looked {
		return nil
	}
	c.looked = true
	seen := c.look(fd)
	if c.Reused {
		c.pool.found(c, seen == quiet)
	}
	switch seen {
	case closed:
		return c.lookFailed(errPeerClosed)
	case talking:
		return c.lookFailed(errPeerSpoke)
	}
	return nil
}

// lookFailed is a connection that was no good from the start.
func (c *Conn) lookFailed(err error) error {
	c.broken.Store(true)
	return &Error{Op: "write", Err: err, undelivered: true, stale: c.Reused}
}

func (c *Conn) writeFailed(err error) error {
	c.broken.Store(true)
	return &Error{Op: "write", Err: c.cause(err), undelivered: c.wrote.Load() == 0}
}

// cause replaces the timeout that Interrupt causes by what it is.
func (c *Conn) cause(err error) error {
	if c.interrupted.Load() {
		return errInterrupted
	}
	return err
}

// Wrote is how many bytes of this request the kernel took.
func (c *Conn) Wrote() int64 { return c.wrote.Load() }

// Responded reports whether a byte of the response to this request has come.
func (c *Conn) Responded() bool { return c.got > 0 }

// ReadHead reads one response head, interim ones included; call it again
// after a 1xx. res is valid until the next call that reads. A zero deadline
// means none. After an error nothing more can be written.
func (c *Conn) ReadHead(res *http1.Response, method []byte, deadline time.Time) error {
	c.setReadDeadline(deadline)
	res.Reset()
	for {
		n, err := res.Parse(c.unread(), method, &c.pool.opt.Limits)
		if err != nil {
			return c.headFailed(err)
		}
		if n > 0 {
			c.r += n
			c.head = n
			c.begun(res)
			return nil
		}
		if err := c.fill(); err != nil {
			return c.headFailed(err)
		}
	}
}

// begun takes in a head: what body follows, and whether another exchange may.
func (c *Conn) begun(res *http1.Response) {
	c.framer.Reset(res.Length)
	c.length = res.Length
	c.final = res.Status >= 200
	c.keep = c.final && res.KeepAlive
	if res.Upgrade != nil {
		c.setReadDeadline(time.Time{}) // from here on it is another protocol's
	}
	if res.KeepAliveTimeout > 0 {
		c.pool.hint(time.Duration(res.KeepAliveTimeout) * time.Second)
	}
}

func (c *Conn) headFailed(err error) error {
	c.broken.Store(true)
	if err == io.EOF {
		err = errNoResponse
		if c.Responded() {
			err = errCutHead
		}
	}
	return &Error{Op: "read head", Err: c.cause(err), undelivered: !c.started.Load()}
}

// ReadBody returns the next piece of the body of the last head, valid until
// the next call that reads. done comes with the last piece, which may be
// empty. A body cut short, or followed by bytes that belong to no answer, is an
// error, never done. Of a bare connection it does not wait: ErrWait.
func (c *Conn) ReadBody(deadline time.Time) (data []byte, done bool, err error) {
	for {
		if data, done, err = c.Piece(); len(data) > 0 || done || err != nil {
			return data, done, err
		}
		c.setReadDeadline(deadline)
		switch err := c.fill(); {
		case err == nil:
		case err == io.EOF && c.length == http1.UntilClose:
			return nil, true, nil
		case err == syscall.EAGAIN:
			return nil, false, ErrWait
		default:
			return nil, false, c.bodyFailed(err)
		}
	}
}

// ReadBodySoon is ReadBody for no longer than that; nothing at all means that
// nothing has come.
func (c *Conn) ReadBodySoon(limit time.Duration) (data []byte, done bool, err error) {
	c.setReadDeadline(time.Now().Add(limit))
	err = c.fill()
	c.setReadDeadline(time.Time{})
	switch {
	case err == nil:
		return c.Piece()
	case Timeout(err) && !c.interrupted.Load():
		return nil, false, nil
	default:
		return nil, false, c.bodyFailed(err)
	}
}

// Piece is ReadBody as far as that reads nothing: what is here already, or
// nothing at all.
func (c *Conn) Piece() (data []byte, done bool, err error) {
	data, n, done, err := c.framer.Gather(c.unread())
	if err != nil {
		return nil, false, c.bodyFailed(err)
	}
	c.r += n
	if done && c.r < c.w {
		return nil, false, c.bodyFailed(errSurplus)
	}
	return data, done, nil
}

func (c *Conn) bodyFailed(err error) error {
	c.broken.Store(true)
	if err == io.EOF {
		err = errCutBody
	}
	return &Error{Op: "read body", Err: c.cause(err)}
}

// Trailer returns the trailer fields once ReadBody is done.
func (c *Conn) Trailer() []http1.Field { return c.framer.Trailer() }

// Read reads raw bytes, first what is buffered: for connections that were
// switched to another protocol. io.EOF is returned bare.
func (c *Conn) Read(b []byte) (int, error) {
	if c.r < c.w {
		n := copy(b, c.unread())
		c.r += n
		return n, nil
	}
	c.release()
	n, err := c.net.Read(b)
	if err != nil && err != io.EOF {
		err = &Error{Op: "read", Err: c.cause(err)}
	}
	return n, err
}

// CloseWrite sends a FIN and keeps reading.
func (c *Conn) CloseWrite() error {
	if h, ok := c.net.(interface{ CloseWrite() error }); ok {
		if err := h.CloseWrite(); err != nil && !errors.Is(err, syscall.ENOTCONN) {
			return &Error{Op: "write", Err: err}
		}
	}
	return nil
}

// Interrupt makes pending and later reads and writes fail; safe to call from
// any goroutine while the connection is held. Discard it afterwards.
func (c *Conn) Interrupt() {
	c.interrupted.Store(true)
	_ = c.net.SetDeadline(longAgo())
}

func longAgo() time.Time { return time.Unix(1, 0) }

// SetWriteDeadline bounds writes; the zero time means no bound. Put lifts it.
func (c *Conn) SetWriteDeadline(t time.Time) {
	if t.Equal(c.writeBy) {
		return
	}
	c.writeBy = t
	_ = c.net.SetWriteDeadline(t)
	c.staysInterrupted()
}

func (c *Conn) setReadDeadline(t time.Time) {
	if t.Equal(c.readBy) {
		return
	}
	c.readBy = t
	_ = c.net.SetReadDeadline(t)
	c.staysInterrupted()
}

// staysInterrupted repairs what a deadline set at the same moment may have
// undone of Interrupt.
func (c *Conn) staysInterrupted() {
	if c.interrupted.Load() {
		_ = c.net.SetDeadline(longAgo())
	}
}

// NetConn is the connection itself, for its addresses and descriptor. Its
// deadlines belong to Conn until an upgrade.
func (c *Conn) NetConn() net.Conn { return c.net }

func (c *Conn) unread() []byte {
	return c.buffer[c.r:c.w]
}

// HeadSize is how long the last head is.
func (c *Conn) HeadSize() int { return c.head }

// smallAnswer is up to where an answer is read into what is lent, if the one
// before was: what does not fit costs one more read.
const smallAnswer = 4 << 10

// Lend gives the connection room for the beginning of the answer, so that a small
// one needs no buffer. It is used until Seal, Put or Discard; one connection may
// be lent room once after Get. If the holder is going to Move what can be moved, the
// beginning of a large answer goes there too, and no more than that is copied.
func (c *Conn) Lend(room []byte, moves bool) {
	c.lent, c.moves = room[:min(len(room), c.most)], moves
}

// Seal ends what Lend began: nothing more is read into the room, and what is in it
// stays. It returns how much of it is taken: 0 if it was sealed before.
func (c *Conn) Seal() (taken int) {
	if c.lent != nil && c.buffer != nil && c.stocked == nil {
		taken = c.w
		c.buffer = c.buffer[:c.w]
	}
	c.lent = nil
	return taken
}

// fill reads once, behind the bytes that are still unread. It waits without a
// buffer, unless there are such bytes; for a bare connection it does not wait.
func (c *Conn) fill() error {
	switch {
	case c.home != nil:
		c.drawOn(uintptr(c.fd))
		err := c.drawn
		c.drawn = nil
		return err
	case c.raw == nil:
		n, err := c.net.Read(c.room())
		if n == 0 && err == nil {
			err = io.ErrNoProgress
		}
		return c.took(n, err)
	}
	err := c.raw.Read(c.draw)
	if err == nil {
		err, c.drawn = c.drawn, nil
	}
	return err
}

// drawOn is the callback of fill: it reads once what is there, and reports false
// to wait for it.
func (c *Conn) drawOn(fd uintptr) (done bool) {
	if c.into != nil {
		c.drawn = c.moveOn(fd)
	} else {
		c.drawn = c.readOn(fd)
	}
	return c.drawn != syscall.EAGAIN
}

// readOn reads what is there, or fails with EAGAIN.
func (c *Conn) readOn(fd uintptr) error {
	room := c.room()
	n, err := rawio.Read(fd, room)
	c.emptied = n < len(room)
	if err == syscall.EAGAIN {
		if c.r == c.w {
			c.release()
		}
		return err
	}
	return c.took(n, err)
}

// room is where the next read goes.
func (c *Conn) room() []byte {
	ahead := c.toCome()
	if c.r == c.w && (c.stocked == nil && c.lent == nil || ahead > int64(len(c.buffer))) {
		c.release() // it is sealed, or there is a wider one
	}
	switch {
	case c.buffer == nil && c.lent != nil && (ahead <= smallAnswer || c.moves && min(ahead, c.length) >= int64(leastMoved+len(c.lent))):
		c.buffer = c.lent
	case c.buffer == nil:
		c.stocked = c.pool.opt.Buffers.Get(ahead)
		c.buffer = *c.stocked
	case c.r == c.w:
		c.r, c.w = 0, 0
	case c.w == len(c.buffer):
		c.shift()
	}
	return c.buffer[c.w:]
}

// toCome is how much of the answer will at least come, as far as is known; until
// it begins, as much as of the one before.
func (c *Conn) toCome() int64 {
	if c.got == 0 {
		return c.last
	}
	return c.framer.Ahead()
}

// shift makes room behind the unread bytes of a buffer that is full. They do not
// stay in what is lent, which is too short.
func (c *Conn) shift() {
	from := c.unread()
	if c.stocked == nil {
		c.stocked = c.pool.opt.Buffers.Get(0)
		c.buffer = *c.stocked
	}
	c.w = copy(c.buffer, from)
	c.r = 0
}

// took counts in what a read has put into room.
func (c *Conn) took(n int, err error) error {
	if n > 0 {
		c.w += n
		c.got += int64(n)
		return nil
	}
	if err == nil {
		err = io.EOF
	}
	return err
}

// release gives the read buffer back.
func (c *Conn) release() {
	if c.stocked != nil {
		c.pool.opt.Buffers.Put(c.stocked)
		c.stocked = nil
	}
	c.buffer = nil
	c.r, c.w = 0, 0
}
