package engine

import (
	"sync/atomic"
	"time"

	"github.com/usher-edge/usher/edge"
	"github.com/usher-edge/usher/edge/http1"
	"github.com/usher-edge/usher/edge/upstream"
)

// ending asks a stream to come to its end. It is made for one stream, whose
// connection to the app is never used again, so that asking too late hits
// nobody else.
type ending struct {
	asked atomic.Bool
	poke  func() // makes the stream's goroutine look
}

// ask may be called at any time, more than once, by anybody.
func (e *ending) ask() {
	if e.asked.CompareAndSwap(false, true) {
		e.poke()
	}
}

// openStream tells everybody who ends streams about this one.
func (c *conn) openStream(poke func()) *ending {
	e := &ending{poke: poke}
	c.ending.Store(e)
	c.lane.Streaming(e.ask)
	if c.srv.draining.Load() {
		e.ask()
	}
	return e
}

// retryHint tells the reader of an event stream that ends to come back soon
// (WHATWG HTML, server-sent events, field "retry").
const retryHint = "retry: 1000\n\n"

// relayEvents is relayBody for an event stream: it has no deadline, the end of
// the client's sending side is its end, and it can be asked to end.
func (c *conn) relayEvents(up *upstream.Conn, chunked bool) edge.Cause {
	e := c.openStream(up.Interrupt)
	defer up.Interrupt() // who asks too late must not hit the next request on it
	defer c.ending.Store(nil)
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
