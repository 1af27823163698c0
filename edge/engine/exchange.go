package engine

import (
	"math/rand/v2"
	"time"

	"github.com/usher-edge/usher/edge"
	"github.com/usher-edge/usher/edge/http1"
)

// exchange answers one request, whose head has been read, and sets c.keep.
func (c *conn) exchange() {
	c.begin(time.Now())
	c.keep, c.linger, c.mem.continued = c.mem.req.KeepAlive, false, false
	c.mem.try = attempt{} // memory may be that of the request before
	switch {
	case c.mem.req.Loops(c.viaName()):
		c.refuse(edge.CauseLoop)
		return
	case string(c.mem.req.Path) == "*", c.mem.req.IsLast():
		c.answerOptions()
		return
	}
	for c.step() {
	}
}

// step makes one decision and follows it. It reports whether to decide again.
func (c *conn) step() (again bool) {
	d := c.srv.opt.Edge.Decide(c.lane)
	switch d.Kind {
	case edge.Hit:
		c.hit(&d.Found)
	case edge.Park:
		cause := c.park()
		if cause == edge.CauseNone {
			return true
		}
		c.refuse(cause)
	case edge.Proxy, edge.Detach:
		return c.forward(d.Target)
	default:
		c.refuse(d.Cause)
	}
	return false
}

// park waits in the app's lot while the watcher looks at the client.
func (c *conn) park() edge.Cause {
	c.parked.Store(c.lane)
	c.clock.wait(phasePark, 0)
	c.arm(watchFin)
	cause := c.lane.Park(c.srv.park)
	c.clock.rest()
	return cause
}

// begin tells the core about the request.
func (c *conn) begin(now time.Time) {
	m, q, r := c.mem, &c.mem.req, c.lane
	r.Begin(now)
	r.Method, r.Host, r.HostPort, r.Path, r.Minor = q.Method, q.Host, q.HostPort, q.Path, q.Minor
	r.Header, r.Upgrade, r.Length = q, q.Upgrade != nil, q.Length
	r.Target = q.Target
	if q.Absolute {
		r.Target = originForm(q)
	}
	r.Scheme = c.scheme()
	r.Client = c.ip
	r.ID = c.requestID()
	r.Buffered = int64(m.w)
	if c.trusted {
		r.Client = lastForwarded(q, c.ip)
	}
}

// originForm is the target without scheme and authority.
func originForm(q *http1.Request) []byte {
	t := append([]byte(nil), q.Path...)
	if q.Query != nil {
		t = append(t, '?')
		t = append(t, q.Query...)
	}
	return t
}

// scheme is how the client reached the first proxy, for the cache's keys.
func (c *conn) scheme() []byte {
	if c.trusted {
		if p := c.mem.req.Value(http1.XForwardedProto); string(p) == "https" {
			return p
		}
	}
	return c.srv.text.http
}

// requestID is the trusted peer's if it is well formed, else a new one.
func (c *conn) requestID() []byte {
	if c.trusted {
		if id := c.mem.req.Value(http1.XRequestID); http1.ValidRequestID(id) {
			return id
		}
	}
	const hex = "0123456789abcdef"
	n := rand.Uint64()
	for i := range c.mem.id {
		c.mem.id[i] = hex[n&15]
		n >>= 4
	}
	return c.mem.id[:]
}

// lastForwarded is the address that a trusted proxy says it serves.
func lastForwarded(q *http1.Request, peer []byte) []byte {
	last := peer
	for i := range q.Fields {
		if f := &q.Fields[i]; f.Known == http1.XForwardedFor && len(f.Value) > 0 {
			last = f.Value
		}
	}
	for i := len(last) - 1; i >= 0; i-- {
		if last[i] == ',' || last[i] == ' ' {
			return last[i+1:]
		}
	}
	return last
}

// viaName is how usher calls itself in Via.
func (c *conn) viaName() []byte { return c.srv.text.via }

// finish ends the request in the core's books. It reports false if it had been
// cut: then the client has been reset already.
func (c *conn) finish(res edge.Result) bool {
	if c.cutShort.Load() && res.Cause != edge.CauseNone {
		res.Ending, res.Cause = edge.Failed, edge.CauseDrainCut // it was us
	}
	if c.srv.opt.Edge.Finish(c.lane, res) {
		c.abort()
		return false
	}
	return true
}
