package activator

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/usher-edge/usher/activator/cgroup"
	"github.com/usher-edge/usher/activator/lifecycle"
	"github.com/usher-edge/usher/activator/process"
	"github.com/usher-edge/usher/activator/store"
)

// world is the machine: what runs on it goes on when usher does not. It checks
// at every effect what must be durable before it.
type world struct {
	t     *testing.T
	mem   *store.Memory
	state store.Commits // mem, or a database on a disk
	runs  *store.MemoryRuns
	level string

	mu       sync.Mutex // guards the fields below
	procs    map[int]*proc
	next     int
	healthy  map[uint64]bool      // generations that passed a check
	switched map[uint64]store.Run // generations that were switched to, by their last record
	edge     *edgeFake            // of the usher that runs
	adoptErr error
	stopErr  error
	limits   map[string]cgroup.Limits // what the generations of an app share
	limitErr error
	unlimit  error    // why nothing can be limited
	looked   []string // the records that the last reload has looked at
	unfit    []string // app and revision of what has no file to run
}

func newWorld(t *testing.T) *world {
	mem := store.NewMemory()
	return &world{
		t: t, mem: mem, state: mem, runs: store.NewMemoryRuns("boot-1"), level: "cgroup",
		procs: map[int]*proc{}, next: 100, healthy: map[uint64]bool{}, switched: map[uint64]store.Run{},
		limits: map[string]cgroup.Limits{},
	}
}

// proc is one process; its script is the text of its artifact, words like
// "v1 boot=2s exit=3s sick hang stubborn noexec". oom=3s has the kernel kill it then
// for want of memory, worker=3s a process that it has started; sick=3 is the sickness of
// generation 3. After two runs, twice is noexec. SCRIPT in its environment adds words.
type proc struct {
	pid      int
	app      string
	gen      uint64
	revision uint64
	limits   cgroup.Limits
	hold     bool // never beside another
	alone    bool // not beside what was there before it
	script   []string
	address  string

	mu      sync.Mutex // guards the fields below
	started time.Time  // zero: it waits at its go-byte
	exit    Exit
	oom     cgroup.OOM
	done    chan struct{}
	yields  bool // everything else goes before it at the CPU
	yielded bool // it did at its start
}

// isYielding says whether the generation yields at the CPU, and whether it ever did.
func (w *world) isYielding(gen uint64) (now, ever bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.procs {
		if p.gen == gen {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.yields, p.yielded
		}
	}
	return false, false
}

func (p *proc) has(word string) bool { return slices.Contains(p.script, word) }

func (p *proc) duration(key string) time.Duration {
	for _, w := range p.script {
		if v, ok := strings.CutPrefix(w, key+"="); ok {
			d, err := time.ParseDuration(v)
			if err != nil {
				panic(err)
			}
			return d
		}
	}
	return 0
}

func (p *proc) dead() bool { return isClosed(p.done) }

func (p *proc) die(x Exit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !isClosed(p.done) {
		p.exit = x
		p.exit.OOM = p.oom
		close(p.done)
	}
}

func (p *proc) how() Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit
}

func (p *proc) ran() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.started.IsZero()
}

func (p *proc) listens() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.started.IsZero() && !isClosed(p.done) && time.Since(p.started) >= p.duration("boot") && !p.has("deaf")
}

// term is SIGTERM: it takes effect whether or not usher lives on.
func (p *proc) term() {
	if p.has("stubborn") {
		return
	}
	time.AfterFunc(p.duration("last"), func() { p.die(Exit{Signal: "terminated"}) })
}

func (p *proc) run() {
	p.mu.Lock()
	p.started = time.Now()
	p.mu.Unlock()
	if after := p.duration("exit"); after > 0 {
		time.AfterFunc(after, func() { p.die(Exit{Code: 3}) })
	}
	if after := p.duration("worker"); after > 0 {
		time.AfterFunc(after, p.kill)
	}
	if after := p.duration("oom"); after > 0 {
		time.AfterFunc(after, func() {
			p.kill()
			p.die(Exit{Signal: "killed"})
		})
	}
}

// kill counts one process of it as killed for want of memory.
func (p *proc) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.oom = cgroup.OOM{Kills: p.oom.Kills + 1, Limit: p.limits.Memory}
}

func (p *proc) killed() cgroup.OOM {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.oom
}

// alive returns the processes of app that have passed their go-byte.
func (w *world) alive(app string) []*proc {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*proc
	for _, pid := range slices.Sorted(maps.Keys(w.procs)) {
		if p := w.procs[pid]; p.app == app && !p.dead() && p.ran() {
			out = append(out, p)
		}
	}
	return out
}

func (w *world) running() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0 // of the box's own
	for _, p := range w.procs {
		if !p.dead() && p.gen != 0 {
			n++
		}
	}
	return n
}

// usherDied ends what waits at its go-byte: its channel is closed.
func (w *world) usherDied() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.procs {
		if !p.ran() {
			p.die(Exit{Code: 1})
		}
	}
}

// checkCommit holds what must be true of everything that is made durable.
func (w *world) checkCommit(before, after store.App) {
	t := w.t
	if after.Reported > after.Good || after.Good > after.Desired {
		t.Errorf("I1: reported %d, good %d, desired %d", after.Reported, after.Good, after.Desired)
	}
	if after.Desired < before.Desired || after.Reported < before.Reported || after.Restarts < before.Restarts {
		t.Errorf("I1: a pointer or a count shrinks: %+v became %+v", before, after)
	}
	if after.Reported > before.Reported && before.Desired != 0 { // else it was lost and is made again
		if p := w.placement(after.Name); p.State != lifecycle.SlotServing || p.Revision != after.Reported {
			t.Errorf("I4: revision %d is reported and the slot is %s of revision %d", after.Reported, p.State, p.Revision)
		}
	}
	for rev, f := range after.Failures {
		rel, known := after.Release(rev)
		if f.Count > before.Failures[rev].Count && !w.faulty(&after, rev) && known && rel.Kind == store.KindArtifact {
			t.Errorf("I5: revision %d is blamed (%s) and its build does nothing wrong", rev, f.Reason)
		}
	}
	if n := len(after.Outcomes); n > 0 && (len(before.Outcomes) == 0 || before.Outcomes[len(before.Outcomes)-1].At != after.Outcomes[n-1].At) {
		w.checkOutcome(after.Outcomes[n-1])
	}
}

// checkOutcome: what is said to have run nothing has run nothing.
func (w *world) checkOutcome(o store.Outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.procs {
		if p.gen == o.Generation && p.ran() && !o.Executed {
			w.t.Errorf("generation %d is said not to have executed, and it has", o.Generation)
		}
	}
}

// faulty says that a build does something that is its own fault.
func (w *world) faulty(rec *store.App, rev uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if rel, ok := rec.Release(rev); ok && bytes.Contains(rel.Spec, []byte("no-such-program")) || slices.Contains(w.unfit, fmt.Sprint(rec.Name, rev)) {
		return true
	}
	for _, p := range w.procs {
		if p.app == rec.Name && p.revision == rev && (slices.ContainsFunc(p.script, isFault) || p.dead() && p.how().Signal == "killed") {
			return true
		}
	}
	return false
}

func isFault(word string) bool {
	word, _, _ = strings.Cut(word, "=")
	return slices.Contains([]string{"exit", "oom", "sick", "hang", "noexec", "twice", "absent", "deaf"}, word)
}

// placement is what the edge holds of an app.
func (w *world) placement(app string) Placement {
	w.mu.Lock()
	e := w.edge
	w.mu.Unlock()
	return e.placement(app)
}

// target is a process that usher does not own.
func (w *world) target(address, script string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	w.procs[w.next] = &proc{pid: w.next, script: strings.Fields(script), address: address, started: time.Now(), done: make(chan struct{})}
}

func (w *world) record(gen uint64) (store.Run, bool) {
	runs, _ := w.runs.List()
	for _, r := range runs {
		if r.Generation == gen {
			return r, true
		}
	}
	return store.Run{}, false
}

func (w *world) byAddress(address string) *proc {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.procs {
		if p.address == address && p.listens() {
			return p
		}
	}
	return nil
}

func (w *world) setHealthy(gen uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.healthy[gen] = true
}

func (w *world) isHealthy(gen uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.healthy[gen]
}

// dial connects to a process; the other end answers as its script says.
func (w *world) dial(_ context.Context, _, address string) (net.Conn, error) {
	p := w.byAddress(address)
	if p == nil {
		return nil, syscall.ECONNREFUSED
	}
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		req, err := http.ReadRequest(bufio.NewReader(there))
		if err != nil {
			return
		}
		status := http.StatusOK
		switch {
		case p.has("hang"):
			_, _ = io.Copy(io.Discard, there) // until the other end gives up
			return
		case p.has("sick"), p.has(fmt.Sprint("sick=", p.gen)):
			status = http.StatusInternalServerError
		default:
			w.setHealthy(p.gen)
		}
		resp := http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Request: req}
		_ = resp.Write(there)
	}()
	return here, nil
}

// life is one run of usher: after the crash nothing that it does has an effect.
type life struct {
	mu    sync.Mutex // guards the fields below
	limit int        // the crash comes right after this many effects; 0 = never
	trace []string
	begun []int // for each of these: how many there were when it began
	died  chan struct{}
	at    int    // after this many effects
	then  func() // this happens; it must not do anything to this life
}

// after lets f happen right after the n-th effect.
func (l *life) after(n int, f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at, l.then = n, f
}

func newLife(limit int) *life { return &life{limit: limit, died: make(chan struct{})} }

var errDead = errors.New("usher is dead")

func (l *life) gone() bool { return isClosed(l.died) }

// did notes an effect that is done at once.
func (l *life) did(format string, args ...any) { l.didSince(now, format, args...) }

// effects is how many there are.
func (l *life) effects() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.trace)
}

// now is for effects that have no time between their beginning and their note.
const now = math.MaxInt

// didSince notes an effect that began when there were so many: others may have come
// between it and its note.
func (l *life) didSince(effects int, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if isClosed(l.died) {
		return
	}
	l.trace, l.begun = append(l.trace, fmt.Sprintf(format, args...)), append(l.begun, min(effects, len(l.trace)))
	if len(l.trace) == l.limit {
		close(l.died)
	}
	if len(l.trace) == l.at {
		l.then()
	}
}

func (l *life) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !isClosed(l.died) {
		close(l.died)
	}
}

func (l *life) seen() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.trace)
}

// backend is the world as one usher sees it.
type backend struct {
	w *world
	l *life
}

func (b backend) Level() string { return b.w.level }

func (b backend) Prepare(ctx context.Context, p Plan) (Waiting, error) {
	if b.l.gone() {
		return nil, errDead
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	text, err := os.ReadFile(p.Path)
	if err != nil {
		return nil, err
	}
	rec, ok := b.w.record(p.Generation)
	if !ok || rec.Phase != store.PhaseIntent {
		b.w.t.Errorf("generation %d is prepared without a recorded intent (%q)", p.Generation, rec.Phase)
	}
	pr := &proc{
		app: p.App, gen: p.Generation, revision: rec.Revision, hold: slices.Contains(p.Env, "HOLD=1"), alone: rec.Mode == "hold",
		script: strings.Fields(string(text)), done: make(chan struct{}), yields: p.Yields, yielded: p.Yields,
	}
	if app, err := b.w.state.Get(p.App); err == nil {
		if rel, ok := app.Release(rec.Revision); ok {
			pr.hold = pr.hold || rel.DemandHold
		}
	}
	if pr.has("absent") {
		b.w.mu.Lock()
		b.w.unfit = append(b.w.unfit, fmt.Sprint(p.App, rec.Revision))
		b.w.mu.Unlock()
		return nil, fmt.Errorf("prepare: %w", &process.ExecError{Step: "access", Path: "hello", Errno: syscall.ENOENT, Advice: "not found"})
	}
	if pr.has("crowded") {
		return nil, fmt.Errorf("prepare: %w", &process.ExecError{Step: "setuid", Path: "hello", Errno: syscall.EAGAIN, Advice: "cannot become it"})
	}
	if pr.has("stuck") { // until it is called off
		<-ctx.Done()
		return nil, fmt.Errorf("prepare: %w", ctx.Err())
	}
	if pr.has("crammed") {
		return nil, fmt.Errorf("prepare: %w", cgroup.ErrNotFresh)
	}
	if pr.has("noprepare") {
		return nil, errors.New("fork: resource temporarily unavailable")
	}
	for _, e := range p.Env {
		if port, ok := strings.CutPrefix(e, "PORT="); ok {
			pr.address = "127.0.0.1:" + port
		}
		if words, ok := strings.CutPrefix(e, "SCRIPT="); ok {
			pr.script = append(pr.script, strings.Fields(words)...)
		}
	}
	pr.limits = p.Limits
	if err := b.room(p); err != nil {
		return nil, err
	}
	b.w.mu.Lock()
	b.w.next++
	pr.pid = b.w.next
	b.w.procs[pr.pid] = pr
	b.w.mu.Unlock()
	if pr.has("leaves") {
		return nil, fmt.Errorf("set up failed, and pid %d is still there after SIGKILL", pr.pid)
	}
	b.l.did("prepare %d", p.Generation)
	if b.l.gone() {
		b.w.usherDied()
	}
	return waiting{b, pr}, nil
}

func (b backend) Enforces() error { return b.w.unlimit }

func (b backend) Limit(app string, l cgroup.Limits) error {
	if b.l.gone() {
		return errDead
	}
	b.w.mu.Lock()
	err := b.w.limitErr
	if err == nil {
		b.w.limits[app] = l
	}
	b.w.mu.Unlock()
	if err == nil {
		b.l.did("limit %s", l)
	}
	return err
}

func (b backend) Limits(app string) (cgroup.Limits, error) {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	l, ok := b.w.limits[app]
	if !ok {
		return l, fs.ErrNotExist
	}
	return l, nil
}

// emptied: with the last generation of an app its limit goes.
func (w *world) emptied(app string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.procs {
		if p.app == app && !p.dead() {
			return
		}
	}
	delete(w.limits, app)
}

// room holds what must be true before a process is set up: what it may use is
// there beside what the others of the app may use.
func (b backend) room(p Plan) error {
	if p.Alone {
		if err := b.Limit(p.App, p.Limits); err != nil {
			return err
		}
	}
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	sum := p.Limits
	for _, o := range b.w.procs {
		if o.app == p.App && !o.dead() {
			sum = sum.Plus(o.limits)
		}
	}
	if is := b.w.limits[p.App]; is != sum {
		b.w.t.Errorf("generation %d is set up where all may use %s; they need %s", p.Generation, is, sum)
	}
	return nil
}

func (b backend) Adopt(run store.Run) (Child, error) {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	if b.w.adoptErr != nil {
		return nil, b.w.adoptErr
	}
	if p := b.w.procs[run.PID]; p != nil && p.gen == run.Generation {
		return child{b, p}, nil
	}
	for _, p := range b.w.procs { // a cgroup is found by the generation's number
		if p.gen == run.Generation {
			return child{b, p}, nil
		}
	}
	gone := &proc{gen: run.Generation, done: closedChan()}
	return child{b, gone}, nil
}

func (b backend) Strays() (runs []store.Run, err error) {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	for _, p := range b.w.procs {
		if !p.dead() && p.gen != 0 {
			runs = append(runs, store.Run{App: p.app, Generation: p.gen, PID: p.pid, StartTime: uint64(p.pid), Phase: store.PhaseStopping})
		}
	}
	return runs, nil
}

type waiting struct {
	b backend
	p *proc
}

func (w waiting) Identity() Identity {
	id := Identity{PID: w.p.pid, StartTime: uint64(w.p.pid)}
	if w.b.w.level == cgroup.LevelCgroup && !w.p.has("adrift") {
		id.Cgroup = fmt.Sprintf("/%s/%s.%d", w.p.app, w.p.app, w.p.gen)
	}
	if w.p.has("nobody") {
		id.PID = 0
	}
	return id
}

func (w waiting) Go(ctx context.Context) (Child, error) {
	if w.b.l.gone() || ctx.Err() != nil || w.p.dead() {
		w.p.die(Exit{Code: 1})
		return nil, fmt.Errorf("%w: no go-byte", process.ErrNotExecuted)
	}
	if w.p.has("noexec") || w.p.has("twice") && len(w.b.w.runsOf(w.p.app, w.p.revision)) >= 2 {
		w.p.die(Exit{Code: 1})
		return nil, &process.ExecError{Step: "exec", Path: "hello", Errno: syscall.ENOEXEC, Advice: "it is no program"}
	}
	w.b.checkGo(w.p)
	w.p.run()
	w.b.l.did("go %d", w.p.gen)
	return child(w), nil
}

// checkGo holds what must be true at a go-byte.
func (b backend) checkGo(p *proc) {
	t := b.w.t
	rec, ok := b.w.record(p.gen)
	calledOff := rec.Phase == store.PhaseStopping // while the go-byte was on its way
	if !ok || rec.Phase != store.PhaseStarted && !calledOff || rec.PID != p.pid {
		t.Errorf("generation %d runs without its pid on record (%+v)", p.gen, rec)
	}
	app, err := b.w.state.Get(p.app)
	rel, known := app.Release(p.revision)
	if err != nil || !known || !rel.Ran {
		t.Errorf("revision %d runs and no commit says so (%v)", p.revision, err)
	}
	for _, other := range b.w.alive(p.app) {
		if p.alone || p.hold || other.hold {
			t.Errorf("generation %d of a hold app runs beside generation %d", p.gen, other.gen)
		}
	}
	for rev := p.revision + 1; rev <= app.Desired; rev++ {
		for _, newer := range b.w.runsOf(p.app, rev) {
			if newer.alone {
				t.Errorf("revision %d runs on what revision %d may have changed, which has run in hold mode", p.revision, rev)
			}
		}
	}
}

// runsOf are the processes of a revision that have run.
func (w *world) runsOf(app string, revision uint64) (runs []*proc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.procs {
		if p.app == app && p.revision == revision && p.ran() {
			runs = append(runs, p)
		}
	}
	return runs
}

func (w waiting) Abort() error {
	if w.b.l.gone() {
		return nil
	}
	w.p.die(Exit{Code: 1})
	w.b.l.did("abort %d", w.p.gen)
	return nil
}

type child struct {
	b backend
	p *proc
}

func (c child) Exited() bool          { return c.p.dead() }
func (c child) Done() <-chan struct{} { return c.p.done }
func (c child) Release()              {}

func (c child) Claim() error {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.p.yields = false
	return nil
}

func (c child) Exit() Exit { return c.p.how() }

func (c child) OOM() cgroup.OOM { return c.p.killed() }

func (c child) Owns(_, address string) (bool, error) {
	return c.p.address == address && !c.p.has("foreign"), nil
}

func (c child) Stop(ctx context.Context, grace time.Duration) (st Stopped, err error) {
	if c.b.l.gone() {
		return st, errDead
	}
	c.b.w.mu.Lock()
	stopErr := c.b.w.stopErr
	c.b.w.mu.Unlock()
	if stopErr != nil {
		return st, stopErr
	}
	if !c.p.dead() {
		c.p.term()
		c.b.l.did("term %d", c.p.gen)
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-c.p.done:
		case <-ctx.Done():
			return st, ctx.Err()
		case <-c.b.l.died:
			return st, errDead
		case <-t.C:
			st.Killed = !c.p.dead()
			c.p.die(Exit{Signal: "killed"})
		}
	}
	c.b.w.emptied(c.p.app)
	c.b.l.did("empty %d", c.p.gen)
	if c.b.l.gone() {
		return st, errDead
	}
	return st, nil
}

// commits and runs are the stores as one usher sees them.
type commits struct {
	store.Commits
	w *world
	l *life
}

func (c commits) Update(app string, v uint64, fn func(*store.App) error) (store.App, error) {
	begun := c.l.effects()
	if c.l.gone() {
		return store.App{}, store.ErrClosed
	}
	before, _ := c.Get(app)
	a, err := c.Commits.Update(app, v, fn)
	if after, rerr := c.Get(app); rerr == nil && after.Version != before.Version { // whatever was answered
		c.w.checkCommit(before, after)
	}
	if err == nil {
		c.l.didSince(begun, "commit desired=%d reported=%d ran=%d outcomes=%d", a.Desired, a.Reported, ranOf(a), len(a.Outcomes))
	}
	return a, err
}

func (c commits) UpdateAll(apps []string, fn func(*store.App) (bool, error)) ([]store.App, error) {
	begun := c.l.effects()
	if c.l.gone() {
		return nil, store.ErrClosed
	}
	before := map[string]store.App{}
	for _, name := range apps {
		before[name], _ = c.Get(name)
	}
	c.w.mu.Lock()
	c.w.looked = slices.Clone(apps)
	c.w.mu.Unlock()
	all, err := c.Commits.UpdateAll(apps, fn)
	wrote := false
	for _, name := range apps {
		if after, rerr := c.Get(name); rerr == nil && after.Version != before[name].Version {
			c.w.checkCommit(before[name], after)
			wrote = true
		}
	}
	if err == nil && wrote {
		c.l.didSince(begun, "commit the file")
	}
	return all, err
}

func ranOf(a store.App) (n int) {
	for _, r := range a.Releases {
		if r.Ran {
			n++
		}
	}
	return n
}

func (c commits) Delete(app string, v uint64) error {
	begun := c.l.effects()
	if c.l.gone() {
		return store.ErrClosed
	}
	err := c.Commits.Delete(app, v)
	if err == nil {
		c.l.didSince(begun, "delete %s", app)
	}
	return err
}

func (c commits) PutReceipt(app string, rc store.Receipt) error {
	begun := c.l.effects()
	if c.l.gone() {
		return store.ErrClosed
	}
	err := c.Commits.PutReceipt(app, rc)
	if err == nil {
		c.l.didSince(begun, "receipt %d", rc.Attempt)
	}
	return err
}

func (c commits) Generations(n uint64) (uint64, error) {
	begun := c.l.effects()
	if c.l.gone() {
		return 0, store.ErrClosed
	}
	first, err := c.Commits.Generations(n)
	if err == nil {
		c.l.didSince(begun, "reserve numbers")
	}
	return first, err
}

type runs struct {
	*store.MemoryRuns
	w *world
	l *life
}

func (r runs) Put(run store.Run) error {
	if r.l.gone() {
		return errDead
	}
	err := r.MemoryRuns.Put(run)
	r.w.mu.Lock()
	switch _, known := r.w.switched[run.Generation]; {
	case err != nil:
	case run.Phase == store.PhaseSwitching, known && run.Phase == store.PhaseSwitched:
		r.w.switched[run.Generation] = run
	case run.Phase == store.PhaseStopping && r.w.switched[run.Generation].Phase == store.PhaseSwitching:
		delete(r.w.switched, run.Generation) // it was called off at the last moment
	}
	r.w.mu.Unlock()
	if err == nil {
		r.l.did("%s %d", run.Phase, run.Generation)
	}
	return err
}

func (r runs) Delete(gen uint64) error {
	if r.l.gone() {
		return errDead
	}
	err := r.MemoryRuns.Delete(gen)
	r.l.did("forget %d", gen)
	return err
}
