package lifecycle

// servingSlot is the slot that a switch to g stores: address (by its number),
// build and cache generation in one value.
func (m *machine) servingSlot(g Gen) Slot {
	return Slot{State: SlotServing, Gen: g.ID, Cache: CacheKey{Rev: g.Rel.Rev, Restart: g.Restart}}
}

// asleepSlot keeps the cache generation, so pages outlive a sleep.
func (m *machine) asleepSlot() Slot { return Slot{State: SlotAsleep, Cache: m.s.Cache} }

// switched: the slot names the successor. From here it is never dropped for
// something that went wrong before.
func (m *machine) switched() {
	m.leave()
	old := m.s.Cur
	m.s.Cur, m.s.Next = m.s.Next, Gen{}
	m.s.Cur.Stage = Serving
	cur := m.s.Cur
	m.s.Slot = m.servingSlot(cur)
	m.s.Cache = m.s.Slot.Cache
	m.s.Good = cur.Rel
	m.s.WakeWanted, m.s.ReportOwed = false, false
	m.s.StartWanted = m.s.StartWanted && m.s.Attempt.Desired != m.s.Desired.Rev // committed while the slot was stored
	m.out.add(Effect{Kind: RecordSwitched, Gen: cur.ID, Rel: cur.Rel})
	m.retire(old)
	m.serveOn()
	switch owed := cur.Rel.Rev > m.s.Reported; {
	case owed && m.fenced(): // it came while the slot was being stored: the switch stands
		m.s.ReportOwed = true
		m.outcome(Done, ReasonNotReported)
	case owed:
		m.s.Attempt.Reporting = true
		m.report()
	default:
		m.outcome(Done, ReasonNone)
	}
}

// retire lets what was switched away from drain. After a fence the next owner does.
func (m *machine) retire(old Gen) {
	if old.ID == 0 {
		return
	}
	m.s.Old = old
	if old.Stage == Serving {
		m.s.Old.Stage = Draining
		if !m.fenced() {
			m.out.add(Effect{Kind: Drain, Gen: old.ID})
		}
	}
}

// reported: whatever came of the record, the switch stands. One that could not
// be written is tried again by the sweep.
func (m *machine) reported(e Event) {
	reporting := m.s.Attempt.Reporting
	if e.Gen == 0 || e.Gen != m.s.Cur.ID || !reporting && !m.s.ReportOwed {
		return
	}
	why := ReasonNone
	switch {
	case e.Result == OK && m.s.Cur.Rel.Rev == m.s.Desired.Rev:
		m.s.Reported, m.s.ReportOwed = m.s.Cur.Rel.Rev, false
	case e.Result == OK: // it was quiet
		m.s.ReportOwed = false
		if m.s.Attempt.Desired != m.s.Desired.Rev {
			why = ReasonSuperseded
		}
	default:
		why = ReasonNotReported
		m.s.ReportOwed = true
		m.armSweep()
	}
	switch {
	case !reporting:
	case m.s.Cur.unasked():
		m.outcome(Restored, why)
	default:
		m.outcome(Done, why)
	}
}

// unasked says that g runs what usher has committed by itself, and that nobody has asked
// for it since: every restart is of what is desired. So that is known after a crash, too.
func (g *Gen) unasked() bool { return g.Rel.Own && g.Restart <= g.Rel.Restarts }

func (m *machine) nextStopped(e Event) {
	if e.Result != OK {
		m.s.Next.Stage = Unproven
		m.armSweep()
		return
	}
	m.out.add(Effect{Kind: Forget, Gen: m.s.Next.ID})
	m.s.Next = Gen{}
}

func (m *machine) curAnswer(e Event) {
	switch {
	case e.Kind == SleepDone && m.s.Cur.Stage == Serving:
		m.slept(e)
	case e.Kind == DrainDone && m.s.Cur.Stage == Draining && !m.fenced():
		m.s.Attempt.Stopped = m.s.Attempt.Gen != 0
		m.stopCur()
	case e.Kind == StopDone && (m.s.Cur.Stage == Stopping || m.s.Cur.Stage == Unproven):
		m.curStopped(e)
	}
}

// stopCur ends what was current. The slot leaves it first.
func (m *machine) stopCur() {
	m.s.Cur.Stage = Stopping
	m.s.ReportOwed = false // a later switch reports it
	m.place()
	m.out.add(Effect{Kind: Stop, Gen: m.s.Cur.ID})
}

func (m *machine) curStopped(e Event) {
	if e.Result != OK {
		m.s.Cur.Stage = Unproven
		m.armSweep()
		m.unprovenHold()
		return
	}
	m.out.add(Effect{Kind: Forget, Gen: m.s.Cur.ID})
	m.s.Cur = Gen{}
	if m.s.Next.Stage == Waiting {
		if why := m.stale(); why != ReasonNone {
			m.abandon(why)
			return
		}
		m.goByte()
	}
}

// unprovenHold ends an attempt whose incumbent cannot be proven gone. It is
// begun again when the sweep has the proof.
func (m *machine) unprovenHold() {
	if m.s.Attempt.Mode == Hold && m.s.Attempt.Gen == m.s.Next.ID && m.s.Next.ID != 0 {
		m.again(m.s.Attempt)
		m.outcome(Down, ReasonUnproven)
		m.dropNext()
		m.s.StartWanted = true
	}
	m.s.WakeWanted = false
}

func (m *machine) oldAnswer(e Event) {
	switch stage := m.s.Old.Stage; {
	case e.Kind == DrainDone && m.fenced(): // it stays as it is
	case e.Kind == DrainDone && stage == Draining:
		m.s.Old.Stage = Stopping
		m.out.add(Effect{Kind: Stop, Gen: m.s.Old.ID})
	case e.Kind != StopDone || stage != Stopping && stage != Unproven:
	case e.Result == OK:
		m.out.add(Effect{Kind: Forget, Gen: m.s.Old.ID})
		m.s.Old = Gen{}
	default:
		m.s.Old.Stage = Unproven
		m.armSweep()
	}
}

// exited: a process ended by itself.
func (m *machine) exited(e Event) {
	switch {
	case e.Gen == 0:
	case e.Gen == m.s.Next.ID:
		m.nextExited()
	case e.Gen == m.s.Cur.ID:
		m.curExited(e)
	case m.fenced(): // what is left of it is for the next owner to end
	case e.Gen == m.s.Old.ID && m.s.Old.Stage == Draining:
		m.s.Old.Stage = Stopping
		m.out.add(Effect{Kind: Stop, Gen: e.Gen})
	}
}

func (m *machine) nextExited() {
	switch {
	case m.s.Next.Stage == Stopping || m.s.Next.Stage == Unproven:
	case m.s.Next.Ran:
		m.fail(ReasonExited)
	default:
		m.abandon(ReasonVanished)
	}
}

// curExited: the address is taken away at once; what it left behind is swept
// before anything starts in its place.
func (m *machine) curExited(e Event) {
	if m.s.Cur.Stage != Serving && m.s.Cur.Stage != Draining {
		return
	}
	if m.fenced() { // what is left of it is for the next owner to end
		m.s.Cur.Stage = Unproven
		return
	}
	if m.s.Cur.Stage == Draining {
		m.s.Attempt.Stopped = m.s.Attempt.Gen != 0
	}
	m.out.add(Effect{Kind: Disarm, Timer: TimerIdle})
	switch {
	case !e.Quick:
		m.s.Backoff = 0
	case m.s.Attempt.Gen == 0:
		m.crashLoop()
	}
	m.stopCur()
}

// crashLoop lets the first quick crash be woken at once and makes the next ones
// wait.
func (m *machine) crashLoop() {
	if m.s.Backoff == 0 {
		m.s.Backoff = 1
		return
	}
	m.backOff(m.s.Cur.Rel.Rev)
}

// sleep asks the edge to retire the incumbent if nothing is in flight.
func (m *machine) sleep() {
	if m.s.Cur.Stage != Serving || m.s.Cur.Rel.External || m.s.Paused || m.s.Halt != HaltNone {
		return
	}
	unfinished := m.s.Attempt.Gen != 0 || m.s.Old.ID != 0 || m.s.Next.ID != 0
	if unfinished || m.s.ReportOwed { // while nothing can be recorded nothing could be woken either
		m.out.add(Effect{Kind: Arm, Timer: TimerIdle, Gen: m.s.Cur.ID})
		return
	}
	m.out.add(Effect{Kind: TrySleep, Gen: m.s.Cur.ID, Slot: m.asleepSlot()})
}

func (m *machine) slept(e Event) {
	if e.Result != OK {
		m.serveOn()
		return
	}
	m.s.Slot = m.asleepSlot()
	if m.fenced() {
		return // the slot names it again
	}
	m.stopCur()
}

func (m *machine) armSweep() {
	if !m.s.SweepArmed {
		m.s.SweepArmed = true
		m.out.add(Effect{Kind: Arm, Timer: TimerSweep})
	}
}

// sweep tries again what an earlier step could not prove finished. A stop stays
// unproven until its proof arrives, so what is down does not flicker.
func (m *machine) sweep() {
	m.s.SweepArmed = false
	swept := []*Gen{&m.s.Next, &m.s.Cur, &m.s.Old}
	if m.fenced() {
		swept = swept[:1] // what it has called off; the rest is for the next owner
	}
	for _, g := range swept {
		if g.Stage == Unproven {
			m.out.add(Effect{Kind: Stop, Gen: g.ID, Kill: true})
		}
	}
	if m.fenced() {
		return
	}
	if m.s.Limit == LimitStuck {
		m.s.Limit = LimitRaised // converge restores it
	}
	m.reportOwed()
}

// reportOwed reports what serves and was not reported yet. What the slot does
// not name does not serve, whatever runs.
func (m *machine) reportOwed() {
	if m.s.ReportOwed && m.s.Cur.Stage == Serving && m.s.Slot.State == SlotServing {
		m.report()
	}
}

// report records that what serves is good, and reports it if nothing newer is
// desired.
func (m *machine) report() {
	cur := m.s.Cur
	m.out.add(Effect{Kind: Report, Gen: cur.ID, Rel: cur.Rel, Quiet: cur.Rel.Rev != m.s.Desired.Rev})
}

// halt ends what a barrier ends. A shutdown leaves the incumbent running, and a
// fence everything but the attempt.
func (m *machine) halt() {
	if !m.s.Halt.ends() {
		m.gone(m.s.Next.ID == 0 && m.s.Attempt.Gen == 0)
		return
	}
	m.place()
	if m.s.Cur.Stage == Serving {
		m.s.Cur.Stage = Draining
		m.out.add(Effect{Kind: Disarm, Timer: TimerIdle})
		m.out.add(Effect{Kind: Drain, Gen: m.s.Cur.ID})
	}
	m.gone(m.s.Cur.ID == 0 && m.s.Next.ID == 0 && m.s.Old.ID == 0)
}

func (m *machine) gone(yes bool) {
	if yes && !m.s.Gone {
		m.s.Gone = true
		m.out.add(Effect{Kind: Gone})
	}
}
