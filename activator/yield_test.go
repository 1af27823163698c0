package activator

import (
	"testing"
	"time"
)

func (r *rig) wantYielding(when string, gen uint64, now, ever bool) {
	r.t.Helper()
	gotNow, gotEver := r.w.isYielding(gen)
	if gotNow != now || gotEver != ever {
		r.t.Errorf("%s: generation %d yields %v, did at its start %v; want %v, %v", when, gen, gotNow, gotEver, now, ever)
	}
}

func TestASuccessorYieldsAtTheCPUOnlyWhileAnotherServes(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		r.wantYielding("a wake", 1, false, false)
		id := r.deploy("v2 boot=3s")
		settle(2 * time.Second)
		r.wantYielding("while it boots", 2, true, true)
		r.wantOp(id, OpDone)
		r.wantYielding("when it serves", 2, false, true)
		r.wantOp(r.deploy("v3 boot=8s"), OpDone)
		id = r.deploy("v4 boot=15s")
		settle(4 * time.Second)
		r.wantYielding("while it has time", 4, true, true)
		settle(2 * time.Second)
		r.wantYielding("when a quarter of its time has passed", 4, false, true)
		r.wantOp(id, OpDone)
	})
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1", hold))
		r.get("v1")
		r.wantOp(r.deploy("v2"), OpDone)
		r.wantYielding("a hold", 2, false, false)
	})
}

func TestASuccessorThatRequestsWaitForYieldsNoLonger(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		id := r.deploy("v2 boot=4s")
		settle(time.Second)
		r.wantYielding("beside the incumbent", 2, true, true)
		r.w.alive("hello")[0].die(Exit{Signal: "killed"})
		settle(10 * time.Millisecond) // usher is told
		stop := r.load(10 * time.Millisecond)
		settle(time.Second)
		r.wantYielding("when the incumbent has died", 2, false, true)
		r.wantOp(id, OpDone)
		if _, failed := stop(); len(failed) > 0 {
			t.Errorf("failed: %v", failed)
		}
	})
}
