package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/usher-edge/usher/admin"
)

// exits expects an exit code and words on stderr.
func (u *usher) exits(code int, words string, args ...string) result {
	u.t.Helper()
	r := u.cli(args...)
	if r.code != code || !strings.Contains(r.stderr, words) {
		u.t.Errorf("usher %s: exit code %d, want %d and %q\n%s%s", strings.Join(args, " "), r.code, code, words, r.stdout, r.stderr)
	}
	return r
}

func TestEveryVerbEndsWithItsExitCode(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{cache: true}, {name: "waits", artifact: "-"}}})
	v1, v2 := hello(t, "v1"), hello(t, "v2")
	for _, c := range []struct {
		code  int
		words string
		args  []string
	}{
		{0, "", []string{"wake", "hello"}},
		{0, "", []string{"wake", "hello"}},
		{0, "", []string{"status"}},
		{0, "", []string{"status", "hello"}},
		{0, "", []string{"sleep", "hello"}},
		{0, "", []string{"sleep", "hello"}},
		{0, "committed", []string{"restart", "hello"}},
		{4, "no older build", []string{"rollback", "hello"}},
		{0, "switched", []string{"deploy", "hello", v2}},
		{0, "revision 3", []string{"rollback", "hello"}},
		{0, "revision 4", []string{"rollback", "hello", "--to", "2"}},
		{3, "revision 77", []string{"rollback", "hello", "--to", "77"}},
		{0, "", []string{"pause", "hello"}},
		{4, "usher resume hello", []string{"wake", "hello"}},
		{0, "", []string{"resume", "hello"}},
		{4, "take it out of the file", []string{"remove", "hello"}},
		{0, "purged", []string{"purge", "hello"}},
		{0, "", []string{"logs", "hello"}},
		{0, "", []string{"events", "hello"}},
		{0, "", []string{"reload"}},
		{0, "", []string{"version"}},
		{4, "usher deploy waits", []string{"wake", "waits"}},
		{4, "usher deploy waits", []string{"restart", "waits"}},
		{1, "/none/such", []string{"deploy", "hello", "/none/such"}},
		{3, "nope", []string{"deploy", "nope", v1}},
		{3, "nope", []string{"status", "nope"}},
		{3, "nope", []string{"purge", "nope"}},
		{3, "nope", []string{"logs", "nope"}},
		{3, "nope", []string{"events", "nope"}},
		{3, "nope", []string{"sleep", "nope"}},
		{3, "generation 999", []string{"logs", "hello", "--generation", "999"}},
		{2, "there is no command", []string{"frobnicate"}},
		{2, "usage: ", []string{"deploy"}},
		{2, "--mode is overlap or hold", []string{"deploy", "hello", v1, "--mode", "sideways"}},
		{2, "--wait is switched or drained", []string{"deploy", "hello", v1, "--wait", "long"}},
		{2, "unknown flag", []string{"status", "--jason"}},
		{7, "cannot be reached", []string{"status", "--admin", "unix:" + u.dir + "/none.sock"}},
	} {
		u.exits(c.code, c.words, c.args...)
	}
}

func TestJSONOutputIsJSON(t *testing.T) {
	t.Parallel()
	u := start(t, options{})
	for _, args := range [][]string{
		{"deploy", "hello", hello(t, "v2"), "--json"},
		{"restart", "hello", "--json"},
		{"status", "--json"},
		{"status", "hello", "--json"},
		{"events", "--json"},
		{"logs", "hello", "--json"},
		{"version", "--json"},
		{"reload", "--json"},
		{"sleep", "hello", "--json"},
		{"wake", "hello", "--json"},
	} {
		if args[0] == "sleep" {
			u.sleep("hello") // until what it was deployed over is gone
		}
		out := u.must(args...).stdout
		d := json.NewDecoder(strings.NewReader(out))
		n := 0
		for d.More() {
			var v map[string]any
			if err := d.Decode(&v); err != nil {
				t.Errorf("usher %v: %v in %q", args, err, out)
				break
			}
			n++
		}
		if n == 0 {
			t.Errorf("usher %v printed no JSON", args)
		}
	}
}

func TestAPauseParksAndAResumeReleases(t *testing.T) {
	t.Parallel()
	u := start(t, options{})
	ok(t, u.get("hello", "/"))
	u.must("pause", "hello")
	parked := make(chan []answer, 1)
	go func() { parked <- together(20, func(int) answer { return u.get("hello", "/version") }) }()
	u.awaitStatus("hello", 5*time.Second, "parking 20", func(s admin.AppStatus) bool { return s.Parked == 20 && s.State == admin.Paused })
	r := u.must("deploy", "hello", hello(t, "v2"))
	if !strings.Contains(r.stderr, "committed, not started") {
		t.Errorf("a deploy to a paused app says %q", r.stderr)
	}
	if st := u.status("hello"); st.Revision != 1 || st.Desired != 2 {
		t.Errorf("a paused app moved: %+v", st)
	}
	u.must("resume", "hello")
	for _, a := range <-parked {
		ok(t, a)
	}
	u.awaitStatus("hello", 5*time.Second, "moved", func(s admin.AppStatus) bool { return s.Reported == 2 })

	u.must("pause", "hello", "--maintenance")
	a := u.get("hello", "/")
	if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" || !strings.Contains(a.header.Get("Proxy-Status"), "usher") {
		t.Errorf("maintenance: want 503 with Retry-After and Proxy-Status, got %s, %v", a, a.header)
	}
	u.kill()
	u.serve()
	if st := u.status("hello"); st.State != admin.Paused || !st.Maintenance {
		t.Errorf("a pause does not survive a restart: %+v", st)
	}
	u.must("resume", "hello")
	ok(t, u.get("hello", "/"))
}

func TestOfTwoWritersFromOneVersionTheSecondIsRefused(t *testing.T) {
	t.Parallel()
	u := start(t, options{})
	ok(t, u.get("hello", "/"))
	seen := u.awaitState("hello", admin.Awake, 5*time.Second).Version
	restart := func() int {
		req, err := http.NewRequest(http.MethodPost, "http://usher/v1/apps/hello/restart", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("If-Match", `"`+seen+`"`)
		resp, err := u.control.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	results := make(chan int, 2)
	for range 2 {
		go func() { results <- restart() }()
	}
	if a, b := <-results, <-results; a+b != http.StatusAccepted+http.StatusPreconditionFailed {
		t.Errorf("two writers got %d and %d, want one 202 and one 412", a, b)
	}
	u.exits(4, "version", "restart", "hello", "--if-match", seen)
	if st := u.awaitState("hello", admin.Awake, 5*time.Second); st.Restarts != 1 {
		t.Errorf("%d restarts, want 1", st.Restarts)
	}
}

func TestADeployOutlivesTheCommandThatAskedForIt(t *testing.T) {
	t.Parallel()
	u := start(t, options{})
	cmd := exec.Command(theLab.usher, "--admin", "unix:"+u.admin, "deploy", "hello", hello(t, "v2", "slow-start=3s"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	u.awaitStatus("hello", 10*time.Second, "booting", hasStage("checking", "successor"))
	_ = cmd.Process.Signal(syscall.SIGKILL) // it runs: it waits for the deploy
	_ = cmd.Wait()
	st := u.awaitState("hello", admin.Awake, 10*time.Second)
	if st.Reported != 2 || st.LastOutcome == nil || st.LastOutcome.Outcome != "done" {
		t.Errorf("the deploy ended as %+v", st)
	}
}

func TestASecondDeploySupersedesAStuckOne(t *testing.T) {
	t.Parallel()
	u := start(t, options{})
	pid := u.pid("hello")
	stuck := u.cliAsync("deploy", "hello", hello(t, "v5", "hang"))
	u.awaitStatus("hello", 10*time.Second, "booting", hasStage("checking", "successor"))
	if u.pid("hello") != pid {
		t.Error("the incumbent does not serve beside a stuck deploy")
	}
	begun := time.Now()
	u.deploy("hello", hello(t, "v2"))
	if took := time.Since(begun); took > 20*time.Second { // it would be given 30s
		t.Errorf("the second deploy took %s", took)
	}
	if r := <-stuck; r.code != 4 || !strings.Contains(r.stderr, "superseded") {
		t.Errorf("the first deploy: exit code %d, %s", r.code, r.stderr)
	}
	if st := u.status("hello"); st.Failures != 0 || st.Reported != 3 {
		t.Errorf("being superseded counts as a failure: %+v", st)
	}
}

func TestAFailedDeployNamesItsReason(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{health: []string{`timeout = "3s"`}}}})
	pid := u.pid("hello")
	script := u.dir + "/no-interpreter"
	write(t, script, "#!/none/such\n", 0o755)
	for what, c := range map[string]struct {
		build string
		words []string
	}{
		"crash":          {hello(t, "v6", "crash"), []string{"exit status 1", "| hello v6: crashes after 0s", "it took "}},
		"never ready":    {hello(t, "v4", "never-healthy"), []string{"not healthy within 3s", "answered 503"}},
		"hang":           {hello(t, "v5", "hang"), []string{"not healthy within 3s", "connection refused", "takes its port from $PORT"}},
		"not executable": {script, []string{"exec failed", "its interpreter /none/such is missing"}},
	} {
		r := u.cli("deploy", "hello", c.build)
		for _, want := range append(c.words, "is still serving") {
			if r.code != 1 || !strings.Contains(r.stderr, want) {
				t.Errorf("%s: exit code %d, want 1 and %q in\n%s", what, r.code, want, r.stderr)
			}
		}
		u.awaitStatus("hello", 5*time.Second, "alone", func(s admin.AppStatus) bool { return len(s.Generations) == 1 })
		if now := u.pid("hello"); now != pid || u.only("hello") != pid {
			t.Errorf("%s: the incumbent was touched", what)
		}
	}
	u.exits(6, "goes on with what it has accepted", "deploy", "hello", hello(t, "v5", "hang"), "--timeout", "300ms")
}

func TestLogsAreFollowedFromOneGenerationToTheNext(t *testing.T) {
	t.Parallel()
	u := start(t, options{})
	ok(t, u.get("hello", "/"))
	logs := u.following("logs", "hello", "-f")
	if !logs.until("hello v1 listens on") {
		t.Fatal("the log does not begin with the past")
	}
	for _, version := range []string{"v2", "v3"} {
		u.deploy("hello", hello(t, version))
		if !logs.until("hello " + version + " listens on") {
			t.Fatalf("the log of %s does not follow", version)
		}
	}
	u.sleep("hello")
	if !logs.until("hello v3 was asked to stop") {
		t.Fatal("the end of the last generation is missing")
	}
}

func TestEventsAreFollowedAcrossARestart(t *testing.T) {
	t.Parallel()
	u := start(t, options{})
	events := u.following("events", "hello", "-f")
	ok(t, u.get("hello", "/"))
	if !events.until("wake of revision 1: done") {
		t.Fatal("the wake is missing")
	}
	// Events are written behind; a kill may cost the last few milliseconds of them.
	u.eventually(5*time.Second, "the wake is on disk", func() error {
		text, err := os.ReadFile(filepath.Join(u.state(), "events.jsonl"))
		if err == nil && !strings.Contains(string(text), "wake of revision 1: done") {
			err = errors.New("not yet")
		}
		return err
	})
	u.kill()
	u.serve()
	if !events.until("adopted pid") {
		t.Fatal("the adoption is missing")
	}
	u.deploy("hello", hello(t, "v2"))
	if !events.until("release of revision 2: done") {
		t.Fatal("the deploy is missing")
	}
	if out := u.must("events", "hello").stdout; strings.Count(out, "wake of revision 1: done") != 1 {
		t.Errorf("the past is not whole:\n%s", out)
	}
}

func TestPurgeDropsCachedPages(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{cache: true}}})
	for range 2 {
		if body := ok(t, u.get("hello", "/cached")).body; body != "page 1 from v1\n" {
			t.Fatalf("before the purge: %q", body)
		}
	}
	u.must("purge", "hello")
	if body := ok(t, u.get("hello", "/cached")).body; body != "page 2 from v1\n" {
		t.Errorf("after the purge: %q", body)
	}
}

func TestProgressIsShownStepByStep(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{name: "port"}, {name: "sock", hold: true}}})
	for name, steps := range map[string][]string{
		"port": {"staged", "committed", "starting", "healthy", "switched", "retired"},
		"sock": {"staged", "committed", "starting", "parked", "stopped", "healthy", "switched", "released"},
	} {
		ok(t, u.get(name, "/"))
		r := u.must("deploy", name, hello(t, "v2"), "--wait", "drained")
		at := 0
		for _, s := range steps {
			i := strings.Index(r.stderr[at:], name+": "+s)
			if i < 0 {
				t.Errorf("%s: step %s is missing, or out of order:\n%s", name, s, r.stderr)
				continue
			}
			at += i
		}
		if want := fmt.Sprintf("%s: deploy done, revision 2", name); !strings.HasPrefix(r.stdout, want) {
			t.Errorf("stdout is %q, want %q", r.stdout, want)
		}
	}
}
