package bench

import (
	"context"
	"time"
)

// Admin is what scenarios need from a running usher's control plane.
//
// Each verb returns when its effect is in force (a deploy at the switch, a
// sleep when the app is asleep), with an error that says why it is not.
type Admin interface {
	Deploy(ctx context.Context, app, artifact, mode string) error
	Restart(ctx context.Context, app, mode string) error
	Sleep(ctx context.Context, app string) error
	// Retired returns when nothing is left of the generation that the last change
	// has moved the app away from.
	Retired(ctx context.Context, app string) error
	Status(ctx context.Context, app string) (State, error)
}

// StateAsleep is State.Phase of an app that has no process.
const StateAsleep = "asleep"

// State is what scenarios look at in an app's status.
type State struct {
	Phase      string // asleep, waking, awake, swapping, holding, down or paused
	Generation uint64 // current generation; 0 = none
	Parked     int    // requests that wait for the app now
	PID        int    // of the current generation's first process; 0 = none
	// Started is when that process was executed; zero: not known.
	Started time.Time
}

// Deploying is a SwapPlan.Change that deploys an artifact. mode is "overlap",
// "hold" or empty for the app's own.
func Deploying(admin Admin, app, artifact, mode string) func(context.Context, *Run) error {
	return func(ctx context.Context, _ *Run) error { return admin.Deploy(ctx, app, artifact, mode) }
}

// Restarting is a SwapPlan.Change that swaps an app to a new generation of the
// release it runs.
func Restarting(admin Admin, app, mode string) func(context.Context, *Run) error {
	return func(ctx context.Context, _ *Run) error { return admin.Restart(ctx, app, mode) }
}
