package lifecycle

// The limit that an app's generations share holds them all together. It is raised
// before a second generation is set up beside the incumbent, so that neither is
// starved by the other, and restored when one of them has left.

// raises says that a generation of w needs a limit for two.
func (m *machine) raises(w Release) bool {
	cur := m.s.Cur
	return cur.ID != 0 && !w.External && !cur.Rel.External && (w.Limited || cur.Rel.Limited)
}

// raiseLimit notes that the limit may have changed before it is changed: a raise
// that failed half-way is restored as well.
func (m *machine) raiseLimit() {
	m.s.Limit = LimitRaised
	m.next(Raising, RaiseLimit)
}

// restoreLimit lowers the limit when only one generation is left. With the last one
// it goes by itself.
func (m *machine) restoreLimit() {
	if m.fenced() || m.s.Limit != LimitRaised || m.s.Next.ID != 0 || m.s.Old.ID != 0 {
		return
	}
	if m.s.Cur.ID == 0 {
		m.s.Limit = LimitOne
		return
	}
	m.s.Limit = LimitRestoring
	m.out.add(Effect{Kind: RestoreLimit, Gen: m.s.Cur.ID, Rel: m.s.Cur.Rel})
}

// limitRestored: until it is restored, no attempt that would raise it begins.
func (m *machine) limitRestored(e Event) {
	switch {
	case m.s.Limit != LimitRestoring:
	case e.Result == OK:
		m.s.Limit = LimitOne
	default:
		m.s.Limit = LimitStuck
		m.armSweep()
	}
}
