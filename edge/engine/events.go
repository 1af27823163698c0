package engine

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/usher-edge/usher/edge"
	"github.com/usher-edge/usher/edge/http1"
	"github.com/usher-edge/usher/edge/upstream"
)

const (
	// partingTime is how long a stream that ends politely may take for that: to end the
	// frame that is under way, to take what it is sent, to answer a close frame.
	partingTime = time.Second
	// briefParting is the same for one that others are waiting for.
	briefParting = 10 * time.Millisecond
)

// ending asks a stream to come to its end.
type ending struct {
	c     *conn
	look  func() // makes the stream's goroutine look
	until time.Time
	asked atomic.Bool // after until

	mu   sync.Mutex // held while asking; guards over
	over bool       // the stream has ended: its connections may have others by now
}

// ask may be called at any time, more than once, by anybody.
func (e *ending) ask(h edge.Haste) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over || e.asked.Load() {
		return
	}
	within := e.c.srv.opt.parting
	if h == edge.AtOnce {
		within = briefParting
	}
	e.until = time.Now().Add(within)
	e.asked.Store(true)
	e.c.reach(func(nc net.Conn) { _ = nc.SetWriteDeadline(e.until) }) // fails only if closed
	e.look()
}

// openStream tells everybody who ends streams about this one. look is called, by
// another goroutine perhaps, when it is asked to end.
func (c *conn) openStream(look func()) *ending {
	e := &ending{c: c, look: look}
	c.ending.Store(e)
	c.lane.Streaming(e.ask)
	if c.srv.draining.Load() {
		e.ask(edge.Politely)
	}
	return e
}

// close has nobody ask any more, and lifts what was asked.
func (e *ending) close() {
	e.c.ending.Store(nil)
	e.mu.Lock()
	e.over = true
	e.mu.Unlock()
	if e.asked.Load() {
		_ = e.c.nc.SetWriteDeadline(time.Time{}) // fails only if closed
	}
}

// lastWords gives usher's own at least a moment, however late it comes to them.
func (e *ending) lastWords() {
	if least := time.Now().Add(briefParting); e.until.Before(least) {
		_ = e.c.nc.SetWriteDeadline(least) // fails only if closed
	}
}

// retryHint tells the reader of an event stream that ends to come back soon
// (WHATWG HTML, server-sent events, field "retry").
const retryHint = "retry: 1000\n\n"

// relayEvents is relayBody for an event stream: it has no deadline, the end of
// the client's sending side is its end, and it can be asked to end.
func (c *conn) relayEvents(up *upstream.Conn, chunked bool) edge.Cause {
	e := c.openStream(up.Interrupt)
	defer e.close()
	if cause := c.flush(); cause != edge.CauseNone {
		return cause
	}
	plain := c.mem.res.Value(http1.ContentEncoding) == nil
	between := true // nothing of an event has been sent, or all of it
	last := [2]byte{}
	c.arm(watchFin)
	for {
		c.clock.wait(phaseStream, 0)
		if c.finished.Load() {
			return edge.CauseClientGone // between two waits
		}
		data, done, err := up.ReadBody(time.Time{})
		was := c.clock.rest()
		switch {
		case was.gone():
			return edge.CauseClientGone
		case e.asked.Load() && len(data) == 0:
			e.lastWords()
			return c.endEvents(up, plain && between, chunked)
		case err != nil:
			return edge.CauseAborted
		}
		between = eventEnds(&last, data, between)
		if cause := c.passOn(up, data, done, chunked); cause != edge.CauseNone || done {
			return cause
		}
	}
}

// endEvents ends an event stream that was asked to: with the hint if no event
// is cut in two by it.
func (c *conn) endEvents(up *upstream.Conn, hint, chunked bool) edge.Cause {
	c.keep = c.keep && chunked
	var data []byte
	if hint {
		data = []byte(retryHint)
	}
	return c.passOn(up, data, true, chunked)
}

// eventEnds says whether an event has just ended with data: a line break after
// a line break. last holds the two bytes before it.
func eventEnds(last *[2]byte, data []byte, was bool) bool {
	if len(data) == 0 {
		return was
	}
	for _, b := range data[max(0, len(data)-2):] {
		last[0], last[1] = last[1], b
	}
	if n := len(data); n >= 4 && string(data[n-4:]) == "\r\n\r\n" {
		return true
	}
	return *last == [2]byte{'\n', '\n'} || *last == [2]byte{'\r', '\r'}
}
