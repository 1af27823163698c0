package lifecycle

import (
	"fmt"
	"hash/maphash"
	"os"
	"strings"
	"testing"
)

// What people may ask in a configuration, as bits.
const (
	askRestart uint16 = 1 << iota // within config.left.restarts
	askRetry                      // and this
	askWake
	askSleep
	askPause
	askMaintain
	askRequest
	askHalt // shifted by the Halt: shutdown, stop, remove
)

const (
	askShutdown = askHalt << HaltShutdown
	askStop     = askHalt << HaltStop
	askRemove   = askHalt << HaltRemove
	askFence    = askHalt << HaltFence
)

// config is one bounded environment.
type config struct {
	name      string
	commits   []uint8 // the releases that are committed, in this order
	left      budgets
	asks      uint16
	late      bool   // answers may be overtaken by the stop of their generation
	doubts    bool   // a live process may fail its one connect at recovery
	cache     bool   // follow a cache entry
	heads     bool   // remember what was reported when the request came, and let it be sent again
	between   bool   // people may ask something while a switch is under way
	uncertain bool   // a record that is said to have failed may have taken place
	pauses    bool   // tell how long the pauses of a back-off have grown
	wide      bool   // two crashes of each kind within the large bounds
	enough    bool   // no release more within the large bounds: there would be too many states
	within    string // the configuration of which it is a part, so that it need not be visited on its own
}

func (c *config) start() world {
	w := world{up: true, left: c.left}
	w.left.commits = uint8(len(c.commits))
	return w
}

// edge is one transition of the graph: where it leads and, in the lowest bits,
// what happened on it. There are many.
type edge uint32

func newEdge(to int32, out flags) edge { return edge(to)<<flagBits | edge(out) }

func (e edge) to() int32 { return int32(e >> flagBits) }

func (e edge) out() flags { return flags(e & (1<<flagBits - 1)) }

// graph is what an exploration has found.
type graph struct {
	seed   maphash.Seed
	index  map[uint64]int32
	parent []int32
	branch []uint16 // which way out of the parent
	first  []int32  // where the edges of a state begin
	edges  []edge
	marks  []mark
}

// mark is what the checks of the graph need to know of a state.
type mark uint8

const (
	markSettled   mark = 1 << iota // it may stay like this for ever
	markMatch                      // and what is desired is what was reported
	markAimed                      // whatever runs, starts or is cached is what is desired
	markSaturated                  // the back-off level has reached its end
	markNear                       // the gap is 0
)

// result is how an exploration ended.
type result struct {
	g       *graph
	states  int
	edges   int
	longest int
	full    bool // the cap was hit
	broken  *violation
	trace   string
}

// explore visits every world that can be reached, breadth first, so that the
// first violation has a shortest trace.
func explore(x *explorer, limit int) result {
	g := &graph{seed: maphash.MakeSeed(), index: map[uint64]int32{}}
	first := x.cfg.start()
	now, after := []world{first}, []world(nil)
	g.add(x, &first, -1, 0)
	at := int32(0)
	var moves []move
	for len(now) > 0 {
		for i := range now {
			w := &now[i]
			moves = x.moves(w, moves[:0])
			g.first = append(g.first, int32(len(g.edges)))
			branch := uint16(0)
			ok := x.branches(w, moves, func(next *world, _ *move) bool {
				id, isNew := g.add(x, next, at, branch)
				if isNew {
					after = append(after, *next)
				}
				g.edges = append(g.edges, newEdge(id, x.out))
				branch++
				return x.broken == nil
			})
			if !ok {
				broken := x.broken
				return result{g: g, states: len(g.parent), edges: len(g.edges), broken: broken, trace: g.trace(x, at, branch-1)}
			}
			at++
		}
		if len(g.parent) > limit {
			return result{g: g, states: len(g.parent), edges: len(g.edges), longest: x.longest, full: true}
		}
		now, after = after, now[:0]
	}
	g.first = append(g.first, int32(len(g.edges)))
	return result{g: g, states: len(g.parent), edges: len(g.edges), longest: x.longest}
}

// branches calls f with every world that follows w, until f says no.
func (x *explorer) branches(w *world, moves []move, f func(*world, *move) bool) bool {
	var next world
	for i := range moves {
		x.script = script{}
		for {
			next = *w
			x.take(&next, &moves[i])
			if !f(&next, &moves[i]) {
				return false
			}
			if !x.script.advance() {
				break
			}
		}
	}
	return true
}

func (g *graph) add(x *explorer, w *world, from int32, branch uint16) (int32, bool) {
	h := w.hash(g.seed)
	if id, ok := g.index[h]; ok {
		return id, false
	}
	id := int32(len(g.parent))
	g.index[h] = id
	g.parent = append(g.parent, from)
	g.branch = append(g.branch, branch)
	g.marks = append(g.marks, x.mark(w))
	if x.visit != nil {
		x.visit(w)
	}
	return id, true
}

// trace tells how to get to state at and out of it by the given way.
func (g *graph) trace(x *explorer, at int32, last uint16) string {
	ways := []uint16{last}
	for ; g.parent[at] >= 0; at = g.parent[at] {
		ways = append(ways, g.branch[at])
	}
	var b strings.Builder
	w := x.cfg.start()
	for i := len(ways) - 1; i >= 0; i-- {
		w = x.walk(&w, ways[i], &b)
	}
	fmt.Fprintf(&b, "→ %s\n", &w)
	return b.String()
}

// walk takes one way out of w and writes what happens on it.
func (x *explorer) walk(w *world, way uint16, b *strings.Builder) world {
	var to world
	n := uint16(0)
	var text strings.Builder
	x.log = func(format string, args ...any) { fmt.Fprintf(&text, "  "+format+"\n", args...) }
	defer func() { x.log = nil }()
	x.branches(w, x.moves(w, nil), func(next *world, _ *move) bool {
		if n == way {
			to = *next
			b.WriteString(text.String())
			return false
		}
		n++
		text.Reset()
		return true
	})
	return to
}

// hash writes w into bytes, field by field, and hashes them.
func (w *world) hash(seed maphash.Seed) uint64 {
	var b packer
	s := &w.s
	for _, r := range [...]*Release{&s.Desired, &s.Good} {
		b.release(r)
	}
	for _, g := range [...]*Gen{&s.Cur, &s.Next, &s.Old} {
		b.put(uint8(g.ID), uint8(g.Restart), uint8(g.Stage), bits(g.Ran, g.Prepared, g.Hurried))
		b.release(&g.Rel)
	}
	a := &s.Attempt
	b.put(uint8(a.Gen), uint8(a.Cause), uint8(a.Mode), uint8(a.Desired), bits(a.Stopped, a.Reporting))
	b.slot(&s.Slot)
	b.put(uint8(s.Reported), uint8(s.Held), uint8(s.DownHeld), uint8(s.Deferred), uint8(s.Restarts), uint8(s.Cache.Rev), uint8(s.Cache.Restart),
		uint8(s.Why), uint8(s.Halt), uint8(s.Limit), s.Backoff, bits(s.WakeWanted, s.StartWanted, s.SweepArmed, s.ReportOwed, s.Paused, s.Maintenance, s.Gone), bits(s.Stalled, s.FallsBack))
	b.slot(&w.slot)
	for i := range w.ng {
		g := &w.gens[i]
		b.put(g.id, g.rev, g.restart, g.phase, g.proc, uint8(g.op), bits(g.stop, g.drain, g.ran, g.healthy, g.ended, g.untold, g.external), bits(g.cut))
	}
	b.put(w.nl)
	for i := range w.nl {
		l := &w.local[i]
		b.put(uint8(l.kind), l.gen, uint8(l.res), uint8(l.why))
	}
	b.put(uint8(w.late.kind), w.late.gen)
	d := &w.d
	b.put(d.rels[1:]...)
	b.put(d.since[1:]...)
	b.put(d.desired, d.good, d.reported, d.held, d.downHeld, d.verified, d.restarts, bits(d.paused, d.maintain, d.owed), d.touched, d.failed, d.doubt, w.timers, w.settle)
	b.put(w.left.commits, w.left.restarts, w.left.usher, w.left.app, w.left.puts, w.left.fresh)
	b.put(w.g.head, w.g.inside, uint8(w.g.key.Rev), uint8(w.g.key.Restart), uint8(w.g.entry.Rev), uint8(w.g.entry.Restart), w.g.content,
		bits(w.g.parked, w.g.wake, w.up, w.gone, w.raised))
	return maphash.Bytes(seed, b.buf[:b.n])
}

type packer struct {
	buf [256]byte
	n   int
}

func (p *packer) put(b ...uint8) { p.n += copy(p.buf[p.n:], b) }

func (p *packer) release(r *Release) {
	p.put(uint8(r.Rev), bits(r.Hold, r.External, r.Ran, r.Own, r.Canary, r.Fallback, r.Limited, r.Config), uint8(r.Restarts))
}

func (p *packer) slot(s *Slot) {
	p.put(uint8(s.State), uint8(s.Gen), uint8(s.Cache.Rev), uint8(s.Cache.Restart), uint8(s.Reason), s.Level)
}

func bits(b ...bool) uint8 {
	n := uint8(0)
	for i, set := range b {
		if set {
			n |= 1 << i
		}
	}
	return n
}

// full says whether the large bounds were asked for.
func full() bool { return os.Getenv("USHER_EXPLORE") == "full" }

func (r *result) report(t *testing.T) {
	t.Helper()
	t.Logf("%d states, %d transitions, at most %d effects in one step", r.states, r.edges, r.longest)
	if r.broken != nil {
		t.Fatalf("%v\n%s", r.broken, r.trace)
	}
}
