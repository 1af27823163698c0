package bench

import (
	"context"
	"time"
)

// Steady runs a load from beginning to end.
func Steady(ctx context.Context, load Load) (*Result, error) {
	run, err := Start(ctx, load)
	if err != nil {
		return nil, err
	}
	return run.Wait(context.WithoutCancel(ctx))
}

// SwapPlan is a load with one change in the middle of it.
type SwapPlan struct {
	// App is whose status is read; unused without an Admin.
	App string
	// Load says what to send. Its Duration is not used.
	Load Load
	// Lead is how long the load runs before the change; 0 means 2 s.
	Lead time.Duration
	// Tail is how long it runs on after the change; 0 means 2 s.
	Tail time.Duration
	// Limit is the longest the change may take; 0 means 60 s.
	Limit time.Duration
	// Change performs the swap and returns when it is reported done. It may
	// note instants of its own with run.Mark.
	Change func(ctx context.Context, run *Run) error
}

func (p SwapPlan) withDefaults() SwapPlan {
	if p.Lead == 0 {
		p.Lead = 2 * time.Second
	}
	if p.Tail == 0 {
		p.Tail = 2 * time.Second
	}
	if p.Limit == 0 {
		p.Limit = time.Minute
	}
	p.Load.Duration = p.Lead + p.Limit + p.Tail
	p.Load.Phase = PhaseBefore
	return p
}
