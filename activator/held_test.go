package activator

import (
	"context"
	"strings"
	"testing"
	"time"
)

func fallsBack(a *App) { hold(a); a.Policy.Fallback = true }

// wantNeverAgain: whatever comes, revision 1 is not started any more; checkGo looks at
// that as well.
func (r *rig) wantNeverAgain() {
	r.t.Helper()
	for range 3 {
		_, _ = r.request()
		settle(time.Minute)
	}
	if n := len(r.w.runsOf("hello", 1)); n != 1 {
		r.t.Errorf("revision 1 has run %d times\n%s", n, r.history())
	}
}

// Nothing of it ran and nothing was stopped for it.
func TestAHoldOfAnAppThatSleepsOfWhichNothingRanLeavesItAsleep(t *testing.T) {
	for _, app := range []func(*App){hold, fallsBack} {
		inBubble(t, func(r *rig) {
			r.apply(r.app("v1", app))
			r.get("v1")
			settle(2 * time.Hour)
			r.wantState("asleep")
			op := r.wantOp(r.deploy("v2 absent"), OpFailed)
			if !strings.Contains(op.Reason, "exec failed") {
				t.Errorf("reason %q", op.Reason)
			}
			settle(time.Second)
			s := r.wantState("asleep")
			if s.Last.Executed || s.Failures != 1 || s.Desired != 2 {
				t.Errorf("status %+v", s)
			}
			r.get("v1")
		})
	}
}

// All that can be refused was asked, and that it is no program shows only when the
// incumbent is gone: the data is as the incumbent left it.
func TestAHoldOfWhichNothingRanStartsTheIncumbentsReleaseAgain(t *testing.T) {
	for _, app := range []func(*App){hold, fallsBack} {
		inBubble(t, func(r *rig) {
			r.apply(r.app("v1 last=1s", app))
			r.get("v1")
			stop := r.load(300 * time.Millisecond)
			settle(time.Second)
			r.wantOp(r.deploy("v2 noexec"), OpFailed)
			settle(5 * time.Second)
			s := r.wantState("awake")
			if s.Revision != 1 || s.Generation != 3 || s.Desired != 2 || s.Failures != 1 {
				t.Errorf("status %+v", s)
			}
			served, failed := stop()
			if len(failed) > 0 || len(served) != 1 || served["v1"] == 0 {
				t.Errorf("served %v, failed %v", served, failed)
			}
			rec, _ := r.w.state.Get("hello")
			if o := rec.Outcomes[1]; o.Outcome != "failed" || o.Executed || !rec.Failures[2].HeldDown || rec.DownHeld != 0 {
				t.Errorf("outcome %+v, failures %+v, held down to %d", o, rec.Failures, rec.DownHeld)
			}
			rc := r.receipt()
			if c := adds(t, rc); rc.Outcome != "failed" || rc.Executed || c.Refused != 0 || c.Failed != 0 || c.Parked == 0 {
				t.Errorf("receipt %+v, %+v", rc, c)
			}
			settle(2 * time.Hour)
			r.restart()
			r.get("v1")
		})
	}
}

func TestWhatANewerOneMayHaveChangedIsNotLiftedByAnotherRelease(t *testing.T) {
	for name, c := range map[string]struct {
		next string // a deploy that does not run
		end  OpState
	}{
		"the box refuses it": {"v3 nobody", OpAbandoned},
		"it is no program":   {"v3 noexec", OpDown},
		"it is not there":    {"v3 absent", OpDown},
	} {
		for _, crash := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				inBubble(t, func(r *rig) {
					r.apply(r.app("v1", hold))
					r.get("v1")
					r.wantOp(r.deploy("v2 sick"), OpDown)
					r.wantOp(r.deploy(c.next), c.end)
					if crash {
						r.crash()
						r.start(0)
						r.apply(r.apps...)
						settle(time.Second)
					}
					s := r.wantState("down")
					if !strings.Contains(s.Reason, "revision 1 may not simply be started in its place: usher rollback hello") {
						t.Errorf("reason %q", s.Reason)
					}
					r.wantNeverAgain()
					r.wantOp(r.must(r.act.Rollback(context.Background(), Change{App: "hello"}, 0, "")), OpDone)
					r.get("v1")
				})
			})
		}
	}
}

// It ran and was called off, for whatever reason: what it has left may not be what the
// one before can go on with.
func TestAReleaseThatRanAndWasReplacedLeavesNothingOlderToBeStarted(t *testing.T) {
	for _, crash := range []bool{false, true} {
		inBubble(t, func(r *rig) {
			r.apply(r.app("v1", hold))
			r.get("v1")
			r.deploy("v2 boot=20s")
			settle(10 * time.Second)
			if crash {
				r.crash()
				r.start(0)
				r.apply(r.apps...)
			}
			op := r.deploy("v3 absent")
			r.wantOp(op, OpDown)
			r.wantNeverAgain()
			r.wantState("down")
			r.wantOp(r.deploy("v4"), OpDone)
			r.get("v4")
		})
	}
}

// Usher dies while a release runs, and knows of it from the record alone, because that
// release cannot be started again.
func TestThatAReleaseHasRunIsKnownAfterACrash(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1", hold))
		r.get("v1")
		b, err := r.shop.depot.Lookup(r.build("v2 boot=20s"))
		if err != nil {
			t.Fatal(err)
		}
		r.deploy("v2 boot=20s")
		settle(10 * time.Second)
		r.crash()
		overwrite(t, b.Path)
		r.start(0)
		r.apply(r.apps...)
		settle(time.Second / 2)
		if s := r.wantState("down"); !strings.HasPrefix(s.Reason, "backing off: digest mismatch") || s.NextRetry.IsZero() {
			t.Errorf("status %+v", s)
		}
		r.wantNeverAgain()
		if n := len(r.w.runsOf("hello", 2)); n != 1 {
			t.Errorf("revision 2 has run %d times", n)
		}
		r.wantOp(r.must(r.act.Rollback(context.Background(), Change{App: "hello"}, 0, "")), OpDone)
		r.get("v1")
	})
}

// What the release before has left is no reason to go back to an older one by itself,
// but that is what a fallback is for.
func TestAFallbackFollowsAReleaseThatCannotRunOnWhatAnotherHasLeft(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1", hold))
		r.get("v1")
		r.wantOp(r.deploy("v2 sick"), OpDown)
		falls := r.app("v1", fallsBack)
		r.apply(falls)
		settle(time.Second)
		r.wantOp(r.deploy("v3 absent"), OpRestored)
		r.get("v1")
		if s := r.status(); s.Desired != 4 || s.Reported != 4 {
			t.Errorf("status %+v", s)
		}
	})
}

// A restart that fails in hold mode is not the failure of what is desired: no fallback
// follows it, at once or at the next start of usher.
func TestAFailedRestartOfWhatServesInThePlaceOfAnotherFallsBackToNothing(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1 twice", fallsBack))
		r.get("v1")
		r.wantOp(r.deploy("v2 noexec"), OpFailed)
		settle(5 * time.Second)
		r.get("v1")
		r.wantOp(r.must(r.act.Restart(context.Background(), Change{App: "hello"}, false)), OpDown)
		for range 2 {
			settle(time.Minute)
			if s := r.wantState("down"); s.Desired != 2 {
				t.Errorf("revision %d was committed", s.Desired)
			}
			r.crash()
			r.start(0)
			r.apply(r.apps...)
		}
	})
}

// The owner of an app whose fallback has failed as well asks for it again: that it comes
// up then is what was asked for.
func TestARetryOfAFallbackThatFailedIsDone(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1 sick=3", fallsBack))
		r.get("v1")
		op := r.wantOp(r.deploy("v2 sick"), OpDown)
		if op.Generation != 2 || !strings.Contains(op.Reason, "500") {
			t.Errorf("the deploy does not say what failed of it: %+v", op)
		}
		settle(time.Minute)
		r.wantState("down")
		r.wantOp(r.must(r.act.Restart(context.Background(), Change{App: "hello"}, true)), OpDone)
		r.get("v1")
		if s := r.status(); s.Desired != 3 || s.Reported != 3 {
			t.Errorf("status %+v", s)
		}
	})
}
