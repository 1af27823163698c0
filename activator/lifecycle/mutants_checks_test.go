package lifecycle

import "slices"

// checkMutants show checks of which the other mutants, which show the promises, do
// not set off any.
func checkMutants() []mutant {
	return slices.Concat(attemptCheckMutants(), goCheckMutants(), slotCheckMutants(), recordCheckMutants(), outcomeCheckMutants(), timerCheckMutants(), fallbackMutants())
}

// attemptCheckMutants get wrong when an attempt may begin or go on.
func attemptCheckMutants() []mutant {
	return []mutant{
		{
			name: "ends a generation and not its attempt", config: "overlap", caught: []string{"C attempt"},
			step: after(func(b State, _ Event, s *State, f *Effects) {
				if f.find(RecordOutcome) != nil && s.Next.Stage == Stopping {
					s.Attempt = b.Attempt
				}
			}),
		},
		{
			name: "begins while a generation retires", config: "overlap", caught: []string{"C attempt"}, also: []string{"of an earlier one may be alive"},
			step: func(s State, e Event) (State, Effects) {
				if e.Kind != Committed || s.Old.ID == 0 {
					return Step(s, e)
				}
				old := s.Old
				s.Old = Gen{}
				next, f := Step(s, e)
				next.Old = old
				return next, f
			},
		},
		{
			name: "wakes what is older than what was reported", config: "overlap", caught: []string{"C attempt"},
			also: []string{"is started, below what was reported", "the slot names revision %d after revision %d was reported"},
			step: after(func(_ State, _ Event, s *State, f *Effects) {
				if v := f.find(Intent); v != nil && s.Attempt.Cause == CauseWake && s.Reported == 2 {
					v.Rel.Rev, s.Next.Rel.Rev = 1, 1
				}
			}),
		},
	}
}

// goCheckMutants send a go-byte that must not be sent.
func goCheckMutants() []mutant {
	return []mutant{
		{
			name: "sends the go-byte to the incumbent that is gone", config: "hold", caught: []string{"I10"},
			step: after(func(b State, _ Event, _ *State, f *Effects) {
				if g := f.find(Go); g != nil && b.Cur.Stage == Stopping {
					g.Gen = b.Cur.ID
				}
			}),
		},
		{
			name: "takes a set-up that was refused for one that was not", config: "overlap", caught: []string{"I10"},
			step: ahead(func(_ *State, e *Event) {
				if e.Kind == PrepareDone && e.Result == Refused {
					e.Result, e.Reason = OK, ReasonNone
				}
			}),
		},
		{
			name: "sends the go-byte of what was never set up", config: "overlap", caught: []string{"I10"}, also: []string{"usher crashed and nothing is recorded"},
			step: after(func(_ State, e Event, s *State, f *Effects) {
				if i := f.find(Intent); i != nil && e.Kind == VerifyDone {
					i.Kind, s.Next.Stage, s.Next.Prepared, s.Next.Ran = Go, Going, true, true
				}
			}),
		},
	}
}

// slotCheckMutants store a slot that must not be stored.
func slotCheckMutants() []mutant {
	return []mutant{
		{
			name: "switches to the next number", config: "overlap", caught: []string{"I3"},
			step: after(func(_ State, e Event, _ *State, f *Effects) {
				if sw := f.find(Switch); sw != nil {
					sw.Gen = e.Fresh
				}
			}),
		},
		{
			name: "stores the slot of the incumbent once more", config: "overlap", caught: []string{"I3"},
			step: after(func(b State, _ Event, _ *State, f *Effects) {
				if sw := f.find(Switch); sw != nil {
					m := machine{}
					sw.Slot = m.servingSlot(b.Cur)
				}
			}),
		},
		{
			name: "does not tell the edge that the app wakes", config: "overlap", caught: []string{"I2"},
			step: after(func(_ State, e Event, _ *State, f *Effects) {
				if p := f.find(Place); p != nil && p.Slot.State == SlotWaking {
					f.drop(Place)
				}
			}),
		},
		{
			name: "keeps a generation that it has forgotten", config: "overlap", caught: []string{"P1"},
			step: after(func(b State, e Event, s *State, f *Effects) {
				if f.find(Forget) != nil && e.Gen == b.Old.ID {
					s.Old = b.Old
				}
			}),
		},
	}
}

// recordCheckMutants get the pointers wrong.
func recordCheckMutants() []mutant {
	return []mutant{
		{
			name: "takes a report back when the next one fails", config: "overlap", caught: []string{"I1"},
			step: after(func(b State, e Event, s *State, _ *Effects) {
				if e.Kind == ReportDone && e.Result != OK {
					s.Reported = 0
				}
			}),
		},
		{
			name: "calls good only what serves after a crash", config: "overlap", caught: []string{"I1"},
			rec: func(durable State, found []Found, fresh GenID) (State, Effects) {
				s, f := Recover(durable, found, fresh)
				s.Good = s.Cur.Rel
				return s, f
			},
		},
	}
}

// outcomeCheckMutants say something wrong of how an attempt ended.
func outcomeCheckMutants() []mutant {
	return []mutant{
		{
			name: "calls failed what was called off", config: "overlap", caught: []string{"I5"},
			step: after(func(_ State, _ Event, _ *State, f *Effects) {
				if o := f.find(RecordOutcome); o != nil && o.Outcome == Abandoned {
					o.Outcome = Failed
				}
			}),
		},
		{
			name: "calls an attempt done before the slot is stored", config: "overlap", caught: []string{"I4"},
			step: after(func(_ State, _ Event, _ *State, f *Effects) {
				if sw := f.find(Switch); sw != nil {
					swap := *sw
					*sw = Effect{Kind: RecordOutcome, Gen: swap.Gen, Rel: swap.Rel, Outcome: Done, Executed: true}
					f.add(swap)
				}
			}),
		},
		{
			name: "says of what is down that it has only failed", config: "hold", caught: []string{"I5"},
			step: after(func(_ State, _ Event, _ *State, f *Effects) {
				if o := f.find(RecordOutcome); o != nil && o.Outcome == Down && o.Reason <= ReasonUnhealthy {
					o.Outcome = Failed
				}
			}),
		},
	}
}

// timerCheckMutants leave something to which nothing will come back, or a timer for
// which nothing is left.
func timerCheckMutants() []mutant {
	// unswept does not sweep after that answer is bad.
	unswept := func(k EventKind) func(State, Event) (State, Effects) {
		return after(func(_ State, e Event, s *State, f *Effects) {
			if e.Kind == k && e.Result != OK {
				s.SweepArmed = false
				f.dropArm(TimerSweep)
			}
		})
	}
	return []mutant{
		{
			name: "hurries a drain again and again", config: "overlap", caught: []string{"P3"},
			step: after(func(_ State, _ Event, s *State, _ *Effects) { s.Old.Hurried = false }),
		},
		{
			name: "leaves the limit raised", config: "limits overlap", caught: []string{"P1"},
			step: after(func(b State, _ Event, s *State, f *Effects) {
				if f.find(RestoreLimit) != nil {
					s.Limit = LimitRaised
					f.drop(RestoreLimit)
				}
			}),
		},
		{
			name: "believes that it restores the limit", config: "limits overlap", caught: []string{"P1"},
			step: after(func(_ State, _ Event, _ *State, f *Effects) { f.drop(RestoreLimit) }),
		},
		{name: "does not come back to a limit that is stuck", config: "limits overlap", caught: []string{"P1"}, step: unswept(RestoreDone)},
		{name: "does not come back to a report that is owed", config: "overlap", caught: []string{"P1"}, step: unswept(ReportDone)},
		{
			name: "backs off for ever", config: "overlap", caught: []string{"P1"},
			step: after(func(_ State, _ Event, _ *State, f *Effects) { f.dropArm(TimerBackoff) }),
		},
		{
			name: "lets a canary settle from its go-byte on", config: "canary", caught: []string{"P1"},
			step: after(func(_ State, _ Event, s *State, f *Effects) {
				if h := f.find(Health); h != nil && h.Rel.Canary {
					f.add(Effect{Kind: Arm, Timer: TimerSettle, Gen: h.Gen})
				}
			}),
		},
	}
}

// fallbackMutants let requests wait for a fallback in vain, or not at all.
func fallbackMutants() []mutant {
	return []mutant{
		{
			name: "turns away who could wait for the fallback", config: "fallback", caught: []string{"P4"},
			step: after(func(_ State, _ Event, s *State, f *Effects) {
				if p := f.find(Place); p != nil && f.find(CommitFallback) != nil {
					p.Slot.State, p.Slot.Reason = SlotDown, ReasonHeld
					s.Slot = p.Slot
				}
			}),
		},
		{
			name: "lets requests wait for a fallback that was not committed", config: "fallback", caught: []string{"P1"},
			step: ahead(func(_ *State, e *Event) {
				if e.Kind == FallbackDone {
					e.Kind = EventNone
				}
			}),
		},
	}
}
