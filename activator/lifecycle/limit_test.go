package lifecycle

import "testing"

func TestTheLimitIsRaisedBeforeASuccessorAndRestoredWhenOneHasLeft(t *testing.T) {
	p := serving(t, "limited").script(`
		Committed r2 limited → Verify g2 r2
		VerifyDone g2        → RaiseLimit g2 r2
		RaiseDone g2         → Intent g2 r2
		IntentDone g2        → Prepare g2 r2
		PrepareDone g2       → RecordRan g2 r2
		RanDone g2           → Go g2 r2
		GoDone g2            → Health g2 r2
		HealthDone g2        → RecordSwitching g2 r2
		SwitchingDone g2     → Switch g2 r2 serving g2 cache r2.0
		SwitchDone g2        → RecordSwitched g2 r2; Drain g1; Arm g2 idle; Report g2 r2
		ReportDone g2        → RecordOutcome g2 r2 overlap release: done executed
		DrainDone g1         → Stop g1
		StopDone g1          → Forget g1; RestoreLimit g2 r2
		RestoreDone g2       →
	`)
	if p.s.Limit != LimitOne {
		t.Fatalf("the limit is %d", p.s.Limit)
	}
}

func TestALimitThatCannotBeRaisedIsNotTheBuildsFault(t *testing.T) {
	serving(t, "").script(`
		Committed r2 limited                     → Verify g2 r2
		VerifyDone g2                            → RaiseLimit g2 r2
		RaiseDone g2 refused: limit not applied  → RecordOutcome g2 r2 overlap release: abandoned (limit not applied); Forget g2; Arm back-off level 1; RestoreLimit g1 r1
		RestoreDone g1                           →
		TimerFired back-off                      → Verify g3 r2
	`)
}

func TestNoSuccessorBeginsOnTopOfALimitThatWasNotRestored(t *testing.T) {
	serving(t, "").script(`
		Committed r2 limited                      → Verify g2 r2
		VerifyDone g2                             → RaiseLimit g2 r2
		RaiseDone g2 refused: limit not applied   → RecordOutcome g2 r2 overlap release: abandoned (limit not applied); Forget g2; Arm back-off level 1; RestoreLimit g1 r1
		RestoreDone g1 refused: limit not applied → Arm sweep
		TimerFired back-off                       →
		TimerFired sweep                          → RestoreLimit g1 r1
		RestoreDone g1                            → Verify g3 r2
	`)
}

func TestAfterACrashTheLimitIsRestoredWhenWhatIsLeftIsGone(t *testing.T) {
	limited := func(n Revision) Release { return Release{Rev: n, Ran: true, Limited: true} }
	was := State{Desired: limited(2), Good: limited(1), Reported: 1, Limit: LimitRaised}
	s, f := Recover(was, []Found{
		{ID: 1, Rel: limited(1), Stage: Serving, Alive: true},
		{ID: 2, Rel: limited(2), Stage: Checking, Alive: true},
	}, 9)
	if got := f.String(); got != "RecordSwitched g1 r1; Arm g1 idle; Stop g2; Place g1 serving g1 cache r1.0" {
		t.Fatalf("got %s", got)
	}
	_, f = Step(s, Event{Kind: StopDone, Gen: 2, Fresh: 9})
	if got := f.String(); got != "Forget g2; RestoreLimit g1 r1" {
		t.Fatalf("got %s", got)
	}
}

func TestWithTheLastGenerationTheLimitGoesByItself(t *testing.T) {
	was := State{Desired: Release{Rev: 1, Ran: true}, Good: Release{Rev: 1, Ran: true}, Reported: 1, Limit: LimitRaised}
	s, f := Recover(was, []Found{found(1, Serving, false)}, 9)
	if got := f.String(); got != "Stop g1; Place asleep cache r1.0" || s.Limit != LimitRaised {
		t.Fatalf("got %s, limit %d", got, s.Limit)
	}
	s, f = Step(s, Event{Kind: StopDone, Gen: 1})
	if got := f.String(); got != "Forget g1" || s.Limit != LimitOne {
		t.Fatalf("got %s, limit %d", got, s.Limit)
	}
}

func TestAnAnswerAboutTheLimitThatNobodyWaitsForDoesNothing(t *testing.T) {
	s := serving(t, "limited").s
	for _, l := range []Limit{LimitOne, LimitStuck} {
		s.Limit, s.SweepArmed = l, l == LimitStuck
		for res := OK; res <= Refused; res++ {
			if next, f := Step(s, Event{Kind: RestoreDone, Gen: 1, Result: res, Fresh: 9}); next != s || f.Len() != 0 {
				t.Errorf("limit %d, result %d: %s", l, res, &f)
			}
		}
	}
}
