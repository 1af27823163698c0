package lifecycle

import "testing"

// Rules that no promise of the exploration is about: another choice would keep all
// of them, and be worse for people.

func TestAWakeOfAGoodCanaryDoesNotSettleAgain(t *testing.T) {
	p := &play{t: t}
	p.feed(p.event("Committed r1 canary"))
	p.finish()
	p.feed(p.event("TimerFired settle"))
	p.finish()
	p.feed(p.event("SleepAsked"))
	p.finish()
	if p.s.Slot.State != SlotAsleep || p.s.Good.Rev != 1 {
		t.Fatalf("it does not sleep: %+v", p.s)
	}
	p.feed(p.event("WakeAsked"))
	p.finish()
	if p.s.Cur.Stage != Serving || p.s.Next.ID != 0 {
		t.Errorf("a request waits for a canary that was good before: %+v", p.s)
	}
}

func TestWhatBeginsAfterABackOffIsARetry(t *testing.T) {
	p := serving(t, "").script(`
		Committed r2                           → Verify g2 r2
		VerifyDone g2 refused: digest mismatch → RecordOutcome g2 r2 overlap release: abandoned (digest mismatch); Forget g2; Arm back-off level 1
		TimerFired back-off                    → Verify g3 r2
	`)
	if p.s.Attempt.Cause != CauseRetry {
		t.Errorf("its cause is %s", p.s.Attempt.Cause)
	}
}

func TestANewReleaseStartsTheBackOffFromItsBeginning(t *testing.T) {
	serving(t, "").script(`
		Committed r2                           → Verify g2 r2
		VerifyDone g2 refused: digest mismatch → RecordOutcome g2 r2 overlap release: abandoned (digest mismatch); Forget g2; Arm back-off level 1
		TimerFired back-off                    → Verify g3 r2
		VerifyDone g3 refused: digest mismatch → RecordOutcome g3 r2 overlap retry: abandoned (digest mismatch); Forget g3; Arm back-off level 2
		Committed r3                           → Disarm back-off; Verify g4 r3
		VerifyDone g4 refused: digest mismatch → RecordOutcome g4 r3 overlap release: abandoned (digest mismatch); Forget g4; Arm back-off level 1
	`)
}

// The first crash after a long life is woken at once, whatever came before that life.
func TestALongLifeStartsTheBackOffFromItsBeginning(t *testing.T) {
	p := serving(t, "")
	for _, exit := range []string{"Exited g1 quickly", "Exited g2", "Exited g3 quickly"} {
		p.feed(p.event(exit))
		p.finish()
		if p.s.Slot.State != SlotAsleep {
			t.Fatalf("after %s a request does not wake it: %+v", exit, p.s)
		}
		p.feed(p.event("WakeAsked"))
		p.finish()
		if p.s.Cur.Stage != Serving {
			t.Fatalf("after %s it does not serve: %+v", exit, p.s)
		}
	}
}

func TestAShutdownAfterARemovalRemovesAllTheSame(t *testing.T) {
	p := serving(t, "")
	p.feed(p.event("HaltAsked remove"))
	p.feed(p.event("HaltAsked shutdown"))
	if p.s.Halt != HaltRemove || p.s.Slot.State != SlotRemoved {
		t.Errorf("halt %d, slot %s", p.s.Halt, p.s.Slot.State)
	}
	p.finish()
	if !p.s.Gone || p.s.Cur.ID != 0 {
		t.Errorf("it was to end: %+v", p.s)
	}
}

// Nobody has to ask again for a restart whose hold had to wait for a proof.
func TestTheProofOfAStopResumesTheHoldThatItHadEnded(t *testing.T) {
	p := serving(t, "hold")
	p.feed(p.event("RestartAsked"))
	for i := 0; p.s.Cur.Stage != Stopping; i++ {
		if i == 20 {
			t.Fatalf("the incumbent is not stopped: %+v", p.s)
		}
		e := p.todo[0]
		p.todo = p.todo[1:]
		p.feed(e)
	}
	p.feed(Event{Kind: StopDone, Gen: 1, Result: Refused, Reason: ReasonUnproven})
	p.finish()
	if p.s.Slot.State != SlotDown || p.s.Slot.Reason != ReasonUnproven {
		t.Fatalf("slot %+v", p.s.Slot)
	}
	p.feed(p.event("TimerFired sweep"))
	p.finish()
	if p.s.Cur.Stage != Serving || p.s.Cur.Restart != 1 {
		t.Errorf("the restarted one does not serve: %+v", p.s)
	}
}
