package engine

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/usher-edge/usher/edge"
)

// rate tells bodies that come too slowly to be worth waiting for. What counts is
// the time spent waiting for the client: an app that is slow to take the body is
// no fault of who sends it.
type rate struct {
	limit  int64         // bytes a second; below 0 = none
	window time.Duration // of waiting, over which is judged
	waited moment
	bytes  int64
}

// enough counts n bytes that were waited for, and judges once per window.
func (r *rate) enough(n int, waited moment) bool {
	r.bytes += int64(n)
	r.waited += waited
	if r.limit < 0 || time.Duration(r.waited)*time.Millisecond < r.window {
		return true
	}
	ok := r.bytes >= int64(r.waited)*r.limit/1000
	r.waited, r.bytes = 0, 0
	return ok
}

// takes keeps a long write to the client going as long as the client takes
// enough of it: it begins to measure once the write has become long, judges once
// per WriteTimeout, and reports false when the time is up. It runs on the
// sweeper's goroutine.
func (c *conn) takes(now moment) bool {
	window := c.door.WriteTimeout
	if c.clock.linger(now, after(now, window)) {
		c.taken, _ = c.acknowledged()
		return true
	}
	if c.clock.now() != phaseTake || !c.clock.due(now) {
		return false
	}
	acked, known := c.acknowledged()
	least := max(1, uint64(max(0, c.door.MinWriteRate))*uint64(window/time.Millisecond)/1000)
	if !known || acked-c.taken < least {
		return false
	}
	c.taken = acked
	c.clock.postpone(after(now, window), phaseTake)
	return true
}

// acknowledged is how many bytes the client's side of a TCP connection has
// confirmed so far (tcp(7), TCP_INFO). Of other connections it is not known; a
// write that is long there must come to its end within one window.
func (c *conn) acknowledged() (n uint64, known bool) {
	raw := c.socket()
	if raw == nil || !c.door.tcp {
		return 0, false
	}
	err := raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			n, known = info.Bytes_acked, true
		}
	})
	return n, known && err == nil
}

// mostAtOnce is how many bytes one write has at most, where there are many: a
// write must come to its end in some time.
const mostAtOnce = 256 << 10

// writeLong sends a head and a body that may be large, and says how much was taken.
func (c *conn) writeLong(head, body []byte) (took int, failed edge.Cause) {
	n := min(len(body), mostAtOnce)
	failed = c.writeAll(head, body[:n], nil)
	for took = len(head) + n; failed == edge.CauseNone && len(body) > n; took += n {
		body = body[n:]
		n = min(len(body), mostAtOnce)
		head, failed = nil, c.write(body[:n])
	}
	if failed != edge.CauseNone {
		took += c.mem.took - len(head) - n
	}
	return took, failed
}
