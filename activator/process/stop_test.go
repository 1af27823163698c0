package process

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestStopAsksFirst(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		l := script(t, "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.05; done")
		p := mustStart(t, g, &l)
		output(t, l, "ready")
		before := time.Now()
		r := mustStop(t, p, l.Group, 20*time.Second)
		if r.Killed || !r.Exit.Known || r.Exit.Code != 5 || r.TermAt.Before(before) {
			t.Errorf("got %+v", r)
		}
		if got := output(t, l, "bye"); strings.Count(got, "bye") != 1 {
			t.Errorf("SIGTERM did not come exactly once: %q", got)
		}
	})
}

// H03: an app that ignores SIGTERM is killed, all of it, when its time is up.
func TestStopKillsTheWholeGroupAfterTheGrace(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		l := app(t, "ignore_term")
		p := mustStart(t, g, &l)
		output(t, l, "ready")
		const grace = 200 * time.Millisecond
		r := mustStop(t, p, l.Group, grace)
		if !r.Killed || r.Exit.Signal != syscall.SIGKILL || r.Exit.Time.Sub(r.TermAt) < grace {
			t.Errorf("got %+v", r)
		}
	})
}

// L03: a daemonised grandchild is part of the generation.
func TestStopEndsDaemonisedGrandchildren(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		file := filepath.Join(t.TempDir(), "pid")
		l := script(t, "setsid sh -c 'trap : TERM; echo $$ > "+file+"; while :; do sleep 1; done' & exec sleep 600")
		p := mustStart(t, g, &l)
		stray := pidFrom(t, file)
		r := mustStop(t, p, l.Group, 200*time.Millisecond)
		if !r.Killed || alive(stray) {
			t.Errorf("got %+v; the grandchild lives: %v", r, alive(stray))
		}
	})
}

func TestStopOfWhatIsGoneAlreadyOnlyProves(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		l := script(t, "exit 9")
		p := mustStart(t, g, &l)
		waitExit(t, p)
		r := mustStop(t, p, l.Group, time.Hour)
		if !r.TermAt.IsZero() || r.Killed || r.Exit.Code != 9 {
			t.Errorf("got %+v", r)
		}
	})
}

// The exit is seen by the kernel before the watcher has reaped: a stop at that
// instant must wait for the reaping, and not deny the proof.
func TestStopDuringTheExitWaitsForTheReaping(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		for range 20 {
			l := script(t, "exit 0")
			p := mustStart(t, g, &l)
			for !p.Exited() {
				runtime.Gosched()
			}
			if r := mustStop(t, p, l.Group, time.Hour); !r.Exit.Known {
				t.Fatalf("got %+v", r)
			}
		}
	})
}

func TestStopWithoutAMainProcessEndsTheRest(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		file := filepath.Join(t.TempDir(), "pid")
		l := script(t, "sleep 600 & echo $! > "+file)
		p := mustStart(t, g, &l)
		left := pidFrom(t, file)
		waitExit(t, p)
		if !alive(left) {
			t.Fatal("the child ended with its parent")
		}
		r := mustStop(t, nil, l.Group, 20*time.Second)
		if r.TermAt.IsZero() || r.Killed || alive(left) {
			t.Errorf("got %+v", r)
		}
	})
}

func TestStopGivenUpSaysWhoIsLeft(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		l := app(t, "ignore_term")
		p := mustStart(t, g, &l)
		output(t, l, "ready")
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		r := Stop(ctx, p, l.Group, time.Hour)
		if r.Empty || r.Killed || !slices.Contains(r.Left, p.Identity().PID) || !errors.Is(r.Err, context.DeadlineExceeded) {
			t.Errorf("got %+v", r)
		}
		if !alive(p.Identity().PID) {
			t.Error("a stop that was given up has killed")
		}
	})
}

func TestStopEndsAMainProcessThatHasLeftItsCgroup(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		if g.tree == nil {
			t.Skip("needs a cgroup to leave")
		}
		l := script(t, "trap '' TERM; echo $$ > "+filepath.Dir(g.tree.Dir())+"/cgroup.procs && echo out; while :; do sleep 0.05; done")
		p := mustStart(t, g, &l)
		output(t, l, "out")
		r := mustStop(t, p, l.Group, 100*time.Millisecond)
		if !r.Killed || r.Exit.Signal != syscall.SIGKILL {
			t.Errorf("got %+v", r)
		}
	})
}
