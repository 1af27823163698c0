package activator

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/usher-edge/usher/activator/artifact"
	lc "github.com/usher-edge/usher/activator/lifecycle"
	"github.com/usher-edge/usher/activator/process"
	"github.com/usher-edge/usher/activator/store"
)

func itoa(n int) string { return strconv.Itoa(n) }

// generation of an effect, made at the first one that names it.
func (r *runner) generationFor(e lc.Effect) (*generation, error) {
	if g := r.gens[e.Gen]; g != nil {
		return g, nil
	}
	return r.newGeneration(e)
}

// refuse answers that the box could not do it.
func (r *runner) refuse(g *generation, e lc.Event, err error) lc.Event {
	r.blame(g, err)
	e.Result = lc.Refused
	return e
}

func (r *runner) verify(e lc.Effect) {
	g, err := r.generationFor(e)
	if err != nil {
		r.answer(r.refuse(g, lc.Event{Kind: lc.VerifyDone, Gen: e.Gen, Reason: lc.ReasonNotStarted}, err))
		return
	}
	r.beside(g, func(ctx context.Context) lc.Event {
		err := r.act.depot.Verify(ctx, g.rel.Digest)
		switch {
		case err == nil:
			return lc.Event{Kind: lc.VerifyDone, Gen: e.Gen}
		case errors.Is(err, artifact.ErrMismatch):
			return r.refuse(g, lc.Event{Kind: lc.VerifyDone, Gen: e.Gen, Reason: lc.ReasonMismatch}, err)
		}
		return r.refuse(g, lc.Event{Kind: lc.VerifyDone, Gen: e.Gen, Reason: lc.ReasonNotStarted}, err)
	})
}

func (r *runner) intend(e lc.Effect) {
	g, err := r.generationFor(e)
	if err == nil {
		err = r.address(g)
	}
	if err != nil {
		r.answer(r.refuse(g, lc.Event{Kind: lc.IntentDone, Gen: e.Gen, Reason: lc.ReasonNotStarted}, err))
		return
	}
	if !g.external {
		g.run.LogPath = r.act.logPath(r.name, g.run.Generation)
	}
	r.answer(r.result(lc.IntentDone, e.Gen, r.putRun(e.Gen, store.PhaseIntent)))
}

// prepare sets the child up and makes its identity durable before anything of
// the build can run.
func (r *runner) prepare(e lc.Effect) {
	g := r.gens[e.Gen]
	if g.external {
		r.answer(lc.Event{Kind: lc.PrepareDone, Gen: e.Gen})
		return
	}
	r.opStep(StepStarting, "generation "+strconv.FormatUint(g.run.Generation, 10))
	plan, err := r.plan(g)
	if err == nil {
		err = r.act.makeLogDir(r.name)
	}
	if err != nil {
		r.answer(r.refuse(g, lc.Event{Kind: lc.PrepareDone, Gen: e.Gen, Reason: lc.ReasonNotStarted}, err))
		return
	}
	r.beside(g, func(ctx context.Context) lc.Event {
		w, err := r.act.backend.Prepare(ctx, plan)
		if err != nil {
			return r.refuse(g, lc.Event{Kind: lc.PrepareDone, Gen: e.Gen, Reason: lc.ReasonNotStarted}, err)
		}
		g.waiting = w
		id := w.Identity()
		g.run.PID, g.run.StartTime, g.run.Cgroup = id.PID, id.StartTime, id.Cgroup
		g.run.Phase, g.run.UpdatedAt = store.PhaseStarted, r.act.now()
		if err := r.act.runs.Put(g.run); err != nil {
			return r.refuse(g, lc.Event{Kind: lc.PrepareDone, Gen: e.Gen, Reason: lc.ReasonNotRecorded}, err)
		}
		return lc.Event{Kind: lc.PrepareDone, Gen: e.Gen}
	})
}

func (r *runner) goByte(e lc.Effect) {
	g := r.gens[e.Gen]
	g.startedAt = r.act.now()
	if g.external {
		r.answer(lc.Event{Kind: lc.GoDone, Gen: e.Gen})
		return
	}
	r.beside(g, func(ctx context.Context) lc.Event {
		child, err := g.waiting.Go(ctx)
		if err != nil {
			return r.goFailed(e.Gen, g, err)
		}
		g.child = child
		r.watch(e.Gen, g)
		return lc.Event{Kind: lc.GoDone, Gen: e.Gen}
	})
}

// goFailed: what the kernel says of the artifact is the build's fault; anything
// else is the box's, and only some errors prove that the build did not run.
func (r *runner) goFailed(gen lc.GenID, g *generation, err error) lc.Event {
	g.waiting = nil // it was reaped
	var refused *process.ExecError
	if errors.As(err, &refused) {
		r.blame(g, err)
		return lc.Event{Kind: lc.GoDone, Gen: gen, Result: lc.BuildFailed, Reason: lc.ReasonExecFailed}
	}
	return r.refuse(g, lc.Event{
		Kind: lc.GoDone, Gen: gen, Reason: lc.ReasonNotStarted, MayHaveRun: !errors.Is(err, process.ErrNotExecuted),
	}, err)
}

// quickly is how soon after its start an exit counts as a crash loop.
const quickly = 10 * time.Second

// watch tells the core when the process ends by itself.
func (r *runner) watch(gen lc.GenID, g *generation) {
	done := g.child.Done()
	r.act.wg.Add(1)
	go func() {
		defer r.act.wg.Done()
		select {
		case <-done:
		case <-r.act.closing:
			return
		}
		quick := r.act.now().Sub(g.startedAt) < quickly
		r.box.post(func() {
			r.step(lc.Event{Kind: lc.Exited, Gen: gen, Quick: quick, Reason: lc.ReasonCrashed})
		})
	}()
}

// health runs the check until it passes, the process ends or time is up.
func (r *runner) health(e lc.Effect) {
	g := r.gens[e.Gen]
	policy := r.policy.Health
	if e.Cause == lc.CauseWake && r.policy.WakeTimeout > 0 {
		policy.Timeout = r.policy.WakeTimeout
	}
	r.beside(g, func(ctx context.Context) lc.Event {
		res := check(ctx, probeTarget{network: g.run.Network, address: g.run.Address}, policy, childDone(g))
		g.probe = res.text
		switch {
		case res.ok:
			return r.healthy(e.Gen, g, res)
		case res.exited:
			return lc.Event{Kind: lc.HealthDone, Gen: e.Gen, Result: lc.BuildFailed, Reason: lc.ReasonExited}
		case ctx.Err() != nil: // the attempt was cancelled; the core knows why
			return lc.Event{Kind: lc.HealthDone, Gen: e.Gen, Result: lc.Refused, Reason: lc.ReasonStopped}
		}
		return lc.Event{Kind: lc.HealthDone, Gen: e.Gen, Result: lc.BuildFailed, Reason: lc.ReasonUnhealthy}
	})
}

// healthy keeps the evidence, and makes sure that it was this generation that
// answered and not a stranger on its port.
func (r *runner) healthy(gen lc.GenID, g *generation, res probeResult) lc.Event {
	if stranger(g) {
		g.problem = "something else listens at " + g.run.Address
		return lc.Event{Kind: lc.HealthDone, Gen: gen, Result: lc.Refused, Reason: lc.ReasonUnsupervised}
	}
	g.run.Healthy = &store.Evidence{At: r.act.now(), Status: res.status}
	r.box.post(func() {
		r.learnBoot(r.act.now().Sub(g.startedAt))
		r.opStep(StepHealthy, res.text)
	})
	return lc.Event{Kind: lc.HealthDone, Gen: gen}
}

// stranger says that what listens at the generation's address is known not to
// belong to it.
func stranger(g *generation) bool {
	if g.child == nil {
		return false
	}
	owns, err := g.child.Owns(g.run.Network, g.run.Address)
	return err == nil && !owns
}

// learnBoot keeps a moving average of the time to the first good check.
func (r *runner) learnBoot(d time.Duration) {
	r.count(func(t *Totals) { t.Boots.add(d) })
	if r.boot == 0 {
		r.boot = d
		return
	}
	r.boot += (d - r.boot) / 4
}

func childDone(g *generation) <-chan struct{} {
	if g.child == nil {
		return nil
	}
	return g.child.Done()
}

// swap looks at the process a last time and stores the slot.
func (r *runner) swap(e lc.Effect) {
	g := r.gens[e.Gen]
	if g.child != nil && g.child.Exited() {
		r.answer(lc.Event{Kind: lc.SwitchDone, Gen: e.Gen, Result: lc.BuildFailed, Reason: lc.ReasonExited})
		return
	}
	r.act.front.Place(r.name, r.placement(e.Slot))
	r.opStep(StepSwitched, "generation "+strconv.FormatUint(g.run.Generation, 10)+", revision "+strconv.FormatUint(g.run.Revision, 10))
	r.answer(lc.Event{Kind: lc.SwitchDone, Gen: e.Gen})
}
