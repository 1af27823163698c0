package e2e

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/usher-edge/usher/admin"
)

// external is a usher with n apps, api0 and so on, whose process is the test's
// own, with further lines for each.
func external(t *testing.T, n int, target string, lines ...string) *usher {
	t.Helper()
	u := prepare(t, options{})
	var b strings.Builder
	fmt.Fprintf(&b, "[server]\nlisten = [%q]\nadmin = %q\nstate = %q\nrun = %q\n", u.listen, "unix:"+u.admin, u.state(), u.run())
	for i := range n {
		fmt.Fprintf(&b, "[apps.api%d]\nhosts = [\"api%d.localhost\"]\ntarget = %q\n%s\n", i, i, target, strings.Join(lines, "\n"))
	}
	u.writeConfig(b.String())
	u.begin()
	return u
}

// R01: the app closes idle connections just when they are used again. A GET is
// sent once more; a POST must not have been put on such a connection at all,
// which is for connections idle for a second or more.
func TestIdleConnectionsThatTheAppClosesCostNoRequest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method string
		idle   time.Duration
		times  int
	}{
		{http.MethodGet, 100 * time.Millisecond, rounds(30, 1000)},
		{http.MethodPost, 1100 * time.Millisecond, rounds(4, 100)},
	} {
		t.Run(c.method, func(t *testing.T) {
			t.Parallel()
			var executed atomic.Int64
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { executed.Add(1) }))
			server.Config.IdleTimeout = c.idle
			server.Start()
			defer server.Close()
			const apps = 8 // each with connections of its own
			u := external(t, apps, server.Listener.Addr().String())
			together(apps, func(n int) answer {
				for i := range c.times {
					if a := send(u.client, c.method, fmt.Sprint("api", n), "/", ""); a.err != nil || a.status != http.StatusOK {
						t.Errorf("app %d, request %d: %s", n, i, a)
					}
					pass(c.idle - 2*time.Millisecond + time.Duration((i+n)%9)*500*time.Microsecond)
				}
				return answer{}
			})
			if n := executed.Load(); n != int64(apps*c.times) && c.method == http.MethodPost {
				t.Errorf("%d were sent, %d executed", apps*c.times, n)
			}
		})
	}
}

// R02: the app has the request, and then answers nothing, or too late.
func TestARequestThatTheAppHasReceivedIsNotSentAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		linger time.Duration
		status int
	}{
		{"closes without an answer", 0, http.StatusBadGateway},
		{"says nothing in time", 30 * time.Second, http.StatusGatewayTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			app := newReceiver(t, c.linger)
			u := external(t, 1, app.addr(), `first_byte_timeout = "2s"`)
			l := u.lane()
			if a := l.send(http.MethodPost, "api0", "/warm", "x"); a.status != http.StatusOK {
				t.Fatalf("the first is answered: %s", a) // so that there is a connection to reuse
			}
			if a := l.send(http.MethodPost, "api0", "/drop", "x"); a.status != c.status {
				t.Errorf("want %d, got %s", c.status, a)
			}
			if n := app.dropped.Load(); n != 1 {
				t.Errorf("executed %d times", n)
			}
		})
	}
}

// receiver is an app that takes requests and, at /drop, gives nothing back.
type receiver struct {
	ln      net.Listener
	linger  time.Duration
	stop    chan struct{}
	dropped atomic.Int64
}

func newReceiver(t *testing.T, linger time.Duration) *receiver {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{ln: ln, linger: linger, stop: make(chan struct{})}
	t.Cleanup(func() { close(r.stop); ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go r.serve(c)
		}
	}()
	return r
}

func (r *receiver) addr() string { return r.ln.Addr().String() }

func (r *receiver) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		if req.URL.Path == "/drop" {
			r.dropped.Add(1)
			select {
			case <-time.After(r.linger):
			case <-r.stop:
			}
			return
		}
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	}
}

// R03: the body waits with the request, whole, in either framing.
func TestTheBodyOfAParkedRequestArrivesWhole(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{artifact: hello(t, "v1", "slow-start=500ms")}}})
	body := strings.Repeat("0123456789abcde\n", 1<<16) // 1 MiB
	sum := sha256.Sum256([]byte(body))
	answers := together(4, func(i int) answer {
		var reader io.Reader = strings.NewReader(body)
		if i%2 == 1 {
			reader = io.MultiReader(reader) // of no known length: chunked
		}
		req, err := http.NewRequest(http.MethodPost, url("hello", "/upload"), reader)
		if err != nil {
			return answer{err: err}
		}
		return do(u.client, req)
	})
	for _, a := range answers {
		if ok(t, a); !strings.Contains(a.body, hex.EncodeToString(sum[:])) {
			t.Errorf("other bytes arrived: %s", a)
		}
	}
}

// R07.
func TestAnAppThatIsKilledUnderLoadServesAgainSoonAndForGood(t *testing.T) {
	t.Parallel()
	u := start(t, options{})
	run := u.load(50, "hello")
	u.awaitState("hello", admin.Awake, 10*time.Second)
	// What waited for the first start is let in together, and must not be inside.
	s := u.awaitStatus("hello", 10*time.Second, "at ease", func(s admin.AppStatus) bool { return s.Parked == 0 && s.InFlight < 3 })
	pid := s.PID
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s = u.awaitStatus("hello", 5*time.Second, "awake again", func(s admin.AppStatus) bool {
		return s.State == admin.Awake && s.PID != pid
	})
	run.ExpectGeneration(s.Generation)
	run.Begin("after", "awake again")
	pass(time.Second)
	res := finished(t, run)
	for _, p := range res.Phases {
		if p.Name == "after" && p.Failed > 0 {
			t.Errorf("%d failed after it was awake again: %+v", p.Failed, res.FailureSamples)
		}
	}
	for kind := range res.Total.Failures {
		if !slices.Contains([]string{"status_502", "short_body"}, kind) { // what was inside when it died
			t.Errorf("failures of kind %s: %+v", kind, res.FailureSamples)
		}
	}
	if res.Total.Failed > 10 {
		t.Errorf("%d failed, at a rate of 50/s: %v", res.Total.Failed, res.Total.Failures)
	}
}
