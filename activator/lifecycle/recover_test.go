package lifecycle

import "testing"

// after a crash: what was committed, what was found, and what Recover makes of
// it. Generation 1 is of revision 1, generation 2 of revision 2.
type recovery struct {
	name  string
	was   State // durable part
	found []Found
	want  string // effects
	slot  SlotState
	cur   GenID
}

func rev(n Revision, hold bool) Release { return Release{Rev: n, Hold: hold, Ran: true} }

func found(n GenID, st Stage, alive bool) Found {
	return Found{ID: n, Rel: rev(Revision(n), false), Stage: st, Alive: alive}
}

func TestRecoveryUndoesBeforeTheSwitchIsRecordedAndRollsForwardFromThen(t *testing.T) {
	one := State{Desired: rev(1, false), Good: rev(1, false), Reported: 1}
	two := State{Desired: rev(2, false), Good: rev(1, false), Reported: 1}
	done := State{Desired: rev(2, false), Good: rev(2, false), Reported: 2}
	held := two
	held.Held = 2
	down := held
	down.DownHeld = 1
	paused := two
	paused.Paused = true
	owed := one
	owed.Restarts = 1
	for _, c := range []recovery{
		{"nothing was ever deployed", State{}, nil, "", SlotEmpty, 0},
		{"a first release waits for its first request", State{Desired: rev(1, false)}, nil, "Place asleep", SlotAsleep, 0},
		{"asleep", one, nil, "Place asleep cache r1.0", SlotAsleep, 0},
		{"serving", one, []Found{found(1, Serving, true)}, "RecordSwitched g1 r1; Arm g1 idle; Place g1 serving g1 cache r1.0", SlotServing, 1},
		{"it died meanwhile", one, []Found{found(1, Serving, false)}, "Stop g1; Place asleep cache r1.0", SlotAsleep, 0},
		{
			"a restart is owed", owed,
			[]Found{found(1, Serving, true)},
			"RecordSwitched g1 r1; Arm g1 idle; Verify g9 r1; Place g1 serving g1 cache r1.0", SlotServing, 1,
		},
		{
			"a release was committed and nothing of it began", two,
			[]Found{found(1, Serving, true)},
			"RecordSwitched g1 r1; Arm g1 idle; Verify g9 r2; Place g1 serving g1 cache r1.0", SlotServing, 1,
		},
		{"a release was committed while it slept", two, nil, "Verify g9 r2; Place waking cache r1.0", SlotWaking, 0},
		{
			"the successor was starting", two,
			[]Found{found(1, Serving, true), found(2, Checking, true)},
			"RecordSwitched g1 r1; Arm g1 idle; Stop g2; Place g1 serving g1 cache r1.0", SlotServing, 1,
		},
		{
			"the switch was recorded", two,
			[]Found{found(1, Serving, true), found(2, Switching, true)},
			"Stop g1; RecordSwitched g2 r2; Arm g2 idle; Place g2 serving g2 cache r2.0; Report g2 r2", SlotServing, 2,
		},
		{
			"the switch was recorded and the successor died", two,
			[]Found{found(1, Serving, true), found(2, Switching, false)},
			"RecordSwitched g1 r1; Arm g1 idle; Stop g2; Place g1 serving g1 cache r1.0", SlotServing, 1,
		},
		{
			"the switch was recorded and both died", two,
			[]Found{found(1, Serving, false), found(2, Switching, false)},
			"Stop g1; Stop g2; Place waking cache r1.0", SlotWaking, 0,
		},
		{
			"switched, the incumbent retires", done,
			[]Found{found(1, Draining, true), found(2, Serving, true)},
			"Stop g1; RecordSwitched g2 r2; Arm g2 idle; Place g2 serving g2 cache r2.0", SlotServing, 2,
		},
		{
			"reported, the successor died, the incumbent lives", done,
			[]Found{found(1, Serving, true), found(2, Serving, false)},
			"Stop g1; Stop g2; Place asleep cache r2.0", SlotAsleep, 0,
		},
		{
			"the incumbent of a hold was being stopped", two,
			[]Found{found(1, Stopping, true), found(2, Checking, false)},
			"Stop g1; Stop g2; Place waking cache r1.0", SlotWaking, 0,
		},
		{"the release is passed over", held, nil, "Place asleep cache r1.0", SlotAsleep, 0},
		{"a hold failed", down, nil, "Place down cache r1.0 (held down)", SlotDown, 0},
		{"paused", paused, []Found{found(1, Serving, true)}, "RecordSwitched g1 r1; Arm g1 idle; Place paused cache r1.0", SlotPaused, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, f := Recover(c.was, c.found, 9)
			if got := f.String(); got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
			if s.Slot.State != c.slot || s.Cur.ID != c.cur {
				t.Errorf("slot %s, current generation %d; want %s, %d", s.Slot, s.Cur.ID, c.slot, c.cur)
			}
		})
	}
}

// What is good does not answer after a crash, so an older one serves beside a newer
// one that fails: it is good all the same, and is tried with pauses.
func TestWhatIsGoodStaysGoodThoughAnOlderOneServesAndIsTriedWithPauses(t *testing.T) {
	was := State{Desired: rev(3, false), Good: rev(2, false), Reported: 1, Held: 3}
	s, f := Recover(was, []Found{found(1, Serving, true), found(2, Serving, false)}, 9)
	if got := f.String(); got != "RecordSwitched g1 r1; Arm g1 idle; Stop g2; Place g1 serving g1 cache r1.0" || s.Good.Rev != 2 {
		t.Fatalf("got %s, good r%d", got, s.Good.Rev)
	}
	p := &play{t: t, next: 9}
	p.take(s, &f)
	p.script(`
		StopDone g2                            → Forget g2; Verify g10 r2
		VerifyDone g10                         → Intent g10 r2
		IntentDone g10                         → Prepare g10 r2
		PrepareDone g10                        → Go g10 r2
		GoDone g10 build failed: exec failed   → RecordOutcome g10 r2 overlap release: failed (exec failed); Stop g10 kill; Arm back-off level 1
		StopDone g10                           → Forget g10
		TimerFired back-off                    → Verify g11 r2
	`)
}

func TestRecoveryReportsWhatServesOnlyWhileTheSlotNamesIt(t *testing.T) {
	was := State{Desired: rev(1, false), Paused: true}
	s, f := Recover(was, []Found{found(1, Switching, true)}, 9)
	for i := range f.Len() {
		if f.At(i).Kind == Report {
			t.Fatalf("it reports while the app is paused: %s", &f)
		}
	}
	s, f = Step(s, Event{Kind: ResumeAsked})
	if !s.SweepArmed {
		t.Fatalf("the report is forgotten: %s", &f)
	}
	if _, f = Step(s, Event{Kind: TimerFired, Timer: TimerSweep}); f.String() != "Report g1 r1" {
		t.Fatalf("got %s", &f)
	}
}

func TestRecoveryPlacesATargetOnItsOwnersWordAndGoesOnToWhatIsDesired(t *testing.T) {
	was := State{Desired: Release{Rev: 2, External: true}, Good: Release{Rev: 1, External: true}, Reported: 1}
	p := &play{t: t, next: 9}
	s, f := Recover(was, nil, 9)
	if got := f.String(); got != "Arm sweep; Place g9 serving g9 cache r1.0" {
		t.Fatalf("got %s", got)
	}
	p.take(s, &f)
	p.script(`
		TimerFired sweep → Intent g10 r2
	`)
}
