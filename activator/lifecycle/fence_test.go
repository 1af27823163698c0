package lifecycle

import "testing"

func TestAFenceAbandonsAnOverlapAndTheIncumbentServesOn(t *testing.T) {
	p := serving(t, "").script(`
		Committed r2                          → Verify g2 r2
		VerifyDone g2                         → Intent g2 r2
		IntentDone g2                         → Prepare g2 r2
		PrepareDone g2                        → RecordRan g2 r2
		HaltAsked fence                       → RecordOutcome g2 r2 overlap release: abandoned (fenced); Stop g2 kill
		RanDone g2 refused: not recorded      →
		StopDone g2 refused: stop unproven    → Arm sweep
		TimerFired sweep                      → Stop g2 kill
		StopDone g2                           → Forget g2; Gone
		SleepAsked                            →
		PauseAsked                            →
		HaltAsked remove                      →
		Exited g1                             → Place fenced cache r1.0
		WakeAsked                             →
		Committed r3                          →
	`)
	if p.s.Cur.ID != 1 || p.s.Held != 0 || p.s.Backoff != 0 {
		t.Fatalf("something was counted or forgotten: %+v", p.s)
	}
}

func TestWhatABuildDoesAfterAFenceIsNotHeldAgainstIt(t *testing.T) {
	serving(t, "").script(`
		Committed r2                          → Verify g2 r2
		VerifyDone g2                         → Intent g2 r2
		IntentDone g2                         → Prepare g2 r2
		PrepareDone g2                        → RecordRan g2 r2
		RanDone g2                            → Go g2 r2
		GoDone g2                             → Health g2 r2
		HaltAsked fence                       → RecordOutcome g2 r2 overlap release: abandoned (fenced) executed; Stop g2
		HealthDone g2 build failed: unhealthy →
		Exited g2                             →
		StopDone g2                           → Forget g2; Gone
	`)
}

func TestAFenceDuringTheDrainOfAHoldGivesTheParkedBack(t *testing.T) {
	serving(t, "hold").script(`
		Committed r2 hold → Verify g2 r2
		VerifyDone g2     → Intent g2 r2
		IntentDone g2     → Prepare g2 r2
		PrepareDone g2    → RecordRan g2 r2
		RanDone g2        → Place holding cache r1.0; Disarm idle; CloseStreams g1; Drain g1 short
		HaltAsked fence   → RecordOutcome g2 r2 hold release: abandoned (fenced); Stop g2 kill; RecordSwitched g1 r1; Place g1 serving g1 cache r1.0
		DrainDone g1      →
		StopDone g2       → Forget g2; Gone
	`)
}

func TestAFenceAfterTheStopOfAHoldStartsNothingAgain(t *testing.T) {
	serving(t, "hold").script(`
		Committed r2 hold                  → Verify g2 r2
		VerifyDone g2                      → Intent g2 r2
		IntentDone g2                      → Prepare g2 r2
		PrepareDone g2                     → RecordRan g2 r2
		RanDone g2                         → Place holding cache r1.0; Disarm idle; CloseStreams g1; Drain g1 short
		DrainDone g1                       → Stop g1
		HaltAsked fence                    → RecordOutcome g2 r2 hold release: abandoned (fenced); Stop g2 kill; Place fenced cache r1.0
		StopDone g2                        → Forget g2; Gone
		StopDone g1 refused: stop unproven → Arm sweep
		TimerFired sweep                   →
	`)
}

func TestAFenceLeavesARetiringGenerationToTheNextOwner(t *testing.T) {
	p := serving(t, "limited")
	p.feed(p.event("Committed r2 limited"))
	for p.s.Old.ID == 0 {
		p.feed(p.todo[0])
	}
	p.script(`
		ReportDone g2   → RecordOutcome g2 r2 overlap release: done executed
		HaltAsked fence → Gone
		DrainDone g1    →
		Exited g1       →
	`)
	if p.s.Old.ID != 1 || p.s.Limit != LimitRaised {
		t.Fatalf("it was not left as it is: %+v", p.s)
	}
}

func TestAFenceTurnsAwayWhoWaitsForAnAppThatSleepsOrIsPaused(t *testing.T) {
	asleep(t, "").script(`
		WakeAsked       → Intent g2 r1; Place waking cache r1.0
		HaltAsked fence → RecordOutcome g2 r1 overlap wake: abandoned (fenced); Forget g2; Gone; Place fenced cache r1.0
		IntentDone g2   →
	`)
	serving(t, "").script(`
		PauseAsked      → Place paused cache r1.0
		HaltAsked fence → Gone; Place fenced cache r1.0
		ResumeAsked     →
	`)
	serving(t, "").script(`
		PauseAsked maintenance → Place maintenance cache r1.0
		HaltAsked fence        → Gone
	`)
}

func TestASwitchStandsThatAFenceMeetsHalfWay(t *testing.T) {
	serving(t, "").script(`
		Committed r2     → Verify g2 r2
		VerifyDone g2    → Intent g2 r2
		IntentDone g2    → Prepare g2 r2
		PrepareDone g2   → RecordRan g2 r2
		RanDone g2       → Go g2 r2
		GoDone g2        → Health g2 r2
		HealthDone g2    → RecordSwitching g2 r2
		SwitchingDone g2 → Switch g2 r2 serving g2 cache r2.0
		HaltAsked fence  →
		SwitchDone g2    → RecordSwitched g2 r2; RecordOutcome g2 r2 overlap release: done (not reported) executed; Gone
	`)
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
		HaltAsked fence                     →
		ReportDone g2 refused: not recorded → Arm sweep; RecordOutcome g2 r2 overlap release: done (not reported) executed; Gone
		TimerFired sweep                    →
	`)
}

func TestARemovalThatAFenceMeetsEndsNothingMore(t *testing.T) {
	serving(t, "").script(`
		HaltAsked remove → Place removed cache r1.0; Disarm idle; Drain g1
		HaltAsked fence  → Gone
		DrainDone g1     →
	`)
}

// One step says all there is to say of what is asked after a fence, so it is
// checked in one step, on every fenced state that was reached.
func TestWhatPeopleAskAfterAFenceDoesNothing(t *testing.T) {
	if raced {
		t.Skip("the run without the race detector does this")
	}
	fenced := 0
	for _, c := range configs() {
		if c.asks&askFence == 0 {
			continue
		}
		x := c.explorer()
		x.whole = true
		x.step = func(s State, e Event) (State, Effects) {
			if s.Halt == HaltFence && !t.Failed() {
				fenced++
				asksNothing(t, s)
			}
			return Step(s, e)
		}
		explore(x, stateCap)
	}
	if fenced == 0 {
		t.Error("no fence was met")
	}
}

func asksNothing(t *testing.T, s State) {
	for _, e := range []Event{
		{Kind: Committed, Release: Release{Rev: s.Desired.Rev + 1}},
		{Kind: RestartAsked},
		{Kind: RestartAsked, Retry: true},
		{Kind: WakeAsked},
		{Kind: SleepAsked},
		{Kind: PauseAsked},
		{Kind: PauseAsked, Maintenance: true},
		{Kind: ResumeAsked},
		{Kind: HaltAsked, Halt: HaltShutdown},
		{Kind: HaltAsked, Halt: HaltStop},
		{Kind: HaltAsked, Halt: HaltRemove},
		{Kind: HaltAsked, Halt: HaltFence},
	} {
		e.Fresh = 30
		if next, f := Step(s, e); next != s || f.Len() != 0 {
			t.Errorf("%s\nstate %+v\nnext  %+v\neffects %s", e, s, next, &f)
			return
		}
	}
}

// fenceMutants forget in one respect that usher does not own its state any more.
func fenceMutants() []mutant {
	// unfenced decides as if there were no fence where it says so.
	unfenced := func(where func(s *State, e *Event) bool) func(State, Event) (State, Effects) {
		return func(s State, e Event) (State, Effects) {
			if s.Halt != HaltFence || !where(&s, &e) {
				return Step(s, e)
			}
			s.Halt = HaltNone
			next, f := Step(s, e)
			next.Halt = HaltFence
			return next, f
		}
	}
	return []mutant{
		{name: "counts a fenced attempt against its build", config: "fence overlap", caught: []string{"F"}, step: after(blame(ReasonFenced))},
		{
			name: "starts again after a fence", config: "fence hold", caught: []string{"C attempt"},
			step: unfenced(func(s *State, e *Event) bool { return e.Kind == StopDone && e.Gen == s.Next.ID }),
		},
		{
			name: "ends what retires after a fence", config: "fence overlap", caught: []string{"F"},
			step: unfenced(func(_ *State, e *Event) bool { return e.Kind == DrainDone }),
		},
		{
			name: "sweeps after a fence", config: "fence and crashes", caught: []string{"F"},
			step: unfenced(func(_ *State, e *Event) bool { return e.Kind == TimerFired && e.Timer == TimerSweep }),
		},
		{
			name: "restores the limit after a fence", config: "fence and limits", caught: []string{"F"},
			step: after(func(b State, e Event, s *State, f *Effects) {
				if b.Halt == HaltFence && e.Kind == StopDone && s.Limit == LimitRaised {
					s.Limit = LimitRestoring
					f.add(Effect{Kind: RestoreLimit, Gen: s.Cur.ID, Rel: s.Cur.Rel})
				}
			}),
		},
		{
			name: "cleans up after an exit after a fence", config: "fence and crashes", caught: []string{"F"},
			step: unfenced(func(_ *State, e *Event) bool { return e.Kind == Exited }),
		},
		{
			name: "takes what serves away at a fence", config: "fence overlap", caught: []string{"I6"},
			step: after(func(_ State, e Event, s *State, f *Effects) {
				if e.Halt == HaltFence && s.Slot.State == SlotServing {
					s.Slot = Slot{State: SlotFenced, Cache: s.Cache}
					f.add(Effect{Kind: Place, Slot: s.Slot})
				}
			}),
		},
		{
			name: "lets requests wait after a fence", config: "fence overlap", caught: []string{"P2"},
			step: after(func(_ State, _ Event, s *State, f *Effects) {
				if p := f.find(Place); p != nil && p.Slot.State == SlotFenced {
					p.Slot.State, s.Slot.State = SlotWaking, SlotWaking
				}
			}),
		},
		{
			name: "calls a fenced app left before its attempt has", config: "fence overlap", caught: []string{"I8"},
			step: after(func(_ State, e Event, s *State, f *Effects) {
				if e.Halt == HaltFence && s.Next.ID != 0 && f.find(Gone) == nil {
					f.add(Effect{Kind: Gone})
				}
			}),
		},
	}
}
