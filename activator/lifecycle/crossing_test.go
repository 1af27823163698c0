package lifecycle

import "testing"

func TestAPauseWhileASwitchIsUnderWayTakesEffectWithItsAnswer(t *testing.T) {
	p := serving(t, "").script(`
		Committed r2     → Verify g2 r2
		VerifyDone g2    → Intent g2 r2
		IntentDone g2    → Prepare g2 r2
		PrepareDone g2   → RecordRan g2 r2
		RanDone g2       → Go g2 r2
		GoDone g2        → Health g2 r2
		HealthDone g2    → RecordSwitching g2 r2
		SwitchingDone g2 → Switch g2 r2 serving g2 cache r2.0
		PauseAsked       →
		SwitchDone g2    → RecordSwitched g2 r2; Drain g1; Arm g2 idle; Report g2 r2; Place paused cache r2.0
		ReportDone g2    → RecordOutcome g2 r2 overlap release: done executed
	`)
	if p.s.Cur.ID != 2 {
		t.Fatalf("the switch was called off: %+v", p.s)
	}
}

// A release that is committed while the slot is being stored is not forgotten when
// what was switched to ends before its attempt, and a restart supersedes that.
func TestAReleaseThatComesWhileASwitchIsUnderWayIsStarted(t *testing.T) {
	p := serving(t, "")
	for _, e := range []string{"Committed r2", "VerifyDone g2", "IntentDone g2", "PrepareDone g2", "RanDone g2", "GoDone g2", "HealthDone g2", "SwitchingDone g2", "Committed r3", "SwitchDone g2", "ReportDone g2", "DrainDone g1", "StopDone g1"} {
		p.feed(p.event(e))
	}
	for _, e := range []string{"Exited g2", "StopDone g2", "RestartAsked"} {
		p.feed(p.event(e))
	}
	p.finish()
	if p.s.Cur.Rel.Rev != 3 || p.s.Cur.Stage != Serving {
		t.Fatalf("revision 3 was forgotten: %+v", p.s)
	}
}

func TestASwitchThatFailedIsCalledOffByWhatWasAskedMeanwhile(t *testing.T) {
	serving(t, "").script(`
		Committed r2                       → Verify g2 r2
		VerifyDone g2                      → Intent g2 r2
		IntentDone g2                      → Prepare g2 r2
		PrepareDone g2                     → RecordRan g2 r2
		RanDone g2                         → Go g2 r2
		GoDone g2                          → Health g2 r2
		HealthDone g2                      → RecordSwitching g2 r2
		SwitchingDone g2                   → Switch g2 r2 serving g2 cache r2.0
		HaltAsked shutdown                 →
		SwitchDone g2 build failed: exited → RecordOutcome g2 r2 overlap release: abandoned (shutdown) executed; Stop g2
	`)
}

func TestAReleaseFromTheConfigFileSaysSo(t *testing.T) {
	p := serving(t, "").script(`
		Committed r2 config → Verify g2 r2
	`)
	if p.s.Attempt.Cause != CauseConfig {
		t.Fatalf("the cause is %q", p.s.Attempt.Cause)
	}
	was := State{Desired: Release{Rev: 2, Config: true}, Good: Release{Rev: 1, Ran: true}, Reported: 1}
	if s, _ := Recover(was, nil, 9); s.Attempt.Cause != CauseConfig {
		t.Fatalf("after a crash the cause is %q", s.Attempt.Cause)
	}
}

// What only one may write was given to the new build: whether it was asleep or
// usher crashed in the middle, its failure is that of a hold.
func TestAnAttemptFromAHoldReleaseIsAHoldEvenIfNothingRuns(t *testing.T) {
	was := State{Desired: Release{Rev: 2}, Good: Release{Rev: 1, Hold: true, Ran: true}, Reported: 1}
	p := &play{t: t, next: 9}
	s, f := Recover(was, nil, 9)
	p.take(s, &f)
	p.script(`
		VerifyDone g9                         → Intent g9 r2
		IntentDone g9                         → Prepare g9 r2
		PrepareDone g9                        → RecordRan g9 r2
		RanDone g9                            → Go g9 r2
		GoDone g9                             → Health g9 r2
		HealthDone g9 build failed: unhealthy → RecordOutcome g9 r2 hold release: down (unhealthy) held executed; Stop g9; Place down cache r1.0 (held down)
		StopDone g9                           → Forget g9
		WakeAsked                             →
	`)
}

func TestAHoldEndsWhenItsIncumbentCannotBeProvenGone(t *testing.T) {
	serving(t, "hold").script(`
		Committed r2                          → Verify g2 r2
		Exited g1                             → Disarm idle; Place waking cache r1.0; Stop g1
		VerifyDone g2                         → Intent g2 r2
		StopDone g1 refused: stop unproven    → Arm sweep; RecordOutcome g2 r2 hold release: down (stop unproven); Forget g2; Place down cache r1.0 (stop unproven)
		TimerFired sweep                      → Stop g1 kill
		StopDone g1                           → Forget g1; Verify g3 r2; Place waking cache r1.0
	`)
}
