package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// entry is a line of the access log, as far as tests ask.
type entry struct {
	App     string `json:"app"`
	Method  string `json:"method"`
	Target  string `json:"target"`
	Client  string `json:"client"`
	Status  int    `json:"status"`
	ID      string `json:"id"`
	Ending  string `json:"ending"`
	Cause   string `json:"cause"`
	Reason  string `json:"reason"`
	Parked  float64
	Retries int `json:"retries"`
}

func (u *usher) accessLog() string { return filepath.Join(u.dir, "access.log") }

// entries are the lines of a file of an access log.
func (u *usher) entries(path string) (all []entry) {
	u.t.Helper()
	for line := range strings.Lines(readFile(u.t, path)) {
		var e entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			u.t.Fatalf("%v in %q", err, line)
		}
		all = append(all, e)
	}
	return all
}

// logged waits for the line of the request with that target.
func (u *usher) logged(target string) (e entry) {
	u.t.Helper()
	u.eventually(10*time.Second, "there is a line of "+target, func() error {
		for _, e = range u.entries(u.accessLog()) {
			if e.Target == target {
				return nil
			}
		}
		return fmt.Errorf("it is not in the log")
	})
	return e
}

// speaker is an app of the test's own that does what it is asked by the path.
func speaker(t *testing.T) (address string, asked <-chan string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop, seen := make(chan struct{}), make(chan string, 100)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		what, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		seen <- what
		switch what {
		case "die", "babble":
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			if what == "babble" {
				fmt.Fprint(c, "I am no HTTP\n")
			}
			c.Close()
		case "hang":
			select {
			case <-r.Context().Done():
			case <-stop:
			}
		}
	})}
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(func() { close(stop); server.Close() })
	return ln.Addr().String(), seen
}

// closed is an address that refuses connections.
func closed(t *testing.T) string { return freeAddress(t) }

// told is what a cause must look like everywhere.
type told struct {
	name, app, path string
	status          int
	proxyStatus     string
	cause, ending   string
	retryAfter      bool
}

func (u *usher) tells(c told, a answer) {
	u.t.Helper()
	if a.status != c.status || a.header.Get("Proxy-Status") != "usher; error="+c.proxyStatus {
		u.t.Errorf("%s: %s with Proxy-Status %q, want %d with %q", c.name, a, a.header.Get("Proxy-Status"), c.status, c.proxyStatus)
	}
	retry := a.header.Get("Retry-After")
	if n, err := strconv.Atoi(retry); (retry != "") != c.retryAfter || retry != "" && (err != nil || n < 1) {
		u.t.Errorf("%s: Retry-After %q", c.name, retry)
	}
	u.notes(c)
}

// notes checks the line of the log and the metric.
func (u *usher) notes(c told) {
	u.t.Helper()
	if e := u.logged(c.path); e.Status != c.status || e.Cause != c.cause || e.Ending != c.ending {
		u.t.Errorf("%s: logged as %+v, want status %d, cause %s, ending %s", c.name, e, c.status, c.cause, c.ending)
	}
	label := c.app
	if label == "nobody" {
		label = "-"
	}
	u.awaitMetric(1, "usher_request_causes_total", fmt.Sprintf("cause=%q", c.cause), fmt.Sprintf("app=%q", label))
}

func TestEveryCauseIsToldAlikeToClientLogAndMetrics(t *testing.T) {
	t.Parallel()
	u := prepare(t, options{})
	address, _ := speaker(t)
	u.configure(options{
		server: []string{fmt.Sprintf("access_log = %q", u.accessLog())},
		apps: []app{
			{name: "fails", artifact: hello(t, "v1", "crash")},
			{name: "waits", artifact: "-"},
			{name: "parks", lines: []string{"park_limit = 2", `park_timeout = "5s"`, "park_limit_per_client = 1"}},
		},
	})
	u.writeConfig(readFile(t, u.config()) + fmt.Sprintf(
		"[apps.refuses]\nhosts = ['refuses.localhost']\ntarget = %q\n[apps.odd]\nhosts = ['odd.localhost']\ntarget = %q\nfirst_byte_timeout = '400ms'\n",
		closed(t), address))
	u.begin()
	for _, c := range []told{
		{"no such host", "nobody", "/1", 404, "destination_not_found", "no-such-host", "refused", false},
		{"no release", "waits", "/2", 503, "destination_unavailable", "no-release", "refused", true},
		{"wake failed", "fails", "/3", 503, "destination_unavailable", "wake-failed", "refused", true},
		{"connect refused", "refuses", "/4", 502, "connection_refused", "connect-refused", "failed", false},
		{"died before response", "odd", "/die/5", 502, "connection_terminated", "died-before-response", "failed", false},
		{"bad response", "odd", "/babble/6", 502, "http_protocol_error", "bad-response", "failed", false},
		{"first byte timeout", "odd", "/hang/7", 504, "http_response_timeout", "first-byte-timeout", "failed", false},
	} {
		u.tells(c, u.lane().get(c.app, c.path))
	}
	if e := u.logged("/4"); e.Retries != 1 {
		t.Errorf("a refused connection was tried again %d times", e.Retries)
	}
	if e := u.logged("/3"); e.Reason == "" {
		t.Error("the log does not say why the app could not be started")
	}
	u.must("pause", "parks")
	first := u.laneAs("127.0.0.2")
	fmt.Fprint(first.conn, "GET /8 HTTP/1.1\r\nHost: parks.localhost\r\n\r\n")
	u.awaitMetric(1, "usher_requests_parked")
	u.tells(told{"client's share of the lot", "parks", "/9", 429, "http_request_denied", "client-park-full", "refused", true},
		u.laneAs("127.0.0.2").get("parks", "/9"))
	second := u.laneAs("127.0.0.3")
	fmt.Fprint(second.conn, "GET /10 HTTP/1.1\r\nHost: parks.localhost\r\n\r\n")
	u.awaitMetric(2, "usher_requests_parked")
	u.tells(told{"park full", "parks", "/11", 503, "connection_limit_reached", "park-full", "refused", true},
		u.laneAs("127.0.0.4").get("parks", "/11"))
	if a := first.answer(); a.status != 504 || a.header.Get("Proxy-Status") != "usher; error=connection_timeout" {
		t.Errorf("park timeout: %s, %v", a, a.header)
	}
	if e := u.logged("/8"); e.Cause != "park-timeout" || e.Status != 504 {
		t.Errorf("%+v", e)
	}
}

// A client that leaves is 499 in the log, and nobody is told anything.
func TestAClientThatLeavesIsLoggedAs499(t *testing.T) {
	t.Parallel()
	u := prepare(t, options{})
	address, asked := speaker(t)
	u.configure(options{server: []string{fmt.Sprintf("access_log = %q", u.accessLog())}})
	u.writeConfig(readFile(t, u.config()) + fmt.Sprintf("[apps.odd]\nhosts = ['odd.localhost']\ntarget = %q\n", address))
	u.begin()
	l := u.lane()
	fmt.Fprint(l.conn, "GET /hang/1 HTTP/1.1\r\nHost: odd.localhost\r\n\r\n")
	<-asked
	if err := l.conn.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	l.conn.Close()
	u.notes(told{"client gone", "odd", "/hang/1", 499, "", "client-gone", "gone", false})
	if e := u.logged("/hang/1"); e.Retries != 0 {
		t.Errorf("%+v", e)
	}
}

// What waits when usher is asked to stop is told to come back, when the app can be
// there again.
func TestWhatIsParkedAtTheEndOfUsherIsToldToComeBack(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"apps go on": nil, "apps end": {"--stop-apps"}} {
		t.Run(name, func(t *testing.T) { t.Parallel(); parkedAtTheEnd(t, args) })
	}
}

func parkedAtTheEnd(t *testing.T, args []string) {
	u := prepare(t, options{args: args})
	u.configure(options{
		server: []string{fmt.Sprintf("access_log = %q", u.accessLog())},
		apps:   []app{{artifact: hello(t, "v1", "slow-start=1200ms")}},
	})
	u.begin()
	ok(t, u.get("hello", "/"))
	want := u.oneStart("hello")
	u.must("pause", "hello")
	l := u.lane()
	fmt.Fprint(l.conn, "GET /parked HTTP/1.1\r\nHost: hello.localhost\r\n\r\n")
	u.awaitMetric(1, "usher_requests_parked")
	if code := u.terminate(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	a := l.answer()
	if a.status != 503 || a.header.Get("Retry-After") != want || a.header.Get("Proxy-Status") != "usher; error=proxy_internal_response" || !a.last {
		t.Errorf("%s, %v, want it to be told %s s", a, a.header, want)
	}
	if e := u.logged("/parked"); e.Cause != "draining" || e.Status != 503 || e.Ending != "refused" {
		t.Errorf("%+v", e)
	}
	u.serve()
	if s := u.status("hello"); s.State != "paused" {
		t.Errorf("after the restart the app is %s", s.State)
	}
	u.must("resume", "hello")
	ok(t, u.get("hello", "/"))
}

// A 503 says when to come back: what the last start took.
func TestRetryAfterIsLearnedFromTheLastStart(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{artifact: hello(t, "v1", "slow-start=2200ms"), lines: []string{"park_limit = 1"}}}})
	refused := func(want string) {
		t.Helper()
		first := u.lane()
		fmt.Fprint(first.conn, "GET / HTTP/1.1\r\nHost: hello.localhost\r\n\r\n")
		u.awaitMetric(1, "usher_requests_parked")
		if a := u.laneAs("127.0.0.2").get("hello", "/"); a.status != 503 || a.header.Get("Retry-After") != want {
			t.Errorf("%s with Retry-After %q, want %s", a, a.header.Get("Retry-After"), want)
		}
		ok(t, first.answer())
		first.conn.Close()
	}
	refused("5") // nothing is known yet
	u.sleep("hello")
	refused(u.oneStart("hello"))
}

// oneStart is what Retry-After tells of an app that this usher has started once at most.
func (u *usher) oneStart(name string) string {
	u.t.Helper()
	m, err := u.metrics()
	if err != nil {
		u.t.Fatal(err)
	}
	label := fmt.Sprintf("app=%q", name)
	switch m.sum("usher_wake_duration_seconds_count", label) {
	case 0:
		return "5" // nothing is known
	case 1:
		return strconv.Itoa(int(m.sum("usher_wake_duration_seconds_sum", label)) + 1)
	}
	u.t.Fatalf("%s was started more than once", name)
	return ""
}

func TestTheAccessLogHasOneLinePerRequestAndNoSecrets(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"json", "combined"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			u := prepare(t, options{})
			u.configure(options{server: []string{fmt.Sprintf("access_log = %q", u.accessLog()), fmt.Sprintf("access_log_format = %q", format)}})
			u.begin()
			const secret = "hunter2"
			l := u.lane()
			fmt.Fprintf(l.conn, "GET /version?q=1 HTTP/1.1\r\nHost: hello.localhost\r\nUser-Agent: a \"browser\"\r\nAuthorization: Bearer %s\r\nCookie: session=%s\r\nProxy-Authorization: Basic %s\r\n\r\n", secret, secret, secret)
			ok(t, l.answer())
			fmt.Fprint(l.conn, "GET /status?code=404 HTTP/1.1\r\nHost: hello.localhost\r\nSet-Cookie: x\r\n\r\n")
			l.answer()
			u.eventually(10*time.Second, "two lines", func() error {
				if text := readFile(t, u.accessLog()); strings.Count(text, "\n") != 2 {
					return fmt.Errorf("the log is %q", text)
				}
				return nil
			})
			text := readFile(t, u.accessLog())
			if strings.Contains(text, secret) || strings.Contains(readFile(t, u.logFile()), secret) {
				t.Errorf("a log holds what must not be logged:\n%s", text)
			}
			lines := strings.Split(text, "\n")
			want := []string{`"GET /version?q=1 HTTP/1.1" 200 3 "-" "a \"browser\""`, `"GET /status?code=404 HTTP/1.1" 404 `}
			if format == "json" {
				want = []string{`"target":"/version?q=1","protocol":"HTTP/1.1","status":200`, `"target":"/status?code=404","protocol":"HTTP/1.1","status":404`}
			}
			for i, w := range want {
				if !strings.Contains(lines[i], w) {
					t.Errorf("line %d is %q, want %s in it", i, lines[i], w)
				}
			}
		})
	}
}

// Rotated under load, no line is lost and none is torn.
func TestTheAccessLogIsRotatedUnderLoadWithoutLosingALine(t *testing.T) {
	t.Parallel()
	u := prepare(t, options{})
	u.configure(options{server: []string{fmt.Sprintf("access_log = %q", u.accessLog())}})
	u.begin()
	ok(t, u.get("hello", "/version"))
	run := u.load(300, "hello")
	const turns = 5
	for i := range turns {
		pass(200 * time.Millisecond)
		if err := os.Rename(u.accessLog(), u.accessLog()+strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
		u.signal(syscall.SIGUSR1)
		u.eventually(10*time.Second, "a new file", func() error { _, err := os.Stat(u.accessLog()); return err })
	}
	lossless(t, run)
	m, err := u.metrics()
	if err != nil {
		t.Fatal(err)
	}
	accepted := int(m.sum("usher_requests_accepted_total"))
	u.eventually(10*time.Second, "every request has its line", func() error {
		n := len(u.entries(u.accessLog()))
		for i := range turns {
			n += len(u.entries(u.accessLog() + strconv.Itoa(i)))
		}
		if n != accepted {
			return fmt.Errorf("%d lines for %d requests", n, accepted)
		}
		return nil
	})
	if n := m.sum("usher_access_log_dropped_total"); n != 0 {
		t.Errorf("%v lines were dropped", n)
	}
}

// A log that takes nothing holds no request up; what it lacks is counted.
func TestALogThatIsStuckHoldsNoRequestUp(t *testing.T) {
	t.Parallel()
	u := prepare(t, options{})
	if err := syscall.Mkfifo(u.accessLog(), 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(u.accessLog(), os.O_RDWR, 0) // it never reads
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	u.configure(options{server: []string{fmt.Sprintf("access_log = %q", u.accessLog())}})
	u.begin()
	ok(t, u.get("hello", "/version"))
	l := u.lane()
	begun := time.Now()
	var dropped float64
	for n := 0; dropped == 0; n++ {
		if a := l.get("nobody", "/"); a.status != 404 {
			t.Fatalf("request %d: %s", n, a)
		}
		if n%2000 != 1999 {
			continue
		}
		m, err := u.metrics()
		if err != nil {
			t.Fatal(err)
		}
		if dropped = m.sum("usher_access_log_dropped_total"); dropped == 0 && time.Since(begun) > time.Minute {
			t.Fatalf("after %d requests nothing was dropped", n)
		}
	}
	ok(t, l.get("hello", "/version"))
	u.eventually(10*time.Second, "usher's log says so", func() error {
		if log := readFile(t, u.logFile()); !strings.Contains(log, "lines of the access log are lost") {
			return fmt.Errorf("it does not")
		}
		return nil
	})
}

func TestRequestIDsAreTakenFromTrustedPeersAndTracesFromAll(t *testing.T) {
	t.Parallel()
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, trusted := range []bool{true, false} {
		t.Run(fmt.Sprint("trusted ", trusted), func(t *testing.T) {
			t.Parallel()
			u := prepare(t, options{})
			server := []string{fmt.Sprintf("access_log = %q", u.accessLog())}
			if trusted {
				server = append(server, `trusted_proxies = ["127.0.0.1"]`)
			}
			u.configure(options{server: server})
			u.begin()
			for i, id := range []string{"abc-123_4.5", strings.Repeat("x", 4000), "a b", `"quoted"`, ""} {
				l := u.lane()
				fmt.Fprintf(l.conn, "GET /headers?%d HTTP/1.1\r\nHost: hello.localhost\r\nX-Request-Id: %s\r\ntraceparent: %s\r\ntracestate: a=b\r\n\r\n", i, id, trace)
				a := ok(t, l.answer())
				got := field(t, a.body, "X-Request-Id")
				if len(got) != 1 || (got[0] == id) != (trusted && i == 0) || got[0] == "" {
					t.Errorf("of the id %.20q the app got %.40q", id, got)
				}
				if e := u.logged(fmt.Sprint("/headers?", i)); e.ID != got[0] {
					t.Errorf("the log has id %q, the app got %q", e.ID, got[0])
				}
				if p, s := field(t, a.body, "traceparent"), field(t, a.body, "tracestate"); len(p) != 1 || p[0] != trace || len(s) != 1 || s[0] != "a=b" {
					t.Errorf("the trace came as %q, %q", p, s)
				}
			}
		})
	}
}

// field is what the app says a field of its request was.
func field(t *testing.T, body, name string) (values []string) {
	t.Helper()
	var head struct {
		Headers [][2]string `json:"headers"`
	}
	if err := json.Unmarshal([]byte(body), &head); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	for _, h := range head.Headers {
		if strings.EqualFold(h[0], name) {
			values = append(values, h[1])
		}
	}
	return values
}

// usher serve | head: lines are lost then, and nothing else.
func TestAReaderOfTheAccessLogThatLeavesTakesNothingWithIt(t *testing.T) {
	t.Parallel()
	u := prepare(t, options{server: []string{`access_log = "stdout"`}})
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	u.stdout = writer
	u.begin()
	writer.Close()
	reader.Close()
	u.eventually(10*time.Second, "lines are counted as dropped", func() error {
		ok(t, u.get("hello", "/"))
		if m, err := u.metrics(); err != nil || m.sum("usher_access_log_dropped_total") == 0 {
			return fmt.Errorf("none is (%v)", err)
		}
		return nil
	})
}
