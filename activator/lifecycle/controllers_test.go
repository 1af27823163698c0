package lifecycle

import (
	"slices"
	"testing"
)

// The machine is five controllers that share one state. Each acts on what it owns
// and relies on the others to leave that alone. Both are written down as relations
// between the state before and after a step, and asked of every step that is
// explored: the one who acted keeps its guarantee, whatever the environment has
// done before, and has changed nothing that another owns. A recovery is nobody's
// step: everything that is owned is asked of it, from the record to what is placed.
// So any two of them get on, and since each depends only on those above it, all of
// them do.

// A controller is one of them.
type Controller struct {
	Name      string
	DependsOn []string
	Owns      []Owned
	// Guarantees says for people what Guarantee asks of each of its own steps.
	Guarantees string
	Guarantee  func(before, after *State) bool
}

// Owned is a part of the state that only its owner changes, and who else is named.
type Owned struct {
	Name string
	But  string // what others may do to it all the same; same knows
	Also []string
	Same func(before, after *State) bool
}

// Rely is what the controller relies on in a step of somebody else: it returns the
// first of what it owns that the step has changed, or nil.
func (c *Controller) Rely(by string, before, after *State) *Owned {
	for i := range c.Owns {
		if o := &c.Owns[i]; !slices.Contains(o.Also, by) && !o.Same(before, after) {
			return o
		}
	}
	return nil
}

const (
	reloader = iota // what people and the config file ask
	sweeper         // finishes what could not be proven finished
	roller          // moves the app to another release or to a fresh process
	waker           // brings a sleeping app up
	idler           // puts an idle app to sleep
)

// atStart is who acts when usher starts.
const atStart = "recovery"

// Controllers are sorted: each depends on earlier ones only.
func Controllers() []Controller {
	return []Controller{
		reloader: {
			Name: "reloader", Owns: []Owned{
				{Name: "desired, restarts, paused, maintenance, halt", But: "but for a fallback, which is one revision newer", Same: func(b, a *State) bool { return sameWishes(b, a) || fellBack(b, a) }},
			},
			Guarantees: "what is desired, the restarts and a halt only grow; what has served, what was reported, what serves and what retires stay; an attempt goes on as it was or is over",
			Guarantee: func(b, a *State) bool {
				grows := a.Desired.Rev >= b.Desired.Rev && a.Restarts >= b.Restarts && a.Halt >= b.Halt
				return grows && sameProofs(b, a) && sameOld(b, a) && keepsCur(b, a) && leavesAttempt(b, a)
			},
		},
		sweeper: {
			Name: "sweeper", Owns: []Owned{
				{Name: "generations whose end is unproven", Same: func(b, a *State) bool {
					return stillUnproven(b.Cur, a) && stillUnproven(b.Next, a) && stillUnproven(b.Old, a)
				}},
				{Name: "a limit that could not be restored", Same: func(b, a *State) bool { return b.Limit != LimitStuck || a.Limit == LimitStuck }},
			},
			Guarantees: "what people asked for, what has served and what serves stay; an attempt goes on as it was or is over",
			Guarantee: func(b, a *State) bool {
				return sameWishes(b, a) && a.Good == b.Good && (b.Cur.Stage != Serving || a.Cur == b.Cur) && leavesAttempt(b, a)
			},
		},
		roller: {
			Name: "roller", DependsOn: []string{"reloader", "sweeper"}, Owns: []Owned{
				{Name: "good, reported", Also: []string{"waker", atStart}, Same: sameProofs},
				{Name: "the retiring generation", But: "until its end is unproven; its drain may hurry", Same: func(b, a *State) bool {
					return b.Old.ID == 0 || b.Old.Stage == Unproven || sameOld(b, a)
				}},
				{Name: "attempts that no request asked for", But: "which may be called off", Same: func(b, a *State) bool {
					return b.Attempt.Cause == CauseWake || leavesAttempt(b, a)
				}},
			},
			Guarantees: "what people asked for stays, but for a fallback; reported ≤ good; only what starts or serves becomes good; only what was current retires",
			Guarantee: func(b, a *State) bool {
				wishes := sameWishes(b, a) || fellBack(b, a)
				return wishes && a.Reported <= a.Good.Rev && becomesGood(b, a) && oldComesFromCur(b, a)
			},
		},
		waker: {
			Name: "waker", DependsOn: []string{"reloader", "sweeper", "roller"}, Owns: []Owned{
				{Name: "attempts that a request asked for", But: "which may be called off", Same: func(b, a *State) bool {
					return b.Attempt.Cause != CauseWake || leavesAttempt(b, a)
				}},
			},
			Guarantees: "what people asked for, what serves and what retires stay; only what it starts becomes good",
			Guarantee: func(b, a *State) bool {
				return sameWishes(b, a) && becomesGood(b, a) && sameOld(b, a) && (b.Cur.Stage != Serving || a.Cur == b.Cur)
			},
		},
		idler: {
			Name: "idler", DependsOn: []string{"roller"}, Owns: []Owned{
				{Name: "what is current and was told to end while no attempt is under way", Same: func(b, a *State) bool { return !b.falling() || a.Cur == b.Cur }},
			},
			Guarantees: "what people asked for, what has served, what was reported, what retires and the cache stay; an attempt goes on as it was or is over",
			Guarantee: func(b, a *State) bool {
				return sameWishes(b, a) && sameProofs(b, a) && sameOld(b, a) && a.Cache == b.Cache && leavesAttempt(b, a)
			},
		},
	}
}

// falling: it falls asleep, or what has ended by itself is being proven gone.
func (s *State) falling() bool {
	return s.Cur.Stage == Stopping && s.Attempt.Gen == 0 && s.Halt == HaltNone
}

// fellBack: usher has committed a release of its own.
func fellBack(b, a *State) bool {
	was := *b
	was.Desired = a.Desired
	return a.Desired.Own && a.Desired.Rev == b.Desired.Rev+1 && sameWishes(&was, a)
}

func sameWishes(b, a *State) bool {
	marked := b.Desired
	marked.Ran = a.Desired.Ran // that it has run is a record about it
	return a.Desired == marked && a.Restarts == b.Restarts && a.Paused == b.Paused && a.Maintenance == b.Maintenance && a.Halt == b.Halt
}

// sameProofs: what has served and what was reported.
func sameProofs(b, a *State) bool { return a.Good == b.Good && a.Reported == b.Reported }

// sameOld: the retiring generation is left alone, but its drain may hurry.
func sameOld(b, a *State) bool {
	hurried := b.Old
	hurried.Hurried = a.Old.Hurried
	return a.Old == hurried
}

// keepsCur: what serves goes on serving, or ends because the app is to end.
func keepsCur(b, a *State) bool {
	return b.Cur.Stage != Serving || a.Cur.ID == b.Cur.ID && (a.Cur.Stage == Serving || a.Halt >= HaltStop)
}

// leavesAttempt: it goes on as it was, or is over. A new one begins only where
// none was under way, or in the place of one that is over.
func leavesAttempt(b, a *State) bool {
	if b.Attempt.Gen == 0 || a.Attempt.Gen != b.Attempt.Gen {
		return true
	}
	return a.Attempt == b.Attempt && a.Next == b.Next
}

// stillUnproven: it is there as it was, also if it is not what was current any more.
func stillUnproven(g Gen, a *State) bool {
	return g.Stage != Unproven || a.Cur == g || a.Next == g || a.Old == g
}

// becomesGood: only what is being started, or serves, is called good.
func becomesGood(b, a *State) bool {
	marked := b.Good
	marked.Ran = a.Good.Ran
	return a.Good == marked || a.Good.Rev == a.Cur.Rel.Rev
}

func oldComesFromCur(b, a *State) bool {
	return a.Old.ID == 0 || a.Old.ID == b.Old.ID || a.Old.ID == b.Cur.ID
}

// actor says whose step it is. That a process has ended is an answer like others.
func actor(b *State, e *Event) int {
	switch e.Kind {
	case Committed:
		if e.Release.Own {
			return roller
		}
		return reloader
	case RestartAsked, PauseAsked, ResumeAsked, HaltAsked:
		return reloader
	case WakeAsked:
		return waker
	case SleepAsked, SleepDone:
		return idler
	case RestoreDone:
		return sweeper
	case TimerFired:
		if e.Timer == TimerSweep {
			return sweeper
		}
	}
	return actorOfAnswer(b, e)
}

func actorOfAnswer(b *State, e *Event) int {
	for _, g := range [...]*Gen{&b.Cur, &b.Next, &b.Old} {
		if g.ID == e.Gen && g.Stage == Unproven {
			return sweeper
		}
	}
	if e.Kind == StopDone && e.Gen == b.Cur.ID && b.falling() {
		return idler
	}
	if b.Attempt.Cause == CauseWake && e.Gen == b.Attempt.Gen {
		return waker
	}
	return roller
}

// checkControllers is asked of every step, before its effects are carried out.
func (x *explorer) checkControllers(b, a *State) {
	c := &x.controllers[actor(b, &x.event)]
	if !c.Guarantee(b, a) {
		x.fail("C "+c.Name, "a step of the %s breaks its guarantee", c.Name)
	}
	x.checkOwned(c.Name, b, a)
}

// checkOwned: nobody changes what another owns.
func (x *explorer) checkOwned(by string, b, a *State) {
	for i := range x.controllers {
		c := &x.controllers[i]
		if c.Name == by {
			continue
		}
		if o := c.Rely(by, b, a); o != nil {
			x.fail("R "+o.Name, "a step of the %s changes what the %s owns: %s", by, c.Name, o.Name)
		}
	}
}

// checkAttempt: what an attempt was begun for holds until it is over.
func (x *explorer) checkAttempt(a *State) {
	if a.Attempt.Gen == 0 || a.Attempt.Reporting || a.Next.Stage == Switched {
		return
	}
	m := machine{s: *a}
	switch {
	case a.Next.ID != a.Attempt.Gen || a.Next.Stage >= Serving:
		x.fail("C attempt", "the attempt is about generation %d, and %d (%s) is being started", a.Attempt.Gen, a.Next.ID, a.Next.Stage)
	case m.stale() != ReasonNone:
		x.fail("C attempt", "an attempt goes on that is %s", m.stale())
	case a.Old.ID != 0 || a.Cur.ID >= a.Next.ID:
		x.fail("C attempt", "generation %d is started beside %d and %d", a.Next.ID, a.Cur.ID, a.Old.ID)
	case a.Next.Rel.Rev < a.Reported:
		x.fail("C attempt", "revision %d is started after revision %d was reported", a.Next.Rel.Rev, a.Reported)
	}
}

func TestControllersDependOnEarlierOnesOnly(t *testing.T) {
	var known []string
	for _, c := range Controllers() {
		for _, d := range c.DependsOn {
			if !slices.Contains(known, d) {
				t.Errorf("%s depends on %s, which does not come before it", c.Name, d)
			}
		}
		known = append(known, c.Name)
		if len(c.Owns) == 0 || c.Guarantees == "" || c.Guarantee == nil {
			t.Errorf("%s is not described", c.Name)
		}
	}
}
