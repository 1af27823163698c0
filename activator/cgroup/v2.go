package cgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// v2Group is a leaf cgroup of a v2 tree. The directory is the only state; the
// flag only stops a start in a group that this process has killed.
type v2Group struct {
	path   string
	killed atomic.Bool
}

func (g *v2Group) Level() string { return LevelCgroup }

func (g *v2Group) Path() string { return g.path }

func (g *v2Group) FD() (*os.File, error) {
	if g.killed.Load() {
		return nil, fmt.Errorf("start in %s, which was killed: %w", g.path, ErrNotFresh)
	}
	f, err := os.OpenFile(g.path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open cgroup: %w", err)
	}
	return f, nil
}

func (g *v2Group) Populated() (bool, error) {
	raw, err := os.ReadFile(filepath.Join(g.path, "cgroup.events"))
	if gone(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read cgroup events: %w", err)
	}
	return parsePopulated(raw)
}

// parsePopulated finds "populated 0|1" in the text of cgroup.events.
func parsePopulated(events []byte) (bool, error) {
	for line := range bytes.Lines(events) {
		if value, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("populated ")); ok {
			return string(value) != "0", nil
		}
	}
	return false, fmt.Errorf("read cgroup events: no populated line in %q", events)
}

func (g *v2Group) Procs() ([]int, error) {
	var pids []int
	err := walkCgroup(g.path, func(dir string) error {
		raw, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		// A threaded nested cgroup has no list of processes of its own: they
		// are all listed by the cgroup above that holds its threads.
		if gone(err) || errors.Is(err, unix.EOPNOTSUPP) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list cgroup processes: %w", err)
		}
		for field := range bytes.FieldsSeq(raw) {
			// 0 stands for a process outside our pid namespace.
			if pid, err := strconv.Atoi(string(field)); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	slices.Sort(pids)
	return slices.Compact(pids), err
}

// walkCgroup calls visit for dir and every cgroup below it, children first.
// Cgroups that vanish meanwhile are skipped.
func walkCgroup(dir string, visit func(string) error) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !gone(err) {
		return fmt.Errorf("list nested cgroups: %w", err)
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := walkCgroup(filepath.Join(dir, entry.Name()), visit); err != nil {
				return err
			}
		}
	}
	return visit(dir)
}

func (g *v2Group) Signal(sig syscall.Signal) error {
	pids, err := g.Procs()
	if err != nil {
		return err
	}
	return signalPIDs(pids, sig, func([]int) ([]int, error) { return g.Procs() })
}

func (g *v2Group) Kill() error {
	g.killed.Store(true)
	err := os.WriteFile(filepath.Join(g.path, "cgroup.kill"), []byte("1"), 0)
	if err != nil && !gone(err) {
		return fmt.Errorf("kill cgroup: %w", err)
	}
	return nil
}

// backstop is how often WaitEmpty looks without being woken. The kernel does not
// wake it when the cgroup is removed by somebody else right after the last exit.
const backstop = time.Second

// WaitEmpty sleeps in the runtime's poller: the kernel reports a change of
// cgroup.events as an event on an open descriptor of it, and reading that
// descriptor again arms the next one, so no change between two looks is lost.
func (g *v2Group) WaitEmpty(ctx context.Context) error {
	fd, err := unix.Open(filepath.Join(g.path, "cgroup.events"), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if gone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open cgroup events of %s: %w", g.path, err)
	}
	events := os.NewFile(uintptr(fd), "cgroup.events")
	defer events.Close()
	stop := context.AfterFunc(ctx, func() { events.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		if err := events.SetReadDeadline(time.Now().Add(backstop)); err != nil {
			return fmt.Errorf("watch cgroup events: %w", err)
		}
		// Looked at after the deadline was set, which may have undone the
		// one that ctx has set.
		if ctx.Err() != nil {
			return fmt.Errorf("wait for %s to empty: %w", g.path, context.Cause(ctx))
		}
		if err := awaitUnpopulated(events); !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
}

// awaitUnpopulated returns nil once the file says so, and
// os.ErrDeadlineExceeded at the file's deadline.
func awaitUnpopulated(events *os.File) error {
	raw, err := events.SyscallConn()
	if err != nil {
		return fmt.Errorf("watch cgroup events: %w", err)
	}
	var lookErr error
	err = raw.Read(func(fd uintptr) bool {
		var populated bool
		populated, lookErr = preadPopulated(int(fd))
		return lookErr != nil || !populated
	})
	return errors.Join(err, lookErr)
}

func preadPopulated(fd int) (bool, error) {
	var buf [256]byte
	n, err := unix.Pread(fd, buf[:], 0)
	if gone(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read cgroup events: %w", err)
	}
	return parsePopulated(buf[:n])
}

// removeTries and removePause bound Remove: 10 × 50 ms.
const (
	removeTries = 10
	removePause = 50 * time.Millisecond
)

func (g *v2Group) Remove() error {
	var err error
	for try := range removeTries {
		if try > 0 {
			time.Sleep(removePause)
		}
		populated, lookErr := g.Populated()
		if lookErr != nil {
			return lookErr
		}
		if populated {
			return fmt.Errorf("remove %s: %w", g.path, ErrPopulated)
		}
		// Busy although empty: a nested cgroup was made meanwhile, or the last
		// exit is not fully accounted for yet.
		if err = g.removeDirs(); !errors.Is(err, unix.EBUSY) {
			break
		}
	}
	if err == nil {
		g.removeApp()
	}
	return err
}

// removeApp removes the directory of the app if that was the last of its
// generations; else the kernel refuses it, which is as well.
func (g *v2Group) removeApp() { _ = unix.Rmdir(filepath.Dir(g.path)) }

func (g *v2Group) removeDirs() error {
	return walkCgroup(g.path, func(dir string) error {
		if err := unix.Rmdir(dir); err != nil && !gone(err) {
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
		return nil
	})
}

// gone reports whether err means that the cgroup was removed: ENOENT for a new
// look-up, ENODEV through a descriptor that was opened before.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
}
