package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/usher-edge/usher/admin"
	"github.com/usher-edge/usher/admin/client"
)

// defaultWait is long enough for a hold swap with the default timeouts.
const defaultWait = 5 * time.Minute

// lookAgain is the pause between two looks at a daemon that is coming back.
const lookAgain = 200 * time.Millisecond

// pending is one change on its way, from the request to the exit code.
type pending struct {
	*cli
	client  *client.Client
	verb    string
	app     string
	ifMatch string
	timeout time.Duration
	drained bool
	json    bool
}

// flags adds the flags that all changes share.
func (p *pending) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.DurationVar(&p.timeout, "timeout", defaultWait, "how long to wait for the outcome; 0 waits forever")
	bound(f, "timeout", "a duration such as 30s, or 0", func() bool { return p.timeout >= 0 })
	f.StringVar(&p.ifMatch, "if-match", "", "refuse unless the app still has this version (see status --json)")
	f.BoolVar(&p.json, "json", false, "print the operation as JSON")
}

// change is the part of the request that comes from the command line.
func (p *pending) change() admin.Change {
	return admin.Change{App: p.app, IfMatch: p.ifMatch, RequestID: rand.Text()}
}

// sender sends the request of a change and returns the operation made of it.
type sender func(context.Context, admin.Change) (admin.Operation, error)

// carry sends the change, follows it and returns nil if it is in effect.
func (p *pending) carry(ctx context.Context, send sender) error {
	waiting, cancel := withTimeout(ctx, p.timeout)
	defer cancel()
	change := p.change()
	op, err := send(waiting, change)
	if errors.Is(err, client.ErrLost) {
		op, err = p.find(waiting, change.RequestID, err)
	}
	if err != nil {
		return p.gaveUp(err)
	}
	op, err = p.follow(waiting, op)
	if err != nil {
		return p.gaveUp(err)
	}
	if p.drained {
		p.showReceipt(waiting, op)
	}
	return p.conclude(ctx, op)
}

func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

// find looks for a request that usher may have taken before it went away. The
// request is not sent again: that could make a second revision of it.
func (p *pending) find(ctx context.Context, requestID string, lost error) (admin.Operation, error) {
	p.say("%s: %s; looking whether it was taken", p.app, lost)
	pause := time.NewTicker(lookAgain)
	defer pause.Stop()
	for {
		ops, err := p.client.Operations(ctx, p.app)
		for _, op := range ops {
			if op.RequestID == requestID {
				return op, nil
			}
		}
		if err == nil {
			return admin.Operation{}, &exitError{
				code: exitUnreachable,
				err:  fmt.Errorf("%s %s: usher went away before it answered and does not know the request now", p.verb, p.app),
				lines: []string{
					"look with usher status " + p.app + ", then try again",
				},
			}
		}
		if !client.Passing(err) {
			return admin.Operation{}, err
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return admin.Operation{}, ctx.Err()
		}
	}
}

// follow shows the steps of op until it is final.
func (p *pending) follow(ctx context.Context, op admin.Operation) (admin.Operation, error) {
	last, err := p.client.Follow(ctx, op.ID, p.drained, client.Watcher{
		Step: p.showStep,
		Lost: func(err error) {
			p.say("%s: %s; usher's restart finishes or undoes the %s, waiting for it", p.app, err, p.verb)
		},
		Found: func() { p.say("%s: usher is back", p.app) },
	})
	var gone *admin.Error
	if errors.As(err, &gone) && gone.Kind == admin.NotFound {
		return p.fromStatus(ctx, op)
	}
	return last, err
}

func (p *pending) showStep(s admin.Step) {
	if s.Detail == "" {
		p.say("%s: %s", p.app, s.Name)
		return
	}
	p.say("%s: %-9s  %s", p.app, s.Name, s.Detail)
}

// fromStatus answers for an operation that a restarted usher has forgotten: the
// outcome and the pointers of the app are durable.
func (p *pending) fromStatus(ctx context.Context, op admin.Operation) (admin.Operation, error) {
	st, err := p.settledStatus(ctx, op)
	if err != nil {
		return op, err
	}
	if o := st.LastOutcome; o != nil && (o.Operation == op.ID || failed(st, op) || restarted(st, op)) {
		op.State, op.Outcome, op.Reason = admin.OpState(o.Outcome), o.Outcome, o.Reason
		op.Exit, op.LogTail, op.Generation = o.Exit, o.LogTail, o.Generation
		return op, nil
	}
	if op.Revision != 0 && st.Reported == op.Revision || op.Restart != 0 && st.RestartsDone >= op.Restart {
		op.State, op.Outcome, op.Generation = admin.OpDone, string(admin.OpDone), st.Generation
		return op, nil
	}
	return op, &exitError{
		code: exitFailed,
		err: fmt.Errorf("%s %s: usher was restarted and no longer knows what became of it; the app is %s at revision %d",
			p.verb, p.app, st.State, st.Revision),
		lines: []string{"look with usher status " + p.app + ", then try again if needed"},
	}
}

// failed says that the last attempt at the release of op came to its end.
func failed(st admin.AppStatus, op admin.Operation) bool {
	o := st.LastOutcome
	return o != nil && op.Revision != 0 && o.Revision == op.Revision &&
		(o.Outcome == string(admin.OpFailed) || o.Outcome == string(admin.OpDown))
}

// restarted says that the last attempt was the one for the restart op, or a later one.
func restarted(st admin.AppStatus, op admin.Operation) bool {
	o := st.LastOutcome
	return o != nil && op.Restart != 0 && o.Restart >= op.Restart
}

// settled says that recovery has nothing more to do about op. A release that was
// committed and never reported is begun again, if only after what the crash left
// of it is gone, and so is a restart of what serves; but the first release of an app
// waits for a request.
func settled(st admin.AppStatus, op admin.Operation) bool {
	switch st.State {
	case admin.Waking, admin.Swapping, admin.Holding:
		return false
	case admin.Awake, admin.Asleep:
		if st.State == admin.Awake && st.RestartsDone < op.Restart && !restarted(st, op) {
			return false
		}
		return st.Desired != op.Revision || st.Reported >= op.Revision || st.Reported == 0 || failed(st, op)
	}
	return true
}

// settledStatus waits until recovery has finished or undone what was under way.
func (p *pending) settledStatus(ctx context.Context, op admin.Operation) (admin.AppStatus, error) {
	pause := time.NewTicker(lookAgain)
	defer pause.Stop()
	for {
		st, err := p.client.App(ctx, p.app)
		if err != nil && !client.Passing(err) {
			return st, err
		}
		if err == nil && settled(st, op) {
			return st, nil
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return st, ctx.Err()
		}
	}
}

// gaveUp explains an end of the waiting that is not the end of the change.
func (p *pending) gaveUp(err error) error {
	var reason string
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		reason = fmt.Sprintf("not finished after %s", p.timeout)
	case errors.Is(err, context.Canceled):
		reason = "stopped waiting"
	default:
		return fmt.Errorf("%s %s: %w", p.verb, p.app, err)
	}
	return &exitError{
		code: exitTimeout,
		err:  fmt.Errorf("%s %s: %s", p.verb, p.app, reason),
		lines: []string{fmt.Sprintf(
			"usher goes on with what it has accepted; look with usher status %s or usher events %s -f", p.app, p.app)},
	}
}

// conclude turns the final operation into output and exit code.
func (p *pending) conclude(ctx context.Context, op admin.Operation) error {
	if p.json {
		if err := writeJSON(p.stdout, op); err != nil {
			return err
		}
	}
	switch op.State {
	case admin.OpDone:
		if !p.json {
			fmt.Fprintf(p.stdout, "%s\n", doneLine(op))
		}
		return nil
	case admin.OpCommitted:
		what := "the " + p.verb
		if op.Revision != 0 {
			what = fmt.Sprintf("revision %d", op.Revision)
		}
		p.say("%s: %s is committed, %s", p.app, what, cmp.Or(op.Reason, "not started"))
		return nil
	case admin.OpSuperseded:
		return &exitError{
			code:  exitConflict,
			err:   fmt.Errorf("%s %s: superseded%s", p.verb, p.app, because(op.Reason)),
			lines: []string{"look with usher status " + p.app},
		}
	}
	return &exitError{
		code:  exitFailed,
		err:   fmt.Errorf("%s %s: %s%s", p.verb, p.app, op.State, because(op.Reason)),
		lines: append(failureLines(op), p.whatServes(ctx, op)...),
	}
}

func doneLine(op admin.Operation) string {
	line := fmt.Sprintf("%s: %s done", op.App, op.Kind)
	if op.Revision != 0 {
		line += fmt.Sprintf(", revision %d", op.Revision)
	}
	if op.Generation != 0 {
		line += fmt.Sprintf(", generation %d", op.Generation)
	}
	return line
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// failureLines is what a person needs to find the fault: how the process ended,
// the end of its log, and what serves now.
func failureLines(op admin.Operation) []string {
	var lines []string
	if op.Exit != nil {
		lines = append(lines, "the process: "+op.Exit.Text)
	}
	if op.EndedAt != nil {
		lines = append(lines, fmt.Sprintf("it took %s", span(op.EndedAt.Sub(op.StartedAt))))
	}
	if len(op.LogTail) > 0 {
		lines = append(lines, "the last lines it wrote:")
		for _, l := range op.LogTail {
			lines = append(lines, "  | "+l)
		}
	}
	return lines
}

// whatServes says what a failed change has left behind: a log, if it wrote any, and
// what serves.
func (p *pending) whatServes(ctx context.Context, op admin.Operation) []string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	st, err := p.client.App(ctx, p.app)
	var lines []string
	if len(op.LogTail) > 0 {
		lines = append(lines, fmt.Sprintf("see usher logs %s --generation %d", op.App, op.Generation))
	}
	switch {
	case err != nil:
		return lines
	case st.Generation != 0 && op.State == admin.OpRestored:
		return append(lines, fmt.Sprintf("the build of before serves again, as revision %d, generation %d", st.Revision, st.Generation))
	case st.Generation != 0:
		return append(lines, fmt.Sprintf("revision %d, generation %d, is still serving", st.Revision, st.Generation))
	case op.State == admin.OpDown, st.State == admin.Down:
		return append(lines, "nothing served "+p.app+" when it failed; see usher status "+p.app+", deploy another build, or try again with usher restart "+p.app+" --retry")
	}
	return append(lines, p.app+" is "+string(st.State))
}

// say writes one line of progress.
func (c *cli) say(format string, args ...any) {
	fmt.Fprintln(c.stderr, plain(fmt.Sprintf(format, args...)))
}
