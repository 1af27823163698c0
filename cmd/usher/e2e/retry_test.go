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

// external is an app whose process is the test's own, with further lines.
func external(t *testing.T, target string, lines ...string) *usher {
	t.Helper()
	u := prepare(t, options{})
	u.writeConfig(fmt.Sprintf("[server]\nlisten = [%q]\nadmin = %q\nstate = %q\nrun = %q\n[apps.api]\nhosts = [\"api.localhost\"]\ntarget = %q\n%s\n",
		u.listen, "unix:"+u.admin, u.state(), u.run(), target, strings.Join(lines, "\n")))
	u.serve()
	u.base = u.vitals()
	return u
}

// R01: the app closes idle connections just when they are used again.
func TestIdleConnectionsThatTheAppClosesCostNoRequest(t *testing.T) {
	t.Parallel()
	const idle = 100 * time.Millisecond
	var executed atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			executed.Add(1)
		}
		io.Copy(w, r.Body)
	}))
	server.Config.IdleTimeout = idle
	server.Start()
	defer server.Close()
	u := external(t, server.Listener.Addr().String())
	posts := int64(0)
	for i := range rounds(60, 1000) {
		method := http.MethodGet
		if i%2 == 1 {
			method, posts = http.MethodPost, posts+1
		}
		if a := send(u.client, method, "api", "/", "body"); a.err != nil || a.status != http.StatusOK || a.body != "body" {
			t.Fatalf("request %d, %s: %s", i, method, a)
		}
		pass(idle - 2*time.Millisecond + time.Duration(i%9)*500*time.Microsecond)
	}
	if n := executed.Load(); n != posts {
		t.Errorf("%d POSTs were sent, %d executed", posts, n)
	}
	server.CloseClientConnections()
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
			u := external(t, app.addr(), `first_byte_timeout = "500ms"`)
			l := u.lane()
			if a := l.send(http.MethodPost, "api", "/warm", "x"); a.status != http.StatusOK {
				t.Fatalf("the first is answered: %s", a) // so that there is a connection to reuse
			}
			if a := l.send(http.MethodPost, "api", "/drop", "x"); a.status != c.status {
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
	pid := u.status("hello").PID
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s := u.awaitStatus("hello", 5*time.Second, "awake again", func(s admin.AppStatus) bool {
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
	if res.Total.Failed > 5 {
		t.Errorf("%d failed, at a rate of 50/s: %v", res.Total.Failed, res.Total.Failures)
	}
}
