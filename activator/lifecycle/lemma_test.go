package lifecycle

import (
	"slices"
	"testing"
)

// One step of the core says all there is to say of a late answer, so it is
// checked in one step, on every state of the core that was reached.

var answers = [...]EventKind{
	VerifyDone, RaiseDone, IntentDone, PrepareDone, RanDone, GoDone, HealthDone, SwitchingDone, SwitchDone, ReportDone, DrainDone, StopDone, SleepDone,
	Exited,
}

func TestAnAnswerThatNobodyWaitsForDoesNothingButCleanUp(t *testing.T) {
	names := []string{"overlap", "hold", "canary", "pause hold", "halt overlap", "process to external", "limits overlap"}
	if raced {
		names = []string{"canary"}
	}
	for _, c := range configs() {
		if full() || slices.Contains(names, c.name) {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				lemma(t, c)
			})
		}
	}
}

func lemma(t *testing.T, c config) {
	seen := map[State]struct{}{}
	x := c.explorer()
	x.whole = true
	x.step = func(s State, e Event) (State, Effects) {
		if _, known := seen[s]; !known && !t.Failed() {
			seen[s] = struct{}{}
			unknownGeneration(t, s)
			unexpectedAnswer(t, s)
		}
		return Step(s, e)
	}
	if r := explore(x, stateCapFull); r.full {
		t.Error("not every state was visited")
	}
	t.Logf("%d states of the core", len(seen))
}

func unknownGeneration(t *testing.T, s State) {
	const unknown = 31
	for _, k := range answers {
		for res := OK; res <= Refused; res++ {
			e := Event{Kind: k, Gen: unknown, Result: res}
			next, f := Step(s, e)
			cleans := k == PrepareDone || k == GoDone
			clean := f.Len() == 1 && f.At(0).Kind == Stop && f.At(0).Gen == unknown
			if next != s || cleans != clean || !cleans && f.Len() != 0 {
				t.Errorf("%s\nstate %+v\nnext  %+v\neffects %s", e, s, next, &f)
				return
			}
		}
	}
}

func unexpectedAnswer(t *testing.T, s State) {
	for _, g := range [...]*Gen{&s.Cur, &s.Next, &s.Old} {
		for _, k := range answers {
			if g.ID == 0 || s.awaits(g, k) {
				continue
			}
			for res := OK; res <= Refused; res++ {
				e := Event{Kind: k, Gen: g.ID, Result: res}
				if next, f := Step(s, e); next != s || f.Len() != 0 {
					t.Errorf("%s\nstate %+v\nnext  %+v\neffects %s", e, s, next, &f)
					return
				}
			}
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
	}
	return next && answerOf[g.Stage] == k
}
