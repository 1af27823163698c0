package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/usher-edge/usher/bench"
)

// story tells one demo.
type story struct {
	*daemon
	options
	out   io.Writer
	swaps []swap
}

// demo sets the stage, tells the story and clears up, whatever happens.
func demo(ctx context.Context, o options, out io.Writer) (err error) {
	s, err := newStage(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.clear()) }()
	d, err := startDaemon(s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	err = (&story{daemon: d, options: o, out: out}).tell(ctx)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		fmt.Fprintf(out, "\nthe end of usher's log:\n%s\n", d.logTail())
	}
	return err
}

// tell goes on to the end although requests failed, to show the whole account.
func (t *story) tell(ctx context.Context) error {
	if err := t.ready(ctx); err != nil {
		return err
	}
	t.say("usher serves two apps; both are asleep\n    config  %s\n    hello   %s\n    notes   %s",
		t.stage.config(), t.stage.url("hello"), t.stage.url("notes"))
	for _, step := range []func(context.Context) error{
		t.firstRequest, t.burst, t.overlap, t.hold, t.sleep,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	t.printTable()
	err := errors.Join(t.receipts(ctx), t.verdict())
	if t.keep {
		t.say("it goes on until you press Ctrl-C; open\n    %s\n    %s\nand look with\n    %s --admin unix:%s status",
			t.stage.url("hello"), t.stage.url("notes"), t.stage.usher, t.stage.adminSocket())
		select {
		case <-ctx.Done():
		case <-t.exited:
			return errors.Join(err, errors.New("usher left by itself"))
		}
	}
	return err
}

func (t *story) say(format string, args ...any) { fmt.Fprintf(t.out, "\n"+format+"\n", args...) }

// load is requests to one app for so long.
func (t *story) load(app string, rate float64, d time.Duration) bench.Load {
	return bench.Load{
		Targets: []bench.Target{{Address: t.stage.listen, Host: app + ".localhost"}},
		Rate:    rate, Duration: d, Connections: 128,
	}
}

// firstRequest wakes hello.
func (t *story) firstRequest(ctx context.Context) error {
	if _, err := t.expect(ctx, "hello", "asleep"); err != nil {
		return err
	}
	load := t.load("hello", 1, time.Second)
	load.Check = saysVersion("v1")
	result, err := bench.Steady(ctx, load)
	if err = t.served(ctx, result, err); err != nil {
		return fmt.Errorf("first request: %w", err)
	}
	now, err := t.expect(ctx, "hello", "awake")
	t.say("the first request woke hello: answered after %.0f ms by pid %d", result.Total.Latency.MaxMS, now.PID)
	return err
}

// burst wakes notes with many requests at once.
func (t *story) burst(ctx context.Context) error {
	before, err := t.expect(ctx, "notes", "asleep")
	if err != nil {
		return err
	}
	const requests = 50
	result, err := bench.Steady(ctx, t.load("notes", requests*100, 10*time.Millisecond))
	if err = t.served(ctx, result, err); err != nil {
		return fmt.Errorf("burst: %w", err)
	}
	now, err := t.expect(ctx, "notes", "awake")
	if err != nil {
		return err
	}
	if n := now.Generation - before.Generation; before.Generation != 0 && n != 1 || len(result.Generations) != 1 {
		return fmt.Errorf("burst: %d generations answered, want one start for all", len(result.Generations))
	}
	waited, err := t.parked(ctx, "notes")
	t.say("%d requests at once woke notes with one start: all answered, the last after %.0f ms (parked: %s)",
		result.Total.Requests, result.Total.Latency.MaxMS, waited)
	return err
}

func (t *story) overlap(ctx context.Context) error { return t.swap(ctx, "hello-v2", "v2", "overlap") }
func (t *story) hold(ctx context.Context) error    { return t.swap(ctx, "hello-v3", "v3", "hold") }

// swap deploys a build of hello in the middle of a load.
func (t *story) swap(ctx context.Context, build, version, mode string) error {
	t.say("deploying %s with --mode %s, under %g requests/s", version, mode, t.rate)
	load := t.load("hello", t.rate, 0)
	load.Arrivals, load.Posts, load.NewConnections, load.Seed = bench.Poisson, 0.2, 0.1, 1
	var before status
	var parkedBefore parked
	change := func(ctx context.Context, run *bench.Run) (err error) {
		if before, err = t.expect(ctx, "hello", "awake"); err != nil {
			return err
		}
		// Read here: the load may have found hello asleep and woken it.
		if parkedBefore, err = t.daemon.parked(ctx, "hello"); err != nil {
			return err
		}
		if err = t.deploy(ctx, t.out, "hello", filepath.Join(t.stage.apps, build), mode); err != nil {
			return err
		}
		now, err := t.status(ctx, "hello")
		// From here on, an answer of the old build is a failure.
		run.ExpectGeneration(now.Generation)
		return err
	}
	// Without an Admin: looking at the status meanwhile would cost more than the
	// load itself.
	result, err := bench.Swap(ctx, nil, bench.SwapPlan{App: "hello", Load: load, Lead: t.around, Tail: t.around, Change: change})
	if err != nil {
		return err
	}
	after, err := t.expect(ctx, "hello", "awake")
	if err != nil {
		return err
	}
	if after.Generation <= before.Generation || after.PID == before.PID {
		return fmt.Errorf("deploy %s: still generation %d, pid %d", version, after.Generation, after.PID)
	}
	waited, err := t.daemon.parked(ctx, "hello")
	if err != nil {
		return err
	}
	t.swaps = append(t.swaps, swap{mode: mode, version: version, result: result, parked: waited.since(parkedBefore)})
	return t.picture(result, mode)
}

func (t *story) picture(result *bench.Result, mode string) error {
	if t.pictures == "" {
		return nil
	}
	if err := os.MkdirAll(t.pictures, 0o755); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(t.pictures, mode+".html"))
	if err != nil {
		return err
	}
	return errors.Join(result.WriteHTML(file), file.Close())
}

// sleepLimit is how long falling asleep may take, idle timeout included.
const sleepLimit = 30 * time.Second

// sleep waits until both apps are asleep.
func (t *story) sleep(ctx context.Context) error {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, sleepLimit)
	defer cancel()
	for _, app := range []string{"hello", "notes"} {
		for {
			now, err := t.status(ctx, app)
			if err != nil {
				return err
			}
			if now.State == "asleep" {
				break
			}
			select {
			case <-time.After(100 * time.Millisecond):
			case <-t.exited:
				return errors.New("usher left by itself")
			case <-ctx.Done():
				return fmt.Errorf("%s did not fall asleep, it is %s: %w", app, now.State, ctx.Err())
			}
		}
	}
	t.say("nobody asked for anything for %s: both apps are asleep (%.1f s after the last request)",
		idleTimeout, time.Since(start).Seconds())
	return nil
}

// expect reads an app's status and insists on its state.
func (t *story) expect(ctx context.Context, app, state string) (status, error) {
	now, err := t.status(ctx, app)
	if err == nil && now.State != state {
		err = fmt.Errorf("%s is %s, expected %s", app, now.State, state)
	}
	return now, err
}

// served insists that nothing of a result failed.
func (t *story) served(ctx context.Context, result *bench.Result, err error) error {
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case result.Failures() > 0:
		first := result.FailureSamples[0]
		return fmt.Errorf("%d of %d failed; %s: %s", result.Failures(), result.Total.Requests, first.Kind, first.Detail)
	}
	return nil
}
