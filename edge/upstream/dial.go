package upstream

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/usher-edge/usher/edge/rawio"
)

// dial opens a connection, for which take has made a reservation.
func (p *Pool) dial(ctx context.Context) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, p.opt.DialTimeout)
	defer cancel()
	p.opt.Share.take()
	nc, err := p.connectOrMakeRoom(ctx)
	p.mu.Lock()
	p.dialing--
	late := p.closed
	var c *Conn
	if err == nil && !late {
		c = newConn(p, nc)
		p.open[c] = struct{}{}
		p.dialled++
	}
	p.mu.Unlock()
	if err == nil && late {
		_ = nc.Close()
		err = ErrClosed
	}
	if err != nil {
		p.opt.Share.give()
		return nil, &Error{Op: "dial", Err: err, undelivered: true}
	}
	return c, nil
}

// connectOrMakeRoom closes what is idle, in whatever pool, while there is no descriptor.
func (p *Pool) connectOrMakeRoom(ctx context.Context) (nc net.Conn, err error) {
	for {
		err = syscall.EMFILE
		if p.opt.Reserve.Whole() {
			nc, err = p.connect(ctx)
		}
		if !rawio.Exhausted(err) || !p.opt.Share.closeOldest() {
			return nc, err
		}
	}
}

// connect dials until it is done. A unix socket whose backlog is full refuses
// with EAGAIN where TCP would wait, so we wait.
func (p *Pool) connect(ctx context.Context) (net.Conn, error) {
	const longest = 20 * time.Millisecond
	var full error
	for pause := time.Millisecond; ; pause = min(2*pause, longest) {
		nc, err := p.opt.Dial(ctx, p.opt.Network, p.opt.Address)
		switch {
		case errors.Is(err, syscall.EAGAIN):
			full = err
		case full != nil && err != nil && Timeout(err):
			return nil, errors.Join(full, err) // the end of the time is not why
		default:
			return nc, err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, errors.Join(full, ctx.Err())
		}
	}
}
