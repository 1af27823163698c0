package lifecycle

import "testing"

// Liveness (I9), as questions about the graph of all states. "Quiet" means that
// nobody asks for anything and nothing crashes.
//
//	L1  where nothing happens by itself any more, the gap is 0 (but after a fence) and it is settled: what is wanted serves or sleeps, or it is a failure that says why
//	L2  quiet and without failures, every way ends: there is no cycle (with L1: it always gets to what is wanted)
//	L3  quiet, whatever fails: no cycle spawns without the back-off timer
//	L4  and on a cycle that spawns, the pauses have grown to their longest
//	L5  what is desired, once reached and reported, stays what boots, serves and is cached, whatever requests, wakes and sleeps come

// mark says what the questions need to know of w.
func (x *explorer) mark(w *world) mark {
	m := mark(0)
	if w.settled() {
		m |= markSettled
		if s := &w.s; w.up && s.Desired.Rev != 0 && s.Reported == s.Desired.Rev && s.Cache.Rev == s.Desired.Rev && s.Held != s.Desired.Rev &&
			s.Halt == HaltNone && (s.Slot.State == SlotServing || s.Slot.State == SlotAsleep) {
			m |= markMatch
		}
	}
	if w.aimed() {
		m |= markAimed
	}
	if w.s.Backoff == maxBackoff {
		m |= markSaturated
	}
	if Gap(w.s) == 0 || w.fenced() && w.s.Gone { // the rest is for the next owner
		m |= markNear
	}
	return m
}

// settled: it matches what is wanted, or it is a failure that says why.
func (w *world) settled() bool {
	s := &w.s
	switch {
	case !w.up:
		return false
	case s.Gone:
		return true
	case s.Halt != HaltNone || s.Attempt.Gen != 0 || s.Limit != LimitOne || s.Next.ID != 0 || s.Old.ID != 0 || w.g.parked && !s.Paused:
		return false
	case s.Cur.ID != 0 && s.Cur.Stage != Serving:
		return false
	}
	// a first release may wait for its first request, and so may the report of one
	// that was switched to and ended before it could be reported: docs/lifecycle.md
	// says why
	first := (s.Good.Rev == 0 || s.Good.Rev == s.Desired.Rev) && s.Slot.State == SlotAsleep
	if w.d.owed && !s.Paused && !first {
		return false
	}
	target := s.Wanted().Rev == s.Desired.Rev || s.Held == s.Desired.Rev
	switch s.Slot.State {
	case SlotEmpty:
		return s.Desired.Rev == 0
	case SlotAsleep:
		return s.Cur.ID == 0 && !s.WakeWanted && !s.StartWanted && target
	case SlotServing:
		return s.Cur.Rel.Rev == s.Wanted().Rev && s.Cur.Restart == s.Restarts && !s.ReportOwed && (s.Reported >= s.Cur.Rel.Rev || s.Cur.Rel.Rev != s.Desired.Rev) &&
			!s.WakeWanted && !s.StartWanted && target
	case SlotPaused, SlotMaintenance:
		return s.Paused
	case SlotDown:
		return s.Slot.Reason == ReasonHeld && w.heldDown(s.Desired.Rev) && w.heldDown(s.Good.Rev)
	}
	return false
}

// heldDown: a revision failed, or may not be started on what another has changed, as
// far as the record tells.
func (w *world) heldDown(r Revision) bool {
	return w.d.failed&(1<<r) != 0 || uint8(r) < w.d.touched || uint8(r) <= w.d.doubt || r == w.s.Held
}

// aimed: nothing but the desired release runs, starts, or answers from the
// cache. What is on its way out does not matter: it ran, or started, before.
func (w *world) aimed() bool {
	s := &w.s
	d := s.Desired.Rev
	for _, g := range [...]*Gen{&s.Cur, &s.Next} {
		if g.ID != 0 && g.Stage < Stopping && g.Rel.Rev != d {
			return false
		}
	}
	return w.up && s.Cache.Rev == d
}

func (g *graph) out(at int32) []edge { return g.edges[g.first[at]:g.first[at+1]] }

func quiet(e edge) bool { return e.out()&(flagAsked|flagCrashed) == 0 }

func lucky(e edge) bool { return quiet(e) && e.out()&flagFailed == 0 }

// checkLiveness asks all questions.
func (g *graph) checkLiveness(t *testing.T, x *explorer) {
	t.Helper()
	if name, at := g.liveness(x); name != "" {
		t.Fatalf("%s\n%s", name, g.to(x, at))
	}
}

// liveness returns the first question with a bad answer, and a state that shows
// it.
func (g *graph) liveness(x *explorer) (string, int32) {
	if at := g.stuck(); at >= 0 {
		return "L1: nothing more happens by itself, and it is neither what is wanted nor a failure that says why", at
	}
	if at := g.cycle(func(from int32, e edge) bool { return g.fortunate(from, e) }, func(edge) bool { return true }); at >= 0 {
		return "L2: though nothing fails and nobody asks, it never comes to rest", at
	}
	spawns := func(e edge) bool { return e.out()&flagSpawned != 0 }
	if at := g.cycle(func(_ int32, e edge) bool { return quiet(e) && e.out()&flagBackoff == 0 }, spawns); at >= 0 {
		return "L3: processes are spawned again and again without a pause", at
	}
	slow := func(from int32, e edge) bool { return quiet(e) && g.marks[from]&markSaturated == 0 }
	if at := g.cycle(slow, spawns); at >= 0 && x.cfg.pauses {
		return "L4: processes are spawned again and again and the pauses do not grow", at
	}
	if at := g.strays(); at >= 0 {
		return "L5: what is desired was reached and left again though nobody asked for another release", at
	}
	return "", -1
}

// fortunate: of what can happen, nothing fails, unless there is nothing else.
func (g *graph) fortunate(from int32, e edge) bool {
	if lucky(e) {
		return true
	}
	if !quiet(e) {
		return false
	}
	for _, o := range g.out(from) {
		if lucky(o) {
			return false
		}
	}
	return true
}

// stuck finds a state that nothing but the outside can change and that should
// not stay as it is.
func (g *graph) stuck() int32 {
	for at := range g.parent {
		moves := false
		for _, e := range g.out(int32(at)) {
			moves = moves || quiet(e)
		}
		if !moves && g.marks[at]&(markSettled|markNear) != markSettled|markNear {
			return int32(at)
		}
	}
	return -1
}

// strays finds a state that is not aimed at what is desired, or that rests as a
// failure, and that can be reached from one that matched by requests, wakes and
// sleeps alone.
func (g *graph) strays() int32 {
	seen := make([]bool, len(g.parent))
	var todo []int32
	for at, m := range g.marks {
		if m&markMatch != 0 {
			seen[at] = true
			todo = append(todo, int32(at))
		}
	}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if m := g.marks[at]; m&markAimed == 0 || m&markSettled != 0 && m&markMatch == 0 {
			return at
		}
		for _, e := range g.out(at) {
			if e.out()&(flagFailed|flagCrashed) == 0 && (quiet(e) || e.out()&flagGentle != 0) && !seen[e.to()] {
				seen[e.to()] = true
				todo = append(todo, e.to())
			}
		}
	}
	return -1
}

// cycle finds a state on a cycle of edges that pass use, at least one of which
// passes bad (Tarjan's components, without recursion).
func (g *graph) cycle(use func(from int32, e edge) bool, bad func(edge) bool) int32 {
	comp := g.components(use)
	for at := range g.parent {
		for _, e := range g.out(int32(at)) {
			if comp[at] == comp[e.to()] && use(int32(at), e) && bad(e) {
				return int32(at)
			}
		}
	}
	return -1
}

// components numbers the strongly connected components over the edges that pass
// use.
func (g *graph) components(use func(from int32, e edge) bool) []int32 {
	n := len(g.parent)
	comp, low, num := make([]int32, n), make([]int32, n), make([]int32, n)
	for i := range comp {
		comp[i] = -1
	}
	type frame struct{ at, next int32 }
	var calls []frame
	var stack []int32
	count := int32(0)
	for root := range n {
		if num[root] != 0 {
			continue
		}
		calls = append(calls, frame{int32(root), g.first[root]})
		for len(calls) > 0 {
			f := &calls[len(calls)-1]
			at := f.at
			if num[at] == 0 {
				count++
				num[at], low[at] = count, count
				stack = append(stack, at)
			}
			if f.next < g.first[at+1] {
				e := g.edges[f.next]
				f.next++
				switch {
				case !use(at, e):
				case num[e.to()] == 0:
					calls = append(calls, frame{e.to(), g.first[e.to()]})
				case comp[e.to()] < 0:
					low[at] = min(low[at], num[e.to()])
				}
				continue
			}
			if low[at] == num[at] {
				for {
					v := stack[len(stack)-1]
					stack = stack[:len(stack)-1]
					comp[v] = at
					if v == at {
						break
					}
				}
			}
			calls = calls[:len(calls)-1]
			if len(calls) > 0 {
				up := calls[len(calls)-1].at
				low[up] = min(low[up], low[at])
			}
		}
	}
	return comp
}

// to tells how to get to a state.
func (g *graph) to(x *explorer, at int32) string {
	if g.parent[at] < 0 {
		return "the first state"
	}
	return g.trace(x, g.parent[at], g.branch[at])
}
