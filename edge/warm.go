package edge

import (
	"context"
	"time"
)

// How far Warm goes: as many connections as this, in no more time than this.
const (
	warmMost = 64
	warmTime = 2 * time.Second
)

// Warm gets ready for the switch to p, while another target serves: it opens as many
// connections as are open to that one, and sends question, a whole GET request,
// over each (upstream.Pool.Warm). They belong to the target that the next Place with
// the same generation and address makes; if ctx ends before, they are closed. It
// returns when the app has had its chance, which changes nothing about what is
// served.
func (a *App) Warm(ctx context.Context, p Placement, question []byte) {
	now := a.slot.Load().target
	if now == nil {
		return
	}
	t := a.newTarget(&p)
	soon, cancel := context.WithTimeout(ctx, warmTime)
	// What it was not good for is no worry: the app has passed its health check, and
	// what is missing is dialled by requests.
	_ = t.pool.Warm(soon, question, min(now.pool.Stats().Open, warmMost))
	cancel()
	if old := a.next.Swap(t); old != nil {
		old.pool.Retire()
	}
	context.AfterFunc(ctx, func() {
		if a.next.CompareAndSwap(t, nil) {
			t.pool.Retire()
		}
	})
}

// targetFor is the target that was made ready for p, or a new one. mu is held.
func (a *App) targetFor(p *Placement) *Target {
	t := a.next.Load()
	if !t.is(p) || !a.next.CompareAndSwap(t, nil) {
		t = a.newTarget(p)
	}
	a.crowds.add(t)
	return t
}
