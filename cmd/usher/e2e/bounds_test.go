package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// laneAs is a connection from another address of the loopback network, which
// makes it one of another client.
func (u *usher) laneAs(ip string) *lane { return u.laneTo(ip, u.listen) }

func (u *usher) laneTo(ip, address string) *lane {
	u.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	c, err := d.Dial("tcp", address)
	if err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() { c.Close() })
	return &lane{c, bufio.NewReader(c)}
}

// answer reads one answer to something that was written before.
func (l *lane) answer() (a answer) {
	if a.err = l.conn.SetDeadline(time.Now().Add(30 * time.Second)); a.err != nil {
		return a
	}
	resp, err := http.ReadResponse(l.in, nil)
	if err != nil {
		a.err = err
		return a
	}
	data, err := io.ReadAll(resp.Body)
	a.status, a.header, a.body, a.last, a.err = resp.StatusCode, resp.Header, string(data), resp.Close, err
	return a
}

// awaitMetric waits until the sum of a metric is want.
func (u *usher) awaitMetric(want float64, name string, labels ...string) {
	u.t.Helper()
	u.eventually(10*time.Second, fmt.Sprint(name, labels, " is ", want), func() error {
		m, err := u.metrics()
		if err != nil {
			return err
		}
		if got := m.sum(name, labels...); got != want {
			return fmt.Errorf("it is %v", got)
		}
		return nil
	})
}

// awaitPause waits until no more clients are let in, and the log says so.
func (u *usher) awaitPause() {
	u.t.Helper()
	u.eventually(10*time.Second, "accepting pauses", func() error {
		if log := u.logTail(200); !strings.Contains(log, "accepting on "+u.listen+" pauses") {
			return fmt.Errorf("the log does not say so:\n%s", log)
		}
		return nil
	})
}

// K01.
func TestAtTheDescriptorLimitUsherGoesOnServing(t *testing.T) {
	t.Parallel()
	u := start(t, options{descriptors: 256, server: []string{"max_connections_per_client = 0"}})
	pid := ok(t, u.get("hello", "/pid")).body
	var lives []*lane
	for range 10 {
		l := u.lane()
		ok(t, l.get("hello", "/pid"))
		lives = append(lives, l)
	}
	var idle []net.Conn
	for range 500 {
		idle = append(idle, u.raw())
	}
	u.awaitPause()
	for range 5 {
		for _, l := range lives { // with their apps: there are descriptors for both
			ok(t, l.get("hello", "/pid"))
		}
	}
	if _, err := u.metrics(); err != nil {
		t.Errorf("the admin API has no descriptor: %v", err)
	}
	for _, c := range idle {
		c.Close()
	}
	u.eventually(10*time.Second, "new clients are served", func() error {
		if a := get(u.newClient(), "hello", "/pid"); a.body != pid {
			return fmt.Errorf("%s, want pid %s", a, pid)
		}
		return nil
	})
	log := readFile(t, u.logFile())
	if n := strings.Count(log, "\n"); n > 100 {
		t.Errorf("usher wrote %d lines", n)
	}
	for _, words := range []string{"usher may open 256 descriptors only", "accepting on " + u.listen + " goes on"} {
		if !strings.Contains(log, words) {
			t.Errorf("the log does not say %q:\n%s", words, log)
		}
	}
	u.awaitStarts("hello", 1)
}

// Who wants to know what is going on wants it when there is no descriptor left, and those
// who are connected stay so. The limit is lowered under a usher that has counted on more.
func TestWithoutADescriptorTheAdminAPIAnswersAndConnectionsLive(t *testing.T) {
	t.Parallel()
	u := start(t, options{server: []string{"max_connections_per_client = 0"}})
	ok(t, u.get("hello", "/pid"))
	var lives []*lane
	for range 20 {
		l := u.lane()
		ok(t, l.get("hello", "/pid"))
		lives = append(lives, l)
	}
	pid := u.cmd.Process.Pid
	var was unix.Rlimit
	limit := func(to, old *unix.Rlimit) {
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, to, old); err != nil {
			t.Fatal(err)
		}
	}
	limit(nil, &was)
	limit(&unix.Rlimit{Cur: uint64(len(descriptors(pid)) + 20), Max: was.Max}, nil)
	var idle []net.Conn
	for range 200 {
		idle = append(idle, u.raw())
	}
	u.awaitPause()
	for i := range 20 {
		if r := u.cli("status"); r.code != 0 {
			t.Fatalf("%d: status without a descriptor: %+v", i, r)
		}
		for _, l := range lives {
			if a := l.get("hello", "/pid"); a.err != nil || a.last || a.status != http.StatusOK && a.status != http.StatusServiceUnavailable {
				t.Fatalf("%d: a client that was connected before: %s", i, a)
			}
		}
	}
	limit(&was, nil)
	for _, c := range idle {
		c.Close()
	}
	for _, l := range lives {
		ok(t, l.get("hello", "/pid"))
	}
	if n := strings.Count(readFile(t, u.logFile()), "\n"); n > 100 {
		t.Errorf("usher wrote %d lines", n)
	}
}

func TestOneClientCannotHaveAllConnections(t *testing.T) {
	t.Parallel()
	u := start(t, options{server: []string{"max_connections_per_client = 3"}})
	ok(t, u.lane().get("hello", "/"))
	for range 3 {
		ok(t, u.laneAs("127.0.0.2").get("hello", "/"))
	}
	a := u.laneAs("127.0.0.2").answer()
	if a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" || a.header.Get("Proxy-Status") != "usher; error=http_request_denied" || !a.last {
		t.Errorf("one connection too many: %s, %v", a, a.header)
	}
	ok(t, u.laneAs("127.0.0.3").get("hello", "/"))
	u.awaitMetric(1, "usher_connections_refused_total", `reason="client-connections"`)
	u.awaitMetric(5, "usher_connections_open")
}

func TestAListenerHasItsOwnLimits(t *testing.T) {
	t.Parallel()
	u := prepare(t, options{})
	other := freeAddress(t)
	u.configure(options{apps: []app{{}}})
	text := strings.Replace(readFile(t, u.config()), fmt.Sprintf("listen = [%q]", u.listen), fmt.Sprintf("listen = [%q, %q]", u.listen, other), 1)
	u.writeConfig(text + fmt.Sprintf("[server.listeners.%q]\ntrusted = true\nhead_timeout = \"300ms\"\nmax_connections = 2\n", other))
	u.begin()
	ok(t, u.lane().get("hello", "/"))
	for _, c := range []struct {
		address, forwarded string
	}{{u.listen, "127.0.0.1"}, {other, "198.51.100.7, 127.0.0.1"}} {
		l := u.laneTo("127.0.0.1", c.address)
		fmt.Fprint(l.conn, "GET /headers HTTP/1.1\r\nHost: hello.localhost\r\nX-Forwarded-For: 198.51.100.7\r\n\r\n")
		if a := ok(t, l.answer()); !strings.Contains(a.body, fmt.Sprintf("%q", c.forwarded)) {
			t.Errorf("through %s the app does not see the client %s:\n%s", c.address, c.forwarded, a.body)
		}
		l.conn.Close()
	}
	slow := u.laneTo("127.0.0.1", other)
	fmt.Fprint(slow.conn, "GET / HT")
	if a := slow.answer(); a.status != http.StatusRequestTimeout {
		t.Errorf("a slow head on the strict listener: %s", a)
	}
	patient := u.lane()
	fmt.Fprint(patient.conn, "GET / HT")
	pass(600 * time.Millisecond)
	fmt.Fprint(patient.conn, "TP/1.1\r\nHost: hello.localhost\r\n\r\n")
	ok(t, patient.answer())
}

func TestSlowAndLargeRequestsAreRefusedAndIdleConnectionsClosed(t *testing.T) {
	t.Parallel()
	u := start(t, options{
		server: []string{`head_timeout = "300ms"`, `idle_timeout = "500ms"`, `body_timeout = "300ms"`, "min_body_rate = 1000"},
		apps:   []app{{lines: []string{`max_body = "1KiB"`}}},
	})
	ok(t, u.get("hello", "/"))
	for _, c := range []struct {
		name, sent string
		status     int
		cause      string
	}{
		{"head that stops", "GET / HTTP/1.1\r\nHost: hello", http.StatusRequestTimeout, "head-timeout"},
		{"body that stops", "POST /body HTTP/1.1\r\nHost: hello.localhost\r\nContent-Length: 20\r\n\r\nhello", http.StatusRequestTimeout, "body-timeout"},
		{"body that is known to be too large", "POST /body HTTP/1.1\r\nHost: hello.localhost\r\nContent-Length: 1025\r\n\r\n", http.StatusRequestEntityTooLarge, "body-too-large"},
		{"body that turns out too large", "POST /body HTTP/1.1\r\nHost: hello.localhost\r\nTransfer-Encoding: chunked\r\n\r\n" +
			strings.Repeat("80\r\n"+strings.Repeat("x", 128)+"\r\n", 9), http.StatusRequestEntityTooLarge, "body-too-large"},
	} {
		l := u.lane()
		fmt.Fprint(l.conn, c.sent)
		a := l.answer()
		if a.status != c.status || !a.last || a.header.Get("Proxy-Status") != "usher; error=http_request_error" {
			t.Errorf("%s: %s, %v", c.name, a, a.header)
		}
		l.conn.Close()
	}
	u.awaitMetric(1, "usher_request_causes_total", `cause="head-timeout"`, `app="-"`)
	u.awaitMetric(1, "usher_request_causes_total", `cause="body-timeout"`, `app="hello"`)
	u.awaitMetric(2, "usher_request_causes_total", `cause="body-too-large"`, `app="hello"`)

	l := u.lane()
	fmt.Fprint(l.conn, "POST /body HTTP/1.1\r\nHost: hello.localhost\r\nContent-Length: 1000\r\n\r\n")
	trickled := make(chan answer, 1)
	go func() { trickled <- l.answer() }()
	for range 100 {
		if _, err := fmt.Fprint(l.conn, "x"); err != nil {
			break
		}
		pass(50 * time.Millisecond)
	}
	if a := <-trickled; a.status != http.StatusRequestTimeout {
		t.Errorf("a body that trickles: %s", a)
	}
	idle := u.lane()
	ok(t, idle.get("hello", "/"))
	if _, err := idle.in.ReadByte(); err != io.EOF {
		t.Errorf("an idle connection: %v, want it closed", err)
	}
}

func TestAClientThatTakesItsAnswerTooSlowlyIsCutOff(t *testing.T) {
	t.Parallel()
	u := start(t, options{server: []string{`write_timeout = "1s"`, `min_write_rate = "1GiB"`}})
	l := u.lane()
	if err := l.conn.(*net.TCPConn).SetReadBuffer(16 << 10); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(l.conn, "GET /big?n=%d HTTP/1.1\r\nHost: hello.localhost\r\n\r\n", 1<<30)
	buf := make([]byte, 4<<10)
	_ = l.conn.SetReadDeadline(time.Now().Add(time.Minute))
	begun := time.Now()
	for {
		if _, err := io.ReadFull(l.conn, buf); err != nil {
			break
		}
		pass(20 * time.Millisecond)
	}
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("cut off after %s", took)
	}
	u.awaitMetric(1, "usher_request_causes_total", `cause="slow-client"`)
	u.awaitMetric(1, "usher_request_endings_total", `ending="gone"`)
}

func TestOneClientCannotFillTheLotOfAnApp(t *testing.T) {
	t.Parallel()
	u := start(t, options{
		server: []string{`trusted_proxies = ["127.0.0.1"]`},
		apps:   []app{{lines: []string{"park_limit = 4"}}},
	})
	ok(t, u.get("hello", "/"))
	u.must("pause", "hello")
	ask := func(client string) *lane {
		l := u.lane()
		fmt.Fprintf(l.conn, "GET /version HTTP/1.1\r\nHost: hello.localhost\r\nX-Forwarded-For: %s\r\n\r\n", client)
		return l
	}
	parked := []*lane{ask("198.51.100.1"), ask("198.51.100.1")}
	u.awaitMetric(2, "usher_requests_parked")
	a := ask("198.51.100.1").answer()
	if a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" || a.header.Get("Proxy-Status") != "usher; error=http_request_denied" {
		t.Errorf("more than half of the lot for one client: %s, %v", a, a.header)
	}
	parked = append(parked, ask("2001:db8::1"), ask("2001:db8::2"))
	u.awaitMetric(4, "usher_requests_parked")
	a = ask("203.0.113.1").answer()
	if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" || a.header.Get("Proxy-Status") != "usher; error=connection_limit_reached" {
		t.Errorf("a full lot: %s, %v", a, a.header)
	}
	u.must("resume", "hello")
	for _, l := range parked {
		ok(t, l.answer())
	}
	u.awaitMetric(1, "usher_request_causes_total", `cause="client-park-full"`)
	u.awaitMetric(1, "usher_request_causes_total", `cause="park-full"`)
	m, err := u.metrics()
	if err != nil {
		t.Fatal(err)
	}
	for name := range m {
		if strings.Contains(name, "198.51.100") || strings.Contains(name, "2001:db8") {
			t.Errorf("a metric names a client: %s", name)
		}
	}
}

func TestRequestsInsideAreBoundForAllAndForEachClient(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{
		artifact: hello(t, "v1", "delay=2s"), lines: []string{"max_in_flight = 3", "max_in_flight_per_client = 2"},
	}}})
	u.must("wake", "hello")
	ask := func(ip string) *lane {
		l := u.laneAs(ip)
		fmt.Fprint(l.conn, "GET /version HTTP/1.1\r\nHost: hello.localhost\r\n\r\n")
		return l
	}
	inside := []*lane{ask("127.0.0.2"), ask("127.0.0.2")}
	u.awaitMetric(2, "usher_requests_in_flight")
	if a := ask("127.0.0.2").answer(); a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" {
		t.Errorf("too many of one client: %s", a)
	}
	inside = append(inside, ask("127.0.0.3"))
	u.awaitMetric(3, "usher_requests_in_flight")
	if a := ask("127.0.0.4").answer(); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("too many of all: %s", a)
	}
	for _, l := range inside {
		ok(t, l.answer())
	}
	u.awaitMetric(1, "usher_request_causes_total", `cause="client-at-capacity"`)
	u.awaitMetric(1, "usher_request_causes_total", `cause="at-capacity"`)
}

// Every client that is let in is served, however few descriptors there are: beside many
// listeners and other apps whose connections are idle, and while an app is started, moved and looked at.
func TestWhoIsLetInHasADescriptorForTheApp(t *testing.T) {
	t.Parallel()
	u := prepare(t, options{
		descriptors: 64, server: []string{"max_connections_per_client = 0"},
		apps: []app{{name: "one"}, {name: "two"}, {name: "three"}},
	})
	for i := range 9 {
		u.listenAlso("unix:" + filepath.Join(u.dir, fmt.Sprint("http", i)))
	}
	u.begin()
	m := regexp.MustCompile(`max_connections is (\d+) and`).FindStringSubmatch(readFile(t, u.logFile()))
	if m == nil {
		t.Fatalf("the log does not say how many:\n%s", u.logTail(40))
	}
	most, err := strconv.Atoi(m[1])
	if err != nil || most < 4 {
		t.Fatalf("%s clients fit into 64 descriptors", m[1])
	}
	var lanes []*lane
	for range most {
		lanes = append(lanes, u.lane())
	}
	for _, name := range []string{"one", "two", "three"} {
		ok(t, lanes[0].get(name, "/pid")) // all at once would be let go a few at a time
	}
	for _, name := range []string{"one", "two", "three", "one"} {
		answers := make(chan answer, most)
		for _, l := range lanes {
			go func() { answers <- l.get(name, "/sleep?d=3s") }()
		}
		u.eventually(20*time.Second, "all are inside", func() error {
			if n := u.status(name).InFlight; n < int64(most) {
				return fmt.Errorf("%d of %d", n, most)
			}
			return nil
		})
		if name == "two" {
			u.deploy(name, hello(t, "v2"))
		}
		for range lanes {
			ok(t, <-answers)
		}
	}
}

// A limit that is too small for anything is told at once, and with what would do.
func TestALimitThatServesNobodyIsRefused(t *testing.T) {
	t.Parallel()
	for _, n := range []int{14, 20, 30} {
		u := prepare(t, options{descriptors: n})
		if log := u.refused(1); !regexp.MustCompile(`usher needs (some )?\d+ descriptors`).MatchString(log) {
			t.Errorf("with %d descriptors:\n%s", n, log)
		}
	}
}
