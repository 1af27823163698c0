package process

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/usher-edge/usher/activator/cgroup"
)

// TestMain lets the test binary be three things: the child side of a start (see
// package child), an app, and the tests.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "app":
			os.Exit(runApp(os.Args[2:]))
		case "parent":
			os.Exit(runParent(os.Args[2:]))
		case "reaper":
			os.Exit(runReaper())
		}
	}
	goleak.VerifyTestMain(m)
}

// runApp is the app under test: `app MODE…`.
func runApp(args []string) int {
	runtime.LockOSThread() // to the main one
	switch args[0] {
	case "exit":
		code, _ := strconv.Atoi(args[1])
		return code
	case "ignore_term":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
	case "listen":
		l, err := net.Listen("tcp", args[1])
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("listening", l.Addr())
	case "listen_unix":
		if _, err := net.Listen("unix", args[1]); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("listening")
	case "bare":
		if err := dropEnviron(); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("bare")
	case "facts":
		printFacts()
		return 0
	}
	if args[len(args)-1] == "headless" { // its main thread ends, and others go on
		_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
	}
	select {}
}

// dropEnviron gives the last page of the environment back.
func dropEnviron() error {
	raw, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return err
	}
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	end, err := strconv.ParseUint(fields[48], 10, 64)
	if err != nil {
		return err
	}
	page := uint64(os.Getpagesize())
	if _, _, errno := syscall.Syscall(syscall.SYS_MUNMAP, uintptr((end-1)&^(page-1)), uintptr(page), 0); errno != 0 {
		return errno
	}
	return nil
}

// printFacts prints what the app was given.
func printFacts() {
	umask := unix.Umask(0)
	cwd, _ := os.Getwd()
	groups, _ := os.Getgroups()
	sid, _ := unix.Getsid(0)
	var nofile unix.Rlimit
	// Not the runtime's own view: it raises the soft limit at start.
	status, _ := os.ReadFile("/proc/self/status")
	_ = unix.Getrlimit(unix.RLIMIT_CORE, &nofile)
	fmt.Printf("args=%q\nenv=%q\n", os.Args, os.Environ())
	fmt.Println("told its own pid:", os.Getenv("LISTEN_PID") == strconv.Itoa(os.Getpid()))
	fmt.Printf("uid=%d gid=%d groups=%v umask=%04o cwd=%s core=%d/%d leader=%v\n", os.Getuid(), os.Getgid(), groups, umask, cwd, nofile.Cur, nofile.Max, sid == os.Getpid())
	for line := range strings.Lines(string(status)) {
		for _, key := range []string{"SigBlk", "SigIgn", "NoNewPrivs", "CapAmb"} {
			if strings.HasPrefix(line, key+":") {
				fmt.Print(line)
			}
		}
	}
}

// runParent is a small usher that is killed: `parent fork|prepare|go DIR [TREE]`.
// It starts a generation in DIR, or only prepares it, or has only a child for it,
// prints its identity, and hangs. With TREE, a state directory, it uses cgroups.
func runParent(args []string) int {
	dir := args[1]
	l := Launch{App: "test", Generation: 1, Dir: dir, Path: "/bin/sh", LogPath: filepath.Join(dir, "log")}
	l.Args = []string{"sh", "-c", "ulimit -Sn > ran; while :; do echo tick; sleep 0.01; done"}
	l.Env = append(parentMarks(dir), "PATH="+os.Getenv("PATH"))
	l.Group = cgroup.NewSession(parentMarks(dir))
	if len(args) > 2 {
		tree, err := cgroup.Discover(cgroup.Options{StateDir: args[2]})
		if err == nil {
			l.Group, err = tree.New(l.App, l.Generation, cgroup.Limits{})
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
	}
	f := NewForker("")
	prepare := f.Prepare
	if args[0] == "fork" {
		prepare = f.fork
	}
	p, err := prepare(context.Background(), l)
	if err == nil && args[0] == "go" {
		_, err = p.Go(context.Background())
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if err := json.NewEncoder(os.Stdout).Encode(p.Identity()); err != nil {
		return 1
	}
	select {}
}

// parentDescriptors is the soft limit that a parent is started with. Its runtime
// raises it.
const parentDescriptors = "500"

func parentMarks(dir string) []string {
	return []string{GenerationVariable + "=1", "USHER_TEST=" + dir}
}

// killedParent runs a parent until it has printed its child's identity, and
// kills it.
func killedParent(t *testing.T, args ...string) Identity {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command("/bin/sh", append([]string{"-c", `ulimit -Sn ` + parentDescriptors + ` && exec "$0" "$@"`, self, "parent"}, args...)...)
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var id Identity
	if err := json.Unmarshal(line, &id); err != nil {
		t.Fatalf("the parent said %q", line)
	}
	children := cgroup.Children(parent.Process.Pid)
	if !slices.ContainsFunc(children, func(st cgroup.Stat) bool { return st.PID == id.PID && !st.Dead }) || len(children) != 2 {
		t.Errorf("the children of the parent are %+v, want pid %d and a forker", children, id.PID)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	for _, st := range children {
		if st.PID != id.PID {
			eventually(t, "the forker has gone", func() bool { return !alive(st.PID) })
		}
	}
	return id
}

// ground is one way to hold a process tree; every test of behaviour runs on
// both.
type ground struct {
	tree     *cgroup.Tree // nil: sessions
	stateDir string       // that the tree is of
	forker   *Forker
	next     uint64
}

// onEachGround runs the test with cgroups, where there are any, and with
// sessions, and checks after each that nothing was left behind.
func onEachGround(t *testing.T, test func(t *testing.T, g *ground)) {
	t.Run(cgroup.LevelCgroup, func(t *testing.T) {
		checkLeaks(t)
		stateDir := t.TempDir()
		tree, err := cgroup.Discover(cgroup.Options{StateDir: stateDir})
		if errors.Is(err, cgroup.ErrUnavailable) {
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
		test(t, &ground{tree: tree, stateDir: stateDir, forker: newForker(t)})
	})
	t.Run(cgroup.LevelSession, func(t *testing.T) {
		test(t, onSessions(t))
	})
}

// onSessions is the ground that every machine offers, and checks too that nothing
// is left behind.
func onSessions(t *testing.T) *ground {
	t.Helper()
	checkLeaks(t)
	return &ground{forker: newForker(t)}
}

// newForker is closed with the test.
func newForker(t *testing.T) *Forker {
	t.Helper()
	f := NewForker("")
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// group makes the group of the next generation of l and puts both into l.
func (g *ground) group(t *testing.T, l *Launch) {
	t.Helper()
	g.next++
	l.Generation = g.next
	// The test's directory makes the marks unique on the box.
	mark := "USHER_TEST=" + filepath.Base(t.TempDir()) + t.Name()
	marks := []string{GenerationVariable + "=" + strconv.FormatUint(l.Generation, 10), mark}
	l.Env = append(l.Env, marks...)
	if g.tree == nil {
		l.Group = cgroup.NewSession(marks)
		return
	}
	group, err := g.tree.New("test", l.Generation, cgroup.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	l.Group = group
	t.Cleanup(func() {
		if err := group.Remove(); err != nil {
			t.Error(err)
		}
	})
}

// app is a Launch of this test binary in a mode of runApp.
func app(t *testing.T, mode ...string) Launch {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Launch{App: "test", Dir: t.TempDir(), Path: self, Args: append([]string{"test-app", "app"}, mode...), LogPath: filepath.Join(t.TempDir(), "log")}
}

// script is a Launch of a shell script.
func script(t *testing.T, text string) Launch {
	t.Helper()
	return Launch{App: "test", Dir: t.TempDir(), Path: "/bin/sh", Args: []string{"sh", "-c", text}, Env: []string{"PATH=" + os.Getenv("PATH")}, LogPath: filepath.Join(t.TempDir(), "log")}
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func mustPrepare(t *testing.T, g *ground, l Launch) *Pending {
	t.Helper()
	p, err := g.forker.Prepare(soon(t), l)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// mustStart starts the launch in a group of its own and ends it with the test.
func mustStart(t *testing.T, g *ground, l *Launch) *Process {
	t.Helper()
	g.group(t, l)
	p, err := mustPrepare(t, g, *l).Go(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mustStop(t, p, l.Group, 0) })
	return p
}

func mustStop(t *testing.T, p *Process, group cgroup.Group, grace time.Duration) StopReport {
	t.Helper()
	r := Stop(soon(t), p, group, grace)
	if !r.Empty || r.Err != nil {
		t.Errorf("stop: %+v", r)
	}
	return r
}

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

func waitExit(t *testing.T, p *Process) ExitStatus {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("did not exit within 20 s")
	}
	return p.Exit()
}

// output waits until the log of l holds text and returns the log.
func output(t *testing.T, l Launch, text string) string {
	t.Helper()
	var log string
	eventually(t, fmt.Sprintf("%q in the log", text), func() bool {
		raw, _ := os.ReadFile(l.LogPath)
		log = string(raw)
		return strings.Contains(log, text)
	})
	return log
}

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
	st, err := cgroup.ReadStat(pid)
	return err == nil && !st.Dead
}

// innocent starts a process that is none of usher's.
func innocent(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// checkLeaks compares descriptors and children before and after the test.
func checkLeaks(t *testing.T) {
	t.Helper()
	// The runtime's poller opens descriptors at its first use.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	w.Close()
	before := openFiles(t)
	t.Cleanup(func() {
		if left := cgroup.Children(os.Getpid()); len(left) != 0 {
			t.Errorf("children left behind: %+v", left)
		}
		// Watchers close their descriptor a moment after they said Done.
		eventually(t, fmt.Sprintf("descriptors back to %v", before), func() bool { return len(openFiles(t)) <= len(before) })
	})
}

func openFiles(t *testing.T) []string {
	t.Helper()
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return names
}

// copySelf puts a copy of this test binary into dir, as a build would be staged.
func copySelf(t *testing.T, dir, name string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), raw, 0o755); err != nil {
		t.Fatal(err)
	}
}
