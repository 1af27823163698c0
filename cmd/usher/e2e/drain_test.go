package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/usher-edge/usher/admin"
)

// idle waits until nothing is inside the app: an answer is read a moment before its
// request is counted out.
func (u *usher) idle(name string) {
	u.t.Helper()
	u.awaitStatus(name, 5*time.Second, "idle", func(s admin.AppStatus) bool { return s.InFlight == 0 })
}

// later makes a request beside the test. It returns once usher has let it in, and all
// others must be out first.
func (u *usher) later(name, path string) <-chan answer {
	u.t.Helper()
	u.idle(name)
	got := make(chan answer, 1)
	client := u.newClient()
	go func() { got <- get(client, name, path) }()
	u.awaitStatus(name, 5*time.Second, "busy", func(s admin.AppStatus) bool { return s.InFlight == 1 })
	return got
}

// D01, and O16: the drain is as long as the request.
func TestARequestThatFitsIntoTheDrainIsFinishedByTheOldOne(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{lines: []string{`drain_timeout = "20s"`}}}})
	ok(t, u.get("hello", "/"))
	slow := u.later("hello", "/sleep?d=3s")
	first := u.status("hello").Generation
	u.deploy("hello", hello(t, "v2"))
	u.deploy("hello", hello(t, "v3")) // waits for the first, but not long
	a := ok(t, <-slow)
	if a.generation != first || a.body != "slept 3s in v1\n" {
		t.Errorf("want generation %d to finish, got %s", first, a)
	}
	if a := ok(t, u.get("hello", "/version")); a.body != "v3\n" {
		t.Errorf("want v3, got %s", a)
	}
}

// D01: what does not fit is cut, told so, and told apart from an app's own fault.
func TestWhatOutlastsTheDrainIsCutAndCounted(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{lines: []string{`drain_timeout = "700ms"`, `close_spread = "100ms"`}}}})
	ok(t, u.get("hello", "/"))
	slow := u.later("hello", "/sleep?d=20s")
	begun := time.Now()
	u.must("deploy", "hello", hello(t, "v2"), "--wait=drained")
	took := time.Since(begun)
	a := <-slow
	if a.err != nil || a.status != http.StatusBadGateway || a.header.Get("Retry-After") != "" || !a.last {
		t.Errorf("want 502, got %s", a)
	}
	if took < 700*time.Millisecond || took > 15*time.Second { // the request would take 20s
		t.Errorf("drained after %s", took)
	}
	u.eventually(5*time.Second, "one drain-cut is counted", func() error {
		m, err := u.metrics()
		if n := m.sum("usher_request_causes_total", `cause="drain-cut"`); err == nil && n != 1 {
			return fmt.Errorf("it is %g", n)
		}
		if n := m.sum("usher_requests_total", `code="5xx"`); err == nil && n != 1 {
			return fmt.Errorf("%g answers of 5xx", n)
		}
		return err
	})
	u.awaitOne("hello", u.status("hello").PID)
}

// O04.
func TestAStuckOldOneBlocksNoLaterSwap(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{
		artifact: hello(t, "v1", "ignore-term"),
		lines:    []string{`drain_timeout = "4s"`, `close_spread = "100ms"`, `stop_timeout = "400ms"`},
	}}})
	ok(t, u.get("hello", "/"))
	stuck := u.open("hello", "/slowbody?n=100000&every=50ms")
	pid := u.status("hello").PID
	begun := time.Now()
	u.deploy("hello", hello(t, "v2"))
	if !alive(pid) {
		t.Error("the old one was ended before the drain was over")
	}
	s := u.deploy("hello", hello(t, "v3"))
	if took := time.Since(begun); took > 30*time.Second { // the stuck request goes on for over an hour
		t.Errorf("two swaps took %s", took)
	}
	if err := stuck.end(5 * time.Second); err == nil {
		t.Error("the cut answer looks complete")
	}
	u.awaitOne("hello", s.PID)
}

// O05, D07.
func TestLongConnectionsDoNotKeepRetiredCodeAlive(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{lines: []string{`drain_timeout = "500ms"`, `close_spread = "200ms"`}}}})
	var sockets []*websocket.Conn
	var streams []*stream
	most := 0
	for i := range rounds(5, 20) {
		sockets = append(sockets, u.webSocket("hello"))
		streams = append(streams, u.open("hello", "/sse?every=20ms"))
		u.deploy("hello", hello(t, fmt.Sprint("v", 1+i%2)))
		most = max(most, len(u.generationsOf("hello")))
	}
	if most > 2 {
		t.Errorf("%d generations lived at once", most)
	}
	for i, c := range sockets {
		if code, err := closing(c, 5*time.Second); code != websocket.StatusServiceRestart {
			t.Errorf("WebSocket %d: close %d, %v", i, code, err)
		}
	}
	for i, s := range streams {
		if err := s.end(5 * time.Second); err != nil {
			t.Errorf("event stream %d does not end neatly: %v", i, err)
		}
	}
	u.awaitOne("hello", u.status("hello").PID)
}

// H02.
func TestAHoldWaitsForWhatIsInFlightAndParksTheRest(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{hold: true}}})
	ok(t, u.get("hello", "/"))
	slow := u.later("hello", "/sleep?d=4s")
	deploy := u.cliAsync("deploy", "hello", hello(t, "v2"))
	u.awaitState("hello", admin.Holding, 5*time.Second)
	parked := together(20, func(int) answer { return u.get("hello", "/version") })
	if a := ok(t, <-slow); a.body != "slept 4s in v1\n" {
		t.Errorf("want the old one to finish, got %s", a)
	}
	expect(t, parked, "v2\n")
	if r := <-deploy; r.code != 0 {
		t.Errorf("exit code %d:\n%s", r.code, r.stderr)
	}
}

// H02: never two alive, seen from outside all along.
func TestAHoldNeverHasTwoGenerationsAlive(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{hold: true}}})
	ok(t, u.get("hello", "/"))
	stop, seen := make(chan struct{}), make(chan string, 1)
	go func() {
		for {
			select {
			case <-stop:
				close(seen)
				return
			default:
			}
			// The list is no snapshot: two generations count only if both are
			// there when they are looked at once more.
			if g := u.generationsOf("hello"); len(g) > 1 && allAlive(g) {
				seen <- fmt.Sprint(g)
				<-stop
				close(seen)
				return
			}
		}
	}()
	for i := range rounds(5, 50) {
		u.deploy("hello", hello(t, fmt.Sprint("v", 1+i%2)))
	}
	close(stop)
	if both, found := <-seen; found {
		t.Errorf("alive at once: %s", both)
	}
}

func allAlive(g map[string][]int) bool {
	for _, pids := range g {
		if !slices.ContainsFunc(pids, alive) {
			return false
		}
	}
	return true
}

// H03.
func TestAHoldKillsWhatIgnoresTERMAndServesTheParked(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{
		hold: true, artifact: hello(t, "v1", "ignore-term", "fork=2"), lines: []string{`stop_timeout = "800ms"`},
	}}})
	ok(t, u.get("hello", "/"))
	run := u.load(50, "hello")
	begun := time.Now()
	s := u.deploy("hello", hello(t, "v2"))
	if took := time.Since(begun); took < 800*time.Millisecond || took > 9*time.Second { // the default would be 10s
		t.Errorf("the swap took %s with a stop_timeout of 800ms", took)
	}
	u.awaitOne("hello", s.PID)
	res := lossless(t, run)
	if res.Total.Latency.MaxMS < 500 {
		t.Errorf("nobody was parked: the longest took %g ms", res.Total.Latency.MaxMS)
	}
	if log := u.logTail(200); !strings.Contains(log, "kill") {
		t.Errorf("the log does not tell that it was killed:\n%s", log)
	}
}

// S02, H02: a hold does not wait for what has no end.
func TestAHoldClosesStreamsAtOnce(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{hold: true, lines: []string{`hold_drain = "50s"`}}}})
	c, s := u.webSocket("hello"), u.open("hello", "/sse?every=100ms")
	begun := time.Now()
	u.deploy("hello", hello(t, "v2"))
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("the swap took %s", took)
	}
	if code, err := closing(c, time.Second); code != websocket.StatusServiceRestart {
		t.Errorf("want close 1012, got %d, %v", code, err)
	}
	if err := s.end(time.Second); err != nil {
		t.Errorf("the event stream does not end neatly: %v", err)
	}
}

// O13.
func TestASlowDrainOfOneAppSlowsNoOther(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{name: "a"}, {name: "b"}}})
	v2 := hello(t, "v2") // making it takes a while
	ok(t, u.get("a", "/"))
	slow := u.later("a", "/sleep?d=15s")
	u.deploy("a", v2)
	run := u.load(100, "b")
	begun := time.Now()
	if s := u.deploy("b", v2); s.State != admin.Awake {
		t.Errorf("b is %s", s.State)
	}
	if s := u.status("a"); roles(s)["retiring"] != 1 { // so neither of them waited for it
		t.Errorf("a does not drain any more %s after the swap of b began: %+v", time.Since(begun), s.Generations)
	}
	lossless(t, run)
	ok(t, <-slow)
}

// O15.
func TestASuccessorThatHangsHoldsUpNoOtherApp(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{name: "a", health: []string{`timeout = "10s"`}}, {name: "b"}}})
	ok(t, u.get("a", "/"))
	ok(t, u.get("b", "/"))
	hangs := u.cliAsync("deploy", "a", hello(t, "v2", "hang"))
	u.awaitState("a", admin.Swapping, 5*time.Second)
	begun := time.Now()
	u.must("deploy", "b", hello(t, "v2"), "--wait=drained")
	if s := u.status("a"); s.State != admin.Swapping {
		t.Errorf("a is %s: b has waited for it, for %s", s.State, time.Since(begun))
	}
	if r := <-hangs; r.code != 1 {
		t.Errorf("a: exit code %d", r.code)
	}
}

// S01.
func TestWhatHappensToOneAppLeavesTheStreamsOfAnotherAlone(t *testing.T) {
	t.Parallel()
	a, b := app{name: "a"}, app{name: "b"}
	u := start(t, options{apps: []app{a, b}})
	c := u.webSocket("a")
	pid := u.status("a").PID
	steps := []func(){
		func() { u.deploy("b", hello(t, "v2")) },
		func() { u.must("restart", "b") },
		func() { u.sleep("b") },
		func() { u.must("wake", "b") },
		func() { u.must("rollback", "b") },
		func() { u.must("pause", "b") },
		func() { u.must("resume", "b") },
		func() { u.must("purge", "b") },
		func() { // an edge field of b
			u.configure(options{apps: []app{a, {name: "b", lines: []string{"park_limit = 7"}}}})
			u.must("reload")
		},
		func() { // a process field of b
			u.configure(options{apps: []app{a, {name: "b", env: map[string]string{"GREETING": "hi"}}}})
			u.must("reload")
		},
		func() { // b leaves the file, c comes
			u.configure(options{apps: []app{a, {name: "c"}}})
			u.must("reload")
		},
		func() { // an edge field of a itself
			u.configure(options{apps: []app{{name: "a", lines: []string{"park_limit = 7"}}, {name: "c"}}})
			u.must("reload")
		},
	}
	for i, step := range steps {
		step()
		if err := echo(c, fmt.Sprint("after step ", i)); err != nil {
			t.Fatalf("after step %d: %v", i, err)
		}
	}
	if now := u.status("a"); now.PID != pid || now.InFlight != 1 {
		t.Errorf("a was touched: pid %d, then %d; %d in flight", pid, now.PID, now.InFlight)
	}
}

// D03, S02, S03.
func TestSIGTERMEndsUsherThoughStreamsAreOpen(t *testing.T) {
	t.Parallel()
	u := start(t, options{
		apps: []app{
			{lines: []string{`drain_timeout = "1s"`, `close_spread = "300ms"`}},
			{name: "waking", artifact: hello(t, "w1", "slow-start=20s"), lines: []string{`drain_timeout = "1s"`, `close_spread = "300ms"`}},
		},
	})
	c, s := u.webSocket("hello"), u.open("hello", "/sse?every=50ms")
	var idle []*lane
	for range 10 {
		l := u.lane()
		ok(t, l.get("hello", "/"))
		idle = append(idle, l)
	}
	waking := make(chan answer, 1)
	client := u.newClient()
	go func() { waking <- get(client, "waking", "/") }()
	u.awaitState("waking", admin.Waking, 5*time.Second)
	swap := u.cliAsync("deploy", "hello", hello(t, "v2", "slow-start=20s"), "--timeout", "3s")
	u.awaitState("hello", admin.Swapping, 5*time.Second)
	pid := u.status("hello").PID

	begun := time.Now()
	if code := u.terminate(10 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(begun); took > 10*time.Second { // the boots take 20s, and the streams for ever
		t.Errorf("it took %s with a drain of 1s", took)
	}
	code, err := closing(c, time.Second)
	if code != websocket.StatusServiceRestart && code != websocket.StatusGoingAway {
		t.Errorf("want close 1012 or 1001, got %d, %v", code, err)
	}
	if err := s.end(time.Second); err != nil {
		t.Errorf("the event stream does not end neatly: %v", err)
	}
	if a := <-waking; a.status != http.StatusServiceUnavailable {
		t.Errorf("want 503 for who was parked, got %s", a)
	}
	for _, l := range idle {
		if _, err := l.in.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("an idle connection: want its end, got %v", err)
		}
	}
	if !alive(pid) {
		t.Error("the app was stopped too")
	}
	if r := <-swap; r.code == 0 {
		t.Errorf("the deploy under way was told to be done:\n%s", r.stderr)
	}
	u.serve()
	if now := u.status("hello"); now.PID != pid {
		t.Errorf("pid %d was not adopted: %d", pid, now.PID)
	}
	ok(t, u.get("hello", "/"))
	u.deploy("hello", hello(t, "v3")) // what was committed is tried again; this replaces it
}

// D04.
func TestSIGTERMDoesNotWaitForIdleClientsAndFinishesWhatIsInFlight(t *testing.T) {
	t.Parallel()
	u := start(t, options{})
	ok(t, u.get("hello", "/"))
	for range 50 {
		ok(t, u.lane().get("hello", "/"))
	}
	begun := time.Now()
	if code := u.terminate(10 * time.Second); code != 0 || time.Since(begun) > 20*time.Second { // the drain would take 30s
		t.Errorf("exit code %d after %s", code, time.Since(begun))
	}
	u.serve()
	slow := u.later("hello", "/sleep?d=3s")
	if code := u.terminate(10 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if a := ok(t, <-slow); !a.last {
		t.Errorf("the last answer of its connection does not say so: %v", a.header)
	}
}

// X11.
func TestSIGTERMStopsTheAppsIfToldSo(t *testing.T) {
	t.Parallel()
	u := start(t, options{args: []string{"--stop-apps"}, apps: []app{{}, {name: "starting", artifact: hello(t, "s1", "slow-start=20s")}}})
	ok(t, u.get("hello", "/"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url("starting", "/"), nil)
	if err != nil {
		t.Fatal(err)
	}
	go do(u.client, req)
	u.awaitState("starting", admin.Waking, 5*time.Second)
	u.signal(syscall.SIGTERM)
	if code := u.terminate(10 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if left := u.processes(); len(left) > 0 {
		t.Errorf("still there: %v", left)
	}
}

// D02.
func TestAnOldOneThatDiesWhileItDrainsIsDoneWith(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{lines: []string{`drain_timeout = "30s"`}}}})
	c := u.webSocket("hello")
	pid := u.status("hello").PID
	u.deploy("hello", hello(t, "v2"))
	if err := echo(c, "it drains"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s := u.awaitStatus("hello", 5*time.Second, "rid of it", func(s admin.AppStatus) bool { return len(s.Generations) == 1 })
	if s.State != admin.Awake {
		t.Errorf("it is %s", s.State)
	}
	if _, err := closing(c, 2*time.Second); err == nil {
		t.Error("a dead app said goodbye")
	}
	ok(t, u.get("hello", "/"))
	u.deploy("hello", hello(t, "v3"))
}

func TestTheSuccessorTakesOverAsSoonAsItCanFromAnIncumbentThatDies(t *testing.T) {
	t.Parallel()
	u := start(t, options{})
	ok(t, u.get("hello", "/"))
	pid := u.status("hello").PID
	deploy := u.cliAsync("deploy", "hello", hello(t, "v2", "slow-start=5s"))
	u.awaitState("hello", admin.Swapping, 5*time.Second)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	u.awaitStatus("hello", 5*time.Second, "without an incumbent", func(s admin.AppStatus) bool { return s.PID == 0 })
	expect(t, together(20, func(int) answer { return u.get("hello", "/version") }), "v2\n")
	if r := <-deploy; r.code != 0 {
		t.Errorf("exit code %d:\n%s", r.code, r.stderr)
	}
	if s := u.status("hello"); s.Generation != 2 || s.Reported != 2 {
		t.Errorf("want generation 2 and nothing between, got %+v", s)
	}
}

// H01: all that comes during a long hold waits, and the new app is not flooded.
func TestALongHoldParksAWholeLoadAndLosesNothing(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{hold: true}}})
	run := u.load(150, "hello")
	s := u.deploy("hello", hello(t, "v2", "slow-start=1500ms"))
	run.ExpectGeneration(s.Generation)
	if res := lossless(t, run); res.Total.Latency.MaxMS < 1000 {
		t.Errorf("nobody was parked: the longest took %g ms", res.Total.Latency.MaxMS)
	}
}
