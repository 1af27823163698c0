package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/usher-edge/usher/activator/process/child"
)

// Forker owns the process that all children are forked from (see the package
// comment). It makes one when the first child is asked for, and another one when
// that is gone, does not answer, or would give a child what usher itself has not any
// more. It may be used from several goroutines.
type Forker struct {
	self string
	// turn is held by whoever looks after the fields below.
	turn   chan struct{}
	run    *forkerRun
	closed bool
	// patience is how long a forker may take to answer.
	patience time.Duration

	// mu guards pids: the forkers that are not reaped yet.
	mu   sync.Mutex
	pids map[int]bool
}

// NewForker starts nothing yet. self is the path of the usher binary; empty means
// the one that runs.
func NewForker(self string) *Forker {
	if self == "" {
		self = "/proc/self/exe"
	}
	return &Forker{self: self, turn: make(chan struct{}, 1), patience: forkTimeout, pids: map[int]bool{}}
}

// Owns reports whether the pid is that of a forker, which is reaped here.
func (f *Forker) Owns(pid int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pids[pid]
}

// Close ends the forker and waits until it is reaped. Children that wait at their
// go-byte stay. Nothing can be started any more.
func (f *Forker) Close() error {
	f.turn <- struct{}{}
	run := f.run
	f.run, f.closed = nil, true
	<-f.turn
	if run == nil {
		return nil
	}
	run.end()
	<-run.done
	return nil
}

// Limits of a fork, which takes a millisecond: a forker that does not answer, because
// it is stopped for example, is replaced once.
const (
	forkTries   = 2
	forkTimeout = 5 * time.Second
)

var (
	errForkerGone  = errors.New("the process that forks has gone")
	errForkerHangs = errors.New("the process that forks does not answer")
)

// fork makes a child that waits for its order. Once it is asked for, the wait for it
// is bounded and not called off: a child that nobody has heard of could not be reaped.
func (f *Forker) fork(ctx context.Context, l Launch) (*Pending, error) {
	var given launchFiles
	defer given.close()
	if err := given.open(l); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		soon, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), f.patience, errForkerHangs)
		p, run, err := f.try(soon, l, &given)
		cancel()
		lost := errors.Is(err, errForkerGone) || errors.Is(err, errForkerHangs)
		if lost && run != nil {
			run.end()
		}
		switch {
		case !lost:
			return p, err
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case try == forkTries:
			return nil, fmt.Errorf("%s did not answer as %s does: is it the usher binary? %w", f.self, child.Verb, err)
		}
	}
}

func (f *Forker) try(ctx context.Context, l Launch, given *launchFiles) (*Pending, *forkerRun, error) {
	ours, theirs, err := channel()
	if err != nil {
		return nil, nil, err
	}
	run, err := f.ask(ctx, append([]*os.File{theirs}, given.forChild()...))
	_ = theirs.Close()
	if err != nil {
		return nil, run, errors.Join(err, ours.Close())
	}
	pid, pidfd, err := hello(ctx, ours)
	if err != nil {
		return nil, run, errors.Join(err, ours.Close())
	}
	p, err := newPending(l, pid, pidfd, ours)
	return p, run, err
}

// ask sends the request for a child to a forker that is fit for it.
func (f *Forker) ask(ctx context.Context, files []*os.File) (*forkerRun, error) {
	select {
	case f.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-f.turn }()
	if f.closed {
		return nil, errors.New("usher is ending, nothing is started any more")
	}
	if err := f.ready(); err != nil {
		return nil, err
	}
	return f.run, f.run.ask(ctx, files)
}

// ready makes a forker unless the one there is will do.
func (f *Forker) ready() error {
	now, err := inheritance()
	if err != nil {
		return err
	}
	if f.run != nil && !f.run.ending.Load() && f.run.has == now {
		return nil
	}
	if f.run != nil {
		f.run.end()
		f.run = nil
	}
	f.run, err = f.start(now)
	return err
}

// forkerRun is one forker.
type forkerRun struct {
	pid     int
	control *os.File
	has     inherited
	ending  atomic.Bool
	done    chan struct{} // closed when it is reaped
}

// start runs a forker in a session of its own.
func (f *Forker) start(has inherited) (*forkerRun, error) {
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open standard input: %w", err)
	}
	defer null.Close()
	ours, theirs, err := socketpair(unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	pid, _, err := syscall.StartProcess(f.self, []string{"usher", child.Verb}, &syscall.ProcAttr{
		Dir:   "/",
		Env:   forkerEnv(),
		Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), theirs.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s %s: %w", f.self, child.Verb, err), ours.Close())
	}
	f.owns(pid, true)
	run := &forkerRun{pid: pid, control: ours, has: has, done: make(chan struct{})}
	go func() {
		run.watch()
		f.owns(pid, false)
		close(run.done)
	}()
	return run, nil
}

func (f *Forker) owns(pid int, yes bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if yes {
		f.pids[pid] = true
	} else {
		delete(f.pids, pid)
	}
}

// forkerEnv is all the environment of a forker, and of a child until it execs. What
// they do needs one processor; for more of them the runtime would make threads and
// read the limits of its cgroup. And nothing there is worth collecting.
func forkerEnv() []string { return []string{"GOMAXPROCS=1", "GOGC=off"} }

// end lets the watcher end it. It may be called again.
func (r *forkerRun) end() {
	r.ending.Store(true)
	_ = r.control.SetReadDeadline(time.Unix(1, 0)) // that it is closed means the same
}

// watch waits until the forker has gone, or end was called, and clears up: what
// could not say hello is still in its process group. Nobody else reaps there, so the
// number of the group is its own until the last wait.
func (r *forkerRun) watch() {
	_, _ = r.control.Read(make([]byte, 1)) // it never says anything
	r.ending.Store(true)
	_ = r.control.Close()
	_ = unix.Kill(-r.pid, unix.SIGKILL)
	for {
		_, err := unix.Wait4(-r.pid, nil, 0, nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// ask sends one request.
func (r *forkerRun) ask(ctx context.Context, files []*os.File) error {
	fds := make([]int, len(files))
	for i, file := range files {
		fds[i] = int(file.Fd())
	}
	conn, err := r.control.SyscallConn()
	if err != nil {
		return errForkerGone
	}
	err = within(ctx, r.control.SetWriteDeadline, func() error {
		var sent error
		err := conn.Write(func(fd uintptr) bool {
			sent = unix.Sendmsg(int(fd), []byte{child.Request}, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL)
			return !errors.Is(sent, unix.EAGAIN)
		})
		return errors.Join(err, sent)
	})
	if errors.Is(err, os.ErrClosed) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return errForkerGone
	}
	return err
}

// hello waits for the child to say who it is.
func hello(ctx context.Context, channel *os.File) (pid, pidfd int, err error) {
	var h child.Hello
	rights := make([]byte, unix.CmsgSpace(4))
	n, oobn := 0, 0
	err = within(ctx, channel.SetDeadline, func() error {
		conn, err := channel.SyscallConn()
		if err != nil {
			return err
		}
		var got error
		err = conn.Read(func(fd uintptr) bool {
			n, oobn, _, _, got = unix.Recvmsg(int(fd), h.Bytes(), rights, unix.MSG_CMSG_CLOEXEC)
			return !errors.Is(got, unix.EAGAIN)
		})
		return errors.Join(err, got)
	})
	switch {
	case err != nil:
		return 0, -1, fmt.Errorf("wait for %s to report: %w", child.Verb, err)
	case n == 0:
		return 0, -1, errForkerGone
	case h.Err() != nil:
		return 0, -1, fmt.Errorf("fork a child: %w", h.Err())
	}
	pidfd, err = oneRight(rights[:oobn])
	return int(h.PID), pidfd, err
}

func oneRight(raw []byte) (int, error) {
	messages, err := unix.ParseSocketControlMessage(raw)
	if err != nil || len(messages) != 1 {
		return -1, errors.Join(errForkerGone, err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return -1, errors.Join(errForkerGone, err)
	}
	return fds[0], nil
}

// channel is the socket between usher and one child. Only our end is non-blocking,
// so that waits on it can end with a context.
func channel() (ours, theirs *os.File, err error) { return socketpair(unix.SOCK_STREAM) }

func socketpair(kind int) (ours, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open channel: %w", err)
	}
	if err := unix.SetNonblock(pair[0], true); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open channel: %w", err), unix.Close(pair[0]), unix.Close(pair[1]))
	}
	return os.NewFile(uintptr(pair[0]), "exec channel"), os.NewFile(uintptr(pair[1]), "exec channel of the child"), nil
}

// within runs do and cuts it short when ctx is done, by the deadline that it waits
// under. Afterwards there is none.
func within(ctx context.Context, setDeadline func(time.Time) error, do func() error) error {
	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(cut)
		_ = setDeadline(time.Unix(1, 0)) // it fails if it is closed, and so does do
	})
	err := do()
	if !stop() {
		<-cut
		_ = setDeadline(time.Time{})
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return context.Cause(ctx)
	}
	return err
}
