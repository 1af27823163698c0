package edge

import (
	"net/netip"
	"time"
)

// How parked requests are let go when their app serves again: releaseFirst at once
// (see words.go), and one for each of them that is answered. The app has just started,
// and each connection that it sees for the first time costs it many times what a
// request does: all of them at once would wait for all of those. An app that is not
// busy but waits itself would answer more in the same time, so once in a releaseRound
// each answer lets two go, until twice as many are on their way. And releaseFirst more
// go every releaseTick, so that answers that never come (long polls) hold nobody up.
//
// Who comes in the first tick goes behind those who wait (Target.behind), but only
// until that tick, and not if the lot is full or its own time would be over before:
// the app serves, and the order of the queue is for the app's sake.
//
// Where AppConfig.MaxInFlight bounds what is inside the app, who is let go is counted in
// there and then. Once there is no room (Target.owed) whoever leaves the app makes it for
// the first that waits, and who comes is refused, as it is at any app that is full. Who
// was let go to another target, and finds this one full, comes back to its place.
const releaseTick = 100 * time.Millisecond

// parking is a request's place in a lot. It lives inside the Request, so that
// parking allocates only once per lane.
type parking struct {
	verdict  chan Cause // one message per stay: CauseNone = decide again
	refuser  *slot      // the slot that turned it away, if one did
	ticket   uint64     // order of arrival; kept over all stays of a request
	deadline time.Time  // kept over all stays of a request
	bytes    int64
	client   netip.Addr // who it counts for; zero: nobody
	in       bool
	prev     *Request
	next     *Request
}

// lot is where the requests of one app wait, in order of arrival.
type lot struct {
	app *App

	mu     doorLock // guards all below; nothing blocks and nobody is called under it
	head   *Request
	tail   *Request
	n      int
	bytes  int64
	shares map[netip.Addr]share // of the clients that have any
	ticket uint64
	last   uint64    // ticket: who has a later one came when the queue began to be let go
	paced  *Target   // to which the queue is let go bit by bit; nil: it is not
	afoot  int       // so many that were let go have no answer yet, if all do answer
	second int       // so many answers still let a second one go
	round  time.Time // when they may do so again
	tick   time.Time // when more are let go though nobody is answered
	due    time.Time // no deadline of those who wait is before it
	timer  *time.Timer
	closed bool
}

// share is what one client has of the lot.
type share struct {
	n     int
	bytes int64
}

// enter parks r, which met the slot s. The answer is (true, CauseNone) if it is
// parked, (false, CauseNone) if s is not the slot any more and it should decide
// again, and (false, cause) if it is refused.
func (l *lot) enter(r *Request, s *slot, now time.Time) (parked bool, refused Cause) {
	p := &r.parking
	if p.verdict == nil {
		p.verdict = make(chan Cause, 1)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	serves := s.serves()
	switch {
	case l.app.slot.Load() != s:
		return false, CauseNone
	case l.closed:
		return false, CauseDraining
	case r.gone.Load():
		return false, CauseClientGone
	case serves && !r.waits() && !s.target.behind.Load(): // there is nobody any more to wait behind
		return false, CauseNone
	}
	full, by := serves && r.waits(), now // it met a target that is full
	if serves && !full {
		by = l.tick
	}
	if refused = l.admits(r, s, now, by); refused != CauseNone {
		if serves && !full { // it has not waited
			r.granted, p.ticket, refused = true, 0, CauseNone
		}
		return false, refused
	}
	p.bytes = r.Buffered
	r.granted = false
	l.insert(r)
	if full {
		if l.paced != s.target {
			l.begin(s.target, now)
		}
		l.admit(l.n)
	}
	l.arm(now)
	return true, CauseNone
}

// left is told that somebody has left t, which owes room.
func (l *lot) left(t *Target) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.paced == t {
		l.admit(1)
	}
}

// admits says whether r may wait until by at least, and from when on: its first stay
// counts.
func (l *lot) admits(r *Request, s *slot, now, by time.Time) Cause {
	p := &r.parking
	if p.ticket == 0 {
		p.client = r.clientOf()
		if full := l.full(p.client, r.Buffered, &s.cfg); full != CauseNone {
			return full
		}
		l.ticket++
		p.ticket = l.ticket
		p.deadline = now.Add(s.cfg.ParkTimeout)
	}
	if !p.deadline.After(by) {
		return CauseParkTimeout
	}
	return CauseNone
}

// full says whether there is room for one more request with so many bytes, of
// that client.
func (l *lot) full(client netip.Addr, bytes int64, cfg *AppConfig) Cause {
	if l.n >= cfg.ParkLimit || l.bytes+bytes > cfg.ParkBytes {
		return CauseParkFull
	}
	has := l.shares[client]
	if has.n >= cfg.ParkPerClient || has.n > 0 && has.bytes+bytes > cfg.ParkBytesPerClient {
		return CauseClientParkFull
	}
	return CauseNone
}

// count adds to what a client has. Who has nothing is forgotten.
func (l *lot) count(client netip.Addr, n int, bytes int64) {
	l.n += n
	l.bytes += bytes
	if !client.IsValid() {
		return
	}
	has := l.shares[client]
	has.n += n
	has.bytes += bytes
	if has.n == 0 {
		delete(l.shares, client)
		if len(l.shares) == 0 {
			l.shares = nil
		}
		return
	}
	if l.shares == nil {
		l.shares = map[netip.Addr]share{}
	}
	l.shares[client] = has
}

// insert puts r behind everybody who came before it. Newcomers go to the end at
// once; only a request that was let go and had to come back walks.
func (l *lot) insert(r *Request) {
	after := l.tail
	for after != nil && after.parking.ticket > r.parking.ticket {
		after = after.parking.prev
	}
	p := &r.parking
	p.in, p.prev = true, after
	if after != nil {
		p.next, after.parking.next = after.parking.next, r
	} else {
		p.next, l.head = l.head, r
	}
	if p.next != nil {
		p.next.parking.prev = r
	} else {
		l.tail = r
	}
	if l.n == 0 || p.deadline.Before(l.due) {
		l.due = p.deadline
	}
	l.count(p.client, 1, p.bytes)
}

// dismiss takes r out of the queue and tells it what happened.
func (l *lot) dismiss(r *Request, c Cause) {
	p := &r.parking
	if p.prev != nil {
		p.prev.parking.next = p.next
	} else {
		l.head = p.next
	}
	if p.next != nil {
		p.next.parking.prev = p.prev
	} else {
		l.tail = p.prev
	}
	p.in, p.prev, p.next = false, nil, nil
	l.count(p.client, -1, -p.bytes)
	p.verdict <- c
	if l.head == nil {
		l.pace(nil)
	}
}

// leave takes r out if it is still parked. Its place is free at once.
func (l *lot) leave(r *Request, c Cause) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.parking.in {
		l.dismiss(r, c)
	}
}

// settle acts on the slot that is current now: lets the queue go, turns it
// away, or keeps it. It reports whether somebody waits for an app that sleeps.
func (l *lot) settle(now time.Time) (wake bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.app.slot.Load()
	l.pace(nil)
	switch c := s.refusal(); {
	case s.State == Removed: // another app may have its hosts by now
		l.dismissAll(CauseNone, nil)
	case c != CauseNone:
		l.dismissAll(c, s)
	}
	if s.State == Serving && s.target != nil && l.n > 0 {
		l.begin(s.target, now)
		s.target.behind.Store(true)
		l.admit(releaseFirst)
	}
	l.arm(now)
	return s.State == Asleep && l.n > 0
}

// close turns everybody away, now and later.
func (l *lot) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.dismissAll(CauseDraining, nil)
	if l.timer != nil {
		l.timer.Stop()
	}
}

func (l *lot) dismissAll(c Cause, by *slot) {
	for l.head != nil {
		l.head.parking.refuser = by
		l.dismiss(l.head, c)
	}
}

// pace says to which target the queue is let go from now on, if to any.
func (l *lot) pace(t *Target) {
	if l.paced != nil {
		l.paced.behind.Store(false)
		l.paced.owed.Store(false)
	}
	l.paced = t
}

// begin begins to let the queue go to t.
func (l *lot) begin(t *Target, now time.Time) {
	l.pace(t)
	l.last, l.afoot, l.second = l.ticket, releaseFirst, 0
	l.round, l.tick = now.Add(releaseRound), now.Add(releaseTick)
}

// admit lets the first k go. If there is no room for that many, whoever leaves from then
// on tells (Target.owed); who has left before did not, so all the room there is then is
// given away.
func (l *lot) admit(k int) {
	for ; l.head != nil && (k > 0 || l.paced.owed.Load()); k-- {
		if l.letGo(l.head) {
			continue
		}
		if l.paced.owed.Load() {
			return
		}
		l.paced.owed.Store(true)
	}
}

// roomForAll says whether all who wait may be inside at once.
func (l *lot) roomForAll() bool {
	limit := l.app.slot.Load().cfg.MaxInFlight
	return limit == 0 || l.n <= limit-int(l.paced.gate.inside())
}

// letGo has r decide again, and no more go behind others. If what is inside the app is
// bounded, r is counted in for that; if there is no room, it stays.
func (l *lot) letGo(r *Request) bool {
	if limit := l.app.slot.Load().cfg.MaxInFlight; limit > 0 {
		if l.paced.gate.enter(uint64(limit)) != entered {
			return false
		}
		r.target = l.paced
	}
	r.granted = true
	l.dismiss(r, CauseNone)
	return true
}

// answered lets more go: one of those that were let go has been answered.
func (l *lot) answered() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.paced == nil {
		return
	}
	if now := time.Now(); l.second == 0 && !now.Before(l.round) {
		l.second, l.round = l.afoot, now.Add(releaseRound)
	}
	if l.second == 0 {
		l.admit(1)
		return
	}
	l.second--
	l.afoot++
	l.admit(2)
}

// expire is what the timer does.
func (l *lot) expire() {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	ticks := l.paced != nil && !l.tick.After(now)
	if ticks {
		l.paced.behind.Store(false)
	}
	ordered := ticks && !l.roomForAll() // then it is of those who have waited longest
	l.due = time.Time{}
	for r := l.head; r != nil; {
		p, next := &r.parking, r.parking.next
		switch {
		case !p.deadline.After(now):
			l.dismiss(r, CauseParkTimeout)
		case ticks && !ordered && p.ticket > l.last && l.letGo(r): // it came meanwhile
			l.afoot++
		case l.due.IsZero() || p.deadline.Before(l.due):
			l.due = p.deadline
		}
		r = next
	}
	if ticks {
		l.tick = now.Add(releaseTick)
		l.afoot += releaseFirst
		l.admit(releaseFirst)
	}
	l.arm(now)
}

// arm sets the timer to the first thing that can happen by itself.
func (l *lot) arm(now time.Time) {
	if l.head == nil {
		if l.timer != nil {
			l.timer.Stop()
			l.timer = nil // most apps sleep, and nobody waits for them
		}
		return
	}
	at := l.due
	if l.paced != nil && l.tick.Before(at) {
		at = l.tick
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(at.Sub(now), l.expire)
		return
	}
	l.timer.Reset(at.Sub(now))
}

// parked says how many wait and how many bytes they hold.
func (l *lot) parked() (n int, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n, l.bytes
}
