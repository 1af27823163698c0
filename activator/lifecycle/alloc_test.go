//go:build !race

package lifecycle

import (
	"testing"
)

func TestAStepDoesNotAllocate(t *testing.T) {
	_, states, events := swapEvents()
	for i := range states {
		if n := testing.AllocsPerRun(20, func() { Step(states[i], events[i]) }); n > 0 {
			t.Errorf("%s: %v allocations", events[i], n)
		}
	}
	unproven := states[0]
	unproven.Next, unproven.SweepArmed = Gen{ID: 7, Stage: Unproven, Prepared: true}, true
	if n := testing.AllocsPerRun(20, func() { Step(unproven, Event{Kind: TimerFired, Timer: TimerSweep, Fresh: 9}) }); n > 0 {
		t.Errorf("a sweep: %v allocations", n)
	}
}
