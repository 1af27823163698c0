package edge

import (
	"sync"
	"sync/atomic"

	"github.com/usher-edge/usher/edge/upstream"
)

// Target is the address of one generation, its gate and its upstream pool. A
// front gets one from Decide, already counted in, and gives it back through
// Retry or Finish.
type Target struct {
	app        *App
	number     uint64 // no other target of the edge has it
	generation uint64
	network    string
	address    string
	pool       *upstream.Pool
	gate       gate
	behind     doorSign // requests that were parked are let go to it: others go behind them
	owed       doorSign // it is too full for them: the room that there will be is theirs

	closed atomic.Bool // to streams: what becomes one ends at once
}

// Pool is where connections to the target come from. Once the target is
// retired it hands out no idle connection and closes what comes back.
func (t *Target) Pool() *upstream.Pool { return t.pool }

// Generation is the number of the generation behind the address.
func (t *Target) Generation() uint64 { return t.generation }

// Retired says that the app has been switched away from this target: what still
// runs on it should end its client connection soon.
func (t *Target) Retired() bool { return t.gate.retired() }

// is reports whether the placement speaks of this very target.
func (t *Target) is(p *Placement) bool {
	return t != nil && t.generation == p.Generation && t.network == p.Network && t.address == p.Address
}

// release counts one request out.
func (t *Target) release() {
	if t.gate.leave() {
		t.app.crowds.empty(t)
	}
	if t.owed.Load() {
		t.app.lot.left(t)
	}
}

// retire closes the gate, then the pool's idle connections. It must not be
// called under a lock.
func (t *Target) retire() {
	if t.gate.retire() {
		t.app.crowds.empty(t)
	}
	t.pool.Retire()
}

// crowds knows, for one app, which generations still have somebody inside or
// may get somebody: the targets that are not yet (retired, empty).
type crowds struct {
	mu   sync.Mutex // guards open; nothing is waited for or closed but channels
	open map[uint64]*crowd
}

// crowd is one generation's targets. There is more than one only if a
// generation was switched away from and back to.
type crowd struct {
	targets []*Target
	done    chan struct{}
}

func (c *crowds) add(t *Target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[uint64]*crowd{}
	}
	g := c.open[t.generation]
	if g == nil {
		g = &crowd{done: make(chan struct{})}
		c.open[t.generation] = g
	}
	g.targets = append(g.targets, t)
}

// empty takes a target out that is (retired, 0). The gate says so exactly once.
func (c *crowds) empty(t *Target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.open[t.generation]
	for i, o := range g.targets {
		if o == t {
			g.targets = append(g.targets[:i], g.targets[i+1:]...)
			break
		}
	}
	if len(g.targets) == 0 {
		delete(c.open, t.generation)
		if len(c.open) == 0 {
			c.open = nil // most apps sleep
		}
		close(g.done)
	}
}

// closeToStreams makes what becomes a stream in a generation from now on end at once.
func (c *crowds) closeToStreams(generation uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.open[generation]; g != nil {
		for _, t := range g.targets {
			t.closed.Store(true)
		}
	}
}

// numbers are those of the targets of a generation that may have somebody inside.
func (c *crowds) numbers(generation uint64) (n []uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.open[generation]; g != nil {
		for _, t := range g.targets {
			n = append(n, t.number)
		}
	}
	return n
}

// drained returns a channel that is closed once nobody is inside the generation
// and nobody can get in; a generation that is unknown is drained already.
func (c *crowds) drained(generation uint64) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.open[generation]; g != nil {
		return g.done
	}
	done := make(chan struct{})
	close(done)
	return done
}

// inside counts the requests inside all generations.
func (c *crowds) inside() (n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range c.open {
		for _, t := range g.targets {
			n += t.gate.inside()
		}
	}
	return n
}
