package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// These tests need a kernel that holds groups to their limits; the one of .ci/vm
// does.

// heldTree is a tree in which limits are in effect.
func heldTree(t *testing.T) *Tree {
	t.Helper()
	tree := newTree(t)
	if err := tree.Enforces(); err != nil {
		t.Skipf("needs the memory and pids controllers in cgroup v2, which make vm-test has: %v", err)
	}
	return tree
}

// heldTo makes the group of a generation that is held to l.
func heldTo(t *testing.T, tree *Tree, app string, generation uint64, l Limits) Group {
	t.Helper()
	g, err := tree.New(app, generation, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = g.Kill()
		waitEmpty(t, g)
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	})
	return g
}

func limit(t *testing.T, tree *Tree, app string, l Limits) {
	t.Helper()
	if err := tree.Limit(app, l); err != nil {
		t.Fatal(err)
	}
	if got, err := tree.Limits(app); err != nil || got != l {
		t.Fatalf("the kernel holds %s to %v, want %v (%v)", app, got, l, err)
	}
}

// greedy is a script that takes 200 MiB.
const greedy = "dd if=/dev/zero of=/dev/null bs=200M count=1"

// wantKilled runs the script in the group and expects the kernel to kill it.
func wantKilled(t *testing.T, g Group, script string) {
	t.Helper()
	cmd := shell(t, g, "exec "+script)
	_ = cmd.Wait() // the status says it
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		t.Fatalf("it ended with %v, want the kernel to kill it", cmd.ProcessState)
	}
}

func wantOOM(t *testing.T, g Group, want OOM) {
	t.Helper()
	if got := g.OOM(); got != want {
		t.Errorf("%s tells of %+v, want %+v", g.Path(), got, want)
	}
}

func TestTheKernelKillsOnlyInTheGroupThatTakesTooMuchMemory(t *testing.T) {
	tree := heldTree(t)
	// One generation and its app have the same limit, so a kill is counted at both.
	limit(t, tree, "shop", Limits{Memory: 64 * mib, PIDs: 40})
	g := heldTo(t, tree, "shop", 1, Limits{Memory: 64 * mib, PIDs: 20})
	other := heldTo(t, tree, "blog", 1, Limits{Memory: 64 * mib, PIDs: 20})
	inside, outside := shell(t, g, "exec sleep 600"), shell(t, other, "exec sleep 600")
	for kills := range uint64(2) {
		wantKilled(t, g, greedy)
		wantOOM(t, g, OOM{Kills: kills + 1, Limit: 64 * mib})
	}
	wantOOM(t, other, OOM{})
	if !alive(inside.Process.Pid) || !alive(outside.Process.Pid) {
		t.Error("another process was killed too")
	}
}

func TestTheKernelKillsForTheLimitThatGenerationsShare(t *testing.T) {
	tree := heldTree(t)
	limit(t, tree, "shop", Limits{Memory: 48 * mib})
	old, fresh := heldTo(t, tree, "shop", 1, Limits{Memory: 256 * mib}), heldTo(t, tree, "shop", 2, Limits{Memory: 256 * mib})
	inside := shell(t, old, "exec sleep 600")
	wantKilled(t, fresh, greedy)
	wantOOM(t, fresh, OOM{Kills: 1, Limit: 48 * mib})
	wantOOM(t, old, OOM{})
	if !alive(inside.Process.Pid) {
		t.Error("the smaller one of the other generation was killed")
	}
	// With room for it there is no reason to.
	limit(t, tree, "shop", Limits{Memory: 256*mib + 256*mib})
	if err := shell(t, fresh, greedy).Wait(); err != nil {
		t.Errorf("the raised limit leaves no room for it: %v", err)
	}
	limit(t, tree, "shop", Limits{Memory: 48 * mib})
	wantKilled(t, fresh, greedy)
}

// What a generation leaves in a tmpfs is charged to its app when the generation is
// gone, so the next one reaches the app's limit before its own.
func TestTheKernelChargesAnAppForWhatAGenerationHasLeftInATmpfs(t *testing.T) {
	tree := heldTree(t)
	left := filepath.Join("/dev/shm", filepath.Base(t.TempDir()))
	t.Cleanup(func() { os.Remove(left) })
	limit(t, tree, "shop", Limits{Memory: 256 * mib})
	first, err := tree.New("shop", 1, Limits{Memory: 256 * mib})
	if err != nil {
		t.Fatal(err)
	}
	next := heldTo(t, tree, "shop", 2, Limits{Memory: 256 * mib})
	if err := shell(t, first, "exec dd if=/dev/zero of="+left+" bs=1M count=100").Wait(); err != nil {
		t.Fatal(err)
	}
	waitEmpty(t, first)
	if err := first.Remove(); err != nil {
		t.Fatal(err)
	}
	wantKilled(t, next, greedy)
	raw, err := os.ReadFile(filepath.Join(next.Path(), "memory.events.local"))
	if err != nil || !strings.Contains(string(raw), "oom 0\n") {
		t.Errorf("it was to reach the app's limit and not its own: %q, %v", raw, err)
	}
	wantOOM(t, next, OOM{Kills: 1, Limit: 256 * mib})
}

func TestTheKernelHoldsAGenerationToItsNumberOfProcesses(t *testing.T) {
	tree := heldTree(t)
	limit(t, tree, "shop", Limits{PIDs: 40})
	g := heldTo(t, tree, "shop", 1, Limits{Memory: 64 * mib, PIDs: 4})
	other := heldTo(t, tree, "blog", 1, Limits{PIDs: 4})
	cmd := shell(t, g, "sleep 600 & sleep 600 & sleep 600 & sleep 600 & sleep 600 & wait")
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) {
		t.Errorf("six processes ran where four may: %v", err)
	}
	if pids, err := g.Procs(); err != nil || len(pids) > 4 {
		t.Errorf("%d processes run (%v)", len(pids), err)
	}
	if err := shell(t, other, "sleep 0 & wait $!").Wait(); err != nil {
		t.Errorf("another group cannot fork: %v", err)
	}
	wantOOM(t, g, OOM{})
}

// The kernel switches no controller on below a group that holds processes itself.
func TestTheKernelRefusesALimitAndItIsSaid(t *testing.T) {
	tree := heldTree(t)
	g := mustNew(t, tree, "shop", 1)
	dir := filepath.Dir(g.Path())
	squatter := shell(t, nil, "exec sleep 600").Process
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(squatter.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"the app":      tree.Limit("shop", Limits{Memory: 64 * mib}),
		"a generation": func() error { _, err := tree.New("shop", 2, Limits{PIDs: 5}); return err }(),
	} {
		if !errors.Is(err, ErrNotLimited) || !errors.Is(err, syscall.EBUSY) {
			t.Errorf("%s: %v, want ErrNotLimited and the kernel's reason", what, err)
		}
	}
	if err := squatter.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the limit is taken", func() bool { return tree.Limit("shop", Limits{Memory: 64 * mib}) == nil })
}
