package lifecycle

import (
	"sync/atomic"
	"testing"
)

// How the exploration follows the rollout contract.
//
// The node is what the slot sends requests to. So a successor that boots, a
// generation that retires, and requests that park are no steps of it. It drains
// from the moment that it is told to end or that its end is known; a node whose
// main process is dead is draining until nothing of it is left. When usher
// crashes, the slot is gone: a Crash, and its return is a start.
//
// An overlap is BeginDrain, Exit, Start and BecomeReady in one; its Exit is no
// proof of empty, so a hold has no such step.
//
// Serve is an event, not a change: every acquire is asked, at the load of the
// slot whose count went in (the two are one step: edge/stepped_test.go).

// follower is where the contract stands on the edge that is being explored.
type follower struct {
	at     contract
	gen    uint8 // the node's generation while it serves
	inside uint8 // where the request is
	loaded bool  // the slot was loaded for it on this edge
	taken  [actCount]int
	off    bool               // nobody asks
	only   string             // asks for this property and for nothing else
	heard  map[[2]string]bool // collects the broken properties and what says so, asks for nothing else and never stops
}

// lets says whether a broken promise of that name ends the exploration.
func (f *follower) lets(name string) bool {
	return f.heard == nil && (f.only == "" || f.only == name)
}

// contract is the state of the contract that w stands for, and the generation
// that its node is.
func (w *world) contract() (contract, uint8) {
	c := contract{committed: w.d.desired, reported: w.d.reported}
	g := w.home()
	switch {
	case g != nil:
		c.node, c.version = nodeServing, g.rev
		return c, g.id
	case w.up && w.s.Cur.ID == 0 && w.s.Next.ID != 0 && w.s.Next.ID == w.s.Attempt.Gen:
		if g := w.gen(w.s.Next.ID); g != nil && g.ran {
			c.node, c.version = nodeStarting, g.rev
			return c, 0
		}
	}
	for i := range w.ng {
		if w.gens[i].mayRun() {
			c.node = nodeDraining
		}
	}
	return c, 0
}

// mayRun: something of it may be alive and past its go-byte.
func (g *worldGen) mayRun() bool { return g.proc >= procRunning || g.op == GoDone && !g.external }

// home is the generation that serves: that of the slot, or the one that it will
// go back to when nobody parks any more.
func (w *world) home() *worldGen {
	switch cur := &w.s.Cur; {
	case !w.up:
		return nil
	case w.slot.State == SlotServing:
		return w.gen(w.slot.Gen)
	case cur.Stage == Serving || cur.Stage == Draining:
		return w.gen(cur.ID)
	}
	return nil
}

// leave begins an edge in w.
func (f *follower) leave(w *world) {
	f.at, f.gen = w.contract()
	f.inside, f.loaded = w.g.inside, false
}

// follow takes the contract to where w stands now.
func (x *explorer) follow(w *world) {
	f := &x.rollout
	if f.off {
		return
	}
	if w.g.inside != f.inside && w.g.inside != 0 && !f.loaded {
		x.breaks(refinement, "a request is sent to generation %d, and no Serve stands for that", w.g.inside)
	}
	to, gen := w.contract()
	from, old := f.at, f.gen
	if to == from && gen == old {
		return
	}
	f.at, f.gen = to, gen
	c := from
	if to.committed != from.committed {
		x.act(&c, actCommit, to.committed)
	}
	if to.reported != from.reported {
		x.act(&c, actReport, to.reported)
	}
	if to.node != c.node || to.version != c.version || to.node == nodeServing && gen != old {
		way := x.way(w, from.node, to.node, x.overlaps(w))
		for _, a := range way {
			x.act(&c, a, to.version)
		}
		if len(way) == 0 || c != to {
			x.breaks(refinement, "the node goes from %s r%d to %s r%d, which is no action", from.node, from.version, to.node, to.version)
		}
	}
	to.brokenIn(x.cfg.newest(), func(p string) { x.breaks(p, "the contract is not kept by %+v", to) })
}

// way is the sequence of actions that moves the node, nil if there is none.
func (x *explorer) way(w *world, from, to node, overlaps bool) []action {
	ends := actBeginDrain
	crashed := x.out&flagCrashed != 0
	if crashed || x.event.Kind == Exited {
		ends = actCrash
	}
	returns := x.event == Event{} // usher has just started
	switch [2]node{from, to} {
	case [2]node{nodeServing, nodeDraining}:
		return []action{ends}
	case [2]node{nodeServing, nodeStopped}: // usher owns no process of it, or is not there to see
		return []action{ends, actExit}
	case [2]node{nodeStarting, nodeDraining}:
		if crashed {
			return []action{actCrash}
		}
		return []action{actStartFailed}
	case [2]node{nodeStarting, nodeStopped}:
		return []action{actStartFailed, actExit}
	case [2]node{nodeDraining, nodeStopped}:
		return []action{actExit}
	case [2]node{nodeStopped, nodeStarting}:
		return []action{actStart}
	case [2]node{nodeStarting, nodeServing}:
		return []action{actBecomeReady}
	}
	if !overlaps && !returns {
		return nil
	}
	switch [2]node{from, to} {
	case [2]node{nodeServing, nodeServing}:
		return []action{actBeginDrain, actExit, actStart, actBecomeReady}
	case [2]node{nodeDraining, nodeStarting}:
		return []action{actExit, actStart}
	case [2]node{nodeDraining, nodeServing}:
		return []action{actExit, actStart, actBecomeReady}
	case [2]node{nodeStopped, nodeServing}:
		return []action{actStart, actBecomeReady}
	}
	return nil
}

// overlaps says that nothing which may be alive, or takes over, is of a hold
// app.
func (x *explorer) overlaps(w *world) bool {
	for i := range w.ng {
		g := &w.gens[i]
		if g.mayRun() && w.d.rels[g.rev]&relHold != 0 {
			return false
		}
	}
	return true
}

// newest is the newest revision that there can be: usher may commit one for
// each of the owner's.
func (c *config) newest() uint8 {
	n := 0
	for _, r := range c.commits {
		n++
		if r&relFallback != 0 {
			n++
		}
	}
	return uint8(n)
}

// act takes one action of the contract.
func (x *explorer) act(c *contract, a action, v uint8) {
	x.rollout.taken[a]++
	c.brokenBy(a, v, func(p string) { x.breaks(p, "%s r%d in %+v", a, v, *c) })
	from := *c
	if !c.do(a, v) {
		x.breaks(refinement, "%s r%d is not allowed in %+v", a, v, from)
	}
}

// breaks is fail for a property of the contract.
func (x *explorer) breaks(property, format string, args ...any) {
	if x.rollout.off {
		return
	}
	if x.rollout.heard != nil {
		x.rollout.heard[[2]string{property, format}] = true
		return
	}
	x.fail(property, format, args...)
}

// The request, as far as the contract sees it.

// arrives: its head is complete. It may be answered by the cache of the slot,
// or loads the slot.
func (x *explorer) arrives(w *world) {
	if x.cfg.heads {
		w.g.head = w.d.reported
	}
	if x.flaw == flawKeptTarget && w.s.Old.Stage == Draining {
		w.g.inside = uint8(w.s.Old.ID)
		return
	}
	if x.flaw == flawEntersEnding && w.s.Cur.Stage == Stopping && uint8(w.s.Cur.Rel.Rev) >= w.d.reported {
		x.acquire(w, uint8(w.s.Cur.ID))
		return
	}
	x.hit(w, w.d.reported)
	w.g.parked = true
	x.settleGhost(w)
}

// hit: at every load of a slot that lets hits through, one may answer.
func (x *explorer) hit(w *world, head uint8) {
	switch w.slot.State {
	case SlotAsleep, SlotWaking, SlotServing, SlotHolding, SlotPaused:
		ns := uint8(w.slot.Cache.Rev)
		if ns == 0 {
			return
		}
		x.act(&x.rollout.at, actCacheServe, ns)
		if ns < head {
			x.breaks(answersFollowReports, "a request that came after revision %d was reported is answered from the cache of revision %d", head, ns)
		}
	}
}

// acquire: the request has loaded the slot and is counted into generation id.
func (x *explorer) acquire(w *world, id uint8) {
	x.follow(w)
	x.rollout.loaded = true
	w.g.parked, w.g.wake = false, false
	w.g.inside, w.g.key = id, w.slot.Cache
	if g := w.gen(GenID(id)); g != nil {
		x.act(&x.rollout.at, actServe, g.rev)
	}
	x.hit(w, w.g.head)
}

// answered: by a process of revision rev.
func (x *explorer) answered(w *world, rev uint8) {
	if rev < w.g.head {
		x.breaks(answersFollowReports, "a request that came after revision %d was reported is answered by revision %d", w.g.head, rev)
	}
}

// loses: the process that the request was sent to is gone. It may be sent again.
func (x *explorer) loses(w *world) {
	if !x.cfg.heads || x.script.choose(2) == 0 {
		w.g.ends()
		return
	}
	x.say("  the request is sent again")
	if x.flaw == flawKeptSlot && w.slot.State == SlotServing {
		x.acquire(w, w.g.inside)
		return
	}
	w.g.inside, w.g.key, w.g.parked = 0, CacheKey{}, true
	x.settleGhost(w)
}

// commits makes a new release desired.
func (x *explorer) commits(w *world, bits uint8) {
	if x.flaw == flawTornCommit {
		desired := w.d.desired
		w.d.desired = 0
		x.follow(w)
		w.d.desired = desired
		x.rollout.leave(w)
	}
	w.commit(bits)
	x.follow(w)
}

// flaw is a deliberately wrong variant of the environment.
type flaw uint8

const (
	flawNone         flaw = iota
	flawKeptTarget        // a kept connection goes on with the target of its last request
	flawKeptSlot          // a request that is sent again does not load the slot again
	flawEntersEnding      // a request enters what was told to end
	flawTornCommit        // a commit is a delete and a put
	flawStoresLate        // an answer is stored in the cache of the slot that is there when it ends
)

// rolloutActions counts the actions that were taken in all configurations.
type rolloutActions [actCount]atomic.Int64

func (r *rolloutActions) add(f *follower) {
	for a, n := range f.taken {
		r[a].Add(int64(n))
	}
}

func (r *rolloutActions) report(t *testing.T) {
	t.Helper()
	for a := range r {
		n := r[a].Load()
		t.Logf("the rollout contract: %s %d times", action(a), n)
		if n == 0 {
			t.Errorf("%s of the rollout contract was never taken", action(a))
		}
	}
}
