package lifecycle

import "testing"

// What follows a hold that fails where the spec asks for a fallback.

func TestAFailedHoldFallsBackToTheGoodBuildOnce(t *testing.T) {
	serving(t, "hold").script(`
		Committed r2 hold fallback            → Verify g2 r2
		VerifyDone g2                         → Intent g2 r2
		IntentDone g2                         → Prepare g2 r2
		PrepareDone g2                        → RecordRan g2 r2
		RanDone g2                            → Place holding cache r1.0; Disarm idle; CloseStreams g1; Drain g1 short
		DrainDone g1                          → Stop g1
		StopDone g1                           → Forget g1; Go g2 r2
		GoDone g2                             → Health g2 r2
		HealthDone g2 build failed: unhealthy → RecordOutcome g2 r2 hold release: down (unhealthy) held executed; Stop g2; CommitFallback g2 r1; Place waking cache r1.0
		Committed r3 hold fallback own        →
		StopDone g2                           → Forget g2; Verify g3 r3
		VerifyDone g3                         → Intent g3 r3
		IntentDone g3                         → Prepare g3 r3
		PrepareDone g3                        → RecordRan g3 r3
		RanDone g3                            → Go g3 r3
		GoDone g3                             → Health g3 r3
		HealthDone g3 build failed: unhealthy → RecordOutcome g3 r3 hold release: down (unhealthy) held executed; Stop g3; Place down cache r1.0 (held down)
		StopDone g3                           → Forget g3
	`)
}

// Nobody waits for a fallback that could not be committed. Should that be tried again
// with success, it is started, though nobody waits any more.
func TestAFallbackThatIsNotCommittedTurnsAwayWhoWaitsForIt(t *testing.T) {
	serving(t, "hold").script(`
		Committed r2 hold fallback              → Verify g2 r2
		VerifyDone g2                           → Intent g2 r2
		IntentDone g2                           → Prepare g2 r2
		PrepareDone g2                          → RecordRan g2 r2
		RanDone g2                              → Place holding cache r1.0; Disarm idle; CloseStreams g1; Drain g1 short
		DrainDone g1                            → Stop g1
		StopDone g1                             → Forget g1; Go g2 r2
		GoDone g2                               → Health g2 r2
		HealthDone g2 build failed: unhealthy   → RecordOutcome g2 r2 hold release: down (unhealthy) held executed; Stop g2; CommitFallback g2 r1; Place waking cache r1.0
		FallbackDone refused: not recorded      → Place down cache r1.0 (held down)
		FallbackDone refused: not recorded      →
		StopDone g2                             → Forget g2
		WakeAsked                               →
		Committed r3 hold fallback own          → Verify g3 r3; Place waking cache r1.0
	`)
}

// What was asked while it fell back is what people want of the fallback.
func TestAFallbackIsCalledOffAsAnyRelease(t *testing.T) {
	failed := func() *play {
		return serving(t, "hold").script(`
			Committed r2 hold fallback            → Verify g2 r2
			VerifyDone g2                         → Intent g2 r2
			IntentDone g2                         → Prepare g2 r2
			PrepareDone g2                        → RecordRan g2 r2
			RanDone g2                            → Place holding cache r1.0; Disarm idle; CloseStreams g1; Drain g1 short
			DrainDone g1                          → Stop g1
			StopDone g1                           → Forget g1; Go g2 r2
			GoDone g2                             → Health g2 r2
			HealthDone g2 build failed: unhealthy → RecordOutcome g2 r2 hold release: down (unhealthy) held executed; Stop g2; CommitFallback g2 r1; Place waking cache r1.0
			Committed r3 hold fallback own        →
		`)
	}
	failed().script(`
		PauseAsked   → Place paused cache r1.0
		StopDone g2  → Forget g2
		ResumeAsked  → Verify g3 r3; Place waking cache r1.0
	`)
	failed().script(`
		Committed r4 hold →
		StopDone g2       → Forget g2; Verify g3 r4
	`)
	failed().script(`
		StopDone g2 refused: stop unproven → Arm sweep; Place down cache r1.0 (stop unproven)
		TimerFired sweep                   → Stop g2 kill
		StopDone g2                        → Forget g2; Verify g3 r3; Place waking cache r1.0
	`)
	failed().script(`
		HaltAsked shutdown → Place down cache r1.0 (stopped)
		StopDone g2        → Forget g2; Gone
	`)
}

func TestAFallbackThatServesIsCalledRestored(t *testing.T) {
	p := serving(t, "hold").script(`
		Committed r2 hold fallback              → Verify g2 r2
		VerifyDone g2                           → Intent g2 r2
		IntentDone g2                           → Prepare g2 r2
		PrepareDone g2                          → RecordRan g2 r2
		RanDone g2                              → Place holding cache r1.0; Disarm idle; CloseStreams g1; Drain g1 short
		DrainDone g1                            → Stop g1
		StopDone g1                             → Forget g1; Go g2 r2
		GoDone g2                               → Health g2 r2
		HealthDone g2 build failed: unhealthy   → RecordOutcome g2 r2 hold release: down (unhealthy) held executed; Stop g2; CommitFallback g2 r1; Place waking cache r1.0
		StopDone g2                             → Forget g2
		Committed r3 hold fallback own          → Verify g3 r3
		VerifyDone g3                           → Intent g3 r3
		IntentDone g3                           → Prepare g3 r3
		PrepareDone g3                          → RecordRan g3 r3
		RanDone g3                              → Go g3 r3
		GoDone g3                               → Health g3 r3
		HealthDone g3                           → RecordSwitching g3 r3
		SwitchingDone g3                        → Switch g3 r3 serving g3 cache r3.0
		SwitchDone g3                           → RecordSwitched g3 r3; Arm g3 idle; Report g3 r3
		ReportDone g3                           → RecordOutcome g3 r3 hold release: restored executed
		RestartAsked                            → Verify g4 r3
	`)
	p.finish()
	if p.s.Cur.ID != 4 || p.s.Reported != 3 {
		t.Fatalf("it was not restarted: %+v", p.s)
	}
}
