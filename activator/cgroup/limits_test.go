package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// fakeDir is a directory with files as the kernel makes them.
func fakeDir(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLimitsOfTwoAddUpAndNoLimitWins(t *testing.T) {
	for _, c := range []struct{ a, b, want Limits }{
		{Limits{Memory: 10, PIDs: 3}, Limits{Memory: 20, PIDs: 4}, Limits{Memory: 30, PIDs: 7}},
		{Limits{Memory: 10}, Limits{Memory: 20, PIDs: 4}, Limits{Memory: 30}},
		{Limits{}, Limits{Memory: 20, PIDs: 4}, Limits{}},
	} {
		if got := c.a.Plus(c.b); got != c.want || c.b.Plus(c.a) != c.want {
			t.Errorf("%+v and %+v: got %+v", c.a, c.b, got)
		}
	}
}

func TestLimitsAreWrittenAndReadBack(t *testing.T) {
	dir := fakeDir(t, t.TempDir(), map[string]string{"memory.max": "max\n", "pids.max": "max\n"})
	for _, l := range []Limits{{Memory: 256 << 20, PIDs: 200}, {PIDs: 7}, {}} {
		fakeDir(t, dir, map[string]string{"memory.max": "", "pids.max": ""}) // the kernel forgets what was there before
		if err := l.write(dir); err != nil {
			t.Fatal(err)
		}
		if got, err := readLimits(dir); err != nil || got != l {
			t.Errorf("wrote %+v, read %+v, %v", l, got, err)
		}
	}
	if _, err := readLimits(filepath.Join(dir, "gone")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a group that is gone: %v", err)
	}
}

func TestALimitWithoutItsControllerIsAnErrorAndNoLimitIsNone(t *testing.T) {
	dir := fakeDir(t, t.TempDir(), map[string]string{"memory.max": "max"})
	if err := (Limits{Memory: 1 << 20}).write(dir); err != nil {
		t.Errorf("memory alone: %v", err)
	}
	if err := (Limits{PIDs: 5}).write(dir); !errors.Is(err, ErrNotLimited) || !strings.Contains(err.Error(), "pids.max") {
		t.Errorf("pids without a controller: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "pids.max")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file was made where the kernel has none: %v", err)
	}
}

func TestControllersAreSwitchedOnOrItIsSaidWhyNot(t *testing.T) {
	base := t.TempDir()
	tree := &Tree{dir: filepath.Join(base, "usher-x")}
	fakeDir(t, base, map[string]string{"cgroup.controllers": "cpu memory pids\n", "cgroup.subtree_control": "cpu\n"})
	fakeDir(t, tree.dir, map[string]string{"cgroup.controllers": "memory\n", "cgroup.subtree_control": "memory pids\n"})
	if err := tree.Enforces(); err != nil {
		t.Fatal(err)
	}
	// The kernel would add to the list; a plain file holds what was written last.
	if raw, _ := os.ReadFile(filepath.Join(base, "cgroup.subtree_control")); !strings.HasPrefix(string(raw), "+pids") {
		t.Errorf("wrote %q", raw)
	}
	fakeDir(t, base, map[string]string{"cgroup.controllers": "memory\n", "cgroup.subtree_control": ""})
	if err := tree.Enforces(); !errors.Is(err, ErrNotLimited) || !strings.Contains(err.Error(), "no pids controller") {
		t.Errorf("got %v", err)
	}
}

// A controller that this machine has, whichever, is switched on down to a leaf in
// which a process then starts.
func TestAControllerReachesTheLeaves(t *testing.T) {
	tree := newTree(t)
	there, err := words(filepath.Dir(tree.dir), "cgroup.controllers")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{"pids", "memory", "hugetlb", "cpu", "io"} {
		if there[c] {
			controllerInLeaf(t, tree, c)
			return
		}
	}
	t.Skip("needs a controller in the cgroup v2 hierarchy")
}

func controllerInLeaf(t *testing.T, tree *Tree, c string) {
	t.Helper()
	base := filepath.Dir(tree.dir)
	if on, _ := words(base, "cgroup.subtree_control"); !on[c] {
		t.Cleanup(func() { // refused if somebody else below uses it by now
			for _, dir := range []string{tree.dir, base} {
				_ = writeFile(filepath.Join(dir, "cgroup.subtree_control"), "-"+c)
			}
		})
	}
	if err := tree.enable(c); err != nil {
		if errors.Is(err, syscall.EBUSY) {
			t.Skipf("this test runs in the cgroup that would have to be free of processes: %v", err)
		}
		t.Fatal(err)
	}
	g := mustNew(t, tree, "shop", 1)
	if err := enableIn(filepath.Dir(g.Path()), []string{c}); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(g.Path(), c+".*"))
	if err != nil || len(files) == 0 {
		t.Errorf("the leaf has no file of the %s controller (%v)", c, err)
	}
	shell(t, g, "exec sleep 600")
}
