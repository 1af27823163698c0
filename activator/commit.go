package activator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	lc "github.com/usher-edge/usher/activator/lifecycle"
	"github.com/usher-edge/usher/activator/store"
)

// update changes the durable record and keeps the mailbox's copy of it true.
func (r *runner) update(ifVersion uint64, fn func(*store.App) error) error {
	if r.unsure {
		if err := r.reread(); err != nil {
			return err
		}
	}
	var own error
	rec, err := r.act.commits.Update(r.name, ifVersion, func(a *store.App) error {
		own = fn(a)
		return own
	})
	switch {
	case err == nil:
		r.record, r.version = &rec, rec.Version
	case own == nil && !certain(err):
		r.doubt()
	}
	return err
}

// doubt: a write failed, and may have taken place.
func (r *runner) doubt() {
	r.unsure = true
	if err := r.reread(); err != nil {
		r.log().Error("it is not known whether a write took place; it is read again with the next one", "error", err)
	}
}

// certain says that a write that failed with err changed nothing.
func certain(err error) bool {
	if errors.Is(err, store.ErrMayHold) {
		return false
	}
	for _, e := range []error{store.ErrNotFound, store.ErrConflict, store.ErrInvalid, store.ErrClosed, store.ErrFenced} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// reread learns what became of a write that failed: it may have taken place, and
// then the core must want what is recorded.
func (r *runner) reread() error {
	if err := r.load(); err != nil {
		return err
	}
	r.unsure = false
	r.box.post(r.catchUp)
	return nil
}

// recorded is the record as last committed.
func (r *runner) recorded() (*store.App, error) {
	if r.record != nil {
		return r.record, nil
	}
	err := r.load()
	return r.record, err
}

// release finds a revision in the record.
func (r *runner) release(rev uint64) (*store.Release, error) {
	rec, err := r.recorded()
	if err != nil {
		return nil, err
	}
	rel, ok := rec.Release(rev)
	if !ok {
		return nil, fmt.Errorf("revision %d is not in the history any more", rev)
	}
	return rel, nil
}

// load reads the durable record.
func (r *runner) load() error {
	rec, err := r.act.commits.Get(r.name)
	if errors.Is(err, store.ErrNotFound) {
		rec, err = store.App{Name: r.name}, nil
	}
	if err != nil {
		return fmt.Errorf("read the record of app %s: %w", r.name, err)
	}
	r.record, r.version = &rec, rec.Version
	return nil
}

// catchUp tells the core what is recorded and was never said to it.
func (r *runner) catchUp() {
	if !r.recovered {
		return // it begins with the record
	}
	rec, err := r.recorded()
	if err != nil {
		r.warn("learn what was committed", err)
		return
	}
	if rel, ok := rec.Release(rec.Desired); ok && rec.Desired > uint64(r.state.Desired.Rev) {
		r.step(lc.Event{Kind: lc.Committed, Release: r.coreRelease(*rel)})
	}
	for n := uint64(r.state.Restarts); n < rec.Restarts; n++ {
		r.step(lc.Event{Kind: lc.RestartAsked, Retry: r.lifted()})
	}
	switch {
	case rec.Paused && (!r.state.Paused || rec.Maintenance != r.state.Maintenance):
		r.step(lc.Event{Kind: lc.PauseAsked, Maintenance: rec.Maintenance})
	case !rec.Paused && r.state.Paused:
		r.step(lc.Event{Kind: lc.ResumeAsked})
	}
}

// lifted says that the record does not hold what the core does: a retry was
// recorded.
func (r *runner) lifted() bool {
	held, down := uint64(r.state.Held), uint64(r.state.DownHeld)
	return r.record.DownHeld < down || held != 0 && !r.record.Failures[held].HeldDown
}

// coreRelease is what the core needs to know of a release.
func (r *runner) coreRelease(rel store.Release) lc.Release {
	out := lc.Release{
		Rev: lc.Revision(rel.Revision), Hold: rel.DemandHold, External: rel.Kind == store.KindTarget,
		Ran: rel.Ran, Own: rel.Cause == causeFallback, Canary: rel.Cause == causeCanary, Fallback: r.spec.Policy.Fallback,
		Config: rel.Cause == causeConfig, Restarts: uint32(rel.Restarts),
	}
	p, err := decodeProcess(rel.Spec)
	if err == nil && !out.External && (p.Hold || p.Listen == ListenFixed) {
		out.Hold = true // a fixed port cannot be held by two
	}
	out.Limited = err == nil && !out.External && !r.limits(p).None()
	return out
}

// The causes that a release remembers beyond the lifecycle's own.
const (
	causeFallback = "fallback"
	causeCanary   = "canary"
	causeRollback = "rollback"
	causeConfig   = "config"
	causeDeploy   = "release"
	// causeRecovered: its record was lost and made again from what ran.
	causeRecovered = "recovered"
)

// commitRelease makes rel the desired release: number, time and spec are filled
// in inside the transaction.
func (r *runner) commitRelease(ifVersion uint64, rel store.Release, also func(*store.App) error) (store.Release, error) {
	err := r.update(ifVersion, func(a *store.App) error {
		if also != nil {
			if err := also(a); err != nil {
				return err
			}
		}
		appendRelease(a, &rel, r.floor, r.act.now())
		return nil
	})
	return rel, err
}

// appendRelease makes rel the desired release of the record.
func appendRelease(a *store.App, rel *store.Release, floor uint64, now time.Time) {
	rel.Revision = max(a.Desired, floor) + 1
	rel.CreatedAt = now
	a.Releases = append(a.Releases, *rel)
	a.Desired = rel.Revision
}

// commitRan records that a release has run, and what may not be started any more once
// it has.
func (r *runner) commitRan(rev, held lc.Revision) error {
	return r.update(0, func(a *store.App) error {
		rel, ok := a.Release(uint64(rev))
		if !ok {
			return fmt.Errorf("revision %d is not in the history any more", rev)
		}
		rel.Ran = true
		a.DownHeld = uint64(held)
		return nil
	})
}

// commitReport: the transaction that reports a revision makes it good; quietly,
// it does only that. One that has left the history since it was switched to has
// nothing to be recorded in.
func (r *runner) commitReport(rev lc.Revision, quiet bool) error {
	return r.update(0, func(a *store.App) error {
		if _, ok := a.Release(uint64(rev)); !ok {
			return nil
		}
		a.Good = max(a.Good, uint64(rev))
		if !quiet {
			a.Reported = max(a.Reported, uint64(rev))
		}
		delete(a.Failures, uint64(rev))
		return nil
	})
}

// commitRestart counts a restart; a retry clears the failure book in the same
// transaction.
func (r *runner) commitRestart(ifVersion uint64, retry bool) error {
	return r.update(ifVersion, func(a *store.App) error {
		a.Restarts++
		if retry {
			lift(a)
		}
		return nil
	})
}

// lift lets what is desired be started, whatever is on record against it.
func lift(a *store.App) { a.Failures, a.DownHeld = nil, min(a.DownHeld, max(a.Desired, 1)-1) }

// commitOutcome keeps what status tells, and the failure book.
func (r *runner) commitOutcome(o store.Outcome, e lc.Effect) error {
	cur := r.state.Cur
	return r.update(0, func(a *store.App) error {
		a.Outcomes = append(slices.DeleteFunc(a.Outcomes, func(x store.Outcome) bool {
			return o.Tries.Replaced(x.Attempt, o.Attempt)
		}), o)
		a.DownHeld = uint64(e.DownHeld)
		if blamed(e) || e.Held {
			f := a.Failures[o.Revision]
			f.Count, f.Last, f.Reason, f.HeldDown = f.Count+1, o.At, o.Reason, f.HeldDown || e.Held
			if a.Failures == nil {
				a.Failures = map[uint64]store.Failure{}
			}
			a.Failures[o.Revision] = f
		}
		if cur.Stage == lc.Serving { // what serves says which restarts are paid
			a.RestartsDone = min(max(a.RestartsDone, uint64(cur.Restart)), a.Restarts)
		}
		return nil
	})
}

// putRun records how far a generation is.
func (r *runner) putRun(gen lc.GenID, phase string) error {
	g := r.gens[gen]
	if g == nil {
		return unknownGeneration(gen)
	}
	if g.external {
		return nil // there is no process to be found again: what was committed says all
	}
	g.run.Phase, g.run.UpdatedAt = phase, r.act.now()
	return r.act.runs.Put(g.run)
}

// outcome ends the attempt for those who wait for it, and for the record.
func (r *runner) outcome(e lc.Effect) {
	g := r.gens[e.Gen]
	o := store.Outcome{
		Attempt: uint64(e.Gen), Revision: uint64(e.Rel.Rev), Generation: uint64(e.Gen),
		Restart: uint64(e.Restart), Cause: e.Cause.String(), Mode: e.Mode.String(), Canary: e.Rel.Canary, Outcome: e.Outcome.String(),
		Reason: e.Reason.String(), Executed: e.Executed, At: r.act.now(),
		Receipt: r.receipt != nil && r.receipt.Attempt == uint64(e.Gen),
	}
	before := r.latest()
	last := &lastAttempt{}
	switch {
	case e.Reason != lc.ReasonNone && r.fenced(): // then it is the reason of everything
		o.Reason += ": " + r.act.Owned().Error()
	case g != nil && e.Reason != lc.ReasonNone:
		o.Reason = reasonText(e.Reason, g)
		if last.exit = exitOf(g); e.Reason <= lc.ReasonUnhealthy {
			last.tail = tail(g.run.LogPath, tailLines)
		}
	}
	if o.Tries = r.tries(&before, e, &o); o.Tries.N > 1 {
		last.operation = before.operation
	}
	last.Outcome = o
	r.last = last
	r.count(func(t *tally) { t.attempt(e) })
	r.warn("record an outcome", r.commitOutcome(o, e))
	r.note("outcome", e.Gen, o.Cause+" of revision "+itoa(int(o.Revision))+": "+o.Outcome+because(o.Reason))
	r.finish(e, last)
	r.concluded(o)
}

// tries tells an attempt that nobody asked for, and that the box refused for the reason
// of the one before it, as one with that. Who looks for what happened finds it then,
// however long the box goes on refusing.
func (r *runner) tries(before *lastAttempt, e lc.Effect, o *store.Outcome) store.Tries {
	asked := slices.ContainsFunc(r.ops, func(op *operation) bool {
		return op.running() && op.ended == nil && op.concerns(e.Rel, e.Restart)
	})
	same := before.Outcome.Outcome == o.Outcome && before.Revision == o.Revision && before.Receipt == o.Receipt &&
		strings.HasPrefix(before.Reason, e.Reason.String())
	if e.Outcome != lc.Abandoned || asked || !same || before.wrong {
		return store.Tries{}
	}
	if t := before.Tries; t.N > 1 {
		return store.Tries{N: t.N + 1, First: t.First, Since: t.Since}
	}
	return store.Tries{N: 2, First: before.Attempt, Since: before.At}
}

// blamed says that an outcome is its build's fault.
func blamed(e lc.Effect) bool {
	return e.Reason != lc.ReasonNone && e.Reason <= lc.ReasonUnhealthy
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return " (" + why + ")"
}

// reasonText is the word of the reason and what is known beyond it.
func reasonText(why lc.Reason, g *generation) string {
	s := why.String()
	switch {
	case why == lc.ReasonUnhealthy && g.probe != "":
		s = g.probe
		if g.oom.Kills > 0 {
			s += "; " + killsText(g.oom.Kills, g.oom)
		}
	case why == lc.ReasonExited:
		s = "the process ended before it was healthy"
		if x := exitOf(g); x != nil {
			s += ": " + x.String()
		}
	case g.problem != "" && why >= lc.ReasonMismatch, why == lc.ReasonExecFailed && g.problem != "":
		s += ": " + g.problem
	}
	return s
}

// fallback commits the good build again, after a hold that failed. What could
// not be written is tried again, and nobody waits for that; what a crash has cut
// short is found owed by the next start.
func (r *runner) fallback(good uint64) {
	committed, err := r.commitFallback(good)
	if err != nil {
		r.warn("commit the fallback; it is tried again", err)
		r.arm(timerFallback, sweepEvery, func() {
			r.fallback(good)
			r.drainLocal()
		})
	}
	r.fallsBack(committed.Revision)
	if committed.Revision == 0 {
		r.answer(lc.Event{Kind: lc.FallbackDone, Result: lc.Refused, Reason: lc.ReasonNotRecorded})
		return
	}
	r.answer(lc.Event{Kind: lc.Committed, Release: r.coreRelease(committed)})
}

// timerFallback is a timer that the core knows nothing of.
const timerFallback = lc.TimerIdle + 100

// commitFallback commits the build of that good revision again if that is owed: the
// owner's release has failed last, what was good may not be started in its place, and
// the spec asks for it. Revision 0: it is not.
func (r *runner) commitFallback(revision uint64) (store.Release, error) {
	rec, err := r.recorded()
	if err != nil {
		return store.Release{}, err
	}
	failed, known := rec.Release(rec.Desired)
	good, served := rec.Release(revision)
	held := rec.Failures[rec.Desired].HeldDown && len(rec.Outcomes) != 0 && rec.Outcomes[len(rec.Outcomes)-1].Revision == rec.Desired
	if !known || !served || !r.spec.Policy.Fallback || !held || revision > rec.DownHeld || failed.Cause == causeFallback {
		return store.Release{}, nil
	}
	rel := *good
	rel.Ran, rel.Cause, rel.Restarts = false, causeFallback, rec.Restarts
	committed, err := r.commitRelease(0, rel, nil)
	if err != nil {
		return store.Release{}, err
	}
	r.note("fallback", 0, "committed the good build again as revision "+itoa(int(committed.Revision)))
	return committed, nil
}
