package edge

import (
	"net/netip"
	"time"
)

// Ending is the one way a request ended.
type Ending uint8

// The endings.
const (
	Served  Ending = iota // the app's answer, complete
	Cached                // from the cache, complete
	Refused               // by usher; the cause says why
	Failed                // by the app: before or within its answer
	Gone                  // the client left or was too slow
	Own                   // answered by usher itself: OPTIONS *
	endingCount
)

// String is the metric label and log field.
func (e Ending) String() string {
	switch e {
	case Served:
		return "served"
	case Cached:
		return "cached"
	case Refused:
		return "refused"
	case Failed:
		return "failed"
	case Gone:
		return "gone"
	default:
		return "own"
	}
}

// Result is how a request ended, as the front saw it.
type Result struct {
	Ending   Ending
	Cause    Cause
	Status   int   // that the client was sent; 0 if it was sent none
	BytesIn  int64 // of the request's body
	BytesOut int64 // of the answer's body

	Parting Parting // of an upgraded connection; a cut is seen by Finish itself
}

// Entry is one ended request, for the log.
type Entry struct {
	Time       time.Time // when the head had arrived
	App        string    // "" if there was none
	Client     []byte
	Method     []byte
	Host       []byte
	Target     []byte
	Minor      uint8
	Header     Header // of the request; nil if its head was not to be had
	ID         []byte
	Result     Result
	Cache      CacheResult
	Revision   uint64
	Generation uint64
	Build      string
	Reason     string // the placement's, if the app refused it
	Parked     time.Duration
	Duration   time.Duration
	Retries    int

	Room []byte // what is not in use, to build the line in; it may be nothing
}

// Retry gives the target back after a try that proved nothing to be delivered.
// Decide follows. It reports false if the request was cut meanwhile: then it
// must be finished as one, and nothing may follow it on its connection.
func (r *Request) Retry() bool {
	r.retries++
	r.counters.retries.Add(1)
	uncut := r.land()
	r.giveBack(time.Now().UnixNano())
	return uncut
}

// land makes sure that the request can be cut no more. It reports false if it
// was.
func (r *Request) land() (uncut bool) {
	return r.target == nil || r.flight.Swap(0) != wasCut
}

// wasCut stands in Request.flight for a request that was.
const wasCut = ^uint64(0)

// giveBack leaves the target, if there is one. now is in nanoseconds of Unix time.
func (r *Request) giveBack(now int64) {
	t := r.target
	if t == nil {
		return
	}
	r.target = nil
	r.counters.lastRelease.Store(uint64(now))
	t.release()
}

// Finish ends a request: the one place where it leaves its target, is counted
// and logged. It reports whether the request had been cut, in which case nothing may
// follow it on its connection, which is to be reset if another answer had begun than
// one that says so.
func (e *Edge) Finish(r *Request, res Result) (cut bool) {
	if !r.open {
		return false
	}
	r.open = false
	if cut = !r.land(); cut {
		res.Ending, res.Cause = Failed, CauseDrainCut
	}
	if s := r.stream.Load(); s != nil {
		r.stream.Store(nil)
		r.counters.streams.Add(-1)
		s.ended(res)
	}
	if r.account != nil { // before those are told who wait for it to end
		r.account.end(r, res)
	}
	took := time.Since(r.start)
	r.giveBack(r.start.UnixNano() + int64(took))
	r.answered()
	r.uncount()
	c := r.counters
	if c == nil {
		c = &e.unknown
		c.accepted.Add(1)
	}
	c.end(res, r.cache, took)
	if e.opt.Log != nil {
		e.log(r, res, took)
	}
	return cut
}

// ended tells the books how an upgraded connection ended.
func (s *stream) ended(res Result) {
	switch {
	case !s.upgraded:
	case res.Cause == CauseDrainCut:
		s.part(PartedByCut)
	default:
		s.part(res.Parting)
	}
}

func (e *Edge) log(r *Request, res Result, took time.Duration) {
	n := &r.entry // kept: a fresh one would be an allocation per request
	n.Time, n.Duration, n.Parked, n.Retries = r.start, took, r.parked, r.retries
	n.Client, n.Method, n.Host, n.Target = r.Client, r.Method, r.HostPort, r.Target
	n.Minor, n.Header, n.ID, n.Room = r.Minor, r.Header, r.ID, r.Room
	n.Result, n.Cache = res, r.cache
	n.App, n.Build, n.Reason, n.Revision, n.Generation = "", "", "", 0, 0
	if r.app != nil {
		n.App = r.app.name
	}
	if s := r.slot; s != nil {
		n.Revision, n.Generation, n.Build = s.Revision, s.Generation, s.Build
		if res.Ending == Refused {
			n.Reason = s.Reason
		}
	}
	e.opt.Log(n)
}

// answered tells those who wait for the answer of a request that was parked: the
// lot that let it go, and the account.
func (r *Request) answered() {
	if r.account != nil {
		r.account.answered(r)
	}
	if r.granted {
		r.granted = false
		r.app.lot.answered()
	}
}

// uncount undoes countFor.
func (r *Request) uncount() {
	if r.guest.IsValid() {
		r.app.guests.Leave(r.guest)
		r.guest = netip.Addr{}
	}
}

// end counts one ended request. The ending comes last: seal relies on it.
func (c *counters) end(res Result, cache CacheResult, took time.Duration) {
	class := res.Status / 100
	if class < 0 || class >= len(c.classes) {
		class = 0
	}
	c.classes[class].Add(1)
	if res.Cause != CauseNone {
		c.causes[res.Cause].Add(1)
	}
	if cache != CacheOff {
		c.cache[cache].Add(1)
	}
	if res.BytesIn > 0 {
		c.bytesIn.Add(uint64(res.BytesIn))
	}
	if res.BytesOut > 0 {
		c.bytesOut.Add(uint64(res.BytesOut))
	}
	c.duration.observe(took)
	c.ended[res.Ending].Add(1)
}

func (h *histogram) observe(d time.Duration) {
	bounds := bucketBounds()
	i := 0
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	h.buckets[i].Add(1)
	h.sum.Add(uint64(max(d, 0)))
}
