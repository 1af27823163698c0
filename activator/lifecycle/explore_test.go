package lifecycle

import "testing"

func (p *packer) extra(s *State) { p.put(bits(s.Stalled)) }

func (c config) explorer() *explorer { return &explorer{cfg: c, step: Step, rec: Recover} }

const stateCap = 2_000_000

func configs() []config {
	all := askRetry | askSleep | askRequest
	some := budgets{usher: 1, app: 1}
	return []config{
		{name: "overlap", commits: []uint8{0, 0}, left: budgets{usher: 1, app: 1, restarts: 1}, asks: all},
		{name: "hold", commits: []uint8{relHold, relHold}, left: budgets{usher: 1, app: 1, restarts: 1}, asks: all},
		{name: "overlap to hold", commits: []uint8{0, relHold}, left: some, asks: all},
		{name: "hold to overlap", commits: []uint8{relHold, 0}, left: some, asks: all},
		{name: "canary", commits: []uint8{0, relCanary}, left: some, asks: all},
		{name: "fallback", commits: []uint8{relHold | relFallback, relHold | relFallback}, left: some, asks: all},
		{name: "pause overlap", commits: []uint8{0, 0}, left: some, asks: askSleep | askPause | askRequest},
		{name: "pause hold", commits: []uint8{relHold, relHold}, left: some, asks: askSleep | askPause | askRequest},
		{name: "maintenance", commits: []uint8{0, relHold}, left: budgets{app: 1}, asks: askPause | askMaintain | askRequest},
		{name: "halt overlap", commits: []uint8{0, 0}, left: some, asks: askRequest | askShutdown | askStop | askRemove | askSleep},
		{name: "halt hold", commits: []uint8{relHold, relHold}, left: some, asks: askRequest | askShutdown | askStop | askRemove | askSleep},
		{name: "external", commits: []uint8{relExternal, relExternal}, left: budgets{usher: 1, restarts: 1}, asks: all | askPause | askStop | askRemove},
		{name: "process to external", commits: []uint8{0, relExternal}, left: some, asks: all},
		{name: "external to process", commits: []uint8{relExternal, 0}, left: some, asks: all},
		{name: "weak overlap", commits: []uint8{0, 0}, left: budgets{usher: 1, app: 1, puts: 1}, asks: askSleep | askRequest, doubts: true},
		{name: "weak hold", commits: []uint8{relHold, relHold}, left: budgets{usher: 1, app: 1, puts: 1}, asks: askSleep | askRequest, doubts: true},
		{name: "no numbers", commits: []uint8{0, relHold}, left: budgets{usher: 1, app: 1, fresh: 1}, asks: askSleep | askRequest},
		{name: "no numbers external", commits: []uint8{relExternal, relExternal}, left: budgets{usher: 1, app: 1, fresh: 1}, asks: askSleep | askRequest},
		{name: "late", commits: []uint8{0, relHold}, left: some, asks: askSleep | askRequest, late: true},
		{name: "cache", commits: []uint8{0, 0}, left: budgets{usher: 1, restarts: 1}, asks: askSleep | askRequest, cache: true},
		{name: "restarts", commits: []uint8{0}, left: budgets{usher: 2, app: 2, restarts: 2}, asks: all},
		{name: "two crashes", commits: []uint8{relHold, relHold}, left: budgets{usher: 2, app: 2}, asks: askSleep | askRequest},
	}
}

func TestEveryReachableStateKeepsThePromises(t *testing.T) {
	for _, c := range configs() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := explore(c.explorer(), stateCap)
			if r.full {
				t.Errorf("more than %d states", stateCap)
			}
			r.report(t)
			r.g.checkLiveness(t, c.explorer())
		})
	}
}
