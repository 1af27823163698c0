package activator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The whole of a deploy, cut short after every single effect and durable write.
func TestACrashAfterAnyEffectOfADeployIsRecoveredFrom(t *testing.T) {
	for _, mode := range []string{"overlap", "hold"} {
		for _, second := range []string{"v2", "v2 sick"} {
			t.Run(mode+"/"+second, func(t *testing.T) {
				for n := 1; ; n++ {
					if done := crashAfter(t, mode, second, n); done {
						t.Logf("%d crash points", n-1)
						break
					}
				}
			})
		}
	}
}

// crashAfter crashes usher right after the n-th effect of a run that wakes v1,
// deploys second and goes to sleep; done says that the run has fewer.
func crashAfter(t *testing.T, mode, second string, n int) (done bool) {
	t.Helper()
	inBubble(t, func(r *rig) {
		a := r.app("v1 last=1s", func(a *App) { a.Policy.IdleTimeout = time.Minute })
		if mode == "hold" {
			hold(&a)
		}
		digest := r.build(second)
		r.crash()
		r.start(n)
		r.apps = []App{a}
		if r.story(digest) {
			done = true
			return
		}
		trace := r.history()
		r.restart()
		r.checkRecovered(fmt.Sprintf("crash after effect %d:\n%s", n, trace), second)
	})
	return done || t.Failed()
}

// story is what happens in the run that crashes; true if it did not.
func (r *rig) story(digest string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := r.act.Apply(ctx, r.apps); err != nil {
		return false
	}
	if _, err := r.edge.get(ctx, "hello", 0); err != nil {
		return false
	}
	op, err := r.act.Deploy(ctx, DeployRequest{Change: Change{App: "hello"}, Digest: digest})
	for err == nil && op.State == OpRunning && !r.l.gone() {
		settle(100 * time.Millisecond)
		op, err = r.act.Operation(op.ID)
	}
	for range 20 {
		if r.l.gone() {
			return false
		}
		settle(10 * time.Second)
	}
	return !r.l.gone()
}

func (r *rig) checkRecovered(when, second string) {
	r.t.Helper()
	settle(5 * time.Second)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	rec, _ := r.w.mem.Get("hello")
	sick := strings.Contains(second, "sick")
	build, err := "", error(nil)
	for range 60 {
		if build, err = r.edge.get(ctx, "hello", 0); !errors.Is(err, errRefused) {
			break
		}
		if s := r.status(); s.NextRetry.IsZero() { // held: only the owner lifts it
			if _, err := r.act.Restart(ctx, Change{App: "hello"}, true); err != nil {
				r.t.Fatalf("%s: retry: %v", when, err)
			}
		}
		settle(time.Second)
		if sick && rec.Good == 1 { // a retry of the sick one fails again: nothing serves but v1, in overlap
			break
		}
	}
	want := "v1"
	if rec.Desired == 2 && !sick {
		want = "v2"
	}
	settle(30 * time.Second) // what is owed is done by itself
	if err == nil && build != want {
		build, err = r.edge.get(ctx, "hello", 0)
	}
	held := r.status().State == "down" && sick
	if !held && (err != nil || build != want) {
		r.t.Errorf("%s\nafter the restart %q serves (%v), want %s\n%s", when, build, err, want, r.history())
	}
	if alive := r.w.alive("hello"); len(alive) > 1 || r.w.running() != len(alive) {
		r.t.Errorf("%s\n%d processes run, %d of them started\n%s", when, r.w.running(), len(alive), r.history())
	}
	settle(2 * time.Minute)
	synctest.Wait()
	if s := r.status(); len(s.Generations) != 0 || r.w.running() != 0 {
		r.t.Errorf("%s\nasleep with generations %+v and %d processes\n%s", when, s.Generations, r.w.running(), r.history())
	}
	if left, _ := r.w.runs.List(); len(left) != 0 {
		r.t.Errorf("%s\nrecords left: %+v", when, left)
	}
	r.checkReceipts(when)
}

func TestARestartOfUsherAdoptsWhatServes(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		was := r.status()
		r.restart()
		is := r.wantState("awake")
		if is.PID != was.PID || is.Generation != was.Generation || is.Version < was.Version {
			t.Errorf("before %+v\nafter %+v", was, is)
		}
		r.get("v1")
		settle(2 * time.Hour)
		r.wantState("asleep")
	})
}

func TestAPortOfAnAdoptedGenerationIsGivenBack(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		r.restart()
		g := r.act.apps["hello"].gens[1]
		if g == nil || g.port == 0 {
			t.Errorf("adopted generation %+v", g)
		}
	})
}

func TestWhatCannotBeAdoptedIsNotTakenForGone(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1", hold))
		r.get("v1")
		r.crash()
		r.w.adoptErr = errors.New("open cgroup: permission denied")
		r.start(0)
		r.apply(r.apps...)
		settle(10 * time.Second)
		s := r.wantState("down")
		if !strings.Contains(s.Reason, "unproven") || r.w.running() != 1 {
			t.Errorf("reason %q, %d processes", s.Reason, r.w.running())
		}
		r.w.mu.Lock()
		r.w.adoptErr = nil
		r.w.mu.Unlock()
		settle(20 * time.Second)
		r.get("v1")
		if n := r.w.running(); n != 1 {
			t.Errorf("%d processes", n)
		}
	})
}

func TestARestartThatIsOwedIsDoneOnceAfterACrash(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1 last=5s", hold))
		r.get("v1")
		was := r.status()
		go r.edge.get(context.Background(), "hello", time.Minute) // holds the drain
		synctest.Wait()
		if _, err := r.act.Restart(context.Background(), Change{App: "hello"}, false); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := r.act.Shutdown(ctx, false); err != nil {
			t.Fatal(err)
		}
		if rec, _ := r.w.mem.Get("hello"); rec.Restarts != 1 || rec.RestartsDone != 0 {
			t.Errorf("a restart that was abandoned counts as done: %d of %d", rec.RestartsDone, rec.Restarts)
		}
		r.restart()
		settle(time.Minute)
		is := r.wantState("awake")
		if is.PID == was.PID {
			t.Error("the restart that was owed was not done")
		}
		r.restart()
		settle(time.Minute)
		if again := r.wantState("awake"); again.PID != is.PID {
			t.Error("the restart was done twice")
		}
	})
}

func TestShutdownInAnyStageKeepsTheAppRunning(t *testing.T) {
	for _, mode := range []string{"overlap", "hold"} {
		for _, after := range []time.Duration{0, time.Second, 2500 * time.Millisecond, 4 * time.Second, 8 * time.Second} {
			t.Run(mode+"/"+after.String(), func(t *testing.T) {
				inBubble(t, func(r *rig) {
					a := r.app("v1 last=2s")
					if mode == "hold" {
						hold(&a)
					}
					r.apply(a)
					r.get("v1")
					op := r.deploy("v2 boot=3s")
					settle(after)
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					defer cancel()
					if err := r.act.Shutdown(ctx, false); err != nil {
						t.Fatal(err)
					}
					o := r.ended(op)
					if o.State != OpDone && o.State != OpAbandoned {
						t.Errorf("operation is %s", o.State)
					}
					if _, err := r.act.Deploy(ctx, DeployRequest{Change: Change{App: "hello"}, Digest: r.build("v3")}); !errors.Is(err, ErrClosing) {
						t.Errorf("deploy while usher ends: %v", err)
					}
					if _, err := r.act.Apply(ctx, r.apps); !errors.Is(err, ErrClosing) {
						t.Errorf("apply while usher ends: %v", err)
					}
					begin := time.Now()
					r.act.Close()
					r.act.Close()
					if took := time.Since(begin); took > time.Second {
						t.Errorf("close took %v", took)
					}
					if mode == "overlap" && len(r.w.alive("hello")) == 0 {
						t.Error("no process is left")
					}
					r.restart()
					settle(time.Minute)
					r.get("v2")
					if n := r.w.running(); n != 1 {
						t.Errorf("%d processes", n)
					}
				})
			})
		}
	}
}

func TestCloseWithoutShutdownTouchesNoProcess(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		r.deploy("v2 boot=5s")
		settle(time.Second)
		r.act.Close()
		if n := len(r.w.alive("hello")); n != 2 {
			t.Errorf("%d processes run after close, want both", n)
		}
		settle(time.Minute)
		if n := len(r.w.alive("hello")); n != 2 {
			t.Errorf("%d processes run a minute after close, want both", n)
		}
		if got := r.l.seen(); strings.Contains(strings.Join(got, "\n"), "term") {
			t.Errorf("a process was told to end: %v", got)
		}
		r.restart()
		settle(time.Minute)
		r.get("v2")
		if n := r.w.running(); n != 1 {
			t.Errorf("%d processes", n)
		}
	})
}

func TestShutdownWithItsAppsStopsThem(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1 last=1s"))
		r.get("v1")
		r.deploy("v2 boot=5s")
		settle(time.Second)
		if err := r.act.Shutdown(context.Background(), true); err != nil {
			t.Fatal(err)
		}
		if n := r.w.running(); n != 0 {
			t.Errorf("%d processes", n)
		}
		r.restart()
		r.get("v2")
	})
}

func TestStatusAfterCloseStillAnswers(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		r.act.Close()
		r.wantState("awake")
		r.act.Wanted("hello")
		if _, err := r.act.Sleep(context.Background(), Change{App: "hello"}); !errors.Is(err, ErrClosing) {
			t.Errorf("sleep after close: %v", err)
		}
	})
}
