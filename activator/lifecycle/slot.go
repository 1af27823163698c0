package lifecycle

// place stores the slot that follows from the state, if it is not the one that
// the edge already holds. Only a switch and a sleep store a slot otherwise; what
// the edge holds while a switch is under way is known with its answer.
func (m *machine) place() {
	want := m.resting()
	if want == m.s.Slot || m.s.Next.Stage == Switched {
		return
	}
	m.s.Slot = want
	m.out.add(Effect{Kind: Place, Gen: want.Gen, Slot: want})
}

// resting is the slot that follows from the state alone.
func (m *machine) resting() Slot {
	s := Slot{State: m.slotState(), Cache: m.s.Cache}
	switch s.State {
	case SlotServing:
		s.Gen = m.s.Cur.ID
	case SlotDown:
		s.Reason, s.Level = m.downReason()
	}
	return s
}

func (m *machine) slotState() SlotState {
	s := &m.s
	switch {
	case s.Halt == HaltRemove:
		return SlotRemoved
	case s.Halt == HaltStop:
		return SlotDown
	case s.Slot.State == SlotRemoved: // for ever: nothing is routed to it
		return SlotRemoved
	case s.Maintenance:
		return SlotMaintenance
	case s.Paused && !m.fenced():
		return SlotPaused
	case s.Cur.Stage == Serving && !s.Paused:
		return SlotServing
	case s.Desired.Rev == 0:
		return SlotEmpty
	case m.fenced(): // also of a paused app: nobody can resume it
		return SlotFenced
	case s.Attempt.Gen != 0 && (s.Cur.Stage == Draining || s.Attempt.Stopped):
		return SlotHolding
	case s.Attempt.Gen != 0:
		return SlotWaking
	case m.blocked() && !s.FallsBack:
		return SlotDown
	case s.WakeWanted || s.StartWanted || s.FallsBack:
		return SlotWaking
	}
	return SlotAsleep
}

// downReason says what keeps the app down, and the back-off level if time will
// mend it.
func (m *machine) downReason() (Reason, uint8) {
	s := &m.s
	switch {
	case s.Halt != HaltNone:
		return ReasonStopped, 0
	case s.Cur.Stage == Unproven || s.Next.Stage == Unproven || s.Old.Stage == Unproven:
		return ReasonUnproven, 0
	case s.Deferred != 0:
		return ReasonBackoff, s.Backoff
	}
	return ReasonHeld, 0
}
