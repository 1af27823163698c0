package bench

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Swap runs a load, performs plan.Change in the middle of it and reports per
// phase: before, during (from the call of Change to its return) and after.
// With an Admin, every request sent after a change that succeeded must be
// answered by the generation that the status then names, or a newer one; and
// the most parked requests seen are noted. admin may be nil.
//
// If the change fails, or ctx ends, both the result so far and the error are
// returned.
func Swap(ctx context.Context, admin Admin, plan SwapPlan) (*Result, error) {
	plan = plan.withDefaults()
	watch := &watcher{admin: admin, app: plan.App}
	before, err := watch.status(ctx)
	if err != nil {
		return nil, fmt.Errorf("status of %s before the swap: %w", plan.App, err)
	}
	run, err := Start(ctx, plan.Load)
	if err != nil {
		return nil, err
	}
	change := &Change{From: before.Generation}
	if err = pause(ctx, plan.Lead); err == nil {
		err = change.perform(ctx, run, plan, watch)
	}
	if pauseErr := pause(ctx, plan.Tail); err == nil {
		err = pauseErr
	}
	run.Stop()
	// The run ends by itself: its schedule is over and requests time out.
	result, waitErr := run.Wait(context.WithoutCancel(ctx))
	if waitErr != nil {
		return nil, waitErr
	}
	result.Scenario = "swap"
	result.Change = change
	return result, err
}

// perform does the change between its two marks.
func (c *Change) perform(ctx context.Context, run *Run, plan SwapPlan, watch *watcher) error {
	c.StartMS = milliseconds(run.elapsed())
	run.Begin(PhaseDuring, "swap starts")
	stopWatching := watch.start(ctx)
	limited, cancel := context.WithTimeout(ctx, plan.Limit)
	err := plan.Change(limited, run)
	cancel()
	if err == nil {
		var after State
		after, err = watch.status(ctx)
		c.To = after.Generation
		run.ExpectGeneration(after.Generation)
	}
	c.EndMS = milliseconds(run.elapsed())
	run.Begin(PhaseAfter, endLabel(err))
	stopWatching()
	c.ParkedSeen, c.StatusProblems = watch.parked, watch.problems
	if err != nil {
		c.Error = err.Error()
		return fmt.Errorf("swap %s: %w", plan.App, err)
	}
	return nil
}

func endLabel(err error) string {
	if err != nil {
		return "swap failed"
	}
	return "swap reported"
}

// watchEvery is how often a watcher looks at the status.
const watchEvery = 10 * time.Millisecond

// watcher looks at an app's status while something happens to it.
type watcher struct {
	admin Admin // nil: nothing to look at
	app   string
	// Read after the stopper has returned.
	parked   int
	problems int
}

func (w *watcher) status(ctx context.Context) (State, error) {
	if w.admin == nil {
		return State{}, nil
	}
	return w.admin.Status(ctx, w.app)
}

// start begins looking; the function it returns ends that and waits for it.
func (w *watcher) start(ctx context.Context) (stop func()) {
	if w.admin == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for pause(ctx, watchEvery) == nil {
			state, err := w.admin.Status(ctx, w.app)
			switch {
			case err == nil:
				w.parked = max(w.parked, state.Parked)
			case ctx.Err() == nil:
				w.problems++
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

// pause waits for d; an error means that ctx ended first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
