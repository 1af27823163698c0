package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/usher-edge/usher/admin"
)

// swapUnderLoad swaps again and again, and expects of every request that was
// sent after a report that the reported generation, or a newer one, answered.
func swapUnderLoad(t *testing.T, u *usher, swaps int, build func(i int) string) {
	t.Helper()
	ok(t, u.get("hello", "/"))
	run := u.load(150, "hello")
	for i := range swaps {
		s := u.deploy("hello", build(i))
		if s.State != admin.Awake || s.Generation == 0 {
			t.Fatalf("after swap %d it is %s, generation %d", i+1, s.State, s.Generation)
		}
		run.ExpectGeneration(s.Generation)
		if a := ok(t, u.get("hello", "/")); a.generation != s.Generation {
			t.Fatalf("after swap %d generation %d answers, want %d", i+1, a.generation, s.Generation)
		}
	}
	res := lossless(t, run)
	if len(res.Generations) < swaps/2 {
		t.Errorf("%d generations answered the load in %d swaps: %+v", len(res.Generations), swaps, res.Generations)
	}
}

func TestTwentyOverlapSwapsUnderLoadLoseNothing(t *testing.T) {
	u := start(t, options{})
	swapUnderLoad(t, u, rounds(20, 100), func(i int) string { return hello(t, fmt.Sprint("v", 1+i%2)) })
}

func TestTwentyHoldSwapsUnderLoadLoseNothing(t *testing.T) {
	u := start(t, options{apps: []app{{hold: true}}})
	swapUnderLoad(t, u, rounds(20, 100), func(i int) string { return hello(t, fmt.Sprint("v", 1+i%2)) })
}

// O09: the old process closes its listener, and everything else, the moment it
// gets SIGTERM.
func TestSwapsLoseNothingThoughTheOldOneClosesItsListenerAtTERM(t *testing.T) {
	for _, mode := range []string{"overlap", "hold"} {
		t.Run(mode, func(t *testing.T) {
			u := start(t, options{apps: []app{{hold: mode == "hold", artifact: hello(t, "v1", "close-on-term")}}})
			swapUnderLoad(t, u, rounds(5, 20), func(i int) string { return hello(t, fmt.Sprint("v", 1+i%2), "close-on-term") })
		})
	}
}

// O01: the successor answers everything with 503 for a while.
func TestASuccessorGetsNoRequestBeforeItsFirstGoodCheck(t *testing.T) {
	t.Parallel()
	u := start(t, options{})
	run := u.load(50, "hello")
	u.deploy("hello", hello(t, "v2", "boot503=800ms"))
	lossless(t, run)
}

// O10, and invariant I4 to the letter: old connections and cached pages too.
func TestAfterADeployIsReportedOnlyTheNewRevisionAnswers(t *testing.T) {
	for _, mode := range []string{"overlap", "hold"} {
		t.Run(mode, func(t *testing.T) {
			u := start(t, options{apps: []app{{hold: mode == "hold", cache: true}}})
			lanes := make([]*lane, 10)
			for i := range lanes {
				lanes[i] = u.lane()
				ok(t, lanes[i].get("hello", "/version"))
				ok(t, lanes[i].get("hello", "/cached"))
			}
			for round := range rounds(25, 200) {
				version := fmt.Sprint("v", 1+(round+1)%2)
				s := u.deploy("hello", hello(t, version))
				for i, l := range lanes {
					cold := l.get("hello", "/cached")
					for _, a := range []answer{l.get("hello", "/version"), l.send(http.MethodPost, "hello", "/version", "x"), cold, l.get("hello", "/cached")} {
						if a.err != nil || a.status != 200 || a.generation != s.Generation || !strings.Contains(a.body, version) {
							t.Fatalf("round %d, connection %d: want %s of generation %d, got %s", round, i, version, s.Generation, a)
						}
					}
					if a := l.get("hello", "/cached"); !strings.Contains(a.header.Get("Cache-Status"), "hit") {
						t.Fatalf("round %d: the cache was not asked: %q", round, a.header.Get("Cache-Status"))
					}
				}
			}
		})
	}
}

// S02, S03.
func TestAWebSocketLivesThroughAnOverlapSwapUntilTheDrainEnds(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{lines: []string{`drain_timeout = "6s"`, `close_spread = "1s"`}}}})
	c := u.webSocket("hello")
	if err := echo(c, "before"); err != nil {
		t.Fatal(err)
	}
	if s := u.status("hello"); s.InFlight != 1 {
		t.Errorf("an open WebSocket counts as %d in flight", s.InFlight)
	}
	begun := time.Now()
	s := u.deploy("hello", hello(t, "v2"))
	if retiring := roles(s)["retiring"]; retiring != 1 {
		t.Fatalf("want one retiring generation, have %+v", s.Generations)
	}
	for time.Since(begun) < 2500*time.Millisecond {
		if err := echo(c, "while it drains"); err != nil {
			t.Fatalf("%s after the swap began: %v", time.Since(begun), err)
		}
		pass(50 * time.Millisecond)
	}
	code, err := closing(c, 5*time.Second)
	took := time.Since(begun)
	if code != websocket.StatusServiceRestart {
		t.Errorf("want close 1012, got %d, %v", code, err)
	}
	if took < 5*time.Second || took > 20*time.Second {
		t.Errorf("closed %s after the swap began, with a drain of 6s and a spread of 1s", took)
	}
	fresh := u.webSocket("hello")
	if err := echo(fresh, "after"); err != nil {
		t.Error(err)
	}
	u.awaitStatus("hello", 5*time.Second, "rid of the old one", func(s admin.AppStatus) bool { return len(s.Generations) == 1 })
}

func roles(s admin.AppStatus) map[string]int {
	m := map[string]int{}
	for _, g := range s.Generations {
		m[g.Role]++
	}
	return m
}

// crashes dies before it can be reached.
const crashes = "crash=100ms,slow-start=9s"

// failure is a build that cannot start, and what its deploy must tell.
type failure struct {
	behaviour string
	tells     []string // all on stderr
}

func failures() []failure {
	return []failure{
		{crashes, []string{"exit status 1", "crashes after 100ms, as it was told to"}},
		{"crash,slow-start=9s", []string{"exit status 1", "crashes after 0s, as it was told to"}},
		{"hang", []string{"3s", "refused"}},
		{"never-healthy", []string{"3s", "503", "listens on"}},
	}
}

func (f failure) check(t *testing.T, r result) {
	t.Helper()
	if r.code != 1 {
		t.Errorf("%s: want exit code 1, got %d", f.behaviour, r.code)
	}
	for _, words := range f.tells {
		if !strings.Contains(r.stderr, words) {
			t.Errorf("%s: stderr does not tell %q:\n%s", f.behaviour, words, r.stderr)
		}
	}
	if r.stdout != "" {
		t.Errorf("%s: a failure on stdout: %q", f.behaviour, r.stdout)
	}
}

func TestABuildThatFailsToStartLeavesTheIncumbentServing(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{health: []string{`timeout = "3s"`}}}})
	run := u.load(50, "hello")
	before := u.awaitState("hello", admin.Awake, 10*time.Second)
	for i, f := range failures() {
		r := u.cli("deploy", "hello", hello(t, "v2", f.behaviour))
		f.check(t, r)
		if !strings.Contains(r.stderr, fmt.Sprintf("revision 1, generation %d, is still serving", before.Generation)) {
			t.Errorf("%s: stderr does not tell what serves:\n%s", f.behaviour, r.stderr)
		}
		s := u.awaitStatus("hello", 5*time.Second, "rid of the failed one", func(s admin.AppStatus) bool { return len(s.Generations) == 1 })
		if s.PID != before.PID || s.State != admin.Awake || s.Revision != 1 || s.Desired != uint64(i+2) || s.Reported != 1 {
			t.Errorf("%s: %+v", f.behaviour, s)
		}
		if g := u.generationsOf("hello"); len(g) != 1 {
			t.Errorf("%s: generations that live: %v", f.behaviour, g)
		}
	}
	lossless(t, run)
}

// O02.
func TestASuccessorThatIsReadyTooLateIsToldFromOneThatFails(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{health: []string{`timeout = "1s"`}}}})
	run := u.load(50, "hello")
	u.awaitState("hello", admin.Awake, 10*time.Second)
	r := u.cli("deploy", "hello", hello(t, "v2", "boot503=1300ms"))
	failure{"ready 300 ms too late", []string{"not healthy within 1s", "503"}}.check(t, r)
	u.awaitStatus("hello", 5*time.Second, "rid of it", func(s admin.AppStatus) bool { return len(s.Generations) == 1 })
	lossless(t, run)
}

// H04.
func TestAHoldThatFailsIsDownUntilTheNextDeploy(t *testing.T) {
	t.Parallel()
	for _, f := range failures()[:1] {
		u := start(t, options{apps: []app{{hold: true, health: []string{`timeout = "3s"`}}}})
		ok(t, u.get("hello", "/"))
		r := u.cli("deploy", "hello", hello(t, "v2", f.behaviour))
		f.check(t, r)
		if !strings.Contains(r.stderr, "nothing served hello when it failed") {
			t.Errorf("stderr does not tell that nothing serves:\n%s", r.stderr)
		}
		s := u.status("hello")
		if s.State != admin.Down || s.Reason == "" || s.LastOutcome == nil || s.LastOutcome.Outcome != "down" {
			t.Errorf("want it down for a reason, got %s %q %+v", s.State, s.Reason, s.LastOutcome)
		}
		for range 3 {
			a := u.get("hello", "/")
			if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" || a.took > 10*time.Second {
				t.Errorf("want 503 with Retry-After at once, got %s, %q", a, a.header.Get("Retry-After"))
			}
		}
		u.deploy("hello", hello(t, "v3"))
		if a := ok(t, u.get("hello", "/version")); a.body != "v3\n" {
			t.Errorf("the next deploy does not lift it: %s", a)
		}
	}
}

func TestAHoldThatFailsStartsThePreviousBuildIfTheSpecSaysSo(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{hold: true, lines: []string{`fallback = "previous"`}}}})
	run := u.load(30, "hello")
	before := u.awaitState("hello", admin.Awake, 10*time.Second)
	r := u.cli("deploy", "hello", hello(t, "v2", crashes))
	if r.code != 1 || !strings.Contains(r.stderr, "restored") {
		t.Errorf("want exit code 1 and that the build of before was restored, got %d:\n%s", r.code, r.stderr)
	}
	s := u.status("hello")
	for _, says := range []string{"see usher logs hello --generation 2", fmt.Sprintf("the build of before serves again, as revision %d, generation %d", s.Revision, s.Generation)} {
		if !strings.Contains(r.stderr, says) {
			t.Errorf("it does not say %q:\n%s", says, r.stderr)
		}
	}
	if s.Build != before.Build || s.Revision <= 2 || s.Reported != s.Revision {
		t.Errorf("want the build of before, %s, in a revision of its own; got %s in %d, reported %d", before.Build, s.Build, s.Revision, s.Reported)
	}
	if a := ok(t, u.get("hello", "/version")); a.body != "v1\n" {
		t.Errorf("want v1, got %s", a)
	}
	lossless(t, run)
}

func TestASupersededDeployExits4(t *testing.T) {
	t.Parallel()
	for _, hold := range []bool{false, true} {
		u := start(t, options{apps: []app{{hold: hold}}})
		run := u.load(50, "hello")
		u.awaitState("hello", admin.Awake, 10*time.Second)
		first := u.cliAsync("deploy", "hello", hello(t, "v2", "slow-start=20s"))
		u.awaitStatus("hello", 10*time.Second, "starting v2", func(s admin.AppStatus) bool { return s.Desired == 2 && roles(s)["successor"] == 1 })
		s := u.deploy("hello", hello(t, "v3"))
		r := <-first
		if r.code != 4 || !strings.Contains(r.stderr, "superseded") {
			t.Errorf("want exit code 4 and why, got %d:\n%s", r.code, r.stderr)
		}
		if r.took > 15*time.Second {
			t.Errorf("the superseded deploy was told after %s", r.took)
		}
		if s.Revision != 3 || s.Reported != 3 {
			t.Errorf("want revision 3, got %+v", s)
		}
		if a := ok(t, u.get("hello", "/version")); a.body != "v3\n" {
			t.Errorf("want v3, got %s", a)
		}
		u.awaitOne("hello", s.PID)
		lossless(t, run)
	}
}

// awaitOne waits until the app's only process is that one.
func (u *usher) awaitOne(name string, pid int) {
	u.t.Helper()
	u.eventually(10*time.Second, "one process", func() error {
		g := u.generationsOf(name)
		for _, pids := range g {
			if len(g) == 1 && len(pids) == 1 && pids[0] == pid {
				return nil
			}
		}
		return fmt.Errorf("want pid %d, live: %v", pid, g)
	})
}

// O06.
func TestTwoDeploysAtOnceEndWithOneProcessAndTheBuildThatWasReported(t *testing.T) {
	t.Parallel()
	u := start(t, options{})
	ok(t, u.get("hello", "/"))
	builds := []string{hello(t, "v2"), hello(t, "v3")}
	for round := range rounds(5, 50) {
		a, b := u.cliAsync("deploy", "hello", builds[0]), u.cliAsync("deploy", "hello", builds[1])
		ra, rb := <-a, <-b
		won := 0
		for _, r := range []result{ra, rb} {
			switch r.code {
			case 0:
				won++
			case 4:
			default:
				t.Fatalf("round %d: exit code %d\n%s", round, r.code, r.stderr)
			}
		}
		s := u.status("hello")
		if won == 0 || s.Revision != s.Desired || s.Reported != s.Desired {
			t.Fatalf("round %d: %d succeeded, and the status is %+v", round, won, s)
		}
		pid := ok(t, u.get("hello", "/pid"))
		if strings.TrimSpace(pid.body) != fmt.Sprint(s.PID) || pid.generation != s.Generation {
			t.Fatalf("round %d: want pid %d of generation %d, got %s", round, s.PID, s.Generation, pid)
		}
		u.awaitOne("hello", s.PID)
	}
}

// O07.
func TestTheResultOfADeployIsWhatServes(t *testing.T) {
	t.Parallel()
	u := start(t, options{})
	ok(t, u.get("hello", "/"))
	builds := []string{hello(t, "v2"), hello(t, "v2", "hang,crash"), hello(t, "v3"), hello(t, "v3", crashes)}
	serving := "v1\n"
	for i := range rounds(8, 50) {
		build := builds[i%len(builds)]
		r := u.cli("deploy", "hello", build)
		if want := i % 2; r.code != want {
			t.Fatalf("deploy %d: want exit code %d, got %d\n%s", i, want, r.code, r.stderr)
		}
		if r.code == 0 {
			serving = map[int]string{0: "v2\n", 2: "v3\n"}[i%4]
		}
		s := u.status("hello")
		if a := ok(t, u.get("hello", "/version")); a.body != serving || a.generation != s.Generation {
			t.Fatalf("deploy %d ended with %d, and generation %d is current: got %s", i, r.code, s.Generation, a)
		}
	}
}
