package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/usher-edge/usher/admin"
	"github.com/usher-edge/usher/admin/client"
	"github.com/usher-edge/usher/bench"
)

// run carries out a scenario and tells its result.
func (b *benchRun) run(ctx context.Context, target bench.Target, scenario func(context.Context) (*bench.Result, error)) error {
	if b.path != "" {
		target.Path = b.path
	}
	b.load.Targets = []bench.Target{target}
	if b.poisson {
		b.load.Arrivals = bench.Poisson
	}
	files, err := openReports(reportFile[*bench.Result]{b.html, (*bench.Result).WriteHTML}, reportFile[*bench.Result]{b.svg, (*bench.Result).WriteSVG})
	if err != nil {
		return err
	}
	result, err := scenario(ctx)
	if result == nil || err != nil && result.Total.Requests == 0 {
		files.discard()
		return fmt.Errorf("bench: %w", err)
	}
	if told := b.tell(result, files); err == nil {
		err = told
	}
	return firstOf(err, verdict(ctx, result))
}

// tell writes the result wherever it was asked for.
func (b *benchRun) tell(result *bench.Result, files reports[*bench.Result]) error {
	write := result.WriteText
	if b.json {
		write = result.WriteJSON
	}
	return tellReport(b.cli, write, files, result)
}

// tellReport writes a result to stdout and into its files.
func tellReport[T any](c *cli, write func(io.Writer) error, files reports[T], result T) error {
	err := write(c.stdout)
	for _, f := range files {
		if werr := f.write(result); werr != nil {
			err = firstOf(err, werr)
			continue
		}
		c.say("wrote %s", f.file.Name())
	}
	if err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}

// verdict is an error unless every request was answered as it should be.
func verdict(ctx context.Context, result *bench.Result) error {
	total := result.Total
	switch {
	case total.Failed > 0:
		return fmt.Errorf("bench %s: %d of %s failed", result.Scenario, total.Failed, plural(total.Requests, "request"))
	case ctx.Err() != nil:
		return fmt.Errorf("bench %s: stopped early, %s cut", result.Scenario, plural(total.Cut, "request"))
	}
	return nil
}

// reportFile is a file to be written, and how.
type reportFile[T any] struct {
	path   string // empty: not wanted
	render func(T, io.Writer) error
}

// report is a file that is opened before the run, so that a name that cannot be
// written is told before a minute of load and not after it.
type report[T any] struct {
	file   *os.File
	made   bool // it was not there before
	render func(T, io.Writer) error
}

type reports[T any] []report[T]

func openReports[T any](wanted ...reportFile[T]) (reports[T], error) {
	var all reports[T]
	for _, want := range wanted {
		if want.path == "" {
			continue
		}
		_, statErr := os.Stat(want.path)
		f, err := os.OpenFile(want.path, os.O_WRONLY|os.O_CREATE, 0o644)
		if err != nil {
			all.discard()
			return nil, fmt.Errorf("bench: make report: %w", err)
		}
		all = append(all, report[T]{f, os.IsNotExist(statErr), want.render})
	}
	return all, nil
}

// write puts the result in place of what the file held, and closes it.
func (r report[T]) write(result T) error {
	info, err := r.file.Stat()
	if err == nil && info.Mode().IsRegular() {
		err = r.file.Truncate(0)
	}
	if err == nil {
		err = r.render(result, r.file)
	}
	return firstOf(err, r.file.Close())
}

// discard leaves the files as they were found.
func (all reports[T]) discard() {
	for _, r := range all {
		// There is already an error to tell, and nothing was written.
		_ = r.file.Close()
		if r.made {
			_ = os.Remove(r.file.Name())
		}
	}
}

// withApp calls f with who operates the app and where its requests go. given is
// APP and perhaps URL; limit bounds one change of the app.
func (b *benchRun) withApp(ctx context.Context, given []string, limit time.Duration, f func(*operator, bench.Target) error) error {
	return b.with(func(cl *client.Client) error {
		target, err := b.appTarget(ctx, cl, given)
		if err != nil {
			return err
		}
		quiet := *b.cli
		quiet.stdout = quiet.stderr // stdout is for the result
		return f(&operator{cli: &quiet, client: cl, limit: limit}, target)
	})
}

// appTarget is the URL that was given, or usher's first listener.
func (b *benchRun) appTarget(ctx context.Context, cl *client.Client, given []string) (bench.Target, error) {
	app, err := cl.App(ctx, given[0])
	if err != nil {
		return bench.Target{}, fmt.Errorf("bench: %w", err)
	}
	host, address := b.host, ""
	if len(given) == 2 {
		address = given[1]
		if _, err := os.Stat(address); err == nil {
			return bench.Target{}, usagef("%s is a file and not the URL of %s; what bench swap deploys is named with --artifact", address, app.Name)
		}
	} else {
		server, err := cl.Server(ctx)
		if err != nil {
			return bench.Target{}, fmt.Errorf("bench: %w", err)
		}
		if len(server.Listen) == 0 {
			return bench.Target{}, usagef("usher does not say where it listens; give the URL of %s", app.Name)
		}
		address = server.Listen[0]
	}
	if host == "" && (len(given) == 1 || strings.HasPrefix(address, "unix:")) {
		if host = exactHost(app); host == "" {
			return bench.Target{}, usagef("%s has no exact host; name one with --host", app.Name)
		}
	}
	target, err := bench.ParseTarget(address, host)
	if err != nil {
		return target, &usageError{err}
	}
	return target, nil
}

func exactHost(app admin.AppStatus) string {
	for _, h := range app.Hosts {
		if !strings.HasPrefix(h, "*") {
			return h
		}
	}
	return ""
}

// operator does to a running usher what scenarios ask for, the way the verbs do
// it. It is a bench.Admin.
type operator struct {
	*cli
	client *client.Client
	limit  time.Duration // of one change
	sleeps int
	last   string // operation
}

var _ bench.Admin = (*operator)(nil)

func (o *operator) pending(c *cli, verb, app string) pending {
	return pending{cli: c, client: o.client, verb: verb, app: app, timeout: o.limit}
}

// Deploy implements bench.Admin.
func (o *operator) Deploy(ctx context.Context, app, artifact, mode string) error {
	d := &deploy{pending: o.pending(o.cli, "deploy", app), artifact: artifact, mode: mode, wait: "switched"}
	return d.run(ctx)
}

// Restart implements bench.Admin. A restart has no mode of its own; the command
// line refuses one.
func (o *operator) Restart(ctx context.Context, app, _ string) error {
	p := o.pending(o.cli, "restart", app)
	return p.carry(ctx, func(ctx context.Context, ch admin.Change) (admin.Operation, error) {
		op, err := o.client.Restart(ctx, admin.RestartRequest{Change: ch})
		o.last = op.ID
		return op, err
	})
}

// Retired implements bench.Admin, of restarts.
func (o *operator) Retired(ctx context.Context, _ string) error {
	if o.last == "" {
		return nil
	}
	_, err := o.client.Follow(ctx, o.last, true, client.Watcher{})
	return err
}

// Sleep implements bench.Admin. It returns when the app is asleep.
func (o *operator) Sleep(ctx context.Context, app string) error {
	o.sleeps++
	o.say("%s: round %d, falls asleep", app, o.sleeps)
	if err := o.settled(ctx, app); err != nil {
		return err
	}
	silent := *o.cli // the steps of every round would be too much
	silent.stdout, silent.stderr = io.Discard, io.Discard
	p := o.pending(&silent, "sleep", app)
	p.drained = true
	return p.carry(ctx, func(ctx context.Context, ch admin.Change) (admin.Operation, error) {
		return o.client.Sleep(ctx, ch)
	})
}

// settled waits until no request of a load that is over is in flight: usher ends one
// a moment after its client has the answer. If that takes longer there are others, of
// which the change that follows tells.
func (o *operator) settled(ctx context.Context, app string) error {
	const patience = 5 * time.Second
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; {
		status, err := o.client.App(ctx, app)
		if err != nil || status.InFlight == 0 || time.Now().After(end) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// wake returns when the app is awake.
func (o *operator) wake(ctx context.Context, app string) error {
	p := o.pending(o.cli, "wake", app)
	return p.carry(ctx, func(ctx context.Context, ch admin.Change) (admin.Operation, error) {
		return o.client.Wake(ctx, ch)
	})
}

// Status implements bench.Admin.
func (o *operator) Status(ctx context.Context, app string) (bench.State, error) {
	a, err := o.client.App(ctx, app)
	state := bench.State{Phase: string(a.State), Generation: a.Generation, Parked: int(a.Parked), PID: a.PID}
	for _, g := range a.Generations {
		if g.Number == a.Generation && g.StartedAt != nil {
			state.Started = *g.StartedAt
		}
	}
	return state, err
}
