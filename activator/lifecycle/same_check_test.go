package lifecycle

import (
	"hash/maphash"
	"maps"
	"testing"
)

// An exploration that makes nothing one visits no world that the other one leaves
// out, and the other one no world that is not there. It keeps the same promises.
//
// One thing may differ: how many exits of the app are still to come. What is only to be
// ended may end by itself while usher is down, and whatever follows from that
// follows without it, too.
func TestWhatIsMadeOneIsOne(t *testing.T) {
	if raced {
		t.Skip("the run without the race detector does this")
	}
	for _, c := range sameConfigs() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			seed := maphash.MakeSeed()
			one, oneLess := places(t, c, seed, false)
			all, allLess := places(t, c, seed, true)
			if n := missing(one, all); n > 0 {
				t.Errorf("%d of %d worlds are not there if nothing is made one", n, len(one))
			}
			if n := missing(allLess, oneLess); n > 0 {
				t.Errorf("%d of %d worlds are left out", n, len(allLess))
			}
		})
	}
}

// sameConfigs are few on a test run: without making worlds one there are eight times
// as many.
func sameConfigs() []config {
	if full() {
		return configs()
	}
	few := []config{{name: "all of one release", commits: []uint8{relEither}, left: budgets{usher: 1, app: 1}, asks: everything}}
	for _, c := range configs() {
		switch c.name {
		case "pause hold", "fence and crashes", "external to process", "weak records hold", "late answers", "restarts and crashes", "uncertain overlap":
			few = append(few, c)
		}
	}
	return few
}

// places explores c and returns the worlds that it visits, as they are when made one,
// and once more without the exits of the app that are still to come.
func places(t *testing.T, c config, seed maphash.Seed, whole bool) (all, less map[uint64]bool) {
	t.Helper()
	all, less = map[uint64]bool{}, map[uint64]bool{}
	x := c.explorer()
	x.whole = whole
	x.visit = func(w *world) {
		if x.answersNext(w) {
			return
		}
		as := func(w world) uint64 {
			w.forget(&c)
			w.rename()
			return w.hash(seed)
		}
		all[as(*w)] = true
		poor := *w
		poor.left.app = 0
		less[as(poor)] = true
	}
	r := explore(x, stateCapFull)
	r.report(t)
	r.g.checkLiveness(t, c.explorer())
	return all, less
}

func missing(some, all map[uint64]bool) (n int) {
	for h := range maps.Keys(some) {
		if !all[h] {
			n++
		}
	}
	return n
}
