package activator

import (
	"time"

	"github.com/usher-edge/usher/activator/lifecycle"
)

// Front is what the control plane needs of the data plane. Every method may be
// called by any goroutine and none may call back into the activator.
type Front interface {
	// Place stores the app's slot and so switches all later requests to it at
	// once. A target that p does not name again is retired.
	Place(app string, p Placement)
	// TrySleep retires the target of gen and stores p, if nothing is in flight
	// on it; otherwise it changes nothing and returns false.
	TrySleep(app string, gen uint64, p Placement) bool
	// Drained is closed when nothing is in flight on the retired target of gen.
	Drained(app string, gen uint64) <-chan struct{}
	// CloseStreams ends upgraded connections and event streams of gen, spread
	// over the time given.
	CloseStreams(app string, gen uint64, over time.Duration)
	// Cut ends what is still in flight on gen.
	Cut(app string, gen uint64)
	// Activity says how busy the app is.
	Activity(app string) Activity
}

// Activity is what the idler looks at.
type Activity struct {
	InFlight int64     // requests and streams open on the current target
	Parked   int64     // requests that wait
	Last     time.Time // when the last one ended; zero if there was none
}

// Placement is the content of an app's slot.
type Placement struct {
	State      lifecycle.SlotState
	Revision   uint64
	Generation uint64 // 0 = no target
	Build      string
	CacheGen   uint64 // names the cache generation, 0 = none
	Network    string // "tcp" or "unix"
	Address    string
	RetryAfter time.Duration // for those who are refused; 0 = not known
	Reason     string
}

// cacheGen is one number for a cache generation: a release or one restart of it.
func cacheGen(k lifecycle.CacheKey) uint64 {
	const restartBits = 20
	return uint64(k.Rev)<<restartBits | uint64(k.Restart)&(1<<restartBits-1)
}
