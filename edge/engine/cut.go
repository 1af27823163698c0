package engine

import (
	"net"
	"time"

	"github.com/usher-edge/usher/edge"
)

// How far the answer to the request that is under way has come. It decides what
// becomes of the request when it is cut, by the end of a drain or of Shutdown's time:
// as long as nothing of its answer is out it gets one that says what happened. After
// that nothing can be said any more, and only a reset is no lie.
const (
	answerBegun   uint32 = iota // bytes of it may be out, or no request is under way: a cut is a reset
	answerDue                   // nothing is out but interim answers: a cut has the connection's goroutine answer
	answerOwn                   // usher's own is on its way, which needs no app: a cut bounds it
	answerCut                   // it was cut, and its goroutine will answer
	answerSevered               // not a byte more
)

// lastWords is how long one who was cut has to take the answer that says so. The
// process behind it ends, and so may usher.
const lastWords = time.Second

// Cut ends the request that is under way, if its answer has not begun with an answer
// that says so, else with a reset.
func (c *conn) Cut() {
	for {
		switch c.answered.Load() {
		case answerDue:
			if c.answered.CompareAndSwap(answerDue, answerCut) {
				c.hasLastWords()
				c.interruptUp()
				return
			}
		case answerOwn:
			c.hasLastWords() // nothing follows it, as the request counts as cut
			return
		case answerBegun:
			if c.answered.CompareAndSwap(answerBegun, answerSevered) {
				c.breakOff()
				return
			}
		default:
			return
		}
	}
}

// hasLastWords bounds what is still written to the client, for good.
func (c *conn) hasLastWords() {
	c.reach(func(nc net.Conn) { _ = nc.SetWriteDeadline(time.Now().Add(lastWords)) }) // fails only if closed
}

// sever breaks the connection off, whatever it is at.
func (c *conn) sever() {
	if c.answered.Swap(answerSevered) != answerSevered {
		c.breakOff()
	}
}

// breakOff resets the connection, so that nothing looks whole. Closing waits for the
// goroutine that reads, so another one does that.
func (c *conn) breakOff() {
	if c.srv.holds(c) {
		go func() {
			defer c.srv.goroutines.Done()
			c.poking.Lock()
			nc, l := c.nc, c.loop
			c.poking.Unlock()
			switch {
			case l != nil:
				l.tell(c)
			case nc != nil:
				reset(nc)
			}
		}()
	}
	c.interruptUp()
}

func (c *conn) severed() bool { return c.answered.Load() == answerSevered }

// awaitAnswer says that a request is under way and nothing of its answer is out.
func (c *conn) awaitAnswer() {
	for {
		s := c.answered.Load()
		if s == answerSevered || c.answered.CompareAndSwap(s, answerDue) {
			return
		}
	}
}

// begins is asked before the first byte of a final answer. It reports false if the
// request has been cut: then the answer is whyCut.
func (c *conn) begins() bool {
	return c.answered.CompareAndSwap(answerDue, answerBegun) || c.answered.Load() != answerCut
}

// beginsOwn is begins for an answer of usher's own.
func (c *conn) beginsOwn() bool {
	return c.answered.CompareAndSwap(answerDue, answerOwn) || c.answered.Load() != answerCut
}

// whyCut is the cause of a request that was cut before its answer had begun. Nothing
// may follow it on its connection: whoever cut it may not be done with that.
func (c *conn) whyCut() edge.Cause {
	c.keep = false
	return edge.CauseDrainCut
}
