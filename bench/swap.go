package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Swap runs a load, performs plan.Change in the middle of it and reports per
// phase: before, during (from the call of Change to its return) and after.
// With an Admin, every request sent after a change that succeeded must be
// answered by the generation that the status then names, or a newer one; and
// the most parked requests seen are noted. admin may be nil.
//
// With plan.Swaps it does so that many times and pins what a swap costs: see
// [Pinned]. In an overlap each swap has a window of the same shape beside it in
// which plan.Twin is started and nothing is switched; which of the two comes
// first alternates. Before each hold plan.Alone takes the process's own times.
//
// If a change fails, or ctx ends, both the result so far and the error are
// returned.
func Swap(ctx context.Context, admin Admin, plan SwapPlan) (*Result, error) {
	plan = plan.withDefaults()
	load := plan.Load.withDefaults()
	if err := load.validate(); err != nil {
		return nil, err
	}
	s := &swapping{plan: plan, admin: admin, total: account{load: load, started: time.Now()}}
	var err error
	for round := 1; round <= max(plan.Swaps, 1) && err == nil; round++ {
		err = s.round(ctx, round)
	}
	if s.change == nil {
		return nil, err
	}
	result := s.total.result()
	result.Scenario = "swap"
	result.Change = s.change
	if plan.Swaps > 0 {
		result.Windows = s.windows
		result.Pinned = s.total.pin(result.Windows, plan.Alone != nil)
	}
	return result, err
}

// swapping is a swap scenario under way.
type swapping struct {
	plan    SwapPlan
	admin   Admin
	total   account
	change  *Change // the last one
	windows []Window
	// switched and gone are how long the last swap took to its switch, and to
	// the end of the old generation: the shape of the windows beside.
	switched, gone time.Duration
}

// round is one load with a swap in it, and perhaps a window beside it.
func (s *swapping) round(ctx context.Context, round int) error {
	var own OwnTimes
	if s.plan.Alone != nil {
		var err error
		if own, err = s.plan.Alone(ctx); err != nil {
			return fmt.Errorf("start %s alone: %w", s.plan.App, err)
		}
	}
	watch := &watcher{admin: s.admin, app: s.plan.App}
	before, err := watch.status(ctx)
	if err != nil {
		return fmt.Errorf("status of %s before the swap: %w", s.plan.App, err)
	}
	load := s.plan.Load
	if round > 1 {
		load.oldest = before.Generation
	}
	run, err := Start(ctx, load)
	if err != nil {
		return err
	}
	change := &Change{From: before.Generation}
	first := len(s.windows)
	swap := func() error { return s.swap(ctx, run, watch, change) }
	beside := func() error { return s.beside(ctx, run) }
	steps := []func() error{swap}
	switch {
	case s.plan.Twin == nil:
	case round%2 == 0:
		steps = []func() error{beside, swap}
	default:
		steps = []func() error{swap, beside}
	}
	for _, step := range steps {
		if err == nil {
			err = pause(ctx, s.plan.Lead)
		}
		if err == nil {
			err = step()
		}
	}
	if pauseErr := pause(ctx, s.plan.Tail); err == nil {
		err = pauseErr
	}
	run.Stop()
	// The run ends by itself: its schedule is over and requests time out.
	if _, waitErr := run.Wait(context.WithoutCancel(ctx)); waitErr != nil {
		return waitErr
	}
	s.add(run.account(), change, round, first)
	for i := range s.windows[first:] {
		s.windows[first+i].OwnStopMS, s.windows[first+i].OwnStartMS = milliseconds(own.Stop), milliseconds(own.Start)
	}
	return err
}

// add joins a round to those before it, on their clock.
func (s *swapping) add(part account, change *Change, round, first int) {
	if s.change == nil {
		s.total.started = part.started
	}
	by := part.started.Sub(s.total.started)
	part.shift(by)
	s.total.join(part)
	s.total.phases = append(s.total.phases, part.phases...)
	s.total.marks = append(s.total.marks, part.marks...)
	change.StartMS += milliseconds(by)
	change.EndMS += milliseconds(by)
	s.change = change
	for i := range s.windows[first:] {
		w := &s.windows[first+i]
		w.Round = round
		w.StartMS += milliseconds(by)
		w.LiveMS += milliseconds(by)
		w.SwitchMS += milliseconds(by)
		w.EndMS += milliseconds(by)
	}
}

// window follows usher's CPU time while f does what it does, which tells when the
// new process was executed. Nothing but that is asked of usher meanwhile: a look at
// the status costs it more than many requests.
func (s *swapping) window(run *Run, w *Window, f func() (lives time.Time, err error)) error {
	asked, spent := time.Now(), follow(s.plan.CPU)
	lives, err := f()
	if followErr := spent.stop(); err == nil {
		err = followErr
	}
	if err != nil {
		return err
	}
	if lives.Before(asked) {
		lives = asked // not known
	}
	w.StartMS, w.LiveMS, w.EndMS = run.at(asked), run.at(lives), run.at(time.Now())
	w.cpu, w.liveCPU = spent.since(asked), spent.since(lives)
	s.windows = append(s.windows, *w)
	return nil
}

// swap performs the change, and where swaps are compared waits until the old
// generation is gone.
func (s *swapping) swap(ctx context.Context, run *Run, watch *watcher, change *Change) error {
	if s.plan.Swaps == 0 {
		return change.perform(ctx, run, s.plan, watch)
	}
	w := Window{Kind: WindowSwap}
	return s.window(run, &w, func() (time.Time, error) {
		began := time.Now()
		if err := change.perform(ctx, run, s.plan, watch); err != nil {
			return began, err
		}
		w.SwitchMS = milliseconds(run.elapsed())
		s.switched = time.Since(began)
		if err := s.retired(ctx); err != nil {
			return began, fmt.Errorf("swap %s: the old generation is not gone: %w", s.plan.App, err)
		}
		s.gone = time.Since(began)
		return change.executed, nil
	})
}

// retired waits until nothing of the old generation is left.
func (s *swapping) retired(ctx context.Context) error {
	if s.admin == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.plan.Limit)
	defer cancel()
	return s.admin.Retired(ctx, s.plan.App)
}

// beside starts the same process beside the app and ends it, in the times that
// the last swap took.
func (s *swapping) beside(ctx context.Context, run *Run) error {
	run.Begin(PhaseBeside, "")
	defer run.Begin(PhaseAfter, "")
	w := Window{Kind: WindowBeside}
	return s.window(run, &w, func() (time.Time, error) {
		began := time.Now()
		companion, err := s.plan.Twin.Start(ctx)
		if err != nil {
			return began, err
		}
		pauseErr := pause(ctx, s.switched-time.Since(began))
		w.SwitchMS = milliseconds(run.elapsed())
		if _, err := companion.Stop(); err != nil {
			return began, err
		}
		if pauseErr != nil {
			return began, pauseErr
		}
		return companion.executed, pause(ctx, s.gone-time.Since(began))
	})
}

// perform does the change between its two marks.
func (c *Change) perform(ctx context.Context, run *Run, plan SwapPlan, watch *watcher) error {
	c.StartMS = milliseconds(run.elapsed())
	run.Begin(PhaseDuring, plan.label("swap starts"))
	stopWatching := func() {}
	if plan.Swaps == 0 {
		stopWatching = watch.start(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, plan.Limit)
	err := plan.Change(limited, run)
	cancel()
	if err == nil {
		var after State
		after, err = watch.status(ctx)
		c.To, c.executed = after.Generation, after.Started
		run.ExpectGeneration(after.Generation)
	}
	c.EndMS = milliseconds(run.elapsed())
	run.Begin(PhaseAfter, plan.label(endLabel(err)))
	stopWatching()
	c.ParkedSeen, c.StatusProblems = int(watch.parked.Load()), int(watch.problems.Load())
	if err != nil {
		c.Error = err.Error()
		return fmt.Errorf("swap %s: %w", plan.App, err)
	}
	return nil
}

// label leaves the picture of many swaps without words at each.
func (p SwapPlan) label(s string) string {
	if p.Swaps > 1 {
		return ""
	}
	return s
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
	// The most parked requests and the looks that failed, so far.
	parked   atomic.Int64
	problems atomic.Int64
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
				w.parked.Store(max(w.parked.Load(), int64(state.Parked)))
			case ctx.Err() == nil:
				w.problems.Add(1)
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
