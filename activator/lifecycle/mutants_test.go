package lifecycle

import (
	"slices"
	"strings"
	"testing"
)

// A mutant is a deliberately wrong variant of Step or Recover: it wraps the real
// one and spoils what goes in or comes out. Each must be caught by the invariant
// it names, or the exploration could not find that mistake.
type mutant struct {
	name   string
	config string   // where it is explored
	caught []string // any of these
	alone  bool     // only the first of them is asked
	also   []string // what other checks say that catch it when each is asked alone
	step   func(s State, e Event) (State, Effects)
	rec    func(durable State, found []Found, fresh GenID) (State, Effects)
	flaw   flaw // of the environment
}

// drop takes the effects of a kind out.
func (f *Effects) drop(k EffectKind) {
	kept := slices.DeleteFunc(slices.Clone(f.list[:f.n]), func(e Effect) bool { return e.Kind == k })
	*f = Effects{}
	for _, e := range kept {
		f.add(e)
	}
}

// find returns the first effect of a kind, or nil.
func (f *Effects) find(k EffectKind) *Effect {
	for i := range f.n {
		if f.list[i].Kind == k {
			return &f.list[i]
		}
	}
	return nil
}

// dropArm takes out that a timer is armed.
func (f *Effects) dropArm(t Timer) {
	for i := range f.n {
		if f.list[i].Kind == Arm && f.list[i].Timer == t {
			f.list[i].Timer = TimerNone
		}
	}
}

// after spoils what Step returned.
func after(spoil func(before State, e Event, s *State, f *Effects)) func(State, Event) (State, Effects) {
	return func(s State, e Event) (State, Effects) {
		next, f := Step(s, e)
		spoil(s, e, &next, &f)
		return next, f
	}
}

// ahead spoils what Step is given.
func ahead(spoil func(s *State, e *Event)) func(State, Event) (State, Effects) {
	return func(s State, e Event) (State, Effects) {
		spoil(&s, &e)
		return Step(s, e)
	}
}

func mutants() []mutant {
	return slices.Concat(startMutants(), switchMutants(), endMutants(), recoverMutants(), patienceMutants(),
		heldMutants(), limitMutants(), betweenMutants(), controllerMutants(), ownerMutants(), gateMutants(), fenceMutants(), checkMutants())
}

// namedMutants are mistakes that must always be among the mutants: by what they
// are, and under which name.
var namedMutants = map[string]string{
	"switch before health":                                 "switches before the health check",
	"restore the limit while two live":                     "restores the limit while two live",
	"start the hold successor before the old is empty":     "starts a hold successor before the incumbent is empty",
	"count a superseded attempt as failed":                 "counts a superseded attempt against its build",
	"forget the intent":                                    "forgets the intent",
	"report before the switch":                             "reports before the switch",
	"undo after the switch was recorded":                   "undoes a switch that was recorded",
	"skip the re-check at the switch":                      "skips the re-check at the switch",
	"forget to register the retiring one":                  "forgets the retiring generation",
	"store into the new cache generation from the old one": "stores a late answer in the cache of the new generation",
	"count a stop that cannot be proven against the build": "counts an unproven stop against the build",
	"skip the re-check at admission":                       "skips the re-check at admission",
	"skip the re-check at exec":                            "skips the re-check at the go-byte",
}

func startMutants() []mutant {
	return []mutant{
		{
			name: "forgets the intent", config: "overlap", caught: []string{"I10"},
			step: after(func(_ State, e Event, s *State, f *Effects) {
				if i := f.find(Intent); i != nil && e.Kind == VerifyDone {
					i.Kind, s.Next.Stage, s.Next.Prepared = Prepare, Preparing, true
				}
			}),
		},
		{
			name: "does not record that the release has run", config: "overlap", caught: []string{"I10"},
			step: ahead(func(s *State, e *Event) { s.Next.Rel.Ran = s.Next.Rel.Ran || e.Kind == PrepareDone }),
		},
		{
			name: "runs bytes that were not verified", config: "overlap", caught: []string{"I11"},
			step: after(func(_ State, _ Event, s *State, f *Effects) {
				if v := f.find(Verify); v != nil {
					v.Kind, s.Next.Stage = Intent, Intending
				}
			}),
		},
		{
			name: "starts a hold successor before the incumbent is empty", config: "hold", caught: []string{"I7"},
			step: ahead(func(s *State, e *Event) {
				if e.Kind == PrepareDone {
					s.Attempt.Mode = Overlap
				}
			}),
		},
		{
			name: "takes an unproven stop for a proof", config: "hold", caught: []string{"I8"},
			step: ahead(func(_ *State, e *Event) {
				if e.Kind == StopDone {
					e.Result = OK
				}
			}),
		},
		{
			name: "goes on with a superseded attempt", config: "overlap", caught: []string{"C reloader"},
			step: ahead(func(s *State, e *Event) {
				if e.Kind == Committed && s.Attempt.Gen != 0 {
					s.Attempt.Desired = e.Release.Rev
				}
			}),
		},
		{
			name: "goes on with an attempt that a restart replaced", config: "overlap, restart", caught: []string{"C reloader"}, also: []string{"though a newer restart was asked for"},
			step: ahead(func(s *State, e *Event) {
				if e.Kind == RestartAsked && s.Next.ID != 0 {
					s.Next.Restart++
				}
			}),
		},
		{
			name: "goes on with an attempt while the app is paused", config: "pause overlap", caught: []string{"C attempt"}, also: []string{"though the app is paused or halted"},
			step: func(s State, e Event) (State, Effects) {
				if e.Kind == PauseAsked && s.Attempt.Gen != 0 {
					m := machine{s: s}
					m.s.Paused = true
					m.place()
					return m.s, m.out
				}
				if !s.Paused || s.Attempt.Gen == 0 {
					return Step(s, e)
				}
				s.Paused = false
				next, f := Step(s, e)
				f.drop(Place)
				next.Paused, next.Slot = true, s.Slot
				return next, f
			},
		},
		{
			name: "passes over a release that never failed", config: "overlap", caught: []string{"L1"},
			step: ahead(func(s *State, e *Event) {
				if e.Kind == Committed && e.Release.Rev == 2 {
					s.Held = 2
				}
			}),
		},
	}
}

func switchMutants() []mutant {
	return []mutant{
		{
			name: "switches before the health check", config: "overlap", caught: []string{"I3"},
			step: after(func(_ State, e Event, s *State, f *Effects) {
				if h := f.find(Health); h != nil {
					h.Kind, s.Next.Stage = RecordSwitching, Switching
				}
			}),
		},
		{
			name: "switches without recording it first", config: "overlap", caught: []string{"I10"},
			step: after(func(_ State, e Event, s *State, f *Effects) {
				if r := f.find(RecordSwitching); r != nil {
					r.Kind, s.Next.Stage = Switch, Switched
					m := machine{}
					r.Slot = m.servingSlot(s.Next)
				}
			}),
		},
		{
			name: "keeps the old cache generation at the switch", config: "cache", caught: []string{"I2"}, also: []string{"is served from the cache"},
			step: after(func(b State, _ Event, _ *State, f *Effects) {
				if sw := f.find(Switch); sw != nil && b.Cache.Rev != 0 {
					sw.Slot.Cache = b.Cache
				}
			}),
		},
		{name: "stores a late answer in the cache of the new generation", config: "cache", caught: []string{"I2"}, flaw: flawStoresLate},
		{
			name: "reports as soon as a release is committed", config: "overlap", caught: []string{"I4"},
			step: after(func(_ State, e Event, s *State, f *Effects) {
				if e.Kind == Committed {
					f.add(Effect{Kind: Report, Gen: s.Cur.ID, Rel: s.Desired})
				}
			}),
		},
		{
			name: "reports while the app is paused", config: "pause overlap", caught: []string{"I4"},
			step: after(func(_ State, e Event, s *State, f *Effects) {
				if e.Kind == TimerFired && e.Timer == TimerSweep && s.ReportOwed && f.find(Report) == nil {
					f.add(Effect{Kind: Report, Gen: s.Cur.ID, Rel: s.Cur.Rel})
				}
			}),
		},
		{
			name: "calls an attempt done before it is reported", config: "overlap", caught: []string{"I4"},
			step: after(func(_ State, _ Event, s *State, f *Effects) {
				if r := f.find(Report); r != nil && s.Attempt.Reporting {
					r.Kind, r.Outcome, r.Executed = RecordOutcome, Done, true
					s.Attempt = Attempt{}
				}
			}),
		},
		{
			name: "believes a report that was not recorded", config: "overlap", caught: []string{"I1"}, alone: true,
			step: ahead(func(_ *State, e *Event) {
				if e.Kind == ReportDone {
					e.Result = OK
				}
			}),
		},
		{
			name: "forgets the retiring generation", config: "overlap", caught: []string{"I8"},
			step: after(func(_ State, e Event, s *State, f *Effects) {
				if e.Kind == SwitchDone && s.Old.ID != 0 {
					s.Old = Gen{}
					f.drop(Drain)
				}
			}),
		},
		{
			name: "stops the incumbent when its successor fails", config: "overlap", caught: []string{"I6"},
			step: after(func(_ State, e Event, s *State, f *Effects) {
				if e.Kind == HealthDone && e.Result == BuildFailed && s.Cur.Stage == Serving {
					s.Cur.Stage = Stopping
					f.add(Effect{Kind: Stop, Gen: s.Cur.ID})
				}
			}),
		},
		{
			name: "parks requests for an overlap", config: "overlap", caught: []string{"I6"},
			step: after(func(_ State, e Event, s *State, f *Effects) {
				if e.Kind == GoDone && s.Cur.Stage == Serving {
					s.Slot = Slot{State: SlotWaking, Cache: s.Cache}
					f.add(Effect{Kind: Place, Slot: s.Slot})
				}
			}),
		},
		{
			name: "drains before it parks", config: "hold", caught: []string{"I6"},
			step: after(func(_ State, e Event, _ *State, f *Effects) {
				if p := f.find(Place); p != nil && e.Kind == RanDone && p.Slot.State == SlotHolding {
					place := *p
					f.drop(Place)
					f.add(place)
				}
			}),
		},
		{
			name: "leaves the slot on a process that has ended", config: "overlap", caught: []string{"I3"},
			step: func(s State, e Event) (State, Effects) {
				if e.Kind == Exited && e.Gen == s.Cur.ID {
					return s, Effects{}
				}
				return Step(s, e)
			},
		},
		{
			name: "sleeps without asking the edge", config: "overlap", caught: []string{"I6"},
			step: after(func(_ State, _ Event, s *State, f *Effects) {
				if t := f.find(TrySleep); t != nil {
					t.Kind, s.Cur.Stage = Stop, Stopping
				}
			}),
		},
	}
}

// blame counts an attempt that ends for that reason against its build.
func blame(why Reason) func(State, Event, *State, *Effects) {
	return func(_ State, _ Event, s *State, f *Effects) {
		if o := f.find(RecordOutcome); o != nil && o.Reason == why {
			o.Outcome, o.Reason = Failed, ReasonExited
		}
	}
}

func endMutants() []mutant {
	return []mutant{
		{name: "counts a superseded attempt against its build", config: "overlap", caught: []string{"I5"}, step: after(blame(ReasonSuperseded))},
		{name: "counts what the box refused against the build", config: "overlap", caught: []string{"I5"}, step: after(blame(ReasonNotStarted))},
		{name: "counts an unproven stop against the build", config: "hold", caught: []string{"I5"}, step: after(blame(ReasonUnproven))},
		{name: "counts a pause against the build", config: "pause hold", caught: []string{"I5"}, step: after(blame(ReasonPaused))},
		{
			name: "says that nothing ran though it may have", config: "overlap", caught: []string{"I5"},
			step: after(func(_ State, _ Event, _ *State, f *Effects) {
				if o := f.find(RecordOutcome); o != nil && o.Outcome != Done {
					o.Executed = false
				}
			}),
		},
		{
			name: "passes over the only release there is", config: "overlap", caught: []string{"I9"},
			step: after(func(_ State, _ Event, s *State, f *Effects) {
				if o := f.find(RecordOutcome); o != nil && o.Reason == ReasonUnhealthy && s.Good.Rev == 0 {
					s.Held, o.Held = o.Rel.Rev, true
				}
			}),
		},
		{
			name: "starts again after a failed hold", config: "hold", caught: []string{"I7"}, alone: true, also: []string{"after revision %d has run in hold mode"},
			step: ahead(func(s *State, e *Event) {
				if e.Kind == WakeAsked || e.Kind == StopDone {
					s.WakeWanted = s.WakeWanted || s.GoodHeld()
					s.DownHeld = 0
				}
			}),
		},
		{
			name: "falls back from its own fallback", config: "fallback", caught: []string{"I9"},
			step: ahead(func(s *State, e *Event) {
				if s.Next.Rel.Own && (e.Result == BuildFailed || e.Kind == Exited) {
					s.Next.Rel.Own, s.Next.Rel.Fallback = false, true
				}
			}),
		},
		{
			name: "believes that a removed app is gone at once", config: "halt overlap", caught: []string{"I8"},
			step: after(func(_ State, e Event, _ *State, f *Effects) {
				if e.Kind == HaltAsked && e.Halt == HaltRemove && f.find(Gone) == nil {
					f.add(Effect{Kind: Gone})
				}
			}),
		},
		{
			name: "leaves what was called off recorded as retiring", config: "hold, restart", caught: []string{"I10"},
			step: after(func(b State, _ Event, s *State, f *Effects) {
				if b.Cur.Stage == Draining && s.Cur.Stage == Serving {
					f.drop(RecordSwitched)
				}
			}),
		},
		{
			name: "takes a late answer for a number that was missing", config: "no numbers", caught: []string{"S"},
			step: func(s State, e Event) (State, Effects) {
				m := machine{s: s, fresh: e.Fresh}
				m.apply(e)
				m.converge()
				m.place()
				return m.s, m.out
			},
		},
		{
			name: "lets a late answer through", config: "late answers", caught: []string{"P1", "I8", "I10"},
			step: ahead(func(s *State, e *Event) {
				known := e.Gen == s.Cur.ID || e.Gen == s.Next.ID || e.Gen == s.Old.ID
				if (e.Kind == VerifyDone || e.Kind == GoDone || e.Kind == HealthDone || e.Kind == PrepareDone) && !known {
					e.Gen, s.Next.Stage = s.Next.ID, stageFor(e.Kind)
				}
			}),
		},
	}
}

func stageFor(k EventKind) Stage { return Stage(slices.Index(answerOf[:], k)) }

func recoverMutants() []mutant {
	found := func(change func(durable *State, f *Found)) func(State, []Found, GenID) (State, Effects) {
		return func(durable State, found []Found, fresh GenID) (State, Effects) {
			for i := range found {
				change(&durable, &found[i])
			}
			return Recover(durable, found, fresh)
		}
	}
	return []mutant{
		{
			name: "undoes a switch that was recorded", config: "overlap", caught: []string{"I10"},
			rec: found(func(_ *State, f *Found) {
				if f.Stage == Switching {
					f.Stage = Checking
				}
			}),
		},
		{
			name: "adopts what was not switched to", config: "hold", caught: []string{"I3"},
			rec: found(func(_ *State, f *Found) {
				if f.Stage == Checking {
					f.Stage, f.Alive = Switching, true
				}
			}),
		},
		{
			name: "adopts what is older than what was reported", config: "weak records overlap", caught: []string{"I4"},
			rec: func(durable State, found []Found, fresh GenID) (State, Effects) {
				r := durable.Reported
				for _, f := range found {
					if f.Alive && f.Stage == Serving && f.Rel.Rev < r {
						durable.Reported = f.Rel.Rev
					}
				}
				s, f := Recover(durable, found, fresh)
				s.Reported = r
				return s, f
			},
		},
		{
			name: "forgets what is left of a generation", config: "overlap", caught: []string{"I8"},
			rec: func(durable State, found []Found, fresh GenID) (State, Effects) {
				s, f := Recover(durable, found, fresh)
				s.Old, s.Limit = Gen{}, LimitOne
				f.drop(Stop)
				return s, f
			},
		},
		{
			name: "reports before the slot is placed", config: "overlap", caught: []string{"I4"},
			rec: func(durable State, found []Found, fresh GenID) (State, Effects) {
				s, f := Recover(durable, found, fresh)
				if p := f.find(Place); p != nil {
					place := *p
					f.drop(Place)
					f.add(place)
				}
				return s, f
			},
		},
		{
			name: "forgets a release that was committed", config: "overlap", caught: []string{"L1"},
			rec: func(durable State, found []Found, fresh GenID) (State, Effects) {
				s, f := Recover(durable, found, fresh)
				s.StartWanted = false
				return s, f
			},
		},
	}
}

func patienceMutants() []mutant {
	return []mutant{
		{
			name: "forgets to sweep", config: "overlap", caught: []string{"P1"},
			step: after(func(_ State, _ Event, _ *State, f *Effects) { f.dropArm(TimerSweep) }),
		},
		{
			name: "never sleeps", config: "overlap", caught: []string{"P1"},
			step: after(func(_ State, e Event, _ *State, f *Effects) {
				if e.Kind == SwitchDone {
					f.dropArm(TimerIdle)
				}
			}),
		},
		{
			name: "forgets to drain", config: "overlap", caught: []string{"P1"},
			step: after(func(_ State, _ Event, _ *State, f *Effects) { f.drop(Drain) }),
		},
		{
			name: "does not hurry a drain", config: "overlap, restart", caught: []string{"P3"},
			step: after(func(_ State, _ Event, _ *State, f *Effects) { f.drop(CutDrain) }),
		},
		{
			name: "does not hear a wake", config: "overlap", caught: []string{"L1"},
			step: func(s State, e Event) (State, Effects) {
				if e.Kind == WakeAsked {
					return s, Effects{}
				}
				return Step(s, e)
			},
		},
		{
			name: "waits for ever for a number", config: "no numbers", caught: []string{"P2"},
			step: func(s State, e Event) (State, Effects) {
				if e.Fresh != 0 {
					return Step(s, e)
				}
				m := machine{s: s}
				m.apply(e)
				m.place()
				return m.s, m.out
			},
		},
		{
			name: "keeps a wish that was granted", config: "overlap", caught: []string{"L1"},
			step: after(func(_ State, e Event, s *State, _ *Effects) {
				if e.Kind == ReportDone {
					s.WakeWanted = true
				}
			}),
		},
		{
			name: "does not back off", config: "restarts and crashes", caught: []string{"L3"},
			step: func(s State, e Event) (State, Effects) {
				next, f := Step(s, e)
				if s.Deferred == 0 && next.Deferred != 0 {
					f.dropArm(TimerBackoff)
					m := machine{s: next, out: f, fresh: e.Fresh}
					m.s.Deferred, m.s.WakeWanted = 0, true
					m.converge()
					m.place()
					return m.s, m.out
				}
				return next, f
			},
		},
		{
			name: "lets two releases take turns without a pause", config: "overlap", caught: []string{"L3"},
			step: ahead(func(s *State, _ *Event) {
				if s.Attempt.Gen != 0 && s.Deferred != 0 && s.Next.Rel.Rev != s.Deferred {
					s.Deferred = 0 // as if the newer failure took the place of the older
				}
			}),
		},
		{
			name: "sweeps for ever", config: "overlap", caught: []string{"L2"},
			step: after(func(_ State, e Event, s *State, f *Effects) {
				if e.Kind == TimerFired && e.Timer == TimerSweep && !s.SweepArmed {
					s.SweepArmed = true
					f.add(Effect{Kind: Arm, Timer: TimerSweep})
				}
			}),
		},
		{
			name: "is down after it slept", config: "overlap", caught: []string{"L1"}, alone: true,
			step: after(func(b State, e Event, s *State, f *Effects) {
				if e.Kind == StopDone && e.Gen == b.Cur.ID && b.Reported == b.Desired.Rev && s.Slot.State == SlotAsleep {
					m := machine{s: *s, out: *f}
					m.s.DownHeld = m.s.Desired.Rev
					m.place()
					*s, *f = m.s, m.out
				}
			}),
		},
		{
			name: "passes over what it has put to sleep", config: "overlap", caught: []string{"L5"},
			step: after(func(b State, e Event, s *State, _ *Effects) {
				if e.Kind == StopDone && e.Gen == b.Cur.ID && b.Reported == b.Desired.Rev && s.Slot.State == SlotAsleep {
					s.Held = s.Desired.Rev
				}
			}),
		},
		{
			name: "backs off without growing pauses", config: "overlap, retry", caught: []string{"L4"},
			step: after(func(_ State, _ Event, s *State, f *Effects) { s.Backoff = min(s.Backoff, 1) }),
		},
	}
}

func TestEveryMutantIsCaughtByTheInvariantItBreaks(t *testing.T) {
	if raced {
		t.Skip("the run without the race detector does this")
	}
	byName := map[string]config{}
	for _, c := range configs() {
		byName[c.name] = c
	}
	all := mutants()
	if len(all) < 15 {
		t.Fatalf("only %d mutants", len(all))
	}
	var shown shownChecks
	promises := []string{"L1", "L2", "L3", "L4", "L5"}
	for _, c := range Controllers() {
		promises = append(promises, "C "+c.Name)
		for _, o := range c.Owns {
			promises = append(promises, "R "+o.Name)
		}
	}
	checks := checks(t, "fail")
	for _, c := range checks {
		if c.name != "" {
			promises = append(promises, c.name)
		}
	}
	slices.Sort(promises)
	promises = slices.Compact(promises)
	for _, name := range promises {
		if !slices.ContainsFunc(all, func(m mutant) bool { return slices.Equal(m.caught, []string{name}) }) {
			t.Errorf("no mutant shows that %s catches anything", name)
		}
	}
	for what, name := range namedMutants {
		if !slices.ContainsFunc(all, func(m mutant) bool { return m.name == name }) {
			t.Errorf("no mutant is named %q (%s)", name, what)
		}
	}
	t.Run("all", func(t *testing.T) {
		for _, m := range all {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				c, ok := byName[m.config]
				if !ok {
					t.Fatalf("no configuration is named %q", m.config)
				}
				caught, trace := verdict(m.explorer(c))
				if !slices.Contains(m.caught, caught.name) {
					t.Errorf("caught by %q, want one of %q\n%s\n%s", caught.name, m.caught, caught.text, trace)
				}
				shown.add(caught.check)
				for _, says := range m.also {
					x := m.explorer(c)
					x.says, x.rollout.only = says, ""
					caught, _ := verdict(x)
					if !strings.Contains(caught.check, says) {
						t.Errorf("what says %q does not catch it alone: %s", says, caught.text)
					}
					shown.add(caught.check)
				}
			})
		}
	})
	shown.report(t, checks)
}

// explorer runs m in c.
func (m *mutant) explorer(c config) *explorer {
	x := c.explorer()
	if m.step != nil {
		x.step = m.step
	}
	if m.rec != nil {
		x.rec = m.rec
	}
	x.flaw = m.flaw
	if slices.Contains(m.caught, "S") { // elsewhere it would notice most of them first
		x.looked = newCoreStates()
	}
	if m.alone {
		x.rollout.only = m.caught[0]
	}
	return x
}

// verdict says which promise the exploration finds broken, and how.
func verdict(x *explorer) (violation, string) {
	x.rollout.off = true // its properties have mutants of their own
	r := explore(x, stateCap)
	if r.broken != nil {
		return *r.broken, r.trace
	}
	if r.full {
		return violation{text: "too many states"}, ""
	}
	if text, at := r.g.liveness(x); text != "" {
		return violation{name: text[:2], text: text}, r.g.to(x, at)
	}
	return violation{text: "it survives"}, ""
}
