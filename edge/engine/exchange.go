package engine

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/usher-edge/usher/edge"
	"github.com/usher-edge/usher/edge/http1"
)

// exchange answers one request, whose head has been read, and sets c.keep.
func (c *conn) exchange() {
	c.takeUp()
	if c.isOurs() {
		c.answerOurs()
		return
	}
	for c.step() {
	}
}

// takeUp begins it.
func (c *conn) takeUp() {
	c.mem.seal()
	c.begin(time.Now())
	c.awaitAnswer()
	c.keep, c.linger, c.mem.continued = c.mem.req.KeepAlive, false, false
	c.mem.try = attempt{} // memory may be that of the request before
}

// isOurs says whether the core need not be asked.
func (c *conn) isOurs() bool {
	q := &c.mem.req
	return q.Loops(c.viaName()) || string(q.Path) == "*" || q.IsLast()
}

func (c *conn) answerOurs() {
	if c.mem.req.Loops(c.viaName()) {
		c.refuse(edge.CauseLoop)
		return
	}
	c.answerOptions()
}

// step makes one decision and follows it. It reports whether to decide again.
func (c *conn) step() (again bool) {
	d := c.srv.opt.Edge.Decide(c.lane)
	return c.follow(&d)
}

// follow does what has been decided.
func (c *conn) follow(d *edge.Decision) (again bool) {
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
	c.soleWriter(c.clock.rest())
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
		told := q.Filled(http1.XForwardedHost)
		r.Elsewhere = told != nil && !bytes.EqualFold(told, q.HostPort)
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

// scheme is how the client reached the first proxy, as the app is told.
func (c *conn) scheme() []byte {
	if c.trusted {
		if p := c.mem.req.Filled(http1.XForwardedProto); p != nil {
			return p
		}
	}
	return c.srv.text.http
}

// requestID is the trusted peer's if it sent one that is well formed, else a new one.
func (c *conn) requestID() []byte {
	if c.trusted {
		if id := c.mem.req.Sole(http1.XRequestID); http1.ValidRequestID(id) {
			return id
		}
	}
	n := c.ids.next()
	id := c.mem.id[:]
	binary.LittleEndian.PutUint64(id, hexDigits(uint32(n)))
	binary.LittleEndian.PutUint64(id[8:], hexDigits(uint32(n>>32)))
	return id
}

// ids makes the numbers of a connection's requests: SplitMix64, from where chance
// begins it. They are no secret, but two connections have none in common.
type ids uint64

func (s *ids) next() uint64 {
	*s += 0x9e3779b97f4a7c15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// hexDigits are the eight hexadecimal digits of n, the last one in the lowest byte.
func hexDigits(n uint32) uint64 {
	const each = 0x0101010101010101
	x := uint64(n)
	x = (x | x<<16) & 0x0000ffff0000ffff
	x = (x | x<<8) & 0x00ff00ff00ff00ff
	x = (x | x<<4) & 0x0f0f0f0f0f0f0f0f
	letters := (x + 6*each) >> 4 & each
	return x + '0'*each + letters*('a'-10-'0')
}

// lastForwarded is the address that a trusted proxy says it serves: the last element
// of the list that is not empty (RFC 9110 §5.6.1).
func lastForwarded(q *http1.Request, peer []byte) []byte {
	for i := len(q.Fields) - 1; i >= 0; i-- {
		f := &q.Fields[i]
		if f.Known != http1.XForwardedFor {
			continue
		}
		if list := bytes.TrimRight(f.Value, ", \t"); len(list) > 0 {
			return list[bytes.LastIndexAny(list, ", \t")+1:]
		}
	}
	return peer
}

// viaName is how usher calls itself in Via.
func (c *conn) viaName() []byte { return c.srv.text.via }

// finish ends the request in the core's books. It reports false if it had been cut
// within its answer: then the client is reset.
func (c *conn) finish(res edge.Result) bool {
	if c.severed() && res.Cause != edge.CauseNone {
		res.Ending, res.Cause = edge.Failed, edge.CauseDrainCut // it was us
	}
	c.lane.Room = c.mem.out[len(c.mem.out):]
	if !c.srv.opt.Edge.Finish(c.lane, res) {
		return true
	}
	c.keep = false
	if s := c.answered.Load(); s == answerOwn || s == answerCut {
		return true // an answer of usher's own is whole
	}
	c.abort()
	return false
}

// answer answers the request whose head has been read.
func (c *conn) answer() {
	c.openLane()
	c.exchange()
	c.next()
}

func (c *conn) openLane() {
	if c.lane == nil {
		c.lane = c.srv.opt.Edge.Open(c)
	}
	c.mem.headUntil = 0
}

// next comes after a request.
func (c *conn) next() {
	c.srv.stock.forgetGathered(c.mem)
	c.stay()
	if !c.keep {
		c.over = true
		return
	}
	c.rest()
}

// rest gives the memory back unless the next request has begun to arrive.
func (c *conn) rest() {
	c.idleUntil = after(c.srv.now(), c.idleFor)
	if c.mem.r == c.mem.w {
		c.srv.stock.put(c.mem)
		c.mem = nil
	} else {
		c.mem.compact()
	}
}
