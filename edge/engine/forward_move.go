package engine

import (
	"syscall"

	"github.com/usher-edge/usher/edge"
	"github.com/usher-edge/usher/edge/rawio"
	"github.com/usher-edge/usher/edge/upstream"
)

// pieces are the last few of an answer, and whether those before them were small.
type pieces struct {
	n, bytes int
	small    bool
}

const (
	fewPieces  = 4
	smallMoved = 16 << 10 // moved, a piece like this costs more than copied
)

// add is told of one more. One alone says nothing about how the app writes: it may be
// what was there when usher looked.
func (p *pieces) add(size int) {
	p.n++
	p.bytes += size
	if p.n == fewPieces {
		*p = pieces{small: p.bytes < fewPieces*smallMoved}
	}
}

// moves says whether the next piece of an answer can go from the app's socket to the
// client's within the kernel: most of a large answer can, if the cache wants no copy,
// the app writes it in large pieces and the client takes it as fast as it comes.
func (c *conn) moves(up *upstream.Conn, chunked bool) bool {
	x := &c.mem.try
	return c.door.moves && c.fd != noFD && !chunked && x.fill == nil && !x.copies && !x.pieces.small && !c.unsent() && up.Movable()
}

// move passes one piece on. If that cannot be done it has done nothing, and the rest is
// copied. A client that does not take all of it at once is slow: it is waited for with
// a copy, and without a pipe, and so it is from then on.
func (c *conn) move(up *upstream.Conn) (cause edge.Cause, done bool) {
	pipes := &c.srv.stock.pipes
	c.clock.wait(phaseFlow, after(c.srv.now(), watchAfter))
	p, done, err := up.Move(pipes)
	was := c.soleWriter(c.clock.rest())
	if err != nil || was.any() {
		if p != nil {
			pipes.Put(p)
		}
		return c.brokeOff(err, was), false
	}
	left, cause := c.moved(up, p)
	if len(left) > 0 {
		cause = c.writeLeft(left)
	}
	return cause, done
}

// moved passes on what has been moved, if anything can be: what is left is to be
// written.
func (c *conn) moved(up *upstream.Conn, p *rawio.Pipe) (left []byte, cause edge.Cause) {
	x := &c.mem.try
	if p == nil {
		x.copies = true
		return nil, edge.CauseNone
	}
	size := p.Held()
	x.pieces.add(size)
	left, cause = c.pour(up, p)
	x.bytesOut += int64(size - p.Held() - len(left))
	c.srv.stock.pipes.Put(p)
	x.copies = len(left) > 0
	return left, cause
}

// writeLeft writes what moved has left.
func (c *conn) writeLeft(left []byte) edge.Cause {
	cause := c.write(left)
	if cause == edge.CauseNone {
		c.mem.took = len(left)
	}
	c.mem.try.bytesOut += int64(c.mem.took)
	return cause
}

// pour sends what is in p, and returns a copy of what the client does not take at once,
// or the kernel does not move.
func (c *conn) pour(up *upstream.Conn, p *rawio.Pipe) (left []byte, cause edge.Cause) {
	for p.Held() > 0 {
		if c.severed() {
			return nil, edge.CauseClientGone
		}
		switch _, err := p.To(uintptr(c.fd)); {
		case err == nil:
		case err != syscall.EAGAIN && !c.srv.stock.pipes.Refused(err):
			return nil, edge.CauseClientGone
		default:
			if left, err = up.Spill(p); err != nil {
				return nil, edge.CauseAborted
			}
		}
	}
	return left, edge.CauseNone
}
