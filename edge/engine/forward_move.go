package engine

import (
	"syscall"

	"github.com/usher-edge/usher/edge"
	"github.com/usher-edge/usher/edge/rawio"
	"github.com/usher-edge/usher/edge/upstream"
)

// moves says whether the next piece of an answer can go from the app's socket to the
// client's within the kernel: most of a large answer can, if the cache wants no copy
// and the client takes it as fast as it comes.
func (c *conn) moves(up *upstream.Conn, chunked bool) bool {
	x := &c.mem.try
	return c.door.moves && c.fd != noFD && !chunked && x.fill == nil && !x.copies && !c.unsent() && up.Movable()
}

// move passes one piece on. If that cannot be done it has done nothing, and the rest is
// copied.
func (c *conn) move(up *upstream.Conn) (cause edge.Cause, done bool) {
	x, pipes := &c.mem.try, &c.srv.stock.pipes
	c.clock.wait(phaseFlow, after(c.srv.now(), watchAfter))
	p, done, err := up.Move(pipes)
	was := c.soleWriter(c.clock.rest())
	if p != nil {
		defer pipes.Put(p)
	}
	switch {
	case err != nil || was.any():
		return c.brokeOff(err, was), false
	case p == nil:
		x.copies = true
		return edge.CauseNone, false
	}
	x.bytesOut += int64(p.Held())
	return c.pour(p), done
}

// pour sends what is in p. A client that does not take it at once is slow: it is waited
// for with a copy, and so it is from then on.
func (c *conn) pour(p *rawio.Pipe) edge.Cause {
	if c.severed.Load() {
		return edge.CauseClientGone
	}
	for p.Held() > 0 {
		_, err := p.To(uintptr(c.fd))
		if err == syscall.EAGAIN {
			return c.pourSlowly(p)
		}
		if err != nil {
			return edge.CauseClientGone
		}
	}
	return edge.CauseNone
}

func (c *conn) pourSlowly(p *rawio.Pipe) edge.Cause {
	c.mem.try.copies = true
	bodies := c.srv.stock.bodies
	buf := bodies.Get(int64(p.Held()))
	defer bodies.Put(buf)
	for p.Held() > 0 {
		n, err := p.Read(*buf)
		if err != nil {
			return edge.CauseAborted
		}
		if cause := c.writeAll((*buf)[:n], nil, nil); cause != edge.CauseNone {
			return cause
		}
	}
	return edge.CauseNone
}
