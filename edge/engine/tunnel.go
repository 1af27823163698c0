package engine

import (
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/usher-edge/usher/edge"
	"github.com/usher-edge/usher/edge/http1"
	"github.com/usher-edge/usher/edge/upstream"
)

// halfOpen is how long a tunnel lives without a byte when one side has ended
// what it sends. The other may have much to do before it answers; one that has
// gone altogether is told by TCP's keep-alive.
const halfOpen = time.Hour

// tunnel carries a connection that has switched to another protocol: bytes both
// ways, those that came together with the heads first, until both sides have
// ended.
type tunnel struct {
	c      *conn
	up     *upstream.Conn
	ending *ending
	ws     bool
	frames frames // from the app
	asks   frames // from the client

	parted       atomic.Uint32 // 1 + the edge.Parting of whoever ended it first
	out          int64         // bytes to the client
	in           int64         // bytes to the app; for others once upDone is closed
	inFailed     edge.Cause    // likewise
	upDone       chan struct{} // closed when the client's direction has ended
	finished     atomic.Bool   // the client has ended what it sends
	leftToClient atomic.Bool   // the app has
}

// tunnel answers with the app's 101 and runs the tunnel to its end.
func (c *conn) tunnel(up *upstream.Conn) {
	m, x := c.mem, &c.mem.try
	x.status = 101
	c.keep = false
	c.appendExtra()
	m.follow(up, len(m.extra)+additions)
	m.out = http1.AppendResponse(m.out, &m.res, &http1.Answer{Minor: m.req.Minor, Via: c.viaName(), Extra: m.extra})
	t := &tunnel{c: c, up: up, ws: isWebSocket(m.res.Upgrade), upDone: make(chan struct{})}
	cause := c.flush()
	if c.unsent() {
		c.discard(up)
		c.refuse(cause)
		return
	}
	if cause == edge.CauseNone {
		c.lane.Upgraded()
		t.ending = c.openStream(t.look)
		cause = t.run()
		t.ending.close()
		c.linger = t.ending.asked.Load() // who has not ended by then may still be sending
	}
	x.bytesIn, x.bytesOut = t.in, t.out
	res := c.result(cause)
	res.Parting = t.parting()
	ok := c.finish(res)
	c.discard(up)
	if ok && cause != edge.CauseNone {
		c.abort()
	}
}

// run moves bytes until both directions have ended.
func (t *tunnel) run() edge.Cause {
	go t.carryIn()
	cause := t.carryOut()
	switch {
	case cause != edge.CauseNone:
		t.c.poke()
		t.up.Interrupt()
	case t.ending.asked.Load():
		t.part()
	default:
		t.hangUp()
		cause = t.awaitIn()
	}
	<-t.upDone
	if cause == edge.CauseNone {
		cause = t.inFailed
	}
	return cause
}

// look makes whoever waits for bytes see that the tunnel is asked to end.
func (t *tunnel) look() {
	_ = t.up.NetConn().SetReadDeadline(past()) // fails only if closed
	if t.leftToClient.Load() {
		t.c.poke()
	}
}

// ends notes who ends the tunnel; the first one counts.
func (t *tunnel) ends(by edge.Parting) { t.parted.CompareAndSwap(0, uint32(by)+1) }

func (t *tunnel) parting() edge.Parting {
	if p := t.parted.Load(); p != 0 {
		return edge.Parting(p - 1)
	}
	return edge.PartedByClient // it never got the answer that begins the tunnel
}

// follow looks for a close frame: whoever sends the first one ends the tunnel.
func (t *tunnel) follow(f *frames, b []byte, by edge.Parting) {
	if !t.ws {
		return
	}
	if f.follow(b); f.closed {
		t.ends(by)
	}
}

// carryIn moves bytes from the client to the app. It ends with the client's
// sending side, or when the client's connection is poked or closed.
func (t *tunnel) carryIn() {
	defer close(t.upDone)
	m := t.c.mem
	buf := t.c.srv.stock.bodies.Get(0)
	defer t.c.srv.stock.bodies.Put(buf)
	pending := m.unread()
	m.r = m.w
	for {
		if len(pending) > 0 {
			t.follow(&t.asks, pending, edge.PartedByClient)
			if _, err := t.up.Write(pending); err != nil {
				return // the other direction finds out what that means
			}
			t.in += int64(len(pending))
			t.renew(&t.leftToClient)
		}
		n, err := t.c.nc.Read(*buf)
		if err != nil {
			t.inEnded(err)
			return
		}
		pending = (*buf)[:n]
	}
}

// inEnded passes the end of the client's side on: a half-close as such, anything
// else as the end of all.
func (t *tunnel) inEnded(err error) {
	switch {
	case errors.Is(err, io.EOF):
		t.ends(edge.PartedByClient)
		_ = t.up.CloseWrite() // the other direction finds out if this fails
		t.finished.Store(true)
		t.watch()
	case timedOut(err):
	default:
		t.ends(edge.PartedByClient)
		t.inFailed = edge.CauseClientGone
		t.up.Interrupt()
	}
}

// carryOut moves bytes from the app to the client, until the app ends its side,
// or the tunnel is asked to end and no frame is under way.
func (t *tunnel) carryOut() edge.Cause {
	c := t.c
	buf := c.srv.stock.bodies.Get(0)
	defer c.srv.stock.bodies.Put(buf)
	last := false // the frame under way has its time to end
	for {
		c.clock.wait(phaseTunnel, 0)
		t.watch()
		n, err := t.up.Read(*buf)
		was := c.clock.rest()
		if n > 0 {
			t.follow(&t.frames, (*buf)[:n], edge.PartedByApp)
			if cause := c.write((*buf)[:n]); cause != edge.CauseNone {
				t.ends(t.whoFails())
				t.out += int64(c.mem.took)
				return cause
			}
			t.out += int64(n)
		}
		asked := t.ending.asked.Load()
		if asked {
			t.ends(edge.PartedByUsher)
		}
		switch {
		case asked && (!t.ws || t.frames.boundary() || last && timedOut(err)):
			return edge.CauseNone
		case asked && timedOut(err):
			last = t.grace()
		case was.late():
			return edge.CauseHalfOpen
		case was.gone():
			t.ends(edge.PartedByClient)
			return edge.CauseClientGone
		case errors.Is(err, io.EOF):
			t.ends(edge.PartedByApp)
			return edge.CauseNone
		case err != nil:
			cause := t.outFailed()
			t.ends(edge.PartedByApp)
			return cause
		}
	}
}

// renew gives the side that has not ended its time anew, if the other one has.
func (t *tunnel) renew(ended *atomic.Bool) {
	if ended.Load() {
		t.c.clock.postpone(after(t.c.srv.now(), t.c.srv.opt.halfOpen), phaseTunnel, phaseLast)
	}
}

// watch looks, once the client has ended what it sends and nobody reads from it any
// more, for the app's next bytes or the client's leaving, whichever comes first. It
// belongs to each wait: what the watcher tells between two is told to nobody.
func (t *tunnel) watch() {
	if t.finished.Load() {
		t.renew(&t.finished)
		t.c.arm(watchReset)
	}
}

// whoFails is who ends a tunnel whose client does not take what it is sent.
func (t *tunnel) whoFails() edge.Parting {
	if t.ending.asked.Load() {
		return edge.PartedByUsher // which has given it little time
	}
	return edge.PartedByClient
}

// grace lets the frame that is under way come to its end, in what time there is.
func (t *tunnel) grace() bool { return t.up.NetConn().SetReadDeadline(t.ending.until) == nil }

// outFailed tells a client that left from an app that broke off.
func (t *tunnel) outFailed() edge.Cause {
	select {
	case <-t.upDone:
		if t.inFailed != edge.CauseNone {
			return t.inFailed
		}
	default:
	}
	return edge.CauseAborted
}

// part says goodbye to the client and lets it answer, in what time there is.
func (t *tunnel) part() {
	if t.ws && t.frames.boundary() && !t.frames.closed {
		t.ending.lastWords()
		t.c.write([]byte(closeRestart)) // a client that is gone needs no goodbye
	}
	t.hangUp()
	_ = t.c.nc.SetReadDeadline(t.ending.until) // fails only if closed
	t.up.SetWriteDeadline(t.ending.until)
}

// hangUp ends the sending side towards the client.
func (t *tunnel) hangUp() {
	if h, ok := t.c.nc.(interface{ CloseWrite() error }); ok {
		_ = h.CloseWrite() // fails only if the client is gone
	}
}

// awaitIn waits for the end of the client's direction, which may still have much
// to say. Whoever asks the tunnel to end looks first who is waited for.
func (t *tunnel) awaitIn() edge.Cause {
	t.c.clock.wait(phaseLast, 0)
	t.leftToClient.Store(true)
	t.renew(&t.leftToClient)
	if t.ending.asked.Load() {
		t.c.poke()
	}
	<-t.upDone
	if t.c.clock.rest().late() {
		return edge.CauseHalfOpen
	}
	return edge.CauseNone
}
