package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/admin"
)

// logLine is what these tests read of a line of the access log.
type logLine struct {
	Method, Target, Ending, Cause string
	Status                        int
	SentStatus                    int     `json:"sent_status"`
	ParkedMS                      float64 `json:"parked_ms"`
}

// logged is usher with an access log, and a way to read it.
func logged(t *testing.T, o options) (*usher, func() []logLine) {
	t.Helper()
	path := filepath.Join(scratch(t), "access.log")
	o.server = append(o.server, fmt.Sprintf("access_log = %q", path))
	u := start(t, o)
	return u, func() (lines []logLine) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range strings.SplitAfter(string(text), "\n") {
			var line logLine
			if strings.HasSuffix(l, "\n") {
				if err := json.Unmarshal([]byte(l), &line); err != nil {
					t.Fatalf("%q: %v", l, err)
				}
				lines = append(lines, line)
			}
		}
		return lines
	}
}

// awaitLine waits until a request with that target is in the log, once.
func awaitLine(u *usher, lines func() []logLine, target string) logLine {
	u.t.Helper()
	var found []logLine
	u.eventually(10*time.Second, target+" is in the log", func() error {
		found = nil
		for _, l := range lines() {
			if l.Target == target {
				found = append(found, l)
			}
		}
		if len(found) == 0 {
			return fmt.Errorf("it is not, among %d", len(lines()))
		}
		return nil
	})
	if len(found) != 1 {
		u.t.Errorf("%s has %d lines", target, len(found))
	}
	return found[0]
}

// asking sends a request on a connection of its own, which the caller closes.
func (u *usher) asking(request string) net.Conn {
	u.t.Helper()
	c, err := net.Dial("tcp", u.listen)
	if err != nil {
		u.t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Second)) // fails only if closed
	if _, err := io.WriteString(c, request); err != nil {
		u.t.Fatal(err)
	}
	return c
}

// leave sends a request and resets the connection once the app has it, or once
// some of the answer is here.
func (u *usher) leave(request string, read int, when func()) {
	u.t.Helper()
	c := u.asking(request)
	defer c.Close()
	if _, err := io.CopyN(io.Discard, c, int64(read)); err != nil {
		u.t.Fatal(err)
	}
	when()
	_ = c.(*net.TCPConn).SetLinger(0) // fails only if closed
}

// hangUp is leave without a reset: by an ordinary close, with all read up to end.
func (u *usher) hangUp(request, end string, when func()) {
	u.t.Helper()
	c := u.asking(request)
	defer c.Close()
	var one [1]byte
	for got := ""; !strings.HasSuffix(got, end); got += string(one[:]) {
		if _, err := io.ReadFull(c, one[:]); err != nil {
			u.t.Fatalf("%q and then %v; want %q", got, err, end)
		}
	}
	when()
}

// M01, M02, M04: a client that leaves is one line of the log whatever the moment,
// and none of them is the app's fault.
func TestAClientThatLeavesIsOneLineOfTheLogInEveryPhase(t *testing.T) {
	t.Parallel()
	u, lines := logged(t, options{apps: []app{{artifact: hello(t, "v1", "slow-start=1s")}}})
	get := func(target string) string {
		return "GET " + target + " HTTP/1.1\r\nHost: hello.localhost\r\n\r\n"
	}
	inFlight := func(n int64) func() {
		return func() {
			u.awaitStatus("hello", 10*time.Second, fmt.Sprintf("%d in flight", n), func(s admin.AppStatus) bool { return s.InFlight == n })
		}
	}
	parked := func() {
		u.eventually(10*time.Second, "parked", func() error {
			m, err := u.metrics()
			if err == nil && m.sum("usher_requests_parked") == 0 {
				err = fmt.Errorf("nothing is parked")
			}
			return err
		})
	}
	want := func(target string, status int) logLine {
		t.Helper()
		l := awaitLine(u, lines, target)
		if l.Status != status || l.Ending != "gone" || l.Cause != "client-gone" {
			t.Errorf("%s: %+v", target, l)
		}
		inFlight(0)()
		return l
	}

	u.leave(get("/version?parked"), 0, parked)
	if l := want("/version?parked", 499); l.ParkedMS == 0 {
		t.Errorf("nobody sees that it was parked: %+v", l)
	}
	ok(t, u.get("hello", "/version"))
	u.leave(get("/sleep?d=60s"), 0, inFlight(1))
	want("/sleep?d=60s", 499)
	u.leave(get("/big?n=500000000"), 100_000, func() {})
	if l := want("/big?n=500000000", 499); l.SentStatus != 200 {
		t.Errorf("%+v", l)
	}
	u.leave(get("/sse?every=60s"), 50, inFlight(1))
	want("/sse?every=60s", 499)
	u.leave("POST /upload?body HTTP/1.1\r\nHost: hello.localhost\r\nContent-Length: 1000\r\n\r\nhello", 0, inFlight(1))
	want("/upload?body", 499)
	// Nothing is sent to these that could fail: they are asked whether they are there.
	u.hangUp(get("/sleep?d=61s"), "", inFlight(1))
	want("/sleep?d=61s", 499)
	u.hangUp(get("/slowbody?n=2&every=60s"), "v1\n\r\n", inFlight(1))
	if l := want("/slowbody?n=2&every=60s", 499); l.SentStatus != 200 {
		t.Errorf("%+v", l)
	}

	m, err := u.metrics()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(lines()); float64(n) != m.sum("usher_requests_accepted_total") {
		t.Errorf("%d lines for %v requests", n, m.sum("usher_requests_accepted_total"))
	}
	if n := m.sum("usher_request_endings_total", `ending="failed"`); n != 0 {
		t.Errorf("%v of them are called the app's fault", n)
	}
	if n := m.sum("usher_request_causes_total", `cause="client-gone"`); n != 7 {
		t.Errorf("%v of them are counted as having left, want 7", n)
	}
}
