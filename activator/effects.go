package activator

import (
	"context"
	"errors"
	"fmt"
	"time"

	lc "github.com/usher-edge/usher/activator/lifecycle"
	"github.com/usher-edge/usher/activator/store"
)

// execute carries out one effect. What is quick is done here and answered at
// once; the rest runs beside the mailbox and answers with an event.
func (r *runner) execute(e lc.Effect) {
	if k := needsGeneration(e.Kind); k != lc.EventNone && r.gens[e.Gen] == nil {
		r.answer(r.result(k, e.Gen, unknownGeneration(e.Gen)))
		return
	}
	switch e.Kind {
	case lc.Verify:
		r.verify(e)
	case lc.RaiseLimit:
		r.raiseLimit(e)
	case lc.Intent:
		r.intend(e)
	case lc.Prepare:
		r.prepare(e)
	case lc.Go:
		r.goByte(e)
	case lc.Health:
		r.health(e)
	case lc.Switch:
		r.swap(e)
	case lc.Place:
		r.act.front.Place(r.name, r.placement(e.Slot))
		r.placed(e.Slot)
	case lc.CloseStreams:
		r.act.front.CloseStreams(r.name, uint64(e.Gen), 0)
	case lc.Drain:
		r.drain(e)
	case lc.CutDrain:
		r.hurry(e.Gen)
	case lc.Stop:
		r.stop(e)
	case lc.TrySleep:
		r.trySleep(e)
	case lc.Forget:
		r.forget(e.Gen)
	case lc.RestoreLimit:
		r.restoreLimit(e)
	default:
		r.executeMore(e)
	}
}

// executeMore carries out what is about timers, records and the end.
func (r *runner) executeMore(e lc.Effect) {
	switch e.Kind {
	case lc.Arm:
		r.armed(e)
	case lc.Disarm:
		r.disarm(e.Timer)
	case lc.RecordRan, lc.RecordSwitching, lc.RecordSwitched, lc.Report, lc.RecordOutcome, lc.CommitFallback:
		r.write(e)
	case lc.Gone:
		r.ended()
	case lc.EffectNone:
	}
}

// write carries out an effect that is a durable record.
func (r *runner) write(e lc.Effect) {
	switch e.Kind {
	case lc.RecordRan:
		r.answer(r.result(lc.RanDone, e.Gen, r.commitRan(e.Rel.Rev, e.DownHeld)))
	case lc.RecordSwitching:
		r.answer(r.result(lc.SwitchingDone, e.Gen, r.putRun(e.Gen, store.PhaseSwitching)))
	case lc.RecordSwitched:
		r.undrain(e.Gen) // an incumbent that was given back
		r.warn("record the switch", r.putRun(e.Gen, store.PhaseSwitched))
	case lc.Report:
		r.answer(r.result(lc.ReportDone, e.Gen, r.commitReport(e.Rel.Rev, e.Quiet)))
	case lc.RecordOutcome:
		r.outcome(e)
	case lc.CommitFallback:
		r.fallback(uint64(e.Rel.Rev))
	default:
	}
}

// needsGeneration is the answer that is due to an effect which is nothing without
// its generation.
func needsGeneration(k lc.EffectKind) lc.EventKind {
	switch k {
	case lc.RaiseLimit:
		return lc.RaiseDone
	case lc.Prepare:
		return lc.PrepareDone
	case lc.Go:
		return lc.GoDone
	case lc.Health:
		return lc.HealthDone
	case lc.RecordSwitching:
		return lc.SwitchingDone
	case lc.Switch:
		return lc.SwitchDone
	}
	return lc.EventNone
}

func unknownGeneration(gen lc.GenID) error {
	return fmt.Errorf("generation %d is not known any more", gen)
}

// result turns the error of something that the box, not the build, is to blame
// for into an answer.
func (r *runner) result(k lc.EventKind, gen lc.GenID, err error) lc.Event {
	if err == nil {
		return lc.Event{Kind: k, Gen: gen}
	}
	r.blame(r.gens[gen], err)
	return lc.Event{Kind: k, Gen: gen, Result: lc.Refused, Reason: lc.ReasonNotRecorded}
}

// blame keeps the words of an error for the outcome.
func (r *runner) blame(g *generation, err error) {
	if g == nil {
		r.log().Error(err.Error())
		return
	}
	g.problem = err.Error()
	if errors.Is(err, context.Canceled) { // by a stop, a newer release, the end of usher: no fault
		r.log().Info("called off: "+err.Error(), "generation", g.run.Generation)
		return
	}
	r.log().Error(err.Error(), "generation", g.run.Generation)
}

// warn leaves out what a fence refuses: that is told once, for all.
func (r *runner) warn(doing string, err error) {
	if err != nil && !errors.Is(err, store.ErrFenced) {
		r.log().Error("cannot "+doing, "error", err)
	}
}

// placement fills in what the core does not know: address and build.
func (r *runner) placement(s lc.Slot) Placement {
	p := Placement{State: s.State, Revision: uint64(s.Cache.Rev), CacheGen: cacheGen(s.Cache), Boot: r.boot}
	if s.Cache.Rev == 0 {
		p.CacheGen = 0
	}
	if rel, err := r.release(uint64(s.Cache.Rev)); err == nil {
		p.Build = rel.Build
	}
	if g := r.gens[s.Gen]; g != nil && s.State == lc.SlotServing {
		p.Generation, p.Network, p.Address = g.run.Generation, g.run.Network, g.run.Address
		p.Build = g.rel.Build
	}
	if s.State == lc.SlotFenced {
		p.Reason = store.ErrFenced.Error()
	}
	if s.State == lc.SlotDown {
		p.Reason, p.Down = r.downText(s), r.downReason(s)
		if s.Level != 0 && r.retry.After(r.act.now()) {
			p.RetryAt = r.retry
		}
	}
	return p
}

// downReason tells an app that ran and crashed from one that did not start.
func (r *runner) downReason(s lc.Slot) lc.Reason {
	if s.Reason == lc.ReasonBackoff && r.latest().Reason == "" && r.crash != "" {
		return lc.ReasonCrashed
	}
	return s.Reason
}

func (r *runner) downText(s lc.Slot) string {
	if s.Reason == lc.ReasonUnproven {
		for _, g := range []lc.Gen{r.state.Cur, r.state.Next, r.state.Old} {
			if rg := r.gens[g.ID]; rg != nil && g.Stage == lc.Unproven {
				return "stop unproven (pid " + itoa(rg.run.PID) + ")"
			}
		}
	}
	why := r.latest().Reason
	if r.downReason(s) == lc.ReasonCrashed {
		why = r.crash
	}
	text := s.Reason.String()
	if why != "" {
		text += ": " + why
	}
	if good := r.state.Good.Rev; r.state.GoodHeld() && good != r.state.Desired.Rev {
		text += "; revision " + itoa(int(good)) + " may not simply be started in its place: usher rollback " + r.name + " starts its build again"
	}
	return text
}

// backoffs are the pauses after one, two, and three or more failures in a row.
var backoffs = [...]time.Duration{time.Second, 5 * time.Second, 30 * time.Second}

const (
	sweepEvery  = time.Second
	hurriedTime = 5 * time.Second // what is left of a drain when a newer attempt waits
)

func (r *runner) armed(e lc.Effect) {
	switch e.Timer {
	case lc.TimerBackoff:
		d := backoffs[min(max(int(e.Level), 1), len(backoffs))-1]
		d += r.act.jitter(d / 10)
		r.retry = r.act.now().Add(d)
		r.arm(e.Timer, d, func() { r.step(lc.Event{Kind: lc.TimerFired, Timer: lc.TimerBackoff}) })
	case lc.TimerSweep:
		r.arm(e.Timer, sweepEvery, func() { r.step(lc.Event{Kind: lc.TimerFired, Timer: lc.TimerSweep}) })
	case lc.TimerSettle:
		r.arm(e.Timer, r.spec.Policy.Settle, func() { r.step(lc.Event{Kind: lc.TimerFired, Timer: lc.TimerSettle, Gen: e.Gen}) })
	case lc.TimerIdle:
		r.armIdle(r.spec.Policy.IdleTimeout)
	case lc.TimerNone:
	}
}

// armIdle looks at the edge when the app could have been idle long enough.
func (r *runner) armIdle(d time.Duration) {
	if r.spec.Policy.IdleTimeout <= 0 {
		return
	}
	r.arm(lc.TimerIdle, d, func() {
		if left := r.idleIn(); left > 0 {
			r.armIdle(left)
			return
		}
		r.step(lc.Event{Kind: lc.SleepAsked})
	})
}

// idleIn is how long the app may still be idle before it sleeps.
func (r *runner) idleIn() time.Duration {
	a := r.act.front.Activity(r.name)
	if a.InFlight > 0 || a.Parked > 0 {
		return r.spec.Policy.IdleTimeout
	}
	since := a.Last
	if g := r.gens[r.state.Cur.ID]; g != nil && g.startedAt.After(since) {
		since = g.startedAt
	}
	return r.spec.Policy.IdleTimeout - r.act.now().Sub(since)
}

func (r *runner) trySleep(e lc.Effect) {
	if r.act.front.TrySleep(r.name, uint64(e.Gen), r.placement(e.Slot)) {
		r.disarm(lc.TimerIdle) // an owner may have asked before its time
		r.answer(lc.Event{Kind: lc.SleepDone, Gen: e.Gen})
		return
	}
	r.answer(lc.Event{Kind: lc.SleepDone, Gen: e.Gen, Result: lc.Refused})
}

// ended: a halted app has nothing left.
func (r *runner) ended() {
	r.disarmAll()
	if r.over {
		return
	}
	r.over = true
	r.abandonOps()
	how := "shut down"
	if r.fenced() {
		how = "fenced"
	}
	r.closeReceipt("usher was " + how + " before its window was over")
	if r.state.Halt == lc.HaltRemove {
		r.act.forgetApp(r)
	}
	for _, f := range r.gone {
		f()
	}
	r.gone = nil
}
