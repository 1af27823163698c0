package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain fails the run if a process that a test has started is still there.
func TestMain(m *testing.M) {
	if name := os.Getenv(roleVariable); name != "" {
		play(name)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		// What a clean-up has killed may take a moment to go.
		deadline := time.Now().Add(20 * time.Second)
		left := leftBehind()
		for len(left) > 0 && time.Now().Before(deadline) {
			left = leftBehind()
		}
		for _, pid := range left {
			fmt.Println("a test left this process behind:", pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
			code = 1
		}
		os.Exit(code)
	}))
}

func leftBehind() []int {
	pids, _ := listPIDs()
	return slices.DeleteFunc(pids, func(pid int) bool {
		environ, err := Environ(pid)
		return err != nil || !holdsAll(environ, []string{testMark()})
	})
}

// testMark is in the environment of every process that a test starts.
func testMark() string { return fmt.Sprintf("USHER_CGROUP_TEST=%d", os.Getpid()) }

// eventually polls cond until it holds; it fails the test after 20 s.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// newTree makes a tree of its own for the test and checks at the end that the
// test has left nothing in it.
func newTree(t *testing.T) *Tree {
	t.Helper()
	tree, err := Discover(Options{StateDir: t.TempDir()})
	if errors.Is(err, ErrUnavailable) {
		t.Skipf("needs a writable cgroup v2 tree: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tree.Remove(); err != nil {
			t.Errorf("the test left cgroups behind: %v", err)
		}
	})
	return tree
}

// shell starts a shell script in the group (a new session, if the group is nil
// or a session) and kills and reaps it at the end of the test.
func shell(t *testing.T, g Group, script string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), testMark()}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if g != nil {
		dir, err := g.FD()
		if err != nil {
			t.Fatal(err)
		}
		if dir != nil {
			defer dir.Close()
			cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
		}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if b, ok := g.(Binder); ok {
		st := statOf(t, cmd.Process.Pid)
		if err := b.Bind(st.PID, st.Start); err != nil {
			t.Fatal(err)
		}
	}
	return cmd
}

func statOf(t *testing.T, pid int) Stat {
	t.Helper()
	st, err := ReadStat(pid)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// pidFrom waits until a script has written a pid to the file.
func pidFrom(t *testing.T, file string) int {
	t.Helper()
	var pid int
	eventually(t, "a pid in "+file, func() bool {
		raw, _ := os.ReadFile(file)
		var err error
		pid, err = strconv.Atoi(strings.TrimSpace(string(raw)))
		return err == nil
	})
	return pid
}

func alive(pid int) bool {
	st, err := ReadStat(pid)
	return err == nil && !st.Dead
}

// daemon is a script that leaves a process behind that has left its session and
// its parents, writes its pid to file, and then waits.
func daemon(file string) string {
	return "setsid sh -c 'sleep 600 & echo $! > " + file + "' & sleep 600"
}

func temp(t *testing.T, name string) string {
	return filepath.Join(t.TempDir(), name)
}

// scriptFile is a shell script that can start itself again as "$0".
func scriptFile(t *testing.T, script string) string {
	t.Helper()
	file := temp(t, "script")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return file
}
