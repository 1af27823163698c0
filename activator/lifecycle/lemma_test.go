package lifecycle

import (
	"sync"
	"testing"
)

// One step of the core says all there is to say of a late answer, so it is
// checked in one step, on every state of the core that was ever reached.

// coreStates explores some configurations and calls check once for every state
// of the core, with the generation numbers of its world.
func coreStates(t *testing.T, names []string, check func(t *testing.T, s State) bool) {
	t.Helper()
	var total sync.Map
	for _, c := range configs() {
		for _, name := range names {
			if c.name != name {
				continue
			}
			seen := map[State]struct{}{}
			x := c.explorer()
			good := true
			look := func(s State) {
				if _, known := seen[s]; !known && good {
					seen[s] = struct{}{}
					good = check(t, s)
				}
			}
			x.step = func(s State, e Event) (State, Effects) {
				look(s)
				return Step(s, e)
			}
			explore(x, stateCap)
			total.Store(name, len(seen))
		}
	}
	total.Range(func(name, n any) bool {
		t.Logf("%s: %d states of the core", name, n)
		return true
	})
}

var answers = [...]EventKind{
	VerifyDone, IntentDone, PrepareDone, RanDone, GoDone, HealthDone, SwitchingDone, SwitchDone, ReportDone, DrainDone, StopDone, SleepDone,
	Exited,
}

func TestAnAnswerForAGenerationThatIsNotKnownDoesNothingButCleanUp(t *testing.T) {
	const unknown = 31
	names := []string{"overlap", "hold", "canary", "pause hold", "halt overlap", "process to external"}
	coreStates(t, names, func(t *testing.T, s State) bool {
		for _, k := range answers {
			for res := OK; res <= Refused; res++ {
				e := Event{Kind: k, Gen: unknown, Result: res}
				next, f := Step(s, e)
				cleans := k == PrepareDone || k == GoDone
				clean := f.Len() == 1 && f.At(0).Kind == Stop && f.At(0).Gen == unknown
				if next != s || cleans != clean || !cleans && f.Len() != 0 {
					t.Errorf("%s\nstate %+v\nnext  %+v\neffects %s", e, s, next, &f)
					return false
				}
			}
		}
		return true
	})
}

func TestAnAnswerThatNobodyWaitsForDoesNothing(t *testing.T) {
	names := []string{"overlap", "hold", "canary", "pause hold", "halt overlap"}
	coreStates(t, names, func(t *testing.T, s State) bool {
		for _, g := range [...]*Gen{&s.Cur, &s.Next, &s.Old} {
			for _, k := range answers {
				if g.ID == 0 || s.awaits(g, k) {
					continue
				}
				for res := OK; res <= Refused; res++ {
					e := Event{Kind: k, Gen: g.ID, Result: res}
					if next, f := Step(s, e); next != s || f.Len() != 0 {
						t.Errorf("%s\nstate %+v\nnext  %+v\neffects %s", e, s, next, &f)
						return false
					}
				}
			}
		}
		return true
	})
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
	}
	return next && answerOf[g.Stage] == k
}
