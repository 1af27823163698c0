package engine

import (
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/usher-edge/usher/edge"
	"github.com/usher-edge/usher/edge/rawio"
	"github.com/usher-edge/usher/edge/upstream"
)

// longStay is how many quick requests in a row a goroutine answers before the loop gets
// back a connection that had another one: to and fro costs some twenty system calls.
const longStay = 16

// hand gives the connection a goroutine, which first does what is told, and with it the
// connection to the app that has the request.
func (l *loop) hand(c *conn, first func()) {
	if c.ready {
		l.unseat(int(c.fd))
	}
	var up *upstream.Conn
	if c.mem != nil {
		up = c.mem.try.up
	}
	if up != nil {
		l.seats[up.FD()] = seat{}
		if up.Land(l.srv.opt.Reserve.Land) != nil {
			l.giveUp(c)
			return
		}
	}
	nc, err := l.srv.opt.Reserve.Land(int(c.fd))
	if err != nil {
		l.giveUp(c)
		return
	}
	_ = unix.Close(int(c.fd)) // the socket lives on
	c.clock.rest()
	c.ready, c.asking, c.flows, c.queued, c.fd = false, false, false, false, noFD
	c.poking.Lock()
	c.nc, c.raw, c.loop, c.up = nc, rawOf(nc), nil, up
	c.poking.Unlock()
	switch c.answered.Load() { // who cut it may have told the loop
	case answerSevered:
		c.breakOff()
	case answerCut:
		c.hasLastWords()
		c.interruptUp()
	}
	go c.serveAfter(first)
}

// handStep is hand for a request that is to be decided about again if step says so.
func (l *loop) handStep(c *conn, step func() (again bool)) {
	l.hand(c, func() {
		if step() {
			for c.step() {
			}
		}
		c.next()
	})
}

// handEnd is hand for a request of whose answer the rest is to be relayed.
func (l *loop) handEnd(c *conn, up *upstream.Conn, relay func() edge.Cause) {
	l.hand(c, func() {
		c.endRelay(up, relay())
		c.next()
	})
}

// handAsking is hand for a request whose answer is waited for: it takes long, or has
// been cut.
func (l *loop) handAsking(c *conn) {
	up := c.mem.try.up
	if c.flows {
		l.handEnd(c, up, func() edge.Cause { return c.relayBody(up, c.chunks()) })
		return
	}
	up.Forgo()
	l.handStep(c, func() bool { return c.asked(c.waitOn(up)) })
}

// waitOn waits for the head of an answer that a loop has waited for.
func (c *conn) waitOn(up *upstream.Conn) (*upstream.Conn, interrupt, error) {
	c.clock.wait(phaseLong, moment(c.waitUntil.Load()))
	c.arm(watchFin)
	err := up.ReadHead(&c.mem.res, c.mem.req.Method, time.Time{})
	return c.head(up, err)
}

// giveUp ends a connection that needs a goroutine and cannot have one.
func (l *loop) giveUp(c *conn) {
	l.srv.starve()
	c.over, c.broken = true, true
	if c.lane != nil && c.mem != nil {
		if f := c.mem.try.fill; f != nil {
			f.Abort()
		}
		if up := c.mem.try.up; up != nil {
			c.mem.try.target.Pool().Discard(up)
		}
		res, told := l.lastAnswer(c)
		c.broken = !told
		c.finish(res)
	}
	c.clock.rest()
	l.shut(c)
}

// lastAnswer tells the client of a connection that is given up why, if nothing of its
// answer is out and the kernel takes it at once, and how the request has ended.
func (l *loop) lastAnswer(c *conn) (res edge.Result, told bool) {
	res = c.result(edge.CauseNoDescriptors)
	if c.answered.CompareAndSwap(answerDue, answerOwn) {
		res.Status = 0
		b := refusal(edge.CauseNoDescriptors)
		if n, _ := rawio.Write(uintptr(c.fd), b); n == len(b) {
			res.Status, told = edge.CauseNoDescriptors.Verdict().Status, true
		}
	}
	return res, told
}

// goesHome says whether the connection, which is idle, is to be given to a loop.
func (c *conn) goesHome() bool {
	return len(c.srv.loops) > 0 && c.mem == nil && c.stays == 0 && !c.srv.draining.Load() && liftable(c.nc)
}

// goHome gives the connection, which is idle, to a loop: after it has reported true it
// is not to be touched any more. It cannot if the connection is no socket alone, or for
// want of descriptors.
func (c *conn) goHome() bool {
	s := c.srv
	if len(s.loops) == 0 || s.draining.Load() || !liftable(c.nc) {
		return false
	}
	c.disarm()
	nc := c.nc
	fd, err := rawio.Lift(nc)
	if err != nil {
		c.stays = longStay
		return false
	}
	l := s.loops[int(s.turn.Add(1))%len(s.loops)]
	c.fd, c.stays = int32(fd), 0
	c.poking.Lock()
	c.nc, c.raw, c.loop, c.up = nil, nil, l, nil
	c.poking.Unlock()
	_ = nc.Close() // the socket lives on
	l.takeUp(c)
	return true
}

// liftable says whether nc is a socket and nothing more.
func liftable(nc net.Conn) bool {
	switch nc.(type) {
	case *net.TCPConn, *net.UnixConn:
		return true
	default:
		return false
	}
}

// stay counts the requests for which a goroutine keeps the connection.
func (c *conn) stay() {
	x := &c.mem.try
	switch {
	case c.loop != nil:
	case x.status != 0 && !c.mem.res.KeepAlive:
		c.stays = longStay // the next one is likely to be dialled for as well
	case c.stays == 0:
	case x.pump != nil || x.bytesIn+x.bytesOut > quickMost:
		c.stays = longStay
	default:
		c.stays--
	}
}
