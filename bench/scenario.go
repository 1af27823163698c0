package bench

import (
	"context"
	"fmt"
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

	// Swaps is how often; 0 means once, and nothing is compared.
	Swaps int
	// Twin is what the windows beside swaps start; nil: there are none.
	Twin *Twin
	// Alone takes the times of the app's process alone, by which the wait in a
	// hold swap is judged; it is called before each round, without load. nil: the
	// swaps are overlaps.
	Alone func(context.Context) (OwnTimes, error)
	// CPU is the CPU time that usher has used so far; nil: not known.
	CPU func() (time.Duration, error)
}

// Saturation sends as much as the connections of a load take, for so long, and
// returns how many requests per second were answered: no schedule that asks for
// more can be kept on this machine, load tool included.
func Saturation(ctx context.Context, load Load, d time.Duration) (float64, error) {
	const beyond = 100_000 // requests/s that are due
	load.Rate, load.Duration, load.Arrivals, load.Timeout = beyond, d, Constant, time.Hour
	limited, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	run, err := Start(limited, load)
	if err != nil {
		return 0, err
	}
	result, err := run.Wait(context.WithoutCancel(ctx))
	switch {
	case err != nil:
		return 0, err
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case result.Total.Failed > 0:
		return 0, fmt.Errorf("find saturation: %d of %d requests failed: %s", result.Total.Failed, result.Total.Requests, result.Total.failureList())
	case result.Total.Served == 0:
		return 0, fmt.Errorf("find saturation: no request was answered in %s", d)
	}
	return float64(result.Total.Served) / d.Seconds(), nil
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
	if p.Twin != nil {
		p.Load.Duration += p.Lead + p.Limit
	}
	p.Load.Phase = PhaseBefore
	return p
}
