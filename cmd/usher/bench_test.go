package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/usher-edge/usher/admin"
	"github.com/usher-edge/usher/admin/admintest"
	"github.com/usher-edge/usher/admin/client"
	"github.com/usher-edge/usher/bench"
)

// idle is an app that nobody asks.
func idle() admin.AppStatus {
	a := hello()
	a.InFlight = 0
	return a
}

// front is a server that says which generation answers.
type front struct {
	generation atomic.Uint64
	host       atomic.Pointer[string] // of the last request
	target     atomic.Pointer[string]
	before     func() // each request; may be nil
	url        string
}

func newFront(t *testing.T, before func()) *front {
	t.Helper()
	f := &front{before: before}
	f.generation.Store(5)
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	f.url = s.URL
	return f
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.before != nil {
		f.before()
	}
	f.host.Store(&r.Host)
	f.target.Store(&r.RequestURI)
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Usher-Generation", strconv.FormatUint(f.generation.Load(), 10))
	if r.URL.Path == "/fails" {
		w.WriteHeader(http.StatusInternalServerError)
	}
	_, _ = w.Write(body)
}

func readResult(t *testing.T, out string) bench.Result {
	t.Helper()
	var r bench.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return r
}

func TestBenchSteadyPrintsATableAndWritesPictures(t *testing.T) {
	tt := newTerminal(t)
	f := newFront(t, nil)
	dir := t.TempDir()
	html, svg := filepath.Join(dir, "a.html"), filepath.Join(dir, "a.svg")
	if err := os.WriteFile(svg, []byte(strings.Repeat("old ", 100_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := tt.run("bench", "steady", f.url+"/page?x=1", "--rate", "200", "--duration", "200ms",
		"--posts", "0.5", "--new-connections", "0.2", "--poisson", "--html", html, "--svg", svg, "--host", "other.example")
	if code != exitOK || !strings.HasPrefix(out, "steady: ") || !strings.Contains(out, "requests/s poisson") || !strings.Contains(out, "p99 ms") {
		t.Errorf("exit %d, stdout\n%s", code, out)
	}
	if want := "200 requests/s to " + strings.TrimPrefix(f.url, "http://") + " for 200ms\nwrote " + html + "\nwrote " + svg + "\n"; errs != want {
		t.Errorf("stderr %q, want %q", errs, want)
	}
	if *f.host.Load() != "other.example" {
		t.Errorf("host %s", *f.host.Load())
	}
	page, _ := os.ReadFile(html)
	picture, _ := os.ReadFile(svg)
	if !strings.HasPrefix(string(page), "<!doctype html>") || !strings.HasPrefix(string(picture), "<svg") || strings.Contains(string(picture), "old ") {
		t.Errorf("html %.40q, svg %.40q", page, picture)
	}
}

func TestBenchSteadyOverAUnixSocketSendsHostAndPath(t *testing.T) {
	tt := newTerminal(t)
	f := newFront(t, nil)
	sock := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(f)
	s.Listener.Close()
	s.Listener = ln
	s.Start()
	t.Cleanup(s.Close)
	code, out, errs := tt.run("bench", "steady", "unix:"+sock, "--host", "a.example", "--path", "/p?q", "--rate", "100", "--duration", "50ms", "--json")
	r := readResult(t, out)
	if code != exitOK || r.Total.Served != 5 || r.Scenario != "steady" || *f.host.Load() != "a.example" || *f.target.Load() != "/p?q" {
		t.Errorf("exit %d, %+v, stderr %s", code, r.Total, errs)
	}
	if code, _, errs := tt.run("bench", "steady", "unix:"+sock+".gone", "--rate", "100", "--duration", "50ms"); code != exitFailed ||
		!strings.HasSuffix(errs, "usher: bench steady: 5 of 5 requests failed\n") {
		t.Errorf("exit %d, stderr %s", code, errs)
	}
}

func TestBenchExitsWithOneIfARequestFailed(t *testing.T) {
	tt := newTerminal(t)
	f := newFront(t, nil)
	code, out, errs := tt.run("bench", "steady", f.url+"/fails", "--rate", "100", "--duration", "50ms")
	if code != exitFailed || !strings.Contains(out, "failures: status_500 5") || !strings.HasSuffix(errs, "usher: bench steady: 5 of 5 requests failed\n") {
		t.Errorf("exit %d, stdout %s, stderr %s", code, out, errs)
	}
}

func TestBenchThatIsInterruptedTellsWhatItSaw(t *testing.T) {
	tt := newTerminal(t)
	ctx, cancel := context.WithCancel(t.Context())
	f := newFront(t, cancel)
	code, out, errs := tt.runContext(ctx, "bench", "steady", f.url, "--rate", "100", "--duration", "1h", "--json")
	if r := readResult(t, out); code != exitFailed || r.Total.Failed != 0 || !strings.Contains(errs, "stopped early, ") {
		t.Errorf("exit %d, %+v, stderr %s", code, r.Total, errs)
	}
}

func TestABenchThatCannotBeginLeavesNoFile(t *testing.T) {
	tt := newTerminal(t)
	dir := t.TempDir()
	made, kept := filepath.Join(dir, "new.svg"), filepath.Join(dir, "old.html")
	if err := os.WriteFile(kept, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := tt.run("bench", "steady", "127.0.0.1:1", "--rate", "1000000", "--duration", "1h", "--svg", made, "--html", kept)
	if code != exitFailed || out != "" || !strings.Contains(errs, "lower the rate or the duration") {
		t.Errorf("exit %d, stdout %s, stderr %s", code, out, errs)
	}
	if _, err := os.Stat(made); !os.IsNotExist(err) {
		t.Errorf("%s: %v", made, err)
	}
	if old, err := os.ReadFile(kept); string(old) != "old" {
		t.Errorf("%s: %q, %v", kept, old, err)
	}
	code, out, errs = tt.run("bench", "steady", "127.0.0.1:1", "--svg", filepath.Join(dir, "no", "a.svg"), "--html", made)
	if code != exitFailed || out != "" || !strings.Contains(errs, "make report: ") || strings.Contains(errs, "requests/s") {
		t.Errorf("exit %d, stdout %s, stderr %s", code, out, errs)
	}
	if _, err := os.Stat(made); !os.IsNotExist(err) {
		t.Errorf("%s: %v", made, err)
	}
}

func TestABenchCommandLineThatMakesNoSenseSendsNothing(t *testing.T) {
	tt := newTerminal(t, idle())
	f := newFront(t, func() { t.Error("a request was sent") })
	for _, line := range []string{
		"stedy", "peers x", "peers --peers iis", "peers --work big", "peers --rounds 0", "peers --duration 0s", "peers --show-config --json", "steady", "steady a b", "steady ftp://a/", "wake", "swap", "wake hello a b",
		"steady URL --rate 0", "steady URL --duration 0s", "steady URL --connections 0", "steady URL --posts 1.1",
		"steady URL --new-connections -1", "steady URL --timeout 0s", "steady URL --path x", "steady URL --post-path x",
		"wake hello URL --rounds 0", "wake hello URL --burst 0", "wake hello URL --rate 5",
		"swap hello URL --lead 0s", "swap hello URL --tail 0s", "swap hello URL --limit 0s", "swap hello URL --mode hold",
		"swap hello URL --swaps -1", "swap hello URL --check", "swap hello URL --swaps 2 --artifact x",
		"swap hello URL --artifact x --mode fast", "swap hello unix:",
	} {
		code, out, errs := tt.run(append([]string{"bench"}, strings.Fields(strings.ReplaceAll(line, "URL", f.url))...)...)
		if code != exitUsage || out != "" || !strings.HasPrefix(errs, "usher: ") || !strings.Contains(errs, "--help") {
			t.Errorf("%s: exit %d, stdout %q, stderr %q", line, code, out, errs)
		}
	}
	if got := tt.ctl.Requests(); len(got) != 0 {
		t.Errorf("control was asked: %v", got)
	}
	if code, _, errs := tt.run("bench", "swap", "nope", f.url); code != exitNotFound || !strings.Contains(errs, `there is no app "nope"`) {
		t.Errorf("exit %d, stderr %q", code, errs)
	}
}

// swaps lets every change move the front to generation 6.
func swaps(f *front, statusOf uint64) func(*admintest.Control, admin.Operation) {
	return func(c *admintest.Control, op admin.Operation) {
		a := hello()
		a.Generation = statusOf
		f.generation.Store(6)
		c.SetApp(a)
		swap(c, op)
	}
}

func TestAnArtifactInPlaceOfTheURLSwapsNothing(t *testing.T) {
	tt := newTerminal(t, idle())
	artifact := newArtifact(t)
	code, out, errs := tt.run("bench", "swap", "hello", artifact)
	want := "usher: " + artifact + " is a file and not the URL of hello; what bench swap deploys is named with --artifact\n"
	if code != exitUsage || out != "" || !strings.HasPrefix(errs, want) {
		t.Errorf("exit %d, stdout %q, stderr %q", code, out, errs)
	}
	if got := tt.ctl.Requests(); len(got) != 0 {
		t.Errorf("control was asked: %v", got)
	}
}

// Where nothing was sent there is nothing to show but why.
func TestABenchThatSentNothingShowsNoTable(t *testing.T) {
	tt := newTerminal(t, idle())
	f := newFront(t, func() { t.Error("a request was sent") })
	tt.scripted(func(c *admintest.Control, op admin.Operation) {
		c.Finish(op.ID, admin.OpFailed, func(op *admin.Operation) { op.Reason = "it does not sleep" })
	})
	code, out, errs := tt.run("bench", "wake", "hello", f.url)
	if code != exitFailed || out != "" || !strings.Contains(errs, "it does not sleep") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, out, errs)
	}
}

func TestBenchSwapDeploysAsDeployDoes(t *testing.T) {
	tt := newTerminal(t, idle())
	f := newFront(t, nil)
	tt.scripted(swaps(f, 6))
	artifact := newArtifact(t)
	code, out, errs := tt.run("bench", "swap", "hello", f.url, "--artifact", artifact, "--mode", "hold",
		"--rate", "200", "--lead", "100ms", "--tail", "100ms", "--json")
	r := readResult(t, out)
	if code != exitOK || r.Scenario != "swap" || r.Change == nil || r.Change.From != 5 || r.Change.To != 6 || r.Total.Failed != 0 || len(r.Phases) != 3 {
		t.Errorf("exit %d, %+v, change %+v", code, r.Total, r.Change)
	}
	want := "200 requests/s to " + strings.TrimPrefix(f.url, "http://") + ", the swap begins in 100ms\n" +
		"hello: uploading  " + artifact + "\nhello: uploaded   " + buildDigest + "\n" + swapLines +
		"hello: deploy done, revision 3, generation 6\n"
	if errs != want {
		t.Errorf("stderr\n%s\nwant\n%s", errs, want)
	}
	got := tt.ctl.Requests()
	if req, _ := got[len(got)-1].(admin.DeployRequest); req.Digest != buildDigest || req.Mode != "hold" {
		t.Errorf("control got %+v", got)
	}
}

func TestBenchSwapWithoutAnArtifactRestarts(t *testing.T) {
	tt := newTerminal(t, idle())
	f := newFront(t, nil)
	tt.scripted(swaps(f, 6))
	code, out, errs := tt.run("bench", "swap", "hello", f.url, "--rate", "200", "--lead", "50ms", "--tail", "50ms")
	if code != exitOK || !strings.Contains(out, "generation 5 to 6") || !strings.Contains(errs, "hello: switched\nhello: restart done") {
		t.Errorf("exit %d, stdout\n%s, stderr\n%s", code, out, errs)
	}
	if got := tt.ctl.Requests(); len(got) != 1 {
		t.Errorf("control got %+v", got)
	} else if _, ok := got[0].(admin.RestartRequest); !ok {
		t.Errorf("control got %+v", got)
	}
}

func TestBenchSwapFailsIfAnOldGenerationAnswersAfterTheReport(t *testing.T) {
	tt := newTerminal(t, idle())
	f := newFront(t, nil)
	tt.scripted(swaps(f, 7))
	code, out, errs := tt.run("bench", "swap", "hello", f.url, "--rate", "200", "--lead", "50ms", "--tail", "100ms", "--json")
	r := readResult(t, out)
	if code != exitFailed || r.Total.Failures["wrong_generation"] == 0 || r.Total.Failures["wrong_generation"] != r.Total.Failed ||
		!strings.Contains(errs, "usher: bench swap: ") {
		t.Errorf("exit %d, %+v, stderr %s", code, r.Total, errs)
	}
}

func TestABenchSwapWhoseDeployFailsTellsBothResults(t *testing.T) {
	tt := newTerminal(t, idle())
	f := newFront(t, nil)
	tt.scripted(func(c *admintest.Control, op admin.Operation) {
		c.Finish(op.ID, admin.OpFailed, func(op *admin.Operation) {
			op.Reason, op.LogTail = "the process exited", []string{"panic: no database"}
		})
	})
	code, out, errs := tt.run("bench", "swap", "hello", f.url, "--artifact", newArtifact(t), "--rate", "200", "--lead", "50ms", "--tail", "50ms")
	if code != exitFailed || !strings.Contains(out, "it failed: deploy hello: failed: the process exited") ||
		!strings.Contains(errs, "usher: swap hello: deploy hello: failed: the process exited\n") || !strings.Contains(errs, "  | panic: no database\n") {
		t.Errorf("exit %d, stdout\n%s, stderr\n%s", code, out, errs)
	}
}

func TestABenchSwapThatTakesTooLongSaysSo(t *testing.T) {
	tt := newTerminal(t, idle())
	f := newFront(t, nil)
	tt.scripted(func(*admintest.Control, admin.Operation) {})
	code, out, errs := tt.run("bench", "swap", "hello", f.url, "--rate", "100", "--lead", "20ms", "--tail", "20ms", "--limit", "100ms")
	if code != exitTimeout || !strings.Contains(out, "it failed") || !strings.Contains(errs, "restart hello: not finished after 100ms") {
		t.Errorf("exit %d, stdout\n%s, stderr\n%s", code, out, errs)
	}
}

func TestBenchWakePutsTheAppToSleepEachRound(t *testing.T) {
	tt := newTerminal(t, idle())
	set := func(s admin.AppState) {
		a := hello()
		a.State = s
		tt.ctl.SetApp(a)
	}
	f := newFront(t, func() { set(admin.Awake) })
	tt.scripted(func(c *admintest.Control, op admin.Operation) {
		set(admin.Asleep)
		c.Finish(op.ID, admin.OpDone, nil)
	})
	code, out, errs := tt.run("bench", "wake", "hello", f.url, "--rounds", "3", "--burst", "4", "--json")
	r := readResult(t, out)
	if code != exitOK || len(r.Rounds) != 3 || r.Total.Served != 12 || r.Load.Burst != 4 {
		t.Errorf("exit %d, %+v, rounds %+v", code, r.Total, r.Rounds)
	}
	if want := "hello: round 1, falls asleep\nhello: round 2, falls asleep\nhello: round 3, falls asleep\n"; errs != want {
		t.Errorf("stderr %q, want %q", errs, want)
	}
	if got := tt.ctl.Requests(); len(got) != 3 {
		t.Errorf("control got %+v", got)
	}
}

func TestABenchWakeOfAnAppThatDoesNotSleepTellsWhy(t *testing.T) {
	tt := newTerminal(t, idle())
	tt.scripted(func(c *admintest.Control, op admin.Operation) {
		c.Finish(op.ID, admin.OpAbandoned, func(op *admin.Operation) { op.Reason = "3 requests are inside" })
	})
	f := newFront(t, func() { t.Error("a request was sent") })
	code, _, errs := tt.run("bench", "wake", "hello", f.url)
	if code != exitFailed || !strings.Contains(errs, "put hello to sleep: sleep hello: abandoned: 3 requests are inside") {
		t.Errorf("exit %d, stderr %s", code, errs)
	}
}

func TestTheTargetOfAnAppIsUshersFirstListener(t *testing.T) {
	for _, tc := range []struct {
		name  string
		hosts []string
		flag  string
		given []string
		want  bench.Target
		err   string
	}{
		{"default", []string{"*.x", "hello.localhost"}, "", []string{"hello"}, bench.Target{Network: "tcp", Address: "127.0.0.1:8080", Host: "hello.localhost", Path: "/"}, ""},
		{"host", nil, "a.example", []string{"hello"}, bench.Target{Network: "tcp", Address: "127.0.0.1:8080", Host: "a.example", Path: "/"}, ""},
		{"socket", []string{"h.example"}, "", []string{"hello", "unix:/run/x.sock"}, bench.Target{Network: "unix", Address: "/run/x.sock", Host: "h.example"}, ""},
		{"url", []string{"h.example"}, "", []string{"hello", "http://a.localhost:81/p"}, bench.Target{Network: "tcp", Address: "127.0.0.1:81", Host: "a.localhost:81", Path: "/p"}, ""},
		{"no exact host", []string{"*"}, "", []string{"hello"}, bench.Target{}, "hello has no exact host; name one with --host"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := hello()
			a.Hosts = tc.hosts
			tt := newTerminal(t, a)
			b := &benchRun{cli: &cli{world: tt.world(io.Discard, io.Discard)}, host: tc.flag}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			var got bench.Target
			err := b.withApp(ctx, tc.given, time.Second, func(_ *operator, target bench.Target) error {
				got = target
				return nil
			})
			if got != tc.want || tc.err == "" != (err == nil) || err != nil && fmt.Sprint(err) != tc.err {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// The last request of a round's load is in flight for a moment after its answer, and an
// app with one in flight does not sleep.
func TestARoundWaitsForTheEndOfTheLoadBeforeTheAppSleeps(t *testing.T) {
	busy := hello()
	busy.InFlight = 1
	tt := newTerminal(t, busy)
	cl := client.New(tt.addr, client.Options{})
	defer cl.Close()
	o := &operator{client: cl}
	over := time.AfterFunc(100*time.Millisecond, func() { tt.ctl.SetApp(idle()) })
	defer over.Stop()
	if err := o.settled(t.Context(), "hello"); err != nil {
		t.Fatal(err)
	}
	if a, err := cl.App(t.Context(), "hello"); err != nil || a.InFlight != 0 {
		t.Errorf("%d in flight: %v", a.InFlight, err)
	}
	if err := o.settled(t.Context(), "nobody"); err == nil {
		t.Error("an app that there is not is waited for")
	}
}
