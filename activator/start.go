package activator

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/usher-edge/usher/activator/artifact"
	"github.com/usher-edge/usher/activator/cgroup"
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

// notReady answers that a generation could not be made ready to run.
func (r *runner) notReady(k lc.EventKind, gen lc.GenID, g *generation, err error) lc.Event {
	r.blame(g, err)
	result, why := notPrepared(err)
	return lc.Event{Kind: k, Gen: gen, Result: result, Reason: why}
}

// notPrepared says of an error whose fault it is that no process could be set up,
// and why.
func notPrepared(err error) (lc.Result, lc.Reason) {
	var refused *process.ExecError
	switch {
	case errors.As(err, &refused) && refused.OfBuild(), errors.Is(err, errNothingToRun):
		return lc.BuildFailed, lc.ReasonExecFailed
	case errors.Is(err, artifact.ErrMismatch):
		return lc.Refused, lc.ReasonMismatch
	case errors.Is(err, cgroup.ErrNotLimited):
		return lc.Refused, lc.ReasonNotLimited
	case errors.Is(err, cgroup.ErrNotFresh):
		return lc.Refused, lc.ReasonNotFresh
	}
	return lc.Refused, lc.ReasonNotStarted
}

func (r *runner) verify(e lc.Effect) {
	g, err := r.generationFor(e)
	if err != nil {
		r.answer(r.notReady(lc.VerifyDone, e.Gen, g, err))
		return
	}
	digest := g.rel.Digest
	r.beside(g, func(ctx context.Context) answer {
		err := r.act.depot.Verify(ctx, digest)
		return func() lc.Event {
			if err != nil {
				return r.notReady(lc.VerifyDone, e.Gen, g, err)
			}
			g.verified = true
			return lc.Event{Kind: lc.VerifyDone, Gen: e.Gen}
		}
	})
}

func (r *runner) intend(e lc.Effect) {
	g, err := r.generationFor(e)
	if err == nil {
		err = r.address(g)
	}
	if err != nil {
		r.answer(r.notReady(lc.IntentDone, e.Gen, g, err))
		return
	}
	if !g.external {
		g.run.LogPath = r.act.logPath(r.name, g.run.Generation)
	}
	r.answer(r.result(lc.IntentDone, e.Gen, r.putRun(e.Gen, store.PhaseIntent)))
}

// prepare sets the child up and makes its identity durable before anything of
// the build can run. Bytes that nobody has asked to verify before, those of a wake,
// are verified here: a build that has changed since it was staged is never started.
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
		r.answer(r.notReady(lc.PrepareDone, e.Gen, g, err))
		return
	}
	verified, digest := g.verified, g.rel.Digest
	r.beside(g, func(ctx context.Context) answer {
		if !verified {
			if err := r.act.depot.Verify(ctx, digest); err != nil {
				return func() lc.Event {
					return r.notReady(lc.PrepareDone, e.Gen, g, err)
				}
			}
		}
		w, err := r.act.backend.Prepare(ctx, plan)
		return func() lc.Event {
			if err != nil {
				g.lost = true // what may be left of it is looked for by the stop that follows
				return r.notReady(lc.PrepareDone, e.Gen, g, err)
			}
			g.waiting = w
			if err := r.identifies(w.Identity()); err != nil {
				return r.notReady(lc.PrepareDone, e.Gen, g, err)
			}
			return r.result(lc.PrepareDone, e.Gen, r.prepared(e.Gen, g, w.Identity()))
		}
	})
}

// identifies says whether what was set up can be found again by what is told of it,
// and is held in what the proof of its end is said to rest on.
func (r *runner) identifies(id Identity) error {
	level := r.act.backend.Level()
	switch held := id.Cgroup != ""; {
	case id.PID <= 0 || id.StartTime == 0:
		return fmt.Errorf("what was set up is pid %d, started at %d: nothing could find that again", id.PID, id.StartTime)
	case held != (level == cgroup.LevelCgroup):
		return fmt.Errorf("pid %d is held in cgroup %q, and stop proofs are said to be by %s", id.PID, id.Cgroup, level)
	}
	return nil
}

// prepared records who waits at the go-byte.
func (r *runner) prepared(gen lc.GenID, g *generation, id Identity) error {
	g.run.PID, g.run.StartTime, g.run.Cgroup = id.PID, id.StartTime, id.Cgroup
	phase := store.PhaseStarted
	if g.run.Phase == store.PhaseStopping { // it was told to stop meanwhile
		phase = store.PhaseStopping
	}
	return r.putRun(gen, phase)
}

func (r *runner) goByte(e lc.Effect) {
	g := r.gens[e.Gen]
	g.startedAt = r.act.now()
	if g.external {
		r.answer(lc.Event{Kind: lc.GoDone, Gen: e.Gen})
		return
	}
	w := g.waiting
	r.beside(g, func(ctx context.Context) answer {
		child, err := w.Go(ctx)
		return func() lc.Event {
			if err != nil {
				return r.goFailed(e.Gen, g, err)
			}
			g.waiting, g.child = nil, child
			r.watch(e.Gen, g)
			return lc.Event{Kind: lc.GoDone, Gen: e.Gen}
		}
	})
}

// goFailed: what the kernel says of the artifact is the build's fault; anything
// else is the box's, and only some errors prove that the build did not run. That
// nothing is left is proven by the stop that follows.
func (r *runner) goFailed(gen lc.GenID, g *generation, err error) lc.Event {
	e := r.notReady(lc.GoDone, gen, g, err)
	e.MayHaveRun = !errors.Is(err, process.ErrNotExecuted)
	return e
}

// quickly is how soon after its start an exit counts as a crash loop.
const quickly = 10 * time.Second

// watch tells the core when the process ends by itself.
func (r *runner) watch(gen lc.GenID, g *generation) {
	done := g.child.Done()
	r.act.tasks.run(func() {
		select {
		case <-done:
		case <-r.act.closing:
			return
		}
		at := r.act.now()
		r.box.post(func() { r.exited(gen, g, at) })
	})
}

func (r *runner) exited(gen lc.GenID, g *generation, at time.Time) {
	if x := exitOf(g); x != nil {
		r.tellOOM(gen, g, x.OOM)
	}
	if r.gens[gen] == g && r.state.Cur.ID == gen && r.state.Cur.Stage == lc.Serving {
		last := r.latest()
		last.exit, last.tail = exitOf(g), tail(g.run.LogPath, tailLines)
		r.last, r.crash = &last, "the process ended by itself"
		if last.exit != nil {
			r.crash += ": " + last.exit.String()
		}
		r.note("crash", gen, r.crash)
	}
	r.step(lc.Event{Kind: lc.Exited, Gen: gen, Quick: at.Sub(g.startedAt) < quickly, Reason: lc.ReasonCrashed})
}

// health runs the check until it passes, the process ends or time is up.
func (r *runner) health(e lc.Effect) {
	g := r.gens[e.Gen]
	policy := r.spec.Policy.Health
	if e.Cause == lc.CauseWake && r.spec.Policy.WakeTimeout > 0 {
		policy.Timeout = r.spec.Policy.WakeTimeout
	}
	child, target := g.child, r.probeTarget(g)
	so := &probes{}
	g.probes = so
	warm := r.warming(g, policy)
	claim := r.claiming(e.Gen, child, &target)
	r.beside(g, func(ctx context.Context) answer {
		defer claim()
		patience := time.AfterFunc(policy.Timeout/yieldShare, claim)
		defer patience.Stop()
		res := check(ctx, target, policy, childDone(child), so)
		at, strange := r.act.now(), res.ok && stranger(child, target.network, target.address)
		if res.ok && !strange {
			warm(ctx)
		}
		oom := oomOf(child)
		cancelled := ctx.Err() != nil
		return func() lc.Event {
			g.probe = res.text
			r.tellOOM(e.Gen, g, oom)
			switch {
			case strange:
				g.problem = "something else listens at " + target.address
				return lc.Event{Kind: lc.HealthDone, Gen: e.Gen, Result: lc.Refused, Reason: lc.ReasonUnsupervised}
			case res.ok:
				g.run.Healthy = &store.Evidence{At: at, Status: res.status}
				r.learnBoot(at.Sub(g.startedAt))
				r.opStep(StepHealthy, res.text)
				return lc.Event{Kind: lc.HealthDone, Gen: e.Gen}
			case res.exited:
				return lc.Event{Kind: lc.HealthDone, Gen: e.Gen, Result: lc.BuildFailed, Reason: lc.ReasonExited}
			case cancelled: // the core knows why
				return lc.Event{Kind: lc.HealthDone, Gen: e.Gen, Result: lc.Refused, Reason: lc.ReasonStopped}
			}
			return lc.Event{Kind: lc.HealthDone, Gen: e.Gen, Result: lc.BuildFailed, Reason: lc.ReasonUnhealthy}
		}
	})
}

// warming is what gets the edge ready for the switch to a generation that is
// healthy, if another one serves until then: clients should not wait for what an app
// that has just started does once on each connection.
func (r *runner) warming(g *generation, h Health) func(context.Context) {
	if r.state.Slot.State != lc.SlotServing || r.state.Slot.Gen == lc.GenID(g.run.Generation) {
		return func(context.Context) {}
	}
	next := Placement{Generation: g.run.Generation, Network: g.run.Network, Address: g.run.Address}
	return func(ctx context.Context) { r.act.front.Warm(ctx, r.name, next, h.question()) }
}

func (r *runner) probeTarget(g *generation) probeTarget {
	t := probeTarget{
		network: g.run.Network, address: g.run.Address, dial: r.act.dial,
		awaited: func() bool { return r.act.front.Activity(r.name).Parked > 0 },
	}
	switch {
	case g.external:
	case g.proc.Listen == ListenSocket:
		t.told = "socket's path from $SOCKET"
	default:
		t.told = "port from $PORT"
	}
	return t
}

// stranger says that what listens at the address is known not to belong to the
// child: it was not this generation that answered.
func stranger(child Child, network, address string) bool {
	if child == nil {
		return false
	}
	owns, err := child.Owns(network, address)
	return err == nil && !owns
}

// learnBoot keeps a moving average of the time to the first good check.
func (r *runner) learnBoot(d time.Duration) {
	r.count(func(t *tally) { t.boots.add(d) })
	if r.boot == 0 {
		r.boot = d
		return
	}
	r.boot += (d - r.boot) / 4
}

func childDone(child Child) <-chan struct{} {
	if child == nil {
		return nil
	}
	return child.Done()
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
