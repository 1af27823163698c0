package lifecycle

// machine is one step under way: the state as it changes and the effects so far.
type machine struct {
	s     State
	out   Effects
	fresh GenID
}

// Step applies one event. It is total: an event that makes no sense in s
// changes nothing.
func Step(s State, e Event) (State, Effects) {
	m := machine{s: s, fresh: e.Fresh}
	m.apply(e)
	if e.Kind >= Exited && m.s == s { // nobody waited for it: nothing is decided anew
		return m.s, m.out
	}
	m.converge()
	m.place()
	return m.s, m.out
}

func (m *machine) apply(e Event) {
	if m.fenced() && e.Kind < Exited {
		return // what people ask is for the next owner
	}
	switch e.Kind {
	case Committed:
		m.committed(e.Release)
	case RestartAsked:
		m.restart(e.Retry)
	case WakeAsked:
		m.wake()
	case SleepAsked:
		m.sleep()
	case PauseAsked:
		m.s.Paused, m.s.Maintenance = true, e.Maintenance
	case ResumeAsked:
		m.resume()
	case HaltAsked:
		m.s.Halt = max(m.s.Halt, e.Halt)
	case Exited:
		m.exited(e)
	case TimerFired:
		m.timer(e)
	case ReportDone:
		m.reported(e)
	case RestoreDone:
		m.limitRestored(e)
	case FallbackDone:
		m.fellBack()
	default:
		m.answer(e)
	}
}

// fenced says that usher does not own its state any more.
func (m *machine) fenced() bool { return m.s.Halt == HaltFence }

// answer routes the answer of an effect to the generation it is about.
func (m *machine) answer(e Event) {
	switch {
	case e.Gen == 0:
	case e.Gen == m.s.Next.ID:
		m.nextAnswer(e)
	case e.Gen == m.s.Cur.ID:
		m.curAnswer(e)
	case e.Gen == m.s.Old.ID:
		m.oldAnswer(e)
	case e.Kind == PrepareDone || e.Kind == GoDone:
		m.out.add(Effect{Kind: Stop, Gen: e.Gen, Kill: true}) // late: clean up, nothing else
	}
}

func (m *machine) committed(r Release) {
	if r.Rev <= m.s.Desired.Rev {
		return
	}
	first := m.s.Desired.Rev == 0
	m.s.Desired, m.s.FallsBack = r, false
	m.s.Why = released(r)
	if first {
		m.s.Why = CauseInstall
	}
	m.lift()
	m.s.StartWanted = true
}

// released is why a release is started for the first time.
func released(r Release) Cause {
	if r.Config {
		return CauseConfig
	}
	return CauseRelease
}

// lift ends a back-off.
func (m *machine) lift() {
	m.s.Backoff = 0
	if m.s.Deferred != 0 {
		m.s.Deferred, m.s.Stalled = 0, false
		m.out.add(Effect{Kind: Disarm, Timer: TimerBackoff})
	}
}

// restart asks for a fresh generation of what runs. A retry asks for one of what
// is desired, whatever is held against it and whether anything runs; what is older
// stays held down.
func (m *machine) restart(retry bool) {
	m.s.Restarts++
	runs := m.s.Cur.Stage == Serving || m.s.Attempt.Gen != 0
	switch {
	case retry:
		m.lift()
		m.s.Held = 0
		m.s.DownHeld = min(m.s.DownHeld, m.s.Desired.Rev-1)
		m.s.StartWanted = true
		m.s.Why = CauseRetry
	case runs:
		m.s.Why = CauseRestart
	}
	if !runs { // without a retry a new cache generation is all there is to do
		m.s.Cache.Restart = m.s.Restarts
	}
}

func (m *machine) wake() {
	if m.s.Cur.Stage != Serving && !m.blocked() {
		m.s.WakeWanted = true
	}
}

func (m *machine) resume() {
	m.s.Paused, m.s.Maintenance = false, false
	if m.s.Cur.Stage == Serving {
		m.serveOn()
	}
}

// serveOn takes up what rests while the slot does not name the incumbent.
func (m *machine) serveOn() {
	if m.fenced() {
		return
	}
	m.out.add(Effect{Kind: Arm, Timer: TimerIdle, Gen: m.s.Cur.ID})
	if m.s.ReportOwed {
		m.armSweep()
	}
}

func (m *machine) timer(e Event) {
	switch e.Timer {
	case TimerBackoff:
		if m.s.Deferred != 0 {
			m.s.Deferred, m.s.Stalled = 0, false
			m.s.Why = CauseRetry
		}
	case TimerSettle:
		if e.Gen == m.s.Next.ID && m.s.Next.Stage == Settling {
			m.advance()
		}
	case TimerSweep:
		m.sweep()
	case TimerNone, TimerIdle:
	}
}

// Wanted is the release that every boot from here on would run; the zero release
// if there is none or it must wait. Nothing below what was reported is ever
// wanted, because good is never below it.
func (s *State) Wanted() Release {
	d, g := s.Desired, s.Good
	switch {
	case s.Stalled:
	case d.Rev != s.Held && s.may(d):
		return d
	case s.may(g):
		return g
	case g.Rev == 0 && s.may(d):
		return d // passed over, but there is nothing else to try
	}
	return Release{}
}

// may says that nothing holds r down and that it has no timer to wait for.
func (s *State) may(r Release) bool { return r.Rev > s.DownHeld && r.Rev != s.Deferred }

// GoodHeld says that what is good may not be started in the place of anything.
func (s *State) GoodHeld() bool { return s.Good.Rev != 0 && s.Good.Rev <= s.DownHeld }

// blocked says that nothing may be started until a timer, a release, a retry
// or the sweep changes that.
func (m *machine) blocked() bool {
	return m.s.Wanted().Rev == 0 || m.s.Paused || m.s.Halt != HaltNone ||
		m.s.Cur.Stage == Unproven || m.s.Next.Stage == Unproven || m.s.Old.Stage == Unproven && m.s.Cur.Stage != Serving
}

// converge begins, cancels or finishes what the state asks for: at most one
// attempt, and only when every earlier generation but the incumbent is gone.
// While a slot is being stored nothing else is decided: what is asked meanwhile
// takes effect with the answer.
func (m *machine) converge() {
	if m.s.Next.Stage == Switched {
		return
	}
	if a := m.s.Attempt; a.Gen != 0 {
		if why := m.stale(); why != ReasonNone && !a.Reporting {
			m.abandon(why)
		}
	}
	m.restoreLimit()
	if m.s.Halt != HaltNone {
		m.halt()
		return
	}
	if m.s.Attempt.Gen != 0 || m.s.Next.ID != 0 || m.blocked() {
		return
	}
	w := m.s.Wanted()
	switch {
	case !m.due(w):
		if m.s.Cur.Stage == Serving { // what was wanted serves
			m.s.WakeWanted, m.s.StartWanted, m.s.Why = false, false, CauseNone
		}
	case m.s.Old.ID != 0:
		m.hurry()
	case m.raises(w) && m.s.Limit != LimitOne: // the restore comes first
	default:
		m.begin(w)
	}
}

// due says that w is to be started now.
func (m *machine) due(w Release) bool {
	switch {
	case m.s.Cur.ID == 0:
		return m.s.WakeWanted || m.s.StartWanted || w.External
	case m.s.Cur.Stage == Serving:
		return m.s.Cur.Rel.Rev != w.Rev || m.s.Cur.Restart != m.s.Restarts
	}
	return false
}

// hurry bounds the drain that an attempt waits for.
func (m *machine) hurry() {
	if old := &m.s.Old; old.Stage == Draining && !old.Hurried {
		old.Hurried = true
		m.out.add(Effect{Kind: CutDrain, Gen: old.ID})
	}
}

// stale says why the attempt under way must not go on. It is asked at
// admission, at every answer and so right before exec and before the switch.
func (m *machine) stale() Reason {
	switch {
	case m.s.Halt == HaltFence:
		return ReasonFenced
	case m.s.Halt == HaltRemove:
		return ReasonRemoved
	case m.s.Halt == HaltStop:
		return ReasonStopped
	case m.s.Halt == HaltShutdown:
		return ReasonShutdown
	case m.s.Paused:
		return ReasonPaused
	case m.s.Attempt.Desired != m.s.Desired.Rev, m.s.Next.Restart != m.s.Restarts:
		return ReasonSuperseded
	}
	return ReasonNone
}
