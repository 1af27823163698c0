package activator

import (
	"slices"
	"time"

	lc "github.com/usher-edge/usher/activator/lifecycle"
)

// AttemptKey is how attempts are counted.
type AttemptKey struct{ Cause, Mode, Outcome string }

// Totals counts what happened to one app since usher started. It is a copy.
type Totals struct {
	Attempts map[AttemptKey]uint64
	Drain    time.Duration
	Receipts uint64
	// Mismatches are receipts that do not add up.
	Mismatches uint64
	// OOMKills are processes that the kernel has killed for want of memory.
	OOMKills uint64
	Boots    Boots
	Roles    map[string]int // generations that are not proven gone
}

// Boots is a histogram of boot times.
type Boots struct {
	Sum    float64 // seconds
	Count  uint32
	within [len(bootBounds)]uint32
}

// bootBounds are the upper bounds of the buckets, in seconds.
var bootBounds = [...]float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}

func (b *Boots) add(d time.Duration) {
	b.Count++
	b.Sum += d.Seconds()
	for i, bound := range bootBounds {
		if d.Seconds() <= bound {
			b.within[i]++
		}
	}
}

// Buckets returns the cumulative counts by upper bound in seconds.
func (b *Boots) Buckets() map[float64]uint64 {
	out := make(map[float64]uint64, len(bootBounds))
	for i, bound := range bootBounds {
		out[bound] = uint64(b.within[i])
	}
	return out
}

// Totals counts what happened to one app.
func (a *Activator) Totals(app string) (Totals, error) {
	r, err := a.runner(app)
	if err != nil {
		return Totals{}, err
	}
	var t Totals
	if counted := r.tally.Load(); counted != nil {
		t = counted.totals()
	}
	t.Roles = map[string]int{}
	for role, bits := 0, r.roles.Load(); role < len(roleNames); role++ {
		if bits&(1<<role) != 0 {
			t.Roles[roleNames[role]]++
		}
	}
	return t, nil
}

// tally is what is counted of one app. It stays while the app sleeps, so it is small.
type tally struct {
	attempts                       []attempts
	drain                          time.Duration
	boots                          Boots
	receipts, mismatches, oomKills uint32
}

// attempts are those of a kind.
type attempts struct {
	n       uint32
	cause   lc.Cause
	mode    lc.Mode
	outcome lc.Outcome
}

// attempt counts one.
func (t *tally) attempt(e lc.Effect) {
	for i := range t.attempts {
		if a := &t.attempts[i]; a.cause == e.Cause && a.mode == e.Mode && a.outcome == e.Outcome {
			a.n++
			return
		}
	}
	t.attempts = append(t.attempts, attempts{1, e.Cause, e.Mode, e.Outcome})
}

func (t *tally) totals() Totals {
	out := Totals{
		Attempts: make(map[AttemptKey]uint64, len(t.attempts)), Drain: t.drain, Boots: t.boots,
		Receipts: uint64(t.receipts), Mismatches: uint64(t.mismatches), OOMKills: uint64(t.oomKills),
	}
	for _, a := range t.attempts {
		out.Attempts[AttemptKey{a.cause.String(), a.mode.String(), a.outcome.String()}] = uint64(a.n)
	}
	return out
}

// count replaces the tally by a copy that f has changed; readers keep theirs.
func (r *runner) count(f func(*tally)) {
	t := &tally{}
	if counted := r.tally.Load(); counted != nil {
		*t = *counted
		t.attempts = slices.Clone(t.attempts)
	}
	f(t)
	r.tally.Store(t)
}
