package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/usher-edge/usher/bench"
)

// sleepLimit is the longest that a wake scenario lets an app take to fall asleep.
const sleepLimit = 30 * time.Second

// benchRun is one run of a scenario: what the flags say about load and reports.
type benchRun struct {
	*cli
	load    bench.Load
	host    string
	path    string
	poisson bool
	json    bool
	html    string
	svg     string
}

func (c *cli) benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Send load on a fixed schedule and say what clients saw",
		Long: `Bench sends requests on a schedule that is fixed before the first one leaves,
counts latency from the scheduled times, retries nothing, and exits with 1 if
a single request failed. The result goes to stdout, progress to stderr.`,
		Args: unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		SuggestionsMinimumDistance: nearWord,
	}
	cmd.AddCommand(c.benchSteadyCommand(), c.benchWakeCommand(), c.benchSwapCommand(), c.benchPeersCommand())
	return cmd
}

func (c *cli) benchSteadyCommand() *cobra.Command {
	b := &benchRun{cli: c}
	cmd := &cobra.Command{
		Use:     "steady URL",
		Short:   "Send a constant load to any HTTP/1.1 server",
		Example: "  usher bench steady http://hello.localhost:8080/ --rate 500 --duration 30s --svg latency.svg",
		Args:    positional(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, given []string) error {
			target, err := bench.ParseTarget(given[0], b.host)
			if err != nil {
				return &usageError{err}
			}
			return b.run(cmd.Context(), target, func(ctx context.Context) (*bench.Result, error) {
				b.say("%g requests/s to %s for %s", b.load.Rate, target.Address, b.load.Duration)
				return bench.Steady(ctx, b.load)
			})
		},
	}
	b.flags(cmd)
	b.paceFlags(cmd)
	cmd.Flags().DurationVar(&b.load.Duration, "duration", 10*time.Second, "how long requests are sent")
	moreThanNothing(cmd.Flags(), "duration", &b.load.Duration)
	return cmd
}

func (c *cli) benchWakeCommand() *cobra.Command {
	b := &benchRun{cli: c}
	plan := bench.WakePlan{SleepLimit: sleepLimit}
	cmd := &cobra.Command{
		Use:               "wake APP [URL]",
		Short:             "Put an app to sleep and wake it with requests, again and again",
		Example:           "  usher bench wake hello --rounds 20 --burst 50",
		Args:              positional(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: c.completeApps,
		RunE: func(cmd *cobra.Command, given []string) error {
			plan.App = given[0]
			return b.withApp(cmd.Context(), given, sleepLimit, func(o *operator, target bench.Target) error {
				return b.run(cmd.Context(), target, func(ctx context.Context) (*bench.Result, error) {
					plan.Load = b.load
					return bench.Wake(ctx, o, plan)
				})
			})
		},
	}
	b.flags(cmd)
	cmd.Flags().IntVar(&plan.Rounds, "rounds", 10, "how often the app is put to sleep and woken")
	cmd.Flags().IntVar(&plan.Burst, "burst", 1, "requests that come together and wake it")
	atLeast(cmd.Flags(), "rounds", &plan.Rounds, 1)
	between(cmd.Flags(), "burst", &plan.Burst, 1, 20000)
	return cmd
}

// flags are those that all scenarios have.
func (b *benchRun) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&b.host, "host", "", "Host header; default is the URL's, or the app's first exact host")
	f.StringVar(&b.path, "path", "", "path and query to request; default is the URL's")
	f.Float64Var(&b.load.Posts, "posts", 0, "share of requests, 0 to 1, that are a POST; its body must come back")
	f.StringVar(&b.load.PostPath, "post-path", "/echo", "path of a POST")
	f.DurationVar(&b.load.Timeout, "timeout", 30*time.Second, "longest that a request may take, from its scheduled time")
	f.Uint64Var(&b.load.Seed, "seed", 0, "equal seeds make equal runs")
	f.BoolVar(&b.json, "json", false, "print the result as JSON")
	f.StringVar(&b.html, "html", "", "write a report with the picture of latency over time to this file")
	f.StringVar(&b.svg, "svg", "", "write the picture alone to this file")
	share(f, "posts", &b.load.Posts)
	moreThanNothing(f, "timeout", &b.load.Timeout)
	bound(f, "seed", "a number from 0", func() bool { return true })
	bound(f, "path", "a path, beginning with /", func() bool { return strings.HasPrefix(b.path, "/") })
	bound(f, "post-path", "a path, beginning with /", func() bool { return strings.HasPrefix(b.load.PostPath, "/") })
}

// paceFlags are those of the scenarios that send at a rate.
func (b *benchRun) paceFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Float64Var(&b.load.Rate, "rate", 100, "requests per second")
	f.IntVar(&b.load.Connections, "connections", 64, "most connections at once")
	f.Float64Var(&b.load.NewConnections, "new-connections", 0, "share of requests, 0 to 1, that bring a connection of their own")
	f.BoolVar(&b.poisson, "poisson", false, "random gaps between requests, as independent clients make them")
	bound(f, "rate", "a number of more than 0 and at most 1000000", func() bool { return b.load.Rate > 0 && b.load.Rate <= 1e6 })
	between(f, "connections", &b.load.Connections, 1, 20000)
	share(f, "new-connections", &b.load.NewConnections)
}

// must turns a demand that the command line does not meet into an error.
func must(met bool, format string, args ...any) error {
	if met {
		return nil
	}
	return usagef(format, args...)
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func share(f *pflag.FlagSet, name string, value *float64) {
	bound(f, name, "a share, 0 to 1", func() bool { return *value >= 0 && *value <= 1 })
}
