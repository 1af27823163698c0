package process

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/usher-edge/usher/activator/cgroup"
)

// This test needs a kernel that holds groups to their limits; the one of .ci/vm does.
func TestTheKernelKillsForWantOfMemoryAndTheExitStatusSaysSo(t *testing.T) {
	const greedy = "dd if=/dev/zero of=/dev/null bs=200M count=1"
	want := cgroup.OOM{Kills: 1, Limit: 64 << 20}
	for _, c := range []struct {
		name, script string
		want         ExitStatus
	}{
		{"the main process", "exec " + greedy, ExitStatus{Known: true, Signal: syscall.SIGKILL, OOM: want}},
		{"a child", greedy + "; exit 7", ExitStatus{Known: true, Code: 7, OOM: want}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := onSessions(t)
			l := script(t, "while ! [ -e go ]; do sleep 0.05; done; "+c.script)
			l.Generation = 1
			l.Group = heldGroup(t, cgroup.Limits{Memory: want.Limit})
			p, err := mustPrepare(t, g, l).Go(soon(t))
			if err != nil {
				t.Fatal(err)
			}
			adopted, err := Adopt(p.Identity(), 1, l.Group)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(l.Dir, "go"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			got := waitExit(t, p)
			got.Time = time.Time{}
			if got != c.want {
				t.Errorf("exit %+v, want %+v", got, c.want)
			}
			if got := waitExit(t, adopted); got.Known || got.OOM != want {
				t.Errorf("the exit of the adopted one is %+v", got)
			}
			mustStop(t, p, l.Group, 0)
		})
	}
}

// heldGroup is a group that the kernel holds to l.
func heldGroup(t *testing.T, l cgroup.Limits) cgroup.Group {
	t.Helper()
	tree, err := cgroup.Discover(cgroup.Options{StateDir: t.TempDir()})
	if err == nil {
		err = tree.Enforces()
	}
	if errors.Is(err, cgroup.ErrUnavailable) || errors.Is(err, cgroup.ErrNotLimited) {
		t.Skipf("needs the memory controller in cgroup v2, which make vm-test has: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	group, err := tree.New("test", 1, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(group.Remove(), tree.Remove()); err != nil {
			t.Errorf("the test left cgroups behind: %v", err)
		}
	})
	return group
}
