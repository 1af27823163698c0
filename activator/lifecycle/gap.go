package lifecycle

// The weights of Gap. A stage weighs more than all that it can set going.
const (
	gapAttempt = 1000 // a whole attempt that is still to come
	gapStage   = 50   // one stage of a start
	gapEnd     = 10   // one stage of an end
)

// Gap is how far s is from rest: 0 where nothing is left to be done, and smaller
// after every step that the machine takes by itself. Those are the good answers to
// its effects and its timers; what people ask, what ends by itself and what fails
// may widen it. After a fence it stays what is left to the next owner.
func Gap(s State) int {
	if s.Gone && s.Halt.ends() { // all that may come yet is the answer of a restore
		return gapFlag(s.Limit == LimitRestoring)
	}
	n := gapLimit[s.Limit] + gapFlag(s.SweepArmed) + gapFlag(s.FallsBack) + gapFlag(s.Attempt.Reporting)
	n += gapOf(s.Cur, s.Halt) + gapOf(s.Next, s.Halt) + gapOf(s.Old, s.Halt)
	if s.Deferred != 0 {
		n += 3 * gapAttempt // when the timer fires, both may have to be tried
	}
	if s.ReportOwed && s.Slot.State == SlotServing {
		n++
	}
	if s.Halt != HaltNone {
		return n + gapFlag(!s.Gone)
	}
	if s.toBegin() {
		n += gapAttempt
	}
	return n
}

var gapLimit = [...]int{LimitOne: 0, LimitRestoring: 2, LimitRaised: 3, LimitStuck: 4}

func gapFlag(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// gapOf is what one generation has before it.
func gapOf(g Gen, h Halt) int {
	switch {
	case g.ID == 0, g.Stage == Serving && !h.ends():
		return 0
	case g.Stage < Serving:
		return int(Serving-g.Stage+1) * gapStage
	}
	return int(stageSentinel-g.Stage) * gapEnd
}

// toBegin says that an attempt will begin by itself once what is under way has
// ended.
func (s *State) toBegin() bool {
	w := s.Wanted()
	if w.Rev == 0 || s.Paused {
		return false
	}
	switch {
	case s.Attempt.Gen != 0 && s.Next.ID == s.Attempt.Gen:
		return s.Next.Rel.Rev != w.Rev || s.Next.Restart != s.Restarts
	case s.Cur.Stage == Serving:
		return s.Cur.Rel.Rev != w.Rev || s.Cur.Restart != s.Restarts
	}
	return s.WakeWanted || s.StartWanted || w.External
}
