package activator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	lc "github.com/usher-edge/usher/activator/lifecycle"
	"github.com/usher-edge/usher/activator/store"
)

// Every story, and after every single effect of it usher does not own its state any
// more: what serves serves on, nobody waits for what will not come, and the next
// start goes on from there.
func TestAFenceAnywhereStopsTheStoryAndNothingElse(t *testing.T) {
	total := 0
	for _, s := range stories() {
		t.Run(s.name, func(t *testing.T) {
			shop := newShop(t)
			n := 1
			for ; !t.Failed() && fenceAfter(t, shop, s, n); n += fenceStep() {
			}
			t.Logf("%d effects", n-1)
			total += n - 1
		})
	}
	t.Logf("%d effects", total)
}

// fenceStep is how dense the fences are.
func fenceStep() int {
	if raced {
		return 7
	}
	return 1
}

// fenceAfter takes the state away after the n-th effect of a story; false if it has
// fewer.
func fenceAfter(t *testing.T, shop *shop, s story, n int) (fenced bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := shop.rig(t)
		defer r.close()
		r.crash()
		r.start(0)
		s.begin(r)
		r.l.after(n, r.w.mem.Fence)
		s.tell(r)
		if fenced = isClosed(r.w.mem.Fenced()); !fenced {
			return
		}
		settle(time.Minute)
		r.checkFenced(n)
		lives := r.history()
		if s.then != nil {
			r.apps = s.then
		}
		if r.revive(0); !t.Failed() {
			r.checkRecovered(s)
		}
		if t.Failed() {
			t.Logf("%s: fenced after effect %d:\n%s then\n%s", s.name, n, lives, r.history())
		}
	})
	return fenced
}

// checkFenced looks at an usher that lost its state after the n-th effect.
func (r *rig) checkFenced(n int) {
	r.t.Helper()
	r.checkLeftAlone(n)
	for _, run := range r.act.apps {
		if run.motion != nil && (len(run.ops) != 0 || run.receipt != nil) {
			r.t.Errorf("%d operations and the receipt %v wait for what will not come", len(run.ops), run.receipt)
		}
	}
	s, err := r.act.Status("hello")
	if err != nil {
		return // it was removed before, or never there
	}
	if !strings.Contains(s.Reason, "start usher again") || !slices.Contains([]string{"awake", "fenced", "empty", "removing"}, s.State) {
		r.t.Errorf("state %q, reason %q", s.State, s.Reason)
	}
	before := r.l.seen()
	build, err := r.request()
	if served := s.State == "awake"; served != (err == nil) || !served && !errors.Is(err, errRefused) {
		r.t.Errorf("%s, and a request is served by %q (%v)", s.State, build, err)
	}
	for name, ask := range map[string]func() error{
		"deploy": func() error {
			_, err := r.act.Deploy(context.Background(), DeployRequest{Change: Change{App: "hello"}, Digest: r.build(storyThird)})
			return err
		},
		"restart": func() error { _, err := r.act.Restart(context.Background(), Change{App: "hello"}, true); return err },
		"wake":    func() error { _, err := r.act.Wake(context.Background(), Change{App: "hello"}); return err },
		"sleep":   func() error { _, err := r.act.Sleep(context.Background(), Change{App: "hello"}); return err },
		"pause":   func() error { _, err := r.act.Pause(context.Background(), Change{App: "hello"}, false); return err },
		"remove":  func() error { _, err := r.act.Remove(context.Background(), Change{App: "hello"}); return err },
		"reload":  func() error { _, err := r.act.Apply(context.Background(), nil); return err },
	} {
		if err := ask(); !errors.Is(err, store.ErrFenced) {
			r.t.Errorf("%s is answered with %v", name, err)
		}
	}
	if err := r.act.Shutdown(context.Background(), true); err != nil {
		r.t.Errorf("shutdown: %v", err)
	}
	settle(time.Minute)
	if after := r.l.seen(); !slices.Equal(before, after) {
		r.t.Errorf("it goes on: %v", after[len(before):])
	}
}

// checkLeftAlone: after its n-th effect usher ends only what it was starting, or had
// told to end, and starts nothing. What came next may have been under way at that
// moment, beside the effect or in the same step: the fence one effect earlier has it
// in second place. A commit that began before is noted when it is done.
func (r *rig) checkLeftAlone(n int) {
	r.t.Helper()
	seen := r.l.seen()
	begun := r.l.begun // nothing is under way
	for i, e := range seen[n:] {
		what, gen, _ := strings.Cut(e, " ")
		told := slices.Contains(seen[:n], "stopping "+gen) || i > 0 && seen[n] == "stopping "+gen
		served := slices.Contains(seen[:n], fmt.Sprintf("place %v %s", lc.SlotServing, gen))
		// A process is prepared, and a go-byte given, beside the mailbox, which may have
		// called it off by then, and said at the edge that it is fenced.
		called := slices.IndexFunc(seen[n:n+i], func(e string) bool { return e != "stopping "+gen && e != "place fenced 0" }) < 0
		given := (what == "go" || what == "prepare") && i > 0 && seen[n] == "stopping "+gen && called
		switch {
		case i == 0, given, begun[n+i] < n:
		case slices.Contains([]string{"go", "prepare", "commit", "receipt", "reserve", "delete", "switching"}, what),
			(what == "term" || what == "abort") && served && !told:
			r.t.Errorf("after a fence: %s", e)
		}
	}
}

// onDisk is a rig on a real state directory.
func onDisk(t *testing.T, f func(r *rig, dir string)) {
	t.Helper()
	shop := newShop(t)
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := shop.rig(t)
		r.crash()
		dir := filepath.Join(root, "state")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		closeState := r.openState(dir)
		defer func() { r.close(); closeState() }()
		r.start(0)
		f(r, dir)
	})
}

// openState locks and opens a state directory for the next start.
func (r *rig) openState(dir string) (closeIt func()) {
	r.t.Helper()
	lock, err := store.Lock(dir)
	if err != nil {
		r.t.Fatal(err)
	}
	b, err := store.Open(dir, store.Options{NoSync: true, Lock: lock})
	if err != nil {
		r.t.Fatal(err)
	}
	r.w.state = b
	return func() {
		if err := errors.Join(b.Close(), lock.Unlock()); err != nil {
			r.t.Errorf("close: %v", err)
		}
	}
}

// swapDir puts a copy of a directory in its place, as who restores a backup does.
func swapDir(t *testing.T, dir string) {
	if err := errors.Join(os.Rename(dir, dir+".old"), os.CopyFS(dir, os.DirFS(dir+".old"))); err != nil {
		t.Error(err)
	}
}

// A directory that is replaced after any effect of a deploy takes nothing more: what
// serves goes on, and the next usher goes on from what is there.
func TestADirectoryThatIsReplacedDuringADeployIsNotWrittenTo(t *testing.T) {
	for _, mode := range []string{"overlap", "hold"} {
		t.Run(mode, func(t *testing.T) {
			n := 1
			for fenced := true; fenced && !t.Failed(); n++ {
				onDisk(t, func(r *rig, dir string) { fenced = r.deployReplaced(dir, mode, n) })
			}
			t.Logf("%d effects", n-2)
			if n < 12 {
				t.Errorf("a deploy has only %d effects", n-2)
			}
		})
	}
}

// deployReplaced replaces the directory after the n-th effect of a deploy; false if
// it has fewer.
func (r *rig) deployReplaced(dir, mode string, n int) (fenced bool) {
	r.t.Helper()
	change := func(*App) {}
	if mode == "hold" {
		change = hold
	}
	app := r.app("v1", change)
	r.apply(app)
	r.get("v1")
	settle(time.Second)
	stop := r.load(50 * time.Millisecond)
	before := len(r.l.seen())
	r.l.after(before+n, func() { swapDir(r.t, dir) })
	op, err := r.act.Deploy(context.Background(), DeployRequest{Change: Change{App: "hello"}, Digest: r.build("v2 boot=1s")})
	settle(10 * time.Second)
	served, failed := stop()
	if fenced = len(r.l.seen()) >= before+n; !fenced {
		return false
	}
	r.checkLeftAlone(before + n)
	theirs := r.contents(dir)
	r.wantEnded(op, err)
	if s := r.status(); mode == "overlap" && s.State != "awake" || !strings.Contains(s.Reason, dir) {
		r.t.Errorf("effect %d: %s, because of %q", n, s.State, s.Reason)
	}
	if served["v1"] == 0 || mode == "overlap" && len(failed) != 0 || slices.ContainsFunc(failed, func(err error) bool { return !errors.Is(err, errRefused) }) {
		r.t.Errorf("effect %d: served %v, failed %v", n, served, failed)
	}
	settle(time.Minute)
	if now := r.contents(dir); !bytes.Equal(now, theirs) {
		r.t.Errorf("effect %d: what is in its place was written to", n)
	}
	r.crash()
	closeState := r.openState(dir)
	promised := r.promised()
	r.start(0)
	r.apply(app)
	r.checkAdopted(promised)
	settle(30 * time.Second)
	if rec, err := r.w.state.Get("hello"); err != nil || len(rec.Failures) != 0 {
		r.t.Errorf("effect %d: held against a build: %v (%v)", n, rec.Failures, err)
	}
	r.wantOp(r.deploy("v3"), OpDone)
	r.get("v3")
	if r.t.Failed() {
		r.t.Logf("effect %d: %s", n, r.history())
	}
	r.act.Close()
	closeState()
	return true
}

// contents are the bytes of the database.
func (r *rig) contents(dir string) []byte {
	data, err := os.ReadFile(filepath.Join(dir, "usher.db"))
	if err != nil {
		r.t.Error(err)
	}
	return data
}

// wantEnded: a deploy that met a fence was refused, abandoned, or was done before.
func (r *rig) wantEnded(op Operation, err error) {
	r.t.Helper()
	if errors.Is(err, store.ErrFenced) {
		return
	}
	if err != nil {
		r.t.Errorf("deploy: %v", err)
		return
	}
	o, err := r.act.Operation(op.ID)
	switch {
	case err != nil || o.Draining:
		r.t.Errorf("operation %+v (%v)", o, err)
	case o.State == OpDone && r.status().Revision == 2:
	case o.State != OpAbandoned || !strings.Contains(o.Reason, "start usher again"):
		r.t.Errorf("the deploy is %s: %s", o.State, o.Reason)
	}
}

// What befalls every app of a large house at once is one event, or nobody could read
// what it was.
func TestWhatBefallsAllAppsIsToldOnce(t *testing.T) {
	for kind, befall := range map[string]func(r *rig){
		"fenced": func(r *rig) { r.w.mem.Fence(); settle(lookEvery) },
		"shutdown": func(r *rig) {
			if err := r.act.Shutdown(context.Background(), true); err != nil {
				r.t.Error(err)
			}
		},
	} {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				apps := []App{r.app("v1")}
				for i := range store.DefaultEvents + 1 {
					app := apps[0]
					app.Name = fmt.Sprintf("asleep-%d", i)
					apps = append(apps, app)
				}
				r.apply(apps...)
				r.get("v1")
				settle(time.Second)
				befall(r)
				settle(time.Minute)
				said := 0
				for _, e := range r.w.state.EventsSince(0, 0) {
					if e.Kind == kind && e.App == "" {
						said++
					}
					if e.App != "" && e.App != "hello" {
						t.Fatalf("it is told of an app that slept: %+v", e)
					}
				}
				if said != 1 {
					t.Errorf("it is told %d times", said)
				}
			})
		})
	}
}

func TestAnUsherWithNothingToDoNoticesThatItsStateIsGone(t *testing.T) {
	onDisk(t, func(r *rig, dir string) {
		asleep := r.app("v1")
		asleep.Name = "other"
		r.apply(r.app("v1"), asleep)
		r.get("v1")
		settle(time.Minute)
		if err := os.Rename(dir, dir+".old"); err != nil {
			t.Fatal(err)
		}
		settle(lookEvery)
		if s, err := r.act.Status("other"); err != nil || s.State != "fenced" || !strings.Contains(s.Reason, dir) {
			t.Errorf("a sleeping app is %q (%s, %v)", s.State, s.Reason, err)
		}
		r.wantState("awake")
		r.get("v1")
		if _, err := r.edge.get(context.Background(), "other", 0); !errors.Is(err, errRefused) {
			t.Errorf("a request to a sleeping app: %v", err)
		}
		said := 0
		for _, e := range r.w.state.EventsSince(0, 0) {
			if e.Kind == "fenced" && e.App == "" && strings.Contains(e.Text, dir) {
				said++
			}
		}
		if said != 1 {
			t.Errorf("it is said %d times", said)
		}
		if err := os.Rename(dir+".old", dir); err != nil {
			t.Fatal(err)
		}
		settle(2 * time.Hour) // time to sleep, and it does not
		r.wantState("awake")
		for _, pr := range r.w.alive("hello") {
			pr.die(Exit{Code: 3})
		}
		settle(time.Minute)
		r.wantState("fenced")
		if n := len(r.w.alive("hello")); n != 0 {
			t.Errorf("%d processes were started", n)
		}
		if _, err := r.request(); !errors.Is(err, errRefused) {
			t.Errorf("a request to an app whose process has ended: %v", err)
		}
	})
}

// What is inside a retiring generation when usher loses its state may finish: nobody
// cuts it when the drain would be over, and nobody ends the process.
func TestWhatDrainsWhenAFenceComesIsLeftToFinish(t *testing.T) {
	inBubble(t, func(r *rig) {
		app := r.app("v1")
		r.apply(app)
		r.get("v1")
		answered := make(chan error, 1)
		go func() {
			_, err := r.edge.get(context.Background(), "hello", 2*app.Policy.DrainTimeout)
			answered <- err
		}()
		synctest.Wait()
		op := r.wantOp(r.deploy("v2"), OpDone)
		r.w.mem.Fence()
		settle(lookEvery)
		if o, err := r.act.Operation(op.ID); err != nil || o.Draining || o.State != OpDone {
			t.Errorf("operation %+v (%v)", o, err)
		}
		settle(3 * app.Policy.DrainTimeout)
		if err := <-answered; err != nil || r.edge.slot("hello").cuts != 0 {
			t.Errorf("the request inside: %v, %d cuts", err, r.edge.slot("hello").cuts)
		}
		if n := len(r.w.alive("hello")); n != 2 {
			t.Errorf("%d processes are alive, want both", n)
		}
		r.get("v2")
		r.restart()
		r.get("v2")
		settle(time.Minute)
		if n := len(r.w.alive("hello")); n != 1 {
			t.Errorf("%d processes are alive after the next start, want one", n)
		}
	})
}

// A change whose record was on the disk when it was noticed that the state is lost is
// neither done nor refused: who asks is told so, and the next start shows it.
func TestAChangeThatWasWrittenAsTheStateWasLostMayHold(t *testing.T) {
	for name, ask := range map[string]func(r *rig) error{
		"deploy": func(r *rig) error {
			_, err := r.act.Deploy(context.Background(), DeployRequest{Change: Change{App: "hello"}, Digest: r.build("v2")})
			return err
		},
		"restart": func(r *rig) error {
			_, err := r.act.Restart(context.Background(), Change{App: "hello"}, false)
			return err
		},
		"pause": func(r *rig) error {
			_, err := r.act.Pause(context.Background(), Change{App: "hello"}, false)
			return err
		},
		"reload": func(r *rig) error {
			r.apps = []App{r.app("v2")}
			_, err := r.act.Apply(context.Background(), r.apps)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			withFaults(t, func(r *rig, _ *faults) {
				r.crash()
				var armed atomic.Bool
				r.w.mem.Fail = func(op string) error {
					if op == "update.done" && armed.Load() {
						r.w.mem.Fence()
					}
					return nil
				}
				r.start(0)
				r.apply(r.app("v1"))
				r.get("v1")
				settle(time.Second)
				armed.Store(true)
				err := ask(r)
				armed.Store(false)
				if !errors.Is(err, store.ErrFenced) || !errors.Is(err, store.ErrMayHold) || !strings.Contains(err.Error(), "whether it holds shows") {
					t.Errorf("answered with %v", err)
				}
				settle(time.Minute)
				rec, err := r.w.state.Get("hello")
				if s := r.wantState("awake"); err != nil || s.Version != rec.Version || s.Desired != rec.Desired || s.Restarts != rec.Restarts {
					t.Errorf("recorded is %+v (%v), and status tells %+v", rec, err, s)
				}
				r.get("v1")
				ops, err := r.act.Operations("hello")
				if err != nil || len(ops) != 0 {
					t.Errorf("operations %+v (%v)", ops, err)
				}
				r.restart()
				settle(time.Minute)
				if s := r.status(); s.Desired != rec.Desired || s.Restarts != rec.Restarts || (s.State == "paused") != rec.Paused {
					t.Errorf("recorded was %+v, and the next start has %+v", rec, s)
				}
			})
		})
	}
}
