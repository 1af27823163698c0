package activator

import (
	"context"
	"strings"
	"testing"
	"time"

	lc "github.com/usher-edge/usher/activator/lifecycle"
)

// comeback is what happens to an app that has been started once, and refuses then.
type comeback struct {
	name, script string
	change       func(*App)
	happens      func(r *rig)
	state        lc.SlotState
	waits        bool // for its back-off
}

func comebacks() []comeback {
	asItIs := func(*App) {}
	return []comeback{
		{"crashes again", "v1 boot=2s exit=3s", asItIs, func(r *rig) {
			settle(3 * time.Second)
			r.get("v1")
			settle(3 * time.Second)
		}, lc.SlotDown, true},
		{"held down", "v1 boot=2s", hold, func(r *rig) { r.wantOp(r.deploy("v2 sick"), OpDown) }, lc.SlotDown, false},
		{"usher ends and takes it with it", "v1 boot=2s", asItIs, func(r *rig) {
			if err := r.act.Shutdown(context.Background(), true); err != nil {
				r.t.Error(err)
			}
		}, lc.SlotDown, false},
		{"fenced", "v1 boot=2s exit=3s", asItIs, func(r *rig) {
			r.w.mem.Fence()
			settle(time.Minute)
		}, lc.SlotFenced, false},
		{"maintenance", "v1 boot=2s", asItIs, func(r *rig) {
			if _, err := r.act.Pause(context.Background(), Change{App: "hello"}, true); err != nil {
				r.t.Error(err)
			}
		}, lc.SlotMaintenance, false},
	}
}

// Whatever an app is refused for, the edge knows what a start takes, as learned, and
// when its back-off ends if it waits for that: what clients are told follows from
// these and the cause.
func TestWhoRefusesKnowsWhatAStartTakes(t *testing.T) {
	for _, c := range comebacks() {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.apply(r.app(c.script, c.change))
				r.get("v1")
				boot := r.status().Boot
				c.happens(r)
				settle(0)
				p := r.w.placement("hello")
				if p.State != c.state || p.Boot < 2*time.Second || p.Boot > 3*time.Second || !c.waits && p.Boot != boot {
					t.Errorf("placed as %s with a start of %v, want %s with %v", p.State, p.Boot, c.state, boot)
				}
				if left := time.Until(p.RetryAt); p.RetryAt.IsZero() == c.waits || c.waits && (left <= 0 || left > 6*time.Second) {
					t.Errorf("the next try is in %v (%v)", left, p.RetryAt)
				}
			})
		})
	}
}
