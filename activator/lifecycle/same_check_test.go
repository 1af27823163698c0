package lifecycle

import (
	"hash/maphash"
	"slices"
	"testing"
)

// An exploration that makes nothing one keeps the same promises. Whatever happens
// next in one of its worlds happens in the world that stands for it (nothing is
// lost), and every world that stands for others is one of them (nothing is made up).
//
// One thing may differ: what is only to be ended may end by itself while usher is
// down. That nobody notices, and there is one exit of the app more to come.
func TestWhatIsMadeOneIsOne(t *testing.T) {
	if raced {
		t.Skip("the run without the race detector does this")
	}
	for _, c := range sameConfigs() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := sameness{cfg: c, seed: maphash.MakeSeed(), by: c.explorer(), ways: map[uint64][]way{}}
			x := c.explorer()
			x.whole = true
			x.visit = func(w *world) { s.compare(t, w) }
			visited(t, x)
			x = c.explorer()
			x.visit = func(w *world) {
				if _, ok := s.ways[w.hash(s.seed)]; !ok && !x.answersNext(w) && !t.Failed() {
					t.Errorf("this is made up:\n%s", w)
				}
			}
			visited(t, x)
		})
	}
}

func visited(t *testing.T, x *explorer) {
	t.Helper()
	r := explore(x, stateCapFull)
	r.report(t)
	if r.full {
		t.Fatal("the bounds are too wide")
	}
	r.g.checkLiveness(t, x.cfg.explorer())
}

// sameConfigs are few on a test run: where nothing is made one there are ten times
// as many worlds.
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

// sameness compares worlds with those that stand for them.
type sameness struct {
	cfg  config
	seed maphash.Seed
	by   *explorer        // takes what happens next
	ways map[uint64][]way // out of every world that stands for others
}

// way is one that leads out of a world: what happens on it, the world that stands
// for where it leads, and the same with no exit of the app to come.
type way struct {
	out      flags
	to, poor uint64
}

// compare asks of one world whether anything happens in it that does not happen in
// the one that stands for it.
func (s *sameness) compare(t *testing.T, w *world) {
	if s.by.answersNext(w) || t.Failed() {
		return
	}
	one := *w
	one.forget(&s.cfg)
	one.rename()
	self := s.to(&one, 0)
	known, ok := s.ways[self.to]
	if !ok {
		known = s.from(&one)
		s.ways[self.to] = known
	}
	for _, o := range s.from(w) {
		nobodyNotices := o.to == self.to || o.poor == self.poor
		if !nobodyNotices && !slices.Contains(known, o) {
			t.Errorf("something that happens (%06b) in\n%s\nis lost in\n%s", o.out, w, &one)
			return
		}
	}
}

func (s *sameness) from(w *world) (ways []way) {
	s.by.branches(w, s.by.moves(w, nil), func(next *world, _ *move) bool {
		ways = append(ways, s.to(next, s.by.out))
		return true
	})
	return ways
}

func (s *sameness) to(w *world, out flags) way {
	poor := *w
	poor.left.app = 0
	poor.forget(&s.cfg)
	return way{out, w.hash(s.seed), poor.hash(s.seed)}
}
