package activator

import (
	"context"
	"time"

	"github.com/usher-edge/usher/activator/cgroup"
	"github.com/usher-edge/usher/activator/store"
)

// Backend is what the runner needs of the operating system. There is one for
// real processes; tests script another.
type Backend interface {
	// Prepare sets a process up until it waits at its go-byte: nothing of the
	// build has run. After an error it has ended what it had begun; what would not
	// end is found by Adopt.
	Prepare(ctx context.Context, p Plan) (Waiting, error)
	// Adopt finds what a runtime record names. It never fails for a process that
	// is gone: then the child has exited, and what it left behind can be stopped.
	Adopt(run store.Run) (Child, error)
	// Strays finds every generation that this usher ever started and of which
	// something may be left, by what it is held in and by its marks, whatever the
	// runtime records say. Each is described as far as Adopt needs it.
	Strays() ([]store.Run, error)
	// Level is the proof of empty that this machine offers: "cgroup" or "session".
	Level() string
	// Enforces says why apps cannot be limited here; nil: they can.
	Enforces() error
	// Limit bounds what all generations of an app may use together.
	Limit(app string, l cgroup.Limits) error
	// Limits reads back what Limit has set. The error of an app of which nothing is
	// left wraps fs.ErrNotExist.
	Limits(app string) (cgroup.Limits, error)
}

// Plan is everything needed to start one generation.
type Plan struct {
	App        string
	Generation uint64
	Dir        string   // working directory
	Path       string   // what to execute
	Args       []string // argv, Args[0] included
	Env        []string // all of the environment
	User       string   // empty: usher's own
	Group      string
	LogPath    string // stdout and stderr, appended
	SocketDir  string // to be owned by User; empty: none
	Limits     cgroup.Limits
	// Alone: no other generation of the app shares what it may use; Prepare sets
	// that too.
	Alone bool
	// Yields: it starts beside one that serves, and takes of the CPU what others
	// leave, until Child.Claim.
	Yields bool
}

// Identity names a process beyond doubt, together with the boot id.
type Identity struct {
	PID       int
	StartTime uint64
	Cgroup    string // empty: held by its session
}

// Waiting is a process that waits at its go-byte.
type Waiting interface {
	Identity() Identity
	// Go lets it execute the build. A *process.ExecError says that the kernel
	// refused the artifact: the build's fault. An error that wraps
	// process.ErrNotExecuted proves that the build did not run.
	Go(ctx context.Context) (Child, error)
	// Abort ends it; without Go nothing ran. It may be called again, and after a
	// Go that failed: nil proves that nothing is left.
	Abort() error
}

// Child is a process of an app and all that it starts.
type Child interface {
	Exited() bool
	Done() <-chan struct{}
	Exit() Exit
	// OOM is what the kernel has killed of the tree for want of memory.
	OOM() cgroup.OOM
	// Stop ends the whole tree: TERM, after grace KILL, and waits until it is
	// proven empty or ctx ends, which is an error.
	Stop(ctx context.Context, grace time.Duration) (Stopped, error)
	// Claim ends Plan.Yields. It may be called again.
	Claim() error
	// Owns says whether the listening socket at the address belongs to the tree.
	Owns(network, address string) (bool, error)
	// Release stops watching it; it goes on.
	Release()
}

// Stopped tells how a stop went.
type Stopped struct {
	Killed bool // it did not end within its grace
}
