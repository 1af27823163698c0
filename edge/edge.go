package edge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/usher-edge/usher/edge/upstream"
)

// Waker starts apps that are asleep. Wake is called for every request that
// parks on one; it must not block, and may be called again while the app wakes.
type Waker interface {
	Wake(app string)
}

// Options are what an Edge is made of. The zero value works.
type Options struct {
	Waker Waker // nil: apps are never woken
	Cache Cache // nil: nothing is cached
	// Log gets one entry per ended request, on the goroutine that ended it. The
	// entry and its bytes are reused after it returns. nil: none.
	Log func(*Entry)
	// NewPool makes the upstream pool of a target. nil means upstream.NewPool
	// with one stock of buffers for all.
	NewPool func(upstream.Options) *upstream.Pool
}

// Edge is the route table, the apps on it and what is under way. It is safe for
// use by many goroutines.
type Edge struct {
	opt    Options
	table  atomic.Pointer[table]
	number atomic.Uint64 // of table, which is stored first
	lanes  lanes

	accepted atomic.Uint64
	targets  atomic.Uint64 // made so far
	unknown  counters      // requests that found no app

	mu sync.Mutex // puts changes of the table in order; held for nothing else

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	work sync.WaitGroup // goroutines of CloseStreams
}

// New returns an Edge without apps.
func New(opt Options) *Edge {
	if opt.NewPool == nil {
		stock := upstream.NewBuffers(0)
		opt.NewPool = func(o upstream.Options) *upstream.Pool {
			o.Buffers = stock
			return upstream.NewPool(o)
		}
	}
	e := &Edge{opt: opt}
	e.ctx, e.stop = context.WithCancel(context.Background())
	e.store(&table{number: 1, byName: map[string]*App{}})
	return e
}

// SetApps replaces the route table in one step, or returns every error and
// changes nothing. An app whose name stays keeps its slot, its parked requests
// and its connections; a new one starts Empty; one that is gone is removed as
// by App.Remove.
func (e *Edge) SetApps(list []AppConfig) error {
	e.mu.Lock()
	old := e.table.Load()
	apps, cfgs, err := e.resolve(old, list)
	if err != nil {
		e.mu.Unlock()
		return err
	}
	t, err := newTable(old.number+1, apps, cfgs)
	if err != nil {
		e.mu.Unlock()
		return fmt.Errorf("set apps: %w", err)
	}
	e.store(t)
	e.mu.Unlock()
	for i, a := range apps {
		a.configure(cfgs[i])
	}
	for name, a := range old.byName {
		if t.byName[name] == nil {
			a.leave()
		}
	}
	return nil
}

// resolve completes the configurations and finds or makes their apps.
func (e *Edge) resolve(old *table, list []AppConfig) (apps []*App, cfgs []*AppConfig, err error) {
	var errs []error
	seen := map[string]bool{}
	for _, c := range list {
		cfg, err := c.complete()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if seen[cfg.Name] {
			errs = append(errs, fmt.Errorf("app %s is there twice", cfg.Name))
			continue
		}
		seen[cfg.Name] = true
		a := old.byName[cfg.Name]
		if a == nil {
			a = newApp(e, cfg)
		}
		apps, cfgs = append(apps, a), append(cfgs, cfg)
	}
	if len(errs) > 0 {
		return nil, nil, fmt.Errorf("set apps: %w", errors.Join(errs...))
	}
	return apps, cfgs, nil
}

// drop takes one app out of the table.
func (e *Edge) drop(a *App) {
	e.mu.Lock()
	defer e.mu.Unlock()
	old := e.table.Load()
	if old.byName[a.name] != a {
		return
	}
	e.store(old.without(a))
}

// store makes t the table. Who has begun to look before may find what the last
// one had.
func (e *Edge) store(t *table) {
	e.table.Store(t)
	e.number.Store(t.number)
}

// App returns the app of that name, nil if there is none.
func (e *Edge) App(name string) *App { return e.table.Load().byName[name] }

// Apps returns all apps, in no order.
func (e *Edge) Apps() []*App {
	t := e.table.Load()
	all := make([]*App, 0, len(t.byName))
	for _, a := range t.byName {
		all = append(all, a)
	}
	return all
}

// Ask says whether a certificate may be obtained for that name: yes to exact
// hosts, to a "*.name" host only if its app sets TLSAsk, never to the
// catch-all. It reads memory only and wakes nothing.
func (e *Edge) Ask(domain string) bool {
	var buf [maxHost]byte
	if len(domain) > maxHost {
		return false
	}
	n := copy(buf[:], domain)
	return e.table.Load().asks(buf[:n])
}

// Close ends what the edge runs by itself and refuses whatever is parked, now
// and later. Engines should have been shut down before.
func (e *Edge) Close() {
	e.stop()
	for _, a := range e.Apps() {
		a.lot.close()
		if t := a.slot.Load().target; t != nil {
			t.retire()
		}
	}
	e.work.Wait()
}

func (e *Edge) wake(a *App) {
	if e.opt.Waker != nil {
		e.opt.Waker.Wake(a.name)
	}
}

// spread ends the streams of a generation, one after the other within over.
func (e *Edge) spread(a *App, generation uint64, over time.Duration) {
	if over <= 0 {
		e.endStreams(a, generation, AtOnce)
		return
	}
	e.work.Add(1)
	go e.spreadStreams(a, generation, e.lanes.streams(a, generation), over)
}

func (e *Edge) spreadStreams(a *App, generation uint64, first []*stream, over time.Duration) {
	defer e.work.Done()
	pause := time.NewTicker(max(over/time.Duration(len(first)+1), time.Millisecond))
	defer pause.Stop()
	for _, s := range first {
		s.end(Politely)
		select {
		case <-pause.C:
		case <-e.ctx.Done():
			return
		}
	}
	select {
	case <-pause.C:
	case <-e.ctx.Done():
	}
	e.endStreams(a, generation, Politely)
}

// endStreams ends those that are left, and whatever becomes a stream later.
func (e *Edge) endStreams(a *App, generation uint64, h Haste) {
	a.crowds.closeToStreams(generation) // before one looks who there is, so that nobody is missed
	for _, s := range e.lanes.streams(a, generation) {
		s.end(h)
	}
}

// lanes are all lanes of all fronts.
type lanes struct {
	mu  sync.Mutex // guards set; taken once per lane, not per request
	set map[*Request]struct{}
}

func (l *lanes) add(r *Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.set == nil {
		l.set = map[*Request]struct{}{}
	}
	l.set[r] = struct{}{}
}

func (l *lanes) remove(r *Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.set, r)
}

// all is a copy, so that the lanes can be acted on without the lock.
func (l *lanes) all() []*Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*Request, 0, len(l.set))
	for r := range l.set {
		all = append(all, r)
	}
	return all
}

// streams are those that are open on a generation.
func (l *lanes) streams(a *App, generation uint64) (found []*stream) {
	for _, r := range l.all() {
		if s := r.stream.Load(); s != nil && s.target.app == a && s.target.generation == generation {
			found = append(found, s)
		}
	}
	return found
}
