package lifecycle

// begin admits an attempt and registers its generation in the same step, so a
// halt that comes later finds it. Without a number the sweep tries again.
func (m *machine) begin(w Release) {
	if m.fresh == 0 {
		m.armSweep()
		return
	}
	a := Attempt{Gen: m.fresh, Cause: m.cause(w), Mode: Overlap, Desired: m.s.Desired.Rev}
	if w.Hold || m.predecessor().Hold {
		a.Mode = Hold
	}
	m.s.Why = CauseNone
	m.s.Attempt = a
	m.s.Next = Gen{ID: m.fresh, Rel: w, Restart: m.s.Restarts}
	if w.External || w.Ran && a.Cause == CauseWake {
		m.next(Intending, Intent) // its bytes were verified before they first ran
		return
	}
	m.next(Verifying, Verify)
}

// predecessor is the release that an attempt takes over from, also while none of
// its generations runs: after a sleep, or a crash in the middle.
func (m *machine) predecessor() Release {
	if m.s.Cur.ID != 0 {
		return m.s.Cur.Rel
	}
	return m.s.Good
}

// cause is why w is started. Whatever is started only because somebody waits is
// a wake, and so is what runs in the place of a release that is passed over. A
// restart that found an app on its way up is paid by that start.
func (m *machine) cause(w Release) Cause {
	cur := m.s.Cur
	asked := m.s.StartWanted || m.s.Why == CauseRestart
	switch {
	case cur.ID == 0 && (!asked || w.Rev != m.s.Desired.Rev):
		return CauseWake
	case m.s.Why != CauseNone:
		return m.s.Why
	case cur.ID != 0 && cur.Rel.Rev == w.Rev:
		return CauseRestart
	case m.s.Good.Rev == 0:
		return CauseInstall
	}
	return released(w)
}

// next moves the generation being started to a stage and asks for its effect.
func (m *machine) next(st Stage, k EffectKind) {
	m.s.Next.Stage = st
	n := m.s.Next
	e := Effect{Kind: k, Gen: n.ID, Rel: n.Rel, Mode: m.s.Attempt.Mode, Cause: m.s.Attempt.Cause}
	if k == RecordRan {
		e.DownHeld = m.outrun()
	}
	m.out.add(e)
}

// answerOf says which event a stage waits for.
var answerOf = [stageSentinel]EventKind{
	Verifying: VerifyDone,
	Raising:   RaiseDone,
	Intending: IntentDone,
	Preparing: PrepareDone,
	Recording: RanDone,
	Going:     GoDone,
	Checking:  HealthDone,
	Switching: SwitchingDone,
	Switched:  SwitchDone,
	Stopping:  StopDone,
	Unproven:  StopDone,
}

func (m *machine) nextAnswer(e Event) {
	st := m.s.Next.Stage
	if answerOf[st] != e.Kind {
		return
	}
	if st == Stopping || st == Unproven {
		m.nextStopped(e)
		return
	}
	if st == Going && e.Result != OK && !e.MayHaveRun {
		m.s.Next.Ran = false // the child never passed its go-byte
	}
	if st == Switched && e.Result == OK { // it has happened, whatever was asked meanwhile
		m.advance()
		return
	}
	switch end, why := m.classify(e); end {
	case endOK:
		m.advance()
	case endFailed:
		m.fail(why)
	case endCancelled, endStale, endRefused:
		m.abandon(why)
	case endUnlisted:
	}
}

// advance takes the successor one stage further.
func (m *machine) advance() {
	switch m.s.Next.Stage {
	case Verifying:
		if m.raises(m.s.Next.Rel) {
			m.raiseLimit()
			return
		}
		m.next(Intending, Intent)
	case Raising:
		m.next(Intending, Intent)
	case Intending:
		m.s.Next.Prepared = true
		m.next(Preparing, Prepare)
	case Preparing:
		m.recordRan()
	case Recording:
		m.s.Next.Rel.Ran = true
		m.markRan()
		m.ready()
	case Going:
		m.next(Checking, Health)
	case Checking:
		if n := m.s.Next.Rel; n.Canary && !(m.s.Attempt.Cause == CauseWake && n.Rev == m.s.Good.Rev) {
			m.s.Next.Stage = Settling
			m.out.add(Effect{Kind: Arm, Timer: TimerSettle, Gen: m.s.Next.ID})
			return
		}
		m.next(Switching, RecordSwitching)
	case Settling:
		m.next(Switching, RecordSwitching)
	case Switching:
		m.s.Next.Stage = Switched
		m.out.add(Effect{Kind: Switch, Gen: m.s.Next.ID, Rel: m.s.Next.Rel, Slot: m.servingSlot(m.s.Next)})
	case Switched:
		m.switched()
	case StageNone, Waiting, Serving, Draining, Stopping, Unproven, stageSentinel:
	}
}

// ready: everything that can be refused has been asked. Only now may a hold touch the
// incumbent.
func (m *machine) ready() {
	if m.s.Attempt.Mode == Overlap || m.s.Cur.ID == 0 {
		m.goByte()
		return
	}
	m.s.Next.Stage = Waiting
	if m.s.Cur.Stage != Serving { // it died by itself; its proof of empty releases the successor
		m.s.Attempt.Stopped = true
		return
	}
	m.s.Cur.Stage = Draining
	m.place()
	cur := m.s.Cur.ID
	m.out.add(Effect{Kind: Disarm, Timer: TimerIdle})
	m.out.add(Effect{Kind: CloseStreams, Gen: cur})
	m.out.add(Effect{Kind: Drain, Gen: cur, Short: true})
}

// recordRan: that this release has run, and what may not be started any more once it
// has, is durable before its first go-byte, and before a hold stops anything: the record
// may be refused. Until the go-byte it says more than is true, and if the attempt ends
// before it, its outcome takes back what is held down (see "One hold swap" in doc.go).
func (m *machine) recordRan() {
	n := m.s.Next.Rel
	if (n.Ran || n.External) && m.outrun() == m.s.DownHeld {
		m.ready()
		return
	}
	m.next(Recording, RecordRan)
}

func (m *machine) goByte() {
	m.s.Next.Ran = true
	m.next(Going, Go)
}

// markRan keeps what was recorded with the pointers that name the release.
func (m *machine) markRan() {
	if m.s.Next.Rel.Rev == m.s.Desired.Rev {
		m.s.Desired.Ran = true
	}
	if m.s.Next.Rel.Rev == m.s.Good.Rev {
		m.s.Good.Ran = true
	}
}

// outrun is what may not be started any more once the successor has run. In hold mode
// that is whatever is older: what only one may write may have been changed.
func (m *machine) outrun() Revision {
	if m.s.Attempt.Mode == Hold {
		return max(m.s.DownHeld, m.s.Next.Rel.Rev-1)
	}
	return m.s.DownHeld
}

// leave notes that the successor has run, however its attempt ends.
func (m *machine) leave() {
	if m.s.Next.Ran {
		m.s.DownHeld = m.outrun()
	}
}

// outcome records how the attempt under way ended, and ends it.
func (m *machine) outcome(o Outcome, why Reason) {
	m.record(Effect{Outcome: o, Reason: why})
}

// record is outcome with what the failure book is told.
func (m *machine) record(e Effect) {
	a, g := m.s.Attempt, m.s.Next
	if g.ID != a.Gen {
		g = m.s.Cur
	}
	e.Kind, e.Gen, e.Rel, e.Restart, e.Mode, e.Cause, e.Executed = RecordOutcome, a.Gen, g.Rel, g.Restart, a.Mode, a.Cause, g.Ran
	e.DownHeld = m.s.DownHeld
	m.out.add(e)
	m.s.Attempt = Attempt{}
}

// dropNext ends the generation that was being started.
func (m *machine) dropNext() {
	n := &m.s.Next
	if n.Stage == Settling {
		m.out.add(Effect{Kind: Disarm, Timer: TimerSettle})
	}
	if !n.Prepared {
		m.out.add(Effect{Kind: Forget, Gen: n.ID})
		*n = Gen{}
		return
	}
	n.Stage = Stopping
	m.out.add(Effect{Kind: Stop, Gen: n.ID, Kill: !n.Ran})
}

// fail ends the attempt by its build's fault.
func (m *machine) fail(why Reason) {
	a, n := m.s.Attempt, m.s.Next
	serving := m.s.Cur.Stage == Serving
	fresh := n.Rel.Rev == m.s.Desired.Rev && n.Rel.Rev != m.s.Good.Rev && m.s.Good.Rev != 0
	m.leave()
	switch {
	case fresh:
		m.s.Held = n.Rel.Rev
	case a.Stopped: // it served, and cannot be started again
		m.s.DownHeld = max(m.s.DownHeld, n.Rel.Rev)
	}
	held := m.s.GoodHeld() && !serving
	falls := held && fresh && n.Rel.Fallback && !n.Rel.Own
	o := Down
	if serving || fresh && m.s.Wanted().Rev != 0 { // the good release serves on, or is there to be woken
		o = Failed
	}
	m.record(Effect{Outcome: o, Reason: why, Held: fresh, Fallback: falls})
	m.dropNext()
	m.s.StartWanted, m.s.FallsBack = false, falls
	switch {
	case serving:
		m.s.Cur.Restart = m.s.Restarts // a restart that failed is paid; it is not tried again by itself
		if older := n.Rel.Rev != m.s.Cur.Rel.Rev; older && !fresh {
			m.backOff(n.Rel.Rev)
		}
	case fresh || held:
		m.standIn(a)
		m.turnAway()
	default:
		m.backOff(n.Rel.Rev)
	}
	if falls {
		m.out.add(Effect{Kind: CommitFallback, Gen: n.ID, Rel: m.s.Good})
	}
}

// abandon ends the attempt by no fault of its build.
func (m *machine) abandon(why Reason) {
	a, n := m.s.Attempt, m.s.Next
	refused := !cancels(why)
	m.again(a)
	m.leave()
	if refused && a.Stopped && n.Ran {
		m.outcome(Down, why)
	} else {
		m.outcome(Abandoned, why)
	}
	m.dropNext()
	if m.s.Cur.Stage == Draining { // nothing was told to end yet: the parked go back to it
		m.s.Cur.Stage = Serving
		m.out.add(Effect{Kind: RecordSwitched, Gen: m.s.Cur.ID, Rel: m.s.Cur.Rel}) // it was recorded as retiring
		m.serveOn()
	}
	switch {
	case refused:
		m.standIn(a)
		m.backOff(n.Rel.Rev)
	case why == ReasonSuperseded && a.Stopped:
		m.s.StartWanted = true
	}
}

// standIn asks for what is good in the place of an attempt that came to nothing: if
// its incumbent was stopped for it, requests are parked.
func (m *machine) standIn(a Attempt) {
	m.s.WakeWanted = m.s.WakeWanted || a.Stopped
}

// again keeps why an attempt existed for the one that follows it.
func (m *machine) again(a Attempt) {
	if m.s.Why == CauseNone && a.Cause != CauseWake {
		m.s.Why = a.Cause
	}
}

// backOff passes over a revision until a timer fires. What is desired and what
// is good never take turns meanwhile: when both were put off, both wait.
func (m *machine) backOff(r Revision) {
	m.s.Backoff = min(m.s.Backoff+1, maxBackoff)
	m.s.Stalled = m.s.Deferred != 0 && (m.s.Stalled || m.s.Deferred != r)
	if m.s.Deferred == 0 {
		m.s.Deferred = r
	}
	m.out.add(Effect{Kind: Arm, Timer: TimerBackoff, Level: m.s.Backoff})
	m.turnAway()
}

// turnAway tells those who wait if nothing can run for them. Who waits for a build that
// fails waits on for the one that is committed in its place, if there will be one.
func (m *machine) turnAway() {
	if m.s.Wanted().Rev == 0 && !m.s.FallsBack {
		m.s.WakeWanted, m.s.StartWanted = false, false
	}
}

// fellBack: the good build could not be committed again, so nothing comes that anybody
// could wait for. Should it be committed later, that is a release like others.
func (m *machine) fellBack() {
	if m.s.FallsBack {
		m.s.FallsBack = false
		m.turnAway()
	}
}
