package engine

import (
	"errors"
	"time"

	"github.com/usher-edge/usher/edge"
	"github.com/usher-edge/usher/edge/http1"
	"github.com/usher-edge/usher/edge/rawio"
	"github.com/usher-edge/usher/edge/upstream"
)

// watchAfter is how long a wait for the app goes on before the client is
// watched. Most answers come sooner, and watching costs a system call.
const watchAfter = time.Second

// attempt is one try of a request at a target.
type attempt struct {
	target   *edge.Target
	up       *upstream.Conn // nil: connecting failed
	rest     rest           // where the request's body is
	pump     *pump          // nil: the body was here already, or there is none, or it is lost
	prefix   int            // bytes of m.in[m.r:] that were body and went with the head
	sent     time.Time      // when the head went out, if the cache wants to know
	status   int            // of the answer, once it is on its way to the client
	bytesIn  int64
	bytesOut int64
	fill     edge.Fill
	copies   bool // what is left of the answer is not to be moved
	pieces   pieces
}

// errBadBody is a request body that is not what its head said.
var errBadBody = errors.New("engine: malformed request body")

// forward tries the request at t, into which it is counted. It reports whether
// it should be decided about again; otherwise it is finished.
func (c *conn) forward(t *edge.Target) (again bool) {
	return c.asked(c.ask(t, nil))
}

// asked goes on when the head of the answer is here, or is not to be had.
func (c *conn) asked(up *upstream.Conn, was interrupt, err error) (again bool) {
	if err != nil || was.any() {
		return c.fail(err, was)
	}
	if c.mem.try.rest == restWaits {
		c.useUp(restNone)
	}
	if c.mem.res.Status == 101 {
		c.tunnel(up)
		return false
	}
	c.relay(up)
	return false
}

// ask sends the request and reads up to the final head of the answer. A
// connection from the pool that has gone stale is no try: another one is taken.
//
// up is one to begin with, that has just been taken; nil: from the pool.
func (c *conn) ask(t *edge.Target, up *upstream.Conn) (*upstream.Conn, interrupt, error) {
	for ; ; up = nil {
		c.mem.try = attempt{target: t, up: up}
		more, err := c.build()
		if up == nil && err == nil {
			up, err = t.Pool().Get(c.srv.work, c.mem.req.IsIdempotent())
		}
		if err != nil {
			return nil, 0, err
		}
		c.mem.try.up = up
		c.mem.lend(up, c.door.moves && c.fd != noFD)
		c.meet(up)
		was, err := c.askOn(up, more)
		if !upstream.Stale(err) || was.any() {
			return up, was, err
		}
		c.discard(up)
	}
}

// askOn is ask on one connection; more says that there is body left to move.
func (c *conn) askOn(up *upstream.Conn, more bool) (interrupt, error) {
	if !more {
		c.waitForApp()
		err := up.Ask(c.mem.out, c.mem.gathered(), &c.mem.res, c.mem.req.Method)
		_, was, err := c.head(up, err)
		return was, err
	}
	c.waitForApp() // to take what is here
	_, err := up.Write(c.mem.out)
	if rest := c.mem.gathered(); err == nil && len(rest) > 0 {
		_, err = up.Write(rest)
	}
	if was := c.soleWriter(c.clock.rest()); was.any() || err != nil && up.Wrote() == 0 {
		return was, err // whatever kept it back, there will be no answer
	}
	// A write may fail because the app has answered already and closed: its
	// answer is read all the same.
	if err != nil {
		c.lose()
	} else {
		c.startPump()
	}
	if was, err := c.readHead(up); err != nil || was.any() {
		return was, err
	}
	return c.readHeads(up)
}

// head is told how waiting for a head came out, and reads on to the final one.
func (c *conn) head(up *upstream.Conn, err error) (*upstream.Conn, interrupt, error) {
	was := c.soleWriter(c.clock.rest())
	if err == nil && !was.any() {
		was, err = c.readHeads(up)
	}
	return up, was, err
}

// sendOn sends what the app has not taken at once of a whole request.
func (c *conn) sendOn(up *upstream.Conn) (*upstream.Conn, interrupt, error) {
	c.waitForApp()
	return c.head(up, up.Outcome())
}

// build puts the head, and as much of the body as is here, into m.out. more says
// that there is body left to move.
func (c *conn) build() (more bool, err error) {
	m := c.mem
	cfg := c.lane.Config()
	m.fwd = http1.Forward{
		ClientIP: c.ip, Proto: c.srv.text.http, RequestID: c.lane.ID, RequestStart: c.lane.Start().UnixMilli(),
		Via: c.viaName(), Trusted: c.trusted, Trailers: cfg.KeepTrailers,
	}
	m.again(m.w + len(m.req.HostPort) + additions)
	m.out = http1.AppendRequest(m.out, &m.req, &m.fwd)
	if m.req.Length != 0 {
		m.body.Reset(m.req.Length)
		done, err := c.appendPrefix(cfg)
		if err != nil {
			return false, err
		}
		more = !done && !c.gather()
	}
	if c.lane.Cached() != edge.CacheOff {
		m.try.sent = time.Now()
	}
	return more, nil
}

// appendPrefix puts the part of the body that is in the buffer behind the head.
// It uses up nothing: should the try deliver nothing, the next one finds it
// again.
func (c *conn) appendPrefix(cfg *edge.AppConfig) (done bool, err error) {
	m, x := c.mem, &c.mem.try
	chunked := m.req.Length == http1.Chunked
	for !done {
		var data []byte
		var n int
		data, n, done, err = m.body.Next(m.in[m.r+x.prefix : m.w])
		if err != nil {
			return false, errBadBody
		}
		x.prefix += n
		x.bytesIn += int64(len(data))
		if chunked {
			m.out = http1.AppendChunk(m.out, data)
		} else {
			m.out = append(m.out, data...)
		}
		if n == 0 {
			break
		}
	}
	if cfg.MaxBody > 0 && x.bytesIn > cfg.MaxBody {
		return false, errTooLarge
	}
	if done && chunked {
		m.out = http1.AppendLastChunk(m.out, c.requestTrailer(cfg))
	}
	return done, nil
}

// requestTrailer is what of a request's trailer goes to the app.
func (c *conn) requestTrailer(cfg *edge.AppConfig) []http1.Field {
	if cfg.KeepTrailers {
		return c.mem.body.Trailer()
	}
	return nil
}

// readHeads takes in heads, of which one has been read, up to the final one, or
// the 101 that was asked for, and passes on what comes before it.
func (c *conn) readHeads(up *upstream.Conn) (interrupt, error) {
	m := c.mem
	for {
		switch {
		case m.res.Status >= 200:
			return 0, nil
		case m.res.Status == 101:
			if !m.res.Switches(&m.req) {
				return 0, errBadSwitch
			}
			return 0, nil
		}
		if err := c.interim(); err != nil {
			return 0, err
		}
		if was, err := c.readHead(up); err != nil || was.any() {
			return was, err
		}
	}
}

// readHead reads one head.
func (c *conn) readHead(up *upstream.Conn) (interrupt, error) {
	c.waitForApp()
	err := up.ReadHead(&c.mem.res, c.mem.req.Method, time.Time{})
	return c.soleWriter(c.clock.rest()), err
}

// errBadSwitch is a 101 that nobody asked for.
var errBadSwitch = &http1.Error{Status: 502, Reason: "app switches to a protocol that was not asked for"}

// waitForApp starts the clock of an answer. While the app still gets the body,
// its time does not run: the pump starts it.
func (c *conn) waitForApp() {
	now, limit := c.srv.now(), c.lane.Config().FirstByteTimeout
	until, p := after(now, limit), c.mem.try.pump
	if p != nil {
		until = 0
	}
	if until != 0 && limit <= watchAfter {
		c.clock.wait(phaseLong, until)
		return
	}
	c.waitUntil.Store(uint64(until))
	c.clock.wait(phaseWait, after(now, watchAfter))
	if p != nil && p.timed.Load() {
		p.startTime()
	}
}

// interim passes a 1xx on. Any of them tells that the app is at work, so that a
// client which waits for 100 Continue gets it first.
func (c *conn) interim() error {
	m, p := c.mem, c.mem.try.pump
	if p != nil && !p.invite() {
		return failure(edge.CauseClientGone)
	}
	if m.res.Status == 100 {
		return nil // ours has been sent, if it was waited for
	}
	m.follow(c.mem.try.up, additions)
	m.out = http1.AppendInterim(m.out, &m.res, &http1.Answer{Minor: m.req.Minor, Via: c.viaName()})
	if len(m.out) > 0 {
		if cause := c.write(m.out); cause != edge.CauseNone {
			return failure(cause)
		}
	}
	return nil
}

// failure is an error that is known by its cause already.
type failure edge.Cause

func (f failure) Error() string { return "engine: " + edge.Cause(f).String() }

// errTooLarge is a body beyond the app's limit.
var errTooLarge = errors.New("engine: request body is too large")

// fail ends a try that has no head to show. It reports whether the request may
// be tried again; otherwise it has been answered.
func (c *conn) fail(err error, was interrupt) (again bool) {
	x := &c.mem.try
	if was.any() {
		c.keep = false // whoever interrupted may not be done with it
	}
	why := c.stopPump()
	cause := why
	if cause == edge.CauseNone {
		cause = causeOf(err, was, x.up != nil)
	}
	if c.answered.Load() == answerCut && cause.Ending() != edge.Gone {
		cause = c.whyCut()
	}
	evidence := upstream.Evidence{
		Err: err, Idempotent: c.mem.req.IsIdempotent(), Body: c.mem.req.Length != 0,
		BodyLost: x.rest != restWaits, Retried: c.lane.Retries() > 0,
	}
	if x.up != nil {
		evidence.Reused, evidence.Responded = x.up.Reused, x.up.Responded()
		c.discard(x.up)
	}
	if retryable(cause) && upstream.MayRetry(evidence) {
		return c.again(cause)
	}
	if cause == edge.CauseNoDescriptors {
		c.srv.starve()
	}
	c.refuse(cause)
	return false
}

// retryable says whether another try may end otherwise.
func retryable(cause edge.Cause) bool {
	switch cause {
	case edge.CauseConnectRefused, edge.CauseConnectTimeout, edge.CauseNoSuchName, edge.CauseDiedBeforeResponse:
		return true
	default:
		return false
	}
}

// again gives the target back for one more decision. A refused connection
// often means that the app has just died: the control plane gets a moment to
// say so.
func (c *conn) again(cause edge.Cause) bool {
	if !c.lane.Retry() {
		c.refuse(c.whyCut())
		return false
	}
	if cause == edge.CauseConnectRefused {
		c.lane.AwaitChange(c.srv.park, refusedPause)
	}
	return true
}

// refusedPause is how long a retry waits for news of an app that refused a
// connection.
const refusedPause = 100 * time.Millisecond

// causeOf says why there is no answer.
func causeOf(err error, was interrupt, connected bool) edge.Cause {
	var malformed *http1.Error
	var known failure
	switch {
	case was.gone():
		return edge.CauseClientGone
	case errors.As(err, &known):
		return edge.Cause(known)
	case was.late():
		return edge.CauseFirstByteTimeout
	case errors.Is(err, errBadBody):
		return edge.CauseBadRequest
	case errors.Is(err, errTooLarge):
		return edge.CauseBodyTooLarge
	case errors.Is(err, upstream.ErrFull):
		return edge.CauseAtCapacity
	case !connected:
		return causeOfDial(err)
	case errors.As(err, &malformed):
		return edge.CauseBadResponse
	default:
		return edge.CauseDiedBeforeResponse
	}
}

// causeOfDial says why there is no connection to the app.
func causeOfDial(err error) edge.Cause {
	switch {
	case rawio.Exhausted(err):
		return edge.CauseNoDescriptors
	case upstream.NoSuchName(err):
		return edge.CauseNoSuchName
	case upstream.Timeout(err):
		return edge.CauseConnectTimeout
	default:
		return edge.CauseConnectRefused
	}
}

// discard closes a connection to the app.
func (c *conn) discard(up *upstream.Conn) {
	c.meet(nil)
	c.mem.try.target.Pool().Discard(up)
}

// meet says which connection to the app is to be interrupted: none, if nil. One that
// was dialled for a request that has been cut meanwhile is so at once.
func (c *conn) meet(up *upstream.Conn) {
	c.poking.Lock()
	c.up = up
	c.poking.Unlock()
	if up != nil && c.answered.Load() >= answerCut {
		up.Interrupt()
	}
}
