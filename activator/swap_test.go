package activator

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/usher-edge/usher/activator/artifact"
	"github.com/usher-edge/usher/activator/lifecycle"
)

// load sends a request every 50 ms until stopped and says which failed.
func (r *rig) load(takes time.Duration) (stop func() (served map[string]int, failed []error)) {
	ctx, cancel := context.WithCancel(context.Background())
	type result struct {
		build string
		err   error
	}
	results := make(chan result)
	all := make(chan struct{})
	served, failed := map[string]int{}, []error(nil)
	go func() {
		defer close(all)
		for res := range results {
			if res.err != nil {
				failed = append(failed, res.err)
			} else {
				served[res.build]++
			}
		}
	}()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		var open []chan struct{}
		for ctx.Err() == nil {
			done := make(chan struct{})
			open = append(open, done)
			go func() {
				defer close(done)
				b, err := r.edge.get(context.Background(), "hello", takes)
				results <- result{b, err}
			}()
			time.Sleep(50 * time.Millisecond)
		}
		for _, done := range open {
			<-done
		}
	}()
	return func() (map[string]int, []error) {
		cancel()
		<-sent
		close(results)
		<-all
		return served, failed
	}
}

func (r *rig) wantSteps(op Operation, want ...string) {
	r.t.Helper()
	var got []string
	for _, s := range op.Steps {
		got = append(got, s.Name)
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("%s went %v, want %v", op.Kind, got, want)
	}
}

func TestAnOverlapSwapLosesNothingAndIsDurableStepByStep(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		stop := r.load(300 * time.Millisecond)
		settle(time.Second)
		from := len(r.l.seen())
		op := r.wantOp(r.deploy("v2 boot=1s"), OpDone)
		if !op.Draining {
			t.Error("done and nothing drains, with requests in flight")
		}
		r.get("v2")
		settle(2 * time.Second)
		served, failed := stop()
		if len(failed) > 0 || served["v1"] == 0 || served["v2"] == 0 {
			t.Errorf("served %v, failed %v", served, failed)
		}
		wantOrder(t, r.l.seen()[from:], []string{
			"commit desired=2 reported=1", "intent 2", "prepare 2", "started 2", "commit desired=2 reported=1 ran=2", "go 2",
			"switching 2", "place serving 2", "switched 2", "retiring 1", "commit desired=2 reported=2", "stopping 1", "term 1", "empty 1", "forget 1",
		})
		op = r.ended(op)
		r.wantSteps(op, StepStaged, StepCommitted, StepStarting, StepHealthy, StepSwitched, StepRetired)
		if op.Draining || op.Revision != 2 || op.Generation != 2 {
			t.Errorf("operation %+v", op)
		}
	})
}

func TestAHoldSwapParksAndNeverRunsTwo(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1 last=1s", hold))
		r.get("v1")
		stop := r.load(300 * time.Millisecond)
		settle(time.Second)
		from := len(r.l.seen())
		op := r.wantOp(r.deploy("v2 boot=1s"), OpDone)
		settle(2 * time.Second)
		served, failed := stop()
		if len(failed) > 0 || served["v1"] == 0 || served["v2"] == 0 {
			t.Errorf("served %v, failed %v", served, failed)
		}
		wantOrder(t, r.l.seen()[from:], []string{
			"intent 2", "prepare 2", "started 2", "commit desired=2 reported=1 ran=2",
			"place holding", "retiring 1", "stopping 1", "term 1", "empty 1", "forget 1", "go 2", "switching 2", "place serving 2", "switched 2", "commit desired=2 reported=2",
		})
		r.wantSteps(op, StepStaged, StepCommitted, StepStarting, StepParked, StepStopped, StepHealthy, StepSwitched, StepReleased)
		if st := r.status(); st.Last.Mode != "hold" || st.Mode != "hold" {
			t.Errorf("status says mode %q, last %q", st.Mode, st.Last.Mode)
		}
	})
}

func TestABuildThatFailsLeavesTheIncumbentServing(t *testing.T) {
	for script, reason := range map[string]string{
		"v2 sick":         "answered 500",
		"v2 hang":         "not answered within 10s",
		"v2 deaf":         "connection refused; nothing listens there: an app takes its port from $PORT",
		"v2 exit=1s deaf": "exit status 3",
		"v2 noexec":       "exec failed: run hello: it is no program",
		"v2 absent":       "exec failed: prepare: run hello: not found",
	} {
		t.Run(script, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.apply(r.app("v1"))
				r.get("v1")
				stop := r.load(0)
				op := r.wantOp(r.deploy(script), OpFailed)
				if !strings.Contains(op.Reason, reason) {
					t.Errorf("reason %q does not say %q", op.Reason, reason)
				}
				settle(time.Second)
				if served, failed := stop(); len(failed) > 0 || len(served) != 1 {
					t.Errorf("served %v, failed %v", served, failed)
				}
				s := r.wantState("awake")
				if s.Desired != 2 || s.Good != 1 || s.Reported != 1 || s.Revision != 1 || s.Failures != 1 {
					t.Errorf("status %+v", s)
				}
				settle(10 * time.Minute)
				if n := len(r.w.procs); n > 2 {
					t.Errorf("the failed build was tried again by itself: %d processes", n)
				}
				if n := r.w.running(); n != 1 {
					t.Errorf("%d processes run", n)
				}
			})
		})
	}
}

func TestAFailedHoldIsDownUntilARetry(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1", hold))
		r.get("v1")
		op := r.wantOp(r.deploy("v2 sick"), OpDown)
		if op.Outcome != "down" || !strings.Contains(op.Reason, "answered 500") {
			t.Errorf("operation %+v", op)
		}
		r.wantState("down")
		if _, err := r.edge.get(context.Background(), "hello", 0); !errors.Is(err, errRefused) {
			t.Errorf("a request got %v, want 503", err)
		}
		if _, err := r.act.Wake(context.Background(), Change{App: "hello"}); !errors.Is(err, ErrConflict) {
			t.Errorf("wake of a held app: %v", err)
		}
		r.wantOp(r.deploy("v3"), OpDone)
		r.get("v3")
	})
}

func TestAReleaseAfterAFailedHoldStartsThoughUsherCrashesRightAfterIt(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1", hold))
		r.get("v1")
		r.wantOp(r.deploy("v2 sick"), OpDown)
		r.deploy("v3 boot=5s")
		r.crash()
		r.restart()
		r.get("v3")
	})
}

func TestTheFallbackOfAFailedHoldIsANewRevisionWithTheGoodBuild(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1", hold, func(a *App) { a.Policy.Fallback = true }))
		r.get("v1")
		op := r.wantOp(r.deploy("v2 sick"), OpRestored)
		if op.Revision != 2 || op.Generation != 2 || !strings.Contains(op.Reason, "500") || op.Outcome != "restored" {
			t.Errorf("the deploy does not say what failed: %+v", op)
		}
		r.get("v1")
		if s := r.status(); s.Desired != 3 || s.Reported != 3 || s.Failures != 0 || s.Last.Outcome != "restored" || s.LastTail != nil {
			t.Errorf("status %+v", s)
		}
	})
}

// A fallback has the spec of what it fell back to. That the file still asks for the
// one that failed is no change of the file.
func TestAFallbackStandsUntilTheFileChanges(t *testing.T) {
	inBubble(t, func(r *rig) {
		a := r.app("v1", hold, func(a *App) { a.Policy.Fallback = true })
		r.apply(a)
		r.get("v1")
		bad := a
		bad.Process.Env = map[string]string{"HOLD": "1", "SCRIPT": "sick"}
		r.apply(bad)
		settle(time.Minute)
		r.get("v1")
		fell := r.wantState("awake")
		if fell.Desired != 3 || fell.Last.Outcome != "restored" {
			t.Fatalf("status %+v", fell)
		}
		if ch := r.apply(bad); len(ch.Unchanged) != 1 {
			t.Errorf("a reload of the same file: %+v", ch)
		}
		settle(time.Minute)
		r.restart()
		settle(time.Minute)
		if s := r.wantState("awake"); s.Desired != 3 || s.Generation != fell.Generation {
			t.Errorf("desired %d, generation %d; it fell back to 3 in generation %d", s.Desired, s.Generation, fell.Generation)
		}
		other := a
		other.Process.Env = map[string]string{"HOLD": "1", "SCRIPT": "boot=1s"}
		for i, next := range []App{a, other} {
			if ch := r.apply(next); len(ch.Changed) != 1 {
				t.Errorf("a reload of a changed file: %+v", ch)
			}
			settle(time.Minute)
			if s := r.wantState("awake"); s.Desired != uint64(4+i) || s.Reported != s.Desired {
				t.Errorf("status %+v", s)
			}
		}
	})
}

func TestANewerDeploySupersedesTheOneUnderWay(t *testing.T) {
	for _, mode := range []string{"overlap", "hold"} {
		t.Run(mode, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				a := r.app("v1")
				if mode == "hold" {
					hold(&a)
				}
				r.apply(a)
				r.get("v1")
				first := r.deploy("v2 boot=10s")
				settle(2 * time.Second)
				second := r.deploy("v3")
				r.wantOp(first, OpSuperseded)
				r.wantOp(second, OpDone)
				r.get("v3")
				settle(time.Minute)
				if s := r.status(); s.Failures != 0 || len(s.Generations) != 1 {
					t.Errorf("status %+v", s)
				}
			})
		})
	}
}

func TestAHoldThatIsSupersededBeforeTheStopGivesTheIncumbentBackUncut(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1", hold))
		r.get("v1")
		go r.edge.get(context.Background(), "hello", 3*time.Second) // keeps the drain going
		synctest.Wait()
		first := r.deploy("v2")
		settle(time.Second)
		r.wantState("holding")
		op, err := r.act.Pause(context.Background(), Change{App: "hello"}, false)
		if err != nil {
			t.Fatal(err)
		}
		r.wantOp(op, OpDone)
		r.wantOp(first, OpAbandoned)
		op, err = r.act.Resume(context.Background(), Change{App: "hello"})
		if err != nil {
			t.Fatal(err)
		}
		r.wantOp(op, OpDone)
		settle(time.Minute)
		r.get("v2")
		r.edge.mu.Lock()
		defer r.edge.mu.Unlock()
		if n := r.edge.slot("hello").cuts; n != 0 {
			t.Errorf("%d cuts of a generation that served again", n)
		}
	})
}

func TestADrainThatWasCalledOffCutsNothing(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1", hold))
		r.get("v1")
		go r.edge.get(context.Background(), "hello", 20*time.Second)
		synctest.Wait()
		r.deploy("v2")
		settle(time.Second)
		if _, err := r.act.Pause(context.Background(), Change{App: "hello"}, false); err != nil {
			t.Fatal(err)
		}
		settle(10 * time.Second) // longer than the drain of a hold
		r.edge.mu.Lock()
		defer r.edge.mu.Unlock()
		if n := r.edge.slot("hello").cuts; n != 0 {
			t.Errorf("%d cuts of an incumbent that was given back", n)
		}
	})
}

func TestADrainCutsAtItsLimitAndClosesStreamsSpreadBefore(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		go r.edge.get(context.Background(), "hello", time.Hour)
		synctest.Wait()
		r.wantOp(r.deploy("v2"), OpDone)
		begin := time.Now()
		settle(25*time.Second - 200*time.Millisecond)
		slot := func() (streams []time.Duration, cuts int) {
			r.edge.mu.Lock()
			defer r.edge.mu.Unlock()
			s := r.edge.slot("hello")
			return slices.Clone(s.streams), s.cuts
		}
		if s, c := slot(); len(s) != 0 || c != 0 {
			t.Errorf("after %v: streams %v, cuts %d", time.Since(begin), s, c)
		}
		settle(2 * time.Second)
		if s, c := slot(); len(s) != 1 || s[0].Round(100*time.Millisecond) != 5*time.Second || c != 0 {
			t.Errorf("after %v: streams %v, cuts %d", time.Since(begin), s, c)
		}
		settle(4 * time.Second)
		if _, c := slot(); c != 1 {
			t.Errorf("after %v: %d cuts", time.Since(begin), c)
		}
	})
}

func TestANewerDeployCutsTheDrainToFiveSeconds(t *testing.T) {
	for name, after := range map[string]time.Duration{"early": time.Second, "late": 28 * time.Second} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.apply(r.app("v1"))
				r.get("v1")
				go r.edge.get(context.Background(), "hello", time.Hour)
				synctest.Wait()
				r.wantOp(r.deploy("v2"), OpDone)
				begin := time.Now()
				settle(after)
				second := r.deploy("v3")
				r.wantOp(second, OpDone)
				if took, most := time.Since(begin), min(after+5*time.Second, 30*time.Second)+500*time.Millisecond; took > most {
					t.Errorf("the newer release waited until %v, at most %v", took, most)
				}
			})
		})
	}
}

func TestARestartMakesAFreshProcessOfTheSameRelease(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		was := r.status()
		op, err := r.act.Restart(context.Background(), Change{App: "hello"}, false)
		if err != nil {
			t.Fatal(err)
		}
		r.wantOp(op, OpDone)
		settle(time.Minute)
		is := r.wantState("awake")
		if is.PID == was.PID || is.Revision != was.Revision || is.Restarts != 1 {
			t.Errorf("before %+v\nafter %+v", was, is)
		}
		if rec, _ := r.w.state.Get("hello"); rec.RestartsDone != 1 {
			t.Errorf("restarts done %d of %d", rec.RestartsDone, rec.Restarts)
		}
	})
}

func TestARestartDuringADeployEndsWithBothDone(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		deploy := r.deploy("v2 boot=5s")
		settle(time.Second)
		restart, err := r.act.Restart(context.Background(), Change{App: "hello"}, false)
		if err != nil {
			t.Fatal(err)
		}
		r.wantOp(deploy, OpDone)
		r.wantOp(restart, OpDone)
		r.get("v2")
	})
}

func TestARestartWhileTheAppWakesEndsWithTheWake(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1 boot=5s"))
		go r.edge.get(context.Background(), "hello", 0)
		settle(time.Second)
		r.wantState("waking")
		op, err := r.act.Restart(context.Background(), Change{App: "hello"}, false)
		if err != nil {
			t.Fatal(err)
		}
		r.wantOp(op, OpDone)
		r.wantState("awake")
	})
}

func TestARestartOfASleepingAppIsDoneAtOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		op, err := r.act.Restart(context.Background(), Change{App: "hello"}, false)
		if err != nil {
			t.Fatal(err)
		}
		if op.State != OpDone {
			t.Errorf("restart is %s", op.State)
		}
		r.get("v1")
		settle(time.Millisecond) // it was answered at the switch; the outcome is recorded right after
		if rec, _ := r.w.state.Get("hello"); rec.RestartsDone != 1 {
			t.Errorf("restarts done %d of %d", rec.RestartsDone, rec.Restarts)
		}
	})
}

func TestARestartWhoseAppCrashesBeforeItBeginsStillEnds(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		go r.edge.get(context.Background(), "hello", time.Hour)
		synctest.Wait()
		r.wantOp(r.deploy("v2 exit=15s"), OpDone) // v1 drains on
		settle(12 * time.Second)
		op, err := r.act.Restart(context.Background(), Change{App: "hello"}, false) // waits for the drain
		if err != nil {
			t.Fatal(err)
		}
		settle(4 * time.Second)
		r.wantOp(op, OpDone)
	})
}

func TestRemoveDrainsStopsAndForgets(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		served := make(chan error, 1)
		go func() {
			_, err := r.edge.get(context.Background(), "hello", 3*time.Second)
			served <- err
		}()
		synctest.Wait()
		if ch := r.apply(); !slices.Equal(ch.Removed, []string{"hello"}) {
			t.Errorf("changes %+v", ch)
		}
		if err := <-served; err != nil {
			t.Errorf("a request in flight at the removal: %v", err)
		}
		settle(time.Minute)
		if names := r.act.Names(); len(names) != 0 {
			t.Errorf("apps %v", names)
		}
		if apps, _ := r.w.mem.Apps(); len(apps) != 0 {
			t.Errorf("records %v", apps)
		}
		if n := r.w.running(); n != 0 {
			t.Errorf("%d processes", n)
		}
		if _, err := os.Stat(r.act.logDir("hello")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("its logs are left: %v", err)
		}
	})
}

func TestAnAppThatComesBackWhileItIsRemovedIsANewApp(t *testing.T) {
	inBubble(t, func(r *rig) {
		a := r.app("v1 last=1s")
		r.apply(a)
		r.get("v1")
		go r.edge.get(context.Background(), "hello", 20*time.Second)
		synctest.Wait()
		r.apply()
		if _, err := r.act.Deploy(context.Background(), DeployRequest{Change: Change{App: "hello"}, Digest: r.build("v9")}); !errors.Is(err, ErrConflict) {
			t.Errorf("deploy to an app that is being removed: %v", err)
		}
		begin := time.Now()
		if ch := r.apply(a); !slices.Equal(ch.Added, []string{"hello"}) {
			t.Errorf("changes %+v", ch)
		}
		if took := time.Since(begin); took > 8*time.Second {
			t.Errorf("the reload took %v", took)
		}
		r.get("v1")
		settle(time.Minute)
		r.get("v1")
		if s := r.status(); s.Desired != 1 || len(s.Generations) != 1 {
			t.Errorf("status %+v", s)
		}
	})
}

func TestHoldWithOnlyASessionAsProofIsRefusedUnlessAllowed(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		t.Run(map[bool]string{true: "allowed", false: "strict"}[allowed], func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.w.level = "session"
				r.apply(r.app("v1", hold, func(a *App) { a.Policy.BestEffort = allowed }))
				_, err := r.edge.get(context.Background(), "hello", 0)
				if allowed {
					if err != nil {
						t.Errorf("best effort: %v", err)
					}
					return
				}
				s := r.wantState("down")
				if err == nil || len(r.w.procs) != 0 || !strings.Contains(s.Reason, `single_writer = "best-effort"`) {
					t.Errorf("served with %v, %d processes, reason %q", err, len(r.w.procs), s.Reason)
				}
			})
		})
	}
}

// What cannot be held is refused, and not committed to be tried again for ever.
func TestADeployInHoldModeNeedsTheProofToo(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.w.level = "session"
		r.apply(r.app("v1"))
		r.get("v1")
		ctx, held := context.Background(), DeployRequest{Change: Change{App: "hello"}, Digest: r.build("v2"), Mode: "hold"}
		if _, err := r.act.Deploy(ctx, held); !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "single_writer") {
			t.Errorf("a hold without a cgroup: %v", err)
		}
		if s := r.status(); s.Desired != 1 {
			t.Errorf("revision %d was committed", s.Desired)
		}
		r.get("v1")
		r.w.level = "cgroup"
		op, err := r.act.Deploy(ctx, held)
		if err != nil {
			t.Fatal(err)
		}
		r.wantOp(op, OpDone)
		r.get("v2")
	})
}

func TestAnUnprovenStopKeepsAHoldDownUntilTheSweepHasTheProof(t *testing.T) {
	inBubble(t, func(r *rig) {
		var log bytes.Buffer
		r.act.log = slog.New(slog.NewTextHandler(&log, nil))
		r.apply(r.app("v1", hold))
		r.get("v1")
		r.w.mu.Lock()
		r.w.stopErr = errors.New("still there: pid 101")
		r.w.mu.Unlock()
		r.wantOp(r.deploy("v2"), OpDown)
		s := r.wantState("down")
		if _, err := r.act.Restart(t.Context(), Change{App: "hello"}, false); err == nil || !strings.Contains(err.Error(), "goes on by itself") {
			t.Errorf("a restart is told %v", err)
		}
		if !strings.Contains(s.Reason, "stop unproven (pid 101)") {
			t.Errorf("reason %q", s.Reason)
		}
		settle(time.Minute)
		r.wantState("down")
		if n := strings.Count(log.String(), "a stop is not proven"); n != 1 {
			t.Errorf("the same is said %d times in a minute:\n%s", n, &log)
		}
		r.w.mu.Lock()
		r.w.stopErr = nil
		r.w.mu.Unlock()
		settle(5 * time.Second)
		r.get("v2")
		if n := r.w.running(); n != 1 {
			t.Errorf("%d processes", n)
		}
	})
}

// That the end of a process cannot be proven says nothing about any build, whosever
// process it is: nothing is written into the failure book, nothing is held, and when
// the proof is there the app goes where it was to go.
func TestAnUnprovenStopIsNeverCountedAgainstABuild(t *testing.T) {
	for name, c := range map[string]struct {
		app func(*App)
		do  func(r *rig) // while no stop can be proven
	}{
		"the incumbent of a hold":      {app: hold, do: func(r *rig) { r.wantOp(r.deploy("v2"), OpDown) }},
		"the old one after an overlap": {app: func(*App) {}, do: func(r *rig) { r.wantOp(r.deploy("v2"), OpDone) }},
		"a successor that was replaced": {app: func(*App) {}, do: func(r *rig) {
			r.deploy("v3 boot=10s")
			settle(2 * time.Second)
			r.deploy("v2")
		}},
		"one that was put to sleep": {app: func(*App) {}, do: func(r *rig) {
			_, err := r.act.Sleep(context.Background(), Change{App: "hello"})
			if err != nil {
				r.t.Fatal(err)
			}
			settle(time.Minute)
			r.deploy("v2")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.apply(r.app("v1", c.app))
				r.get("v1")
				unprovable := func(err error) {
					r.w.mu.Lock()
					defer r.w.mu.Unlock()
					r.w.stopErr = err
				}
				unprovable(errors.New("still there"))
				c.do(r)
				settle(time.Minute)
				unproven := func(g GenerationStatus) bool { return g.Stage == lifecycle.Unproven.String() }
				if s := r.status(); !slices.ContainsFunc(s.Generations, unproven) {
					t.Fatalf("every stop is proven: %+v", s.Generations)
				}
				rec, _ := r.w.mem.Get("hello")
				if s := r.status(); len(rec.Failures) != 0 || rec.DownHeld != 0 || s.Failures != 0 {
					t.Errorf("failures %+v, held down to %d", rec.Failures, rec.DownHeld)
				}
				for _, o := range rec.Outcomes {
					if o.Outcome == "failed" || o.Outcome == "down" && (o.Reason != "stop unproven" || o.Executed) {
						t.Errorf("outcome %+v", o)
					}
				}
				unprovable(nil)
				settle(time.Minute)
				r.get("v2")
			})
		})
	}
}

func TestACanaryMustStayAliveBeforeTheSwitch(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		canary := func(d *DeployRequest) { d.Canary = true }
		r.wantOp(r.deploy("v2 exit=2s", canary), OpFailed)
		if last, rc := r.status().Last, r.receipt(); !last.Canary || !rc.Canary {
			t.Errorf("it was a canary, and the outcome %+v or the receipt %+v does not say so", last, rc)
		}
		r.get("v1")
		begin := time.Now()
		r.wantOp(r.deploy("v3", canary), OpDone)
		if took := time.Since(begin); took < 3*time.Second {
			t.Errorf("a canary was switched to after %v, before it had settled", took)
		}
		r.get("v3")
		settle(time.Minute)
		r.wantOp(r.deploy("v4"), OpDone)
		settle(time.Minute)
		if last, rc := r.status().Last, r.receipt(); last.Canary || rc.Canary {
			t.Errorf("it was none, and it is called one: %+v, %+v", last, rc)
		}
	})
}

func TestBytesThatChangedAfterTheyWereStagedNeverRun(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		digest := r.build("v2")
		b, err := r.shop.depot.Lookup(digest)
		if err != nil {
			t.Fatal(err)
		}
		overwrite(t, b.Path)
		op, err := r.act.Deploy(context.Background(), DeployRequest{Change: Change{App: "hello"}, Digest: digest})
		if err != nil {
			t.Fatal(err)
		}
		op = r.wantOp(op, OpAbandoned)
		if !strings.Contains(op.Reason, lifecycle.ReasonMismatch.String()) || !strings.Contains(op.Reason, artifact.Short(digest)) {
			t.Errorf("reason %q", op.Reason)
		}
		r.get("v1")
		if s := r.status(); s.Failures != 0 || len(r.w.procs) != 1 {
			t.Errorf("failures %d, processes %d", s.Failures, len(r.w.procs))
		}
	})
}

func TestWhatIsSetUpAndIsNotWhatWasAskedForNeverRuns(t *testing.T) {
	for _, how := range []string{"nobody", "adrift"} {
		inBubble(t, func(r *rig) {
			r.apply(r.app("v1"))
			r.get("v1")
			op := r.wantOp(r.deploy("v2 "+how), OpAbandoned)
			if !strings.Contains(op.Reason, lifecycle.ReasonNotStarted.String()+": ") {
				t.Errorf("%s: reason %q", how, op.Reason)
			}
			settle(time.Second)
			if s := r.status(); s.Failures != 0 || s.Last.Executed || len(r.w.alive("hello")) != 1 {
				t.Errorf("%s: failures %d, last %+v, %d alive", how, s.Failures, s.Last, len(r.w.alive("hello")))
			}
			r.get("v1")
		})
	}
}

func TestATargetSwapsAtOnceAndOwnsNoProcess(t *testing.T) {
	inBubble(t, func(r *rig) {
		a := r.app("")
		a.Target, a.FileValue = "127.0.0.1:3000", "127.0.0.1:3000"
		r.apply(a)
		s := r.wantState("awake") // on its owner's word
		if s.PID != 0 || s.Address != a.Target || !s.External {
			t.Errorf("status %+v", s)
		}
		req := DeployRequest{Change: Change{App: "hello"}, Target: "127.0.0.1:3001"}
		op, err := r.act.Deploy(context.Background(), req)
		if err != nil {
			t.Fatal(err)
		}
		r.wantOp(op, OpFailed) // nothing listens there
		if s := r.status(); s.Address != a.Target {
			t.Errorf("address %s", s.Address)
		}
		owner := &proc{gen: 9, address: "127.0.0.1:3002", script: []string{"other"}, done: make(chan struct{})}
		owner.run()
		r.w.mu.Lock()
		r.w.procs[9] = owner
		r.w.mu.Unlock()
		req.Target = owner.address
		if op, err = r.act.Deploy(context.Background(), req); err != nil {
			t.Fatal(err)
		}
		r.wantOp(op, OpDone)
		if s := r.status(); s.Address != owner.address {
			t.Errorf("address %s", s.Address)
		}
		r.restart()
		if s := r.wantState("awake"); s.Address != owner.address {
			t.Errorf("address %s after a restart of usher", s.Address)
		}
		if _, err := r.act.Sleep(context.Background(), Change{App: "hello"}); !errors.Is(err, ErrConflict) {
			t.Errorf("sleep of a target: %v", err)
		}
	})
}
