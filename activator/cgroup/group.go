package cgroup

import (
	"context"
	"errors"
	"os"
	"syscall"
)

// The levels of proof a group can give, as shown in status.
const (
	LevelCgroup  = "cgroup"
	LevelSession = "session"
)

var (
	// ErrUnavailable means that this machine offers no cgroup v2 tree that
	// usher can use. The wrapping error says why; callers fall back to
	// sessions.
	ErrUnavailable = errors.New("no usable cgroup v2 tree")

	// ErrNotFresh means that the group was used before: it is populated, or it
	// was killed. A generation must never be started in it.
	ErrNotFresh = errors.New("group is not fresh")

	// ErrPopulated means that a group cannot be removed because processes are
	// still in it.
	ErrPopulated = errors.New("group still holds processes")
)

// Group is the thing that holds a generation's whole process tree. All methods
// may be called from several goroutines at once.
type Group interface {
	// Level is LevelCgroup or LevelSession.
	Level() string

	// Path is the absolute directory of a cgroup, and "" for a session. It is
	// what a runtime record stores and what Tree.Open takes.
	Path() string

	// FD opens the cgroup directory for clone3(CLONE_INTO_CGROUP); the caller
	// closes it. It is nil without an error for a session, and ErrNotFresh for
	// a group that was killed.
	FD() (*os.File, error)

	// Populated reports whether any process, nested cgroups included, is alive
	// in the group. Zombies do not count. A group that no longer exists is not
	// populated.
	Populated() (bool, error)

	// Procs lists the pids in the group, nested cgroups included, in rising
	// order. It is a snapshot.
	Procs() ([]int, error)

	// Signal sends sig once to each process that is in the group now. A process
	// that exits meanwhile is no error.
	Signal(sig syscall.Signal) error

	// Kill sends SIGKILL to every process of the group, those included that are
	// being forked meanwhile. It does not wait: see WaitEmpty.
	Kill() error

	// WaitEmpty blocks until the group holds no process (nil) or ctx is done
	// (the cause of ctx).
	WaitEmpty(ctx context.Context) error

	// OOM tells of the processes of the group that the kernel has killed for want of
	// memory. A session knows of none, and neither does a group that is gone.
	OOM() OOM

	// Remove removes the group with its nested cgroups, deepest first. It is
	// ErrPopulated while processes are left, and nil when the group is gone
	// already. It retries a busy directory for at most half a second.
	Remove() error
}

// Binder is implemented by groups that can hold a process only once they know
// the first one, which is what a session is: its leader.
type Binder interface {
	// Bind names the session's leader by pid and start time (clock ticks since
	// boot). It may be called once.
	Bind(leader int, start uint64) error
}
