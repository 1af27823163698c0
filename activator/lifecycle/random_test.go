package lifecycle

import (
	"flag"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// Beyond the bounds of the exploration: long random lives of an app with more
// releases, restarts and crashes, everything asked at once.
func TestALongRandomLifeKeepsThePromisesAndComesToRest(t *testing.T) {
	lives := 3000
	if full() {
		lives = 200_000
	}
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		if err := f.Value.Set(strconv.Itoa(lives)); err != nil {
			t.Fatal(err)
		}
	}
	total := 0
	defer func() { t.Logf("%d moves", total) }()
	rapid.Check(t, func(t *rapid.T) { total += randomLife(t, func(*explorer) {}) })
}

// randomLife leads one life and says how many moves it had.
func randomLife(t *rapid.T, spoil func(*explorer)) (total int) {
	kinds := []uint8{0, relHold, relCanary, relHold | relFallback, relExternal, relLimited, relLimited | relHold}
	c := config{
		left: budgets{restarts: 3, usher: 4, app: 6, puts: 1, fresh: 2},
		asks: askRestart | askRetry | askWake | askSleep | askPause | askMaintain | askRequest | askShutdown | askFence, late: true, doubts: true, cache: true, heads: true,
		between: rapid.Bool().Draw(t, "between"), uncertain: rapid.Bool().Draw(t, "uncertain"),
	}
	if rapid.IntRange(0, 3).Draw(t, "ends") == 0 { // not always: what has ended has no long life
		c.asks |= askStop | askRemove
	}
	for range rapid.IntRange(1, 3).Draw(t, "releases") {
		c.commits = append(c.commits, rapid.SampledFrom(kinds).Draw(t, "release"))
	}
	x := c.explorer()
	x.whole = true
	spoil(x)
	w := c.start()
	x.log = t.Logf
	x.script = script{draw: func(k int) int { return max(0, rapid.IntRange(0, luck).Draw(t, "choice")-(luck+1-k)) }}
	for range rapid.IntRange(50, 500).Draw(t, "steps") {
		moves := x.moves(&w, nil)
		if rapid.IntRange(0, 3).Draw(t, "calm") != 0 { // else people would ask all the time
			moves = calm(moves)
		}
		if len(moves) == 0 {
			continue
		}
		total++
		x.take(&w, &moves[rapid.IntRange(0, len(moves)-1).Draw(t, "move")])
		if x.broken != nil {
			t.Fatal(x.broken)
		}
	}
	x.rest(t, &w)
	return total
}

// luck is how rarely a choice is not the first: were half of them failures, no
// attempt would ever get to its switch.
const luck = 11

// calm leaves out what people ask, what fails and what crashes, if there is
// anything else.
func calm(moves []move) []move {
	rest := slices.DeleteFunc(slices.Clone(moves), func(m move) bool {
		return m.fails || m.kind == moveAsked || m.kind == moveCrash || m.kind == moveDies
	})
	if len(rest) == 0 {
		return moves
	}
	return rest
}

// rest lets everything succeed that can, and nobody ask, until nothing moves any
// more.
func (x *explorer) rest(t *rapid.T, w *world) {
	const most = 200
	x.script = script{draw: func(int) int { return 0 }}
	x.log = nil
	for range most {
		if x.onward(t, w, flagAsked|flagCrashed|flagFailed) || x.onward(t, w, flagAsked|flagCrashed) {
			continue
		}
		if !w.settled() {
			t.Fatalf("it rests and is not settled: %s", w)
		}
		return
	}
	t.Fatalf("it does not come to rest: %s", w)
}

// onward takes the first move that changes anything and has none of these flags.
func (x *explorer) onward(t *rapid.T, w *world, unless flags) bool {
	for _, m := range x.moves(w, nil) {
		next := *w
		x.take(&next, &m)
		if x.broken != nil {
			t.Fatal(x.broken)
		}
		if x.out&unless == 0 && next != *w {
			*w = next
			return true
		}
	}
	return false
}
