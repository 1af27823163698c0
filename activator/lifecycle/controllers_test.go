package lifecycle

import (
	"slices"
	"testing"
)

// The machine is five controllers that share one state. Each acts on what it owns
// and relies on what the others leave alone. That is written down as relations
// between the state before and after a step, and asked of every step that is
// explored: the one who acted keeps its guarantee, whatever the environment has
// done before, and by that everybody else's rely. So any two of them get on, and
// since each depends only on those above it, all of them do.

// A controller is one of them.
type Controller struct {
	Name      string
	DependsOn []string
	// Owns, Relies and Guarantees are for people: what it alone decides, and the two
	// relations in words.
	Owns, Relies, Guarantees string
	// Rely is what a step of any other controller must keep.
	Rely func(before, after *State) bool
	// Guarantee is what each of its own steps keeps.
	Guarantee func(before, after *State) bool
}

const (
	reloader = iota // what people and the config file ask
	sweeper         // finishes what could not be proven finished
	roller          // moves the app to another release or to a fresh process
	waker           // brings a sleeping app up
	idler           // puts an idle app to sleep
)

// Controllers are sorted: each depends on earlier ones only.
func Controllers() []Controller {
	return []Controller{
		reloader: {
			Name: "reloader", Owns: "desired, restarts, paused, maintenance, halt",
			Relies:     "nobody else changes what is desired, but for a fallback that is one revision newer",
			Guarantees: "what is desired, the restarts and a halt only grow; what has served, what was reported, what serves and what retires stay; an attempt goes on as it was or is over",
			Rely:       func(b, a *State) bool { return sameWishes(b, a) || a.Desired.Own && a.Desired.Rev == b.Desired.Rev+1 },
			Guarantee: func(b, a *State) bool {
				grows := a.Desired.Rev >= b.Desired.Rev && a.Restarts >= b.Restarts && a.Halt >= b.Halt
				return grows && sameProofs(b, a) && sameOld(b, a) && keepsCur(b, a) && leavesAttempt(b, a)
			},
		},
		sweeper: {
			Name: "sweeper", Owns: "generations whose end is unproven, a limit that could not be restored",
			Relies:     "what is unproven keeps its place, and a limit that could not be restored stays marked",
			Guarantees: "what people asked for, what has served and what serves stay; an attempt goes on as it was or is over",
			Rely: func(b, a *State) bool {
				return stillUnproven(b.Cur, a) && stillUnproven(b.Next, a) && stillUnproven(b.Old, a) && (b.Limit != LimitStuck || a.Limit == LimitStuck)
			},
			Guarantee: func(b, a *State) bool {
				return sameWishes(b, a) && a.Good == b.Good && (b.Cur.Stage != Serving || a.Cur == b.Cur) && leavesAttempt(b, a)
			},
		},
		roller: {
			Name: "roller", Owns: "good, reported, the retiring generation, attempts that no request asked for",
			DependsOn:  []string{"reloader", "sweeper"},
			Relies:     "an attempt that no request asked for goes on as it was or is over",
			Guarantees: "what people asked for stays, but for a fallback; reported ≤ good; only what starts or serves becomes good; only what was current retires",
			Rely: func(b, a *State) bool {
				return b.Attempt.Gen == 0 || b.Attempt.Cause == CauseWake || leavesAttempt(b, a)
			},
			Guarantee: func(b, a *State) bool {
				wishes := sameWishes(b, a) || a.Desired.Own && a.Desired.Rev == b.Desired.Rev+1
				return wishes && a.Halt == b.Halt && a.Reported <= a.Good.Rev && becomesGood(b, a) && oldComesFromCur(b, a)
			},
		},
		waker: {
			Name: "waker", Owns: "attempts that a request asked for", DependsOn: []string{"reloader", "sweeper", "roller"},
			Relies:     "an attempt that a request asked for goes on as it was or is over",
			Guarantees: "what people asked for, what serves and what retires stay; only what it starts becomes good",
			Rely: func(b, a *State) bool {
				return b.Attempt.Gen == 0 || b.Attempt.Cause != CauseWake || leavesAttempt(b, a)
			},
			Guarantee: func(b, a *State) bool {
				return sameWishes(b, a) && becomesGood(b, a) && sameOld(b, a) && (b.Cur.Stage != Serving || a.Cur == b.Cur)
			},
		},
		idler: {
			Name: "idler", Owns: "a serving generation that nobody uses", DependsOn: []string{"roller"},
			Relies:     "what was told to end does not serve again",
			Guarantees: "what people asked for, what has served, what was reported, what retires and the cache stay; an attempt goes on as it was or is over",
			Rely: func(b, a *State) bool {
				return b.Cur.Stage != Stopping || a.Cur.ID != b.Cur.ID || a.Cur.Stage != Serving
			},
			Guarantee: func(b, a *State) bool {
				return sameWishes(b, a) && sameProofs(b, a) && sameOld(b, a) && a.Cache == b.Cache && leavesAttempt(b, a)
			},
		},
	}
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

func stillUnproven(g Gen, a *State) bool {
	return g.Stage != Unproven || a.Cur.ID == g.ID || a.Next.ID == g.ID || a.Old.ID == g.ID
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

// nobody: the environment has acted.
const nobody = -1

// actor says whose step it is.
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
	case Exited, EventNone:
		return nobody
	}
	return actorOfAnswer(b, e)
}

func actorOfAnswer(b *State, e *Event) int {
	for _, g := range [...]*Gen{&b.Cur, &b.Next, &b.Old} {
		if g.ID == e.Gen && g.Stage == Unproven {
			return sweeper
		}
	}
	if e.Kind == StopDone && e.Gen == b.Cur.ID && b.Attempt.Gen == 0 && b.Halt == HaltNone {
		return idler
	}
	if b.Attempt.Cause == CauseWake && e.Gen == b.Attempt.Gen {
		return waker
	}
	return roller
}

// checkControllers is asked of every step, before its effects are carried out.
func (x *explorer) checkControllers(b, a *State) {
	who := actor(b, &x.event)
	if who == nobody {
		return
	}
	if c := &x.controllers[who]; !c.Guarantee(b, a) {
		x.fail("C "+c.Name, "a step of the %s breaks its guarantee", c.Name)
	}
	for i := range x.controllers {
		if c := &x.controllers[i]; i != who && !c.Rely(b, a) {
			x.fail("C "+c.Name, "a step of the %s breaks what the %s relies on", x.controllers[who].Name, c.Name)
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
		if c.Owns == "" || c.Relies == "" || c.Guarantees == "" || c.Rely == nil || c.Guarantee == nil {
			t.Errorf("%s is not described", c.Name)
		}
	}
}
