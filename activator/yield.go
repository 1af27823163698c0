package activator

import (
	"sync"

	lc "github.com/usher-edge/usher/activator/lifecycle"
)

// yieldShare: a start that takes longer than this part of the time it may take does
// not yield any more, lest it should fail of it on a machine that has no time left.
const yieldShare = 4

// yields says whether a generation starts beside one that serves, so that it should
// take of the CPU what others leave.
func (r *runner) yields(g *generation) bool {
	return g.run.Mode == lc.Overlap.String() && r.state.Slot.State == lc.SlotServing
}

// claiming is what ends that a generation yields. It is called as well as soon as
// requests are parked for it: nothing serves beside it any more.
func (r *runner) claiming(gen lc.GenID, child Child, t *probeTarget) (claim func()) {
	if child == nil {
		return func() {}
	}
	claim = sync.OnceFunc(func() {
		if err := child.Claim(); err != nil {
			r.log().Error(err.Error(), "generation", uint64(gen))
		}
	})
	awaited := t.awaited
	t.awaited = func() bool {
		waits := awaited()
		if waits {
			claim()
		}
		return waits
	}
	return claim
}
