package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/usher-edge/usher/activator/cgroup"
)

func TestExitBySignalIsTold(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		l := script(t, "exec sleep 600")
		p := mustStart(t, g, &l)
		if p.Exited() || p.Exit().Known || p.Exit().String() != "still running" {
			t.Fatalf("exited %v, exit %v", p.Exited(), p.Exit())
		}
		if err := p.Signal(syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		exit := waitExit(t, p)
		if !exit.Known || exit.Signal != syscall.SIGUSR1 || !strings.Contains(exit.String(), "signal 10") {
			t.Errorf("got %+v: %v", exit, exit)
		}
	})
}

func TestCloseLeavesTheProcessAlone(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		l := script(t, "exec sleep 600")
		g.group(t, &l)
		p, err := mustPrepare(t, g, l).Go(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(p.Close(), p.Close()); err != nil {
			t.Fatal(err)
		}
		if !alive(p.Identity().PID) || p.Exited() {
			t.Fatal("the process is gone")
		}
		if err := p.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrClosed) {
			t.Errorf("signal after close: %v", err)
		}
		select {
		case <-p.Done():
			t.Error("done after close")
		default:
		}
		// A later usher takes it over; here it happens to be our child still.
		adopted, err := Adopt(p.Identity(), l.Generation, l.Group)
		if err != nil {
			t.Fatal(err)
		}
		mustStop(t, adopted, l.Group, 0)
		var ws syscall.WaitStatus
		if _, err := syscall.Wait4(p.Identity().PID, &ws, 0, nil); err != nil || !ws.Signaled() {
			t.Errorf("the adopted child: %v, %v", ws, err)
		}
	})
}

// X10: no zombies, no descriptors, however many starts and stops.
func TestTwoHundredForkingStartsLeaveNothing(t *testing.T) {
	cycles := 200
	if testing.Short() {
		cycles = 20
	}
	onEachGround(t, func(t *testing.T, g *ground) {
		for range cycles {
			l := Launch{App: "test", Dir: "/", Path: "/bin/sh", Args: []string{"sh", "-c", "sleep 600 & sleep 600 & exec sleep 600"}, Env: []string{"PATH=" + os.Getenv("PATH")}}
			g.group(t, &l)
			p, err := mustPrepare(t, g, l).Go(soon(t))
			if err != nil {
				t.Fatal(err)
			}
			mustStop(t, p, l.Group, 0)
			for _, left := range cgroup.Children(os.Getpid()) {
				if !g.forker.Owns(left.PID) {
					t.Fatalf("a child after a stop: %+v", left)
				}
			}
		}
	})
}

// L01: a process that forks in its first instant is in its group from the first.
func TestEveryChildOfAForkingStartIsInItsGroup(t *testing.T) {
	const children = 50
	starts := 50
	if testing.Short() {
		starts = 5
	}
	onEachGround(t, func(t *testing.T, g *ground) {
		for range starts {
			dir := t.TempDir()
			text := fmt.Sprintf("i=0; while [ $i -lt %d ]; do sleep 600 & echo $! >> pids; i=$((i+1)); done; echo done > done; exec sleep 600", children)
			l := Launch{App: "test", Dir: dir, Path: "/bin/sh", Args: []string{"sh", "-c", text}, Env: []string{"PATH=" + os.Getenv("PATH")}}
			g.group(t, &l)
			p, err := mustPrepare(t, g, l).Go(soon(t))
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "all forked", func() bool {
				_, err := os.Stat(filepath.Join(dir, "done"))
				return err == nil
			})
			raw, err := os.ReadFile(filepath.Join(dir, "pids"))
			if err != nil {
				t.Fatal(err)
			}
			members := map[string]bool{}
			pids, err := l.Group.Procs()
			if err != nil {
				t.Fatal(err)
			}
			for _, pid := range pids {
				members[fmt.Sprint(pid)] = true
			}
			forked := strings.Fields(string(raw))
			for _, pid := range forked {
				if !members[pid] {
					t.Errorf("pid %s is not in its group", pid)
				}
			}
			if len(forked) != children || len(pids) != children+1 {
				t.Errorf("%d forked, %d in the group", len(forked), len(pids))
			}
			mustStop(t, p, l.Group, 0)
		}
	})
}
