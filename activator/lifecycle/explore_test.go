package lifecycle

import (
	"slices"
	"sync/atomic"
	"testing"
)

// stateCap is the most states that one configuration may have, totalCap the most
// that all of them may have together on a test run.
const (
	stateCap     = 400_000
	totalCap     = 2_000_000
	stateCapFull = 8_000_000
)

func (c config) explorer() *explorer { return &explorer{cfg: c, step: Step, rec: Recover} }

// configs are the environments that are explored on every test run. Each lets
// something else happen on top of two releases, because all of it at once would
// be too much; USHER_EXPLORE=full widens the bounds of all of them.
func configs() []config {
	day := askSleep | askRequest
	both := budgets{usher: 1, app: 1}
	return []config{
		{name: "overlap", commits: []uint8{0, 0}, left: both, asks: day, plain: true},
		{name: "hold", commits: []uint8{relHold, relHold}, left: both, asks: day, plain: true},
		{name: "overlap, retry", commits: []uint8{0, 0}, asks: day | askRetry},
		{name: "hold, retry", commits: []uint8{relHold, relHold}, asks: day | askRetry},
		{name: "overlap, restart", commits: []uint8{0, 0}, left: budgets{restarts: 1}, asks: askRequest},
		{name: "hold, restart", commits: []uint8{relHold, relHold}, left: budgets{restarts: 1}, asks: askRequest},
		{name: "restarts and crashes", commits: []uint8{0}, left: budgets{usher: 1, app: 1, restarts: 1}, asks: day},
		{name: "overlap to hold", commits: []uint8{0, relHold}, left: budgets{app: 1}, asks: day, plain: true},
		{name: "hold to overlap", commits: []uint8{relHold, 0}, left: budgets{app: 1}, asks: day},
		{name: "canary", commits: []uint8{0, relCanary}, left: budgets{usher: 1}, asks: day},
		{name: "fallback", commits: []uint8{relHold, relHold | relFallback}, left: budgets{usher: 1}, asks: askRequest | askRetry},
		{name: "pause overlap", commits: []uint8{0, 0}, left: budgets{app: 1}, asks: askRequest | askPause},
		{name: "pause hold", commits: []uint8{relHold, relHold}, left: budgets{app: 1}, asks: askRequest | askPause},
		{name: "maintenance", commits: []uint8{0, relHold}, left: budgets{usher: 1}, asks: askPause | askMaintain},
		{name: "halt overlap", commits: []uint8{0, 0}, left: budgets{app: 1}, asks: askRequest | askShutdown | askRemove},
		{name: "halt hold", commits: []uint8{relHold, relHold}, left: budgets{app: 1}, asks: askRequest | askStop},
		{name: "halt and start", commits: []uint8{0, relHold}, left: budgets{usher: 1}, asks: askShutdown | askStop | askRemove},
		{name: "external", commits: []uint8{relExternal, relExternal}, left: budgets{usher: 1, restarts: 1}, asks: askRequest | askPause},
		{name: "process to external", commits: []uint8{0, relExternal}, left: both, asks: day},
		{name: "external to process", commits: []uint8{relExternal, 0}, left: both, asks: day},
		{name: "weak records overlap", commits: []uint8{0, 0}, left: budgets{usher: 1, puts: 1}, asks: askRequest, doubts: true},
		{name: "weak records hold", commits: []uint8{relHold, relHold}, left: budgets{usher: 1, puts: 1}, asks: askRequest, doubts: true},
		{name: "no numbers", commits: []uint8{0, relHold}, left: budgets{app: 1, fresh: 1}, asks: askRequest},
		{name: "no numbers for a target", commits: []uint8{relExternal, relExternal}, left: budgets{usher: 1, fresh: 1}, asks: askRequest},
		{name: "late answers", commits: []uint8{0, relHold}, asks: day, late: true},
		{name: "cache", commits: []uint8{0, 0}, left: budgets{restarts: 1}, asks: askRequest, cache: true},
	}
}

// widened is c within the bounds of `make explore`: three releases and two
// crashes of usher and of the app where nothing else comes on top, and
// everywhere at least one crash of each.
func (c config) widened() config {
	if c.plain {
		c.commits = append(slices.Clone(c.commits), c.commits[len(c.commits)-1])
		c.left.usher, c.left.app = 2, 2
		return c
	}
	c.left.usher, c.left.app = max(c.left.usher, 1), max(c.left.app, 1)
	c.asks |= askSleep | askRequest
	return c
}

func TestEveryReachableStateKeepsThePromises(t *testing.T) {
	var states, edges atomic.Int64
	t.Run("all", func(t *testing.T) {
		for _, c := range configs() {
			if raced && !slices.Contains([]string{"canary", "late answers", "external to process"}, c.name) {
				continue
			}
			limit := stateCap
			if full() {
				c, limit = c.widened(), stateCapFull
			}
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				r := explore(c.explorer(), limit)
				states.Add(int64(r.states))
				edges.Add(int64(r.edges))
				r.report(t)
				if r.full {
					t.Fatalf("stopped after %d states: the bounds are too wide", limit)
				}
				r.g.checkLiveness(t, c.explorer())
			})
		}
	})
	t.Logf("%d states, %d transitions", states.Load(), edges.Load())
	if !full() && states.Load() > totalCap {
		t.Errorf("more than %d states: too much for a test run", totalCap)
	}
}
