package activator

import (
	"context"
	"os"
	"path/filepath"
	"time"

	lc "github.com/usher-edge/usher/activator/lifecycle"
	"github.com/usher-edge/usher/activator/store"
)

// drain waits until nothing is in flight on a generation, or its time is up.
// Streams are closed spread over the last part of that time.
func (r *runner) drain(e lc.Effect) {
	g := r.gens[e.Gen]
	limit, spread := r.policy.DrainTimeout, r.policy.CloseSpread
	if e.Short {
		limit, spread = r.policy.HoldDrain, 0 // its streams were closed at once
	}
	g.drainFrom = r.act.now()
	r.warn("record that a generation retires", r.putRun(e.Gen, store.PhaseRetiring))
	g.drain++
	g.cut = make(chan struct{})
	turn, cut := g.drain, g.cut
	drained := r.act.front.Drained(r.name, uint64(e.Gen))
	r.act.wg.Add(1)
	go func() {
		defer r.act.wg.Done()
		w := drainWait{drained: drained, cut: cut, stop: g.ctx.Done(), closing: r.act.closing}
		if !w.wait(max(limit-spread, 0)) {
			r.act.front.CloseStreams(r.name, uint64(e.Gen), spread)
			if !w.wait(min(spread, limit)) {
				r.cutOff(e.Gen)
			}
		}
		if isClosed(r.act.closing) {
			return // the next start finishes what retires
		}
		r.box.post(func() {
			if g.drain == turn && r.gens[e.Gen] == g { // else the incumbent serves again
				r.step(lc.Event{Kind: lc.DrainDone, Gen: e.Gen})
			}
		})
	}()
}

// drainWait is what can end the wait of a drain.
type drainWait struct{ drained, cut, stop, closing <-chan struct{} }

// wait is true once nothing is in flight or usher closes, false when d has
// passed, the drain was told to hurry and that time is up, or the generation is
// to be stopped.
func (w *drainWait) wait(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		select {
		case <-w.drained:
			return true
		case <-t.C:
			return false
		case <-w.stop:
			return false
		case <-w.closing:
			return true
		case <-w.cut:
			w.cut = nil
			t.Reset(min(hurriedTime, d))
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (r *runner) cutOff(gen lc.GenID) {
	r.box.post(func() { r.note("drain", gen, "drain time is up: cut what was still in flight") })
	r.act.front.Cut(r.name, uint64(gen))
}

// hurry bounds the drain under way to what a newer attempt is willing to wait.
func (r *runner) hurry(gen lc.GenID) {
	if g := r.gens[gen]; g != nil {
		if !isClosed(g.cut) {
			close(g.cut)
		}
	}
}

// undrain makes the answer of a drain under way a stale one: the incumbent
// serves again.
func (r *runner) undrain(gen lc.GenID) {
	if g := r.gens[gen]; g != nil {
		g.drain++
	}
}

// stop cancels what is under way for a generation and ends its process tree.
func (r *runner) stop(e lc.Effect) {
	g := r.gens[e.Gen]
	if g == nil {
		r.answer(lc.Event{Kind: lc.StopDone, Gen: e.Gen})
		return
	}
	g.cancel()
	grace := r.policy.StopTimeout
	if e.Kill {
		grace = 0
	}
	r.warn("record that a generation stops", r.putRun(e.Gen, store.PhaseStopping))
	r.beside(g, func(context.Context) lc.Event {
		if err := r.end(g, grace); err != nil {
			r.log.Error("a stop is not proven; the sweep goes on", "generation", g.run.Generation, "pid", g.run.PID, "error", err)
			return lc.Event{Kind: lc.StopDone, Gen: e.Gen, Result: lc.Refused, Reason: lc.ReasonUnproven}
		}
		return lc.Event{Kind: lc.StopDone, Gen: e.Gen}
	})
}

// proofTime bounds the wait for the proof of empty after the kill.
const proofTime = 5 * time.Second

func (r *runner) end(g *generation, grace time.Duration) error {
	switch {
	case g.child != nil:
	case g.waiting != nil:
		err := g.waiting.Abort()
		if err == nil {
			g.waiting = nil
		}
		return err
	case g.lost:
		child, err := r.act.backend.Adopt(g.run)
		if err != nil {
			return err
		}
		g.child = child
	default:
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace+proofTime)
	defer cancel()
	st, err := g.child.Stop(ctx, grace)
	if st.Killed && grace > 0 {
		r.box.post(func() {
			r.note("stop", lc.GenID(g.run.Generation), "it did not end within "+grace.String()+" of SIGTERM and was killed")
		})
	}
	return err
}

// forget removes what is left of a generation that is proven empty.
func (r *runner) forget(gen lc.GenID) {
	g := r.gens[gen]
	if g == nil {
		return
	}
	g.cancel()
	delete(r.gens, gen)
	if !g.drainFrom.IsZero() {
		took := r.act.now().Sub(g.drainFrom)
		r.count(func(t *Totals) { t.Drain += took })
	}
	if g.port != 0 {
		r.act.ports.Free(g.port, r.act.now())
	}
	if g.run.Network == "unix" && !g.external && g.run.Address != "" {
		r.warn("remove a socket directory", os.RemoveAll(filepath.Dir(g.run.Address)))
	}
	r.warn("remove a runtime record", r.act.runs.Delete(g.run.Generation))
	r.retired(gen)
	r.act.pruneLogs(r.name)
}
