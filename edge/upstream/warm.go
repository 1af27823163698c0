package upstream

import (
	"context"
	"errors"
	"time"

	"github.com/usher-edge/usher/edge/http1"
)

// errCold ends a Warm that does no good: the app keeps no connection, or has other
// worries than to be warm.
var errCold = errors.New("the app closed the connection, or answered with an error or at length")

// The shortest and the longest rest between two questions.
const (
	leastRest = 10 * time.Millisecond
	mostRest  = 25 * time.Millisecond
)

// longAnswer is from where on an answer is too long to be asked for many times.
const longAnswer = 64 << 10

// Warm opens up to n connections, one after the other, sends question, a whole GET
// request, over each and keeps it. The first request on a connection is the dearest
// for an app that has just started, so those of clients should not be it.
//
// It rests after each answer for four times as long as the answer took, and for
// leastRest, so that it takes little from who needs the machine meanwhile. It returns
// when ctx ends, at the first connection that is of no use, or when the pool's share is
// used up; what was opened by then stays.
func (p *Pool) Warm(ctx context.Context, question []byte, n int) error {
	for range n {
		if !p.opt.Share.room() {
			return ErrFull
		}
		begun := time.Now()
		c, err := p.warm(ctx, question)
		if err != nil {
			return err
		}
		rest := time.NewTimer(min(max(4*time.Since(begun), leastRest), mostRest))
		select {
		case <-rest.C:
		case <-ctx.Done():
			rest.Stop()
		}
		if c.look(noFD) != quiet {
			p.Discard(c)
			return errCold
		}
		p.Put(c)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// warm opens a connection and asks over it.
func (p *Pool) warm(ctx context.Context, question []byte) (*Conn, error) {
	p.mu.Lock()
	refuse := p.closed || p.retired
	if !refuse {
		p.dialing++
	}
	p.mu.Unlock()
	if refuse {
		return nil, ErrClosed
	}
	c, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	unbound := context.AfterFunc(ctx, c.Interrupt)
	err = c.exchange(question)
	if !unbound() && err == nil {
		err = context.Cause(ctx) // Interrupt may be at it: it is not kept
	}
	if err != nil {
		p.Discard(c)
		return nil, err
	}
	return c, nil
}

// exchange asks and reads the whole answer.
func (c *Conn) exchange(question []byte) error {
	var res http1.Response
	if err := c.Ask(question, nil, &res, []byte("GET")); err != nil {
		return err
	}
	for res.Status < 200 {
		if err := c.ReadHead(&res, []byte("GET"), time.Time{}); err != nil {
			return err
		}
	}
	for {
		_, done, err := c.ReadBody(time.Time{})
		switch {
		case err != nil:
			return err
		case c.got > longAnswer, done && (res.Status >= 500 || !c.clean()):
			return errCold
		case done:
			return nil
		}
	}
}
