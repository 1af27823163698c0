package activator

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/usher-edge/usher/activator/store"
)

// faults makes the n-th write to a store fail, before or after it took effect.
type faults struct {
	full bool // and all that follow
	late bool

	mu    sync.Mutex // guards the fields below
	on    bool
	n, at int
	gone  bool // it has failed
}

var errDisk = errors.New("no space left on device")

func (f *faults) fail(op string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	late := strings.HasSuffix(op, ".done")
	if !f.on || op == "get" || op == "apps" || late != f.late {
		return nil
	}
	if f.n++; f.n == f.at || f.full && f.n > f.at {
		f.gone = true
		return errDisk
	}
	return nil
}

// mend lets every write succeed from here on.
func (f *faults) mend() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.on = false
}

func (f *faults) start(at int, late bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.on, f.n, f.at, f.late, f.gone = true, 0, at, late, false
}

func (f *faults) fired() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gone
}

func withFaults(t *testing.T, f func(r *rig, x *faults)) {
	t.Helper()
	inBubble(t, func(r *rig) {
		r.crash()
		x := &faults{}
		r.w.mem.Fail, r.w.runs.Fail = x.fail, x.fail
		r.start(0)
		f(r, x)
	})
}

func TestAnyWriteOfADeployMayFailAndTheIncumbentServesOn(t *testing.T) {
	for _, mode := range []string{"overlap", "hold"} {
		for _, late := range []bool{false, true} {
			name := mode + map[bool]string{false: "/fails", true: "/takes effect and fails"}[late]
			t.Run(name, func(t *testing.T) {
				n, done := 1, false
				for ; !done && !t.Failed(); n++ {
					withFaults(t, func(r *rig, x *faults) { done = !r.deployWithFault(x, mode, n, late) })
				}
				t.Logf("%d writes", n-2)
			})
		}
	}
}

// deployWithFault deploys v2 while the n-th write fails; false if there are not
// so many.
func (r *rig) deployWithFault(x *faults, mode string, n int, late bool) bool {
	r.t.Helper()
	a := r.app("v1")
	if mode == "hold" {
		hold(&a)
	}
	r.apply(a)
	r.get("v1")
	settle(time.Second)
	digest := r.build("v2 boot=1s")
	stop := r.load(100 * time.Millisecond)
	x.start(n, late)
	ctx := context.Background()
	op, err := r.act.Deploy(ctx, DeployRequest{Change: Change{App: "hello"}, Digest: digest})
	if err == nil {
		op = r.ended(op)
		if op.State != OpDone && op.Reason == "" {
			r.t.Errorf("write %d: %s without a reason", n, op.State)
		}
	} else if !errors.Is(err, errDisk) {
		r.t.Errorf("write %d: deploy: %v", n, err)
	}
	settle(45 * time.Second) // whatever is tried again by itself
	served, failed := stop()
	if ran := mode == "hold" && op.State == OpDown; ran { // and could not be switched to: only v2 may run after it, which is tried again with a pause
		if len(r.w.runsOf("hello", 1)) != 1 {
			r.t.Errorf("write %d: v1 ran on what v2 may have changed\n%s", n, r.history())
		}
	} else if len(failed) > 0 {
		r.t.Errorf("write %d: served %v, failed %v\n%s", n, served, failed[0], r.history())
	}
	rec, _ := r.w.state.Get("hello")
	want := "v1"
	if rec.Desired == 2 {
		want = "v2"
	}
	r.get(want)
	s := r.wantState("awake")
	if len(s.Generations) != 1 || r.w.running() != 1 || s.Reported != rec.Desired {
		r.t.Errorf("write %d: %d processes, status %+v\n%s", n, r.w.running(), s, r.history())
	}
	if len(r.act.apps["hello"].ops) != 0 {
		r.t.Errorf("write %d: an operation is stuck", n)
	}
	return x.fired()
}

func TestADiskThatIsFullForAWhileStopsNothingThatServes(t *testing.T) {
	withFaults(t, func(r *rig, _ *faults) {
		var mu sync.Mutex
		full := false
		fail := func(op string) error {
			mu.Lock()
			defer mu.Unlock()
			if full && op != "get" {
				return errDisk
			}
			return nil
		}
		r.w.mem.Fail, r.w.runs.Fail = fail, fail // nothing has run yet
		r.apply(r.app("v1"))
		r.get("v1")
		mu.Lock()
		full = true
		mu.Unlock()
		if _, err := r.act.Deploy(context.Background(), DeployRequest{Change: Change{App: "hello"}, Digest: r.build("v2")}); !errors.Is(err, errDisk) {
			t.Errorf("deploy: %v", err)
		}
		settle(10 * time.Minute)
		r.get("v1")
		mu.Lock()
		full = false
		mu.Unlock()
		r.wantOp(r.deploy("v3"), OpDone)
		r.get("v3")
	})
}

// fills returns what fills the database: after so many commits more; -1: it has room
// again.
func (r *rig) fills() (after func(commits int)) {
	var mu sync.Mutex
	left := -1
	r.w.mem.Fail = func(op string) error {
		mu.Lock()
		defer mu.Unlock()
		reads := op == "get" || op == "apps" || op == "receipts" || strings.HasSuffix(op, ".done")
		switch {
		case reads || left < 0:
		case left == 0:
			return errDisk
		case op == "update":
			left--
		}
		return nil
	}
	return func(commits int) {
		mu.Lock()
		defer mu.Unlock()
		left = commits
	}
}

// A hold asks for all that may be refused before it stops anything, and what is refused
// again and again is told once.
func TestAHoldWhoseRunCannotBeRecordedStopsNothing(t *testing.T) {
	withFaults(t, func(r *rig, _ *faults) {
		fill := r.fills()
		r.apply(r.app("v1", hold))
		r.get("v1")
		settle(time.Second)
		serves, from := r.wantState("awake").Generations[0].PID, len(r.l.seen())
		stop := r.load(100 * time.Millisecond)
		digest := r.build("v2")
		fill(1) // that the release is committed
		op := r.ended(r.must(r.act.Deploy(context.Background(), DeployRequest{Change: Change{App: "hello"}, Digest: digest})))
		if op.State != OpAbandoned || !strings.Contains(op.Reason, errDisk.Error()) {
			t.Errorf("operation %+v", op)
		}
		settle(15 * time.Minute)
		if served, failed := stop(); len(failed) > 0 || len(served) != 1 || served["v1"] == 0 {
			t.Errorf("served %v, failed %v", served, failed)
		}
		s := r.wantState("awake")
		if len(s.Generations) != 1 || s.Generations[0].PID != serves || s.Failures != 0 {
			t.Errorf("status %+v", s)
		}
		for _, line := range r.l.seen()[from:] {
			if strings.HasPrefix(line, "place ") || strings.HasPrefix(line, "term 1") || strings.HasPrefix(line, "go ") {
				t.Errorf("the incumbent was touched: %s", line)
			}
		}
		if list := r.receipts(); len(list) != 1 || list[0].Tries.N < 20 || list[0].Executed {
			t.Errorf("receipts %+v", list)
		}
		fill(-1)
		settle(time.Minute)
		r.get("v2")
		if list := r.receipts(); len(list) != 2 || list[0].Outcome != "done" || list[1].Tries.N < 20 {
			t.Errorf("receipts %+v", list)
		}
	})
}

func TestAReleaseThatCannotBeReportedIsNotCalledDoneAndIsReportedLater(t *testing.T) {
	withFaults(t, func(r *rig, _ *faults) {
		var mu sync.Mutex
		broken := false
		r.apply(r.app("v1"))
		r.get("v1")
		r.crash()
		r.w.mem.Fail = func(op string) error {
			mu.Lock()
			defer mu.Unlock()
			if broken && op == "update" {
				return errDisk
			}
			return nil
		}
		r.start(0)
		r.apply(r.apps...)
		op := r.deploy("v2 boot=1s")
		settle(500 * time.Millisecond) // its go-byte was recorded
		mu.Lock()
		broken = true
		mu.Unlock()
		op = r.wantOp(op, OpAbandoned)
		if !strings.Contains(op.Reason, "not reported") || !strings.Contains(op.Reason, errDisk.Error()) {
			t.Errorf("reason %q", op.Reason)
		}
		r.get("v2") // it serves all the same
		if s := r.status(); s.Reported != 1 {
			t.Errorf("reported %d", s.Reported)
		}
		mu.Lock()
		broken = false
		mu.Unlock()
		settle(5 * time.Second)
		if s := r.status(); s.Reported != 2 || s.Good != 2 {
			t.Errorf("reported %d, good %d after the disk was mended", s.Reported, s.Good)
		}
	})
}

func TestACommitThatFailedButTookPlaceIsStarted(t *testing.T) {
	withFaults(t, func(r *rig, x *faults) {
		r.apply(r.app("v1"))
		r.get("v1")
		settle(time.Second)
		digest := r.build("v2")
		x.start(1, true)
		if _, err := r.act.Deploy(context.Background(), DeployRequest{Change: Change{App: "hello"}, Digest: digest}); !errors.Is(err, errDisk) {
			t.Fatalf("deploy: %v", err)
		}
		settle(10 * time.Second)
		s := r.status()
		if s.Desired != 2 || s.Revision != 2 {
			t.Errorf("desired %d is on record and revision %d serves", s.Desired, s.Revision)
		}
	})
}

func TestAnAppWhoseFirstApplyFailedIsTakenUpByTheNext(t *testing.T) {
	withFaults(t, func(r *rig, x *faults) {
		a := r.app("v1")
		x.start(1, false)
		if _, err := r.act.Apply(context.Background(), []App{a}); !errors.Is(err, errDisk) {
			t.Fatalf("apply: %v", err)
		}
		r.apply(a)
		r.get("v1")
	})
}

func TestAnEffectForAnUnknownGenerationIsAnswered(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		run := r.act.apps["hello"]
		run.box.call(func() { delete(run.gens, run.state.Cur.ID) })
		r.wantOp(r.deploy("v2"), OpDone)
		r.get("v2")
		settle(time.Minute)
		if s := r.wantState("awake"); len(s.Generations) != 1 {
			t.Errorf("generations %+v", s.Generations)
		}
	})
}

func TestASetUpThatFailsIsNotTheBuildsFault(t *testing.T) {
	for script, reason := range map[string]string{
		"v2 noprepare": "resource temporarily unavailable",
		"v2 crowded":   "cannot become it",
	} {
		inBubble(t, func(r *rig) {
			r.apply(r.app("v1"))
			r.get("v1")
			op := r.wantOp(r.deploy(script), OpAbandoned)
			if !strings.Contains(op.Reason, reason) {
				t.Errorf("%s: reason %q", script, op.Reason)
			}
			if rec := r.notExecuted(); len(rec.Failures) != 0 {
				t.Errorf("%s: failure book %v", script, rec.Failures)
			}
			r.get("v1")
		})
	}
}

// notExecuted is the record; nothing of the last attempt's build has run.
func (r *rig) notExecuted() store.App {
	r.t.Helper()
	rec, err := r.w.state.Get("hello")
	if err != nil || len(rec.Outcomes) == 0 {
		r.t.Fatalf("record %+v (%v)", rec, err)
	}
	if rec.Outcomes[len(rec.Outcomes)-1].Executed {
		r.t.Error("executed, though nothing ran")
	}
	return rec
}

// What a release says to run is not there, or is no program: that will not change by
// itself, whoever finds it out and when.
func TestAReleaseThatNamesNothingToRunFailsAndIsNotTriedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		script  string
		command []string
		mode    func(*App)
		reason  string
	}{
		"not in the build":      {script: "v2 absent", reason: "not found"},
		"no program":            {script: "v2 noexec", reason: "it is no program"},
		"not on the path":       {script: "v2", command: []string{"no-such-program"}, reason: "give its full path, or ./no-such-program for a file of the build"},
		"not in the build/hold": {script: "v2 absent", mode: hold, reason: "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				a := r.app("v1")
				if c.mode != nil {
					c.mode(&a)
				}
				r.apply(a)
				r.get("v1")
				if a.Process.Command = c.command; c.command != nil {
					r.apply(a)
				} else {
					r.wantOp(r.deploy(c.script), OpFailed)
				}
				settle(10 * time.Minute)
				rec := r.notExecuted()
				if rec.Failures[2].Count != 1 || len(rec.Outcomes) != 2 {
					t.Fatalf("failure book %v, outcomes %+v", rec.Failures, rec.Outcomes)
				}
				if o := rec.Outcomes[1]; o.Outcome != "failed" || !strings.Contains(o.Reason, "exec failed: ") || !strings.Contains(o.Reason, c.reason) {
					t.Errorf("outcome %+v", o)
				}
				r.get("v1")
			})
		})
	}
}

func TestAFirstReleaseThatNamesNothingToRunIsNotTriedAgainByItself(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1 absent", func(a *App) { a.Eager = true }))
		settle(10 * time.Minute)
		if rec := r.notExecuted(); rec.Failures[1].Count != 1 || len(rec.Outcomes) != 1 {
			t.Errorf("failure book %v, outcomes %+v", rec.Failures, rec.Outcomes)
		}
	})
}

// An error of the set-up proves that nothing of the build has run, and not that
// nothing is left.
func TestWhatAFailedSetUpHasLeftIsStopped(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		r.w.mu.Lock()
		r.w.stopErr = errors.New("still there")
		r.w.mu.Unlock()
		r.wantOp(r.deploy("v2 leaves"), OpAbandoned)
		settle(10 * time.Second)
		if s := r.status(); len(s.Generations) != 2 || r.w.running() != 2 {
			t.Errorf("%d processes, generations %+v: what is not proven gone is forgotten", r.w.running(), s.Generations)
		}
		r.w.mu.Lock()
		r.w.stopErr = nil
		r.w.mu.Unlock()
		r.wantOp(r.deploy("v3"), OpDone)
		settle(time.Minute)
		if n := r.w.running(); n != 1 {
			t.Errorf("%d processes", n)
		}
	})
}

func TestNumbersAreNeverHandedOutTwice(t *testing.T) {
	mem := store.NewMemory()
	n := &numbers{reserve: mem.Generations}
	var mu sync.Mutex
	seen := map[uint64]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				v, err := n.take()
				mu.Lock()
				if err != nil || seen[v] || v == 0 {
					t.Errorf("number %d (%v), seen before: %v", v, err, seen[v])
				}
				seen[v] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}
