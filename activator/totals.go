package activator

import (
	"maps"
	"time"
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
	Count  uint64
	Sum    float64 // seconds
	within [len(bootBounds)]uint64
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
		out[bound] = b.within[i]
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
	if counted := r.totals.Load(); counted != nil {
		t = *counted
	}
	t.Roles = map[string]int{}
	for role, bits := 0, r.roles.Load(); role < len(roleNames); role++ {
		if bits&(1<<role) != 0 {
			t.Roles[roleNames[role]]++
		}
	}
	return t, nil
}

// count replaces the totals by a copy that f has changed; readers keep theirs.
func (r *runner) count(f func(*Totals)) {
	t := Totals{Attempts: map[AttemptKey]uint64{}}
	if counted := r.totals.Load(); counted != nil {
		t = *counted
		t.Attempts = maps.Clone(t.Attempts)
	}
	f(&t)
	r.totals.Store(&t)
}
