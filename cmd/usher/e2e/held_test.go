package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/admin"
)

// noProgram is a build that passes whatever is asked before it runs, and cannot.
func noProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "no-program")
	if err := os.WriteFile(path, []byte("neither a program nor a script\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// withoutCommand is a build that lacks the file that it is to run: that is found before
// anything is stopped for it.
func withoutCommand(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "empty")
	files(t, dir, map[string]os.FileMode{"readme": 0o644}, []byte("nothing to run\n"))
	return dir
}

// Nothing was stopped and nothing ran: what is good is woken as if nobody had deployed.
func TestAHoldOfAnAppThatSleepsWithNothingToRunLeavesItAsleep(t *testing.T) {
	t.Parallel()
	whole := filepath.Join(t.TempDir(), "whole")
	program, err := os.ReadFile(hello(t, "v1"))
	if err != nil {
		t.Fatal(err)
	}
	files(t, whole, map[string]os.FileMode{"server": 0o755}, program)
	u := start(t, options{apps: []app{{hold: true, artifact: whole, lines: []string{`command = ["./server"]`}}}})
	ok(t, u.get("hello", "/"))
	u.sleep("hello")
	u.awaitState("hello", admin.Asleep, 10*time.Second)
	u.exits(1, "/server: not found", "deploy", "hello", withoutCommand(t))
	s := u.awaitState("hello", admin.Asleep, 10*time.Second)
	if o := s.LastOutcome; o == nil || o.Outcome != "failed" || o.Executed || o.Mode != "hold" {
		t.Errorf("last outcome %+v", o)
	}
	if a := ok(t, u.get("hello", "/version")); a.body != "v1\n" {
		t.Errorf("want v1, got %s", a)
	}
}

// That it is no program shows when the incumbent is gone. Its data is as it has left it.
func TestAHoldOfWhatIsNoProgramStartsTheBuildOfBeforeAgain(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{hold: true}}})
	run := u.load(30, "hello")
	before := u.awaitState("hello", admin.Awake, 10*time.Second)
	u.exits(1, "it is neither a program of this machine nor a script", "deploy", "hello", noProgram(t))
	s := u.awaitStatus("hello", 10*time.Second, "awake again", func(s admin.AppStatus) bool {
		return s.State == admin.Awake && s.Generation > before.Generation
	})
	if s.Build != before.Build || s.Revision != 1 || s.Desired != 2 || s.Failures != 1 {
		t.Errorf("want revision 1 in the place of 2, got %+v", s)
	}
	lossless(t, run)
	rc := u.receipt("hello", before.Generation+1)
	if rc.Outcome != "failed" || rc.Executed || rc.Mode != "hold" || rc.Counts.Refused != 0 {
		t.Errorf("receipt %+v, %+v", rc, *rc.Counts)
	}
	u.kill()
	u.serve()
	if a := ok(t, u.get("hello", "/version")); a.body != "v1\n" {
		t.Errorf("want v1, got %s", a)
	}
}

// v2 ran and failed. That v3 was committed says nothing about v1, which would start on
// what v2 may have changed; a rollback does, because its owner asks for it.
func TestWhatAFailedHoldHasLeftIsNotLiftedByABuildThatCannotRun(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{hold: true}}})
	ok(t, u.get("hello", "/"))
	down := func(what string) {
		t.Helper()
		if a, want := u.get("hello", "/"), u.oneStart("hello"); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") != want {
			t.Errorf("%s: want 503 with Retry-After %s, got %s with %q", what, want, a, a.header.Get("Retry-After"))
		}
		s := u.awaitState("hello", admin.Down, 10*time.Second)
		if !strings.HasPrefix(s.Reason, "held down: ") || !strings.Contains(s.Reason, "usher rollback hello") {
			t.Errorf("%s: reason %q", what, s.Reason)
		}
		if left := u.processes(); len(left) > 0 {
			t.Errorf("%s: it was started: %v", what, left)
		}
	}
	u.exits(1, "nothing served hello when it failed", "deploy", "hello", hello(t, "v2", crashes))
	down("v2 ran and failed")
	u.exits(1, "it is neither a program of this machine nor a script", "deploy", "hello", noProgram(t))
	down("v3 is no program")
	u.kill()
	u.serve()
	down("after a crash of usher")
	u.must("rollback", "hello")
	if a := ok(t, u.get("hello", "/version")); a.body != "v1\n" {
		t.Errorf("want v1, got %s", a)
	}
}

// Whoever waits when the build fails waits on for the build of before, which the spec
// asks for: a swap loses nothing, also one that comes to nothing.
func TestWhoIsParkedForABuildThatFailsIsServedByTheFallback(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{hold: true, lines: []string{`fallback = "previous"`}}}})
	ok(t, u.get("hello", "/"))
	deployed := u.cliAsync("deploy", "hello", hello(t, "v2", "crash=3s,slow-start=60s"))
	u.awaitState("hello", admin.Holding, 20*time.Second)
	const many = 20
	parked := make(chan []answer, 1)
	go func() { parked <- together(many, func(int) answer { return u.get("hello", "/version") }) }()
	u.awaitStatus("hello", 10*time.Second, "parking all", func(s admin.AppStatus) bool { return s.Parked == many && s.Generation == 0 })
	if r := <-deployed; r.code != 1 || !strings.Contains(r.stderr, "restored") {
		t.Errorf("want exit code 1 and that the build of before was restored, got %d:\n%s", r.code, r.stderr)
	}
	s := u.status("hello")
	for _, a := range <-parked {
		if a.err != nil || a.status != http.StatusOK || a.body != "v1\n" || a.generation != s.Generation {
			t.Errorf("want v1 of generation %d, got %s of generation %d", s.Generation, a, a.generation)
		}
	}
	rc := u.receipt("hello", 2)
	if rc.Outcome != "down" || rc.Counts.Accepted != many || rc.Counts.Refused != 0 {
		t.Errorf("receipt of the build that failed: %+v, %+v", rc, *rc.Counts)
	}
}

// The owner asks for the fallback while it starts, and usher is killed in that: it is
// what was asked for, and not what was restored.
func TestARetryOfAFallbackIsDoneThoughUsherIsKilledInIt(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{hold: true, artifact: hello(t, "v1", "slow-start=3s"), lines: []string{`fallback = "previous"`}}}})
	ok(t, u.get("hello", "/"))
	deployed := u.cliAsync("deploy", "hello", hello(t, "v2", crashes))
	starting := func(attempt uint64) {
		t.Helper()
		u.awaitStatus("hello", 20*time.Second, "starting the fallback", func(s admin.AppStatus) bool {
			return slices.ContainsFunc(s.Generations, func(g admin.GenerationStatus) bool {
				return g.Revision == 3 && g.State == "checking" && g.Number >= attempt
			})
		})
	}
	starting(3)
	asked := u.cliAsync("restart", "hello", "--retry")
	starting(4)
	<-deployed // its fallback was superseded
	u.kill()
	u.serve()
	if r := <-asked; r.code != 0 || !strings.Contains(r.stdout, "hello: restart done") {
		t.Errorf("want exit code 0, got %d:\n%s%s", r.code, r.stdout, r.stderr)
	}
	s := u.awaitState("hello", admin.Awake, 20*time.Second)
	if o := s.LastOutcome; o == nil || o.Outcome != "done" || o.Revision != 3 || s.Reported != 3 {
		t.Errorf("last outcome %+v; %+v", o, s)
	}
	if rc := u.receipt("hello", s.Generation); rc.Outcome != "done" {
		t.Errorf("receipt %+v", rc)
	}
}
