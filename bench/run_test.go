package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func echo(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		// Read whole: net/http drops the rest of a body once it has answered.
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
		return
	}
	fmt.Fprint(w, "hello")
}

func TestLatencyOfAStallCountsFromTheSchedule(t *testing.T) {
	const stall = 300 * time.Millisecond
	release := make(chan struct{})
	var first sync.Once
	target := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first.Do(func() { time.AfterFunc(stall, func() { close(release) }) })
		<-release
	}))
	// 4 connections, one request every 5 ms, nobody answered for 300 ms: a
	// tool that waits for answers before it sends would see 4 slow requests.
	run, err := Start(testContext(t), Load{
		Targets: []Target{target}, Rate: 200, Duration: 500 * time.Millisecond, Connections: 4,
	})
	if err != nil {
		t.Fatal(err)
	}
	result, err := run.Wait(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	wantFailures(t, result, nil)
	if result.Total.Requests != 100 {
		t.Fatalf("got %d requests, want all 100 of the schedule", result.Total.Requests)
	}
	entries := run.account().entries
	// Those due in the first 250 ms waited for 50 ms at least, and all but the 4 that
	// had a connection did so before they were sent.
	slow, unsent := 0, 0
	for _, e := range entries[:50] {
		if e.latency() > stall/6 {
			slow++
		}
		if e.taken-e.due > stall/6 {
			unsent++
		}
	}
	if slow < 48 || unsent < 44 {
		t.Errorf("%d of the first 50 requests were slow from their schedule on, and %d before they were sent, want nearly all", slow, unsent)
	}
	for _, i := range []int{0, 10, 20, 30, 40} {
		e, want := &entries[i], stall-time.Duration(i)*5*time.Millisecond
		if e.latency() < want-20*time.Millisecond {
			t.Errorf("request %d: latency %s, but it was due %s before the stall ended", i, e.latency(), want)
		}
	}
}

func TestARequestThatNeverGetsAConnectionTimesOutUnsent(t *testing.T) {
	release := make(chan struct{})
	var seen atomic.Int32
	target := serveHTTP(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		seen.Add(1)
		<-release
	}))
	defer close(release)
	result := steady(t, Load{
		Targets: []Target{target}, Rate: 100, Duration: 50 * time.Millisecond,
		Connections: 1, Timeout: 100 * time.Millisecond,
	})
	wantFailures(t, result, map[string]int{"timeout": 5})
	if max := result.Total.Latency.MaxMS; max < 100 {
		t.Errorf("slowest is %g ms, want the timeout at least", max)
	}
	if n := seen.Load(); n > 5 {
		t.Errorf("the server saw %d requests of 5", n)
	}
}

func TestEveryRequestOfAGoodServerIsServed(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var connections atomic.Int32
	server := &http.Server{
		Handler: http.HandlerFunc(echo),
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				connections.Add(1)
			}
		},
	}
	var done sync.WaitGroup
	done.Go(func() { _ = server.Serve(listener) })
	defer func() { server.Close(); done.Wait() }()

	result := steady(t, Load{
		Targets: []Target{{Network: "unix", Address: socket, Host: "hello.localhost"}},
		Rate:    1000, Duration: 300 * time.Millisecond, Connections: 8,
		Posts: 0.5, NewConnections: 0.25, BodyBytes: 100_000, Arrivals: Poisson, Seed: 7,
	})
	wantFailures(t, result, nil)
	s := result.Total
	if s.Posts < s.Requests/3 || s.Posts > s.Requests*2/3 {
		t.Errorf("%d of %d requests are POST, want about half", s.Posts, s.Requests)
	}
	// Each new connection also makes its worker dial once for the next request.
	if n := int(connections.Load()); n < s.Requests/6 || n > s.Requests*3/4 {
		t.Errorf("%d connections for %d requests, want well over a quarter", n, s.Requests)
	}
	if len(result.Series) == 0 || result.Total.Latency.P50MS <= 0 {
		t.Errorf("no series or no latency: %+v", result.Total)
	}
}

func TestAConnectionThatTheServerClosedIsNotUsedAgain(t *testing.T) {
	var connections atomic.Int32
	target := serveRaw(t, func(n int, conn *net.TCPConn, _ *bufio.Reader) {
		connections.Store(int32(n))
		// The answer leaves with the close, in one packet: the client cannot have
		// the one without the other.
		if err := cork(conn); err != nil {
			t.Error(err)
		}
		write(t, conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})
	result := steady(t, Load{Targets: []Target{target}, Rate: 20, Duration: 250 * time.Millisecond, Connections: 1})
	wantFailures(t, result, nil)
	if connections.Load() != 5 {
		t.Errorf("%d connections for 5 requests", connections.Load())
	}
}

func cork(conn *net.TCPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_CORK, 1) })
	return errors.Join(err, set)
}

func TestACutRunCountsNoFailures(t *testing.T) {
	release := make(chan struct{})
	entered := make(chan struct{}, 100)
	target := serveHTTP(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-release
	}))
	defer close(release)
	ctx, cancel := context.WithCancel(testContext(t))
	run, err := Start(ctx, Load{Targets: []Target{target}, Rate: 100, Duration: time.Hour / 100, Connections: 2})
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	<-entered
	cancel()
	result, err := run.Wait(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	wantFailures(t, result, nil)
	if s := result.Total; s.Cut < 2 || s.Cut != s.Requests {
		t.Errorf("cut %d of %d requests, want all", s.Cut, s.Requests)
	}
}

func TestStopFinishesWhatIsDue(t *testing.T) {
	var seen atomic.Int32
	target := serveHTTP(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { seen.Add(1) }))
	run, err := Start(testContext(t), Load{Targets: []Target{target}, Rate: 500, Duration: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "ten requests", func() bool { return seen.Load() >= 10 })
	run.Stop()
	run.Stop()
	result, err := run.Wait(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if s := result.Total; s.Served != int(seen.Load()) || s.Served != s.Requests {
		t.Errorf("served %d of %d, the server saw %d", s.Served, s.Requests, seen.Load())
	}
}

func TestWhatWasDueBeforeTheStopIsSentThoughThePacerIsLate(t *testing.T) {
	var seen atomic.Int32
	target := serveHTTP(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { seen.Add(1) }))
	due := make([]time.Duration, 2000) // at once
	run, err := startSchedule(testContext(t), Load{Targets: []Target{target}, Rate: 1}.withDefaults(), append(due, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	run.Stop()
	result, err := run.Wait(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if s := result.Total; s.Served != len(due) || int(seen.Load()) != len(due) {
		t.Errorf("served %d, the server saw %d of %d", s.Served, seen.Load(), len(due))
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	target := serveHTTP(t, http.HandlerFunc(echo))
	run, err := Start(testContext(t), Load{Targets: []Target{target}, Rate: 10, Duration: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := run.Wait(ended); err == nil {
		t.Error("waited beyond the end of its context")
	}
	run.Stop()
	if _, err := run.Wait(testContext(t)); err != nil {
		t.Error(err)
	}
}

func TestPhasesSplitAtTheirMarks(t *testing.T) {
	target := serveHTTP(t, http.HandlerFunc(echo))
	run, err := Start(testContext(t), Load{
		Targets: []Target{target}, Rate: 500, Duration: 200 * time.Millisecond, Phase: PhaseBefore,
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "half of the run", func() bool { return run.elapsed() > 100*time.Millisecond })
	run.Mark("now")
	run.Begin(PhaseAfter, "later")
	result, err := run.Wait(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Phases) != 2 || len(result.Marks) != 2 {
		t.Fatalf("phases %+v, marks %+v: want two each", result.Phases, result.Marks)
	}
	before, after := result.Phases[0], result.Phases[1]
	if before.Name != PhaseBefore || after.Name != PhaseAfter || before.EndMS != after.StartMS {
		t.Errorf("phases %+v", result.Phases)
	}
	if before.Requests+after.Requests != 100 || before.Requests < 50 {
		t.Errorf("%d + %d requests, want 100 and at least half of them before", before.Requests, after.Requests)
	}
}
