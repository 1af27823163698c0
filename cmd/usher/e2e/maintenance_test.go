package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/admin"
)

// accepting asks for a page as a client that accepts these types.
func (u *usher) accepting(accept, name, path string) answer {
	u.t.Helper()
	req, err := http.NewRequest(http.MethodGet, url(name, path), nil)
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Accept", accept)
	return do(u.client, req)
}

const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

func TestAnAppInMaintenanceShowsItsPageUntilItIsResumed(t *testing.T) {
	t.Parallel()
	u := prepare(t, options{})
	page := filepath.Join(u.dir, "soon.html")
	if err := os.WriteFile(page, []byte("<h1>back at noon</h1>"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := app{cache: true, lines: []string{`maintenance_page = "soon.html"`}}
	u.configure(options{apps: []app{a, {name: "plain"}}})
	u.begin()
	pid := ok(t, u.get("hello", "/pid")).body
	cached := ok(t, u.get("hello", "/cached")).body
	if again := ok(t, u.get("hello", "/cached")); again.body != cached {
		t.Fatalf("not cached: %s", again)
	}

	u.must("pause", "hello", "--maintenance")
	u.must("pause", "plain", "--maintenance")
	inMaintenance := func(words string) {
		t.Helper()
		for _, path := range []string{"/pid", "/cached"} {
			got := u.accepting(browser, "hello", path)
			if got.status != 503 || got.body != words || got.header.Get("Content-Type") != "text/html; charset=utf-8" ||
				got.header.Get("Retry-After") != "30" || got.header.Get("Proxy-Status") != "usher; error=destination_unavailable" {
				t.Errorf("%s: %s, %v", path, got, got.header)
			}
		}
	}
	inMaintenance("<h1>back at noon</h1>")
	if got := u.accepting("application/json", "hello", "/pid"); got.status != 503 || got.body != "This app is down for maintenance.\n" || got.header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("for a client that takes no HTML: %s, %v", got, got.header)
	}
	if got := u.accepting(browser, "plain", "/"); got.status != 503 || !strings.Contains(got.body, "<h1>Down for maintenance</h1>") {
		t.Errorf("the page that is built in: %s", got)
	}
	if got := u.accepting("*/*", "plain", "/"); got.status != 503 || got.body != "This app is down for maintenance.\n" {
		t.Errorf("for a client that does not ask for HTML: %s", got)
	}
	if s := u.status("hello"); s.State != admin.Paused || !s.Maintenance {
		t.Errorf("status is %s, maintenance %v", s.State, s.Maintenance)
	}
	if r := u.must("status", "hello"); !strings.Contains(r.stdout, "paused (maintenance)") {
		t.Errorf("usher status says\n%s", r.stdout)
	}

	// A page that was changed shows after a reload; one that is lost is told, and
	// the old one stays.
	if err := os.WriteFile(page, []byte("<h1>back at one</h1>"), 0o600); err != nil {
		t.Fatal(err)
	}
	inMaintenance("<h1>back at noon</h1>")
	u.must("reload")
	inMaintenance("<h1>back at one</h1>")
	if err := os.Remove(page); err != nil {
		t.Fatal(err)
	}
	u.exits(5, "maintenance_page", "reload")
	u.exits(5, "maintenance_page", "validate", "--config", u.config())
	inMaintenance("<h1>back at one</h1>")
	if err := os.WriteFile(page, []byte("<h1>back at two</h1>"), 0o600); err != nil {
		t.Fatal(err)
	}

	// It lasts over restarts of usher, however it ends, and the app runs on.
	for _, stop := range []func(){u.kill, func() { u.terminate(20 * time.Second) }} {
		stop()
		u.serve()
		inMaintenance("<h1>back at two</h1>")
	}
	u.must("resume", "hello")
	if got := ok(t, u.get("hello", "/pid")); got.body != pid {
		t.Errorf("the app answers as %q, it was %q", got.body, pid)
	}
	ok(t, u.get("hello", "/cached"))
	if s := u.status("hello"); s.State != admin.Awake || s.Maintenance {
		t.Errorf("status is %s, maintenance %v", s.State, s.Maintenance)
	}
	u.must("resume", "plain")
	ok(t, u.get("plain", "/"))
}

// What waits when maintenance begins is told at once; a plain pause after it
// makes requests wait again.
func TestAPauseChangesIntoMaintenanceAndBack(t *testing.T) {
	t.Parallel()
	u := start(t, options{})
	ok(t, u.get("hello", "/"))
	u.must("pause", "hello")
	l := u.lane()
	fmt.Fprint(l.conn, "GET / HTTP/1.1\r\nHost: hello.localhost\r\n\r\n")
	u.awaitMetric(1, "usher_requests_parked")
	u.must("pause", "hello", "--maintenance")
	if a := l.answer(); a.status != 503 || a.body != "This app is down for maintenance.\n" || a.header.Get("Retry-After") != "30" {
		t.Errorf("what waited: %s, %v", a, a.header)
	}
	u.must("pause", "hello")
	if s := u.status("hello"); s.State != admin.Paused || s.Maintenance {
		t.Errorf("status is %s, maintenance %v", s.State, s.Maintenance)
	}
	again := u.lane()
	fmt.Fprint(again.conn, "GET / HTTP/1.1\r\nHost: hello.localhost\r\n\r\n")
	u.awaitMetric(1, "usher_requests_parked")
	u.must("resume", "hello")
	ok(t, again.answer())
}
