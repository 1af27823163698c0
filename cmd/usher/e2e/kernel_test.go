package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/admin"
)

// These tests need a kernel that holds apps to their limits; the one of .ci/vm does.
// What harms the app is asked for with POST: a GET may be tried again, and would harm
// the next one too. They run one after the other: an emulated machine is slow enough.

const (
	mib         = 1 << 20
	outOfMemory = "killed by the kernel: out of memory (limit 64 MiB)"
)

// heldApp is an app that is held to 64 MiB.
func heldApp(lines ...string) app {
	return app{lines: append(lines, `limits = { memory = "64MiB", pids = 100 }`, `drain_timeout = "1s"`, `stop_timeout = "1s"`)}
}

// startBeside starts a usher with the app and one beside it, which must not be
// harmed, and returns the pid of that.
func startBeside(t *testing.T, a app) (*usher, int) {
	t.Helper()
	u := start(t, options{apps: []app{a, {name: "beside", lines: []string{`limits = { memory = "256MiB" }`}}}})
	switch l := u.status("beside").Limits; {
	case l == nil:
		t.Fatal("status knows no limits of an app that has some")
	case l.Level == "none":
		t.Skipf("needs the memory and pids controllers in cgroup v2, which make vm-test has: %s", l.Problem)
	}
	return u, u.pid("beside")
}

// unharmed: usher and the app beside are the processes that they were.
func (u *usher) unharmed(beside int) {
	u.t.Helper()
	if !u.running() {
		u.t.Fatalf("usher is gone:\n%s", u.logTail(20))
	}
	if pid := u.pid("beside"); pid != beside {
		u.t.Errorf("the app beside was pid %d and is %d", beside, pid)
	}
}

// memoryMax is what the kernel holds all generations of an app to together, and in
// MiB each of them.
func (u *usher) memoryMax(name string) (all string, each []string) {
	dir := filepath.Join(u.tree(), name)
	for _, group := range append([]string{dir}, below(dir, "*")...) {
		raw, _ := os.ReadFile(filepath.Join(group, "memory.max")) // gone: not what was expected
		text := strings.TrimSpace(string(raw))
		if n, err := strconv.ParseUint(text, 10, 64); err == nil {
			text = fmt.Sprintf("%d MiB", n/mib)
		}
		each = append(each, text)
	}
	return each[0], each[1:]
}

// awaitMemory waits until the kernel holds the app to so much, and so many
// generations to 64 MiB each.
func (u *usher) awaitMemory(want string, generations int) {
	u.t.Helper()
	u.eventually(20*time.Second, fmt.Sprintf("%d generations have %s together", generations, want), func() error {
		all, each := u.memoryMax("hello")
		if all != want || len(each) != generations || strings.Count(strings.Join(each, ","), "64 MiB") != generations {
			return fmt.Errorf("all have %s, each has %v", all, each)
		}
		return nil
	})
}

func TestTheKernelKillsAnAppThatTakesTooMuchMemoryAndUsherSaysSo(t *testing.T) {
	u, beside := startBeside(t, heldApp())
	first := u.pid("hello")
	u.awaitMemory("64 MiB", 1)
	if a := send(u.client, http.MethodPost, "hello", "/allocate?mib=200", ""); a.status != http.StatusBadGateway || !strings.HasPrefix(a.header.Get("Proxy-Status"), "usher; error=") {
		t.Errorf("the request that took too much: %s, %v", a, a.header)
	}
	s := u.awaitStatus("hello", 10*time.Second, "seen to be gone", func(s admin.AppStatus) bool {
		return s.LastOutcome != nil && s.LastOutcome.Exit != nil
	})
	if x := s.LastOutcome.Exit; x.Text != outOfMemory || x.Signal != "killed" || x.OOMKills != 1 || x.OOMLimit != 64*mib {
		t.Errorf("status tells of the exit %+v", x)
	}
	if out := u.must("status", "hello").stdout; !strings.Contains(out, "  "+outOfMemory+"\n") {
		t.Errorf("usher status does not say it:\n%s", out)
	}
	events := u.must("events", "hello").stdout
	for _, want := range []string{"the process ended by itself: " + outOfMemory, "the kernel killed a process of it: out of memory (limit 64 MiB)"} {
		if !strings.Contains(events, want) || !strings.Contains(u.logTail(50), want) {
			t.Errorf("events or log do not say %q:\n%s\n%s", want, events, u.logTail(50))
		}
	}
	if m, err := u.metrics(); err != nil || m.sum("usher_oom_kills_total", `app="hello"`) != 1 || m.sum("usher_oom_kills_total") != 1 {
		t.Errorf("the metric has %v of %v (%v)", m.sum("usher_oom_kills_total", `app="hello"`), m.sum("usher_oom_kills_total"), err)
	}
	if again := u.pid("hello"); again == first {
		t.Errorf("pid %d answers still", again)
	}
	u.unharmed(beside)
}

func TestTheKernelGivesTwoGenerationsTheMemoryOfTwoAndTakesItBack(t *testing.T) {
	u, beside := startBeside(t, heldApp())
	first := u.pid("hello")

	// The successor is killed for its own limit, though all of them have room.
	r := u.cli("deploy", "hello", hello(t, "v2", "allocate=100"))
	if r.code != 1 || !strings.Contains(r.stderr, "the process: "+outOfMemory) {
		t.Errorf("deploy of a build that takes too much: exit code %d\n%s", r.code, r.stderr)
	}
	if o := u.status("hello").LastOutcome; o == nil || o.Outcome != "failed" || o.Reason != "the process ended before it was healthy: "+outOfMemory {
		t.Errorf("the outcome is %+v", o)
	}
	if pid := u.pid("hello"); pid != first {
		t.Errorf("the incumbent was pid %d, now it is %d", first, pid)
	}
	u.awaitMemory("64 MiB", 1)

	deployed := u.cliAsync("deploy", "hello", hello(t, "v2", "slow-start=3s"))
	u.awaitMemory("128 MiB", 2)
	if r := <-deployed; r.code != 0 {
		t.Errorf("deploy: exit code %d\n%s", r.code, r.stderr)
	}
	u.awaitMemory("64 MiB", 1)
	if body := ok(t, u.get("hello", "/version")).body; body != "v2\n" {
		t.Errorf("%q serves", body)
	}
	u.unharmed(beside)
}

func TestTheKernelRefusesAnAppMoreProcessesThanItMayHave(t *testing.T) {
	u, beside := startBeside(t, app{lines: []string{`limits = { memory = "256MiB", pids = 60 }`, `stop_timeout = "1s"`}})
	u.pid("hello")
	_, run := u.record("hello")
	group := fmt.Sprint(run["cgroup"])
	// Each has several threads, which count too. The app may answer that it could not
	// start them, or end because it cannot have the threads that it needs itself.
	a := send(u.client, http.MethodPost, "hello", "/children?n=100", "")
	if a.err != nil || a.status != http.StatusInternalServerError && a.status != http.StatusBadGateway {
		t.Errorf("100 children where 60 processes and threads may be: %s", a)
	}
	if raw, err := os.ReadFile(filepath.Join(group, "pids.events")); err == nil && strings.Contains(string(raw), "max 0") {
		t.Errorf("nothing was refused: %s", raw)
	}
	u.unharmed(beside)
	if err := exec.Command("true").Run(); err != nil {
		t.Errorf("nobody else can fork: %v", err)
	}
	u.eventually(20*time.Second, "the app goes on", func() error {
		if a := u.get("hello", "/pid"); a.status != http.StatusOK {
			return fmt.Errorf("it answers %s", a)
		}
		return nil
	})
}

// The kernel gives an app's generations no controller while a process is in the
// group that they share.
func TestTheKernelRefusesALimitAndTheAttemptIsAbandoned(t *testing.T) {
	free := app{lines: []string{`drain_timeout = "1s"`}}
	u, beside := startBeside(t, free)
	first := u.pid("hello")
	squatter := exec.Command("sleep", "600")
	if err := squatter.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = squatter.Process.Kill()
		_ = squatter.Wait()
	}()
	procs := filepath.Join(u.tree(), "hello", "cgroup.procs")
	if err := os.WriteFile(procs, []byte(strconv.Itoa(squatter.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	u.reconfigure(heldApp(), app{name: "beside", lines: []string{`limits = { memory = "256MiB" }`}})
	u.must("reload")
	s := u.awaitStatus("hello", 20*time.Second, "refused", func(s admin.AppStatus) bool {
		return s.LastOutcome != nil && s.LastOutcome.Outcome == "abandoned"
	})
	if o := s.LastOutcome; !strings.HasPrefix(o.Reason, "limit not applied: ") || !strings.Contains(o.Reason, "device or resource busy") || o.Executed || s.Failures != 0 {
		t.Errorf("the outcome is %+v with %d failures", o, s.Failures)
	}
	if pid := u.pid("hello"); pid != first {
		t.Errorf("the incumbent was pid %d, now it is %d", first, pid)
	}
	if err := squatter.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	u.awaitStatus("hello", time.Minute, "tried again", func(s admin.AppStatus) bool { return s.Reported == 2 })
	u.awaitMemory("64 MiB", 1)
	u.unharmed(beside)
}
