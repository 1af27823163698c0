package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// runDemo tells the story with a fake usher and returns what was shown.
func runDemo(ctx context.Context, t *testing.T, how string, change func(*options)) (string, error) {
	t.Helper()
	t.Setenv(fakeEnv, how)
	// Under the race detector, each of the many short children would linger.
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	temp, apps := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temp)
	for _, name := range []string{"hello", "hello-v2", "hello-v3"} {
		if err := os.WriteFile(filepath.Join(apps, name), []byte("#!/bin/true\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	o := options{usher: os.Args[0], apps: apps, listen: "127.0.0.1:0", rate: 200, around: 200 * time.Millisecond}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var out lockedBuffer
	err := demo(ctx, o, &out)
	if left, _ := os.ReadDir(temp); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	return out.String(), err
}

// lockedBuffer can be read while the demo writes.
type lockedBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func TestTheDemoTellsItsStory(t *testing.T) {
	pictures := t.TempDir()
	out, err := runDemo(t.Context(), t, "good", func(o *options) { o.pictures = pictures })
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, part := range []string{
		"both are asleep", "the first request woke hello", "50 requests at once woke notes", "hello: starting",
		"overlap to v2  before", "hold to v3", "ms each", "attempt 2: release of revision 2", "none failed",
	} {
		if !strings.Contains(out, part) {
			t.Errorf("lacks %q:\n%s", part, out)
		}
	}
	for _, name := range []string{"overlap.html", "hold.html"} {
		if page, err := os.ReadFile(filepath.Join(pictures, name)); err != nil || !bytes.Contains(page, []byte("<svg")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheDemoFailsWhenSomethingWentWrong(t *testing.T) {
	for how, want := range map[string]string{
		"drops":    "requests failed",
		"refuses":  "usher did not start",
		"fails":    "usher deploy hello --mode overlap",
		"overlaps": "nothing was held",
	} {
		t.Run(how, func(t *testing.T) {
			out, err := runDemo(t.Context(), t, how, nil)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q in it", err, want)
			}
			if !strings.Contains(out, "the end of usher's log") {
				t.Errorf("usher's log is not shown:\n%s", out)
			}
		})
	}
}

func TestAnInterruptedDemoStopsWhatItStarted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(500*time.Millisecond, cancel)
	_, err := runDemo(ctx, t, "sleepless", nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestAMissingProgramIsToldBeforeAnythingStarts(t *testing.T) {
	_, err := runDemo(t.Context(), t, "good", func(o *options) { o.usher = "/nowhere/usher" })
	if err == nil || !strings.Contains(err.Error(), "/nowhere/usher is no program: build usher") {
		t.Errorf("got %v", err)
	}
}

func TestABusyAddressIsReplaced(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	got, err := freeAddress(taken.Addr().String())
	if err != nil || got == taken.Addr().String() || !strings.HasPrefix(got, "127.0.0.1:") {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestLeftoversInsideTheStageAreKilled(t *testing.T) {
	s := &stage{dir: t.TempDir()}
	cmd := exec.Command("sleep", "60")
	cmd.Dir = filepath.Join(s.dir, "app")
	if err := os.Mkdir(cmd.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if err := s.clear(); err != nil {
		t.Error(err)
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("it is still running")
		_ = cmd.Process.Kill()
		<-ended
	}
}

func TestParkedIsReadFromMetrics(t *testing.T) {
	const metrics = `# TYPE usher_park_duration_seconds histogram
usher_park_duration_seconds_bucket{app="hello",le="0.1"} 3
usher_park_duration_seconds_sum{app="hello"} 0.15
usher_park_duration_seconds_count{app="hello"} 3
usher_park_duration_seconds_sum{app="notes"} 1
usher_park_duration_seconds_count{app="notes"} 1
`
	got, err := parseParked(strings.NewReader(metrics), "hello")
	if err != nil || got.String() != "3, 50.0 ms each" {
		t.Errorf("got %s, %v", got, err)
	}
	if s := got.since(got).String(); s != "-" {
		t.Errorf("nothing parked is %q", s)
	}
	if _, err := parseParked(strings.NewReader(metrics), "other"); err == nil {
		t.Error("an app without metrics has parked requests")
	}
}
