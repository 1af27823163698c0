package lifecycle

import (
	"hash/maphash"
	"slices"
	"testing"
)

// One step of the core says all there is to say of a late answer, so it is
// checked in one step, on every state of the core that is reached:
//
//	S    an answer that nobody waits for has no effect but its clean-up: the stop of what it says was set up or started (core)

var answers = [...]EventKind{
	VerifyDone, RaiseDone, IntentDone, PrepareDone, RanDone, GoDone, HealthDone, SwitchingDone, SwitchDone, ReportDone, DrainDone, StopDone, SleepDone,
	Exited, TimerFired,
}

// Generations that no exploration gets to.
const (
	unknownGen = 31
	unusedGen  = 30
)

// coreStates are those whose late answers were looked at.
type coreStates struct {
	seed maphash.Seed
	seen map[uint64]struct{}
}

func newCoreStates() *coreStates { return &coreStates{maphash.MakeSeed(), map[uint64]struct{}{}} }

// checkLate feeds s, once, every answer that nobody waits for in it.
func (x *explorer) checkLate(s *State) {
	if x.looked == nil {
		return
	}
	h := maphash.Comparable(x.looked.seed, *s)
	if _, known := x.looked.seen[h]; known {
		return
	}
	x.looked.seen[h] = struct{}{}
	for _, k := range answers {
		x.checkLateAnswer(s, k, unknownGen, k == PrepareDone || k == GoDone)
		for _, g := range [...]*Gen{&s.Cur, &s.Next, &s.Old} {
			if g.ID != 0 && !s.awaits(g, k) {
				x.checkLateAnswer(s, k, g.ID, false)
			}
		}
	}
}

func (x *explorer) checkLateAnswer(s *State, k EventKind, gen GenID, cleans bool) {
	for res := OK; res <= Refused; res++ {
		e := Event{Kind: k, Gen: gen, Result: res, Fresh: unusedGen}
		if k == TimerFired {
			e.Timer = TimerSettle
		}
		next, f := x.step(*s, e)
		clean := f.n == 0
		if cleans {
			clean = f.n == 1 && f.list[0].Kind == Stop && f.list[0].Gen == gen
		}
		if next != *s || !clean {
			x.fail("S", "%s, for which nobody waits, does this: %s\n%+v\nbecomes\n%+v", e, &f, *s, next)
			return
		}
	}
}

// awaits says whether an event of kind k may move g.
func (s *State) awaits(g *Gen, k EventKind) bool {
	next := *g == s.Next
	switch k {
	case Exited:
		return next && g.Stage < Stopping || g.Stage == Serving || g.Stage == Draining
	case StopDone:
		return g.Stage == Stopping || g.Stage == Unproven
	case DrainDone:
		return g.Stage == Draining
	case SleepDone:
		return g.Stage == Serving
	case ReportDone:
		return *g == s.Cur && (s.ReportOwed || s.Attempt.Reporting)
	case TimerFired:
		return next && g.Stage == Settling
	}
	return next && answerOf[g.Stage] == k
}

// TestEveryReachableStateKeepsThePromises asks that of every state that it reaches.
// There, what nobody will ever read again is left out of a state; here nothing is, so
// there are ten times as many worlds, and few configurations on a test run.
func TestAnAnswerThatNobodyWaitsForDoesNothingButCleanUp(t *testing.T) {
	names := []string{"overlap", "hold", "canary", "pause hold", "halt overlap", "process to external", "limits overlap"}
	if raced {
		names = []string{"canary"}
	}
	for _, c := range configs() {
		if full() || slices.Contains(names, c.name) {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				x := c.explorer()
				x.whole, x.looked = true, newCoreStates()
				r := explore(x, stateCapFull)
				r.report(t)
				if r.full {
					t.Error("not every state was visited")
				}
				t.Logf("%d states of the core", len(x.looked.seen))
			})
		}
	}
}
