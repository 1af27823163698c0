package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/usher-edge/usher/activator/cgroup"
	"github.com/usher-edge/usher/activator/process/child"
)

// endTimeout bounds the wait for a child that was killed before it could run
// anything; only a broken kernel needs longer.
const endTimeout = 10 * time.Second

// Pending is a child that waits for the go-byte. Exactly one of Go and Abort
// must be called; it is meant for one goroutine.
type Pending struct {
	launch  Launch
	proc    *Process
	channel *os.File
}

// newPending takes over the child and both descriptors.
func newPending(l Launch, pid, pidfd int, channel *os.File) (*Pending, error) {
	proc, err := newChild(l, pid, pidfd)
	if err != nil {
		return nil, errors.Join(err, channel.Close())
	}
	p := &Pending{launch: l, proc: proc, channel: channel}
	if b, ok := l.Group.(cgroup.Binder); ok {
		if err := b.Bind(pid, proc.id.StartTime); err != nil {
			return nil, errors.Join(err, p.end())
		}
	}
	if err := p.held(); err != nil {
		return nil, errors.Join(err, p.end())
	}
	return p, nil
}

// held makes sure that the child is in the cgroup that was chosen for it: that
// nothing of a generation is left is proven by its cgroup. One that has ended by
// now is in none, and the handshake tells.
func (p *Pending) held() error {
	group := p.launch.Group
	if group.Level() != cgroup.LevelCgroup {
		return nil
	}
	members, err := group.Procs()
	if err == nil && !slices.Contains(members, p.proc.id.PID) && !p.proc.Exited() {
		err = fmt.Errorf("pid %d was started in %s and is not in it: let nothing but usher move what is there", p.proc.id.PID, group.Path())
	}
	return err
}

// Identity names the child; it stays the same through the exec.
func (p *Pending) Identity() Identity { return p.proc.id }

// Go lets the child run the build and waits until it has: nil means that the
// exec happened. Then ctx has no more say. A refusal by the kernel is an
// *ExecError. An error that wraps ErrNotExecuted proves that nothing ran; with
// any other one (ctx ended after the go-byte was sent) something may have.
// After an error the child is reaped and its group is empty, or the error says
// that this could not be proven.
func (p *Pending) Go(ctx context.Context) (*Process, error) {
	err := p.send(ctx)
	if err == nil {
		err = p.result(ctx)
	}
	if err == nil {
		// The child is running; a close that fails loses nothing.
		_ = p.channel.Close()
		return p.proc, nil
	}
	return nil, fmt.Errorf("start %s generation %d: %w", p.launch.App, p.launch.Generation, errors.Join(err, p.end()))
}

// send writes the go-byte.
func (p *Pending) send(ctx context.Context) error {
	if ctx.Err() != nil {
		return notExecuted{context.Cause(ctx)}
	}
	if _, err := p.channel.Write([]byte{child.GoByte}); err != nil {
		return notExecuted{fmt.Errorf("send go-byte: %w", err)}
	}
	return nil
}

// result reads the channel until the exec closes it.
func (p *Pending) result(ctx context.Context) error {
	var reply child.Reply
	err := within(ctx, p.channel.SetDeadline, func() (err error) {
		reply, err = child.ReadReply(p.channel)
		return err
	})
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, unix.ECONNRESET):
		// The kernel resets when bytes are left unread: the go-byte itself.
		return notExecuted{errors.New("the child was ended before it read the go-byte")}
	case err != nil:
		return fmt.Errorf("wait for exec: %w", err)
	}
	return p.launch.explain(reply)
}

// handshake tells the child what to do and waits until it is ready.
func (p *Pending) handshake(ctx context.Context, spec child.Spec) error {
	var reply child.Reply
	err := within(ctx, p.channel.SetDeadline, func() (err error) {
		if err := spec.Write(p.channel); err != nil {
			return err
		}
		reply, err = child.ReadReply(p.channel)
		return err
	})
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET):
		return errors.New("the child was ended before it was ready")
	case err != nil:
		return fmt.Errorf("wait for %s to report: %w", child.Verb, err)
	case reply.Step != 0:
		return p.launch.explain(reply)
	}
	return nil
}

// Abort ends a child that got no go-byte. nil proves that nothing of the build
// ran and that the child is gone and reaped. It takes no time worth a context:
// the child holds nothing and is killed.
func (p *Pending) Abort() error {
	if err := p.end(); err != nil {
		return fmt.Errorf("abort %s generation %d: %w", p.launch.App, p.launch.Generation, err)
	}
	return nil
}

// end kills the child and whatever its group holds, and proves both gone.
func (p *Pending) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	var errs []error
	if err := p.channel.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		errs = append(errs, err)
	}
	if err := p.proc.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		errs = append(errs, err)
	}
	errs = append(errs, p.launch.Group.Kill())
	select {
	case <-p.proc.Done():
	case <-ctx.Done():
		errs = append(errs, fmt.Errorf("pid %d is still there %v after SIGKILL", p.proc.id.PID, endTimeout))
	}
	return errors.Join(append(errs, p.launch.Group.WaitEmpty(ctx))...)
}
