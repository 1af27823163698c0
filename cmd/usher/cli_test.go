package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/usher-edge/usher/admin"
	"github.com/usher-edge/usher/admin/admintest"
	"github.com/usher-edge/usher/admin/client"
)

// terminal is a command line in front of one scripted daemon.
type terminal struct {
	t    *testing.T
	ctl  *admintest.Control
	addr admin.Address
	stop func()
	env  map[string]string
	err  *watchedBuffer // stderr of the last run
}

func newTerminal(t *testing.T, apps ...admin.AppStatus) *terminal {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	ctl := admintest.New(apps...)
	addr, stop := admintest.Start(t, ctl, admin.Options{Version: admin.VersionInfo{Version: "1.0.0"}})
	return &terminal{t: t, ctl: ctl, addr: addr, stop: stop, env: map[string]string{"USHER_ADMIN": addr.String()}, err: newWatchedBuffer()}
}

// scripted lets every change run through f, which drives it to its end.
func (tt *terminal) scripted(f func(c *admintest.Control, op admin.Operation)) {
	tt.ctl.OnChange = func(op admin.Operation) { f(tt.ctl, op) }
}

func (tt *terminal) world(stdout, stderr io.Writer) world {
	return world{
		stdout: stdout, stderr: stderr, uid: 1000,
		getenv:  func(name string) string { return tt.env[name] },
		now:     func() time.Time { return admintest.Epoch().Add(90 * time.Second) },
		version: admin.VersionInfo{Version: "1.2.3", Commit: "abc"},
		retry:   5 * time.Millisecond,
		program: func() (string, error) { return "/bin/false", nil },
		pack: func(_ context.Context, path string) (string, io.ReadCloser, error) {
			f, err := os.Open(path)
			return admin.KindFile, f, err
		},
	}
}

func (tt *terminal) run(line ...string) (code int, stdout, stderr string) {
	tt.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return tt.runContext(ctx, line...)
}

func (tt *terminal) runContext(ctx context.Context, line ...string) (code int, stdout, stderr string) {
	var out bytes.Buffer
	code = run(ctx, newRoot(tt.world(&out, tt.err)), line)
	return code, out.String(), tt.err.take()
}

func (tt *terminal) expect(code int, stdout, stderr string, line ...string) {
	tt.t.Helper()
	gotCode, gotOut, gotErr := tt.run(line...)
	if gotCode != code {
		tt.t.Errorf("usher %s: exit %d, want %d", strings.Join(line, " "), gotCode, code)
	}
	if gotOut != stdout {
		tt.t.Errorf("usher %s: stdout\n%s\nwant\n%s", strings.Join(line, " "), gotOut, stdout)
	}
	if gotErr != stderr {
		tt.t.Errorf("usher %s: stderr\n%s\nwant\n%s", strings.Join(line, " "), gotErr, stderr)
	}
	if strings.Contains(gotOut+gotErr, "\x1b") {
		tt.t.Errorf("usher %s: colours without a terminal", strings.Join(line, " "))
	}
}

// watchedBuffer lets a test wait until something was written.
type watchedBuffer struct {
	mu   sync.Mutex // guards b
	b    bytes.Buffer
	more chan struct{}
}

func newWatchedBuffer() *watchedBuffer { return &watchedBuffer{more: make(chan struct{}, 1)} }

func (w *watchedBuffer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case w.more <- struct{}{}:
	default:
	}
	return w.b.Write(p)
}

func (w *watchedBuffer) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.b.Reset()
	return w.b.String()
}

func (w *watchedBuffer) contains(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Contains(w.b.String(), text)
}

func (w *watchedBuffer) waitFor(t *testing.T, text string) {
	t.Helper()
	late := time.After(30 * time.Second)
	for !w.contains(text) {
		select {
		case <-w.more:
		case <-late:
			t.Fatalf("%q was never written; got %s", text, w.take())
		}
	}
}

func hello() admin.AppStatus {
	return admin.AppStatus{
		Name: "hello", State: admin.Awake, Hosts: []string{"hello.localhost"},
		Revision: 2, Desired: 2, Good: 2, Reported: 2, Generation: 5, Version: "v7",
		Build: "4f2a9c01d3e5", Digest: "sha256:4f2a9c01d3e5", PID: 1234, Address: "127.0.0.1:20001",
		InFlight: 3, Mode: "overlap", Isolation: admin.Isolation{Level: "cgroup", User: "hello"}, Proof: "cgroup",
		Limits:      &admin.Limits{Memory: 256 << 20, PIDs: 200, Level: "none", Problem: "no memory controller"},
		LastOutcome: &admin.Outcome{Attempt: 4, Outcome: "done", Executed: true, Cause: "release", At: admintest.Epoch(), DrainMS: 1500},
	}
}

// newArtifact makes a file to deploy; its digest is that of "build".
func newArtifact(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hello-v2")
	if err := os.WriteFile(path, []byte("build"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

const buildDigest = "sha256:44575cf5b28512d75644bf54a517dcef304ff809fd511747621b4d64f19aac66"

func swap(c *admintest.Control, op admin.Operation) {
	c.Step(op.ID, admin.StepStaged, "")
	c.Step(op.ID, admin.StepCommitted, "revision 3")
	c.Step(op.ID, admin.StepStarting, "generation 6")
	c.Step(op.ID, admin.StepHealthy, "")
	c.Step(op.ID, admin.StepSwitched, "")
	c.Finish(op.ID, admin.OpDone, func(op *admin.Operation) {
		op.Revision, op.Generation, op.Outcome, op.Draining = 3, 6, "done", true
	})
}

const swapLines = `hello: staged
hello: committed  revision 3
hello: starting   generation 6
hello: healthy
hello: switched
`

func TestDeployUploadsShowsStepsAndReturnsAtTheSwitch(t *testing.T) {
	tt := newTerminal(t, hello())
	tt.scripted(swap)
	file := newArtifact(t)
	tt.expect(exitOK, "hello: deploy done, revision 3, generation 6\n",
		"hello: uploading  "+file+"\nhello: uploaded   "+buildDigest+"\n"+swapLines,
		"deploy", "hello", file, "--mode", "hold", "--canary", "--if-match", "v7")
	got := tt.ctl.Requests()
	req, _ := got[len(got)-1].(admin.DeployRequest)
	if req.Digest != buildDigest || req.Mode != "hold" || !req.Canary || req.IfMatch != "v7" || req.RequestID == "" {
		t.Errorf("control got %+v", got)
	}
}

func TestDeployOfAKeptBuildOrATargetUploadsNothing(t *testing.T) {
	tt := newTerminal(t, hello())
	tt.scripted(swap)
	tt.expect(exitOK, "hello: deploy done, revision 3, generation 6\n", swapLines, "deploy", "hello", "sha256:aa")
	tt.expect(exitOK, "hello: deploy done, revision 3, generation 6\n", swapLines, "deploy", "hello", "--target", "127.0.0.1:3001")
	got := tt.ctl.Requests()
	if a, b := got[0].(admin.DeployRequest), got[1].(admin.DeployRequest); a.Digest != "sha256:aa" || b.Target != "127.0.0.1:3001" || b.Digest != "" {
		t.Errorf("control got %+v", got)
	}
}

func TestDeployWaitsForTheDrainIfAsked(t *testing.T) {
	tt := newTerminal(t, hello())
	tt.scripted(swap)
	go func() { // ends with the operation
		tt.err.waitFor(t, "switched\n")
		tt.ctl.Step("op-1", admin.StepRetired, "generation 5")
		tt.ctl.Finish("op-1", admin.OpDone, func(op *admin.Operation) { op.Draining = false })
	}()
	tt.expect(exitOK, "hello: deploy done, revision 3, generation 6\n", swapLines+"hello: retired    generation 5\n",
		"deploy", "hello", "sha256:aa", "--wait=drained")
}

func TestAFailingBuildTellsWhyAndWhatServes(t *testing.T) {
	tt := newTerminal(t, hello())
	tt.scripted(func(c *admintest.Control, op admin.Operation) {
		c.Step(op.ID, admin.StepStarting, "generation 6")
		c.Finish(op.ID, admin.OpFailed, func(op *admin.Operation) {
			op.Reason, op.Exit, op.Generation = "the process exited before it was healthy", &admin.Exit{Code: 3, Text: "exit status 3"}, 6
			op.LogTail = []string{"connecting to \x1b[31mdb", "panic: no database"}
		})
	})
	tt.expect(exitFailed, "", `hello: starting   generation 6
usher: deploy hello: failed: the process exited before it was healthy
the process: exit status 3
it took 2s
the last lines it wrote:
  | connecting to `+"\uFFFD"+`[31mdb
  | panic: no database
see usher logs hello --generation 6
revision 2, generation 5, is still serving
`, "deploy", "hello", "sha256:aa")
}

func TestEveryEndOfAnOperationHasItsExitCode(t *testing.T) {
	for _, tc := range []struct {
		state  admin.OpState
		app    admin.AppState
		code   int
		stderr string
	}{
		{admin.OpDone, admin.Awake, exitOK, ""},
		{
			admin.OpCommitted, admin.Paused, exitOK,
			"hello: revision 3 is committed, why\n",
		},
		{
			admin.OpSuperseded, admin.Awake, exitConflict,
			"usher: deploy hello: superseded: why\nlook with usher status hello\n",
		},
		{admin.OpAbandoned, admin.Asleep, exitFailed, "usher: deploy hello: abandoned: why\nit took 1s\nhello is asleep\n"},
		{admin.OpDown, admin.Down, exitFailed, "usher: deploy hello: down: why\nit took 1s\n" +
			"nothing served hello when it failed; see usher status hello, deploy another build, or try again with usher restart hello --retry\n"},
	} {
		t.Run(string(tc.state), func(t *testing.T) {
			tt := newTerminal(t, admin.AppStatus{Name: "hello", State: tc.app})
			tt.scripted(func(c *admintest.Control, op admin.Operation) {
				c.Finish(op.ID, tc.state, func(op *admin.Operation) { op.Reason, op.Revision = "why", 3 })
			})
			out := ""
			if tc.state == admin.OpDone {
				out = "hello: deploy done, revision 3\n"
			}
			tt.expect(tc.code, out, tc.stderr, "deploy", "hello", "sha256:aa")
		})
	}
}

// What is committed and not started may be no revision: a restart is none.
func TestARestartOfAPausedAppSaysWhatWillStartIt(t *testing.T) {
	tt := newTerminal(t, hello())
	tt.scripted(func(c *admintest.Control, op admin.Operation) {
		c.Finish(op.ID, admin.OpCommitted, func(op *admin.Operation) { op.Reason = "not started: why" })
	})
	tt.expect(exitOK, "", "hello: the restart is committed, not started: why\n", "restart", "hello")
}

func TestEveryErrorHasItsExitCode(t *testing.T) {
	refusal := func(k admin.Kind) error { return fmt.Errorf("x: %w", &admin.Error{Kind: k}) }
	for _, tc := range []struct {
		err  error
		want int
	}{
		{nil, exitOK},
		{errors.New("any"), exitFailed},
		{usagef("bad flag"), exitUsage},
		{refusal(admin.NotFound), exitNotFound},
		{refusal(admin.Conflict), exitConflict},
		{refusal(admin.Precondition), exitConflict},
		{&admin.Error{Kind: admin.Invalid, Code: admin.CodeConfigInvalid}, exitConfig},
		{refusal(admin.Invalid), exitFailed},
		{refusal(admin.TooLarge), exitFailed},
		{refusal(admin.Unavailable), exitFailed},
		{refusal(admin.Forbidden), exitFailed},
		{refusal(admin.Unauthorized), exitFailed},
		{refusal(admin.BadMethod), exitFailed},
		{refusal(admin.BadMedia), exitFailed},
		{refusal(admin.Internal), exitFailed},
		{fmt.Errorf("x: %w", client.ErrUnreachable), exitUnreachable},
		{fmt.Errorf("x: %w", client.ErrLost), exitUnreachable},
		{context.DeadlineExceeded, exitTimeout},
		{&exitError{code: exitTimeout, err: client.ErrLost}, exitTimeout},
	} {
		if got := exitCode(tc.err); got != tc.want {
			t.Errorf("%v: exit %d, want %d", tc.err, got, tc.want)
		}
	}
}

func TestRefusalsAreToldWithWhatToDo(t *testing.T) {
	tt := newTerminal(t, hello())
	tt.expect(exitNotFound, "", "usher: wake nope: there is no app \"nope\"; see usher status for those there are\n", "wake", "nope")
	tt.expect(exitNotFound, "", "usher: deploy nope: there is no app \"nope\"; see usher status for those there are\n",
		"deploy", "nope", newArtifact(t))
	tt.expect(exitConflict, "", "usher: wake hello: hello has version \"v7\", not \"v1\"; read it again\n", "wake", "hello", "--if-match", "v1")
	tt.expect(exitFailed, "", "usher: deploy hello: open artifact: stat ./nowhere: no such file or directory\n", "deploy", "hello", "./nowhere")
}

func TestADeployThatWouldBeRefusedUploadsNothing(t *testing.T) {
	held, external := hello(), hello()
	held.Name, held.Mode = "held", "hold"
	external.Name, external.External = "external", true
	tt := newTerminal(t, hello(), held, external)
	file := newArtifact(t)
	tt.expect(exitConflict, "",
		"usher: deploy held: it swaps by hold, so that two of it never run at once; leave --mode out, or change swap (or listen) in the config file\n",
		"deploy", "held", file, "--mode", "overlap")
	tt.expect(exitConflict, "",
		"usher: deploy external: it is a target in the config file, whose process usher does not start; deploy it with --target ADDR\n",
		"deploy", "external", file)
	tt.expect(exitConflict, "",
		"usher: deploy hello: it has version \"v7\", not \"v1\"; read it again\n",
		"deploy", "hello", file, "--if-match", "v1")
	if got := tt.ctl.Requests(); len(got) != 0 {
		t.Errorf("control was asked: %v", got)
	}
}

func TestWrongCommandLinesExitWithTwo(t *testing.T) {
	tt := newTerminal(t, hello())
	for _, line := range [][]string{
		{"explode"},
		{"wak", "hello"},
		{"wake"},
		{"wake", "a", "b"},
		{"wake", "hello", "--fast"},
		{"deploy", "hello"},
		{"deploy", "hello", "x", "--target", "y"},
		{"deploy", "hello", "x", "--mode", "fast"},
		{"deploy", "hello", "x", "--wait", "never"},
		{"deploy", "hello", "x", "--timeout", "soon"},
		{"rollback", "hello", "--to", "-1"},
		{"status", "a", "b"},
		{"reload", "x"},
		{"logs"},
		{"logs", "hello", "-n", "-1"},
		{"wake", "hello", "--admin", "nonsense"},
		{"completion", "klingon"},
		{"completion", "bash", "x"},
		{"help", "explode"},
		{"help", "bench", "explode"},
	} {
		code, out, errs := tt.run(line...)
		if code != exitUsage || out != "" || !strings.Contains(errs, "--help") || !strings.HasPrefix(errs, "usher: ") {
			t.Errorf("%v: exit %d, stdout %q, stderr %q", line, code, out, errs)
		}
	}
	for want, line := range map[string][]string{
		"did you mean wake?":                              {"wak", "hello"},
		"did you mean deploy?":                            {"deplyo", "hello"},
		"did you mean pause or sleep?":                    {"stop", "hello"},
		"did you mean serve or wake?\n":                   {"start", "hello"},
		`there is no command "deplyo"`:                    {"help", "deplyo"},
		`there is no command "basch"; did you mean bash?`: {"completion", "basch"},
		"did you mean status?":                            {"list"},
		"did you mean remove?":                            {"delete", "hello"},
		"did you mean steady?":                            {"bench", "stedy"},
		"usher: logs needs an argument\n":                 {"logs"},
		"usher: wake does not take so many arguments: a":  {"wake", "a", "b"},
	} {
		if _, _, errs := tt.run(line...); !strings.Contains(errs, want) {
			t.Errorf("%v: it does not say %q: %s", line, want, errs)
		}
	}
	if got := tt.ctl.Requests(); len(got) != 0 {
		t.Errorf("control was asked: %v", got)
	}
}

func TestTheSimpleVerbsSayWhatTheyDid(t *testing.T) {
	tt := newTerminal(t, hello())
	tt.scripted(func(c *admintest.Control, op admin.Operation) {
		c.Step(op.ID, admin.StepStopped, "")
		c.Finish(op.ID, admin.OpDone, nil)
	})
	change := admin.Change{App: "hello"}
	for _, tc := range []struct {
		line []string
		want any
	}{
		{[]string{"wake", "hello"}, change},
		{[]string{"sleep", "hello"}, change},
		{[]string{"resume", "hello"}, change},
		{[]string{"remove", "hello"}, change},
		{[]string{"pause", "hello", "--maintenance"}, admin.PauseRequest{Change: change, Maintenance: true}},
		{[]string{"restart", "hello", "--retry"}, admin.RestartRequest{Change: change, Retry: true}},
		{[]string{"rollback", "hello", "--to", "1"}, admin.RollbackRequest{Change: change, To: 1}},
	} {
		tt.expect(exitOK, "hello: "+tc.line[0]+" done\n", "hello: stopped\n", tc.line...)
		got := tt.ctl.Requests()
		if last := withoutID(got[len(got)-1]); last != tc.want {
			t.Errorf("%v: control got %+v", tc.line, last)
		}
	}
	tt.expect(exitOK, "", "hello: purged\n", "purge", "hello")
}

// withoutID drops the request id, which is random.
func withoutID(req any) any {
	switch r := req.(type) {
	case admin.Change:
		r.RequestID = ""
		return r
	case admin.PauseRequest:
		r.RequestID = ""
		return r
	case admin.RestartRequest:
		r.RequestID = ""
		return r
	case admin.RollbackRequest:
		r.RequestID = ""
		return r
	}
	return req
}

func TestAChangeThatTakesTooLongGoesOnWithoutUs(t *testing.T) {
	tt := newTerminal(t, hello())
	tt.expect(exitTimeout, "", "usher: wake hello: not finished after 30ms\n"+
		"usher goes on with what it has accepted; look with usher status hello or usher events hello -f\n",
		"wake", "hello", "--timeout", "30ms")
	if op, err := tt.ctl.Operation(context.Background(), "op-1"); err != nil || op.State != admin.OpRunning {
		t.Errorf("the operation was touched: %+v %v", op, err)
	}
}

func TestLeavingDoesNotCancelTheChange(t *testing.T) {
	tt := newTerminal(t, hello())
	tt.scripted(func(c *admintest.Control, op admin.Operation) { c.Step(op.ID, admin.StepStarting, "") })
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // ends when the step is shown
		tt.err.waitFor(t, "starting")
		cancel()
	}()
	code, _, errs := tt.runContext(ctx, "wake", "hello")
	if code != exitTimeout || !strings.Contains(errs, "stopped waiting\nusher goes on") {
		t.Errorf("exit %d, stderr %s", code, errs)
	}
	if op, err := tt.ctl.Operation(context.Background(), "op-1"); err != nil || op.State != admin.OpRunning {
		t.Errorf("the operation was touched: %+v %v", op, err)
	}
}

// restart takes the daemon away when the CLI has shown text, lets f change what
// it knows, and brings it back.
func (tt *terminal) restartAt(text string, f func()) {
	back := make(chan struct{})
	tt.t.Cleanup(func() { <-back }) // the command may end before the daemon's own end is arranged
	go func() {                     // ends when the daemon is back
		defer close(back)
		tt.err.waitFor(tt.t, text)
		tt.stop()
		tt.err.waitFor(tt.t, "waiting for it")
		f()
		admintest.StartAt(tt.t, tt.ctl, admin.Options{}, tt.addr.Path)
	}()
}

func TestADeployIsFollowedOverARestartOfUsher(t *testing.T) {
	tt := newTerminal(t, hello())
	tt.scripted(func(c *admintest.Control, op admin.Operation) { c.Step(op.ID, admin.StepStarting, "") })
	tt.restartAt("starting", func() {
		tt.ctl.Step("op-1", admin.StepSwitched, "")
		tt.ctl.Finish("op-1", admin.OpDone, nil)
	})
	code, out, errs := tt.run("deploy", "hello", "sha256:aa")
	if code != exitOK || out != "hello: deploy done\n" || !strings.HasSuffix(errs, "hello: usher is back\nhello: switched\n") {
		t.Errorf("exit %d, stdout %s, stderr %s", code, out, errs)
	}
}

func TestARestartedUsherThatForgotTheOperationIsAskedForTheApp(t *testing.T) {
	with := func(f func(*admin.AppStatus)) admin.AppStatus {
		a := hello()
		f(&a)
		return a
	}
	for _, tc := range []struct {
		name   string
		after  admin.AppStatus
		code   int
		stdout string
		stderr string
	}{
		{"outcome kept", with(func(a *admin.AppStatus) {
			a.LastOutcome = &admin.Outcome{Operation: "op-1", Outcome: "failed", Reason: "never healthy"}
		}), exitFailed, "", "deploy hello: failed: never healthy"},
		{
			"recovery still at work", with(func(a *admin.AppStatus) { a.State = admin.Swapping }), exitTimeout, "",
			"not finished after 1s",
		},
		{"nothing kept", hello(), exitFailed, "", "no longer knows what became of it; the app is awake at revision 2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tt := newTerminal(t, hello())
			tt.scripted(func(c *admintest.Control, op admin.Operation) { c.Step(op.ID, admin.StepStarting, "") })
			tt.restartAt("starting", func() {
				tt.ctl.Forget("op-1")
				tt.ctl.SetApp(tc.after)
			})
			timeout := "1m"
			if tc.code == exitTimeout {
				timeout = "1s"
			}
			code, out, errs := tt.run("deploy", "hello", "sha256:aa", "--timeout", timeout)
			if code != tc.code || out != tc.stdout || !strings.Contains(errs, tc.stderr) {
				t.Errorf("exit %d, stdout %s, stderr %s", code, out, errs)
			}
		})
	}
}

// committing is a control that knows the revision as soon as it has admitted a
// deploy.
type committing struct{ *admintest.Control }

func (c committing) Deploy(ctx context.Context, req admin.DeployRequest) (admin.Operation, error) {
	op, err := c.Control.Deploy(ctx, req)
	op.Revision = 3
	return op, err
}

func TestAForgottenDeployEndsAsItsRevisionDid(t *testing.T) {
	reported := hello()
	reported.Revision, reported.Desired, reported.Good, reported.Reported, reported.Generation = 3, 3, 3, 3, 6
	owed := hello() // it serves what was there before, until what the crash left is gone
	owed.Desired = 3
	broken := owed
	broken.LastOutcome = &admin.Outcome{Revision: 3, Outcome: "failed", Reason: "never healthy"}
	for _, tc := range []struct {
		name        string
		first, then admin.AppStatus
		code        int
		stdout      string
		stderr      string
	}{
		{"done", reported, reported, exitOK, "hello: deploy done, revision 3, generation 6\n", ""},
		{"done after it was begun again", owed, reported, exitOK, "hello: deploy done, revision 3, generation 6\n", ""},
		{"failed after it was begun again", owed, broken, exitFailed, "", "deploy hello: failed: never healthy"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tt := newTerminal(t, hello())
			tt.stop()
			tt.stop = admintest.StartAt(t, committing{tt.ctl}, admin.Options{}, tt.addr.Path)
			tt.scripted(func(c *admintest.Control, op admin.Operation) { c.Step(op.ID, admin.StepStarting, "") })
			tt.restartAt("starting", func() {
				tt.ctl.Forget("op-1")
				tt.ctl.SetApp(tc.first)
				time.AfterFunc(2*lookAgain, func() { tt.ctl.SetApp(tc.then) })
			})
			code, out, errs := tt.run("deploy", "hello", "sha256:aa")
			if code != tc.code || out != tc.stdout || !strings.Contains(errs, tc.stderr) {
				t.Errorf("exit %d, stdout %s, stderr %s", code, out, errs)
			}
		})
	}
}

// restarting is a control whose restart is the second of its app.
type restarting struct{ *admintest.Control }

func (c restarting) Restart(ctx context.Context, req admin.RestartRequest) (admin.Operation, error) {
	op, err := c.Control.Restart(ctx, req)
	op.Restart = 2
	return op, err
}

func TestAForgottenRestartEndsAsItsAttemptDid(t *testing.T) {
	app := func(f func(*admin.AppStatus)) admin.AppStatus {
		a := hello()
		a.Restarts, a.RestartsDone = 2, 1
		a.LastOutcome = &admin.Outcome{Revision: 2, Restart: 1, Outcome: "failed", Reason: "long ago"}
		f(&a)
		return a
	}
	ended := func(restart uint64, outcome string) func(*admin.AppStatus) {
		return func(a *admin.AppStatus) {
			a.LastOutcome = &admin.Outcome{Revision: 2, Restart: restart, Outcome: outcome, Reason: "never healthy", Generation: 6}
		}
	}
	owed := app(func(*admin.AppStatus) {})
	for _, tc := range []struct {
		name        string
		first, then admin.AppStatus
		code        int
		stdout      string
		stderr      string
	}{
		{"done", owed, app(ended(2, "done")), exitOK, "hello: restart done, generation 6\n", ""},
		{"done as a later one", owed, app(ended(3, "done")), exitOK, "hello: restart done, generation 6\n", ""},
		{"done before the crash", owed, app(func(a *admin.AppStatus) { a.RestartsDone, a.Generation = 2, 6 }), exitOK, "hello: restart done, generation 6\n", ""},
		{"failed", owed, app(ended(2, "failed")), exitFailed, "", "restart hello: failed: never healthy"},
		{"down before it", owed, app(func(a *admin.AppStatus) { a.State, a.RestartsDone = admin.Down, 0 }), exitFailed, "", "no longer knows what became of it"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tt := newTerminal(t, hello())
			tt.stop()
			tt.stop = admintest.StartAt(t, restarting{tt.ctl}, admin.Options{}, tt.addr.Path)
			tt.scripted(func(c *admintest.Control, op admin.Operation) { c.Step(op.ID, admin.StepStarting, "") })
			tt.restartAt("starting", func() {
				tt.ctl.Forget("op-1")
				tt.ctl.SetApp(tc.first)
				time.AfterFunc(2*lookAgain, func() { tt.ctl.SetApp(tc.then) })
			})
			code, out, errs := tt.run("restart", "hello")
			if code != tc.code || out != tc.stdout || !strings.Contains(errs, tc.stderr) {
				t.Errorf("exit %d, stdout %s, stderr %s", code, out, errs)
			}
		})
	}
}

// dyingDaemon takes one request at addr and is gone before it has answered;
// then f gets the request's id, and the real daemon comes back.
func (tt *terminal) dyingDaemon(f func(requestID string)) {
	tt.t.Helper()
	tt.stop()
	l, err := net.Listen("unix", tt.addr.Path)
	if err != nil {
		tt.t.Fatal(err)
	}
	go func() { // ends with the one connection
		conn, err := l.Accept()
		if err != nil {
			return
		}
		req, err := http.ReadRequest(bufio.NewReader(conn))
		var body admin.Change
		if err == nil {
			err = json.NewDecoder(req.Body).Decode(&body)
		}
		if err != nil {
			tt.t.Error(err)
		}
		_ = l.Close()
		_ = conn.Close()
		f(body.RequestID)
		admintest.StartAt(tt.t, tt.ctl, admin.Options{}, tt.addr.Path)
	}()
}

func TestAChangeWhoseAnswerWasLostIsFoundAndFollowed(t *testing.T) {
	tt := newTerminal(t, hello())
	tt.scripted(func(c *admintest.Control, op admin.Operation) { c.Finish(op.ID, admin.OpDone, nil) })
	tt.dyingDaemon(func(id string) {
		if _, err := tt.ctl.Wake(context.Background(), admin.Change{App: "hello", RequestID: id}); err != nil {
			t.Error(err)
		}
	})
	code, out, errs := tt.run("wake", "hello")
	if code != exitOK || out != "hello: wake done\n" || !strings.Contains(errs, "looking whether it was taken") {
		t.Errorf("exit %d, stdout %s, stderr %s", code, out, errs)
	}
	if got := tt.ctl.Requests(); len(got) != 1 {
		t.Errorf("it was sent again: %v", got)
	}
}

func TestAChangeThatWasLostIsNotSentAgain(t *testing.T) {
	tt := newTerminal(t, hello())
	tt.dyingDaemon(func(string) {})
	code, _, errs := tt.run("wake", "hello")
	if code != exitUnreachable || !strings.Contains(errs, "does not know the request now\nlook with usher status hello") {
		t.Errorf("exit %d, stderr %s", code, errs)
	}
	if got := tt.ctl.Requests(); len(got) != 0 {
		t.Errorf("it was sent again: %v", got)
	}
}

func TestNoDaemonIsToldWithTheAddress(t *testing.T) {
	tt := newTerminal(t)
	tt.stop()
	tt.expect(exitUnreachable, "", "usher: status: usher cannot be reached at "+tt.addr.String()+": connect: no such file or directory\n"+
		"is usher serve running, and may you open its socket? set the address with --admin or USHER_ADMIN\n", "status")
	for _, line := range [][]string{{"deploy", "hello", "sha256:aa"}, {"events", "-f"}, {"logs", "hello"}, {"reload"}} {
		if code, _, _ := tt.run(line...); code != exitUnreachable {
			t.Errorf("%v: exit %d", line, code)
		}
	}
}

func TestTheFlagGoesBeforeTheEnvironment(t *testing.T) {
	tt := newTerminal(t, hello())
	tt.env["USHER_ADMIN"] = "unix:/nowhere/admin.sock"
	if code, out, errs := tt.run("status", "--admin", tt.addr.String()); code != exitOK || !strings.Contains(out, "hello") {
		t.Errorf("exit %d, %s", code, errs)
	}
	tt.env = map[string]string{"XDG_RUNTIME_DIR": "/nowhere/run"}
	if _, _, errs := tt.run("status"); !strings.Contains(errs, "unix:/nowhere/run/usher/admin.sock") {
		t.Errorf("stderr %s", errs)
	}
}

func TestATokenIsTakenFromTheEnvironment(t *testing.T) {
	tt := newTerminal(t)
	addr, _ := admintest.StartTCP(t, tt.ctl, admin.Options{Token: "secret"})
	if code, _, errs := tt.run("status", "--admin", addr.String()); code != exitFailed || !strings.Contains(errs, "USHER_ADMIN_TOKEN") {
		t.Errorf("without: exit %d, %s", code, errs)
	}
	tt.env["USHER_ADMIN_TOKEN"] = "secret"
	if code, _, errs := tt.run("status", "--admin", addr.String()); code != exitOK {
		t.Errorf("with: exit %d, %s", code, errs)
	}
}

func TestCommandsOfOthersAreAddedToTheTree(t *testing.T) {
	tt := newTerminal(t)
	var out bytes.Buffer
	more := &cobra.Command{Use: "serve", RunE: func(*cobra.Command, []string) error {
		return &exitError{code: exitConfig, err: errors.New("config is invalid"), lines: []string{"usher.toml:1:1: bad"}}
	}}
	code := run(context.Background(), newRoot(tt.world(&out, tt.err), more), []string{"serve"})
	if got := tt.err.take(); code != exitConfig || got != "usher: config is invalid\nusher.toml:1:1: bad\n" {
		t.Errorf("exit %d, stderr %q", code, got)
	}
}
