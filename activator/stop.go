package activator

import (
	"context"
	"os"
	"path/filepath"
	"time"

	lc "github.com/usher-edge/usher/activator/lifecycle"
	"github.com/usher-edge/usher/activator/store"
)

// drain is the wait for what is in flight on a generation that was switched away
// from.
type drain struct {
	ctx     context.Context //nolint:containedctx // ends when the generation serves again or is stopped
	undo    context.CancelFunc
	drained <-chan struct{} // closed: nothing is in flight
	cut     chan struct{}   // closed: a newer attempt waits
	limit   time.Duration
	spread  time.Duration // the last part of limit, in which streams are closed
}

// drain waits until nothing is in flight on a generation, or its time is up.
func (r *runner) drain(e lc.Effect) {
	g := r.gens[e.Gen]
	if g == nil {
		r.answer(lc.Event{Kind: lc.DrainDone, Gen: e.Gen})
		return
	}
	d := &drain{cut: make(chan struct{}), limit: r.spec.Policy.DrainTimeout, spread: r.spec.Policy.CloseSpread}
	if e.Short {
		d.limit, d.spread = r.spec.Policy.HoldDrain, 0 // its streams were closed at once
	}
	d.ctx, d.undo = context.WithCancel(g.ctx)
	g.drain, g.drainFrom = d, r.act.now()
	r.warn("record that a generation retires", r.putRun(e.Gen, store.PhaseRetiring))
	d.drained = r.act.front.Drained(r.name, uint64(e.Gen))
	r.act.tasks.run(func() {
		defer d.undo()
		timeUp, wanted := d.wait(func(over time.Duration) {
			r.act.front.CloseStreams(r.name, uint64(e.Gen), over)
		})
		if !wanted {
			return
		}
		r.box.post(func() {
			if g.drain == d { // else the incumbent serves again
				r.drained(e.Gen, g, timeUp)
			}
		})
	})
}

func (r *runner) drained(gen lc.GenID, g *generation, timeUp bool) {
	g.drain = nil
	if timeUp {
		r.note("drain", gen, "drain time is up: cut what was still in flight")
		r.act.front.Cut(r.name, uint64(gen))
	}
	r.step(lc.Event{Kind: lc.DrainDone, Gen: gen})
}

// wait returns when nothing is in flight or the time is up; wanted is false when
// the drain was called off. It calls spreading once when streams are to be closed,
// with the time that is left for it.
func (d *drain) wait(spreading func(over time.Duration)) (timeUp, wanted bool) {
	end, spread, cut := time.Now().Add(d.limit), d.spread, d.cut
	t := time.NewTimer(d.limit - spread)
	defer t.Stop()
	for {
		select {
		case <-d.ctx.Done():
			return false, false
		case <-d.drained:
			return false, true
		case <-cut:
			cut = nil
			if hurried := time.Now().Add(hurriedTime); hurried.Before(end) {
				end = hurried
			}
		case <-t.C:
			if spread <= 0 {
				return true, true
			}
			spreading(max(min(spread, time.Until(end)), 0))
			spread, end = 0, end.Add(farewell)
		}
		t.Reset(time.Until(end) - spread)
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

// hurry bounds the drain under way to what a newer attempt is willing to wait.
func (r *runner) hurry(gen lc.GenID) {
	if g := r.gens[gen]; g != nil && g.drain != nil && !isClosed(g.drain.cut) {
		close(g.drain.cut)
	}
}

// undrain calls the drain under way off: the incumbent serves again.
func (r *runner) undrain(gen lc.GenID) {
	if g := r.gens[gen]; g != nil && g.drain != nil {
		g.drain.undo()
		g.drain, g.drainFrom = nil, time.Time{}
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
	grace := r.spec.Policy.StopTimeout
	if e.Kill {
		grace = 0
	}
	r.warn("record that a generation stops", r.putRun(e.Gen, store.PhaseStopping))
	run := g.run
	r.beside(g, func(context.Context) answer {
		end := r.end(g, run, grace)
		return func() lc.Event { return r.stopped(e.Gen, g, end) }
	})
}

// ending is what came of a stop.
type ending struct {
	child   Child // found only now
	aborted bool  // it still waited at its go-byte
	killed  time.Duration
	err     error // nil: proven empty
}

func (r *runner) stopped(gen lc.GenID, g *generation, end ending) lc.Event {
	if end.child != nil {
		g.child, g.lost = end.child, false
	}
	if end.aborted {
		g.waiting = nil
	}
	if end.killed > 0 {
		r.note("stop", gen, "it did not end within "+end.killed.String()+" of SIGTERM and was killed")
	}
	if end.err != nil {
		if text := end.err.Error(); text != g.unproven { // the sweep tries every second
			g.unproven = text
			r.log().Error("a stop is not proven; the sweep goes on", "generation", g.run.Generation, "pid", g.run.PID, "error", end.err)
		}
		return lc.Event{Kind: lc.StopDone, Gen: gen, Result: lc.Refused, Reason: lc.ReasonUnproven}
	}
	return lc.Event{Kind: lc.StopDone, Gen: gen}
}

// proofTime bounds the wait for the proof of empty after the kill.
const proofTime = 5 * time.Second

// farewell is how long the last of the closed streams may take to leave by itself
// before it is cut.
const farewell = 250 * time.Millisecond

// end runs beside the mailbox; run is a copy.
func (r *runner) end(g *generation, run store.Run, grace time.Duration) (e ending) {
	child := g.child
	switch {
	case child != nil:
	case g.waiting != nil:
		e.err = g.waiting.Abort()
		e.aborted = e.err == nil
		return e
	case g.lost:
		if child, e.err = r.act.backend.Adopt(run); e.err != nil {
			return e
		}
		e.child = child
	default:
		return e
	}
	ctx, cancel := context.WithTimeout(r.act.life, grace+proofTime)
	defer cancel()
	st, err := child.Stop(ctx, grace)
	if e.err = err; st.Killed {
		e.killed = grace
	}
	return e
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
		r.count(func(t *tally) { t.drain += took })
		if last := r.latest(); last.Outcome.Outcome == lc.Done.String() && last.Generation == uint64(r.state.Cur.ID) {
			last.Drain = took // it was switched away from by the last attempt
			r.last = &last
		}
	}
	if g.port != 0 {
		r.act.ports.Free(g.port, r.act.now())
	}
	if g.run.Network == "unix" && !g.external && g.run.Address != "" {
		r.warn("remove a socket directory", os.RemoveAll(filepath.Dir(g.run.Address)))
	}
	r.act.dropRun(g.run.Generation)
	r.retired(gen)
	r.pruneLogs()
}
