package upstream

import (
	"io"
	"syscall"

	"github.com/usher-edge/usher/edge/rawio"
)

// leastMoved is from where on the rest of a body is worth moving: a piece that is moved
// takes two calls, as one that is copied does.
const leastMoved = 32 << 10

// Movable says whether Move can follow: much is to come of a body whose length is
// known, and nothing of it has been read already.
func (c *Conn) Movable() bool {
	return (c.raw != nil || c.home != nil) && c.r == c.w && c.length >= leastMoved && c.framer.Ahead() >= leastMoved
}

// Move is ReadBody into one of pipes, which may be used up to the call of Put, before
// the next call that reads. No pipe without an error means that nothing can be moved,
// and nothing has been read. Of a bare connection it does not wait: ErrWait.
func (c *Conn) Move(pipes *rawio.Pipes) (p *rawio.Pipe, done bool, err error) {
	c.release()
	c.into = pipes
	err = c.fill()
	p, c.into, c.filled = c.filled, nil, nil
	switch {
	case err == errUnmoved:
		return nil, false, nil
	case err == syscall.EAGAIN:
		return nil, false, ErrWait
	case err != nil:
		return nil, false, c.bodyFailed(err)
	}
	if done = c.framer.Pass(p.Held()); done && c.look(noFD) == talking {
		pipes.Put(p)
		return nil, false, c.bodyFailed(errSurplus)
	}
	return p, done, nil
}

// Spill takes what Move has put into a pipe, and is still there, out of it by copying:
// all of it, as Move takes no more than a buffer holds. What it returns is valid until
// the next call that reads.
func (c *Conn) Spill(p *rawio.Pipe) (data []byte, err error) {
	n := 0
	for p.Held() > 0 {
		k, err := p.Read(c.buffer[n:])
		if err != nil {
			return nil, c.bodyFailed(err)
		}
		n += k
	}
	return c.buffer[:n], nil
}

// moveOn is readOn into a pipe. It takes none while it waits, and with it the buffer
// that Spill may need.
func (c *Conn) moveOn(fd uintptr) error {
	c.emptied = false // nothing is read, or it may have been the pipe that was full
	p := c.into.Get()
	if p == nil {
		return errUnmoved
	}
	c.stocked = c.pool.opt.Buffers.Get(c.framer.Ahead())
	c.buffer = *c.stocked
	n, err := p.From(fd, int(min(c.framer.Ahead(), int64(len(c.buffer)))))
	if n > 0 {
		c.filled = p
		c.got += int64(n)
		return nil
	}
	c.release()
	c.into.Put(p)
	switch {
	case err == nil:
		return io.EOF
	case c.into.Refused(err):
		return errUnmoved
	default:
		return err
	}
}
