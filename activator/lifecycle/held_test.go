package lifecycle

import "testing"

// What may not be started any more after a hold: the good release, once a newer one
// has run and may have changed what only one may write.

// ranAndFailed is an app with revision 1 good and revision 2 failed in hold mode.
func ranAndFailed(t *testing.T) *play {
	t.Helper()
	return serving(t, "hold").script(`
		Committed r2 hold                     → Verify g2 r2
		VerifyDone g2                         → Intent g2 r2
		IntentDone g2                         → Prepare g2 r2
		PrepareDone g2                        → RecordRan g2 r2
		RanDone g2                            → Place holding cache r1.0; Disarm idle; CloseStreams g1; Drain g1 short
		DrainDone g1                          → Stop g1
		StopDone g1                           → Forget g1; Go g2 r2
		GoDone g2                             → Health g2 r2
		HealthDone g2 build failed: unhealthy → RecordOutcome g2 r2 hold release: down (unhealthy) held executed; Stop g2; Place down cache r1.0 (held down)
		StopDone g2                           → Forget g2
	`)
}

func TestAHoldOfAnAppThatSleepsOfWhichNothingRanLeavesTheGoodReleaseToBeWoken(t *testing.T) {
	asleep(t, "hold").script(`
		Committed r2 hold                        → Verify g2 r2; Place waking cache r1.0
		VerifyDone g2                            → Intent g2 r2
		IntentDone g2                            → Prepare g2 r2
		PrepareDone g2 build failed: exec failed → RecordOutcome g2 r2 hold release: failed (exec failed) held; Stop g2 kill; Place asleep cache r1.0
		StopDone g2                              → Forget g2
		WakeAsked                                → Intent g3 r1; Place waking cache r1.0
	`)
}

func TestAHoldOfWhichNothingRanStartsTheIncumbentsReleaseAgain(t *testing.T) {
	p := serving(t, "hold").script(`
		Committed r2 hold fallback          → Verify g2 r2
		VerifyDone g2                       → Intent g2 r2
		IntentDone g2                       → Prepare g2 r2
		PrepareDone g2                      → RecordRan g2 r2
		RanDone g2                          → Place holding cache r1.0; Disarm idle; CloseStreams g1; Drain g1 short
		DrainDone g1                        → Stop g1
		StopDone g1                         → Forget g1; Go g2 r2
		GoDone g2 build failed: exec failed → RecordOutcome g2 r2 hold release: failed (exec failed) held; Stop g2 kill; Place waking cache r1.0
		StopDone g2                         → Forget g2; Intent g3 r1
	`)
	p.finish()
	if p.s.Cur.Rel.Rev != 1 || p.s.Held != 2 || p.s.DownHeld != 0 {
		t.Fatalf("revision 1 does not serve in the place of 2: %+v", p.s)
	}
}

func TestWhatANewerOneMayHaveChangedIsNotLiftedByAReleaseThatTheBoxRefuses(t *testing.T) {
	ranAndFailed(t).script(`
		Committed r3 hold                      → Verify g3 r3; Place waking cache r1.0
		WakeAsked                              →
		VerifyDone g3 refused: digest mismatch → RecordOutcome g3 r3 hold release: abandoned (digest mismatch); Forget g3; Arm back-off level 1; Place down cache r1.0 (backing off)
		WakeAsked                              →
		TimerFired back-off                    → Place asleep cache r1.0
		WakeAsked                              → Verify g4 r3; Place waking cache r1.0
	`)
}

func TestWhatANewerOneMayHaveChangedIsNotLiftedByAReleaseThatCannotBeRun(t *testing.T) {
	p := ranAndFailed(t).script(`
		Committed r3 hold                        → Verify g3 r3; Place waking cache r1.0
		VerifyDone g3                            → Intent g3 r3
		IntentDone g3                            → Prepare g3 r3
		PrepareDone g3 build failed: exec failed → RecordOutcome g3 r3 hold release: down (exec failed) held; Stop g3 kill; Place down cache r1.0 (held down)
		StopDone g3                              → Forget g3
		WakeAsked                                →
		Committed r4 hold                        → Verify g4 r4; Place waking cache r1.0
	`)
	p.finish() // a rollback is a revision of its own
	if p.s.Cur.Rel.Rev != 4 || p.s.Slot.State != SlotServing {
		t.Fatalf("revision 4 does not serve: %+v", p.s)
	}
	p.script(`
		SleepAsked   → TrySleep g4 asleep cache r4.0
		SleepDone g4 → Stop g4
		StopDone g4  → Forget g4
		WakeAsked    → Intent g5 r4; Place waking cache r4.0
	`)
}

func TestARetryStartsWhatIsDesiredAndNothingOlder(t *testing.T) {
	ranAndFailed(t).script(`
		RestartAsked retry                     → Verify g3 r2; Place waking cache r1.1
		VerifyDone g3 refused: digest mismatch → RecordOutcome g3 r2 hold retry: abandoned (digest mismatch); Forget g3; Arm back-off level 1; Place down cache r1.1 (backing off)
		TimerFired back-off                    → Place asleep cache r1.1
		WakeAsked                              → Intent g4 r2; Place waking cache r1.1
	`)
}

func TestAReleaseThatWasReplacedAfterItRanLeavesNothingOlderToBeStarted(t *testing.T) {
	asleep(t, "hold").script(`
		Committed r2 hold                        → Verify g2 r2; Place waking cache r1.0
		VerifyDone g2                            → Intent g2 r2
		IntentDone g2                            → Prepare g2 r2
		PrepareDone g2                           → RecordRan g2 r2
		RanDone g2                               → Go g2 r2
		Committed r3 hold                        → RecordOutcome g2 r2 hold release: abandoned (superseded) executed; Stop g2
		StopDone g2                              → Forget g2; Verify g3 r3
		VerifyDone g3                            → Intent g3 r3
		IntentDone g3                            → Prepare g3 r3
		PrepareDone g3 build failed: exec failed → RecordOutcome g3 r3 hold release: down (exec failed) held; Stop g3 kill; Place down cache r1.0 (held down)
	`)
}

// The incumbent dies while a restart in hold mode waits for its last requests. It was
// serving until then, so what follows is as if it had been stopped.
func TestAHoldRestartThatFailsIsHeldDownThoughItsIncumbentDiedByItself(t *testing.T) {
	serving(t, "hold").script(`
		RestartAsked                          → Verify g2 r1
		VerifyDone g2                         → Intent g2 r1
		IntentDone g2                         → Prepare g2 r1
		PrepareDone g2                        → Place holding cache r1.0; Disarm idle; CloseStreams g1; Drain g1 short
		Exited g1                             → Disarm idle; Stop g1
		StopDone g1                           → Forget g1; Go g2 r1
		GoDone g2                             → Health g2 r1
		HealthDone g2 build failed: unhealthy → RecordOutcome g2 r1 hold restart: down (unhealthy) executed; Stop g2; Place down cache r1.0 (held down)
		StopDone g2                           → Forget g2
		WakeAsked                             →
		RestartAsked retry                    → Verify g3 r1; Place waking cache r1.2
	`)
}

// That a release runs, and what it leaves behind, is one record. An attempt that comes
// to nothing before its go-byte takes the second back, not the first.
func TestWhatIsHeldDownIsRecordedWithTheRun(t *testing.T) {
	p := asleep(t, "hold").script(`
		Committed r2 hold → Verify g2 r2; Place waking cache r1.0
		VerifyDone g2     → Intent g2 r2
		IntentDone g2     → Prepare g2 r2
	`)
	f := p.feed(p.event("PrepareDone g2"))
	if e := f.find(RecordRan); e == nil || e.DownHeld != 1 {
		t.Fatalf("got %s: %+v", &f, e)
	}
	p.feed(p.event("RanDone g2"))
	f = p.feed(p.event("GoDone g2 refused: not started"))
	if e := f.find(RecordOutcome); e == nil || e.DownHeld != 0 {
		t.Fatalf("got %s: %+v", &f, e)
	}
	p.script(`
		StopDone g2           → Forget g2; Intent g3 r1
		… TimerFired back-off → Verify g4 r2
		VerifyDone g4         → Intent g4 r2
		IntentDone g4         → Prepare g4 r2
		PrepareDone g4        → RecordRan g4 r2
		RanDone g4            → Place holding cache r1.0; Disarm idle; CloseStreams g3; Drain g3 short
		DrainDone g3          → Stop g3
		StopDone g3           → Forget g3; Go g4 r2
	`)
}
