package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/usher-edge/usher/activator/cgroup"
)

// runReaper is a small usher to which orphans fall, as they do to process 1 of a
// container. It starts and ends forking apps and prints what it has left.
func runReaper() int {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Println(err)
		return 1
	}
	var main atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	forker := NewForker("")
	go ReapOrphans(ctx, func(pid int) bool { return int64(pid) == main.Load() || forker.Owns(pid) })
	for generation := range uint64(20) {
		mark := fmt.Sprintf("USHER_TEST_REAPER=%d.%d", os.Getpid(), generation)
		l := Launch{App: "test", Generation: generation, Dir: "/", Path: "/bin/sh", Group: cgroup.NewSession([]string{mark})}
		l.Args = []string{"sh", "-c", "(sleep 600 &); (setsid sleep 600 &); (true &); exec sleep 600"}
		l.Env = []string{"PATH=" + os.Getenv("PATH"), mark}
		pending, err := forker.Prepare(ctx, l)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		main.Store(int64(pending.Identity().PID))
		p, err := pending.Go(ctx)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		// usher's own commands must keep their exit status.
		if err := exec.Command("true").Run(); err != nil {
			fmt.Println(err)
			return 1
		}
		r := Stop(ctx, p, l.Group, 0)
		if !r.Empty || !r.Exit.Known {
			fmt.Printf("stop: %+v\n", r)
			return 1
		}
	}
	if err := forker.Close(); err != nil {
		fmt.Println(err)
		return 1
	}
	for left := cgroup.Children(os.Getpid()); len(left) > 0; left = cgroup.Children(os.Getpid()) {
		if ctx.Err() != nil {
			fmt.Println("left", left)
			return 1
		}
	}
	fmt.Println("clean")
	return 0
}

func TestOrphansThatFallToUsherAreReaped(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(soon(t), self, "reaper").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "clean" {
		t.Fatalf("%v: %s", err, out)
	}
}
