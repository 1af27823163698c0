package activator

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/usher-edge/usher/activator/lifecycle"
)

func TestAGroupThatIsNotFreshIsToldAsThat(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		op := r.wantOp(r.deploy("v2 crammed"), OpAbandoned)
		if !strings.Contains(op.Reason, lifecycle.ReasonNotFresh.String()) {
			t.Errorf("reason %q", op.Reason)
		}
		if rec := r.notExecuted(); len(rec.Failures) != 0 {
			t.Errorf("failure book %v", rec.Failures)
		}
		r.get("v1")
	})
}

// Somebody else answers the health check at the address of the new one.
func TestAnAnswerOfSomethingElseIsNoGoodCheck(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		op := r.wantOp(r.deploy("v2 foreign"), OpAbandoned)
		if !strings.Contains(op.Reason, "something else listens at 127.0.0.1:") {
			t.Errorf("reason %q", op.Reason)
		}
		if rec, _ := r.w.state.Get("hello"); len(rec.Failures) != 0 || rec.Reported != 1 {
			t.Errorf("reported %d, failure book %v", rec.Reported, rec.Failures)
		}
		r.get("v1")
		r.neverServed(2)
	})
}

// neverServed: the edge was never told to send requests to a generation.
func (r *rig) neverServed(gen uint64) {
	r.t.Helper()
	r.edge.mu.Lock()
	defer r.edge.mu.Unlock()
	if slices.ContainsFunc(r.edge.slot("hello").history, func(p Placement) bool { return p.State == lifecycle.SlotServing && p.Generation == gen }) {
		r.t.Errorf("requests were sent to generation %d", gen)
	}
}

// It was healthy, and ends at the moment at which the switch has been recorded: the
// runner looks a last time, and learns of the exit later than that.
func TestWhatEndsRightBeforeTheSwitchIsNotSwitchedTo(t *testing.T) {
	const last = "switching 2"
	at := 0
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		r.wantOp(r.deploy("v2"), OpDone)
		at = slices.Index(r.l.seen(), last) + 1
	})
	inBubble(t, func(r *rig) {
		if at == 0 {
			t.Fatalf("no effect is %q", last)
		}
		r.apply(r.app("v1"))
		r.get("v1")
		r.l.after(at, func() {
			for _, p := range r.w.alive("hello") {
				if p.gen == 2 {
					p.die(Exit{Signal: "killed"})
				}
			}
		})
		op := r.wantOp(r.deploy("v2"), OpFailed)
		if r.l.seen()[at-1] != last || !strings.Contains(op.Reason, "killed") {
			t.Errorf("effect %d is %q, reason %q", at, r.l.seen()[at-1], op.Reason)
		}
		r.get("v1")
		r.neverServed(2)
	})
}

func TestAHoldEndsStreamsAtOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1", hold))
		r.get("v1")
		go r.edge.get(context.Background(), "hello", 3*time.Second) // keeps the drain going
		synctest.Wait()
		op := r.deploy("v2")
		settle(time.Second)
		r.wantState("holding")
		r.edge.mu.Lock()
		streams := slices.Clone(r.edge.slot("hello").streams)
		r.edge.mu.Unlock()
		if !slices.Equal(streams, []time.Duration{0}) {
			t.Errorf("a second into the hold streams were closed over %v, want once and at once", streams)
		}
		r.wantOp(op, OpDone)
	})
}
