package lifecycle

import "testing"

func TestAWakeBootsWhatIsDesiredAndParksMeanwhile(t *testing.T) {
	p := asleep(t, "").script(`
		WakeAsked        → Intent g2 r1; Place waking cache r1.0
		WakeAsked        →
		IntentDone g2    → Prepare g2 r1
		PrepareDone g2   → Go g2 r1
		GoDone g2        → Health g2 r1
		HealthDone g2    → RecordSwitching g2 r1
		SwitchingDone g2 → Switch g2 r1 serving g2 cache r1.0
		SwitchDone g2    → RecordSwitched g2 r1; Arm g2 idle; RecordOutcome g2 r1 overlap wake: done executed
	`)
	if p.s.Cur.Rel.Rev != 1 || p.s.Attempt.Gen != 0 {
		t.Fatalf("it does not serve: %+v", p.s)
	}
}

func TestAFirstReleaseIsVerifiedRecordedStartedAndReported(t *testing.T) {
	(&play{t: t}).script(`
		Committed r1     → Verify g1 r1; Place waking
		VerifyDone g1    → Intent g1 r1
		IntentDone g1    → Prepare g1 r1
		PrepareDone g1   → RecordRan g1 r1
		RanDone g1       → Go g1 r1
		GoDone g1        → Health g1 r1
		HealthDone g1    → RecordSwitching g1 r1
		SwitchingDone g1 → Switch g1 r1 serving g1 cache r1.0
		SwitchDone g1    → RecordSwitched g1 r1; Arm g1 idle; Report g1 r1
		ReportDone g1    → RecordOutcome g1 r1 overlap install: done executed
	`)
}

func TestAnOverlapStartsTheSuccessorBesideTheIncumbent(t *testing.T) {
	serving(t, "").script(`
		Committed r2     → Verify g2 r2
		VerifyDone g2    → Intent g2 r2
		IntentDone g2    → Prepare g2 r2
		PrepareDone g2   → RecordRan g2 r2
		RanDone g2       → Go g2 r2
		GoDone g2        → Health g2 r2
		HealthDone g2    → RecordSwitching g2 r2
		SwitchingDone g2 → Switch g2 r2 serving g2 cache r2.0
		SwitchDone g2    → RecordSwitched g2 r2; Drain g1; Arm g2 idle; Report g2 r2
		ReportDone g2    → RecordOutcome g2 r2 overlap release: done executed
		DrainDone g1     → Stop g1
		StopDone g1      → Forget g1
	`)
}

func TestACanaryMustSettleBeforeTheSwitch(t *testing.T) {
	serving(t, "").script(`
		Committed r2 canary → Verify g2 r2
		VerifyDone g2       → Intent g2 r2
		IntentDone g2       → Prepare g2 r2
		PrepareDone g2      → RecordRan g2 r2
		RanDone g2          → Go g2 r2
		GoDone g2           → Health g2 r2
		HealthDone g2       → Arm g2 settle
		TimerFired settle   → RecordSwitching g2 r2
		SwitchingDone g2    → Switch g2 r2 serving g2 cache r2.0
	`)
}

func TestACanaryThatExitsWhileItSettlesFailed(t *testing.T) {
	serving(t, "").script(`
		Committed r2 canary → Verify g2 r2
		VerifyDone g2       → Intent g2 r2
		IntentDone g2       → Prepare g2 r2
		PrepareDone g2      → RecordRan g2 r2
		RanDone g2          → Go g2 r2
		GoDone g2           → Health g2 r2
		HealthDone g2       → Arm g2 settle
		Exited g2           → RecordOutcome g2 r2 overlap release: failed (exited) held executed; Disarm settle; Stop g2
		StopDone g2         → Forget g2
		TimerFired settle   →
	`)
}

func TestAHoldProvesTheIncumbentGoneBeforeTheGoByte(t *testing.T) {
	serving(t, "hold").script(`
		Committed r2 hold → Verify g2 r2
		VerifyDone g2     → Intent g2 r2
		IntentDone g2     → Prepare g2 r2
		PrepareDone g2    → RecordRan g2 r2
		RanDone g2        → Place holding cache r1.0; Disarm idle; CloseStreams g1; Drain g1 short
		WakeAsked         →
		DrainDone g1      → Stop g1
		StopDone g1       → Forget g1; Go g2 r2
		GoDone g2         → Health g2 r2
		HealthDone g2     → RecordSwitching g2 r2
		SwitchingDone g2  → Switch g2 r2 serving g2 cache r2.0
		SwitchDone g2     → RecordSwitched g2 r2; Arm g2 idle; Report g2 r2
		ReportDone g2     → RecordOutcome g2 r2 hold release: done executed
	`)
}

func TestAReleaseThatDemandsHoldBindsTheSwapFromItToo(t *testing.T) {
	serving(t, "hold").script(`
		Committed r2   → Verify g2 r2
		VerifyDone g2  → Intent g2 r2
		IntentDone g2  → Prepare g2 r2
		PrepareDone g2 → RecordRan g2 r2
		RanDone g2     → Place holding cache r1.0; Disarm idle; CloseStreams g1; Drain g1 short
	`)
}

func TestAFailedOverlapLeavesTheIncumbentAndIsNotRepeated(t *testing.T) {
	p := serving(t, "").script(`
		Committed r2                          → Verify g2 r2
		VerifyDone g2                         → Intent g2 r2
		IntentDone g2                         → Prepare g2 r2
		PrepareDone g2                        → RecordRan g2 r2
		RanDone g2                            → Go g2 r2
		GoDone g2                             → Health g2 r2
		HealthDone g2 build failed: unhealthy → RecordOutcome g2 r2 overlap release: failed (unhealthy) held executed; Stop g2
		StopDone g2                           → Forget g2
		WakeAsked                             →
	`)
	if p.s.Slot != (Slot{State: SlotServing, Gen: 1, Cache: CacheKey{Rev: 1}}) {
		t.Fatalf("the slot has moved: %s", p.s.Slot)
	}
	p.script(`
		RestartAsked retry → Verify g3 r2
	`)
}

func TestAFailedOverlapOfAnAppThatSleepsLeavesTheGoodReleaseToBeWoken(t *testing.T) {
	asleep(t, "").script(`
		Committed r2                        → Verify g2 r2; Place waking cache r1.0
		VerifyDone g2                       → Intent g2 r2
		IntentDone g2                       → Prepare g2 r2
		PrepareDone g2                      → RecordRan g2 r2
		RanDone g2                          → Go g2 r2
		GoDone g2 build failed: exec failed → RecordOutcome g2 r2 overlap release: failed (exec failed) held; Stop g2 kill; Place asleep cache r1.0
		StopDone g2                         → Forget g2
		WakeAsked                           → Intent g3 r1; Place waking cache r1.0
	`)
}

func TestAFailedHoldStaysDownUntilARetry(t *testing.T) {
	serving(t, "hold").script(`
		Committed r2 hold → Verify g2 r2
		VerifyDone g2     → Intent g2 r2
		IntentDone g2     → Prepare g2 r2
		PrepareDone g2    → RecordRan g2 r2
		RanDone g2        → Place holding cache r1.0; Disarm idle; CloseStreams g1; Drain g1 short
		DrainDone g1      → Stop g1
		StopDone g1       → Forget g1; Go g2 r2
		GoDone g2         → Health g2 r2
		Exited g2 quickly → RecordOutcome g2 r2 hold release: down (exited) held executed; Stop g2; Place down cache r1.0 (held down)
		StopDone g2       → Forget g2
		WakeAsked         →
		TimerFired sweep  →
		RestartAsked retry → Verify g3 r2; Place waking cache r1.1
	`)
}

func TestAFailedHoldStaysDownUntilARelease(t *testing.T) {
	serving(t, "hold").script(`
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
		Committed r3 hold                     → Verify g3 r3; Place waking cache r1.0
	`)
}

func TestAHoldThatIsSupersededBeforeTheStopGivesTheParkedBack(t *testing.T) {
	serving(t, "hold").script(`
		Committed r2 hold → Verify g2 r2
		VerifyDone g2     → Intent g2 r2
		IntentDone g2     → Prepare g2 r2
		PrepareDone g2    → RecordRan g2 r2
		RanDone g2        → Place holding cache r1.0; Disarm idle; CloseStreams g1; Drain g1 short
		Committed r3 hold → RecordOutcome g2 r2 hold release: abandoned (superseded); Stop g2 kill; RecordSwitched g1 r1; Arm g1 idle; Place g1 serving g1 cache r1.0
		DrainDone g1      →
		StopDone g2       → Forget g2; Verify g3 r3
	`)
}

func TestAHoldThatIsSupersededAfterTheStopStartsTheNewest(t *testing.T) {
	serving(t, "hold").script(`
		Committed r2 hold → Verify g2 r2
		VerifyDone g2     → Intent g2 r2
		IntentDone g2     → Prepare g2 r2
		PrepareDone g2    → RecordRan g2 r2
		RanDone g2        → Place holding cache r1.0; Disarm idle; CloseStreams g1; Drain g1 short
		DrainDone g1      → Stop g1
		Committed r3 hold → RecordOutcome g2 r2 hold release: abandoned (superseded); Stop g2 kill; Place waking cache r1.0
		StopDone g2       → Forget g2
		StopDone g1       → Forget g1; Verify g3 r3
	`)
}

func TestAHoldThatTheBoxRefusesAfterTheStopStartsTheIncumbentsReleaseAgain(t *testing.T) {
	serving(t, "hold").script(`
		Committed r2 hold              → Verify g2 r2
		VerifyDone g2                  → Intent g2 r2
		IntentDone g2                  → Prepare g2 r2
		PrepareDone g2                 → RecordRan g2 r2
		RanDone g2                     → Place holding cache r1.0; Disarm idle; CloseStreams g1; Drain g1 short
		DrainDone g1                   → Stop g1
		StopDone g1                    → Forget g1; Go g2 r2
		GoDone g2 refused: not started → RecordOutcome g2 r2 hold release: abandoned (not started); Stop g2 kill; Arm back-off level 1; Place waking cache r1.0
		StopDone g2                    → Forget g2; Intent g3 r1
	`)
}

func TestAHoldWhoseRunCannotBeRecordedStopsNothing(t *testing.T) {
	p := serving(t, "hold").script(`
		Committed r2 hold                → Verify g2 r2
		VerifyDone g2                    → Intent g2 r2
		IntentDone g2                    → Prepare g2 r2
		PrepareDone g2                   → RecordRan g2 r2
		RanDone g2 refused: not recorded → RecordOutcome g2 r2 hold release: abandoned (not recorded); Stop g2 kill; Arm back-off level 1
		StopDone g2                      → Forget g2
		TimerFired back-off              → Verify g3 r2
	`)
	if p.s.Slot != (Slot{State: SlotServing, Gen: 1, Cache: CacheKey{Rev: 1}}) {
		t.Fatalf("the slot has moved: %s", p.s.Slot)
	}
}

func TestAHoldWhoseIncumbentCannotBeProvenGoneIsDownUntilTheSweepHasTheProof(t *testing.T) {
	serving(t, "hold").script(`
		Committed r2 hold                  → Verify g2 r2
		VerifyDone g2                      → Intent g2 r2
		IntentDone g2                      → Prepare g2 r2
		PrepareDone g2                     → RecordRan g2 r2
		RanDone g2                         → Place holding cache r1.0; Disarm idle; CloseStreams g1; Drain g1 short
		DrainDone g1                       → Stop g1
		StopDone g1 refused: stop unproven → Arm sweep; RecordOutcome g2 r2 hold release: down (stop unproven); Stop g2 kill; Place down cache r1.0 (stop unproven)
		StopDone g2                        → Forget g2
		WakeAsked                          →
		TimerFired sweep                   → Stop g1 kill
		StopDone g1 refused: stop unproven → Arm sweep
		TimerFired sweep                   → Stop g1 kill
		StopDone g1                        → Forget g1; Verify g3 r2; Place waking cache r1.0
	`)
}

func TestAnIncumbentThatDiesWhileItsHoldSuccessorIsSetUpIsProvenGoneFirst(t *testing.T) {
	serving(t, "hold").script(`
		Committed r2 hold → Verify g2 r2
		VerifyDone g2     → Intent g2 r2
		IntentDone g2     → Prepare g2 r2
		Exited g1         → Disarm idle; Place waking cache r1.0; Stop g1
		PrepareDone g2    → RecordRan g2 r2
		RanDone g2        → Place holding cache r1.0
		StopDone g1       → Forget g1; Go g2 r2
	`)
}

func TestAnOverlapThatIsSupersededIsAbandonedAndTheNewestStarts(t *testing.T) {
	serving(t, "").script(`
		Committed r2                       → Verify g2 r2
		VerifyDone g2                      → Intent g2 r2
		IntentDone g2                      → Prepare g2 r2
		PrepareDone g2                     → RecordRan g2 r2
		RanDone g2                         → Go g2 r2
		GoDone g2                          → Health g2 r2
		Committed r3                       → RecordOutcome g2 r2 overlap release: abandoned (superseded) executed; Stop g2
		HealthDone g2 build failed: exited →
		StopDone g2                        → Forget g2; Verify g3 r3
	`)
}

func TestARestartOpensANewCacheGeneration(t *testing.T) {
	p := serving(t, "").script(`
		RestartAsked     → Verify g2 r1
		VerifyDone g2    → Intent g2 r1
		IntentDone g2    → Prepare g2 r1
		PrepareDone g2   → Go g2 r1
		GoDone g2        → Health g2 r1
		HealthDone g2    → RecordSwitching g2 r1
		SwitchingDone g2 → Switch g2 r1 serving g2 cache r1.1
		SwitchDone g2    → RecordSwitched g2 r1; Drain g1; Arm g2 idle; RecordOutcome g2 r1 overlap restart: done executed
	`)
	if p.s.Cache != (CacheKey{Rev: 1, Restart: 1}) {
		t.Fatalf("the cache generation is %+v", p.s.Cache)
	}
	asleep(t, "").script(`
		RestartAsked → Place asleep cache r1.1
	`)
}

func TestARestartThatArrivesDuringADrainHurriesIt(t *testing.T) {
	p := serving(t, "")
	p.feed(p.event("Committed r2"))
	for p.s.Old.ID == 0 {
		p.feed(p.todo[0])
	}
	p.script(`
		ReportDone g2 → RecordOutcome g2 r2 overlap release: done executed
		RestartAsked  → CutDrain g1
		RestartAsked  →
		DrainDone g1  → Stop g1
		StopDone g1   → Forget g1; Verify g3 r2
	`)
}

func TestAFailedRestartIsPaidAndTheIncumbentStays(t *testing.T) {
	serving(t, "").script(`
		RestartAsked                          → Verify g2 r1
		VerifyDone g2                         → Intent g2 r1
		IntentDone g2                         → Prepare g2 r1
		PrepareDone g2                        → Go g2 r1
		GoDone g2                             → Health g2 r1
		HealthDone g2 build failed: unhealthy → RecordOutcome g2 r1 overlap restart: failed (unhealthy) executed; Stop g2
		StopDone g2                           → Forget g2
	`)
}

func TestACrashTakesTheAddressAwayAtOnceAndARequestWakesIt(t *testing.T) {
	serving(t, "").script(`
		Exited g1   → Disarm idle; Place asleep cache r1.0; Stop g1
		WakeAsked   → Place waking cache r1.0
		StopDone g1 → Forget g1; Intent g2 r1
	`)
}

func TestAnIncumbentThatDiesDuringAnOverlapParksUntilTheSwitch(t *testing.T) {
	serving(t, "").script(`
		Committed r2      → Verify g2 r2
		VerifyDone g2     → Intent g2 r2
		Exited g1 quickly → Disarm idle; Place waking cache r1.0; Stop g1
		IntentDone g2     → Prepare g2 r2
		PrepareDone g2    → RecordRan g2 r2
		RanDone g2        → Go g2 r2
		GoDone g2         → Health g2 r2
		HealthDone g2     → RecordSwitching g2 r2
		SwitchingDone g2  → Switch g2 r2 serving g2 cache r2.0
		SwitchDone g2     → RecordSwitched g2 r2; Arm g2 idle; Report g2 r2
		ReportDone g2     → RecordOutcome g2 r2 overlap release: done executed
		StopDone g1       → Forget g1
	`)
}

func TestACrashLoopWaitsLongerAndLonger(t *testing.T) {
	serving(t, "").script(`
		Exited g1 quickly   → Disarm idle; Place asleep cache r1.0; Stop g1
		StopDone g1         → Forget g1
		WakeAsked           → Intent g2 r1; Place waking cache r1.0
		… Exited g2 quickly → Disarm idle; Arm back-off level 2; Place down cache r1.0 (backing off); Stop g2
		StopDone g2         → Forget g2
		WakeAsked           →
		TimerFired back-off → Place asleep cache r1.0
		WakeAsked           → Intent g3 r1; Place waking cache r1.0
		… Exited g3 quickly → Disarm idle; Arm back-off level 3; Place down cache r1.0 (backing off); Stop g3
		StopDone g3         → Forget g3
		TimerFired back-off → Place asleep cache r1.0
		WakeAsked           → Intent g4 r1; Place waking cache r1.0
		… Exited g4 quickly → Disarm idle; Arm back-off level 3; Place down cache r1.0 (backing off); Stop g4
		StopDone g4         → Forget g4
		TimerFired back-off → Place asleep cache r1.0
		WakeAsked           → Intent g5 r1; Place waking cache r1.0
		… Exited g5         → Disarm idle; Place asleep cache r1.0; Stop g5
		StopDone g5         → Forget g5
	`)
}

func TestAFailedWakeBacksOffAndTellsThoseWhoWait(t *testing.T) {
	asleep(t, "").script(`
		WakeAsked                             → Intent g2 r1; Place waking cache r1.0
		IntentDone g2                         → Prepare g2 r1
		PrepareDone g2                        → Go g2 r1
		GoDone g2                             → Health g2 r1
		HealthDone g2 build failed: unhealthy → RecordOutcome g2 r1 overlap wake: down (unhealthy) executed; Stop g2; Arm back-off level 1; Place down cache r1.0 (backing off)
		StopDone g2                           → Forget g2
		WakeAsked                             →
		TimerFired back-off                   → Place asleep cache r1.0
		WakeAsked                             → Intent g3 r1; Place waking cache r1.0
	`)
}

func TestDesiredAndGoodDoNotTakeTurnsWhenTheBoxRefusesBoth(t *testing.T) {
	asleep(t, "").script(`
		Committed r2                           → Verify g2 r2; Place waking cache r1.0
		VerifyDone g2 refused: digest mismatch → RecordOutcome g2 r2 overlap release: abandoned (digest mismatch); Forget g2; Arm back-off level 1; Intent g3 r1
		IntentDone g3 refused: not recorded    → RecordOutcome g3 r1 overlap wake: abandoned (not recorded); Forget g3; Arm back-off level 2; Place down cache r1.0 (backing off)
		WakeAsked                              →
		TimerFired back-off                    → Place asleep cache r1.0
		WakeAsked                              → Verify g4 r2; Place waking cache r1.0
	`)
}

func TestABusyAppDoesNotSleep(t *testing.T) {
	serving(t, "").script(`
		SleepAsked                 → TrySleep g1 asleep cache r1.0
		SleepDone g1 refused: none → Arm g1 idle
		SleepAsked                 → TrySleep g1 asleep cache r1.0
		SleepDone g1               → Stop g1
		StopDone g1                → Forget g1
	`)
}

func TestAWakeDuringTheStopOfASleepWaitsForTheProof(t *testing.T) {
	serving(t, "").script(`
		SleepAsked   → TrySleep g1 asleep cache r1.0
		SleepDone g1 → Stop g1
		WakeAsked    → Place waking cache r1.0
		StopDone g1  → Forget g1; Intent g2 r1
	`)
}

func TestAnAppDoesNotSleepWhileASwapIsUnderWay(t *testing.T) {
	serving(t, "").script(`
		Committed r2 → Verify g2 r2
		SleepAsked   → Arm g1 idle
	`)
}

func TestPauseAbandonsAnOverlapAndResumeBeginsAgain(t *testing.T) {
	serving(t, "").script(`
		Committed r2   → Verify g2 r2
		VerifyDone g2  → Intent g2 r2
		IntentDone g2  → Prepare g2 r2
		PauseAsked     → RecordOutcome g2 r2 overlap release: abandoned (paused); Stop g2 kill; Place paused cache r1.0
		PrepareDone g2 →
		StopDone g2    → Forget g2
		SleepAsked     →
		ResumeAsked    → Arm g1 idle; Verify g3 r2; Place g1 serving g1 cache r1.0
	`)
}

func TestPauseDuringTheDrainOfAHoldKeepsTheIncumbent(t *testing.T) {
	serving(t, "hold").script(`
		Committed r2 hold → Verify g2 r2
		VerifyDone g2     → Intent g2 r2
		IntentDone g2     → Prepare g2 r2
		PrepareDone g2    → RecordRan g2 r2
		RanDone g2        → Place holding cache r1.0; Disarm idle; CloseStreams g1; Drain g1 short
		PauseAsked        → RecordOutcome g2 r2 hold release: abandoned (paused); Stop g2 kill; RecordSwitched g1 r1; Arm g1 idle; Place paused cache r1.0
		DrainDone g1      →
		StopDone g2       → Forget g2
		ResumeAsked       → Arm g1 idle; Verify g3 r2; Place g1 serving g1 cache r1.0
	`)
}

func TestPauseAfterTheStopOfAHoldStartsOnResume(t *testing.T) {
	serving(t, "hold").script(`
		Committed r2 hold → Verify g2 r2
		VerifyDone g2     → Intent g2 r2
		IntentDone g2     → Prepare g2 r2
		PrepareDone g2    → RecordRan g2 r2
		RanDone g2        → Place holding cache r1.0; Disarm idle; CloseStreams g1; Drain g1 short
		DrainDone g1      → Stop g1
		PauseAsked        → RecordOutcome g2 r2 hold release: abandoned (paused); Stop g2 kill; Place paused cache r1.0
		StopDone g2       → Forget g2
		StopDone g1       → Forget g1
		ResumeAsked       → Verify g3 r2; Place waking cache r1.0
	`)
}

func TestMaintenanceTurnsAwayAndResumeServesOn(t *testing.T) {
	serving(t, "").script(`
		PauseAsked maintenance → Place maintenance cache r1.0
		ResumeAsked            → Arm g1 idle; Place g1 serving g1 cache r1.0
	`)
	asleep(t, "").script(`
		PauseAsked   → Place paused cache r1.0
		WakeAsked    →
		Committed r2 →
		ResumeAsked  → Verify g2 r2; Place waking cache r1.0
	`)
}

func TestRemoveEndsTheAttemptDrainsAndProvesEverythingGone(t *testing.T) {
	p := serving(t, "").script(`
		Committed r2     → Verify g2 r2
		VerifyDone g2    → Intent g2 r2
		IntentDone g2    → Prepare g2 r2
		HaltAsked remove → RecordOutcome g2 r2 overlap release: abandoned (removed); Stop g2 kill; Place removed cache r1.0; Disarm idle; Drain g1
		PrepareDone g2   →
		StopDone g2      → Forget g2
		DrainDone g1     → Stop g1
		StopDone g1      → Forget g1; Gone
		WakeAsked        →
		Committed r3     →
	`)
	if !p.s.Gone {
		t.Fatal("it is not gone")
	}
	asleep(t, "").script(`
		HaltAsked remove → Place removed cache r1.0; Gone
	`)
}

func TestShutdownEndsTheAttemptAndLeavesTheAppRunning(t *testing.T) {
	serving(t, "").script(`
		Committed r2       → Verify g2 r2
		VerifyDone g2      → Intent g2 r2
		IntentDone g2      → Prepare g2 r2
		PrepareDone g2     → RecordRan g2 r2
		HaltAsked shutdown → RecordOutcome g2 r2 overlap release: abandoned (shutdown); Stop g2 kill
		RanDone g2         →
		StopDone g2        → Forget g2; Gone
		SleepAsked         →
	`)
}

func TestShutdownDuringTheDrainOfAHoldGivesTheParkedBack(t *testing.T) {
	serving(t, "hold").script(`
		Committed r2 hold  → Verify g2 r2
		VerifyDone g2      → Intent g2 r2
		IntentDone g2      → Prepare g2 r2
		PrepareDone g2     → RecordRan g2 r2
		RanDone g2         → Place holding cache r1.0; Disarm idle; CloseStreams g1; Drain g1 short
		HaltAsked shutdown → RecordOutcome g2 r2 hold release: abandoned (shutdown); Stop g2 kill; RecordSwitched g1 r1; Arm g1 idle; Place g1 serving g1 cache r1.0
		StopDone g2        → Forget g2; Gone
	`)
}

func TestStopTakesTheAppWithIt(t *testing.T) {
	serving(t, "").script(`
		HaltAsked stop                     → Place down cache r1.0 (stopped); Disarm idle; Drain g1
		DrainDone g1                       → Stop g1
		StopDone g1 refused: stop unproven → Arm sweep
		TimerFired sweep                   → Stop g1 kill
		StopDone g1                        → Forget g1; Gone
	`)
}

func TestAReportThatCannotBeWrittenIsTriedAgain(t *testing.T) {
	serving(t, "").script(`
		Committed r2                        → Verify g2 r2
		VerifyDone g2                       → Intent g2 r2
		IntentDone g2                       → Prepare g2 r2
		PrepareDone g2                      → RecordRan g2 r2
		RanDone g2                          → Go g2 r2
		GoDone g2                           → Health g2 r2
		HealthDone g2                       → RecordSwitching g2 r2
		SwitchingDone g2                    → Switch g2 r2 serving g2 cache r2.0
		SwitchDone g2                       → RecordSwitched g2 r2; Drain g1; Arm g2 idle; Report g2 r2
		ReportDone g2 refused: not recorded → Arm sweep; RecordOutcome g2 r2 overlap release: done (not reported) executed
		DrainDone g1                        → Stop g1
		StopDone g1                         → Forget g1
		SleepAsked                          → Arm g2 idle
		PauseAsked                          → Place paused cache r2.0
		TimerFired sweep                    →
		ResumeAsked                         → Arm g2 idle; Arm sweep; Place g2 serving g2 cache r2.0
		TimerFired sweep                    → Report g2 r2
		ReportDone g2 refused: not recorded → Arm sweep
		TimerFired sweep                    → Report g2 r2
		ReportDone g2                       →
	`)
}

func TestAProcessThatEndsRightBeforeTheSwitchFailsAndNothingMoves(t *testing.T) {
	serving(t, "").script(`
		Committed r2                       → Verify g2 r2
		VerifyDone g2                      → Intent g2 r2
		IntentDone g2                      → Prepare g2 r2
		PrepareDone g2                     → RecordRan g2 r2
		RanDone g2                         → Go g2 r2
		GoDone g2                          → Health g2 r2
		HealthDone g2                      → RecordSwitching g2 r2
		SwitchingDone g2                   → Switch g2 r2 serving g2 cache r2.0
		SwitchDone g2 build failed: exited → RecordOutcome g2 r2 overlap release: failed (exited) held executed; Stop g2
		StopDone g2                        → Forget g2
	`)
}

func TestALateAnswerIsCleanedUpAndNothingElse(t *testing.T) {
	serving(t, "").script(`
		GoDone g9      → Stop g9 kill
		PrepareDone g9 → Stop g9 kill
		HealthDone g9  →
		VerifyDone g9  →
		SwitchDone g9  →
		StopDone g9    →
		SleepDone g9   →
		Exited g9      →
		ReportDone g9  →
	`)
}

func TestAnExternalTargetIsCheckedAndNeverStopped(t *testing.T) {
	serving(t, "external").script(`
		SleepAsked            →
		Committed r2 external → Intent g2 r2
		IntentDone g2         → Prepare g2 r2
		PrepareDone g2        → Go g2 r2
		GoDone g2             → Health g2 r2
		HealthDone g2         → RecordSwitching g2 r2
		SwitchingDone g2      → Switch g2 r2 serving g2 cache r2.0
		SwitchDone g2         → RecordSwitched g2 r2; Drain g1; Arm g2 idle; Report g2 r2
		ReportDone g2         → RecordOutcome g2 r2 overlap release: done executed
		DrainDone g1          → Stop g1
		StopDone g1           → Forget g1
	`)
}

func TestWithoutAGenerationNumberTheSweepTriesAgain(t *testing.T) {
	p := asleep(t, "")
	p.s, _ = Step(p.s, Event{Kind: WakeAsked})
	if p.s.Attempt.Gen != 0 || !p.s.SweepArmed || p.s.Slot.State != SlotWaking {
		t.Fatalf("want an armed sweep and no attempt: %+v", p.s)
	}
	p.script(`
		TimerFired sweep → Intent g2 r1
	`)
}

func TestWhatStartsAgainAfterAPauseKeepsItsCause(t *testing.T) {
	for ask, want := range map[string]Cause{"Committed r2 canary": CauseRelease, "RestartAsked": CauseRestart} {
		p := serving(t, "")
		for _, e := range []string{ask, "VerifyDone g2", "PauseAsked", "ResumeAsked"} {
			p.feed(p.event(e))
		}
		if p.s.Attempt.Cause != want {
			t.Errorf("%s, paused and resumed: cause %q, want %q", ask, p.s.Attempt.Cause, want)
		}
	}
}

func TestACanaryThatNeverServedSettlesWhenItIsWoken(t *testing.T) {
	asleep(t, "").script(`
		Committed r2 canary                    → Verify g2 r2; Place waking cache r1.0
		VerifyDone g2 refused: digest mismatch → RecordOutcome g2 r2 overlap release: abandoned (digest mismatch); Forget g2; Arm back-off level 1; Intent g3 r1
		TimerFired back-off                    →
		IntentDone g3 refused: not recorded    → RecordOutcome g3 r1 overlap wake: abandoned (not recorded); Forget g3; Arm back-off level 2; Verify g4 r2
		VerifyDone g4                          → Intent g4 r2
		IntentDone g4                          → Prepare g4 r2
		PrepareDone g4                         → RecordRan g4 r2
		RanDone g4                             → Go g4 r2
		GoDone g4                              → Health g4 r2
		HealthDone g4                          → Arm g4 settle
	`)
}

func TestARestartThatFindsTheAppWakingIsPaidByTheStartThatFollows(t *testing.T) {
	asleep(t, "").script(`
		WakeAsked    → Intent g2 r1; Place waking cache r1.0
		RestartAsked → RecordOutcome g2 r1 overlap wake: abandoned (superseded); Forget g2; Verify g3 r1
	`)
}
