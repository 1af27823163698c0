package peers

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// shoot fires at a handler and expects a tally.
func shoot(t *testing.T, s shot, h http.Handler) tally {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	got, err := aim(t, s, server.Listener.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// untilItFails is the duration of a shot that only its own error ends.
const untilItFails = time.Hour

// aim fills in what a test does not care for. A shot goes on until something was
// answered, at least.
func aim(t *testing.T, s shot, addr net.Addr) (tally, error) {
	t.Helper()
	s.address = addr.(*net.TCPAddr).AddrPort()
	s.address = netip.AddrPortFrom(s.address.Addr().Unmap(), s.address.Port())
	if s.request == nil {
		s.request = []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	}
	if s.connections == 0 {
		s.connections = 4
	}
	if s.duration == 0 {
		s.duration = 300 * time.Millisecond
	}
	if s.least == 0 {
		s.least = 1
	}
	opened, shut := 0, 0
	s.open, s.shut = func() { opened++ }, func() { shut++ }
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	got, err := s.fire(ctx)
	if err == nil && (opened != 1 || shut != 1) {
		t.Errorf("opened %d times, shut %d times", opened, shut)
	}
	return got, err
}

func body(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Length", fmt.Sprint(n))
		_, _ = w.Write(content(n))
	}
}

func TestEveryAnswerIsCounted(t *testing.T) {
	post := []byte("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("x", 1000000))
	for name, tc := range map[string]struct {
		shot shot
		size int
	}{
		"small":               {shot{}, 100},
		"empty":               {shot{}, 0},
		"large":               {shot{}, 3 << 20},
		"large body":          {shot{request: post}, 10},
		"many connections":    {shot{connections: 300}, 100},
		"with warming":        {shot{warm: 50 * time.Millisecond}, 100},
		"on a fixed schedule": {shot{rate: 500}, 100},
	} {
		t.Run(name, func(t *testing.T) {
			var seen atomic.Int64
			h := body(tc.size)
			tc.shot.length = tc.size
			got := shoot(t, tc.shot, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { seen.Add(1); h(w, r) }))
			if got.failures != 0 || got.requests < 1 || got.requests > int(seen.Load()) || got.elapsed < 300*time.Millisecond {
				t.Errorf("%d requests, %d failures (%v) in %s; the server saw %d", got.requests, got.failures, got.first, got.elapsed, seen.Load())
			}
			if n := got.latency.TotalCount(); n != int64(got.requests) {
				t.Errorf("%d latencies of %d requests", n, got.requests)
			}
		})
	}
}

func TestAFixedScheduleSendsNoMoreThanIsDue(t *testing.T) {
	const rate = 200
	got := shoot(t, shot{rate: rate, length: 10, least: 50, connections: 8}, body(10))
	if float64(got.requests) > 1+rate*got.elapsed.Seconds() {
		t.Errorf("%d requests at 200/s in %s", got.requests, got.elapsed)
	}
}

func TestLatencyOnAScheduleCountsFromWhenARequestWasDue(t *testing.T) {
	var n atomic.Int64
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 {
			<-time.After(300 * time.Millisecond)
		}
		body(10)(w, r)
	})
	// One connection: all that is due during the stall waits for it.
	got := shoot(t, shot{rate: 100, length: 10, least: 30, connections: 1}, slow)
	waited := time.Duration(got.latency.ValueAtQuantile(80))
	if waited < 20*time.Millisecond || got.latency.Max() < (290*time.Millisecond).Nanoseconds() {
		t.Errorf("p80 %s, most %s of %d requests", waited, time.Duration(got.latency.Max()), got.requests)
	}
}

func TestWrongAnswersAreFailures(t *testing.T) {
	for name, tc := range map[string]struct {
		h    http.HandlerFunc
		want string
	}{
		"status": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, "502"},
		"length": {body(9), "an answer of 9 bytes, not of 10"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(tc.h)
			t.Cleanup(server.Close)
			_, err := aim(t, shot{length: 10, duration: untilItFails}, server.Listener.Addr())
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "in a row") {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestOneFailureAmongManyIsCountedAndGoneOver(t *testing.T) {
	var n atomic.Int64
	got := shoot(t, shot{length: 10, least: 20}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 20 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		body(10)(w, r)
	}))
	if got.failures != 1 || got.requests < 20 || !strings.Contains(fmt.Sprint(got.first), "503") {
		t.Errorf("%d failures (%v), %d requests", got.failures, got.first, got.requests)
	}
}

// scripted answers every request on a connection with what it is told.
func scripted(t *testing.T, answer func(conn net.Conn) (stay bool)) net.Addr {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				for {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					_ = r.Body.Close()
					if !answer(conn) {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); open.Wait() })
	return l.Addr()
}

func TestAnAnswerInPiecesIsPutTogether(t *testing.T) {
	addr := scripted(t, func(conn net.Conn) bool {
		for _, piece := range strings.SplitAfter("HTTP/1.1 200 OK\r\n|Content-|Length: 4\r\n\r|\n|ab|cd", "|") {
			if _, err := io.WriteString(conn, strings.TrimSuffix(piece, "|")); err != nil {
				return false
			}
		}
		return true
	})
	got, err := aim(t, shot{length: 4}, addr)
	if err != nil || got.failures != 0 || got.requests == 0 {
		t.Errorf("%d requests, %d failures, %v, %v", got.requests, got.failures, got.first, err)
	}
}

func TestAPeerThatClosesAfterItsAnswerIsConnectedToAgain(t *testing.T) {
	for name, field := range map[string]string{"announced": "Connection: close\r\n", "not announced": ""} {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int64
			addr := scripted(t, func(conn net.Conn) bool {
				n.Add(1)
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n"+field+"content-length: 2\r\n\r\nok")
				return field == "" && n.Load()%3 != 0
			})
			got, err := aim(t, shot{length: 2, least: 5}, addr)
			if err != nil || got.requests < 5 || field != "" && got.failures != 0 {
				t.Errorf("%d requests, %d failures, %v, %v", got.requests, got.failures, got.first, err)
			}
		})
	}
}

func TestSurplusAndShortAnswersAreFailures(t *testing.T) {
	for name, tc := range map[string]struct{ answer, want string }{
		"surplus": {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokok", "2 bytes after the answer"},
		"short":   {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no", "closed before the answer was whole"},
		"none":    {"", "closed before the answer was whole"},
	} {
		t.Run(name, func(t *testing.T) {
			addr := scripted(t, func(conn net.Conn) bool {
				_, _ = io.WriteString(conn, tc.answer)
				return false
			})
			got, err := aim(t, shot{length: 2, duration: untilItFails}, addr)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %+v and %v, want %q", got.first, err, tc.want)
			}
		})
	}
}

func TestAShotEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { cancel() }))
	defer server.Close()
	addr := server.Listener.Addr().(*net.TCPAddr).AddrPort()
	s := shot{
		address: addr, request: []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), connections: 1, duration: time.Hour,
		open: func() {}, shut: func() {},
	}
	if _, err := s.fire(ctx); err != context.Canceled { //nolint:errorlint // it is returned as it is
		t.Errorf("got %v", err)
	}
}

func TestNobodyThereIsAnError(t *testing.T) {
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := aim(t, shot{}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}); err == nil || !strings.Contains(err.Error(), "connect to 127.0.0.1:") {
		t.Errorf("got %v", err)
	}
}
