package bench

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTheScheduleIsFixedByRateDurationAndSeed(t *testing.T) {
	load := Load{Rate: 1000, Duration: 2 * time.Second, Arrivals: Poisson, Seed: 1}
	first, again := load.schedule(), load.schedule()
	if !slices.Equal(first, again) {
		t.Error("the same load has two schedules")
	}
	if !slices.IsSorted(first) || first[len(first)-1] >= load.Duration {
		t.Error("the schedule is not in order or goes beyond the duration")
	}
	if n := len(first); n < 1800 || n > 2200 {
		t.Errorf("%d Poisson arrivals, want about 2000", n)
	}
	load.Seed = 2
	if slices.Equal(first, load.schedule()) {
		t.Error("another seed has the same schedule")
	}
	load.Arrivals = Constant
	even := load.schedule()
	if len(even) != 2000 || even[1] != time.Millisecond || even[1999] != 1999*time.Millisecond {
		t.Errorf("constant schedule of %d requests, second at %s", len(even), even[1])
	}
}

func TestChoicesFollowSharesAndSeed(t *testing.T) {
	load := Load{Targets: make([]Target, 3), Posts: 0.2, NewConnections: 0.1, Seed: 9}
	posts, fresh := 0, 0
	targets := make([]int, 3)
	for i := range 10000 {
		c := load.choose(i)
		if c != load.choose(i) {
			t.Fatal("request is chosen anew each time")
		}
		targets[c.target]++
		if c.post {
			posts++
		}
		if c.newConn {
			fresh++
		}
	}
	if posts < 1800 || posts > 2200 || fresh < 850 || fresh > 1150 || slices.Min(targets) < 3000 {
		t.Errorf("posts %d, new connections %d, targets %v", posts, fresh, targets)
	}
}

func TestABadLoadIsRefusedWithAllItsFaults(t *testing.T) {
	_, err := Start(t.Context(), Load{
		Targets: []Target{{Network: "udp", Address: "x", Path: "no-slash"}},
		Rate:    -1, Arrivals: "sometimes", Connections: -1, Posts: 2, NewConnections: -1,
		BodyBytes: 3, PostPath: "echo", Timeout: -1, MaxAnswerBytes: -1,
	})
	if err == nil {
		t.Fatal("accepted")
	}
	mustContain(t, "error", err.Error(), "udp", "no-slash", "rate -1", "duration", "sometimes", "connections -1",
		"posts 2", "new connections -1", "body of 3", `"echo"`, "timeout", "answer limit")
	if n := len(strings.Split(err.Error(), "\n")); n != 12 {
		t.Errorf("%d lines, want one for each of 12 faults:\n%s", n, err)
	}
	if _, err := Start(t.Context(), Load{Rate: 1e6, Duration: time.Hour}); err == nil {
		t.Error("a schedule beyond all memory is accepted")
	} else {
		mustContain(t, "error", err.Error(), "no target", "lower the rate")
	}
}

func TestTargetsAreReadFromAddresses(t *testing.T) {
	for address, want := range map[string]Target{
		"http://example.org/a?b":        {Network: "tcp", Address: "example.org:80", Host: "example.org", Path: "/a?b"},
		"http://hello.localhost:8080":   {Network: "tcp", Address: "127.0.0.1:8080", Host: "hello.localhost:8080", Path: "/"},
		"127.0.0.1:3000":                {Network: "tcp", Address: "127.0.0.1:3000", Host: "127.0.0.1:3000", Path: "/"},
		"http://[::1]:80/%7e":           {Network: "tcp", Address: "[::1]:80", Host: "[::1]:80", Path: "/%7e"},
		"unix:/run/usher/http.sock":     {Network: "unix", Address: "/run/usher/http.sock"},
		"https://example.org":           {},
		"http://":                       {},
		"unix:":                         {},
		"http://exa mple.org/\nwritten": {},
	} {
		got, err := ParseTarget(address, "")
		if (err != nil) != (want == Target{}) || got != want {
			t.Errorf("%q: got %+v, %v; want %+v", address, got, err, want)
		}
	}
	got, err := ParseTarget("127.0.0.1:8080", "hello.localhost")
	if err != nil || got.Host != "hello.localhost" {
		t.Errorf("host is not replaced: %+v, %v", got, err)
	}
}

func TestTheAlarmDoesNotWakeEarly(t *testing.T) {
	a, err := newAlarm()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []time.Duration{-1, 50 * time.Microsecond, 3 * time.Millisecond} {
		start := time.Now()
		if err := a.sleep(d); err != nil || time.Since(start) < d {
			t.Errorf("slept %s of %s: %v", time.Since(start), d, err)
		}
	}
	asleep := make(chan error)
	go func() { asleep <- a.sleep(time.Hour) }()
	if err := a.stop(); err != nil {
		t.Error(err)
	}
	if err := a.stop(); err != nil {
		t.Errorf("second stop: %v", err)
	}
	if err := <-asleep; err == nil {
		t.Error("a stopped alarm slept on")
	}
}
