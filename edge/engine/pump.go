package engine

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/usher-edge/usher/edge"
	"github.com/usher-edge/usher/edge/http1"
	"github.com/usher-edge/usher/edge/upstream"
)

// continueAfter is how long an app may take to refuse a request whose client
// waits for 100 Continue, before the body is asked for.
const continueAfter = 50 * time.Millisecond

// settleTime is how long the end of an answer waits for the last write of a
// body that has come in whole.
const settleTime = 100 * time.Millisecond

// pump moves the rest of a request's body to the app while the connection's
// goroutine reads the answer. It ends with the body, with an error on either
// side, or when it is stopped (conn.stopPump).
type pump struct {
	c   *conn
	up  *upstream.Conn
	cfg *edge.AppConfig

	stop     chan struct{} // closed by stopPump
	invited  chan struct{} // closed once the client may send
	finished chan struct{} // closed last

	turn  atomic.Uint32
	whole atomic.Bool // all of the body has been read
	timed atomic.Bool // the app's time to answer runs

	// For others once finished is closed.
	taken int64      // bytes of body taken from the client by the pump
	cause edge.Cause // what is wrong with the client or its body
	left  []byte     // read beyond the body
	bufs  net.Buffers
	vec   [3][]byte
	size  [20]byte
	tail  []byte
	buf   *[]byte
}

func (c *conn) startPump() {
	x := &c.mem.try
	c.useUp(restMoves)
	p := &pump{
		c: c, up: x.up, cfg: c.lane.Config(),
		stop: make(chan struct{}), invited: make(chan struct{}), finished: make(chan struct{}),
	}
	if !c.mem.req.Expect || c.mem.continued || x.bytesIn > 0 {
		p.turn.Store(turnInvited)
		close(p.invited)
	}
	x.pump = p
	go p.run()
}

// isFinished says whether the pump has ended.
func (p *pump) isFinished() bool {
	select {
	case <-p.finished:
		return true
	default:
		return false
	}
}

func (p *pump) run() {
	if p.await() {
		p.buf = p.c.srv.stock.bodies.Get(0)
		p.cause = p.move()
		p.c.srv.stock.bodies.Put(p.buf)
	}
	p.c.bodyClock.rest()
	if p.cause != edge.CauseNone {
		p.up.Interrupt() // nobody should wait for the answer to half a request
	}
	p.timed.Store(true)
	p.startTime()
	close(p.finished)
}

// startTime starts the app's time to answer, now that it has got the body. It
// is called by whoever comes last, the pump or the one who waits for the answer.
func (p *pump) startTime() {
	if limit := p.cfg.FirstByteTimeout; limit > 0 {
		until := after(p.c.srv.now(), limit)
		p.c.waitUntil.Store(uint64(until))
		p.c.clock.postpone(until, phaseWait, phaseLong)
	}
}

// await waits until the client has been asked for the body, which the pump does
// itself if nobody else has after a while. It reports false if the body is not
// wanted any more.
func (p *pump) await() bool {
	if p.turn.Load() == turnInvited {
		return true
	}
	t := time.NewTimer(continueAfter)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.invited:
	case <-p.stop:
		return false
	}
	if p.invite() {
		return true
	}
	if p.turn.Load() == turnInvited {
		p.cause = edge.CauseClientGone // a part of it may be out, behind which nothing can follow
	}
	return false
}

// The turns of a pump: who may write to the client.
const (
	turnOpen      = iota // whoever invites first
	turnInvited          // 100 Continue is out, or needs no sending: the connection only
	turnAnswering        // the final answer has begun: the connection only, no 100 any more
)

// invite sends 100 Continue, once, from whichever goroutine comes first. It
// reports false if the final answer came before.
func (p *pump) invite() bool {
	if !p.turn.CompareAndSwap(turnOpen, turnInvited) {
		if p.turn.Load() == turnAnswering {
			return false
		}
		<-p.invited
		return true
	}
	c := p.c
	c.mem.continued = true
	c.bodyClock.wait(phaseWrite, after(c.srv.now(), c.door.WriteTimeout))
	_, err := c.nc.Write(c.srv.text.goOn)
	late := c.bodyClock.rest().late()
	close(p.invited)
	return err == nil && !late
}

// startAnswer makes sure that no 100 Continue falls into the final answer.
func (p *pump) startAnswer() {
	if p != nil && !p.turn.CompareAndSwap(turnOpen, turnAnswering) {
		<-p.invited
	}
}

// move reads the body and writes it to the app.
func (p *pump) move() edge.Cause {
	c, m := p.c, p.c.mem
	rate := rate{limit: c.door.MinBodyRate, window: c.door.BodyTimeout}
	for n := 0; ; {
		p.fit(n)
		asked := c.srv.now()
		var cause edge.Cause
		n, cause = p.read()
		if cause != edge.CauseNone || n == 0 {
			return cause
		}
		if !rate.enough(n, c.srv.now()-asked) {
			return edge.CauseBodyTimeout
		}
		for used := 0; used < n; {
			data, k, done, err := m.body.Gather((*p.buf)[used:n])
			if err != nil {
				return edge.CauseBadRequest
			}
			used += k
			p.taken += int64(len(data))
			if p.cfg.MaxBody > 0 && p.taken+c.mem.try.bytesIn > p.cfg.MaxBody {
				return edge.CauseBodyTooLarge
			}
			if done {
				p.left = append(p.left, (*p.buf)[used:n]...)
				p.whole.Store(true)
			}
			if ok, late := p.pass(data, done); late {
				return edge.CauseFirstByteTimeout
			} else if !ok {
				return edge.CauseNone // the answer tells why
			}
			if done {
				p.up.Sent = true
				return edge.CauseNone
			}
		}
	}
}

// fit takes a wide buffer, if there is one, once a client has filled a common one
// and has much to come: it sends faster than its body is passed on. A client that
// has become slow gives it back.
func (p *pump) fit(last int) {
	bodies, size := p.c.srv.stock.bodies, len(*p.buf)
	switch {
	case last == pumpSize && size == pumpSize:
		bodies.Put(p.buf)
		p.buf = bodies.Get(p.c.mem.body.Ahead())
	case last < pumpSize && size > pumpSize:
		bodies.Put(p.buf)
		p.buf = bodies.Get(0)
	}
}

// read reads some of the body, and nothing beyond it where its length is known.
// 0 and no cause means that the pump was stopped.
func (p *pump) read() (int, edge.Cause) {
	c, buf := p.c, *p.buf
	if length := c.mem.req.Length; length >= 0 {
		if left := length - c.mem.try.bytesIn - p.taken; left < int64(len(buf)) {
			buf = buf[:left]
		}
	}
	c.bodyClock.wait(phaseBody, after(c.srv.now(), c.door.BodyTimeout))
	n, err := c.nc.Read(buf)
	late := c.bodyClock.rest().late()
	switch {
	case late:
		return 0, edge.CauseBodyTimeout
	case n > 0:
		return n, edge.CauseNone
	case timedOut(err):
		return 0, edge.CauseNone
	default:
		return 0, edge.CauseClientGone
	}
}

// pass is write with a bound: an app that takes nothing for as long as it may take
// to answer is late, unless its answer has begun.
func (p *pump) pass(data []byte, done bool) (ok, late bool) {
	p.c.bodyClock.wait(phasePass, after(p.c.srv.now(), p.cfg.FirstByteTimeout))
	ok = p.write(data, done)
	return ok, p.c.bodyClock.rest().late()
}

// write passes a piece of body on, with one write, in the framing that the app was
// told.
func (p *pump) write(data []byte, done bool) bool {
	if p.c.mem.req.Length != http1.Chunked {
		_, err := p.up.Write(data)
		return err == nil
	}
	p.bufs, p.tail = p.vec[:0], p.tail[:0]
	if len(data) > 0 {
		p.bufs = append(p.bufs, http1.AppendChunkSize(p.size[:0], len(data)), data)
		p.tail = append(p.tail, '\r', '\n')
	}
	if done {
		p.tail = http1.AppendLastChunk(p.tail, p.c.requestTrailer(p.cfg))
	}
	if len(p.tail) == 0 {
		return true // nothing but framing has come
	}
	p.bufs = append(p.bufs, p.tail)
	_, err := p.up.WriteBuffers(&p.bufs)
	return err == nil
}

// stopPump ends the pump if there is one, and says what was wrong with the body.
func (c *conn) stopPump() edge.Cause {
	p := c.mem.try.pump
	if p == nil {
		return edge.CauseNone
	}
	if !p.isFinished() && !(p.whole.Load() && p.settles()) {
		close(p.stop)
		c.poke()
		p.up.Interrupt() // it may wait for the app to take bytes
		<-p.finished
		_ = c.nc.SetReadDeadline(time.Time{}) // fails only if closed
	}
	if !p.whole.Load() || p.cause != edge.CauseNone { // whoever interrupted it may not be done with that
		c.lose()
		return p.cause
	}
	c.mem.try.rest = restNone
	c.mem.adopt(p.left)
	p.left = nil
	return edge.CauseNone
}

// settles gives the pump a moment to end by itself.
func (p *pump) settles() bool {
	t := time.NewTimer(settleTime)
	defer t.Stop()
	select {
	case <-p.finished:
		return true
	case <-t.C:
		return false
	}
}
