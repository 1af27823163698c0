package activator

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Whoever waits for a build that fails in hold mode waits on for the good one, which is
// committed again in its place.

func TestWhoIsParkedForABuildThatFailsIsServedByTheFallback(t *testing.T) {
	for _, first := range []string{"v1", "v1 boot=2s last=1s"} {
		inBubble(t, func(r *rig) {
			r.apply(r.app(first, fallsBack))
			r.get("v1")
			stop := r.load(300 * time.Millisecond)
			settle(time.Second)
			r.wantOp(r.deploy("v2 boot=10s exit=2s"), OpRestored)
			settle(5 * time.Second)
			served, failed := stop()
			if len(failed) > 0 || len(served) != 1 || served["v1"] == 0 {
				t.Errorf("served %v, failed %v\n%s", served, failed, r.history())
			}
		})
	}
}

func TestWhoIsParkedForAFallbackThatFailsToo(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1 sick=3", fallsBack))
		r.get("v1")
		waits := r.parkedSince("v2 sick")
		r.wantState("holding")
		settle(20*time.Second + time.Second) // the deploy has failed, and the fallback is on its way
		r.wantState("waking")
		select {
		case err := <-waits:
			t.Fatalf("it is told %v though the fallback may serve it yet", err)
		default:
		}
		settle(20 * time.Second)
		if err := <-waits; !errors.Is(err, errRefused) {
			t.Errorf("it is told %v", err)
		}
		r.wantState("down")
	})
}

// The fallback cannot be committed for now: nobody knows when it can, so nobody waits.
func TestAFallbackThatCannotBeCommittedIsNotWaitedFor(t *testing.T) {
	withFaults(t, func(r *rig, _ *faults) {
		fill := r.fills()
		r.apply(r.app("v1", fallsBack))
		r.get("v1")
		settle(time.Second)
		r.build("v2 sick")
		fill(3) // that it is desired, that it has run, and that it failed
		waits := r.parkedSince("v2 sick")
		r.wantState("holding")
		settle(20*time.Second + time.Second/2)
		r.wantState("down")
		if err := <-waits; !errors.Is(err, errRefused) {
			t.Errorf("it is told %v", err)
		}
		fill(-1)
		settle(2 * time.Second)
		r.get("v1")
		if s := r.wantState("awake"); s.Desired != 3 || s.Reported != 3 || s.Last.Outcome != "restored" {
			t.Errorf("status %+v", s)
		}
	})
}

// The owner has asked for the fallback, and usher crashes before it serves: it is what
// was asked for all the same.
func TestAFallbackThatItsOwnerHasAskedForIsDoneAlsoAfterACrash(t *testing.T) {
	for _, crash := range []bool{false, true} {
		inBubble(t, func(r *rig) {
			r.apply(r.app("v1 sick=3 boot=5s", fallsBack))
			r.get("v1")
			r.wantOp(r.deploy("v2 sick"), OpDown)
			op := r.must(r.act.Restart(context.Background(), Change{App: "hello"}, true))
			settle(2 * time.Second)
			if r.wantState("waking"); crash {
				r.restart()
				settle(time.Minute)
			} else {
				r.wantOp(op, OpDone)
			}
			r.get("v1")
			if s := r.wantState("awake"); s.Desired != 3 || s.Reported != 3 || s.Last.Revision != 3 || s.Last.Outcome != "done" {
				t.Errorf("status %+v", s)
			}
			if rc := r.receipt(); rc.Revision != 3 || rc.Outcome != "done" {
				t.Errorf("receipt %+v", rc)
			}
		})
	}
}

// Nobody has asked for it, and it is told as that after a crash, too.
func TestAFallbackIsCalledRestoredAlsoAfterACrash(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1 boot=5s", fallsBack))
		r.get("v1")
		r.wantOp(r.must(r.act.Restart(context.Background(), Change{App: "hello"}, false)), OpDone)
		r.deploy("v2 sick")
		settle(22 * time.Second)
		r.wantState("waking")
		r.restart()
		settle(time.Minute)
		r.get("v1")
		if s := r.wantState("awake"); s.Desired != 3 || s.Last.Revision != 3 || s.Last.Outcome != "restored" {
			t.Errorf("status %+v", s)
		}
	})
}

// parkedSince deploys a build and has a request parked for it. What the request was told
// comes when it is over.
func (r *rig) parkedSince(script string) <-chan error {
	r.t.Helper()
	r.deploy(script)
	settle(time.Second)
	told := make(chan error, 1)
	go func() {
		_, err := r.request()
		told <- err
	}()
	settle(time.Second)
	return told
}
