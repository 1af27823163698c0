package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/usher-edge/usher/edge"
	"github.com/usher-edge/usher/edge/http1"
	"github.com/usher-edge/usher/edge/rawio"
)

// Options of a Server. Zero fields mean the defaults named here.
type Options struct {
	Edge *edge.Edge // required

	HeadTimeout  time.Duration // from a head's first byte to its last; default 10 s
	IdleTimeout  time.Duration // between requests; default 75 s
	BodyTimeout  time.Duration // without a byte of a request's body; default 30 s
	WriteTimeout time.Duration // without the client taking a byte; default 60 s
	// MinBodyRate is how many bytes a second a request's body must come with,
	// measured over windows of BodyTimeout in which usher waits for them. Default
	// 256; below 0 means none.
	MinBodyRate int64
	// MinWriteRate is how many bytes a second a client must take of an answer
	// that waits for it, measured over windows of WriteTimeout. Default 256; below
	// 0 means none.
	MinWriteRate int64

	// MaxConnections is how many clients may be connected at once, over all
	// listeners. Further ones wait. Default 0: no bound.
	MaxConnections int
	// MaxPerClient is how many connections one client (clients.Of) may have at
	// once, over all listeners; one more is refused. Trusted peers and those of
	// unix listeners are not counted. Default 0: no bound.
	MaxPerClient int
	// Loops is how many event loops serve what is quick (loop.go). Each is best off
	// with a processor of Go's (GOMAXPROCS) to itself, and the rest with another one.
	// Default 0: none, all connections have goroutines.
	Loops int
	// Reserve has what it takes to go on serving those who are connected when there is no
	// descriptor left; none is accepted unless it is whole. nil: there is none, and those
	// who need a descriptor then are closed.
	Reserve *rawio.Reserve
	// Limits of request heads.
	Limits http1.Limits

	// TrustedProxies are the peers whose X-Forwarded-* and X-Request-Id are kept.
	// Peers of unix listeners are trusted anyway.
	TrustedProxies []netip.Prefix

	// Via is the name in the Via field, by which a request that comes round is
	// known. Default: "usher-" and eight random hex digits.
	Via string

	// Warn gets what an operator should know: accepting pauses, a listener
	// failed. nil: nothing is said.
	Warn func(msg string)

	poison bool          // tests: overwrite buffers that were given back
	grace  time.Duration // tests: how long an idle connection keeps its goroutine; 0 means idleGrace
	// halfOpen is for tests too: how long a half-open tunnel may be silent; 0 means halfOpen.
	halfOpen time.Duration
	linger   time.Duration // tests: in place of lingerMost
	parting  time.Duration // tests: in place of partingTime
}

// defaultRate is in bytes a second: a body or answer of 64 KiB may take four
// minutes, and what trickles slower holds its place for nothing.
const defaultRate = 256

var errNoEdge = errors.New("engine: Options.Edge is required")

func (o Options) complete() (Options, error) {
	if o.Edge == nil {
		return o, errNoEdge
	}
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&o.HeadTimeout, 10*time.Second)
	def(&o.IdleTimeout, 75*time.Second)
	def(&o.BodyTimeout, 30*time.Second)
	def(&o.WriteTimeout, 60*time.Second)
	def(&o.grace, idleGrace)
	def(&o.halfOpen, halfOpen)
	def(&o.linger, lingerMost)
	def(&o.parting, partingTime)
	if o.MinBodyRate == 0 {
		o.MinBodyRate = defaultRate
	}
	if o.MinWriteRate == 0 {
		o.MinWriteRate = defaultRate
	}
	o.Limits = o.Limits.WithDefaults()
	if o.Via == "" {
		o.Via = fmt.Sprintf("usher-%08x", rand.Uint32())
	}
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	return o, nil
}
