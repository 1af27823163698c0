package daemon

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/usher-edge/usher/activator"
	"github.com/usher-edge/usher/activator/lifecycle"
	"github.com/usher-edge/usher/edge"
)

// front is the edge as the activator sees it. An app that the edge does not know
// has no requests, so every question about it has an easy answer.
type front struct {
	edge *edge.Edge

	mu      sync.Mutex // guards leaving; the activator must not be asked anything under it
	leaving map[string]*edge.App
}

func newFront(e *edge.Edge) *front { return &front{edge: e, leaving: map[string]*edge.App{}} }

// keep remembers an app that is about to leave the route table: what is inside
// it must still be waited for.
func (f *front) keep(app string) {
	a := f.edge.App(app)
	if a == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leaving[app] = a
}

// app finds an app that is routed to, or one that leaves.
func (f *front) app(name string) *edge.App {
	if a := f.edge.App(name); a != nil {
		return a
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.leaving[name]
}

// all finds both, for a name that left the table and came back: a generation is
// inside one of them.
func (f *front) all(name string) []*edge.App {
	var out []*edge.App
	if a := f.edge.App(name); a != nil {
		out = append(out, a)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if a := f.leaving[name]; a != nil {
		out = append(out, a)
	}
	return out
}

// forget lets go of the apps that have left for good: all but those named.
func (f *front) forget(but []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range f.leaving {
		if !slices.Contains(but, name) {
			delete(f.leaving, name)
		}
	}
}

var stateOf = [...]edge.State{
	lifecycle.SlotEmpty:       edge.Empty,
	lifecycle.SlotAsleep:      edge.Asleep,
	lifecycle.SlotWaking:      edge.Waking,
	lifecycle.SlotServing:     edge.Serving,
	lifecycle.SlotHolding:     edge.Holding,
	lifecycle.SlotPaused:      edge.Paused,
	lifecycle.SlotMaintenance: edge.Maintenance,
	lifecycle.SlotDown:        edge.Down,
	lifecycle.SlotRemoved:     edge.Removed,
	lifecycle.SlotFenced:      edge.Fenced,
}

func placement(p activator.Placement) edge.Placement {
	return edge.Placement{
		Revision: p.Revision, Generation: p.Generation, Build: p.Build, CacheGen: p.CacheGen,
		State: stateOf[p.State], Network: p.Network, Address: p.Address, Boot: p.Boot, RetryAt: p.RetryAt, Reason: p.Reason,
		Down: downOf(p.Down),
	}
}

// downOf is what clients are told of an app that is down.
func downOf(why lifecycle.Reason) edge.Cause {
	switch why {
	case lifecycle.ReasonCrashed:
		return edge.CauseCrashed
	case lifecycle.ReasonStopped:
		return edge.CauseDraining
	}
	return edge.CauseNone
}

// Place leaves an app that is removed as it is while it is routed to: the next table
// removes it, and gives its hosts to who has them then, in one step.
func (f *front) Place(app string, p activator.Placement) {
	if p.State == lifecycle.SlotRemoved && f.edge.App(app) != nil {
		return
	}
	if a := f.app(app); a != nil {
		a.Place(placement(p))
	}
}

func (f *front) Warm(ctx context.Context, app string, next activator.Placement, question []byte) {
	if a := f.app(app); a != nil {
		a.Warm(ctx, placement(next), question)
	}
}

func (f *front) TrySleep(app string, gen uint64, p activator.Placement) bool {
	a := f.app(app)
	return a == nil || a.TrySleep(gen, placement(p))
}

func (f *front) Drained(app string, gen uint64) <-chan struct{} {
	if a := f.app(app); a != nil {
		return a.Drained(gen)
	}
	c := make(chan struct{})
	close(c)
	return c
}

func (f *front) CloseStreams(app string, gen uint64, over time.Duration) {
	for _, a := range f.all(app) {
		a.CloseStreams(gen, over)
	}
}

func (f *front) Cut(app string, gen uint64) {
	for _, a := range f.all(app) {
		a.Cut(gen)
	}
}

func (f *front) Activity(app string) activator.Activity {
	a := f.app(app)
	if a == nil {
		return activator.Activity{}
	}
	act := a.Activity()
	return activator.Activity{InFlight: int64(act.InFlight), Parked: int64(a.Stats().Parked), Last: act.LastRelease}
}

// waker tells the activator that a request waits. The activator is made after
// the edge, so it is set later, before any listener is served.
type waker struct{ act *activator.Activator }

func (w *waker) Wake(app string) { w.act.Wanted(app) }
