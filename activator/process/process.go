package process

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/usher-edge/usher/activator/cgroup"
)

// ExitStatus is how a process ended.
type ExitStatus struct {
	// Known is false while the process runs, and for good for an adopted one:
	// the kernel tells only the parent.
	Known bool
	// Code is the exit code, if Signal is 0.
	Code int
	// Signal is the signal that ended it, or 0.
	Signal syscall.Signal
	// Time is when usher saw the exit; zero while the process runs.
	Time time.Time
	// OOM is what the kernel had killed in the process's group by then for want of
	// memory. It is known of an adopted process too.
	OOM cgroup.OOM
}

// String is the status in words, for messages.
func (s ExitStatus) String() string {
	switch {
	case s.Time.IsZero():
		return "still running"
	case !s.Known:
		return "exited, status unknown"
	case s.Signal != 0:
		return fmt.Sprintf("killed by signal %d (%v)", int(s.Signal), s.Signal)
	default:
		return fmt.Sprintf("exited with code %d", s.Code)
	}
}

// Process is the main process of a generation, held by its pidfd. It may be
// used from several goroutines. One goroutine watches it; it ends when the
// process does, or at Close.
type Process struct {
	id      Identity
	adopted bool
	yielded bool // set before anybody else knows of the process
	group   cgroup.Group
	pidfd   *os.File
	conn    syscall.RawConn

	done    chan struct{} // closed after exit was written
	watched chan struct{} // closed when the watcher has returned
	exit    ExitStatus
}

// newChild takes over a process that was just forked, and its pidfd.
func newChild(l Launch, pid, pidfd int) (*Process, error) {
	id, err := identify(pid)
	if err == nil && pidfd < 0 {
		err = errors.New("the kernel gave no pidfd: usher needs Linux 5.7 or later")
	}
	if err != nil {
		return nil, errors.Join(err, discard(pid, pidfd))
	}
	id.Cgroup = l.Group.Path()
	p := &Process{id: id, group: l.Group}
	if err := p.start(pidfd); err != nil {
		return nil, errors.Join(err, discard(pid, -1))
	}
	return p, nil
}

// identify names a process that cannot vanish meanwhile: a child that nobody
// has reaped.
func identify(pid int) (Identity, error) {
	start, err := StartTime(pid)
	if err != nil {
		return Identity{}, err
	}
	boot, err := BootID()
	return Identity{PID: pid, StartTime: start, BootID: boot}, err
}

// discard kills and reaps a child that cannot be watched. Its pid is safe to use:
// until it is reaped the kernel gives it to nobody else.
func discard(pid, pidfd int) error {
	if pidfd >= 0 {
		_ = unix.Close(pidfd)
	}
	err := unix.Kill(pid, unix.SIGKILL)
	for {
		_, waitErr := unix.Wait4(pid, nil, 0, nil)
		if !errors.Is(waitErr, unix.EINTR) {
			return errors.Join(err, waitErr)
		}
	}
}

// start takes over the pidfd and begins to watch.
func (p *Process) start(pidfd int) error {
	// The runtime's poller takes only descriptors that are non-blocking.
	if err := unix.SetNonblock(pidfd, true); err != nil {
		return errors.Join(fmt.Errorf("watch pid %d: %w", p.id.PID, err), unix.Close(pidfd))
	}
	p.pidfd = os.NewFile(uintptr(pidfd), "pidfd")
	conn, err := p.pidfd.SyscallConn()
	if err == nil {
		err = p.pidfd.SetReadDeadline(time.Time{}) // fails if it cannot be polled
	}
	if err != nil {
		return errors.Join(fmt.Errorf("watch pid %d: %w", p.id.PID, err), p.pidfd.Close())
	}
	p.conn = conn
	p.done, p.watched = make(chan struct{}), make(chan struct{})
	go p.watch()
	return nil
}

// watch waits for the exit without polling, reaps a child, and says so. Close
// is its stopper.
func (p *Process) watch() {
	defer close(p.watched)
	err := p.conn.Read(func(fd uintptr) bool { return readable(int(fd)) })
	if err != nil {
		return // closed: nobody wants to know any more
	}
	if p.group.Level() == cgroup.LevelSession {
		// As long as the leader is a zombie its session number is certainly
		// its own, so this look tells its orphans from strangers for good.
		_, _ = p.group.Procs()
	}
	p.exit = p.reap()
	p.exit.OOM = p.group.OOM() // the kernel counts before it kills
	close(p.done)
	_ = p.pidfd.Close()
}

// readable reports whether the process behind the pidfd has exited.
func readable(pidfd int) bool {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n == 1
		}
	}
}

// reap collects the exit status of a child that has exited.
func (p *Process) reap() ExitStatus {
	status := ExitStatus{Time: time.Now()}
	if p.adopted {
		return status
	}
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(p.id.PID, &ws, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || pid != p.id.PID:
			return status // reaped by somebody else: the status is lost
		case ws.Signaled():
			status.Known, status.Signal = true, ws.Signal()
			return status
		default:
			status.Known, status.Code = true, ws.ExitStatus()
			return status
		}
	}
}

// Identity names the process.
func (p *Process) Identity() Identity { return p.id }

// Adopted reports whether the process was started by an earlier run of usher,
// so that its exit status will stay unknown.
func (p *Process) Adopted() bool { return p.adopted }

// Done is closed when the process has exited and, if it is a child, is reaped.
// It stays open after a Close that came first.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit is the exit status; see ExitStatus for a process that still runs.
func (p *Process) Exit() ExitStatus {
	select {
	case <-p.done:
		return p.exit
	default:
		return ExitStatus{}
	}
}

// Exited asks the kernel whether the process has exited. It does not block, and
// can be true a moment before Done is closed.
func (p *Process) Exited() bool {
	exited := false
	err := p.conn.Control(func(fd uintptr) { exited = readable(int(fd)) })
	if err == nil {
		return exited
	}
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Signal sends a signal through the pidfd. It is os.ErrProcessDone after the
// exit, and os.ErrClosed after Close.
func (p *Process) Signal(sig syscall.Signal) error {
	var sendErr error
	err := p.conn.Control(func(fd uintptr) { sendErr = unix.PidfdSendSignal(int(fd), sig, nil, 0) })
	if err != nil {
		select {
		case <-p.done:
			err = os.ErrProcessDone
		default:
			err = os.ErrClosed
		}
	}
	if errors.Is(sendErr, unix.ESRCH) {
		sendErr = os.ErrProcessDone
	}
	if err = errors.Join(err, sendErr); err != nil {
		return fmt.Errorf("send %v to pid %d: %w", sig, p.id.PID, err)
	}
	return nil
}

// Close stops watching and waits for the watcher. The process is left alone: it
// goes on, and a later usher can adopt it. (A child that exits after that is a
// zombie until usher itself has ended.) Close is idempotent.
func (p *Process) Close() error {
	err := p.pidfd.Close()
	<-p.watched
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
