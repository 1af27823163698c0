package activator

import (
	"time"

	"github.com/usher-edge/usher/activator/cgroup"
	lc "github.com/usher-edge/usher/activator/lifecycle"
	"github.com/usher-edge/usher/activator/store"
)

// Status is one app at one instant. It is a copy.
type Status struct {
	Name        string
	State       string // asleep, waking, awake, swapping, holding, down, paused, empty, removing, fenced
	Reason      string
	Maintenance bool

	Revision                uint64 // that serves, or would be woken
	Desired, Good, Reported uint64
	Generation              uint64
	Build, Digest           string
	PID                     int
	Address                 string
	Mode                    string
	External                bool
	Level                   string // the proof of empty: cgroup or session
	User                    string
	Limits                  cgroup.Limits // as the desired release has them
	Unlimited               string        // why they are not in effect; empty: they are

	Last          store.Outcome
	LastOperation string
	LastExit      *Exit
	LastTail      []string

	Generations []GenerationStatus
	Restarts    uint64
	// RestartsDone is how many of them what serves has taken up.
	RestartsDone uint64
	Failures     int
	NextRetry    time.Time
	IdleTimeout  time.Duration
	IdleFrom     time.Time // when it became current
	Version      uint64
	Boot         time.Duration // learned
	// Recovery is what usher found of the app at its start that was not as it had
	// been recorded.
	Recovery []string
}

// GenerationStatus is one generation that is not proven gone yet.
type GenerationStatus struct {
	Number, Revision uint64
	Role, Stage      string
	PID              int
	Address          string
	StartedAt        time.Time
}

// roleNames are the roles of generations, by the bit that runner.roles has for each.
var roleNames = [...]string{"incumbent", "successor", "retiring"}

// publish makes what there is of the app visible to readers outside the mailbox.
func (r *runner) publish() {
	bits := uint32(0)
	for role, g := range [...]*lc.Gen{&r.state.Cur, &r.state.Next, &r.state.Old} {
		if g.ID != 0 && r.gens[g.ID] != nil {
			bits |= 1 << role
		}
	}
	r.roles.Store(bits)
}

// status describes the app. It runs in the mailbox.
func (r *runner) status() (Status, error) {
	rec, err := r.recorded()
	if err != nil {
		return Status{}, err
	}
	last := r.latest()
	s := Status{
		Name: r.name, State: r.stateName(), Maintenance: r.state.Maintenance,
		Revision: uint64(r.state.Cache.Rev), Desired: rec.Desired, Good: rec.Good, Reported: rec.Reported,
		Mode: lc.Overlap.String(), External: r.spec.Target != "", Level: r.act.backend.Level(), User: r.spec.Process.User,
		Last: last.Outcome, LastOperation: last.operation, LastExit: last.exit, LastTail: last.tail,
		Restarts: rec.Restarts, IdleTimeout: r.spec.Policy.IdleTimeout, Version: rec.Version, Boot: r.boot,
		Recovery: r.differences(),
	}
	if r.spec.Process.Hold || r.spec.Process.Listen == ListenFixed {
		s.Mode = lc.Hold.String()
	}
	if r.fenced() {
		s.Reason = r.act.Owned().Error()
	}
	if r.state.Slot.State == lc.SlotDown {
		s.Reason = r.downText(r.state.Slot)
		if r.state.Slot.Level != 0 {
			s.NextRetry = r.retry
		}
	}
	if s.Limits = r.spec.Process.Limits; !s.Limits.None() {
		if err := r.act.enforces(); err != nil {
			s.Unlimited = err.Error()
		}
	}
	s.Failures = rec.Failures[rec.Desired].Count
	if rel, ok := rec.Release(s.Revision); ok {
		s.Build, s.Digest = rel.Build, rel.Digest
	}
	r.generationStatus(&s)
	return s, nil
}

// latest is what is known of the last attempt: from memory, or else from the
// record.
func (r *runner) latest() lastAttempt {
	if r.last != nil {
		return *r.last
	}
	rec, err := r.recorded()
	if err != nil || len(rec.Outcomes) == 0 {
		return lastAttempt{}
	}
	return lastAttempt{Outcome: rec.Outcomes[len(rec.Outcomes)-1]}
}

func (r *runner) generationStatus(s *Status) {
	for role, g := range [...]*lc.Gen{&r.state.Cur, &r.state.Next, &r.state.Old} {
		rg := r.gens[g.ID]
		if g.ID == 0 || rg == nil {
			continue
		}
		s.Generations = append(s.Generations, GenerationStatus{
			Number: uint64(g.ID), Revision: uint64(g.Rel.Rev), Role: roleNames[role], Stage: g.Stage.String(),
			PID: rg.run.PID, Address: rg.run.Address, StartedAt: rg.startedAt,
		})
		if g.ID == r.state.Cur.ID && g.Stage == lc.Serving {
			s.RestartsDone = uint64(g.Restart)
			s.Generation, s.PID, s.Address, s.IdleFrom = uint64(g.ID), rg.run.PID, rg.run.Address, rg.startedAt
		}
	}
}

// stateName is the app's state in the words of status.
func (r *runner) stateName() string {
	s := &r.state
	switch s.Slot.State {
	case lc.SlotEmpty:
		return "empty"
	case lc.SlotAsleep:
		return "asleep"
	case lc.SlotWaking:
		return "waking"
	case lc.SlotHolding:
		return "holding"
	case lc.SlotPaused, lc.SlotMaintenance:
		return "paused"
	case lc.SlotRemoved:
		return "removing"
	case lc.SlotDown:
		return "down"
	case lc.SlotFenced:
		return "fenced"
	case lc.SlotServing:
	}
	if s.Attempt.Gen != 0 && !s.Attempt.Reporting {
		return "swapping"
	}
	return "awake"
}
