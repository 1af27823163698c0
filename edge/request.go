package edge

import (
	"context"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/usher-edge/usher/edge/clients"
)

// Peer is the connection of a lane, as far as the core may act on it.
type Peer interface {
	// Cut ends the request: with an answer (CauseDrainCut) if none has begun, else
	// by breaking the connection off, never with a neat ending. It must not block.
	// It may come up to the moment Close of the lane returns, and is only called
	// for a request that Finish will report as cut, or Retry has.
	Cut()
}

// Request is one request and what became of it, as the core sees it. A front
// keeps one per lane (an HTTP/1.1 connection; a stream of HTTP/2 would be one
// too) and reuses it: Edge.Open, then for every request Begin, Decide and what
// it says, Finish; at the end Close.
//
// The exported fields are set by the front between Begin and Decide and must
// stay valid until Finish. A Request belongs to one goroutine, except Abandon.
type Request struct {
	Method   []byte
	Host     []byte // authority; case, port and final dot do not matter
	Path     []byte // raw, without query
	HostPort []byte // authority as the client sent it, for the cache
	Target   []byte // origin-form, byte for byte
	Scheme   []byte // "http" or what a trusted peer says, as the app is told
	Header   Header
	// Elsewhere means that the app is told of another host than HostPort, which its pages
	// may depend on.
	Elsewhere bool
	Upgrade   bool   // asks for another protocol
	ID        []byte // for the log
	Client    []byte // address of the client, for the log and its share of what is bounded; nil: not known
	Minor     uint8  // of HTTP/1
	Length    int64  // of the body; below 0 = not known

	// Buffered is how many bytes of the request the front holds in memory.
	Buffered int64
	// Room is memory that Finish may use as it likes.
	Room []byte

	edge *Edge
	peer Peer
	way  way // the last request's, which is mostly this one's

	start    time.Time
	app      *App
	counters *counters // of app
	slot     *slot
	target   *Target
	flight   atomic.Uint64 // number of target, for those who look from outside; 0: none; or wasCut
	stream   atomic.Pointer[stream]
	cache    CacheResult
	asking   *asking // nil: the cache has never been asked
	parked   time.Duration
	retries  int
	account  *Account   // the books of the window it was accepted in; nil: none were open
	awaited  bool       // the account waits for its answer
	client   netip.Addr // what clientText names
	guest    netip.Addr // counted in App.guests as; zero: not
	granted  bool       // let go by a lot that waits for the answer
	open     bool
	upgraded bool        // it has switched to another protocol
	gone     atomic.Bool // the client left while it was parked
	lot      atomic.Pointer[lot]
	parking  parking
	entry    Entry // for the log

	clientText string
}

// asking is what a lane that asks the cache needs for it.
type asking struct {
	visit Visit
	query CacheQuery
}

// stream is an answer without a foreseeable end.
type stream struct {
	target   *Target
	end      func(Haste)
	upgraded bool
	account  atomic.Pointer[Account] // the books that an upgraded connection is in
}

// Open adds a lane. p is told when a request of it has to be cut.
func (e *Edge) Open(p Peer) *Request {
	r := &Request{edge: e, peer: p}
	e.lanes.add(r)
	return r
}

// Close removes the lane. An unfinished request must be finished before.
func (r *Request) Close() { r.edge.lanes.remove(r) }

// clientOf is who the request counts for where clients have shares. The requests
// of one lane mostly come from one client, so the last answer is kept.
func (r *Request) clientOf() netip.Addr {
	if r.clientText != string(r.Client) {
		r.clientText = string(r.Client)
		r.client = clients.Parse(r.Client)
	}
	return r.client
}

// Start is when the head arrived.
func (r *Request) Start() time.Time { return r.start }

// Retries is how many times the request was sent again.
func (r *Request) Retries() int { return r.retries }

// Lines are the field lines to stamp on the answer: which generation, and which
// build if the app exposes it. Valid after Decide.
func (r *Request) Lines() []byte {
	if r.slot == nil {
		return nil
	}
	return r.slot.lines
}

// Config is the app's configuration that this try of the request goes by, nil
// if no app was found. It must not be changed.
func (r *Request) Config() *AppConfig {
	if r.slot == nil {
		return nil
	}
	return &r.slot.cfg
}

// RetryAfter is how long the app will take to answer, as far as that is known: what
// is left of its back-off, else a start. 0 means that nothing is known.
func (r *Request) RetryAfter() time.Duration {
	if r.slot == nil {
		return 0
	}
	if at := r.slot.RetryAt; !at.IsZero() {
		return max(time.Until(at), time.Second)
	}
	return r.slot.Boot
}

// Cached is what the cache said about this try.
func (r *Request) Cached() CacheResult { return r.cache }

// Park waits until the app can answer, and must follow a Decide that said so.
// CauseNone means: decide again. Any other cause ends the request: the lot is
// full, the wait was too long, the app refuses, the client left (Abandon), or
// ctx ended (CauseDraining).
func (r *Request) Park(ctx context.Context) Cause {
	begun := time.Now()
	a := r.app
	r.lot.Store(&a.lot)
	if r.account != nil {
		r.account.park(r)
	}
	in, refused := a.lot.enter(r, r.slot, begun)
	if !in {
		return refused
	}
	if r.slot.State == Asleep {
		r.edge.wake(a)
	}
	var c Cause
	select {
	case c = <-r.parking.verdict:
	case <-ctx.Done():
		a.lot.leave(r, CauseDraining)
		c = <-r.parking.verdict
	}
	waited := time.Since(begun)
	r.parked += waited
	r.counters.park.observe(waited)
	if c == CauseNone && r.gone.Load() {
		return CauseClientGone // it left while it was let go
	}
	if by := r.parking.refuser; by != nil {
		r.slot, r.parking.refuser = by, nil // its reason and Retry-After are told
	}
	return c
}

// AwaitChange waits until the slot that this try met is replaced, but not longer
// than limit or ctx.
func (r *Request) AwaitChange(ctx context.Context, limit time.Duration) {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-r.app.changed(r.slot):
	case <-t.C:
	case <-ctx.Done():
	}
}

// Abandon tells that the client of a parked request has left. Its place is free
// at once, and no later request of this lane parks. It may be called from any
// goroutine, at any time.
func (r *Request) Abandon() {
	r.gone.Store(true)
	if l := r.lot.Load(); l != nil {
		l.leave(r, CauseClientGone)
	}
}

// Stored offers the answer to the cache in which the request was looked up. nil
// means that it is not stored.
func (r *Request) Stored(a *CacheAnswer, sent time.Time) Fill {
	if r.cache == CacheOff || r.cache == CacheHit {
		return nil
	}
	return r.asking.visit.Begin(r.slot.space, a, sent, time.Now())
}

// Haste is how soon a stream should come to its end.
type Haste uint8

const (
	// Politely leaves both sides the time to finish what they are at.
	Politely Haste = iota
	// AtOnce means that others are waiting for it: neither side may put it off.
	AtOnce
)

// Streaming says that the answer has no foreseeable end. end is called, from any
// goroutine, when it should come to one; it must not block.
func (r *Request) Streaming(end func(Haste)) {
	r.counters.streams.Add(1)
	s := &stream{target: r.target, end: end, upgraded: r.upgraded}
	r.stream.Store(s)
	if ac := r.app.account.Load(); ac != nil && s.upgraded {
		ac.upgrade(s)
	}
	r.answered()
	if r.target.closed.Load() {
		end(AtOnce)
	}
}

// Upgraded counts an upgrade. Streaming follows.
func (r *Request) Upgraded() {
	r.upgraded = true
	r.counters.upgrades.Add(1)
}
