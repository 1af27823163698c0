package lifecycle

// ownerMutants change what another controller owns. Their own guarantee allows that.
func ownerMutants() []mutant {
	return []mutant{
		{
			name: "the recovery forgets a restart", config: "restarts and crashes", caught: []string{"R desired, restarts, paused, maintenance, halt"},
			rec: func(durable State, found []Found, fresh GenID) (State, Effects) {
				durable.Restarts = 0
				return Recover(durable, found, fresh)
			},
		},
		{
			name: "the reloader takes what is not proven gone for gone", config: "overlap", caught: []string{"R generations whose end is unproven"},
			step: after(func(b State, e Event, s *State, _ *Effects) {
				if e.Kind == Committed && b.Cur.Stage == Unproven {
					s.Cur = Gen{}
				}
			}),
		},
		{
			name: "the sweeper takes a report for recorded", config: "overlap", caught: []string{"R good, reported"},
			step: after(func(b State, e Event, s *State, f *Effects) {
				if r := f.find(Report); r != nil && e.Kind == TimerFired && e.Timer == TimerSweep {
					s.Reported = r.Rel.Rev
				}
			}),
		},
		{
			name: "the sweeper ends a drain", config: "overlap", caught: []string{"R the retiring generation"},
			step: after(func(b State, e Event, s *State, f *Effects) {
				if e.Kind == TimerFired && e.Timer == TimerSweep && s.Old.Stage == Draining {
					s.Old.Stage = Stopping
					f.add(Effect{Kind: Stop, Gen: s.Old.ID})
				}
			}),
		},
		{
			name: "the waker takes an attempt over", config: "overlap", caught: []string{"R attempts that no request asked for"},
			step: after(func(_ State, e Event, s *State, _ *Effects) {
				if e.Kind == WakeAsked && s.Attempt.Gen != 0 {
					s.Attempt.Cause = CauseWake
				}
			}),
		},
		{
			name: "the roller takes a wake over", config: "overlap", caught: []string{"R attempts that a request asked for"},
			step: after(func(b State, e Event, s *State, _ *Effects) {
				if e.Kind == TimerFired && e.Timer == TimerBackoff && b.Attempt.Gen != 0 {
					s.Attempt.Cause = CauseRetry
				}
			}),
		},
		{
			name: "the waker calls back what was told to end", config: "overlap", caught: []string{"R what is current and was told to end while no attempt is under way"}, also: []string{"which was stopped"},
			step: after(func(_ State, e Event, s *State, _ *Effects) {
				if e.Kind == WakeAsked && s.Cur.Stage == Stopping {
					s.Cur.Stage = Serving
				}
			}),
		},
	}
}
