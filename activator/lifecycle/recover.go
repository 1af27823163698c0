package lifecycle

// Found is one generation as a runtime record and the process table show it
// after usher was started again.
type Found struct {
	ID      GenID
	Rel     Release
	Restart uint32
	Stage   Stage // the last one recorded
	Alive   bool  // its main process runs, is the recorded one and answers
}

// Recover places an app after usher was started again. durable carries what was
// committed: Desired, Good, Reported, Held, DownHeld, Restarts, Paused,
// Maintenance; and LimitRaised, if the app's limit may be that of two. found is
// ordered by generation number, oldest first, at most three.
//
// From the record of the switch on it only rolls forward: the youngest
// generation recorded as switching or serving that is alive serves, unless a
// newer revision was reported; before it, it only undoes. What does not serve is stopped and proven empty without
// another drain, before anything is started. An external release serves at once
// on its owner's word.
func Recover(durable State, found []Found, fresh GenID) (State, Effects) {
	m := machine{s: durable, fresh: fresh}
	serving := -1
	for i, f := range found {
		if f.Alive && f.Rel.Rev >= durable.Reported && (f.Stage == Switching || f.Stage == Switched || f.Stage == Serving) {
			serving = i
		}
	}
	for i, f := range found {
		if i == serving {
			m.adopt(f)
		} else {
			m.undo(f, serving >= 0 && i > serving)
		}
	}
	m.s.Cache = CacheKey{Rev: m.s.Reported, Restart: m.s.Restarts}
	m.external()
	m.owed()
	m.converge()
	m.place()
	m.reportOwed()
	return m.s, m.out
}

func (m *machine) adopt(f Found) {
	m.s.Cur = Gen{ID: f.ID, Rel: f.Rel, Restart: f.Restart, Stage: Serving, Ran: true, Prepared: true}
	m.out.add(Effect{Kind: RecordSwitched, Gen: f.ID, Rel: f.Rel})
	m.out.add(Effect{Kind: Arm, Timer: TimerIdle, Gen: f.ID})
}

// undo gives a generation that does not serve the place where its proof of
// empty is waited for.
func (m *machine) undo(f Found, younger bool) {
	g := Gen{ID: f.ID, Rel: f.Rel, Restart: f.Restart, Stage: Stopping, Ran: true, Prepared: true}
	switch {
	case younger || m.s.Old.ID != 0 && m.s.Next.ID == 0:
		m.s.Next = g
	case m.s.Old.ID == 0:
		m.s.Old = g
	default:
		m.s.Cur = g
	}
	m.out.add(Effect{Kind: Stop, Gen: f.ID})
}

func (m *machine) external() {
	rel := m.s.Good
	if rel.Rev == 0 {
		rel = m.s.Desired
	}
	if !rel.External || m.s.Cur.ID != 0 || m.fresh == 0 || rel.Rev <= m.s.DownHeld {
		return
	}
	m.s.Cur = Gen{ID: m.fresh, Rel: rel, Restart: m.s.Restarts, Stage: Serving, Ran: true, Prepared: true}
	m.fresh = 0
}

// owed takes up what a crash left undone: a release that was committed and not
// yet reported, a report of what serves, a restart.
func (m *machine) owed() {
	cur := m.s.Cur
	if cur.Stage == Serving {
		m.s.Cache = CacheKey{Rev: cur.Rel.Rev, Restart: cur.Restart}
		if cur.Rel.Rev > m.s.Good.Rev { // else what is good does not answer, and stays what it is
			m.s.Good = cur.Rel
		}
		m.s.DownHeld = min(m.s.DownHeld, cur.Rel.Rev-1) // it was started, so the record says too much
		m.s.ReportOwed = cur.Rel.Rev > m.s.Reported
	}
	m.s.StartWanted = m.s.Good.Rev != 0 && // a first release waits for its first request
		m.s.Desired.Rev > max(m.s.Reported, cur.Rel.Rev) && m.s.Wanted().Rev == m.s.Desired.Rev
	switch {
	case m.s.StartWanted:
		m.s.Why = released(m.s.Desired)
	case cur.Stage == Serving && cur.Restart != m.s.Restarts:
		m.s.Why = CauseRestart
	}
}
