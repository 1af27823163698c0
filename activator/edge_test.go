package activator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/usher-edge/usher/activator/lifecycle"
	"github.com/usher-edge/usher/activator/store"
)

// edgeFake is the data plane of one usher, as small as can be: slots, counted
// targets and parked requests.
type edgeFake struct {
	w      *world
	l      *life
	wanted func(app string)

	mu       sync.Mutex // guards the slots
	apps     map[string]*slot
	mismatch []string // of all books
}

type slot struct {
	p       Placement
	target  *target
	retired map[uint64]*target
	changed chan struct{} // closed by the next Place
	parked  int64
	last    time.Time
	history []Placement
	streams []time.Duration // CloseStreams calls
	cuts    int
	warmed  []string // the questions of Warm
	books   *books
}

// books are the account of an attempt, as small as can be.
type books struct {
	e        *edgeFake
	app      string
	gen      uint64
	c        store.Counts // under the edge's lock, like all of it
	waiting  int
	turned   bool
	released chan struct{}
	closed   bool
}

func (e *edgeFake) OpenAccount(app string, gen uint64) Account {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := &books{e: e, app: app, gen: gen, released: make(chan struct{})}
	if old := e.slot(app).books; old != nil && !old.closed {
		e.w.t.Errorf("the window of generation %d opens while that of %d is open", gen, old.gen)
	}
	e.slot(app).books = b
	return b
}

func (b *books) Turn() <-chan struct{} {
	b.e.mu.Lock()
	defer b.e.mu.Unlock()
	b.turned = true
	b.answered(0)
	return b.released
}

// answered is told of those that waited.
func (b *books) answered(n int) {
	b.waiting -= n
	if b.turned && b.waiting == 0 && !isClosed(b.released) {
		close(b.released)
	}
}

func (b *books) Look() store.Counts {
	b.e.mu.Lock()
	defer b.e.mu.Unlock()
	return b.c
}

func (b *books) Close() store.Counts {
	b.e.mu.Lock()
	defer b.e.mu.Unlock()
	if !b.closed {
		b.closed = true
		b.c.Mismatch = b.e.mismatch
		if got := b.c.Served + b.c.Failed + b.c.Refused + b.c.Open; got != b.c.Accepted {
			b.e.w.t.Errorf("the fake's books: %+v", b.c)
		}
	}
	return b.c
}

// visit is one request in the books.
type visit struct {
	b      *books // nil: none are open
	parked bool
}

func (e *edgeFake) accept(app string) visit {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.slot(app).books
	if b == nil || b.closed {
		return visit{}
	}
	b.c.Accepted++
	b.c.Open++
	return visit{b: b}
}

// parks is called under the lock.
func (v *visit) parks() {
	if v.b != nil && !v.parked && !v.b.turned {
		v.parked = true
		v.b.waiting++
	}
}

func (v *visit) end(gen uint64, err error) {
	if v.b == nil {
		return
	}
	v.b.e.mu.Lock()
	defer v.b.e.mu.Unlock()
	if c := &v.b.c; !v.b.closed {
		c.Open--
		switch {
		case errors.Is(err, errRefused):
			c.Refused++
		case err != nil:
			c.Failed++
		default:
			c.Served++
			if v.parked {
				c.Parked++
			} else if gen == v.b.gen {
				c.Successor++
			} else {
				c.Incumbent++
			}
		}
	}
	if v.parked {
		v.b.answered(1)
	}
}

type target struct {
	gen     uint64
	n       int64
	retired bool
	drained chan struct{}
}

func newEdge(w *world, l *life) *edgeFake { return &edgeFake{w: w, l: l, apps: map[string]*slot{}} }

func (e *edgeFake) slot(app string) *slot {
	s := e.apps[app]
	if s == nil {
		s = &slot{retired: map[uint64]*target{}, changed: make(chan struct{})}
		e.apps[app] = s
	}
	return s
}

func (t *target) retire() {
	t.retired = true
	if t.n == 0 {
		close(t.drained)
	}
}

func (s *slot) place(p Placement) {
	if s.target != nil && s.target.gen != p.Generation {
		s.target.retire()
		s.retired[s.target.gen] = s.target
		s.target = nil
	}
	if p.Generation != 0 && s.target == nil {
		s.target = &target{gen: p.Generation, drained: make(chan struct{})}
	}
	s.p = p
	s.history = append(s.history, p)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (e *edgeFake) Place(app string, p Placement) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.l.gone() {
		return
	}
	if p.State == lifecycle.SlotServing {
		e.checkServing(app, p)
	}
	e.slot(app).place(p)
	e.l.did("place %v %d", p.State, p.Generation)
}

// checkServing holds what must be true before requests can reach a generation.
func (e *edgeFake) checkServing(app string, p Placement) {
	if rec, ok := e.w.record(p.Generation); ok && rec.Address != p.Address {
		e.w.t.Errorf("generation %d is placed at %s, not %s", p.Generation, p.Address, rec.Address)
	}
	a, _ := e.w.state.Get(app)
	if rel, ok := a.Release(p.Revision); ok && rel.Kind == store.KindTarget {
		return
	}
	rec, _ := e.w.record(p.Generation)
	if rec.Phase != store.PhaseSwitching && rec.Phase != store.PhaseSwitched {
		e.w.t.Errorf("generation %d is placed and its record says %q", p.Generation, rec.Phase)
	}
	if now, _ := e.w.isYielding(p.Generation); now {
		e.w.t.Errorf("generation %d is placed and yields at the CPU", p.Generation)
	}
	if !e.w.isHealthy(p.Generation) {
		e.w.t.Errorf("generation %d is placed and never was healthy", p.Generation)
	}
}

func (e *edgeFake) Warm(_ context.Context, app string, next Placement, question []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.slot(app)
	if e.l.gone() {
		return
	}
	if s.p.State == lifecycle.SlotServing && s.p.Generation == next.Generation {
		e.w.t.Errorf("generation %d is made ready when it serves", next.Generation)
	}
	s.warmed = append(s.warmed, string(question))
}

func (e *edgeFake) TrySleep(app string, gen uint64, p Placement) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.slot(app)
	if e.l.gone() || s.target == nil || s.target.gen != gen || s.target.n > 0 {
		return false
	}
	s.place(p)
	e.l.did("place %v %d", p.State, p.Generation)
	return true
}

func (e *edgeFake) Drained(app string, gen uint64) <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.slot(app).retired[gen]; t != nil {
		return t.drained
	}
	return closedChan()
}

func (e *edgeFake) CloseStreams(app string, _ uint64, over time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.slot(app)
	s.streams = append(s.streams, over)
}

func (e *edgeFake) Cut(app string, _ uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.slot(app).cuts++
}

func (e *edgeFake) Activity(app string) Activity {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.slot(app)
	a := Activity{Parked: s.parked, Last: s.last}
	if s.target != nil {
		a.InFlight = s.target.n
	}
	return a
}

func (e *edgeFake) placement(app string) Placement {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.slot(app).p
}

var errRefused = errors.New("503")

// acquire counts a request in, parking it as the slot says.
func (e *edgeFake) acquire(ctx context.Context, app string, v *visit) (*target, Placement, error) {
	for {
		e.mu.Lock()
		s := e.slot(app)
		p, changed := s.p, s.changed
		if s.p.State == lifecycle.SlotServing {
			s.target.n++
			t := s.target
			e.mu.Unlock()
			return t, p, nil
		}
		switch p.State {
		case lifecycle.SlotDown, lifecycle.SlotEmpty, lifecycle.SlotMaintenance, lifecycle.SlotRemoved, lifecycle.SlotFenced:
			e.mu.Unlock()
			return nil, p, errRefused
		}
		s.parked++
		v.parks()
		e.mu.Unlock()
		if p.State == lifecycle.SlotAsleep {
			e.wanted(app)
		}
		var err error
		select {
		case <-changed:
		case <-ctx.Done():
			err = ctx.Err()
		case <-e.l.died:
			err = errDead
		}
		e.mu.Lock()
		s.parked--
		e.mu.Unlock()
		if err != nil {
			return nil, p, err
		}
	}
}

func (e *edgeFake) release(app string, t *target) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t.n--
	e.slot(app).last = time.Now()
	if t.n == 0 && t.retired {
		close(t.drained)
	}
}

// get is one request that takes d; it answers the first word of the build that
// served it.
func (e *edgeFake) get(ctx context.Context, app string, d time.Duration) (build string, err error) {
	before, _ := e.w.state.Get(app)
	v := e.accept(app)
	t, p, err := e.acquire(ctx, app, &v)
	if err != nil {
		v.end(0, err)
		return "", err
	}
	defer e.release(app, t)
	defer func() { v.end(t.gen, err) }()
	pr := e.w.byAddress(p.Address)
	switch {
	case pr == nil:
		return "", fmt.Errorf("502: nothing listens for generation %d", t.gen)
	case pr.gen != t.gen && pr.gen != 0: // 0: a target, which is nobody's
		return "", fmt.Errorf("generation %d answers for %d", pr.gen, t.gen)
	case p.Revision < before.Reported || pr.gen != 0 && pr.revision != p.Revision:
		return "", fmt.Errorf("revision %d answers after %d was reported", pr.revision, before.Reported)
	}
	select {
	case <-time.After(d):
	case <-e.l.died: // and the connection with it
		return "", errDead
	case <-pr.done:
		return "", fmt.Errorf("502: generation %d ended in the middle", t.gen)
	}
	return pr.script[0], nil
}
