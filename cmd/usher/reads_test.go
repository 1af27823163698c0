package main

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/admin"
	"github.com/usher-edge/usher/admin/admintest"
)

func TestStatusIsATable(t *testing.T) {
	tt := newTerminal(t, hello(),
		admin.AppStatus{Name: "api", State: admin.Paused, Maintenance: true, Parked: 12})
	tt.expect(exitOK, strings.Join([]string{
		"APP    STATE                 REVISION  GENERATION  BUILD         PID   ADDRESS          IN-FLIGHT  PARKED  LAST OUTCOME",
		"api    paused (maintenance)  -         -           -             -     -                0          12      -",
		"hello  awake                 2         5           4f2a9c01d3e5  1234  127.0.0.1:20001  3          0       done, 1m30s ago",
		"",
	}, "\n"), "", "status")
}

func TestStatusOfAnAppIsInFull(t *testing.T) {
	a := hello()
	started, retry, idle := admintest.Epoch(), admintest.Epoch().Add(2*time.Minute), int64(90_000)
	a.State, a.Reason, a.Failures, a.NextRetry, a.IdleInMS = admin.Down, "crashed 3 times", 3, &retry, &idle
	a.LastOutcome = &admin.Outcome{
		Attempt: 4, Outcome: "failed", Reason: "exited", Cause: "wake", At: admintest.Epoch(),
		Exit: &admin.Exit{Signal: "killed", OOMKills: 1, OOMLimit: 64 << 20, Text: "killed by the kernel: out of memory (limit 64 MiB)"}, LogTail: []string{"bye"},
	}
	a.Generations = []admin.GenerationStatus{
		{Number: 5, Role: "incumbent", Revision: 2, State: "serving", PID: 1234, Address: "127.0.0.1:20001", StartedAt: &started, InFlight: 3},
		{Number: 6, Role: "successor", Revision: 3},
	}
	tt := newTerminal(t, a)
	tt.expect(exitOK, `app         hello
state       down
reason      crashed 3 times
hosts       hello.localhost
revision    2 (desired 2, good 2, reported 2)
generation  5
build       sha256:4f2a9c01d3e5
pid         1234
address     127.0.0.1:20001
requests    3 in flight, 0 parked
swap mode   overlap
isolation   cgroup, user hello
limits      memory 256MiB, pids 200 (not in effect: no memory controller)
stop proof  cgroup
failures    3
next retry  in 30s
idle sleep  in 1m30s
version     v7

last attempt (4, wake): failed: exited, 1m30s ago
  killed by the kernel: out of memory (limit 64 MiB)
  nothing of the build ran
  | bye

GENERATION  ROLE       STATE    REVISION  PID   ADDRESS          IN-FLIGHT  STARTED
5           incumbent  serving  2         1234  127.0.0.1:20001  3          1m30s ago
6           successor  -        3         -     -                0          -
`, "", "status", "hello")
	tt.expect(exitNotFound, "", "usher: status: there is no app \"nope\"; see usher status for those there are\n", "status", "nope")
}

func TestStatusAsJSONHasTheDocumentedFields(t *testing.T) {
	tt := newTerminal(t, hello())
	code, out, errs := tt.run("status", "--json")
	var all struct {
		Server map[string]any
		Apps   []map[string]any
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil || code != exitOK || errs != "" {
		t.Fatalf("exit %d, %v, stderr %s", code, err, errs)
	}
	want := map[string]any{
		"name": "hello", "state": "awake", "revision": 2.0, "generation": 5.0, "build": "4f2a9c01d3e5",
		"pid": 1234.0, "address": "127.0.0.1:20001", "in_flight": 3.0, "parked": 0.0, "version": "v7",
	}
	for key, value := range want {
		if all.Apps[0][key] != value {
			t.Errorf("%s is %v, want %v", key, all.Apps[0][key], value)
		}
	}
	if o, _ := all.Apps[0]["last_outcome"].(map[string]any); o["outcome"] != "done" || o["executed"] != true {
		t.Errorf("last_outcome: %v", o)
	}
	var one map[string]any
	if _, out, _ := tt.run("status", "hello", "--json"); json.Unmarshal([]byte(out), &one) != nil || one["name"] != "hello" {
		t.Errorf("one app: %s", out)
	}
}

func TestStatusWithoutAppsSaysHowToAddOne(t *testing.T) {
	tt := newTerminal(t)
	tt.expect(exitOK, "", "there are no apps; add one to the config file and run usher reload\n", "status")
}

func TestAnOperationAsJSON(t *testing.T) {
	tt := newTerminal(t, hello())
	tt.scripted(func(c *admintest.Control, op admin.Operation) { c.Finish(op.ID, admin.OpFailed, nil) })
	code, out, _ := tt.run("wake", "hello", "--json")
	var op admin.Operation
	if err := json.Unmarshal([]byte(out), &op); err != nil || op.State != admin.OpFailed || code != exitFailed {
		t.Errorf("exit %d, %v, %s", code, err, out)
	}
}

func TestEventsAreShownOneALine(t *testing.T) {
	tt := newTerminal(t, hello())
	tt.ctl.Emit(admin.Event{App: "hello", Type: "state", State: admin.Asleep, Message: "asleep after 15m idle"})
	tt.ctl.Emit(admin.Event{Type: "config", Message: "reloaded\x07"})
	tt.expect(exitOK, "2026-03-01T12:00:00Z  hello             state       asleep after 15m idle\n"+
		"2026-03-01T12:00:00Z  -                 config      reloaded\uFFFD\n", "", "events")
	tt.expect(exitOK, "2026-03-01T12:00:00Z  hello             state       asleep after 15m idle\n", "", "events", "hello")
	tt.expect(exitOK, `{"seq":1,"at":"2026-03-01T12:00:00Z","app":"hello","type":"state","state":"asleep","message":"asleep after 15m idle"}`+"\n",
		"", "events", "hello", "--json")
	tt.expect(exitOK, "2026-03-01T12:00:00Z  -                 config      reloaded\uFFFD\n", "", "events", "-n", "1")
	tt.expect(exitOK, "2026-03-01T12:00:00Z  hello             state       asleep after 15m idle\n", "", "events", "hello", "-n", "9")
}

func TestFollowedEventsEndWithTheReader(t *testing.T) {
	tt := newTerminal(t, hello())
	tt.ctl.Emit(admin.Event{App: "hello", Type: "state", Message: "long ago"})
	tt.ctl.Emit(admin.Event{App: "hello", Type: "state", Message: "one"})
	ctx, cancel := context.WithCancel(context.Background())
	out := newWatchedBuffer()
	go func() { // ends when both were shown
		out.waitFor(t, "one")
		tt.ctl.Emit(admin.Event{App: "hello", Type: "state", Message: "two"})
		out.waitFor(t, "two")
		cancel()
	}()
	if code := run(ctx, newRoot(tt.world(out, tt.err)), []string{"events", "-f", "-n", "1"}); code != exitOK {
		t.Errorf("exit %d, %s", code, tt.err.take())
	}
	if text := out.take(); strings.Contains(text, "long ago") || strings.Count(text, "one\n") != 1 || strings.Count(text, "two\n") != 1 {
		t.Errorf("shown:\n%s", text)
	}
}

func TestLogsThatAreEmptySayWhy(t *testing.T) {
	tt := newTerminal(t, hello())
	tt.ctl.OpenLog = func(context.Context, admin.LogRequest) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader("")), nil
	}
	said := "hello: nothing is kept of what it wrote: it has not run yet, wrote nothing, or is a target\n"
	tt.expect(exitOK, "", said, "logs", "hello")
	tt.expect(exitOK, "", said, "logs", "hello", "--json")
	tt.expect(exitOK, "", "", "logs", "hello", "-n", "0")
}

func TestLogsAreCopiedAsTheyAre(t *testing.T) {
	tt := newTerminal(t, hello())
	tt.ctl.OpenLog = func(_ context.Context, req admin.LogRequest) (io.ReadCloser, error) {
		if req != (admin.LogRequest{App: "hello", Generation: 4, Lines: 2}) {
			t.Errorf("asked for %+v", req)
		}
		return io.NopCloser(strings.NewReader("a\x1b[0m\nlast")), nil
	}
	code, out, _ := tt.run("logs", "hello", "-n", "2", "--generation", "4")
	if code != exitOK || out != "a\x1b[0m\nlast" {
		t.Errorf("exit %d, %q", code, out)
	}
	code, out, _ = tt.run("logs", "hello", "-n", "2", "--generation", "4", "--json")
	want := `{"app":"hello","line":"a\u001b[0m"}` + "\n" + `{"app":"hello","line":"last"}` + "\n"
	if code != exitOK || out != want {
		t.Errorf("exit %d, %q", code, out)
	}
}

func TestFollowedLogsEndWithTheReader(t *testing.T) {
	checkFollowedLogs(t, exitOK, func(_ *terminal, cancel func()) { cancel() })
}

func TestFollowedLogsBreakWithUsher(t *testing.T) {
	checkFollowedLogs(t, exitUnreachable, func(tt *terminal, _ func()) { tt.stop() })
}

// checkFollowedLogs ends a logs -f by end, once it has shown a line.
func checkFollowedLogs(t *testing.T, want int, end func(tt *terminal, cancel func())) {
	tt := newTerminal(t, hello())
	tt.ctl.OpenLog = func(_ context.Context, req admin.LogRequest) (io.ReadCloser, error) {
		if !req.Follow {
			t.Errorf("asked for %+v", req)
		}
		r, w := io.Pipe()
		go func() { _, _ = io.WriteString(w, "line\n") }() // ends when it is read
		return r, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	out := newWatchedBuffer()
	go func() { // ends when the line was shown
		out.waitFor(t, "line")
		end(tt, cancel)
	}()
	if code := run(ctx, newRoot(tt.world(out, tt.err)), []string{"logs", "hello", "-f"}); code != want {
		t.Errorf("exit %d, want %d; %s", code, want, tt.err.take())
	}
}

func TestReloadSaysWhatChangedOrEveryFault(t *testing.T) {
	tt := newTerminal(t)
	tt.ctl.Reloaded = admin.ReloadResult{
		Added: []string{"api", "web"}, Removed: []string{"old"}, Unchanged: []string{"hello"},
		Warnings: []admin.Finding{{File: "usher.toml", Line: 9, Column: 2, Message: "hold_drain is long"}},
	}
	warning := "warning: usher.toml:9:2: hold_drain is long\n"
	tt.expect(exitOK, "added: api, web\nremoved: old\nunchanged: 1\n", warning, "reload")
	code, out, _ := tt.run("reload", "--json")
	var res admin.ReloadResult
	if err := json.Unmarshal([]byte(out), &res); err != nil || code != exitOK || len(res.Added) != 2 {
		t.Errorf("exit %d, %v, %s", code, err, out)
	}
	tt.stop()

	bad := newTerminal(t)
	bad.ctl.Refuse = func(string) error {
		return &admin.Error{
			Kind: admin.Invalid, Code: admin.CodeConfigInvalid, Detail: "the config file has 2 errors", Hint: "the old one stays in effect",
			Findings: []admin.Finding{{File: "usher.toml", Line: 3, Column: 1, Message: "unknown key colour"}, {Message: "no listener"}},
		}
	}
	bad.expect(exitConfig, "", "usher: reload: the config file has 2 errors; the old one stays in effect\n"+
		"usher.toml:3:1: unknown key colour\nno listener\n", "reload")
}

func TestVersionIsToldWithAndWithoutADaemon(t *testing.T) {
	tt := newTerminal(t)
	tt.expect(exitOK, "usher 1.2.3 (abc)\nrunning: usher 1.0.0\n", "", "version")
	tt.expect(exitOK, "usher 1.2.3 (abc)\n", "", "version", "--local")
	tt.stop()
	tt.expect(exitOK, "usher 1.2.3 (abc)\n", "", "version")
	tt.expect(exitOK, "{\n  \"client\": {\n    \"version\": \"1.2.3\",\n    \"commit\": \"abc\"\n  }\n}\n", "", "version", "--json")
}

func TestAppNamesAreCompleted(t *testing.T) {
	tt := newTerminal(t, hello(), admin.AppStatus{Name: "api"})
	code, out, _ := tt.run("__complete", "wake", "")
	if code != exitOK || !strings.HasPrefix(out, "api\nhello\n") {
		t.Errorf("exit %d, %s", code, out)
	}
	if code, out, _ := tt.run("completion", "bash"); code != exitOK || !strings.Contains(out, "usher") {
		t.Errorf("completion: exit %d, %d bytes", code, len(out))
	}
}

func TestSpansAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 15 * time.Millisecond: "15ms", 1234 * time.Millisecond: "1.23s",
		42*time.Second + 400*time.Millisecond: "42s", 61 * time.Second: "1m1s", 25 * time.Hour: "25h0m", 50 * time.Hour: "2d",
	} {
		if got := span(d); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
}
