package edge

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/usher-edge/usher/edge/clients"
	"github.com/usher-edge/usher/edge/upstream"
)

// App is the edge's side of one app: its slot, its lot and its counters. It
// lives as long as its name stays in the route table.
type App struct {
	name string
	edge *Edge

	slot     slotPointer             // never nil
	account  atomic.Pointer[Account] // nil: no books are open
	lot      lot
	crowds   crowds
	next     atomic.Pointer[Target]   // made ready by Warm; nil: none is
	counters atomic.Pointer[counters] // nil: folded, or no request has come yet
	guests   clients.Counts           // requests inside, of apps that bound them per client

	// mu puts placements in order and guards left. Only slot stores happen under
	// it: no target is retired, no pool touched and nobody woken.
	mu   doorLock
	left chan struct{} // closed once another slot has taken its place; nil: nobody waits for that

	folding sync.Mutex // guards folded, and which of it and counters there is
	folded  folded     // nil: no request has come yet, or they are in counters
}

func newApp(e *Edge, cfg *AppConfig) *App {
	a := &App{name: cfg.Name, edge: e}
	a.lot.app = a
	a.slot.Store(newSlot(Placement{}, cfg, nil, nil))
	return a
}

// Name is the app's name.
func (a *App) Name() string { return a.name }

// Config is what the app is configured with, defaults filled in. Its lists must
// not be changed.
func (a *App) Config() AppConfig { return a.slot.Load().cfg }

// Placed is what the slot holds now.
func (a *App) Placed() Placement { return a.slot.Load().Placement }

// Place puts p into the app's slot: the switch. Requests that come after it
// returns see p and nothing older. A target that p does not name is retired:
// its idle connections are closed, what is inside may finish. A target that p
// names again is kept, gate and pool, unless it was retired before.
//
// Parked requests follow the new state: Serving lets them go in order of
// arrival, bit by bit; Empty, Maintenance, Down and Fenced turn them away; Removed has
// them decided about as if they came now; Asleep wakes the app for them; in any other
// state they stay.
//
// Place never waits for a request. After Remove it has no effect.
func (a *App) Place(p Placement) {
	a.mu.Lock()
	old := a.slot.Load()
	if old.State == Removed {
		a.mu.Unlock()
		return
	}
	t := old.target
	if p.Address == "" {
		t = nil
	} else if !t.is(&p) || t.Retired() {
		t = a.targetFor(&p)
	}
	left := a.store(newSlot(p, &old.cfg, t, a.edge.opt.Cache))
	a.mu.Unlock()
	a.settle(old, left)
}

// store puts s into the slot and returns who waited for that. mu is held; settle
// follows without it.
func (a *App) store(s *slot) (left chan struct{}) {
	a.slot.Store(s)
	left, a.left = a.left, nil
	return left
}

// settle finishes what storing a slot has begun: the old target and cache
// generation are left, the lot follows. old is the slot that was replaced, left is
// for those who waited for that.
func (a *App) settle(old *slot, left chan struct{}) {
	now := a.slot.Load()
	if left != nil {
		close(left)
	}
	if old.target != nil && old.target != now.target {
		old.target.retire()
	}
	if old.space != nil && old.space != now.space {
		old.space.Close()
	}
	if now.State == Asleep {
		a.fold()
	}
	if a.lot.settle(time.Now()) {
		a.edge.wake(a)
	}
}

// configure gives the slot other settings and nothing else.
func (a *App) configure(cfg *AppConfig) {
	a.mu.Lock()
	old := a.slot.Load()
	left := a.store(newSlot(old.Placement, cfg, old.target, a.edge.opt.Cache))
	a.mu.Unlock()
	a.settle(old, left)
}

// TrySleep retires the target of the generation if nothing is inside, and only
// then puts p into the slot. It reports false, having done nothing, if a
// request is inside or the generation is not the current one. No request is
// lost: one that comes in between parks.
func (a *App) TrySleep(generation uint64, p Placement) bool {
	a.mu.Lock()
	old := a.slot.Load()
	t := old.target
	if t == nil || t.generation != generation || !t.gate.retireIfIdle() {
		a.mu.Unlock()
		return false
	}
	left := a.store(newSlot(p, &old.cfg, nil, a.edge.opt.Cache))
	a.mu.Unlock()
	a.crowds.empty(t)
	a.settle(old, left)
	return true
}

// changed returns a channel that is closed once s is not the slot any more.
func (a *App) changed(s *slot) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.slot.Load() != s {
		over := make(chan struct{})
		close(over)
		return over
	}
	if a.left == nil {
		a.left = make(chan struct{})
	}
	return a.left
}

// Drained returns a channel that is closed once the generation is retired and
// nothing is inside. For a generation that never was here, or has drained, it
// is closed already.
func (a *App) Drained(generation uint64) <-chan struct{} { return a.crowds.drained(generation) }

// CloseStreams ends the upgraded connections and event streams of the
// generation politely, evenly spread over that time, and returns at once. If it is 0
// others wait for them, and no client can put its end off. What is opened meanwhile is
// ended when the time is up, and what is opened later at once.
func (a *App) CloseStreams(generation uint64, over time.Duration) {
	a.edge.spread(a, generation, over)
}

// Cut ends whatever is inside the generation. A client whose answer has not begun is
// told so; others see a reset, never a neat ending. The requests count as drain-cut.
func (a *App) Cut(generation uint64) {
	targets := a.crowds.numbers(generation)
	for _, r := range a.edge.lanes.all() {
		n := r.flight.Load()
		if slices.Contains(targets, n) && r.flight.CompareAndSwap(n, wasCut) {
			r.peer.Cut()
		}
	}
}

// Remove takes the app out of the route table, and parked requests look for another
// app that has their host. What is inside may finish: Drained tells when. The metrics of the app go with
// it.
func (a *App) Remove() {
	a.edge.drop(a)
	a.leave()
}

// leave is Remove for an app that the table does not hold any more.
func (a *App) leave() {
	a.mu.Lock()
	old := a.slot.Load()
	left := a.store(newSlot(Placement{State: Removed}, &old.cfg, nil, nil))
	a.mu.Unlock()
	a.settle(old, left)
}

func (a *App) newTarget(p *Placement) *Target {
	return &Target{
		app: a, number: a.edge.targets.Add(1), generation: p.Generation, network: p.Network, address: p.Address,
		pool: a.edge.opt.NewPool(upstream.Options{Network: p.Network, Address: p.Address}),
	}
}
