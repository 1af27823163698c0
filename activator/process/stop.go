package process

import (
	"context"
	"errors"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/usher-edge/usher/activator/cgroup"
)

// StopReport says how a generation was stopped.
type StopReport struct {
	// TermAt is when SIGTERM was sent; zero if there was nobody to send it to.
	TermAt time.Time
	// Killed is true if the grace ran out and SIGKILL was sent.
	Killed bool
	// Empty is true if the group was seen empty and the main process is gone:
	// the proof that nothing of the generation is left.
	Empty bool
	// Left are the pids that were still there when the stop was given up.
	Left []int
	// Exit is the status of the main process.
	Exit ExitStatus
	// Err is what went wrong on the way, or why the proof is missing.
	Err error
}

// killTimeout bounds the wait for the effect of SIGKILL. A process that the
// kernel cannot end within it (a hung disk or network file system) is left to
// the sweep.
const killTimeout = 10 * time.Second

// Stop sends SIGTERM once to every process of the generation, the oldest first, waits up to grace
// for all of them to end, kills what is left and waits for the proof that the
// group is empty. main is nil if the main process is gone already. When ctx is
// done Stop returns at once, without killing: the report says what is left. It
// may be called again.
func Stop(ctx context.Context, main *Process, group cgroup.Group, grace time.Duration) StopReport {
	var r StopReport
	populated, err := group.Populated()
	if err == nil && !populated && (main == nil || main.Exited()) {
		// Gone, but perhaps not reaped yet.
		r.note(waitGone(ctx, main, group, killTimeout))
		return r.finish(ctx, main, group)
	}
	r.note(err)
	r.TermAt = time.Now()
	r.note(signalAll(main, group, syscall.SIGTERM))
	if waitGone(ctx, main, group, grace) == nil {
		return r.finish(ctx, main, group)
	}
	if ctx.Err() != nil {
		return r.finish(ctx, main, group)
	}
	r.Killed = true
	r.note(group.Kill())
	r.note(killOutsider(main))
	r.note(waitGone(ctx, main, group, killTimeout))
	return r.finish(ctx, main, group)
}

func (r *StopReport) note(err error) { r.Err = errors.Join(r.Err, err) }

// finish looks at the result once more and fills in the rest of the report.
func (r StopReport) finish(ctx context.Context, main *Process, group cgroup.Group) StopReport {
	populated, err := group.Populated()
	r.note(err)
	r.Empty = err == nil && !populated
	if main != nil {
		select {
		case <-main.Done():
		default:
			r.Empty = false
		}
		r.Exit = main.Exit()
	}
	if r.Empty {
		r.Err = nil // whatever went wrong, the end was reached
		return r
	}
	r.note(context.Cause(ctx))
	left, err := group.Procs()
	r.Left = left
	r.note(err)
	return r
}

// signalAll reaches each process once: many programs take a second SIGTERM for
// an order to skip their clean-up.
func signalAll(main *Process, group cgroup.Group, sig syscall.Signal) error {
	members, err := group.Procs()
	if err != nil {
		return err
	}
	if main != nil && !slices.Contains(members, main.id.PID) {
		// It has moved itself into another cgroup.
		err = ignoreDone(main.Signal(sig))
	}
	return errors.Join(err, group.Signal(sig))
}

// killOutsider kills the main process even if it has left its group.
func killOutsider(main *Process) error {
	if main == nil {
		return nil
	}
	return ignoreDone(main.Signal(syscall.SIGKILL))
}

func ignoreDone(err error) error {
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// waitGone waits until the group is empty and the main process is reaped. The
// main process comes first: the kernel tells of its end at once, while a session
// has to be looked at again and again, and mostly is empty when it has ended.
func waitGone(ctx context.Context, main *Process, group cgroup.Group, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if main != nil {
		select {
		case <-main.Done():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return group.WaitEmpty(ctx)
}
