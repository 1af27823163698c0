package lifecycle

import (
	"fmt"
	"slices"
	"sync"
	"testing"
)

// stateCap is the most states that one configuration may have, totalCap the most
// that all of them may have together on a test run.
const (
	stateCap     = 700_000
	totalCap     = 2_000_000
	stateCapFull = 20_000_000
)

func (c config) explorer() *explorer {
	return &explorer{cfg: c, step: Step, rec: Recover, controllers: Controllers()}
}

// everything is what can be asked in any order without bounds.
const everything = askRequest | askWake | askSleep | askPause | askShutdown | askStop | askRemove

// configs are the environments that are explored on every test run. The first lets
// nearly everything happen at once, and what is within it is there for the mutants;
// the others let something else happen on top of two releases: "the rest of it" all
// that would make the first one too large, beside a crash of usher. USHER_EXPLORE=full
// widens the bounds of all of them.
func configs() []config {
	day := askSleep | askRequest
	both := budgets{usher: 1, app: 1}
	return []config{
		{name: "all of it", commits: []uint8{relEither, relEither}, left: both, asks: everything, wide: true},
		{name: "overlap", commits: []uint8{0, 0}, left: both, asks: day, within: "all of it"},
		{name: "hold", commits: []uint8{relHold, relHold}, left: both, asks: day, within: "all of it"},
		{name: "overlap, retry", commits: []uint8{0, 0}, left: budgets{restarts: 1}, asks: askWake | askRetry, pauses: true},
		{name: "hold, retry", commits: []uint8{relHold, relHold}, left: budgets{usher: 1, restarts: 1}, asks: askWake | askRetry},
		{name: "held down", commits: []uint8{relHold, relHold, relHold}, asks: askRequest},
		{name: "overlap, restart", commits: []uint8{0, 0}, left: budgets{restarts: 1}, asks: askRestart | askRequest},
		{name: "hold, restart", commits: []uint8{relHold, relHold}, left: budgets{restarts: 1}, asks: askRestart | askRequest},
		{name: "hold, all restarts", commits: []uint8{relHold}, left: budgets{app: 1, restarts: 2}, asks: askRestart | askRetry | askWake | askRequest, enough: true},
		{name: "restarts and crashes", commits: []uint8{0}, left: budgets{usher: 1, app: 1, restarts: 1}, asks: askRestart | day | askWake, pauses: true},
		{name: "canary", commits: []uint8{0, relCanary}, left: budgets{usher: 1}, asks: day, pauses: true},
		{name: "canary and an exit", commits: []uint8{relCanary}, left: budgets{app: 1}, asks: askRequest},
		{name: "fallback", commits: []uint8{relHold, relHold | relFallback}, left: budgets{usher: 1}, asks: askRequest},
		{name: "fallback, retry", commits: []uint8{relHold, relHold | relFallback}, left: budgets{usher: 1, restarts: 1}, asks: askWake | askRetry},
		{name: "pause overlap", commits: []uint8{0, 0}, asks: askRequest | askPause, within: "all of it"},
		{name: "pause hold", commits: []uint8{relHold, relHold}, asks: askRequest | askPause, within: "all of it"},
		{name: "maintenance", commits: []uint8{0, relHold}, left: budgets{usher: 1}, asks: askPause | askMaintain},
		{name: "halt overlap", commits: []uint8{0, 0}, left: budgets{app: 1}, asks: askRequest | askShutdown | askRemove, within: "all of it"},
		{name: "fence overlap", commits: []uint8{0, 0}, asks: askRequest | askFence},
		{name: "fence and crashes", commits: []uint8{0}, left: both, asks: day | askFence, late: true},
		{name: "fence hold", commits: []uint8{relHold, relHold | relFallback}, asks: askRequest | askFence},
		{name: "fence and limits", commits: []uint8{relLimited, relLimited}, asks: askSleep | askFence},
		{name: "fence and all else", commits: []uint8{0, relHold}, left: budgets{usher: 1}, asks: askPause | askMaintain | askStop | askRemove | askFence, between: true},
		{name: "external", commits: []uint8{relExternal, relExternal}, left: budgets{usher: 1, restarts: 1}, asks: askRestart | askRequest | askPause},
		{name: "process to external", commits: []uint8{0, relExternal}, left: both, asks: day},
		{name: "external to process", commits: []uint8{relExternal, 0}, left: both, asks: day},
		{name: "external to hold", commits: []uint8{relExternal, relHold}, left: budgets{usher: 1}, asks: askRequest},
		{name: "weak records overlap", commits: []uint8{0, 0}, left: budgets{usher: 1, puts: 1}, asks: askRequest, doubts: true},
		{name: "weak records hold", commits: []uint8{relHold, relHold}, left: budgets{usher: 1, puts: 1}, asks: askRequest, doubts: true},
		{name: "no numbers", commits: []uint8{0, relHold}, left: budgets{app: 1, fresh: 1}, asks: askRequest},
		{name: "no numbers for a target", commits: []uint8{relExternal, relExternal}, left: budgets{usher: 1, fresh: 1}, asks: askRequest},
		{name: "the rest of it", commits: []uint8{relEither, relEither}, left: budgets{usher: 1, puts: 1}, asks: day, late: true, cache: true, doubts: true, enough: true},
		{name: "late answers", commits: []uint8{0, relHold}, asks: day, late: true},
		{name: "limits overlap", commits: []uint8{relLimited, relLimited}, left: budgets{usher: 1}, asks: askRequest | askStop},
		{name: "limits and an exit", commits: []uint8{0, relLimited}, left: budgets{app: 1}, asks: askRequest},
		{name: "limits hold", commits: []uint8{relLimited, relLimited | relHold}, left: budgets{usher: 1}, asks: askRequest},
		{name: "between", commits: []uint8{0, relHold}, left: budgets{restarts: 1}, asks: askRestart | askPause | askMaintain | askShutdown | askStop | askRemove, between: true},
		{name: "uncertain overlap", commits: []uint8{0, 0}, left: budgets{usher: 1}, asks: askRequest, uncertain: true},
		{name: "uncertain hold", commits: []uint8{relHold, relHold | relFallback}, left: budgets{usher: 1}, asks: askRequest, uncertain: true},
		{name: "cache", commits: []uint8{0, 0}, left: budgets{usher: 1, restarts: 1}, asks: askRestart | askRequest, cache: true},
		{name: "heads", commits: []uint8{0, 0}, left: budgets{app: 1}, asks: askRequest, cache: true, heads: true},
	}
}

// widened is c within the bounds of `make explore`: one more release, like the first,
// if it has not three and those it has are not enough, and two crashes of usher and two
// exits of the app where it is to be wide, and everywhere at least one of each.
func (c config) widened() config {
	if len(c.commits) < 3 && !c.enough {
		c.commits = append(slices.Clone(c.commits), c.commits[0])
	}
	least := uint8(1)
	if c.wide {
		least = 2
	}
	c.left.usher, c.left.app = max(c.left.usher, least), max(c.left.app, least)
	c.asks |= askSleep | askRequest
	return c
}

func TestEveryReachableStateKeepsThePromises(t *testing.T) {
	var sum tally
	var taken rolloutActions
	t.Run("all", func(t *testing.T) {
		for _, c := range configs() {
			if c.within != "" {
				continue
			}
			if raced && !slices.Contains([]string{"canary", "late answers", "external to process"}, c.name) {
				continue
			}
			limit := stateCap
			if full() {
				c, limit = c.widened(), stateCapFull
			}
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				x := c.explorer()
				x.looked = newCoreStates()
				r := explore(x, limit)
				sum.add(c.name, &r)
				taken.add(&x.rollout)
				r.report(t)
				if r.full {
					t.Fatalf("stopped after %d states: the bounds are too wide", limit)
				}
				r.g.checkLiveness(t, c.explorer())
			})
		}
	})
	sum.report(t)
	taken.report(t)
	if !full() && sum.states > totalCap {
		t.Errorf("more than %d states: too much for a test run", totalCap)
	}
}

// What is not visited on its own is visited as part of another configuration,
// within the bounds of a test run and within the large ones.
func TestWhatIsLeftOutIsPartOfAnotherConfiguration(t *testing.T) {
	all := configs()
	for _, c := range all {
		i := slices.IndexFunc(all, func(o config) bool { return o.name == c.within })
		switch {
		case c.within == "":
		case i < 0:
			t.Errorf("%s is within %q, and there is no such configuration", c.name, c.within)
		case !c.partOf(all[i]) || !c.widened().partOf(all[i].widened()):
			t.Errorf("%+v is no part of %+v", c, all[i])
		}
	}
}

// partOf: whatever happens in c happens in o.
func (c config) partOf(o config) bool {
	for i, r := range c.commits {
		if i >= len(o.commits) || r != o.commits[i] && (o.commits[i] != relEither || r&^relHold != 0) {
			return false
		}
	}
	fewer := c.left.usher <= o.left.usher && c.left.app <= o.left.app && c.left.restarts <= o.left.restarts
	if !fewer || c.asks&^o.asks != 0 || o.within != "" {
		return false
	}
	c.left.usher, c.left.app, c.left.restarts = o.left.usher, o.left.app, o.left.restarts
	c.name, c.commits, c.asks, c.wide, c.within = o.name, o.commits, o.asks, o.wide, o.within
	return fmt.Sprint(c) == fmt.Sprint(o)
}

// tally adds up what the explorations have visited.
type tally struct {
	mu            sync.Mutex // guards the fields below
	states, edges int
	parts         []tallied
}

type tallied struct {
	name          string
	states, edges int
}

func (s *tally) add(name string, r *result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states += r.states
	s.edges += r.edges
	s.parts = append(s.parts, tallied{name, r.states, r.edges})
}

// report tells everybody the sum and the largest part (cmd/internal/tests), and who
// asks for more all of them.
func (s *tally) report(t *testing.T) {
	slices.SortFunc(s.parts, func(a, b tallied) int { return b.states - a.states })
	t.Logf("counted: %d states and %d transitions in %d configurations", s.states, s.edges, len(s.parts))
	for i, p := range s.parts {
		if i == 0 {
			t.Logf("counted: %d states and %d transitions of these in %q", p.states, p.edges, p.name)
		}
		t.Logf("%9d states %9d transitions  %s", p.states, p.edges, p.name)
	}
}
