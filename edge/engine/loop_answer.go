package engine

import (
	"cmp"
	"time"

	"golang.org/x/sys/unix"

	"github.com/usher-edge/usher/edge"
	"github.com/usher-edge/usher/edge/http1"
	"github.com/usher-edge/usher/edge/rawio"
	"github.com/usher-edge/usher/edge/upstream"
)

// quickMost is how large a page of the cache may be that a loop sends, and a request with
// its answer that counts as quick in a goroutine.
const quickMost = 64 << 10

// answer begins to answer the request whose head has been read. It reports false if it
// is still to be answered: the app is waited for, or a goroutine has the connection.
func (l *loop) answer(c *conn) (over bool) {
	if q := &c.mem.req; q.Upgrade != nil || q.Expect || q.Length == http1.Chunked || q.Length > pumpSize {
		c.stays = longStay
		l.hand(c, c.answer)
		return false
	}
	c.openLane()
	c.takeUp()
	if c.isOurs() {
		l.hand(c, func() { c.answerOurs(); c.next() })
		return false
	}
	d := l.srv.opt.Edge.Decide(c.lane)
	switch d.Kind {
	case edge.Proxy:
		return l.forward(c, d.Target)
	case edge.Hit:
		return l.hit(c, &d.Found)
	case edge.Reply:
		return l.refuse(c, d.Cause)
	}
	slow := d
	l.handStep(c, func() bool { return c.follow(&slow) })
	return false
}

// refuse is conn.refuse at a loop.
func (l *loop) refuse(c *conn, cause edge.Cause) (over bool) {
	o := c.refusal(cause)
	over, failed := c.writeNow(c.mem.out, nil)
	if !over {
		slow := o
		c.stays = longStay
		l.hand(c, func() { c.endOwn(&slow, c.writeOn(c.mem.out, nil, nil)); c.next() })
		return false
	}
	c.endOwn(&o, failed)
	c.next()
	return true
}

// hit answers from the cache.
func (l *loop) hit(c *conn, f *edge.Found) (over bool) {
	if len(f.Body) > quickMost || !c.begins() {
		slow := *f
		c.stays = longStay
		l.hand(c, func() { c.hit(&slow); c.next() })
		return false
	}
	c.hitHead(f)
	over, failed := c.writeNow(c.mem.out, f.Body)
	if !over {
		slow := *f
		c.stays = longStay
		l.hand(c, func() {
			failed := c.writeOn(c.mem.out, slow.Body, nil)
			c.endHit(&slow, c.mem.took, failed)
			c.next()
		})
		return false
	}
	c.endHit(f, c.mem.took, failed)
	c.next()
	return true
}

// forward asks the app over an idle connection, one that is not stale.
func (l *loop) forward(c *conn, t *edge.Target) (over bool) {
	m := c.mem
	for {
		m.try = attempt{target: t}
		more, err := c.build()
		if m.req.Length != 0 {
			c.drained = false // who gathers a body may leave something behind it
		}
		up := l.take(t.Pool(), m.req.IsIdempotent())
		m.try.up = up
		if up == nil || more || err != nil {
			if more {
				c.stays = longStay
			}
			l.handStep(c, func() bool { return c.asked(c.ask(t, up)) })
			return false
		}
		m.lend(up, c.door.moves)
		l.seats[up.FD()].c = c
		if !up.AskNow(m.out, m.gathered(), &m.res, m.req.Method) {
			limit := c.lane.Config().FirstByteTimeout
			c.waitUntil.Store(uint64(after(l.srv.now(), limit)))
			c.asking, c.upEnds = true, false
			c.clock.wait(phaseQuick, after(l.srv.now(), min(watchAfter, cmp.Or(limit, watchAfter))))
			return false
		}
		if up.Unsent() {
			l.handStep(c, func() bool { return c.asked(c.sendOn(up)) })
			return false
		}
		if err := up.Outcome(); !upstream.Stale(err) {
			l.handStep(c, func() bool { return c.fail(err, 0) })
			return false
		}
		l.discard(c, up)
	}
}

// take is an idle connection to an app, nil if there is none.
func (l *loop) take(p *upstream.Pool, idempotent bool) *upstream.Conn {
	for {
		up, isNew := p.Take(&l.home, idempotent)
		if !isNew {
			return up
		}
		if err := l.seat(up.FD(), nil, up); err == nil {
			return up
		}
		p.Discard(up)
	}
}

// discard closes a connection to the app of which no answer has come.
func (l *loop) discard(c *conn, up *upstream.Conn) {
	l.seats[up.FD()] = seat{}
	c.mem.try.target.Pool().Discard(up)
	c.mem.try.up = nil
}

// appStirs is told of bytes from the app that has the request, or their end.
func (l *loop) appStirs(c *conn, events uint32) {
	c.upEnds = c.upEnds || events&^unix.EPOLLIN != 0
	ended := false
	switch up := c.mem.try.up; {
	case c.flows:
		ended = l.flow(c, up)
	case up.GoOn():
		ended = l.relay(c, up)
	}
	if ended {
		l.serve(c)
	}
}

// relay passes the answer on. ended is as for answer.
func (l *loop) relay(c *conn, up *upstream.Conn) (ended bool) {
	m := c.mem
	if err := up.Outcome(); err != nil {
		l.handStep(c, func() bool { return c.fail(err, 0) })
		return false
	}
	if m.res.Status < 200 {
		c.stays = longStay
		l.handStep(c, func() bool { return c.asked(c.head(up, nil)) })
		return false
	}
	if m.try.rest == restWaits {
		c.useUp(restNone)
	}
	chunked := c.answerHead(up)
	if c.isStream() {
		l.handEnd(c, up, func() edge.Cause { return c.relayEvents(up, chunked) })
		return false
	}
	data, done, err := up.Piece()
	switch {
	case err != nil:
		l.handEnd(c, up, func() edge.Cause { return c.brokeOff(err, 0) })
		return false
	case len(data) == 0 && m.res.Length > 0: // the head waits for it, but not for long (headGrace)
		c.flows = true
		if up.Emptied() && !c.upEnds {
			c.clock.wait(phaseQuick, l.srv.now()+1)
			return false
		}
		return l.flow(c, up)
	}
	switch l.passOn(c, up, data, done, chunked) {
	case goesOn:
		c.flows = true
		if up.Emptied() && !c.upEnds {
			l.awaitMore(c)
			return false
		}
		return l.flow(c, up)
	case hasEnded:
		return true
	default:
		return false
	}
}

// progress is what becomes of a request when a piece of its answer has been passed on.
type progress uint8

const (
	goesOn      progress = iota // there is more to come
	hasEnded                    // that was all
	isElsewhere                 // a goroutine has it
)

// mostFlow is how many pieces of a body a loop passes on before others have their turn.
const mostFlow = 8

// flow passes on what has come of a body. ended is as for answer.
func (l *loop) flow(c *conn, up *upstream.Conn) (ended bool) {
	chunked := c.chunks()
	for range mostFlow {
		var now progress
		if c.moves(up, chunked) {
			p, done, err := up.Move(&l.srv.stock.pipes)
			if err == upstream.ErrWait {
				l.awaitMore(c)
				return false
			}
			now = l.moved(c, up, p, done, err)
		} else {
			data, done, err := up.ReadBody(time.Time{})
			switch {
			case err == upstream.ErrWait:
				l.awaitMore(c)
				return false
			case err != nil:
				now = l.relayed(c, up, c.brokeOff(err, 0))
			default:
				c.mem.try.pieces.add(len(data))
				now = l.passOn(c, up, data, done, chunked)
			}
		}
		switch {
		case now != goesOn:
			return now == hasEnded
		case up.Emptied() && !c.upEnds:
			l.awaitMore(c)
			return false
		}
	}
	l.awaitMore(c)
	l.turnAgain(c)
	return false
}

// chunks says whether the answer goes to the client in chunks.
func (c *conn) chunks() bool { return c.mem.res.ChunkedTo(c.mem.req.Minor) }

// awaitMore waits for more of a body; for long, a goroutine does.
func (l *loop) awaitMore(c *conn) {
	c.clock.wait(phaseQuick, after(l.srv.now(), watchAfter))
}

// moved is conn.moved at a loop.
func (l *loop) moved(c *conn, up *upstream.Conn, p *rawio.Pipe, done bool, err error) progress {
	if err != nil {
		if p != nil {
			l.srv.stock.pipes.Put(p)
		}
		return l.relayed(c, up, c.brokeOff(err, 0))
	}
	left, cause := c.moved(up, p)
	switch {
	case len(left) > 0:
		c.stays = longStay
		l.handEnd(c, up, func() edge.Cause { return c.relayRest(up, false, c.writeLeft(left), done) })
		return isElsewhere
	case cause != edge.CauseNone || done:
		return l.relayed(c, up, cause)
	default:
		return goesOn
	}
}

// passOn is conn.passOn at a loop.
func (l *loop) passOn(c *conn, up *upstream.Conn, data []byte, done, chunked bool) progress {
	m := c.mem
	switch {
	case c.severed():
		return l.relayed(c, up, edge.CauseClientGone)
	case c.unsent() && !c.begins():
		return l.relayed(c, up, c.whyCut())
	}
	p := c.compose(up, data, done, chunked)
	if len(p.tail) > 0 {
		slow := p
		c.stays = longStay
		l.handEnd(c, up, func() edge.Cause {
			return c.relayRest(up, chunked, c.sent(&slow, c.writeAll(m.out, slow.data, slow.tail)), done)
		})
		return isElsewhere
	}
	whole, cause := c.writeNow(m.out, p.data)
	if !whole {
		slow := p
		c.stays = longStay
		l.handEnd(c, up, func() edge.Cause {
			return c.relayRest(up, chunked, c.sent(&slow, c.writeOn(m.out, slow.data, nil)), done)
		})
		return isElsewhere
	}
	if cause = c.sent(&p, cause); cause != edge.CauseNone || done {
		return l.relayed(c, up, cause)
	}
	return goesOn
}

// relayed ends a request whose answer has been passed on, as far as cause says.
func (l *loop) relayed(c *conn, up *upstream.Conn, cause edge.Cause) progress {
	if c.unsent() { // an answer of usher's own follows
		l.handEnd(c, up, func() edge.Cause { return cause })
		return isElsewhere
	}
	c.asking, c.flows = false, false
	l.seats[up.FD()].c = nil
	c.mem.try.up = nil
	c.endRelay(up, cause)
	c.next()
	return hasEnded
}

// relayRest goes on after a piece.
func (c *conn) relayRest(up *upstream.Conn, chunked bool, cause edge.Cause, done bool) edge.Cause {
	if cause != edge.CauseNone || done {
		return cause
	}
	return c.relayBody(up, chunked)
}
