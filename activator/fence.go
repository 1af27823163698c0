package activator

import (
	"time"

	lc "github.com/usher-edge/usher/activator/lifecycle"
	"github.com/usher-edge/usher/activator/store"
)

// lookEvery is how soon an usher that has nothing to do notices that its state was
// taken away.
const lookEvery = 2 * time.Second

// Owned looks whether the state is still this usher's: see store.Commits.
func (a *Activator) Owned() error { return a.commits.Owned() }

// watchState tells every app once that usher does not own its state any more.
func (a *Activator) watchState() {
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for {
		select {
		case <-a.closing:
			return
		case <-a.commits.Fenced():
			a.fence()
			return
		case <-t.C:
			_ = a.commits.Owned() // Fenced tells
		}
	}
}

func (a *Activator) fence() {
	text := a.Owned().Error()
	a.log.Error(text)
	a.commits.AppendEvent(store.Event{At: a.now(), Kind: "fenced", Text: text})
	a.mu.RLock()
	defer a.mu.RUnlock()
	for _, r := range a.apps {
		r.box.post(func() {
			r.checkOwned()
			r.drainLocal()
		})
	}
}

// checkOwned comes before everything that the core is told, so whatever is decided
// on that, the go-byte included, is decided by the one who owns the state.
func (r *runner) checkOwned() {
	if !r.recovered || r.fenced() || r.act.Owned() == nil {
		return
	}
	r.decide(lc.Event{Kind: lc.HaltAsked, Halt: lc.HaltFence})
	for gen := range r.gens {
		r.undrain(gen) // else what is still in flight would be cut when its time is up
	}
}

func (r *runner) fenced() bool { return r.state.Halt == lc.HaltFence }
