package activator

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/usher-edge/usher/activator/artifact"
	"github.com/usher-edge/usher/activator/lifecycle"
)

func TestAThousandRequestsShareOneStart(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1 boot=2s"))
		r.wantState("asleep")
		begin := time.Now()
		var wg sync.WaitGroup
		errs := make(chan error, 1000)
		for range 1000 {
			wg.Go(func() {
				_, err := r.edge.get(context.Background(), "hello", 0)
				errs <- err
			})
		}
		wg.Wait()
		for range 1000 {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took < 2*time.Second || took > 2300*time.Millisecond {
			t.Errorf("the wake took %v, want the boot time of 2s and at most one pause of the check", took)
		}
		if n := len(r.w.procs); n != 1 {
			t.Errorf("%d processes were started", n)
		}
		s := r.wantState("awake")
		if s.Reported != 1 || s.Good != 1 || s.PID == 0 {
			t.Errorf("status %+v", s)
		}
	})
}

func TestEachStepIsDurableInOrderOnTheFirstWake(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		synctest.Wait()
		want := []string{
			"intent 1", "prepare 1", "started 1", "commit desired=1 reported=0 ran=1", "go 1", "switching 1", "place serving 1", "switched 1",
			"commit desired=1 reported=1",
		}
		wantOrder(t, r.l.seen(), want)
	})
}

// wantOrder checks that want is a subsequence of got, by prefix.
func wantOrder(t *testing.T, got, want []string) {
	t.Helper()
	at := 0
	for _, w := range want {
		i := slices.IndexFunc(got[at:], func(s string) bool { return strings.HasPrefix(s, w) })
		if i < 0 {
			t.Fatalf("no %q after what came before it in:\n  %s", w, strings.Join(got, "\n  "))
		}
		at += i + 1
	}
}

func TestTheAppSleepsExactlyAfterItsIdleTime(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1", func(a *App) { a.Policy.IdleTimeout = 10 * time.Minute }))
		r.get("v1")
		settle(9 * time.Minute)
		r.get("v1") // puts the sleep off
		settle(10*time.Minute - time.Second)
		r.wantState("awake")
		settle(time.Second)
		r.wantState("asleep")
		if n := r.w.running(); n != 0 {
			t.Errorf("%d processes run while the app sleeps", n)
		}
		if runs, _ := r.w.runs.List(); len(runs) != 0 {
			t.Errorf("records are left: %+v", runs)
		}
		r.get("v1")
		if got := r.status().Reported; got != 1 {
			t.Errorf("reported %d after a second wake", got)
		}
	})
}

func TestAnOpenRequestKeepsTheAppAwake(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1", func(a *App) { a.Policy.IdleTimeout = time.Minute }))
		go r.edge.get(context.Background(), "hello", 5*time.Minute)
		settle(5*time.Minute - time.Second)
		r.wantState("awake")
		settle(2*time.Minute + time.Second)
		r.wantState("asleep")
	})
}

func TestAChangedIdleTimeAppliesToAnAppThatIsAwake(t *testing.T) {
	inBubble(t, func(r *rig) {
		a := r.app("v1")
		r.apply(a)
		r.get("v1")
		a.Policy.IdleTimeout = time.Minute
		if ch := r.apply(a); len(ch.Changed) != 1 {
			t.Errorf("changes %+v", ch)
		}
		settle(time.Minute + time.Second)
		r.wantState("asleep")
		if n := len(r.w.procs); n != 1 {
			t.Errorf("%d processes were started for a change of policy", n)
		}
	})
}

func TestAFirstBuildThatIsSickIsDownWithItsReasonAndRetryTime(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1 sick"))
		_, err := r.edge.get(context.Background(), "hello", 0)
		if err == nil {
			t.Fatal("a sick build served")
		}
		synctest.Wait()
		s := r.wantState("down")
		if !strings.Contains(s.Reason, "answered 500") || s.NextRetry.IsZero() {
			t.Errorf("reason %q, next try %v", s.Reason, s.NextRetry)
		}
		if left := time.Until(r.edge.placement("hello").RetryAt); left <= 0 || left > 2*time.Second {
			t.Errorf("the next try is in %v after the first failure, want about 1s", left)
		}
		if n := r.w.running(); n != 0 {
			t.Errorf("%d processes are left", n)
		}
	})
}

// One that ran and ended by itself, again and again, is not said to have failed to
// start.
func TestAnAppThatCrashesAgainIsDownAsCrashed(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1 exit=2s"))
		for range 2 {
			r.get("v1")
			settle(3 * time.Second)
		}
		now := time.Now()
		p := r.w.placement("hello")
		if p.State != lifecycle.SlotDown || p.Down != lifecycle.ReasonCrashed || !p.RetryAt.After(now) || !strings.Contains(p.Reason, "ended by itself") {
			t.Errorf("placement %+v", p)
		}
	})
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1 sick"))
		_, _ = r.edge.get(context.Background(), "hello", 0)
		if p := r.w.placement("hello"); p.State != lifecycle.SlotDown || p.Down != lifecycle.ReasonBackoff {
			t.Errorf("placement %+v", p)
		}
	})
}

func TestACrashedAppIsWokenByTheNextRequest(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1 exit=1m"))
		r.get("v1")
		settle(time.Minute)
		s := r.wantState("asleep")
		if s.LastExit == nil || s.LastExit.Code != 3 {
			t.Errorf("last exit %+v, want the code of the crash", s.LastExit)
		}
		r.get("v1")
		r.wantState("awake")
	})
}

func TestQuickCrashesBackOff(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1 exit=2s"))
		r.get("v1")
		settle(2 * time.Second)
		r.wantState("asleep") // the first one is woken at once
		want := []time.Duration{5 * time.Second, 30 * time.Second, 30 * time.Second}
		for i, pause := range want {
			r.get("v1")
			settle(2 * time.Second)
			s := r.wantState("down")
			if left := time.Until(r.edge.placement("hello").RetryAt); left < pause || left > pause+pause/10 {
				t.Errorf("crash %d: the next try is in %v, want %v and up to a tenth more", i+2, left, pause)
			}
			if !strings.Contains(s.Reason, "exit status 3") {
				t.Errorf("crash %d: reason %q does not say how it ended", i+2, s.Reason)
			}
			settle(pause - 10*time.Millisecond)
			r.wantState("down")
			settle(pause/10 + 20*time.Millisecond)
			r.wantState("asleep")
		}
	})
}

func TestAnEagerAppStartsWithUsher(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1", func(a *App) { a.Eager = true }))
		settle(time.Second)
		r.wantState("awake")
	})
}

// What lies in the depot may be damaged while the app sleeps, or while usher does not
// run. A wake finds it, says what to do, and either of that helps.
func TestBytesThatChangedWhileTheAppSleptAreNotWoken(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		for name, help := range map[string]func(r *rig) (Operation, error){
			"deployed again": func(r *rig) (Operation, error) {
				b, err := r.shop.depot.Stage(context.Background(), r.shop.artifact(r.t, "v2"))
				if err != nil {
					return Operation{}, err
				}
				return r.act.Deploy(context.Background(), DeployRequest{Change: Change{App: "hello"}, Digest: b.Digest})
			},
			"rolled back": func(r *rig) (Operation, error) {
				return r.act.Rollback(context.Background(), Change{App: "hello"}, 0, "")
			},
		} {
			t.Run(name, func(t *testing.T) {
				inBubble(t, func(r *rig) {
					r.apply(r.app("v1"))
					r.get("v1")
					r.wantOp(r.deploy("v2"), OpDone)
					settle(2 * time.Hour)
					r.wantState("asleep")
					digest := r.build("v2")
					b, err := r.shop.depot.Lookup(digest)
					if err != nil {
						t.Fatal(err)
					}
					overwrite(t, b.Path)
					if restarted {
						r.restart()
					}
					started := len(r.w.procs)
					if got, err := r.edge.get(context.Background(), "hello", 0); err == nil {
						t.Errorf("served by %q", got)
					}
					s := r.wantState("down")
					for _, want := range []string{lifecycle.ReasonMismatch.String(), artifact.Short(digest), "deploy the build again, or roll back"} {
						if !strings.Contains(s.Last.Reason, want) || !strings.Contains(s.Reason, want) {
							t.Errorf("no %q in reason %q, outcome %q", want, s.Reason, s.Last.Reason)
						}
					}
					if s.Last.Outcome != "abandoned" && s.Last.Outcome != "down" || s.Last.Executed || s.Failures != 0 || len(r.w.procs) != started {
						t.Errorf("%d failures, last %+v, %d processes started", s.Failures, s.Last, len(r.w.procs)-started)
					}
					op, err := help(r)
					if err != nil {
						t.Fatal(err)
					}
					r.wantOp(op, OpDone)
				})
			})
		}
	}
}
