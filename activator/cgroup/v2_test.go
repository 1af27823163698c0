package cgroup

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"
)

func TestCgroupHoldsDaemonsAndNestedCgroups(t *testing.T) {
	g := mustNew(t, newTree(t), "shop", 1)
	if populated, err := g.Populated(); err != nil || populated {
		t.Fatalf("a new group: populated %v, %v", populated, err)
	}
	file := temp(t, "pid")
	cmd := shell(t, g, daemon(file))
	stray := pidFrom(t, file)
	nested := filepath.Join(g.Path(), "inner", "most")
	if err := os.MkdirAll(nested, 0o755); err != nil {
		t.Fatal(err)
	}
	// The daemon moves on into a nested cgroup, as some servers do.
	if err := os.WriteFile(filepath.Join(nested, "cgroup.procs"), []byte(strconv.Itoa(stray)), 0); err != nil {
		t.Fatal(err)
	}
	pids, err := g.Procs()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(pids) || !slices.Contains(pids, cmd.Process.Pid) || !slices.Contains(pids, stray) {
		t.Fatalf("got %v, want %d and %d among them", pids, cmd.Process.Pid, stray)
	}
	if err := g.Remove(); !errors.Is(err, ErrPopulated) {
		t.Fatalf("remove while populated: %v", err)
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	waitEmpty(t, g)
	if alive(stray) {
		t.Fatal("the daemon outlived its group")
	}
	if err := g.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(g.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the directory is still there: %v", err)
	}
}

func TestGroupThatIsGoneIsEmptyAndWantsNothing(t *testing.T) {
	g := mustNew(t, newTree(t), "shop", 1)
	if err := g.Remove(); err != nil {
		t.Fatal(err)
	}
	populated, err := g.Populated()
	pids, procsErr := g.Procs()
	if populated || len(pids) != 0 || errors.Join(err, procsErr, g.Signal(syscall.SIGTERM), g.Kill(), g.Remove()) != nil {
		t.Fatalf("populated %v, pids %v, errors %v %v", populated, pids, err, procsErr)
	}
	waitEmpty(t, g)
}

func TestWaitEmptyWakesOnTheLastExit(t *testing.T) {
	g := mustNew(t, newTree(t), "shop", 1)
	cmd := shell(t, g, "exec sleep 600")
	done := make(chan error, 1)
	go func() { done <- g.WaitEmpty(context.Background()) }()
	select {
	case err := <-done:
		t.Fatalf("returned while populated: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("was not woken")
	}
}

func TestWaitEmptyEndsWhenTheGroupIsRemovedByOthers(t *testing.T) {
	tree := newTree(t)
	for generation := range uint64(5) {
		g := mustNew(t, tree, "shop", generation)
		cmd := shell(t, g, "exec sleep 600")
		done := make(chan error, 1)
		go func() { done <- g.WaitEmpty(context.Background()) }()
		_ = cmd.Process.Kill()
		eventually(t, "removed", func() bool { return syscall.Rmdir(g.Path()) == nil })
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("was not woken")
		}
	}
}

// onBothLevels runs the test with a new group of each kind.
func onBothLevels(t *testing.T, test func(t *testing.T, g Group)) {
	t.Run(LevelCgroup, func(t *testing.T) { test(t, mustNew(t, newTree(t), "shop", 1)) })
	t.Run(LevelSession, func(t *testing.T) { test(t, NewSession(nil)) })
}

func TestWaitEmptyEndsWithItsContext(t *testing.T) {
	onBothLevels(t, func(t *testing.T, g Group) {
		shell(t, g, "exec sleep 600")
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(context.Background())
		done := make(chan error, 1)
		go func() { done <- g.WaitEmpty(ctx) }()
		cancel(cause)
		if err := <-done; !errors.Is(err, cause) {
			t.Errorf("got %v, want the cause of the context", err)
		}
	})
}

func TestSignalReachesEveryMemberOnce(t *testing.T) {
	onBothLevels(t, func(t *testing.T, g Group) {
		dir := t.TempDir()
		out := filepath.Join(dir, "out")
		member := filepath.Join(dir, "member")
		text := "trap 'echo x >> " + out + "' USR1; echo ready >> " + out + "; while :; do sleep 600 & wait $!; done"
		if err := os.WriteFile(member, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		shell(t, g, "sh "+member+" & . "+member)
		lines := func() int {
			raw, _ := os.ReadFile(out)
			return bytes.Count(raw, []byte("\n"))
		}
		eventually(t, "both shells are ready", func() bool { return lines() == 2 })
		if err := g.Signal(syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		eventually(t, "both shells have got it", func() bool { return lines() == 4 })
		if err := g.Kill(); err != nil {
			t.Fatal(err)
		}
		waitEmpty(t, g)
		if got := lines(); got != 4 {
			t.Errorf("%d lines, want 4", got)
		}
	})
}

func TestSignalSparesAProcessThatIsNoMemberAnyMore(t *testing.T) {
	innocent := shell(t, nil, "exec sleep 600").Process.Pid
	member := shell(t, nil, "exec sleep 600").Process.Pid
	err := signalPIDs([]int{innocent, member}, syscall.SIGKILL, func([]int) ([]int, error) { return []int{member}, nil })
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the member is dead", func() bool { return !alive(member) })
	if !alive(innocent) {
		t.Fatal("a pid that was listed before but is no member any more was killed")
	}
}

func TestPopulatedNeedsItsLine(t *testing.T) {
	if got, err := parsePopulated([]byte("frozen 0\npopulated 1\n")); err != nil || !got {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := parsePopulated([]byte("populated 0\nfrozen 0\n")); err != nil || got {
		t.Errorf("got %v, %v", got, err)
	}
	// Silence must never count as the proof of empty.
	if _, err := parsePopulated([]byte("frozen 0\n")); err == nil {
		t.Error("no populated line, no error")
	}
}

func TestSignalReachesParentsBeforeTheirChildren(t *testing.T) {
	// If the child went first, wait would return its status and the script
	// would be over before its own signal came.
	for range 10 {
		file := temp(t, "ready")
		cmd := shell(t, nil, "trap 'exit 5' TERM; sh -c 'echo $$ > "+file+"; exec sleep 600' & wait $!; sleep 600")
		child := pidFrom(t, file)
		parent := cmd.Process.Pid
		if got := oldestFirst([]int{child, parent}); got[0] != parent {
			t.Fatalf("got %v, the parent is %d", got, parent)
		}
		err := signalPIDs([]int{child, parent}, syscall.SIGTERM, func(pids []int) ([]int, error) { return pids, nil })
		if err != nil {
			t.Fatal(err)
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 5 {
			t.Fatalf("the parent did not get it first: %v", err)
		}
	}
}
