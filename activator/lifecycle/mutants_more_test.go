package lifecycle

// Mutants of the limit that the generations share, of what happens while a switch
// is under way, and of what the controllers promise each other.

func limitMutants() []mutant {
	return []mutant{
		{
			name: "restores the limit while two live", config: "limits overlap", caught: []string{"I6"},
			step: after(func(_ State, e Event, s *State, f *Effects) {
				if e.Kind == SwitchDone && s.Limit == LimitRaised {
					s.Limit = LimitRestoring
					f.add(Effect{Kind: RestoreLimit, Gen: s.Cur.ID, Rel: s.Cur.Rel})
				}
			}),
		},
		{
			name: "does not mark the limit before it raises it", config: "limits overlap", caught: []string{"I6"},
			step: after(func(_ State, _ Event, s *State, f *Effects) {
				if f.find(RaiseLimit) != nil {
					s.Limit = LimitOne
				}
			}),
		},
		{
			name: "sets a successor up under the limit of one", config: "limits overlap", caught: []string{"I6"},
			step: after(func(_ State, _ Event, s *State, f *Effects) {
				if r := f.find(RaiseLimit); r != nil {
					r.Kind, s.Next.Stage, s.Limit = Intent, Intending, LimitOne
				}
			}),
		},
		{
			name: "begins on top of a limit that was not restored", config: "limits overlap", caught: []string{"R a limit that could not be restored"}, also: []string{"begins on top of a limit"},
			step: func(s State, e Event) (State, Effects) {
				if s.Limit != LimitStuck || e.Kind == TimerFired && e.Timer == TimerSweep {
					return Step(s, e)
				}
				s.Limit = LimitOne
				next, f := Step(s, e)
				if next.Limit == LimitOne {
					next.Limit = LimitStuck
				}
				return next, f
			},
		},
		{
			name: "takes a raise that failed for none", config: "limits overlap", caught: []string{"I6"},
			step: after(func(_ State, e Event, s *State, f *Effects) {
				if e.Kind == RaiseDone && e.Result != OK {
					s.Limit = LimitOne
					f.drop(RestoreLimit)
				}
			}),
		},
		{
			name: "forgets a limit that could not be restored", config: "limits hold", caught: []string{"P1"},
			step: after(func(_ State, e Event, s *State, f *Effects) {
				if e.Kind == RestoreDone && e.Result != OK {
					f.dropArm(TimerSweep)
				}
			}),
		},
		{
			name: "takes the limit for restored after a crash", config: "limits overlap", caught: []string{"I6"},
			rec: func(durable State, found []Found, fresh GenID) (State, Effects) {
				durable.Limit = LimitOne
				return Recover(durable, found, fresh)
			},
		},
	}
}

// heldMutants get wrong what may not be started any more after a hold.
func heldMutants() []mutant {
	lost := func(kind EffectKind) func(State, Event, *State, *Effects) {
		return func(b State, _ Event, s *State, f *Effects) {
			if e := f.find(kind); e != nil && e.Outcome != Done {
				e.DownHeld, s.DownHeld = b.DownHeld, b.DownHeld
			}
		}
	}
	return []mutant{
		{
			name: "a commit lifts all", config: "held down", caught: []string{"I7"}, alone: true,
			step: ahead(func(s *State, e *Event) {
				if e.Kind == Committed {
					s.DownHeld = 0
				}
			}),
		},
		{
			name: "a retry lifts all", config: "hold, retry", caught: []string{"I7"}, alone: true,
			step: ahead(func(s *State, e *Event) {
				if e.Retry {
					s.DownHeld = 0
				}
			}),
		},
		{
			name: "a retry lifts nothing", config: "hold, all restarts", caught: []string{"I1"},
			step: after(func(b State, e Event, s *State, _ *Effects) {
				if e.Kind == RestartAsked && e.Retry {
					s.DownHeld = b.DownHeld
				}
			}),
		},
		{
			name: "is held down by a release of which nothing ran", config: "hold", caught: []string{"L1"},
			step: ahead(func(s *State, e *Event) {
				fresh := s.Good.Rev != 0 && s.Next.Rel.Rev > s.Good.Rev
				if e.Result == BuildFailed && e.Gen == s.Next.ID && fresh && s.Attempt.Mode == Hold {
					s.DownHeld = s.Next.Rel.Rev - 1
				}
			}),
		},
		{name: "does not record with a run what it holds down", config: "hold", caught: []string{"I7"}, alone: true, step: after(lost(RecordRan))},
		{name: "forgets that what was called off had run", config: "hold", caught: []string{"I7"}, step: after(lost(RecordOutcome))},
		{
			name: "keeps on record what a run that did not happen holds down", config: "hold", caught: []string{"I1"},
			step: after(func(_ State, _ Event, _ *State, f *Effects) {
				if o := f.find(RecordOutcome); o != nil && o.Mode == Hold && !o.Executed {
					o.DownHeld = max(o.DownHeld, o.Rel.Rev-1)
				}
			}),
		},
		{
			name: "stops the incumbent before it is recorded that the release has run", config: "hold", caught: []string{"H"},
			step: func(s State, e Event) (State, Effects) {
				early := e.Kind == PrepareDone && s.Attempt.Mode == Hold && s.Cur.Stage == Serving
				if early {
					s.Next.Rel.Ran, s.DownHeld = true, max(s.DownHeld, s.Next.Rel.Rev-1)
				}
				return Step(s, e)
			},
		},
		{
			name: "records once more that the release has run when the incumbent is gone", config: "hold", caught: []string{"H"},
			step: after(func(_ State, e Event, s *State, f *Effects) {
				if g := f.find(Go); g != nil && e.Kind == StopDone {
					g.Kind, s.Next.Stage, s.Next.Ran = RecordRan, Recording, false
				}
			}),
		},
		{
			name: "holds down what serves because the record says so", config: "weak records hold", caught: []string{"L1"},
			rec: func(durable State, found []Found, fresh GenID) (State, Effects) {
				s, f := Recover(durable, found, fresh)
				s.DownHeld = durable.DownHeld
				return s, f
			},
		},
		{
			name: "tries again what failed in hold mode", config: "hold", caught: []string{"I7"},
			step: ahead(func(s *State, e *Event) {
				if e.Kind == StopDone && s.Held != 0 {
					s.Held, s.WakeWanted = 0, true
				}
			}),
		},
	}
}

func betweenMutants() []mutant {
	return []mutant{
		{
			name: "calls a switch off that has happened", config: "between", caught: []string{"I6"},
			step: ahead(func(s *State, e *Event) {
				if e.Kind == SwitchDone && (s.Paused || s.Halt != HaltNone) {
					e.Result, e.Reason = Refused, ReasonNotRecorded
				}
			}),
		},
		{
			name: "calls a release done that it has only restored", config: "fallback", caught: []string{"I9"},
			step: after(func(_ State, _ Event, _ *State, f *Effects) {
				if o := f.find(RecordOutcome); o != nil && o.Outcome == Restored {
					o.Outcome = Done
				}
			}),
		},
		{
			name: "calls restored what its owner has asked for", config: "fallback, retry", caught: []string{"I9"},
			step: after(func(b State, _ Event, _ *State, f *Effects) {
				if o := f.find(RecordOutcome); o != nil && o.Outcome == Done && o.Rel.Own && b.Attempt.Reporting {
					o.Outcome = Restored
				}
			}),
		},
		{
			name: "forgets over a crash who has asked for a fallback", config: "fallback, retry", caught: []string{"I9"}, alone: true,
			rec: func(durable State, found []Found, fresh GenID) (State, Effects) {
				durable.Desired.Restarts = durable.Restarts
				return Recover(durable, found, fresh)
			},
		},
		{
			name: "settles over and over", config: "canary", caught: []string{"I9"},
			step: after(func(_ State, e Event, s *State, f *Effects) {
				if r := f.find(RecordSwitching); r != nil && e.Kind == TimerFired {
					r.Kind, s.Next.Stage = Health, Checking
				}
			}),
		},
		{
			name: "answers a wake by asking for another", config: "overlap", caught: []string{"L2"},
			step: func(s State, e Event) (State, Effects) {
				if e.Kind != WakeAsked {
					return Step(s, e)
				}
				var f Effects
				f.add(Effect{Kind: Place, Slot: s.Slot})
				return s, f
			},
		},
	}
}

// unchecked goes on with an attempt that is superseded while its generation is at a
// stage, as if what is desired were asked for before it and never again.
func unchecked(at Stage) func(State, Event) (State, Effects) {
	return func(s State, e Event) (State, Effects) {
		if e.Kind == Committed && s.Attempt.Gen != 0 && s.Next.Stage == at {
			s.Desired = e.Release
			return s, Effects{}
		}
		if s.Attempt.Gen != 0 {
			s.Attempt.Desired = s.Desired.Rev
		}
		return Step(s, e)
	}
}

// gateMutants leave one of the gates out, or open it too early. What the
// controllers promise each other shows most of that sooner: each invariant is
// asked alone.
func gateMutants() []mutant {
	return []mutant{
		{
			name: "skips the re-check at admission", config: "overlap", caught: []string{"I5"}, alone: true,
			step: after(func(b State, e Event, s *State, f *Effects) {
				if v := f.find(Verify); v != nil && e.Kind == Committed && b.Desired.Rev != 0 {
					v.Rel, s.Next.Rel = b.Desired, b.Desired
				}
			}),
		},
		{name: "skips the re-check at the go-byte", config: "overlap", caught: []string{"I5"}, alone: true, step: unchecked(Preparing)},
		{name: "skips the re-check at the switch", config: "overlap", caught: []string{"I5"}, alone: true, also: []string{"a superseded attempt counts"}, step: unchecked(Checking)},
		{
			name: "reports before the switch", config: "overlap", caught: []string{"I4"}, alone: true,
			step: after(func(_ State, _ Event, s *State, f *Effects) {
				if sw := f.find(Switch); sw != nil {
					swap := *sw
					*sw = Effect{Kind: Report, Gen: swap.Gen, Rel: swap.Rel}
					f.add(swap)
				}
			}),
		},
	}
}

func controllerMutants() []mutant {
	return []mutant{
		{
			name: "lets a lesser halt take the place of a greater one", config: "halt overlap", caught: []string{"C reloader"},
			step: ahead(func(s *State, e *Event) {
				if e.Kind == HaltAsked {
					s.Halt = min(s.Halt, e.Halt)
				}
			}),
		},
		{
			name: "the reloader calls a release good", config: "overlap", caught: []string{"C reloader"},
			step: after(func(_ State, e Event, s *State, _ *Effects) {
				if e.Kind == Committed && s.Cur.Stage == Serving {
					s.Good = s.Desired
				}
			}),
		},
		{
			name: "the sweeper ends an attempt", config: "limits and an exit", caught: []string{"C sweeper"},
			step: after(func(_ State, e Event, s *State, f *Effects) {
				if e.Kind == TimerFired && e.Timer == TimerSweep && s.Attempt.Gen != 0 {
					s.Next.Stage = Settling
				}
			}),
		},
		{
			name: "the roller forgets a restart that is owed", config: "overlap, restart", caught: []string{"C roller"},
			step: after(func(_ State, e Event, s *State, f *Effects) {
				if e.Kind == StopDone && s.Cur.Stage == Serving && s.Restarts != s.Cur.Restart && s.Attempt.Gen == 0 {
					s.Restarts = s.Cur.Restart
				}
			}),
		},
		{
			name: "the waker restarts what serves", config: "overlap", caught: []string{"C waker"},
			step: after(func(b State, e Event, s *State, _ *Effects) {
				if e.Kind == WakeAsked && b.Cur.ID == 0 && s.Next.ID != 0 {
					s.Restarts++
					s.Next.Restart++
				}
			}),
		},
		{
			name: "the idler drops the pages", config: "overlap", caught: []string{"C idler"},
			step: after(func(b State, e Event, s *State, _ *Effects) {
				if e.Kind == SleepDone && s.Cur.Stage == Stopping {
					s.Cache = CacheKey{}
				}
			}),
		},
		{
			name: "an attempt goes on for what is not desired any more", config: "overlap", caught: []string{"C attempt"},
			step: func(s State, e Event) (State, Effects) {
				if e.Kind == Committed && s.Attempt.Gen != 0 && s.Next.Stage == Checking {
					s.Desired = e.Release
					return s, Effects{}
				}
				return Step(s, e)
			},
		},
	}
}
