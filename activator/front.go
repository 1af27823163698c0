package activator

import (
	"context"
	"time"

	"github.com/usher-edge/usher/activator/lifecycle"
	"github.com/usher-edge/usher/activator/store"
)

// Front is what the control plane needs of the data plane. Every method may be
// called by any goroutine and none may call back into the activator.
type Front interface {
	// Place stores the app's slot and so switches all later requests to it at
	// once. A target that p does not name again is retired.
	Place(app string, p Placement)
	// Warm gets ready for the switch to what next names, while another generation
	// serves: it opens connections to it and sends question, a whole GET request,
	// over each. It returns soon, and keeps nothing that is not placed before ctx ends.
	Warm(ctx context.Context, app string, next Placement, question []byte)
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
	// OpenAccount opens the books of an attempt that moves the app to gen, and
	// closes those that are open. nil: nothing is routed to the app.
	OpenAccount(app string, gen uint64) Account
}

// Account is the books that the data plane keeps of one attempt.
type Account interface {
	// Turn is told when the attempt is over. The channel is closed when none of
	// those that had parked by then waits for its answer any more.
	Turn() <-chan struct{}
	// Look reads the books while they are open.
	Look() store.Counts
	// Close closes the books. It may be called again.
	Close() store.Counts
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
	Boot       time.Duration    // what a start takes, as learned; 0 = not known
	RetryAt    time.Time        // SlotDown: when its back-off ends; zero: there is none
	Down       lifecycle.Reason // SlotDown: why, in one word
	Reason     string
}

// cacheGen is one number for a cache generation: a release or one restart of it.
func cacheGen(k lifecycle.CacheKey) uint64 {
	const restartBits = 20
	return uint64(k.Rev)<<restartBits | uint64(k.Restart)&(1<<restartBits-1)
}
