package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/usher-edge/usher/activator/cgroup"
)

// orphan starts l from a parent that ends, as after a kill -9 of usher: the
// process is nobody's child of ours and waits for its adoption.
func orphanOf(t *testing.T, g *ground, l *Launch) Identity {
	t.Helper()
	g.group(t, l)
	cmd := exec.Command("/bin/sh", "-c", "setsid sh -c 'echo $$ > "+l.Dir+"/pid; exec sleep 600' &")
	cmd.Env = l.Env
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	dir, err := l.Group.FD()
	if err != nil {
		t.Fatal(err)
	}
	if dir != nil {
		defer dir.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	pid := pidFrom(t, l.Dir+"/pid")
	id, err := identify(pid)
	if err != nil {
		t.Fatal(err)
	}
	id.Cgroup = l.Group.Path()
	if b, ok := l.Group.(cgroup.Binder); ok {
		if err := b.Bind(pid, id.StartTime); err != nil {
			t.Fatal(err)
		}
	}
	return id
}

// X02, the part about identity, and X04: after a kill -9 of usher the app lives,
// keeps writing its log, and is adopted, watched and stopped by the next one.
func TestProcessOfAKilledUsherLivesAndIsAdopted(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		dir := t.TempDir()
		args := []string{"go", dir}
		if g.tree != nil {
			args = append(args, g.stateDir)
		}
		id := killedParent(t, args...)
		group := cgroup.Group(cgroup.OpenSession(id.PID, id.StartTime, parentMarks(dir)))
		if g.tree != nil {
			var err error
			if group, err = g.tree.Open(id.Cgroup); err != nil {
				t.Fatal(err)
			}
		}
		before := logSize(t, dir)
		eventually(t, "the log grows", func() bool { return logSize(t, dir) > before })
		if limit, err := os.ReadFile(filepath.Join(dir, "ran")); err != nil || strings.TrimSpace(string(limit)) != parentDescriptors {
			t.Errorf("the app may open %q descriptors, its usher was started with %s (%v)", limit, parentDescriptors, err)
		}
		p, err := Adopt(id, 1, group)
		if err != nil {
			t.Fatal(err)
		}
		if !p.Adopted() || p.Exited() || p.Identity() != id {
			t.Errorf("adopted %v, exited %v, identity %+v", p.Adopted(), p.Exited(), p.Identity())
		}
		r := mustStop(t, p, group, 20*time.Second)
		if r.Killed || r.Exit.Known || r.Exit.Time.IsZero() || !strings.Contains(r.Exit.String(), "unknown") {
			t.Errorf("got %+v", r)
		}
		if _, err := Adopt(id, 1, group); !errors.Is(err, ErrNotOurs) {
			t.Errorf("adopting the dead: %v", err)
		}
		if err := group.Remove(); err != nil {
			t.Error(err)
		}
	})
}

func logSize(t *testing.T, dir string) int64 {
	t.Helper()
	info, err := os.Stat(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func TestExitOfAnAdoptedProcessIsSeen(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		l := script(t, "")
		id := orphanOf(t, g, &l)
		p, err := Adopt(id, l.Generation, l.Group)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(id.PID, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		waitExit(t, p)
		mustStop(t, p, l.Group, 0)
	})
}

// X01: the recorded pid belongs to an innocent process by now.
func TestRecycledPIDIsNeverAdoptedNorSignalled(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		l := script(t, "exec sleep 600")
		p := mustStart(t, g, &l)
		good := p.Identity()
		victim := innocent(t)
		victimStart, err := StartTime(victim)
		if err != nil {
			t.Fatal(err)
		}
		free := 0
		for pid := 1 << 22; free == 0; pid-- {
			if unix.Kill(pid, 0) == unix.ESRCH {
				free = pid
			}
		}
		tests := map[string]Identity{
			"another process's pid":           {PID: victim, StartTime: good.StartTime, BootID: good.BootID, Cgroup: good.Cgroup},
			"another process altogether":      {PID: victim, StartTime: victimStart, BootID: good.BootID, Cgroup: good.Cgroup},
			"right pid, other start":          {PID: good.PID, StartTime: good.StartTime - 1, BootID: good.BootID, Cgroup: good.Cgroup},
			"right pid and start, other boot": {PID: good.PID, StartTime: good.StartTime, BootID: "00000000-0000-0000-0000-000000000000", Cgroup: good.Cgroup},
			"nobody's pid":                    {PID: free, StartTime: good.StartTime, BootID: good.BootID, Cgroup: good.Cgroup},
			"our own":                         {PID: os.Getpid(), StartTime: good.StartTime, BootID: good.BootID, Cgroup: good.Cgroup},
		}
		for name, id := range tests {
			adopted, err := Adopt(id, l.Generation, l.Group)
			if !errors.Is(err, ErrNotOurs) {
				t.Errorf("%s: got %v", name, err)
			}
			if adopted != nil {
				_ = adopted.Close()
			}
		}
		if g.tree == nil {
			if _, err := Adopt(good, l.Generation+1, l.Group); !errors.Is(err, ErrNotOurs) {
				t.Errorf("another generation: got %v", err)
			}
		}
		if _, err := Adopt(Identity{}, 1, l.Group); err == nil {
			t.Error("no identity at all was adopted")
		}
		// Stopping the generation does not touch the innocent one.
		mustStop(t, p, l.Group, 0)
		if !alive(victim) {
			t.Error("the innocent process was killed")
		}
	})
}

func TestThreadIsNoProcess(t *testing.T) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		tid := 0
		for _, c := range task.Name() {
			tid = 10*tid + int(c-'0')
		}
		if tid == os.Getpid() {
			continue
		}
		if _, err := Adopt(Identity{PID: tid}, 1, cgroup.NewSession(nil)); !errors.Is(err, ErrNotOurs) {
			t.Errorf("thread %d: %v", tid, err)
		}
	}
}

// The go-byte is acknowledged by the exec, which shows the new environment only
// a moment later: a restart of usher that comes right then must still find it.
func TestProcessIsAdoptedRightAfterItsExec(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		for range 50 {
			l := script(t, "exec sleep 600")
			g.group(t, &l)
			p, err := mustPrepare(t, g, l).Go(soon(t))
			if err != nil {
				t.Fatal(err)
			}
			again, err := Adopt(p.Identity(), l.Generation, l.Group)
			if err != nil {
				t.Error(err)
			} else {
				err = again.Close()
			}
			mustStop(t, p, l.Group, 0)
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// It cannot be adopted, but it can be stopped, or nothing would ever be started in its
// place.
func TestAProcessWithoutAnEnvironmentIsNotOurs(t *testing.T) {
	g := onSessions(t)
	l := app(t, "bare")
	l.Env = []string{"LARGE=" + strings.Repeat("x", 5*os.Getpagesize())} // what else is there is needed
	p := mustStart(t, g, &l)
	output(t, l, "bare")
	if _, err := Adopt(p.Identity(), l.Generation, l.Group); !errors.Is(err, ErrNotOurs) {
		t.Errorf("got %v", err)
	}
	mustStop(t, p, l.Group, 0)
}

// What says nothing about a process does not say that it is gone: it may run.
func TestAnErrorThatSaysNothingIsNotTakenForGone(t *testing.T) {
	for err, gone := range map[error]bool{
		unix.ENOENT: true, unix.ESRCH: true, cgroup.ErrEnding: true, unix.EACCES: true, unix.EPERM: true,
		cgroup.ErrInExec: true, // all the while, see verifyMark
		unix.EMFILE:      false, unix.ENFILE: false, unix.ENOMEM: false, unix.EIO: false,
	} {
		if got := unseen(fmt.Errorf("look: %w", err)); errors.Is(got, ErrNotOurs) != gone || !errors.Is(got, err) {
			t.Errorf("%v: %v", err, got)
		}
	}
}
