package lifecycle

import (
	"maps"
	"slices"
	"testing"
)

// The machine has its own properties: visited state by state, and each of them
// broken by one wrong variant of an action.
//
//	Refinement                every edge that is explored is a sequence of actions of the contract, or none
//	TypeOK                    only what was committed, or nothing, is ever loaded, reported or served
//	ReportedVersionIsServing  what serves is not older than the newest report
//	ServedAfterReport         whatever enters a process enters one that is not older than the newest report
//	NoServeWhileNotServing    nothing enters a node that starts, drains or is stopped
//	ReportedIsCommitted       what was reported was committed
//	ReportIsNewest            a report names the newest commit; what was superseded before it could be reported only becomes good
//	AnswersFollowReports      for every request and every report before its head: the last slot it loads, or the cache that answers it, is of that revision or a newer one

// ruleset says whether an action is allowed; the wrong ones allow too much.
type ruleset func(from contract, a action, v uint8, allowed bool) bool

// visit takes every action in every state that can be reached, and returns the
// properties that were broken and how many states there are.
func visit(top uint8, allow ruleset) (broken map[string]bool, states int) {
	broken = map[string]bool{}
	breaks := func(p string) { broken[p] = true }
	seen := map[contract]bool{{node: nodeStopped}: true}
	todo := slices.Collect(maps.Keys(seen))
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for a := range actCount {
			for v := range top + 1 {
				to := at
				if ok := to.do(a, v); !allow(at, a, v, ok) {
					continue
				}
				at.brokenBy(a, v, breaks)
				to.brokenIn(top, breaks)
				if !seen[to] {
					seen[to] = true
					todo = append(todo, to)
				}
			}
		}
	}
	return broken, len(seen)
}

func TestTheRolloutContractHasItsProperties(t *testing.T) {
	broken, states := visit(3, func(_ contract, _ action, _ uint8, allowed bool) bool { return allowed })
	t.Logf("%d states of the contract with three releases", states)
	if len(broken) != 0 || states < 100 {
		t.Errorf("broken: %v, in %d states", broken, states)
	}
}

func TestEveryRuleOfTheRolloutContractIsNeeded(t *testing.T) {
	for _, c := range []struct {
		name  string
		wrong func(from contract, a action, v uint8) bool // is allowed as well
		want  []string
	}{
		{
			"the report comes right after the commit",
			func(from contract, a action, v uint8) bool { return a == actReport && v == from.committed && v > 0 },
			[]string{reportedVersionIsServing, servedAfterReport},
		},
		{
			"what serves is reported though a newer one is committed",
			func(from contract, a action, v uint8) bool {
				return a == actReport && from.node == nodeServing && v == from.version && v >= from.reported && v > 0
			},
			[]string{reportIsNewest},
		},
		{
			"an older one than was reported is started",
			func(from contract, a action, v uint8) bool {
				return a == actStart && from.node == nodeStopped && v <= from.committed
			},
			[]string{reportedVersionIsServing, servedAfterReport},
		},
		{
			"what drains serves",
			func(from contract, a action, v uint8) bool {
				return a == actServe && from.node == nodeDraining && v >= from.reported
			},
			[]string{noServeWhileNotServing},
		},
		{
			"the pointer goes back",
			func(_ contract, a action, _ uint8) bool { return a == actCommit },
			[]string{reportedIsCommitted},
		},
	} {
		broken, _ := visit(2, func(from contract, a action, v uint8, allowed bool) bool {
			return allowed || c.wrong(from, a, v)
		})
		for _, p := range c.want {
			if !broken[p] {
				t.Errorf("%s: %s holds (broken: %v)", c.name, p, broken)
			}
		}
	}
}

// A rollout mutant is a wrong variant of the core, or of its environment, that
// one property of the contract catches and no other one. All of them are caught
// by the refinement too: what it allows has the properties.
type rolloutMutant struct {
	mutant
	in config
}

func rolloutMutants() []rolloutMutant {
	quiet := config{commits: []uint8{0, 0}, asks: askSleep | askWake}
	day := config{commits: []uint8{0, 0}, asks: askSleep | askRequest}
	heads := config{commits: []uint8{0, 0}, left: budgets{app: 1}, asks: askRequest, heads: true}
	return []rolloutMutant{
		{in: quiet, mutant: mutant{
			name: "reports right after the commit", caught: []string{reportedVersionIsServing},
			step: after(func(_ State, e Event, s *State, f *Effects) {
				if e.Kind == Committed {
					f.add(Effect{Kind: Report, Gen: s.Cur.ID, Rel: s.Desired})
				}
			}),
		}},
		{in: heads, mutant: mutant{name: "sends a request again to where it was", caught: []string{servedAfterReport}, flaw: flawKeptSlot}},
		{in: day, mutant: mutant{name: "lets a request into what was told to end", caught: []string{noServeWhileNotServing}, flaw: flawEntersEnding}},
		{in: quiet, mutant: mutant{name: "commits in two transactions", caught: []string{reportedIsCommitted}, flaw: flawTornCommit}},
		{in: config{commits: []uint8{0, 0}, left: budgets{restarts: 1}, asks: askSleep | askRetry}, mutant: mutant{
			name: "reports what serves though a newer one is committed", caught: []string{reportIsNewest},
			step: after(func(_ State, _ Event, _ *State, f *Effects) {
				if r := f.find(Report); r != nil {
					r.Quiet = false
				}
			}),
		}},
		{in: day, mutant: mutant{
			name: "runs bytes that nobody committed", caught: []string{typeOK},
			step: after(func(_ State, _ Event, _ *State, f *Effects) {
				if v := f.find(Verify); v != nil {
					v.Rel.Rev = maxRevs
				}
			}),
		}},
		{in: heads, mutant: mutant{name: "keeps a connection on the target of its last request", caught: []string{answersFollowReports}, flaw: flawKeptTarget}},
		{in: day, mutant: mutant{
			name: "keeps the cache of the old release", caught: []string{answersFollowReports},
			step: after(func(b State, _ Event, _ *State, f *Effects) {
				if sw := f.find(Switch); sw != nil && b.Cache.Rev != 0 {
					sw.Slot.Cache = b.Cache
				}
			}),
		}},
	}
}

// refinementMutants break no property: what they do is no action.
func refinementMutants() []rolloutMutant {
	return []rolloutMutant{
		{in: config{commits: []uint8{0, 0}, asks: askSleep | askWake}, mutant: mutant{
			name: "starts what is older than what was reported, and lets it fail", caught: []string{refinement},
			step: func(s State, e Event) (State, Effects) {
				if e.Kind == HealthDone && s.Next.Rel.Rev < s.Reported {
					e.Result, e.Reason = Refused, ReasonUnsupervised
				}
				next, f := Step(s, e)
				if v := f.find(Intent); v != nil && next.Attempt.Cause == CauseWake && next.Reported == 2 {
					v.Rel.Rev, next.Next.Rel.Rev = 1, 1
				}
				return next, f
			},
		}},
		{in: config{commits: []uint8{relHold, relHold}, asks: askRequest}, mutant: mutant{
			name: "switches while the incumbent of a hold is alive", caught: []string{refinement},
			step: ahead(func(s *State, e *Event) {
				if e.Kind == PrepareDone {
					s.Attempt.Mode = Overlap
				}
			}),
		}},
	}
}

func (m *rolloutMutant) explorer() *explorer {
	x := m.in.explorer()
	x.flaw = m.flaw
	if m.step != nil {
		x.step = m.step
	}
	return x
}

// alone runs one property and nothing else, and returns how it was broken.
func (m *rolloutMutant) alone(property string) *violation {
	x := m.explorer()
	x.rollout.only = property
	return explore(x, stateCap).broken
}

// heard runs all properties at once and returns those that are broken anywhere, and
// what says so.
func (m *rolloutMutant) heard() (properties, says []string) {
	x := m.explorer()
	x.rollout.heard = map[[2]string]bool{}
	explore(x, stateCap)
	for h := range x.rollout.heard {
		properties, says = append(properties, h[0]), append(says, h[1])
	}
	slices.Sort(properties)
	return slices.Compact(properties), says
}

func TestEveryPropertyOfTheRolloutCatchesAMutantThatNoOtherCatches(t *testing.T) {
	if raced {
		t.Skip("the run without the race detector does this")
	}
	all := slices.Concat(rolloutMutants(), refinementMutants())
	for _, p := range append(rolloutProperties(), refinement) {
		if !slices.ContainsFunc(all, func(m rolloutMutant) bool { return slices.Equal(m.caught, []string{p}) }) {
			t.Errorf("no mutant shows that %s catches anything", p)
		}
	}
	var shown shownChecks
	t.Run("all", func(t *testing.T) {
		for _, m := range all {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				own := m.caught[0]
				if broken := m.alone(own); broken == nil || broken.name != own {
					t.Fatalf("%s alone does not catch it: %v", own, broken)
				}
				want := slices.Compact(slices.Sorted(slices.Values([]string{refinement, own})))
				got, says := m.heard()
				if !slices.Equal(got, want) {
					t.Errorf("caught by %v, want %v", got, want)
				}
				for _, s := range says {
					shown.add(s)
				}
			})
		}
	})
	shown.report(t, checks(t, "breaks"))
}

func TestWhatIsNotDesiredAnyMoreBecomesGoodAndIsNotReported(t *testing.T) {
	p := (&play{t: t}).script(`
		Committed r1     → Verify g1 r1; Place waking
		VerifyDone g1    → Intent g1 r1
		IntentDone g1    → Prepare g1 r1
		PrepareDone g1   → RecordRan g1 r1
		RanDone g1       → Go g1 r1
		GoDone g1        → Health g1 r1
		HealthDone g1    → RecordSwitching g1 r1
		SwitchingDone g1 → Switch g1 r1 serving g1 cache r1.0
		SwitchDone g1    → RecordSwitched g1 r1; Arm g1 idle; Report g1 r1
		ReportDone g1 refused: not recorded → Arm sweep; RecordOutcome g1 r1 overlap install: done (not reported) executed
		Committed r2     → Verify g2 r2
		TimerFired sweep → Report g1 r1 quiet
		ReportDone g1    →
	`)
	if p.s.Reported != 0 || p.s.ReportOwed || p.s.Good.Rev != 1 {
		t.Errorf("reported r%d, owed %v, good r%d", p.s.Reported, p.s.ReportOwed, p.s.Good.Rev)
	}
}
