package edge

import (
	"math"
	"time"
)

// Kind is what to do with a request.
type Kind uint8

// The decisions.
const (
	Reply  Kind = iota // answer it: Decision.Cause says with what
	Hit                // answer it from Decision.Found
	Proxy              // send it to Decision.Target, which it is counted into
	Detach             // as Proxy, and the connection may become a tunnel: a front that serves many lanes with one goroutine gives this one its own
	Park               // wait with Request.Park, then decide again
)

// Decision is what Decide says.
type Decision struct {
	Kind   Kind
	Cause  Cause
	Found  Found
	Target *Target
}

// Decide says what to do with a request, without blocking, allocating or
// knowing any protocol. Every call is one try and sees one slot.
//
//	state        cached       otherwise
//	Empty        –            refused, no release
//	Asleep       hit          parks and wakes
//	Waking       hit          parks
//	Serving      hit          proxied; parks behind those that had parked, while they are
//	                          let go; at MaxInFlight it is refused, unless it had parked
//	                          or is tried again: then it waits on, and room is its
//	                          before it is anybody's; at MaxInFlightPerClient it is
//	                          refused, unless it had parked or is tried again
//	Holding      hit          parks
//	Paused       hit          parks
//	Maintenance  –            refused with the page
//	Down         –            refused, wake failed
//	Removed      –            decided about as if it came now: the app that has its host, else refused, no such host
//	Fenced       –            refused, fenced
func (e *Edge) Decide(r *Request) Decision {
	a := r.app
	if a == nil {
		if a = e.route(&r.way, r.Host, r.Path); a == nil {
			return Decision{Kind: Reply, Cause: CauseNoSuchHost}
		}
		r.join(a)
	}
	for {
		s := a.slot.Load()
		r.slot = s
		if s.State == Removed && r.moves() {
			a = r.app
			continue
		}
		if c := s.refusal(); c != CauseNone {
			return r.turnAway(c)
		}
		if found := r.lookup(s); found.Result == CacheHit {
			r.makeRoom()
			r.uncount()
			return Decision{Kind: Hit, Found: found}
		}
		if limit := s.cfg.MaxBody; limit > 0 && r.Length > limit {
			return r.turnAway(CauseBodyTooLarge)
		}
		if s.State != Serving || s.target == nil {
			r.makeRoom()
			return Decision{Kind: Park}
		}
		// HTTP/1.0 does not: while it is parked, the end of what its client sends
		// counts as leaving.
		if !r.granted && r.retries == 0 && r.Minor > 0 && s.target.behind.Load() {
			return Decision{Kind: Park}
		}
		if s.cfg.MaxInFlight > 0 && !r.waits() && s.target.owed.Load() {
			return r.turnAway(CauseAtCapacity)
		}
		switch r.enter(s) {
		case entered:
			if !r.countFor(s.cfg.MaxInFlightPerClient) {
				return r.turnAway(CauseClientAtCapacity)
			}
			return r.hold(s.target)
		case isFull:
			if r.waits() {
				return Decision{Kind: Park}
			}
			return r.turnAway(CauseAtCapacity)
		case isRetired:
			if a.slot.Load() == s {
				return Decision{Kind: Park} // it is being put to sleep
			}
		}
	}
}

// join counts the request in at a.
func (r *Request) join(a *App) {
	r.app = a
	r.counters = a.counting()
	if ac := a.account.Load(); ac != nil {
		r.account = ac.accept()
	}
}

// moves takes a request from an app that has been removed to the one that has its host
// by now. It was looked up a moment before the table changed, or was parked then; of
// the app that is gone it was never one. It reports false if nobody has the host.
func (r *Request) moves() bool {
	a, _ := r.edge.table.Load().lookup(r.Host, r.Path)
	if a == nil || a == r.app {
		return false
	}
	r.answered()
	r.makeRoom()
	r.uncount()
	if r.account != nil {
		r.account.forgo()
		r.account = nil
	}
	r.counters.forgo()
	r.parking.ticket = 0
	r.join(a)
	return true
}

// enter counts the request into the target of s, unless the lot that let it go has.
func (r *Request) enter(s *slot) entry {
	if r.target == s.target {
		return entered
	}
	r.makeRoom()
	came := s.target.gate.enter(uint64(s.cfg.MaxInFlight))
	if came == entered {
		r.target = s.target
	}
	return came
}

// makeRoom gives up the room inside an app that the request has and does not take: it is
// refused, answered from the cache, parks once more or goes to another target.
func (r *Request) makeRoom() {
	if t := r.target; t != nil {
		r.target = nil
		t.release()
	}
}

// turnAway has the request answered by usher: it is in nobody's way any more.
func (r *Request) turnAway(c Cause) Decision {
	r.makeRoom()
	r.uncount()
	return Decision{Kind: Reply, Cause: c}
}

// hold notes that the request is under way to the target that it has been counted into.
func (r *Request) hold(t *Target) Decision {
	r.flight.Store(t.number)
	if r.Upgrade {
		return Decision{Kind: Detach, Target: t}
	}
	return Decision{Kind: Proxy, Target: t}
}

// lookup asks the cache generation of s.
func (r *Request) lookup(s *slot) Found {
	if s.space == nil || r.Upgrade || r.Elsewhere {
		r.cache = CacheOff
		return Found{}
	}
	if r.asking == nil {
		r.asking = &asking{visit: r.edge.opt.Cache.NewVisit()}
	}
	a := r.asking
	a.query = CacheQuery{Method: r.Method, Scheme: r.Scheme, Host: r.HostPort, Target: r.Target, Header: r.Header}
	found := a.visit.Lookup(s.space, &a.query, r.start)
	r.cache = found.Result
	return found
}

// Begin starts a request whose head arrived at now.
func (r *Request) Begin(now time.Time) {
	r.edge.accepted.Add(1)
	r.start = now
	r.app, r.counters, r.slot, r.target = nil, nil, nil, nil
	r.cache, r.parked, r.retries = CacheOff, 0, 0
	r.account, r.awaited, r.upgraded = nil, false, false
	r.granted, r.open = false, true
	r.parking.ticket = 0
	r.Method, r.Host, r.Path, r.HostPort, r.Target = nil, nil, nil, nil, nil
	r.Scheme, r.Header, r.Elsewhere, r.Upgrade, r.ID, r.Client = nil, nil, false, false, nil, nil
	r.Room, r.Buffered, r.Length, r.Minor = nil, 0, 0, 0
}

// waits says that the request is not refused for an app that is full: it was parked and
// let go and has no answer yet, or was inside and is tried again.
func (r *Request) waits() bool { return r.granted && r.parking.ticket != 0 || r.retries > 0 }

// countFor counts the request for its client, until it has ended or is answered by
// usher, if those inside the app are bound for each. It reports false if the client has
// limit already, but not for one that has waited or was inside: the pace at which a lot
// lets go, and its own bounds, keep those in bounds.
func (r *Request) countFor(limit int) bool {
	if limit <= 0 || r.guest.IsValid() {
		return true
	}
	if r.parking.ticket != 0 || r.retries > 0 {
		limit = math.MaxInt
	}
	client := r.clientOf()
	if !r.app.guests.Enter(client, limit) {
		return false
	}
	r.guest = client
	return true
}

// counting counts one request in, and is where the rest of it is counted. Most
// apps sleep, and many have never had any request: who comes first makes it, or
// unfolds it.
func (a *App) counting() *counters {
	for {
		c := a.counters.Load()
		if c == nil {
			c = a.unfolded()
		}
		if c.enter() {
			return c
		}
		a.unfolded() // waits until they are folded
	}
}
