package lifecycle

// The part of I9 that is about every single step: Gap falls on every step that
// the machine takes by itself, so it comes to rest however its steps are mixed.

// own says that the step that was just taken is the machine's own: the good
// answer to something that it asked for, or one of its timers. A sleep belongs to
// those who left the app alone for long; a fallback is a commit, and checkEffect
// counts those.
func (x *explorer) own(m *move) bool {
	if x.out&(flagAsked|flagCrashed|flagFailed) != 0 || x.event.Result != OK {
		return false
	}
	switch m.kind {
	case moveLocal, moveOp, moveStop, moveDrain, moveTimer:
		return x.event.Kind != SleepDone && x.event.Kind != Committed
	}
	return false
}

// checkGap is asked of every edge.
func (x *explorer) checkGap(w *world, m *move) {
	if !w.up || !x.own(m) || x.before == w.s {
		return
	}
	if was, is := Gap(x.before), Gap(w.s); is >= was {
		x.fail("I9", "the machine's own step to %s does not bring it nearer to rest: the gap was %d and is %d", x.event, was, is)
	}
}
