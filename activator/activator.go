package activator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/usher-edge/usher/activator/artifact"
	lc "github.com/usher-edge/usher/activator/lifecycle"
	"github.com/usher-edge/usher/activator/process"
	"github.com/usher-edge/usher/activator/store"
)

// Options are what an Activator is made of. All fields are required but Log, Now
// and Dial.
type Options struct {
	StateDir string // absolute; logs are kept below it
	RunDir   string // absolute; sockets of apps are made below it
	BootID   string
	Timezone string // TZ of every app

	Commits store.Commits
	Runs    store.Runs
	Depot   *artifact.Depot
	Ports   *process.Ports
	Backend Backend
	Front   Front

	Log *slog.Logger     // nil: nothing is logged
	Now func() time.Time // nil: time.Now
	// Dial connects to an app for health checks; nil: the machine's network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Activator runs all apps of the box.
type Activator struct {
	stateDir, runDir, bootID, timezone string

	commits store.Commits
	runs    store.Runs
	depot   *artifact.Depot
	ports   *process.Ports
	backend Backend
	front   Front
	log     *slog.Logger
	now     func() time.Time
	dial    func(ctx context.Context, network, address string) (net.Conn, error)

	enforces func() error // why apps cannot be limited; nil: they can
	numbers  *numbers
	ops      *operations
	left     leftovers

	// applying lets one Apply or Shutdown run at a time; it is held across
	// staging, which is slow, so nothing on a request's way takes it.
	applying sync.Mutex
	// mu guards apps, found and differences. Nothing runs under it.
	mu          sync.RWMutex
	apps        map[string]*runner
	found       map[string][]store.Run // runtime records nobody has taken over yet
	differences map[string][]string    // of an app, between what was recorded and what was found

	observe observer // nil but in tests

	stopping  chan struct{} // closed by Shutdown: nothing new is begun
	stopOnce  sync.Once
	life      context.Context //nolint:containedctx // ends with Close, and with it all that runs beside a mailbox
	closing   <-chan struct{} // life.Done()
	end       context.CancelFunc
	closeOnce sync.Once
	tasks     tasks
}

// New makes an activator over what the state directory holds. Nothing runs
// before Apply.
func New(o Options) (*Activator, error) {
	a := &Activator{
		stateDir: o.StateDir, runDir: o.RunDir, bootID: o.BootID, timezone: o.Timezone,
		commits: o.Commits, runs: o.Runs, depot: o.Depot, ports: o.Ports, backend: o.Backend, front: o.Front,
		log: o.Log, now: o.Now, dial: o.Dial,
		ops: newOperations(), apps: map[string]*runner{}, found: map[string][]store.Run{}, differences: map[string][]string{},
		stopping: make(chan struct{}),
	}
	a.life, a.end = context.WithCancel(context.Background())
	a.closing = a.life.Done()
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	if a.now == nil {
		a.now = time.Now
	}
	if a.dial == nil {
		a.dial = new(net.Dialer).DialContext
	}
	a.enforces = sync.OnceValue(a.backend.Enforces) // asked only if an app has limits
	a.numbers = &numbers{reserve: a.commits.Generations}
	if err := a.readRuns(); err != nil {
		a.end()
		return nil, err
	}
	a.tasks.run(a.housekeep)
	a.tasks.run(a.watchState)
	return a, nil
}

// readRuns learns what an earlier usher left running.
func (a *Activator) readRuns() error {
	runs, notes := a.runs.List()
	for _, n := range notes {
		a.log.Warn("a runtime record was set aside", "note", n)
	}
	var highest uint64
	for _, run := range runs {
		a.found[run.App] = append(a.found[run.App], run)
		highest = max(highest, run.Generation)
		if port := portOf(run); port != 0 {
			a.ports.Claim(port)
		}
	}
	highest = max(highest, a.findStrays(runs))
	for _, rs := range a.found {
		slices.SortFunc(rs, func(x, y store.Run) int { return int(int64(x.Generation) - int64(y.Generation)) })
	}
	if err := a.commits.RaiseGenerations(highest); err != nil {
		return fmt.Errorf("reserve generation numbers: %w", err)
	}
	return nil
}

// findStrays looks for what runs without a record: the run directory was wiped, or
// a record was damaged. Nobody can say any more what such a generation is and
// whether it was healthy, so it is stopped before anything of its app is started.
func (a *Activator) findStrays(recorded []store.Run) (highest uint64) {
	known := map[uint64]bool{}
	for _, run := range recorded {
		known[run.Generation] = true
	}
	strays, err := a.backend.Strays()
	if err != nil {
		a.log.Warn("cannot look for generations that no record names", "error", err)
	}
	for _, run := range strays {
		if known[run.Generation] {
			continue
		}
		a.found[run.App] = append(a.found[run.App], run)
		highest = max(highest, run.Generation)
		text := fmt.Sprintf("generation %d is there and has no record: it is stopped before anything is started", run.Generation)
		a.differences[run.App] = append(a.differences[run.App], text)
		a.commits.AppendEvent(store.Event{At: a.now(), App: run.App, Kind: "recovery", Generation: run.Generation, Text: text})
		a.log.Warn(text, "app", run.App, "pid", run.PID)
	}
	return highest
}

// portOf is the TCP port of a recorded generation, 0 if it has none.
func portOf(run store.Run) int {
	_, port, err := net.SplitHostPort(run.Address)
	if err != nil || run.Network != "tcp" {
		return 0
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return 0
	}
	return n
}

func (a *Activator) runner(name string) (*runner, error) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	r := a.apps[name]
	if r == nil {
		return nil, Refuse(ErrNoApp, "no app named %q in the config file: usher status shows those there are", name)
	}
	return r, nil
}

// Wanted is told by the edge that a request waits for an app. It never blocks.
func (a *Activator) Wanted(app string) {
	if r, err := a.runner(app); err == nil && !isClosed(a.stopping) {
		r.event(lc.Event{Kind: lc.WakeAsked})
	}
}

// Status describes one app. It comes after everything that has happened so far:
// who was answered by a generation sees it here.
func (a *Activator) Status(app string) (Status, error) {
	r, err := a.runner(app)
	if err != nil {
		return Status{}, err
	}
	var s Status
	r.box.call(func() { s, err = r.status() })
	return s, err
}

// Names returns the names of all apps, sorted.
func (a *Activator) Names() []string {
	a.mu.RLock()
	defer a.mu.RUnlock()
	out := make([]string, 0, len(a.apps))
	for n := range a.apps {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// running returns the names of the apps that have generations, in no order.
func (a *Activator) running() (names []string) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for name, r := range a.apps {
		if r.roles.Load() != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Owns says whether pid is the main process of a generation.
func (a *Activator) Owns(pid int) bool {
	for _, name := range a.running() {
		s, err := a.Status(name)
		for _, g := range s.Generations {
			if err == nil && g.PID == pid {
				return true
			}
		}
	}
	return false
}

// Operation returns an operation as it stands.
func (a *Activator) Operation(id string) (Operation, error) {
	o, ok := a.ops.get(id)
	if !ok {
		return o, Refuse(ErrNotFound, "operation %q is not known, or too old", id)
	}
	return o, nil
}

// Operations returns what is remembered of an app's operations, newest first.
func (a *Activator) Operations(app string) ([]Operation, error) {
	if _, err := a.runner(app); err != nil {
		return nil, err
	}
	return a.ops.of(app), nil
}

// Events returns up to limit events after seq, and a channel that is closed when
// there are more.
func (a *Activator) Events(seq uint64, limit int) ([]store.Event, <-chan struct{}) {
	changed := a.commits.EventsChanged()
	return a.commits.EventsSince(seq, limit), changed
}

// OperationData is the Data of events of kind "operation".
type OperationData struct {
	Operation string `json:"operation"`
}

func (a *Activator) operationEvent(o Operation, text string) {
	data, err := json.Marshal(OperationData{Operation: o.ID})
	if err != nil {
		data = nil
	}
	a.commits.AppendEvent(store.Event{
		At: a.now(), App: o.App, Kind: "operation", Revision: o.Revision, Generation: o.Generation, Text: text, Data: data,
	})
}

// Shutdown ends what is under way: attempts and operations are abandoned, and
// nothing new is taken. The apps keep running for the next start, unless stopApps
// says otherwise. It returns when all attempts have ended, or with ctx.
func (a *Activator) Shutdown(ctx context.Context, stopApps bool) error {
	a.stopOnce.Do(func() { close(a.stopping) })
	a.applying.Lock()
	defer a.applying.Unlock()
	halt, text := lc.HaltShutdown, "usher shuts down; apps that run go on"
	if stopApps {
		halt, text = lc.HaltStop, "usher shuts down and stops its apps"
	}
	a.commits.AppendEvent(store.Event{At: a.now(), Kind: "shutdown", Text: text})
	a.mu.RLock()
	all := make([]*runner, 0, len(a.apps))
	for _, r := range a.apps {
		all = append(all, r)
	}
	a.mu.RUnlock()
	gone, left := make(chan *runner, len(all)), map[*runner]bool{}
	for _, r := range all {
		left[r] = true
		r.box.post(func() {
			r.whenGone(func() { gone <- r })
			r.step(lc.Event{Kind: lc.HaltAsked, Halt: halt})
		})
	}
	for len(left) > 0 {
		select {
		case r := <-gone:
			delete(left, r)
		case <-ctx.Done():
			return stillThere(left, context.Cause(ctx))
		}
	}
	return nil
}

func stillThere(left map[*runner]bool, cause error) error {
	var errs []error
	for r := range left {
		errs = append(errs, fmt.Errorf("app %s: %w", r.name, cause))
	}
	return errors.Join(errs...)
}

// Close lets go of everything without touching a process, and waits until nothing
// runs any more. A stop that is under way is left to the next start. Call
// Shutdown first.
func (a *Activator) Close() {
	a.stopOnce.Do(func() { close(a.stopping) })
	a.closeOnce.Do(func() {
		a.end()
		a.mu.RLock()
		for _, r := range a.apps {
			r.box.post(r.letGo)
		}
		a.mu.RUnlock()
	})
	a.tasks.wait()
}

func (a *Activator) jitter(upTo time.Duration) time.Duration {
	return time.Duration(rand.Int64N(int64(upTo) + 1))
}

func (a *Activator) socketDir(gen uint64) string {
	return filepath.Join(a.runDir, "sock", strconv.FormatUint(gen, 10))
}

// housekeep keeps the output of running apps from filling the disk, and removes
// what could not be removed at its time.
func (a *Activator) housekeep() {
	const every = 10 * time.Second
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-a.closing:
			return
		case <-t.C:
		}
		a.sweepRuns()
		if a.Owned() != nil {
			continue // what has the names of the logs now is another's
		}
		for _, name := range a.running() {
			s, err := a.Status(name)
			if err != nil {
				continue
			}
			for _, g := range s.Generations {
				if err := boundLog(a.logPath(name, g.Number)); err != nil && g.PID != 0 {
					a.log.Warn("cannot bound a log", "app", name, "error", err)
				}
			}
		}
	}
}

// checkTarget checks "host:port" or "unix:/path".
func checkTarget(t string) error {
	network, address := splitTarget(t)
	if network == "unix" {
		if !filepath.IsAbs(address) {
			return fmt.Errorf("target %q: the path of a unix socket must be absolute", t)
		}
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	n, perr := strconv.Atoi(port)
	if err != nil || host == "" || perr != nil || n < 1 || n > 65535 {
		return fmt.Errorf("target %q: give host:port or unix:/path", t)
	}
	return nil
}
