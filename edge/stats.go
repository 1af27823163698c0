package edge

import (
	"sync/atomic"
	"time"
)

// counters are what is counted for one app, or for requests without one. What
// is accepted and how it ended are counted in different places, so that they
// check each other. What every request counts comes first, in as few cache lines
// as it takes: processors hand them to each other.
type counters struct {
	accepted    atomic.Uint64 // and foldedBit
	ended       [endingCount]atomic.Uint64
	classes     [6]atomic.Uint64 // by hundreds of the status; 0 = none sent
	bytesIn     atomic.Uint64
	bytesOut    atomic.Uint64
	lastRelease atomic.Uint64 // unix nanoseconds
	duration    histogram
	causes      [causeCount]atomic.Uint64
	cache       [cacheResultCount]atomic.Uint64
	retries     atomic.Uint64
	upgrades    atomic.Uint64
	streams     atomic.Int64
	park        histogram
}

// bucketBounds are the upper bounds of a histogram's buckets.
func bucketBounds() [14]time.Duration {
	const ms = time.Millisecond
	return [14]time.Duration{
		ms / 2, ms, 2 * ms, 5 * ms, 10 * ms, 25 * ms, 50 * ms, 100 * ms, 250 * ms, 500 * ms,
		1000 * ms, 2500 * ms, 10000 * ms, 60000 * ms,
	}
}

// histogram counts durations in fixed buckets; the last one has no bound.
type histogram struct {
	sum     atomic.Uint64 // nanoseconds
	buckets [15]atomic.Uint64
}

// Activity is what decides whether an app may sleep.
type Activity struct {
	// InFlight is how many requests are inside the app, streams and upgraded
	// connections included. Cache hits and answers by usher are not.
	InFlight int
	// LastRelease is when the last one left. Zero: none has been inside yet.
	LastRelease time.Time
}

// Activity says what goes on in the app now.
func (a *App) Activity() Activity {
	act := Activity{InFlight: int(a.crowds.inside())}
	c := a.counted()
	if c == nil {
		return act
	}
	if n := c.lastRelease.Load(); n != 0 {
		act.LastRelease = time.Unix(0, int64(n))
	}
	return act
}

// Stats are the counters of one app. Accepted = Served + Cached + Refused +
// Failed + Gone + Own + what is still open.
type Stats struct {
	Accepted uint64
	Served   uint64
	Cached   uint64
	Refused  uint64
	Failed   uint64
	Gone     uint64
	Own      uint64

	InFlight    int // inside a target
	Parked      int
	ParkedBytes int64
	Streams     int // of those in flight: upgraded connections and event streams

	Retries  uint64
	Upgrades uint64
	DrainCut uint64 // of Failed: cut at the end of a drain
}

// Open is how many requests have not ended.
func (s Stats) Open() int64 {
	return int64(s.Accepted - s.Served - s.Cached - s.Refused - s.Failed - s.Gone - s.Own)
}

// Stats returns the counters of the app.
func (a *App) Stats() Stats {
	var s Stats
	if c := a.counted(); c != nil {
		s = c.stats()
	}
	s.InFlight = int(a.crowds.inside())
	s.Parked, s.ParkedBytes = a.lot.parked()
	return s
}

// Unrouted returns the counters of requests that found no app.
func (e *Edge) Unrouted() Stats { return e.unknown.stats() }

// Accepted is how many requests have begun, counted where they begin.
func (e *Edge) Accepted() uint64 { return e.accepted.Load() }

// stats reads the endings before what was accepted, so that no request seems to
// have ended that was not accepted.
func (c *counters) stats() Stats {
	s := Stats{
		Served: c.ended[Served].Load(), Cached: c.ended[Cached].Load(), Refused: c.ended[Refused].Load(),
		Failed: c.ended[Failed].Load(), Gone: c.ended[Gone].Load(), Own: c.ended[Own].Load(),
		Streams: int(c.streams.Load()), Retries: c.retries.Load(), Upgrades: c.upgrades.Load(),
		DrainCut: c.causes[CauseDrainCut].Load(),
	}
	s.Accepted = c.everAccepted()
	return s
}
