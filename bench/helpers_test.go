package bench

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if what := os.Getenv("BENCH_TEST_APP"); what != "" {
		testApp(what)
		return
	}
	goleak.VerifyTestMain(m)
}

// testApp is an app of its own process: this test binary, started again.
func testApp(what string) {
	network, address := "tcp", "127.0.0.1:"+os.Getenv("PORT")
	if path := os.Getenv("SOCKET"); path != "" {
		network, address = "unix", path
	}
	l, err := net.Listen(network, address)
	if err != nil || what == "ends" && os.Getenv("USHER_GENERATION") == "0" {
		os.Exit(3)
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	var idle atomic.Int64
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		dir, _ := os.Getwd()
		fmt.Fprintln(w, r.Host, r.URL.Path, dir, os.Args[1:], slices.Sorted(slices.Values(os.Environ())))
	})}
	if what == "stops slowly" {
		server.ConnState = func(_ net.Conn, to http.ConnState) {
			if to == http.StateIdle {
				idle.Add(1)
			}
		}
	}
	go func() { _ = server.Serve(l) }()
	<-term
	<-time.After(time.Duration(idle.Load()) * 10 * time.Millisecond)
}

// limit is the longest any test waits for something that must happen.
const limit = 20 * time.Second

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// serveHTTP runs a handler and gives the target that reaches it.
func serveHTTP(t *testing.T, h http.Handler) Target {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return Target{Address: server.Listener.Addr().String()}
}

// serveRaw calls each with every connection, numbered from 1, after its first
// request's head (and no body) was read. The connection is closed afterwards.
func serveRaw(t *testing.T, each func(n int, conn *net.TCPConn, in *bufio.Reader)) Target {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	open.Go(func() {
		for n := 1; ; n++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				if readHead(in) {
					each(n, conn.(*net.TCPConn), in)
				}
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		open.Wait()
	})
	return Target{Address: listener.Addr().String()}
}

// readHead reads one request head without a body.
func readHead(in *bufio.Reader) bool {
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return false
		}
		if line == "\r\n" {
			return true
		}
	}
}

func write(t *testing.T, conn net.Conn, s string) {
	t.Helper()
	if _, err := conn.Write([]byte(s)); err != nil {
		t.Errorf("scripted server: %v", err)
	}
}

// steady runs a load that is expected to come to its end.
func steady(t *testing.T, load Load) *Result {
	t.Helper()
	result, err := Steady(testContext(t), load)
	if err != nil {
		t.Fatal(err)
	}
	if s := result.Total; s.Served+s.Failed+s.Cut != s.Requests {
		t.Errorf("served %d + failed %d + cut %d is not %d requests", s.Served, s.Failed, s.Cut, s.Requests)
	}
	return result
}

func wantFailures(t *testing.T, r *Result, want map[string]int) {
	t.Helper()
	for kind, n := range want {
		if r.Total.Failures[kind] != n {
			t.Errorf("%s failures: got %d, want %d (all: %v; samples: %v)",
				kind, r.Total.Failures[kind], n, r.Total.Failures, r.FailureSamples)
		}
	}
	for kind, n := range r.Total.Failures {
		if _, known := want[kind]; !known {
			t.Errorf("unexpected %d failures of kind %s: %v", n, kind, r.FailureSamples)
		}
	}
}

func mustContain(t *testing.T, where, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s lacks %q:\n%s", where, part, text)
		}
	}
}

// eventually polls until ok or the test's limit.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx := testContext(t)
	for !ok() {
		if pause(ctx, time.Millisecond) != nil {
			t.Fatalf("never happened: %s", what)
		}
	}
}
