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
	x, pipes := &c.mem.try, &c.srv.stock.pipes
	c.clock.wait(phaseFlow, after(c.srv.now(), watchAfter))
	p, done, err := up.Move(pipes)
	was := c.soleWriter(c.clock.rest())
	switch {
	case err != nil || was.any():
		if p != nil {
			pipes.Put(p)
		}
		return c.brokeOff(err, was), false
	case p == nil:
		x.copies = true
		return edge.CauseNone, false
	}
	size := p.Held()
	x.pieces.add(size)
	left, cause := c.pour(up, p)
	x.bytesOut += int64(size - p.Held() - len(left))
	pipes.Put(p)
	if len(left) > 0 {
		x.copies = true
		if cause = c.write(left); cause != edge.CauseNone {
			x.bytesOut += int64(c.mem.took)
		} else {
			x.bytesOut += int64(len(left))
		}
	}
	return cause, done
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
