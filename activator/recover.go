package activator

import (
	"context"
	"fmt"
	"slices"
	"time"

	lc "github.com/usher-edge/usher/activator/lifecycle"
	"github.com/usher-edge/usher/activator/store"
)

// orphanPolicy is for apps that no file describes any more.
var orphanPolicy = Policy{
	DrainTimeout: 30 * time.Second, HoldDrain: 5 * time.Second, CloseSpread: 5 * time.Second, StopTimeout: 10 * time.Second,
}

// rebuild makes the record anew from what runs, after the database was lost:
// what serves is what was desired, not what the file once began with. The
// runtime record of a target does not say enough, so those begin with the file.
func (r *runner) rebuild() error {
	r.act.mu.RLock()
	runs := r.act.found[r.name]
	r.act.mu.RUnlock()
	var serving store.Run
	for _, run := range runs {
		r.floor = max(r.floor, run.Revision)
		if stage := stageOf(run.Phase); stage == lc.Switching || stage == lc.Serving {
			serving = run
		}
	}
	rec, err := r.recorded()
	if err != nil {
		return err
	}
	if rec.Desired != 0 || r.spec.Target != "" || serving.Digest == "" {
		return nil
	}
	b, err := r.act.depot.Lookup(serving.Digest)
	if err != nil {
		r.log().Warn("the build of what runs is gone: the app begins with the file again", "error", err)
		return nil
	}
	rel := store.Release{
		Revision: serving.Revision, Kind: store.KindArtifact, Digest: b.Digest, Build: shortBuild(b.Digest),
		ArtifactKind: string(b.Kind), Spec: r.spec.Process.encode(), DemandHold: serving.Mode == lc.Hold.String(),
		Cause: causeRecovered, CreatedAt: r.act.now(), Ran: true,
	}
	err = r.update(0, func(a *store.App) error {
		a.Releases = append(a.Releases, rel)
		a.Desired, a.Good, a.Reported = rel.Revision, rel.Revision, rel.Revision
		a.Restarts, a.RestartsDone = uint64(serving.Restart), uint64(serving.Restart) // else one more would be owed
		a.FileValue = r.spec.FileValue
		return nil
	})
	if err != nil {
		return fmt.Errorf("make the record of app %s again: %w", r.name, err)
	}
	r.differs(lc.GenID(serving.Generation), fmt.Sprintf("its record was lost: made again from what runs, revision %d", serving.Revision))
	return nil
}

// recover takes over what runs and places the app. It runs in the mailbox, once.
func (r *runner) recover() {
	r.act.mu.Lock()
	runs := r.act.found[r.name]
	delete(r.act.found, r.name)
	r.act.mu.Unlock()
	const atOnce = 3 // generations that can exist of one app
	if extra := len(runs) - atOnce; extra > 0 {
		r.endExtra(runs[:extra])
		runs = runs[extra:]
	}
	if r.fresh == 0 {
		r.warn("reserve a generation number", r.reserve())
	}
	rec, err := r.recorded()
	if err != nil {
		r.warn("read what was committed; only what runs is known", err)
		r.record = &store.App{Name: r.name}
	} else if _, err := r.commitFallback(rec.Good); err != nil {
		r.warn("commit the fallback that is owed", err)
	}
	durable := r.durable(r.record)
	var found []lc.Found
	for _, run := range runs {
		f := r.adopt(run)
		if _, known := r.record.Release(run.Revision); !known {
			durable.Reported = max(durable.Reported, f.Rel.Rev) // its record is lost; it serves on all the same
		}
		found = append(found, f)
	}
	r.lostReceipts(r.record, runs)
	before := lc.State{}
	next, effects := lc.Recover(durable, found, r.fresh)
	if len(found) == 0 && next.Slot.State == lc.SlotAsleep {
		before.Slot.State = lc.SlotAsleep // no news, or a start would fill the log of events with it
	}
	if o := r.act.observe; o != nil {
		o.recovered(r.name, durable, found, r.fresh, next, effects)
	}
	if next.Cur.Rel.External && next.Cur.ID == r.fresh {
		r.placeExternal(next.Cur)
	}
	r.tellFound(found, next.Cur)
	r.recovered = true
	r.apply(before, next, &effects)
	r.checkOwned()
	r.drainLocal()
}

// durable turns the record into the core's state.
func (r *runner) durable(rec *store.App) lc.State {
	s := lc.State{
		Reported: lc.Revision(rec.Reported), Restarts: uint32(rec.Restarts), DownHeld: lc.Revision(rec.DownHeld),
		Paused: rec.Paused, Maintenance: rec.Maintenance,
		Limit: lc.LimitRaised, // any release may have raised it, one that is forgotten too: what it is is read when it is restored
	}
	if rel, ok := rec.Release(rec.Desired); ok {
		s.Desired = r.coreRelease(*rel)
	}
	if rel, ok := rec.Release(rec.Good); ok {
		s.Good = r.coreRelease(*rel)
	}
	if rec.Failures[rec.Desired].HeldDown {
		s.Held = s.Desired.Rev
	}
	return s
}

// adopt finds the process of a runtime record and says what the core must know.
func (r *runner) adopt(run store.Run) lc.Found {
	g := &generation{run: run, busy: closedChan()}
	g.ctx, g.cancel = context.WithCancel(r.act.life)
	f := lc.Found{
		ID: lc.GenID(run.Generation), Rel: lc.Release{Rev: lc.Revision(run.Revision), Ran: true},
		Restart: run.Restart, Stage: stageOf(run.Phase),
	}
	if rel, err := r.release(run.Revision); err == nil {
		g.rel = *rel
		f.Rel = r.coreRelease(*rel)
		g.external = rel.Kind == store.KindTarget
		if p, err := decodeProcess(rel.Spec); err == nil {
			g.proc = p
		}
	} else {
		g.rel = store.Release{Revision: run.Revision, Build: run.Build}
	}
	r.keep(f.ID, g)
	g.port = portOf(run)
	g.startedAt = run.UpdatedAt
	if g.external {
		return f // nothing of it is ours to find; the core places what is good
	}
	r.adoptChild(g, &f)
	return f
}

// How often usher looks for a process when it cannot say whether it is there: who is
// not adopted is stopped, and mostly such a thing is over in a moment.
const (
	adoptTries = 5
	adoptPause = 200 * time.Millisecond
)

// find is Backend.Adopt, tried again after an error.
func (a *Activator) find(run store.Run) (child Child, err error) {
	for try := 1; ; try++ {
		child, err = a.backend.Adopt(run)
		if err == nil || try == adoptTries {
			return child, err
		}
		select {
		case <-time.After(adoptPause):
		case <-a.life.Done():
			return nil, err
		}
	}
}

func (r *runner) adoptChild(g *generation, f *lc.Found) {
	child, err := r.act.find(g.run)
	if err != nil {
		g.lost = true
		r.log().Error("cannot adopt a process; nothing is started in its place until it is proven gone", "generation", g.run.Generation, "pid", g.run.PID, "error", err)
		return
	}
	g.child = child
	f.Alive = !child.Exited() && g.run.Healthy != nil && r.act.answers(g.run) && !stranger(child, g.run.Network, g.run.Address)
	if f.Alive {
		r.watch(f.ID, g)
	}
}

// tellFound says what was recorded and what there is of it. What is not as it was
// recorded is shown by status too.
func (r *runner) tellFound(found []lc.Found, cur lc.Gen) {
	for _, f := range found {
		g := r.gens[f.ID]
		switch {
		case g.external || g.run.Revision == 0: // no process of usher's; no record, which is said already
		case f.ID == cur.ID && cur.Stage == lc.Serving && f.Stage != lc.Switching:
			r.note("recovery", f.ID, fmt.Sprintf("adopted pid %d", g.run.PID))
		default:
			r.differs(f.ID, foundText(f, g, f.ID == cur.ID && cur.Stage == lc.Serving))
		}
	}
}

// foundText is for a generation that is not simply adopted.
func foundText(f lc.Found, g *generation, serves bool) string {
	pid := g.run.PID
	switch {
	case serves:
		return fmt.Sprintf("adopted pid %d; usher had ended while it switched to it", pid)
	case g.lost:
		return fmt.Sprintf("pid %d cannot be looked for: nothing is started until it is proven gone", pid)
	case pid == 0:
		return "usher had ended before it was set up"
	case g.child.Exited():
		return fmt.Sprintf("pid %d (%s) is not there any more: what is left of it is stopped", pid, g.run.Phase)
	case f.Alive:
		return fmt.Sprintf("pid %d (%s) still runs and is not to serve any more: it is stopped", pid, g.run.Phase)
	case g.run.Phase == store.PhaseStarted:
		return fmt.Sprintf("pid %d was still on its way up: it is stopped", pid)
	}
	return fmt.Sprintf("pid %d (%s) runs and does not answer, or is not what listens at its address: it is stopped", pid, g.run.Phase)
}

// differs tells of something that was found at usher's start and is not as it was
// recorded.
func (r *runner) differs(gen lc.GenID, text string) {
	r.note("recovery", gen, text)
	if gen != 0 {
		text = "generation " + itoa(int(gen)) + ": " + text
	}
	r.act.mu.Lock()
	defer r.act.mu.Unlock()
	r.act.differences[r.name] = append(r.act.differences[r.name], text)
}

// differences are those of the app, for status.
func (r *runner) differences() []string {
	r.act.mu.RLock()
	defer r.act.mu.RUnlock()
	return slices.Clone(r.act.differences[r.name])
}

// stageOf is where a recorded generation stood.
func stageOf(phase string) lc.Stage {
	switch phase {
	case store.PhaseSwitching:
		return lc.Switching
	case store.PhaseSwitched:
		return lc.Serving
	case store.PhaseRetiring:
		return lc.Draining
	case store.PhaseStopping:
		return lc.Stopping
	}
	return lc.Checking
}

// placeExternal gives a target that serves at start a generation of its own.
func (r *runner) placeExternal(cur lc.Gen) {
	g, err := r.newGeneration(lc.Effect{Gen: cur.ID, Rel: cur.Rel})
	if err == nil {
		err = r.address(g)
	}
	if err != nil {
		r.log().Error("cannot place a target", "error", err)
		return
	}
	g.startedAt = r.act.now()
}

// endExtra stops generations beyond those that can exist; only a damaged run
// directory shows them.
func (r *runner) endExtra(runs []store.Run) {
	for _, run := range runs {
		child, err := r.act.backend.Adopt(run)
		if err != nil {
			r.log().Warn("cannot find an old generation", "generation", run.Generation, "error", err)
			continue
		}
		ctx, cancel := context.WithTimeout(r.act.life, proofTime)
		_, err = child.Stop(ctx, 0)
		cancel()
		if err != nil {
			r.log().Error("an old generation cannot be stopped", "generation", run.Generation, "pid", run.PID, "error", err)
			continue
		}
		r.act.dropRun(run.Generation)
	}
}
