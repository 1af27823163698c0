package engine

import "time"

// idleGrace is how long an idle connection keeps its goroutine.
const idleGrace = 1500 * time.Millisecond

// idleFrom is when an idle connection should be looked at again: it is late
// then, or gives up its goroutine.
func (c *conn) idleFrom() moment {
	grace := after(c.srv.now(), c.srv.opt.grace)
	if c.idleUntil != 0 && c.idleUntil < grace {
		return c.idleUntil
	}
	return grace
}

// endWait is what follows when the wait in a callback was ended by somebody
// else than the client: the head takes too long, the connection is idle for
// long, or it was cut.
func (c *conn) endWait() {
	late := c.clock.rest().late()
	switch {
	case !late || c.severed():
		c.over = true
	case c.mem != nil:
		c.lateHead()
	case c.srv.draining.Load() || c.idleUntil != 0 && c.srv.now() >= c.idleUntil:
		c.over = true
	default:
		c.unpoke()
		c.away = true
	}
}

// unpoke undoes a poke that was meant for a wait that is over. Whoever poked has
// done so under the same lock, so it cannot come later.
func (c *conn) unpoke() {
	c.poking.Lock()
	defer c.poking.Unlock()
	_ = c.nc.SetReadDeadline(time.Time{}) // fails only if closed
}

// leave gives up the goroutine of a connection that is idle for long: the
// watcher makes a new one when there is something to read, and the sweeper or
// Shutdown closes it. Whoever takes it out of phaseAway owns it. After leave has
// reported true the connection is not to be touched any more.
func (c *conn) leave() bool {
	if c.home {
		c.home = false
		return c.goHome()
	}
	if !c.away {
		return false
	}
	c.away = false
	c.leaveLane()
	if c.goHome() {
		return true
	}
	c.clock.wait(phaseAway, c.idleUntil)
	if c.srv.draining.Load() && c.clock.take(phaseAway) {
		c.over = true
		return false
	}
	if c.arm(watchRead) {
		return true
	}
	return !c.clock.take(phaseAway) // it keeps its goroutine if it cannot be watched
}

// leaveLane gives the lane up, until the next request.
func (c *conn) leaveLane() {
	if c.lane != nil {
		c.lane.Close()
		c.lane = nil
		c.parked.Store(nil)
	}
}

// event is told by the watcher what it was armed for: bytes for a connection
// without a goroutine, otherwise that the client left.
func (c *conn) event(half bool) {
	if c.clock.take(phaseAway) {
		go c.serve()
		return
	}
	c.left(half)
}

// end closes a connection that has no goroutine. Whoever calls it has others to look
// after, and the client has had its last answer for long.
func (c *conn) end() {
	c.over = true
	c.shut()
	c.srv.forget(c)
}
