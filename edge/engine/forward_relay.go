package engine

import (
	"bytes"
	"errors"
	"syscall"
	"time"

	"github.com/usher-edge/usher/edge"
	"github.com/usher-edge/usher/edge/http1"
	"github.com/usher-edge/usher/edge/rawio"
	"github.com/usher-edge/usher/edge/upstream"
)

// smallPiece is up to where copying a piece of body behind its head is cheaper
// than handing the kernel two pieces.
const smallPiece = 4 << 10

// relay sends the app's final answer on and finishes the request.
func (c *conn) relay(up *upstream.Conn) {
	chunked := c.answerHead(up)
	if c.isStream() {
		c.endRelay(up, c.relayEvents(up, chunked))
		return
	}
	c.endRelay(up, c.relayBody(up, chunked))
}

// isStream says whether the answer ends only with its reader.
func (c *conn) isStream() bool { return isEventStream(&c.mem.res) && c.mem.res.Length < 0 }

// answerHead builds the head that the client gets in m.out, and says whether chunks
// follow.
func (c *conn) answerHead(up *upstream.Conn) (chunked bool) {
	m, x := c.mem, &c.mem.try
	if x.rest == restMoves && !x.pump.whole.Load() {
		c.keep = false // the app answers before it has the body
	}
	if c.srv.draining.Load() {
		c.keep = false
	}
	chunked = c.chunks()
	if m.res.Length < 0 && !chunked {
		c.keep = false
	}
	x.status = m.res.Status
	c.appendExtra()
	m.follow(up, len(m.extra)+additions)
	x.fill = c.store()
	x.pump.startAnswer()
	m.out = http1.AppendResponse(m.out[:0], &m.res, &http1.Answer{
		Minor: m.req.Minor, KeepAlive: c.keep, Chunked: chunked, Via: c.viaName(), Extra: m.extra,
	})
	return chunked
}

// appendExtra builds the field lines of ours: which generation answers, and
// what the cache had to say.
func (c *conn) appendExtra() {
	m := c.mem
	m.extra = append(m.extra[:0], c.lane.Lines()...)
	switch c.lane.Cached() {
	case edge.CacheMiss:
		m.extra = append(m.extra, "Cache-Status: usher; fwd=uri-miss\r\n"...)
	case edge.CacheStale:
		m.extra = append(m.extra, "Cache-Status: usher; fwd=stale\r\n"...)
	case edge.CacheBypass:
		m.extra = append(m.extra, "Cache-Status: usher; fwd=bypass\r\n"...)
	default:
	}
}

// store offers the answer to the cache; nil means that it is not kept.
func (c *conn) store() edge.Fill {
	if c.lane.Cached() == edge.CacheOff {
		return nil
	}
	m := c.mem
	m.out = http1.AppendFields(m.out[:0], &m.res)
	m.out = append(m.out, c.lane.Lines()...)
	return c.lane.Stored(&edge.CacheAnswer{
		Status: m.res.Status, Header: &m.res, Fields: m.out, Length: max(m.res.Length, -1),
	}, c.mem.try.sent)
}

// isEventStream says whether the answer is one that ends only with its reader
// (WHATWG HTML, server-sent events).
func isEventStream(res *http1.Response) bool {
	const kind = "text/event-stream"
	v := res.Value(http1.ContentType)
	return len(v) >= len(kind) && bytes.EqualFold(v[:len(kind)], []byte(kind))
}

// relayBody moves the body from the app to the client; the head waits in m.out.
// Pieces go out as they come.
func (c *conn) relayBody(up *upstream.Conn, chunked bool) edge.Cause {
	for {
		if c.moves(up, chunked) {
			if cause, done := c.move(up); cause != edge.CauseNone || done {
				return cause
			}
			continue
		}
		data, done, was, err := c.readBody(up)
		if err != nil || was.any() {
			return c.brokeOff(err, was)
		}
		c.mem.try.pieces.add(len(data))
		if cause := c.passOn(up, data, done, chunked); cause != edge.CauseNone || done {
			return cause
		}
	}
}

// headGrace is how long the head of an answer waits for the beginning of its
// body, where there must be one: an app that dies in between can still be told
// from one that answers.
const headGrace = 100 * time.Millisecond

// readBody reads the next piece. A head that waits in m.out goes out with the
// body if some of it is here already, or comes at once, and otherwise before it.
func (c *conn) readBody(up *upstream.Conn) (data []byte, done bool, was interrupt, err error) {
	data, done, err = up.Piece()
	if c.unsent() && len(data) == 0 && !done && err == nil && c.mem.res.Length > 0 {
		data, done, err = up.ReadBodySoon(headGrace)
	}
	if len(data) > 0 || done || err != nil {
		return data, done, 0, err
	}
	if c.unsent() {
		if cause := c.flush(); cause != edge.CauseNone {
			return nil, false, 0, failure(cause)
		}
	}
	c.clock.wait(phaseFlow, after(c.srv.now(), watchAfter))
	data, done, err = up.ReadBody(time.Time{})
	return data, done, c.soleWriter(c.clock.rest()), err
}

// flush sends the head that waits in m.out. It stays there if the request has been
// cut.
func (c *conn) flush() edge.Cause {
	if !c.begins() {
		return c.whyCut()
	}
	m := c.mem
	cause := c.write(m.out)
	if cause != edge.CauseNone {
		m.try.brokeOff(m.took, len(m.out), len(m.out), 0)
	}
	m.out = m.out[:0]
	return cause
}

// brokeOff notes what the client was sent of a piece of which it took so much: a head,
// which may be empty, and behind body bytes of it so much of the answer's body.
func (x *attempt) brokeOff(took, head, body, size int) {
	if took < head {
		x.status = 0
	}
	x.bytesOut += int64(max(0, min(took-body, size)))
}

// brokeOff says why there is no more of an answer, or that what there is of it
// is not valid.
func (c *conn) brokeOff(err error, was interrupt) edge.Cause {
	var malformed *http1.Error
	var known failure
	switch {
	case was.gone():
		return edge.CauseClientGone
	case errors.As(err, &known):
		return edge.Cause(known)
	case c.unsent() && errors.As(err, &malformed):
		return edge.CauseBadResponse
	default:
		return edge.CauseAborted
	}
}

// unsent says whether the head of an answer that is being relayed still waits.
func (c *conn) unsent() bool { return len(c.mem.out) > 0 }

// passOn sends one piece of body, together with what is in m.out.
func (c *conn) passOn(up *upstream.Conn, data []byte, done, chunked bool) edge.Cause {
	if c.unsent() && !c.begins() {
		return c.whyCut()
	}
	p := c.compose(up, data, done, chunked)
	if len(c.mem.out) == 0 && len(p.data) == 0 {
		return edge.CauseNone
	}
	return c.sent(&p, c.writeAll(c.mem.out, p.data, p.tail))
}

// portion is what goes to the client in one go, behind what is in m.out.
type portion struct {
	data, tail []byte
	head, body int // where in m.out its own head ends, and the body begins
	size       int // of the body
}

// compose makes a portion of a piece of body, and of the head that waits in m.out.
func (c *conn) compose(up *upstream.Conn, data []byte, done, chunked bool) portion {
	m, x := c.mem, &c.mem.try
	p := portion{head: len(m.out), size: len(data)}
	size := p.size
	if x.fill != nil && size > 0 {
		_, _ = x.fill.Write(data) // a fill that has had enough is not committed
	}
	tail := m.extra[:0]
	if chunked && len(data) > 0 {
		m.out = http1.AppendChunkSize(m.out, len(data))
		tail = append(tail, '\r', '\n')
	}
	if chunked && done {
		tail = http1.AppendLastChunk(tail, up.Trailer())
	}
	m.extra = tail
	p.body = len(m.out)
	if len(data) <= smallPiece && len(data)+len(tail) <= cap(m.out)-len(m.out) {
		m.out = append(append(m.out, data...), tail...)
		data, tail = nil, nil
	}
	p.data, p.tail = data, tail
	return p
}

// sent takes in what became of a portion.
func (c *conn) sent(p *portion, cause edge.Cause) edge.Cause {
	m, x := c.mem, &c.mem.try
	m.out = m.out[:0]
	if cause != edge.CauseNone {
		x.brokeOff(m.took, p.head, p.body, p.size)
		return cause
	}
	x.bytesOut += int64(p.size)
	return edge.CauseNone
}

// endRelay finishes a request whose answer has been relayed, as far as cause
// says. The core is told before the app's connection is given back: until then
// the request can be cut.
func (c *conn) endRelay(up *upstream.Conn, cause edge.Cause) {
	x := &c.mem.try
	if x.pump != nil {
		pumped := c.stopPump()
		if cause == edge.CauseAborted && pumped != edge.CauseNone {
			cause = pumped // the answer broke off because the request did
		}
	}
	switch {
	case x.fill == nil:
	case cause == edge.CauseNone && len(up.Trailer()) == 0: // a page of the cache has none, so it would not be the whole
		x.fill.Commit()
	default:
		x.fill.Abort()
	}
	x.fill = nil
	if c.unsent() { // the client has seen nothing of the answer
		c.discard(up)
		c.refuse(cause)
		return
	}
	ok := c.finish(c.result(cause))
	if cause != edge.CauseNone || !ok {
		c.discard(up)
		c.abort()
		return
	}
	c.meet(nil)
	x.target.Pool().Put(up)
}

// result is how the request ended, given what kept its answer from being whole.
func (c *conn) result(cause edge.Cause) edge.Result {
	x := &c.mem.try
	res := edge.Result{Ending: edge.Served, Cause: cause, Status: x.status, BytesIn: x.bytesIn, BytesOut: x.bytesOut}
	if x.pump != nil {
		res.BytesIn += x.pump.taken
	}
	if cause != edge.CauseNone {
		res.Ending = cause.Ending()
	}
	return res
}

// rawMost is how many bytes are written without telling the scheduler: a piece
// as large as there is, and its head. That takes the kernel some 0.1 ms; being
// told costs more, as another thread is woken to take over meanwhile.
const rawMost = 320 << 10

// writeAll sends three pieces, each of which may be empty, as if they were one:
// within a callback as much of the first two as the kernel takes at once, and
// the rest as it takes it. If that fails, m.took is what it took.
func (c *conn) writeAll(head, data, tail []byte) edge.Cause {
	c.mem.took = 0
	if c.severed() {
		return edge.CauseClientGone
	}
	if c.fd != noFD && len(tail) == 0 && len(head)+len(data) <= rawMost {
		if over, cause := c.writeNow(head, data); over {
			return cause
		}
	}
	return c.writeOn(head, data, tail)
}

// writeNow sends as much as the kernel takes at once: m.took bytes. over says that this
// is all, or that there is nobody to send it to.
func (c *conn) writeNow(head, data []byte) (over bool, cause edge.Cause) {
	if c.severed() {
		c.mem.took = 0
		return true, edge.CauseClientGone
	}
	n, err := rawio.WriteBoth(uintptr(c.fd), head, data)
	c.mem.took = n
	switch {
	case n == len(head)+len(data):
		return true, edge.CauseNone
	case err != nil && err != syscall.EAGAIN:
		return true, edge.CauseClientGone
	default:
		return false, edge.CauseNone
	}
}

// writeOn sends what follows the m.took bytes that the client has, as it takes it.
func (c *conn) writeOn(head, data, tail []byte) edge.Cause {
	took := c.mem.took
	k := min(took, len(head))
	head, data = head[k:], data[took-k:]
	c.clock.wait(phaseWrite, after(c.srv.now(), watchAfter))
	n, err := c.writeSlowly(head, data, tail)
	c.mem.took = took + n
	return c.wrote(err)
}
