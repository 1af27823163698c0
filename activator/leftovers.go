package activator

import "sync"

// leftovers are the runtime records of generations that are proven gone and whose
// files could not be removed. They name nothing that is alive; each is tried again
// until it is gone, and the next start would do so too.
type leftovers struct {
	mu   sync.Mutex // guards gens
	gens map[uint64]bool
}

func (l *leftovers) add(gen uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gens == nil {
		l.gens = map[uint64]bool{}
	}
	l.gens[gen] = true
}

func (l *leftovers) take() (gens []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for gen := range l.gens {
		gens = append(gens, gen)
	}
	l.gens = nil
	return gens
}

// dropRun removes the runtime record of a generation that is proven gone.
func (a *Activator) dropRun(gen uint64) {
	if err := a.runs.Delete(gen); err != nil {
		a.left.add(gen)
		a.log.Error("cannot remove a runtime record; it is tried again", "generation", gen, "error", err)
	}
}

// sweepRuns tries again what dropRun could not do.
func (a *Activator) sweepRuns() {
	for _, gen := range a.left.take() {
		a.dropRun(gen)
	}
}
