package activator

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/usher-edge/usher/activator/artifact"
	"github.com/usher-edge/usher/activator/process"
	"github.com/usher-edge/usher/activator/store"
)

// TestMain lets the test binary be an app, too.
func TestMain(m *testing.M) {
	if os.Getenv(process.GenerationVariable) != "" {
		serveAsApp()
	}
	goleak.VerifyTestMain(m)
}

// rig is an activator over a scripted world. It can crash and start again.
type rig struct {
	t     *testing.T
	w     *world
	shop  *shop
	ports *process.Ports

	l    *life
	edge *edgeFake
	act  *Activator
	apps []App

	trace trace

	badDisk atomic.Bool // writes may fail
	slept   bool        // time enough to sleep and wake has gone by
}

// inBubble runs f with a rig under a fake clock. Nothing may be left at its end.
func inBubble(t *testing.T, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close()
		f(r)
	})
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newShop(t).rig(t)
}

// shop is a state directory with builds. Rigs that start from the same builds
// share one, because staging is slow.
type shop struct {
	dir   string
	depot *artifact.Depot

	mu     sync.Mutex        // guards staged
	staged map[string]string // script → digest
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{dir: t.TempDir(), staged: map[string]string{}}
	t.Cleanup(func() { openDirs(s.dir) })
	var err error
	if s.depot, err = artifact.Open(filepath.Join(s.dir, "builds")); err != nil {
		t.Fatal(err)
	}
	return s
}

// openDirs lets what a depot has made read-only be removed.
func openDirs(dir string) {
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			return os.Chmod(p, 0o755)
		}
		return err
	})
}

func (s *shop) rig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, w: newWorld(t), shop: s}
	var err error
	if r.ports, err = process.NewPorts(process.PortRange{}); err != nil {
		t.Fatal(err)
	}
	r.start(0)
	return r
}

// start begins a run of usher that crashes right after its n-th effect (0:
// never).
func (r *rig) start(n int) {
	r.t.Helper()
	r.l = newLife(n)
	r.w.mem.Restart()
	r.edge = newEdge(r.w, r.l)
	r.w.mu.Lock()
	r.w.edge = r.edge
	r.w.mu.Unlock()
	var err error
	r.act, err = New(Options{
		StateDir: r.shop.dir, RunDir: r.shop.dir, BootID: "boot-1", Timezone: "UTC",
		Commits: commits{r.w.state, r.w, r.l}, Runs: runs{r.w.runs, r.w, r.l}, Depot: r.shop.depot, Ports: r.ports,
		Backend: backend{r.w, r.l}, Front: r.edge, Dial: r.w.dial,
	})
	switch {
	case err == nil:
		r.edge.wanted = r.act.Wanted
		r.act.observe = &r.trace
		r.trace.begin()
	case r.l.gone(): // it did not live to say so
		r.act = nil
	default:
		r.t.Fatalf("new: %v", err)
	}
}

// crash drops usher as kill -9 does, and restart begins the next run.
func (r *rig) crash() {
	r.l.kill()
	if r.act != nil {
		r.act.Close()
	}
	r.w.usherDied()
	r.trace.replay(r.t)
}

func (r *rig) restart() {
	r.t.Helper()
	r.crash()
	r.start(0)
	r.apply(r.apps...)
}

func (r *rig) close() {
	if r.act != nil {
		r.act.Close()
	}
	r.trace.replay(r.t)
	if r.w.state == store.Commits(r.w.mem) { // what else there is may be a copy of an earlier one
		r.trace.compare(r.t, r.w.state.EventsSince(0, 0))
	}
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	for _, p := range r.w.procs {
		p.die(Exit{})
	}
}

// build stages an artifact and returns its digest.
func (r *rig) build(script string) string {
	r.t.Helper()
	return r.shop.build(r.t, script)
}

func (s *shop) build(t *testing.T, script string) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.staged[script]; d != "" {
		return d
	}
	b, err := s.depot.Stage(context.Background(), s.artifact(t, script))
	if err != nil {
		t.Fatal(err)
	}
	s.staged[script] = b.Digest
	return b.Digest
}

// artifact is the path of a file with that script.
func (s *shop) artifact(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(s.dir, fmt.Sprintf("%x", script))
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// app is an app with an artifact of that script and test-sized times.
func (r *rig) app(script string, change ...func(*App)) App {
	a := App{
		Name: "hello", Process: Process{Listen: ListenPort},
		Policy: Policy{
			Health: Health{Path: "/", Timeout: 20 * time.Second}, IdleTimeout: time.Hour, DrainTimeout: 30 * time.Second,
			HoldDrain: 5 * time.Second, CloseSpread: 5 * time.Second, StopTimeout: 10 * time.Second, Settle: 3 * time.Second,
		},
	}
	if script != "" {
		a.Artifact, a.FileValue = r.shop.artifact(r.t, script), "file:"+script
	}
	for _, f := range change {
		f(&a)
	}
	return a
}

func hold(a *App) {
	a.Process.Hold = true
	a.Process.Env = map[string]string{"HOLD": "1"}
}

func (r *rig) apply(apps ...App) Changes {
	r.t.Helper()
	r.apps = apps
	ch, err := r.act.Apply(context.Background(), apps)
	if err != nil {
		r.t.Fatalf("apply: %v", err)
	}
	return ch
}

// get is a request that must be served by the build.
func (r *rig) get(build string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	got, err := r.edge.get(ctx, "hello", 0)
	if err != nil || got != build {
		r.t.Fatalf("served by %q (%v), want %q\n%s", got, err, build, r.history())
	}
}

func (r *rig) status() Status {
	r.t.Helper()
	s, err := r.act.Status("hello")
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *rig) wantState(state string) Status {
	r.t.Helper()
	s := r.status()
	if s.State != state {
		r.t.Fatalf("state is %q (%s), want %q\n%s", s.State, s.Reason, state, r.history())
	}
	return s
}

func (r *rig) deploy(script string, change ...func(*DeployRequest)) Operation {
	r.t.Helper()
	req := DeployRequest{Change: Change{App: "hello"}, Digest: r.build(script)}
	for _, f := range change {
		f(&req)
	}
	op, err := r.act.Deploy(context.Background(), req)
	if err != nil {
		r.t.Fatalf("deploy %s: %v", script, err)
	}
	return op
}

// ended waits until an operation has ended, for at most a fake hour.
func (r *rig) ended(op Operation) Operation {
	r.t.Helper()
	for range 36_000 {
		o, err := r.act.Operation(op.ID)
		if err != nil {
			r.t.Fatal(err)
		}
		if o.State != OpRunning {
			return o
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
	}
	r.t.Fatalf("operation %s never ends\n%s", op.Kind, r.history())
	return op
}

func (r *rig) wantOp(op Operation, st OpState) Operation {
	r.t.Helper()
	o := r.ended(op)
	if o.State != st {
		r.t.Fatalf("%s is %s (%s), want %s\n%s", o.Kind, o.State, o.Reason, st, r.history())
	}
	return o
}

func (r *rig) history() string {
	out := ""
	for _, s := range r.l.seen() {
		out += "  " + s + "\n"
	}
	return out
}

// settle lets d pass, and everything that it sets off happen.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func overwrite(t *testing.T, path string) {
	t.Helper()
	for _, err := range []error{os.Chmod(path, 0o755), os.WriteFile(path, []byte("evil"), 0o755), os.Chmod(path, 0o555)} {
		if err != nil {
			t.Fatal(err)
		}
	}
}
