package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/usher-edge/usher/bench"
	"github.com/usher-edge/usher/bench/proc"
)

// benchSwap is a swap scenario: one swap, or many that are compared.
type benchSwap struct {
	benchRun
	plan     bench.SwapPlan
	artifact string
	mode     string
	check    bool
	rated    bool // --rate was given
}

func (c *cli) benchSwapCommand() *cobra.Command {
	b := &benchSwap{benchRun: benchRun{cli: c}}
	cmd := &cobra.Command{
		Use:   "swap APP [URL]",
		Short: "Swap an app under load and compare before, during and after",
		Long: `Swap sends load to an app and, in the middle of it, deploys --artifact as usher
deploy does, or restarts the app if there is none. "during" is from the start
of that to its report. Every request sent later must be answered by the new
generation.

With --swaps it does so that many times at half of what the app, usher and this
tool can do together (or at --rate) and says what a swap costs. An overlap is
compared with windows of the same length in which the app's process is started
once more beside it, and nothing is switched: p99 of latency, and usher's CPU
time per request. A hold is compared with what the process takes by itself to
stop, with as many connections open as the load has, and to start, for which the
app is put to sleep before each swap. Both need to be on the machine of the app,
as its user or root.`,
		Example: "  usher bench swap hello --artifact ./bin/hello-v2 --mode hold --html swap.html\n  usher bench swap hello --swaps 12 --check",
		Args:    positional(cobra.RangeArgs(1, 2)), ValidArgsFunction: c.completeApps,
		RunE: func(cmd *cobra.Command, given []string) error {
			b.rated = cmd.Flags().Changed("rate")
			return b.command(cmd.Context(), given)
		},
	}
	b.flags(cmd)
	b.paceFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&b.artifact, "artifact", "", "what to deploy, as for usher deploy; without it the app is restarted")
	f.StringVar(&b.mode, "mode", "", "overlap or hold; default is what the app's spec says")
	f.DurationVar(&b.plan.Lead, "lead", 2*time.Second, "load before the swap")
	f.DurationVar(&b.plan.Tail, "tail", 2*time.Second, "load after it")
	f.DurationVar(&b.plan.Limit, "limit", time.Minute, "longest that the swap may take")
	f.IntVar(&b.plan.Swaps, "swaps", 0, "compare so many swaps with their bars; default one swap, and no comparison")
	f.BoolVar(&b.check, "check", false, "exit with 1 if a bar is missed")
	oneOf(f, "mode", &b.mode, "overlap", "hold")
	moreThanNothing(f, "lead", &b.plan.Lead)
	moreThanNothing(f, "tail", &b.plan.Tail)
	moreThanNothing(f, "limit", &b.plan.Limit)
	between(f, "swaps", &b.plan.Swaps, 1, 1000)
	return cmd
}

func (b *benchSwap) command(ctx context.Context, given []string) error {
	err := firstOf(must(b.mode == "" || b.artifact != "", "--mode needs --artifact: a restart swaps as the app's release says"),
		must(b.plan.Swaps > 0 || !b.check, "--check needs --swaps: one swap is compared with nothing"),
		must(b.plan.Swaps == 0 || b.artifact == "", "--swaps restarts the app: an artifact can be deployed only once"))
	if err != nil {
		return err
	}
	b.plan.App = given[0]
	return b.withApp(ctx, given, b.plan.Limit, func(o *operator, target bench.Target) error {
		b.plan.Change = bench.Restarting(o, b.plan.App, "")
		if b.artifact != "" {
			b.plan.Change = bench.Deploying(o, b.plan.App, b.artifact, b.mode)
		}
		return b.run(ctx, target, func(ctx context.Context) (*bench.Result, error) {
			result, err := b.swap(ctx, o)
			if err == nil && b.check && result.Missed() > 0 {
				err = fmt.Errorf("bench swap: %s missed", plural(result.Missed(), "bar"))
			}
			return result, err
		})
	})
}

func (b *benchSwap) swap(ctx context.Context, o *operator) (*bench.Result, error) {
	if b.plan.Swaps > 0 {
		if err := b.prepare(ctx, o); err != nil {
			return nil, err
		}
	}
	b.say("%.4g requests/s to %s, the swap begins in %s", b.load.Rate, b.load.Targets[0].Address, b.plan.Lead)
	b.plan.Load = b.load
	return bench.Swap(ctx, o, b.plan)
}

// prepare finds what the swaps are compared with.
func (b *benchSwap) prepare(ctx context.Context, o *operator) error {
	server, err := o.client.Server(ctx)
	if err != nil {
		return err
	}
	b.plan.CPU = func() (time.Duration, error) { return proc.Time(server.PID) }
	if err := o.wake(ctx, b.plan.App); err != nil {
		return err
	}
	if !b.rated {
		if b.load.Rate, err = b.halfOfSaturation(ctx); err != nil {
			return err
		}
	}
	app, err := o.client.App(ctx, b.plan.App)
	switch {
	case err != nil:
		return err
	case app.External:
		return errors.New("usher does not start the process of an external target: there is nothing to compare its swaps with")
	case app.PID == 0:
		return fmt.Errorf("%s has no process now: it is %s", app.Name, app.State)
	}
	twin, err := bench.FindTwin(app.PID, app.Generation, b.load.Targets[0])
	if err != nil {
		return err
	}
	if app.Mode != "hold" {
		b.plan.Twin = twin
		return nil
	}
	b.plan.Alone = b.alone(o, twin)
	return nil
}

// saturated is how long saturation is looked for, after a first run that warms
// and is not counted.
const saturated = 2 * time.Second

func (b *benchSwap) halfOfSaturation(ctx context.Context) (float64, error) {
	if _, err := bench.Saturation(ctx, b.load, saturated/2); err != nil {
		return 0, err
	}
	most, err := bench.Saturation(ctx, b.load, saturated)
	if err != nil {
		return 0, err
	}
	b.say("saturation: %.4g requests/s with %d connections, load tool included", most, b.load.Connections)
	return most / 2, nil
}

// alone measures the process of a hold app while the app sleeps, so that never
// two of it live.
func (b *benchSwap) alone(o *operator, twin *bench.Twin) func(context.Context) (bench.OwnTimes, error) {
	return func(ctx context.Context) (own bench.OwnTimes, err error) {
		if err = o.Sleep(ctx, b.plan.App); err == nil {
			own, err = twin.Own(ctx, b.load.Connections)
		}
		return own, firstOf(err, o.wake(ctx, b.plan.App))
	}
}
