package e2e

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/usher-edge/usher/admin"
)

// expect checks that all answers are good ones of that version.
func expect(t *testing.T, answers []answer, body string) {
	t.Helper()
	for i, a := range answers {
		if a.err != nil || a.status != http.StatusOK || body != "" && a.body != body {
			t.Fatalf("request %d of %d: %s", i, len(answers), a)
		}
	}
}

// W18, W19.
func TestRequestsThatComeTogetherShareOneStart(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{
		artifact: hello(t, "v1", "slow-start=500ms"),
		lines:    []string{`hosts = ["hello.localhost", "other.localhost"]`},
	}}})
	answers := together(200, func(i int) answer { return u.get([]string{"hello", "other"}[i%2], "/pid") })
	expect(t, answers, answers[0].body)
	u.awaitStarts("hello", 1)
}

// W19.
func TestOnlyWhatIsAboveTheParkLimitIsRefusedAndAtOnce(t *testing.T) {
	t.Parallel()
	const limit, excess = 150, 50
	u := start(t, options{apps: []app{{
		artifact: hello(t, "v1", "slow-start=6s"), lines: []string{fmt.Sprintf("park_limit = %d\npark_limit_per_client = %[1]d", limit)},
	}}})
	answers := make(chan answer, limit+excess)
	for range limit + excess {
		go func() { answers <- u.get("hello", "/") }()
	}
	count := func(n, status int) {
		t.Helper()
		for range n {
			if a := <-answers; a.err != nil || a.status != status || status != http.StatusOK && a.header.Get("Retry-After") == "" {
				t.Errorf("want status %d (503 with Retry-After), got %s", status, a)
			}
		}
	}
	count(excess, http.StatusServiceUnavailable)
	if s := u.status("hello"); s.State != admin.Waking || s.Parked != limit {
		t.Errorf("when the excess was refused the app was %s with %d parked, want %d that wait for its start", s.State, s.Parked, limit)
	}
	count(limit, http.StatusOK)
}

// W02.
func TestARequestThatWasParkedTooLongGivesItsPlaceBack(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{
		artifact: hello(t, "v1", "slow-start=8s"), lines: []string{"park_limit = 5", "park_limit_per_client = 5", `park_timeout = "500ms"`},
	}}})
	for range 2 { // the second time the places of the first are needed
		for _, a := range together(5, func(int) answer { return u.get("hello", "/") }) {
			if a.status != http.StatusServiceUnavailable && a.status != http.StatusGatewayTimeout || a.took < 450*time.Millisecond {
				t.Errorf("want a place in the lot and, after 500ms, to be told of the end of the wait; got %s", a)
			}
		}
	}
	u.awaitState("hello", admin.Awake, 5*time.Second)
	ok(t, u.get("hello", "/"))
}

// W01, W26: they gave up while they were parked.
func TestAClientThatGivesUpWhileParkedIsNotForwarded(t *testing.T) {
	t.Parallel()
	u := prepare(t, options{})
	count := u.counted()
	u.configure(options{apps: []app{{artifact: hello(t, "v1", "slow-start=6s"), env: map[string]string{"COUNT_FILE": string(count)}}}})
	u.begin()
	client := u.newClient()
	leave, giveUp := context.WithCancel(t.Context())
	answers := make(chan []answer, 1)
	go func() {
		answers <- together(50, func(i int) answer {
			ctx := t.Context()
			if i >= 5 {
				ctx = leave
			}
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, url("hello", fmt.Sprint("/count?id=", i)), strings.NewReader("x"))
			if err != nil {
				return answer{err: err}
			}
			return do(client, req)
		})
	}()
	u.awaitStatus("hello", 5*time.Second, "parking 50", func(s admin.AppStatus) bool { return s.Parked == 50 })
	giveUp()
	u.awaitStatus("hello", 5*time.Second, "parking 5", func(s admin.AppStatus) bool { return s.Parked == 5 })
	got := <-answers
	expect(t, got[:5], "")
	for _, a := range got[5:] {
		if a.err == nil {
			t.Errorf("it should have given up: %s", a)
		}
	}
	if lines := count.lines(); len(lines) != 5 {
		t.Errorf("want 5 executed, have %q", lines)
	}
	u.eventually(5*time.Second, "45 are gone", func() error {
		m, err := u.metrics()
		if n := m.sum("usher_request_endings_total", `app="hello"`, `ending="gone"`); err == nil && n != 45 {
			return fmt.Errorf("%g are", n)
		}
		return err
	})
}

// W03.
func TestAnAppThatDiesWhileItStartsFailsItsRequestsAtOnce(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{artifact: hello(t, "v1", crashes)}}})
	for _, a := range together(20, func(int) answer { return u.get("hello", "/") }) {
		if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" || a.took > 20*time.Second { // it would be given 30s
			t.Errorf("want 503 with Retry-After soon after the exit, got %s", a)
		}
	}
	// Its back-off may be over by now, and with it what keeps it down.
	s := u.status("hello")
	if s.State == admin.Down && !strings.Contains(s.Reason, "exit status 1") || s.LastOutcome == nil || s.LastOutcome.Exit == nil ||
		!strings.Contains(s.LastOutcome.Reason, "exit status 1") {
		t.Errorf("status does not tell why: %s %q %+v", s.State, s.Reason, s.LastOutcome)
	}
}

// W04.
func TestOneFailedStartDoesNotStick(t *testing.T) {
	t.Parallel()
	u := prepare(t, options{})
	mark := u.dir + "/once/crashed"
	if err := os.Mkdir(u.dir+"/once", 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(u.dir+"/once", 0o777); err != nil {
		t.Fatal(err)
	}
	u.configure(options{apps: []app{{env: map[string]string{"BEHAVE": "crash-once=" + mark}}}})
	u.begin()
	if a := u.get("hello", "/"); a.status != http.StatusServiceUnavailable {
		t.Errorf("want the first to be refused, got %s", a)
	}
	u.eventually(5*time.Second, "the next request after the back-off is served", func() error {
		if a := u.get("hello", "/"); a.err != nil || a.status != http.StatusOK {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
}

// W06.
func TestIdleTimeShorterThanTheBootStopsNothingBeforeTheFirstAnswer(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{artifact: hello(t, "v1", "slow-start=1200ms"), lines: []string{`idle_timeout = "400ms"`}}}})
	ok(t, u.get("hello", "/"))
	u.awaitStarts("hello", 1)
	u.awaitState("hello", admin.Asleep, 5*time.Second)
}

// W07.
func TestTheDefaultIdleTimeIsInForceAndCanBeSeen(t *testing.T) {
	t.Parallel()
	u := start(t, options{})
	ok(t, u.get("hello", "/"))
	s := u.status("hello")
	if s.IdleInMS == nil || *s.IdleInMS < 14*60*1000 || *s.IdleInMS > 15*60*1000 {
		t.Errorf("want about 15 minutes, got %v", s.IdleInMS)
	}
}

// W08.
func TestAnAwakeAppThatWasKilledIsWokenByTheNextRequest(t *testing.T) {
	t.Parallel()
	for _, listen := range []string{"port", "socket"} {
		t.Run(listen, func(t *testing.T) {
			t.Parallel()
			u := start(t, options{apps: []app{{
				artifact: hello(t, "v1", "slow-start=300ms"), lines: []string{fmt.Sprintf("listen = %q", listen)},
			}}})
			ok(t, u.get("hello", "/"))
			for range 2 {
				s := u.status("hello")
				if listen == "socket" {
					if err := os.Remove(s.Address); err != nil {
						t.Fatal(err)
					}
				}
				if err := syscall.Kill(s.PID, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				u.awaitStatus("hello", 5*time.Second, "known to be dead", func(now admin.AppStatus) bool { return now.PID != s.PID })
				u.eventually(10*time.Second, "it serves again", func() error {
					a := u.get("hello", "/")
					if a.err != nil || a.status == http.StatusBadGateway {
						t.Fatalf("want it to wait, got %s", a)
					}
					if a.status != http.StatusOK {
						return fmt.Errorf("%s", a) // it backs off from the second quick crash on
					}
					return nil
				})
			}
		})
	}
}

// W09, W10, W11: ready is the app's word, and soon after it the request is
// answered.
func TestTheFirstRequestIsAnsweredWhenTheAppIsReadyAndNotBefore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		behaviour   string
		least, most time.Duration
	}{
		{"boot503=1s", time.Second, 1800 * time.Millisecond},
		{"slow-start=1s", time.Second, 1800 * time.Millisecond},
		{"delay=600ms", 1200 * time.Millisecond, 2400 * time.Millisecond}, // the health check takes as long as the answer
	} {
		t.Run(c.behaviour, func(t *testing.T) {
			t.Parallel()
			u := start(t, options{apps: []app{{artifact: hello(t, "v1", c.behaviour)}}})
			best := time.Hour // a busy machine makes some late, but not all of them
			for tries := 0; tries < 2 || tries < 8 && best > c.most; tries++ {
				a := ok(t, u.get("hello", "/"))
				if a.took < c.least-50*time.Millisecond {
					t.Errorf("want it after %s, got %s", c.least, a)
				}
				best = min(best, a.took)
				u.sleep("hello")
			}
			if best > c.most && !underRace {
				t.Errorf("want one of them before %s, the soonest came after %s", c.most, best)
			}
		})
	}
}

// W13, W28.
func TestWhatUsherCanAnswerItselfWakesNothing(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{cache: true}}})
	page := ok(t, u.get("hello", "/cached"))
	u.sleep("hello")
	u.awaitState("hello", admin.Asleep, 5*time.Second)
	u.awaitStarts("hello", 1)
	if a := ok(t, u.get("hello", "/cached")); a.body != page.body {
		t.Errorf("want the kept page %q, got %s", page.body, a)
	}
	if a := u.get("nobody", "/"); a.status != http.StatusNotFound || strings.Contains(a.body, "hello") {
		t.Errorf("want 404 without names, got %s", a)
	}
	for i := range 300 {
		c, err := net.Dial("tcp", u.listen)
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 1 {
			fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: hello.loc")
		}
		c.Close()
	}
	u.sleep("hello") // comes after them
	if s := u.status("hello"); s.State != admin.Asleep || u.starts("hello") != 1 {
		t.Errorf("it is %s after %d starts", s.State, u.starts("hello"))
	}
	ok(t, u.get("hello", "/"))
	u.must("reload")
	if a := ok(t, u.get("hello", "/cached")); !strings.Contains(a.header.Get("Cache-Status"), "hit") {
		t.Errorf("a sleep, a wake and a reload have emptied the cache of the release: %q", a.header.Get("Cache-Status"))
	}
}

func TestAPausedAppIsNotWokenByRequestsAndAnswersThemWhenResumed(t *testing.T) {
	t.Parallel()
	u := start(t, options{})
	u.must("pause", "hello")
	got := make(chan answer, 1)
	go func() { got <- u.get("hello", "/") }()
	u.awaitStatus("hello", 5*time.Second, "parking", func(s admin.AppStatus) bool { return s.Parked == 1 })
	if n := u.starts("hello"); n != 0 {
		t.Errorf("%d starts", n)
	}
	u.must("resume", "hello")
	ok(t, <-got)
}

// W15, W24: another port every time.
func TestEveryWakeOfAFastAppAnswersAtOnce(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{}, {name: "other", artifact: hello(t, "other")}}})
	for i := range rounds(25, 500) {
		callers := 1
		if i%5 == 4 {
			callers = 50
		}
		answers := together(callers, func(int) answer { return u.get("hello", "/version") })
		expect(t, answers, "v1\n")
		for _, a := range answers {
			if a.took > 20*time.Second { // a wake that is lost takes park_timeout, a minute
				t.Errorf("cycle %d, %d callers: %s", i, callers, a)
			}
		}
		u.sleep("hello")
	}
}

// W16: several apps, requests as near to the idle stop as can be.
func TestRequestsThatRaceTheIdleStopAreAllServed(t *testing.T) {
	t.Parallel()
	const idle = 150 * time.Millisecond
	var apps []app
	for i := range 4 {
		apps = append(apps, app{name: fmt.Sprint("app", i), lines: []string{fmt.Sprintf("idle_timeout = %q", idle)}, hold: i%2 == 1})
	}
	u := start(t, options{apps: apps})
	var all sync.WaitGroup
	for i := range apps {
		all.Go(func() {
			client := u.newClient()
			for range rounds(30, 500) {
				if a := get(client, apps[i].name, "/"); a.err != nil || a.status != http.StatusOK || a.took > 20*time.Second {
					t.Errorf("%s: %s", apps[i].name, a)
				}
				pass(idle - 10*time.Millisecond + rand.N(25*time.Millisecond))
			}
		})
	}
	all.Wait()
	for _, a := range apps {
		u.awaitState(a.name, admin.Asleep, 10*time.Second)
	}
	if total := u.starts("app0"); total < 2 {
		t.Errorf("it never slept: %d starts", total)
	}
}

// W20, W21.
func TestUshersOwnChecksDoNotKeepAnAppAwake(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{lines: []string{`idle_timeout = "600ms"`}}}})
	u.must("wake", "hello")
	u.awaitState("hello", admin.Asleep, 3*time.Second)
	u.deploy("hello", hello(t, "v2"))
	u.awaitState("hello", admin.Asleep, 3*time.Second)
	u.awaitStarts("hello", 2)
	pass(1500 * time.Millisecond)
	if s := u.status("hello"); s.State != admin.Asleep || u.starts("hello") != 2 {
		t.Errorf("it is %s after %d starts", s.State, u.starts("hello"))
	}
}

// W21: adopted after a restart of usher, without one request.
func TestAnAdoptedAppWithoutRequestsStillFallsAsleep(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{lines: []string{`idle_timeout = "6s"`}}}}) // longer than a restart
	u.must("wake", "hello")
	pid := u.status("hello").PID
	u.terminate(5 * time.Second)
	u.serve()
	if s := u.status("hello"); s.PID != pid {
		t.Errorf("pid %d was not adopted: %+v", pid, s)
	}
	u.awaitState("hello", admin.Asleep, 6*time.Second)
}

// W22.
func TestWhatIsOpenKeepsAnAppAwake(t *testing.T) {
	t.Parallel()
	const idle = 500 * time.Millisecond
	// Each opens something, leaves it open for longer than the idle time, and then
	// ends it.
	for name, hold := range map[string]func(u *usher) (open, end func()){
		"download": func(u *usher) (open, end func()) {
			s := u.open("hello", "/slowbody?n=30&every=100ms")
			body := bufio.NewReader(s.resp.Body)
			lines := func(want int) func() {
				return func() {
					for n := range want {
						if _, err := body.ReadString('\n'); err != nil {
							t.Fatalf("line %d of the download: %v", n, err)
						}
					}
				}
			}
			return lines(20), lines(10)
		},
		"sse": func(u *usher) (open, end func()) {
			s := u.open("hello", "/sse?every=60s")
			return func() { pass(4 * idle) }, s.close
		},
		"websocket": func(u *usher) (open, end func()) {
			c := u.webSocket("hello")
			return func() { pass(4 * idle) }, func() {
				if err := echo(c, "still here?"); err != nil {
					t.Error(err)
				}
				c.CloseNow()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := start(t, options{apps: []app{{lines: []string{fmt.Sprintf("idle_timeout = %q", idle)}}}})
			open, end := hold(u)
			pid := u.status("hello").PID
			open()
			if s := u.status("hello"); s.State != admin.Awake || s.PID != pid || pid == 0 {
				t.Errorf("it is %s, pid %d, while something is open; it was pid %d", s.State, s.PID, pid)
			}
			end()
			u.awaitState("hello", admin.Asleep, 5*time.Second)
			u.awaitStarts("hello", 1)
		})
	}
}

// X10.
func TestSleepLeavesNoChildOfAnAppAndNoZombie(t *testing.T) {
	t.Parallel()
	for _, cgroup := range []string{"auto", "off"} {
		t.Run("cgroup "+cgroup, func(t *testing.T) {
			t.Parallel()
			u := start(t, options{
				server: []string{fmt.Sprintf("cgroup = %q", cgroup)},
				apps:   []app{{artifact: hello(t, "v1", "fork=2"), lines: []string{`stop_timeout = "300ms"`}}},
			})
			for range rounds(4, 100) {
				ok(t, u.get("hello", "/"))
				if n := len(u.processes()); n != 3 {
					t.Fatalf("want the app and two children, have %d", n)
				}
				u.sleep("hello")
				if left := u.processes(); len(left) > 0 {
					t.Fatalf("asleep, and %v live", left)
				}
				u.eventually(5*time.Second, "no zombie is left", func() error {
					if z := zombies(u.cmd.Process.Pid); len(z) > 0 {
						return fmt.Errorf("there are %v", z)
					}
					return nil
				})
			}
		})
	}
}

// L03: children that left the session can be found through a control group only.
func TestSleepEndsChildrenInSessionsOfTheirOwn(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{artifact: hello(t, "v1", "daemon=2"), lines: []string{`stop_timeout = "300ms"`}}}})
	ok(t, u.get("hello", "/"))
	if s := u.status("hello"); s.Proof != "cgroup" {
		t.Skip("there is no control group here to hold them: mount cgroup v2 writable")
	}
	first := u.processes()
	u.deploy("hello", hello(t, "v2", "daemon=2"), "--wait=drained")
	for _, pid := range u.processes() {
		if slices.Contains(first, pid) {
			t.Errorf("pid %d outlives its generation", pid)
		}
	}
	u.sleep("hello")
	if left := u.processes(); len(left) > 0 {
		t.Errorf("asleep, and %v live", left)
	}
}
