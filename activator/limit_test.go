package activator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/activator/cgroup"
)

const mib = 1 << 20

func limited(memory uint64) func(*App) {
	return func(a *App) { a.Process.Limits = cgroup.Limits{Memory: memory, PIDs: 50} }
}

func (w *world) limit(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limitErr = err
}

// wantLimit says what all generations of the app may use together now.
func (r *rig) wantLimit(memory uint64) {
	r.t.Helper()
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if got := r.w.limits["hello"].Memory; got != memory {
		r.t.Fatalf("the app may use %d MiB, want %d\n%s", got/mib, memory/mib, r.history())
	}
}

var errFull = fmt.Errorf("%w: memory.max: device or resource busy", cgroup.ErrNotLimited)

func TestTheLimitOfAnAppIsThatOfTwoOnlyWhileTwoAreThere(t *testing.T) {
	for _, mode := range []string{"overlap", "hold"} {
		t.Run(mode, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				changes := []func(*App){limited(100 * mib)}
				if mode == "hold" {
					changes = append(changes, hold)
				}
				a := r.app("v1", changes...)
				r.apply(a)
				r.get("v1")
				r.wantLimit(100 * mib)
				op := r.deploy("v2 boot=2s last=3s")
				settle(time.Second)
				r.wantLimit(200 * mib)
				r.wantOp(op, OpDone)
				settle(time.Minute)
				r.wantLimit(100 * mib)
				limited(300 * mib)(&a) // a change of the spec is a release
				r.apply(a)
				settle(500 * time.Millisecond)
				r.wantLimit(400 * mib)
				settle(time.Minute)
				r.wantLimit(300 * mib)
				r.get("v2")
			})
		})
	}
}

func TestALimitThatCannotBeAppliedIsNotTheBuildsFault(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1", limited(100*mib)))
		r.get("v1")
		r.w.limit(errFull)
		op := r.wantOp(r.deploy("v2"), OpAbandoned)
		if !strings.HasPrefix(op.Reason, "limit not applied") || !strings.Contains(op.Reason, "memory.max") {
			t.Errorf("it does not say what was wrong: %q", op.Reason)
		}
		r.get("v1")
		if s := r.status(); s.Failures != 0 || s.Last.Executed {
			t.Errorf("it counts against the build: %+v", s)
		}
		r.w.limit(nil)
		settle(time.Minute) // it is tried again by itself
		r.get("v2")
		r.wantLimit(100 * mib)
	})
}

func TestAWakeWithoutItsLimitDoesNotRun(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.w.limit(errFull)
		r.apply(r.app("v1", limited(100*mib)))
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := r.edge.get(ctx, "hello", 0); err == nil {
			t.Error("it runs without its limit")
		}
		if s := r.status(); s.Last.Outcome != "abandoned" || !strings.HasPrefix(s.Last.Reason, "limit not applied") {
			t.Errorf("got %+v", s.Last)
		}
	})
}

func TestNoSuccessorBeginsOnALimitThatCouldNotBeRestored(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1 last=5s", limited(100*mib)))
		r.get("v1")
		r.wantOp(r.deploy("v2"), OpDone)
		r.w.limit(errFull)
		settle(time.Minute)
		r.wantLimit(200 * mib)
		op := r.deploy("v3")
		settle(time.Minute)
		if n := len(r.w.alive("hello")); n != 1 {
			t.Errorf("%d generations run", n)
		}
		r.get("v2")
		r.w.limit(nil)
		r.wantOp(op, OpDone)
		settle(time.Minute)
		r.get("v3")
		r.wantLimit(100 * mib)
	})
}

func TestTheNextStartRestoresTheLimitThatACrashHasLeftRaised(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1", limited(100*mib)))
		r.get("v1")
		r.deploy("v2 boot=10s")
		settle(2 * time.Second)
		r.wantLimit(200 * mib)
		r.crash()
		r.start(0)
		r.apply(r.apps...)
		settle(time.Second)
		told := false
		events, _ := r.act.Events(0, 10_000)
		for _, e := range events {
			told = told || e.Kind == "recovery" && strings.Contains(e.Text, "limits of two")
		}
		if !told {
			t.Error("no event tells that the limit was restored")
		}
		settle(time.Minute)
		r.get("v2")
		r.wantLimit(100 * mib)
	})
}

func TestWhereNothingCanBeLimitedStatusSaysSoAndTheAppRuns(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.w.unlimit = errors.New("no memory controller")
		r.apply(r.app("v1", limited(100*mib)))
		r.get("v1")
		r.wantOp(r.deploy("v2"), OpDone)
		r.wantLimit(0)
		s := r.status()
		if s.Limits.Memory != 100*mib || s.Unlimited != "no memory controller" {
			t.Errorf("status: %+v, %q", s.Limits, s.Unlimited)
		}
	})
}

// The limit is what the kernel says, so a crash anywhere leaves it to be read and
// put right by the next start.
func TestACrashAfterAnyEffectLeavesNoLimitRaised(t *testing.T) {
	for _, mode := range []string{"overlap", "hold"} {
		for _, second := range []string{"v2", "v2 sick"} {
			t.Run(mode+"/"+second, func(t *testing.T) {
				n := 1
				for ; !limitAfterCrash(t, mode, second, n); n++ { //nolint:revive // all is in the condition
				}
				t.Logf("%d crash points", n-1)
			})
		}
	}
}

// limitAfterCrash crashes usher right after the n-th effect of a deploy and looks
// at what the app may use once the next start has come to rest; done says that the
// run has fewer effects.
func limitAfterCrash(t *testing.T, mode, second string, n int) (done bool) {
	t.Helper()
	inBubble(t, func(r *rig) {
		a := r.app("v1 last=1s", limited(100*mib))
		if mode == "hold" {
			hold(&a)
		}
		digest := r.build(second)
		r.crash()
		r.start(n)
		r.apps = []App{a}
		if done = r.story(digest); !done {
			r.restart()
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
			defer cancel()
			_, _ = r.edge.get(ctx, "hello", 0) // refused if a hold has failed: then nothing runs
			settle(3 * time.Minute)
		}
		switch alive := r.w.alive("hello"); {
		case len(alive) == 1:
			r.wantLimit(100 * mib)
		case r.status().State == "down":
			r.wantLimit(0) // it went with the last generation
		default:
			t.Errorf("crash after effect %d: %d generations run, %s", n, len(alive), r.status().State)
		}
	})
	return done || t.Failed()
}

// What serves after a crash need be neither what is desired nor what is good: the
// release that raised the limit may have been replaced while usher was down.
func TestTheNextStartRestoresALimitThatNoReleaseWithAPointerHas(t *testing.T) {
	n, restored := 1, 0
	for ; !limitOfAnotherAfterCrash(t, n, &restored); n++ { //nolint:revive // all is in the condition
	}
	if restored == 0 {
		t.Error("no crash has left such a limit")
	}
	t.Logf("%d crash points, %d starts that restore", n-1, restored)
}

// limitOfAnotherAfterCrash crashes usher right after the n-th effect of a change
// from no limits to some; by the next start the file names a target that does not
// answer, so that what served serves on.
func limitOfAnotherAfterCrash(t *testing.T, n int, restored *int) (done bool) {
	t.Helper()
	inBubble(t, func(r *rig) {
		a := r.app("v1 last=1s")
		bound := a
		limited(100 * mib)(&bound)
		r.crash()
		r.start(n)
		r.apps = []App{a}
		done = story{acts: func(p *player) {
			p.request(0)
			p.file(bound)
			p.pass(time.Minute)
		}}.tell(r)
		if done {
			return
		}
		toTarget(&a)
		r.apps = []App{a}
		r.restart()
		settle(3 * time.Minute)
		for _, p := range r.w.alive("hello") {
			r.wantLimit(p.limits.Memory)
		}
		events, _ := r.act.Events(0, 10_000)
		for _, e := range events {
			if e.Kind == "recovery" && strings.Contains(e.Text, "limits of two") {
				*restored++
			}
		}
	})
	return done || t.Failed()
}
