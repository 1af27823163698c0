package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/usher-edge/usher/admin"
)

// pid asks the app itself.
func (u *usher) pid(name string) int {
	u.t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(ok(u.t, u.get(name, "/pid")).body))
	if err != nil {
		u.t.Fatal(err)
	}
	return n
}

// inside has a request for that time inside the app.
func (u *usher) inside(name string, d time.Duration) <-chan answer {
	u.t.Helper()
	return u.later(name, "/sleep?d="+d.String())
}

// only expects that one process of the app is there, and returns its pid.
func (u *usher) only(name string) int {
	u.t.Helper()
	var pids []int
	for _, p := range u.generationsOf(name) {
		pids = append(pids, p...)
	}
	if len(pids) != 1 {
		u.t.Fatalf("%s has the processes %v, want one", name, pids)
	}
	return pids[0]
}

// direct asks an app past usher.
func direct(address, path string) answer {
	c := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequest(http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return answer{err: err}
	}
	return do(c, req)
}

// record finds the runtime record of the app's only generation.
func (u *usher) record(name string) (path string, run map[string]any) {
	u.t.Helper()
	all, _ := filepath.Glob(filepath.Join(u.run(), "runs", "*.json"))
	for _, path := range all {
		data, err := os.ReadFile(path)
		run := map[string]any{}
		if err == nil && json.Unmarshal(data, &run) == nil && run["app"] == name {
			return path, run
		}
	}
	u.t.Fatalf("%s has no runtime record among %v", name, all)
	return "", nil
}

func writeRecord(t *testing.T, path string, run map[string]any) {
	t.Helper()
	data, err := json.Marshal(run)
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// twoApps are one app of each kind: a port and overlap, a socket and hold.
func twoApps() options {
	return options{apps: []app{
		{name: "port"},
		{name: "sock", hold: true, lines: []string{`listen = "socket"`}},
	}}
}

func TestAppsOutliveAKilledUsherAndAreAdopted(t *testing.T) {
	t.Parallel()
	u := start(t, twoApps())
	names := []string{"port", "sock"}
	before := map[string]int{"port": u.pid("port"), "sock": u.pid("sock")}
	load := u.load(100, names...)
	pass(300 * time.Millisecond)
	u.kill()
	for name, pid := range before {
		if !alive(pid) {
			t.Errorf("%s (pid %d) died with usher", name, pid)
		}
	}
	u.serve()
	pass(300 * time.Millisecond) // under load
	if res := finished(t, load); res.Total.Served < 20 {
		t.Errorf("only %d requests were served around the restart", res.Total.Served)
	}
	for _, name := range names {
		if now := u.pid(name); now != before[name] || u.only(name) != now {
			t.Errorf("%s has pid %d after the restart, want %d", name, now, before[name])
		}
		st := u.deploy(name, hello(t, "v2"))
		if st.PID == before[name] || alive(before[name]) && st.Mode == "hold" {
			t.Errorf("the adopted %s was not swapped: %+v", name, st)
		}
		u.awaitStatus(name, 5*time.Second, "alone", func(s admin.AppStatus) bool { return len(s.Generations) == 1 })
		u.kill()
		u.serve()
		u.sleep(name)
		if left := u.generationsOf(name); len(left) > 0 {
			t.Errorf("the adopted %s sleeps and left %v", name, left)
		}
		if body := ok(t, u.get(name, "/version")).body; body != "v2\n" {
			t.Errorf("%s woke as %q", name, body)
		}
	}
}

func TestAnAppThatDiedWhileUsherWasAwayIsWokenAgain(t *testing.T) {
	t.Parallel()
	u := start(t, twoApps())
	for _, name := range []string{"port", "sock"} {
		dead := u.pid(name)
		u.kill()
		if err := syscall.Kill(dead, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		u.serve()
		if now := u.pid(name); now == dead || u.only(name) != now {
			t.Errorf("%s has pid %d, which was killed", name, now)
		}
	}
}

// A pid that was given to somebody else while usher was away is not the app.
func TestARecycledPIDIsLeftAlone(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"port", "sock"} {
		u := start(t, twoApps())
		app := u.pid(name)
		u.kill()
		if err := syscall.Kill(app, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		innocent := exec.Command("sleep", "300")
		innocent.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
		if err := innocent.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = innocent.Process.Kill() // it ends here at the latest
			_ = innocent.Wait()
		})
		path, run := u.record(name)
		run["pid"] = innocent.Process.Pid
		writeRecord(t, path, run)
		u.serve()
		u.awaitState(name, admin.Asleep, 5*time.Second)
		ok(t, u.get(name, "/"))
		u.must("deploy", name, hello(t, "v2"), "--wait", "drained")
		u.sleep(name)
		if !alive(innocent.Process.Pid) {
			t.Errorf("the process that got the pid of %s was killed", name)
		}
	}
}

// killCases are the moments of a deploy at which usher is killed: until says
// from the status that the moment has come.
var killCases = []struct {
	name      string
	incumbent string // what it does wrong
	successor string // what it does wrong
	held      bool   // a request stays inside the incumbent
	until     func(admin.AppStatus) bool
}{
	{"while the successor boots", "normal", "slow-start=4s", false, hasStage("checking", "successor")},
	{"while the successor is unhealthy", "normal", "boot503=4s", false, hasStage("checking", "successor")},
	{"while the predecessor drains", "normal", "normal", true, hasStage("draining", "")},
	{"while the predecessor is stopped", "ignore-term", "normal", false, hasStage("stopping", "")},
}

func hasStage(stage, role string) func(admin.AppStatus) bool {
	return func(s admin.AppStatus) bool {
		return slices.ContainsFunc(s.Generations, func(g admin.GenerationStatus) bool {
			return g.State == stage && (role == "" || g.Role == role)
		})
	}
}

func TestADeployIsFinishedAfterUsherWasKilledInIt(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"port", "sock"} {
		for _, c := range killCases {
			t.Run(name+" "+c.name, func(t *testing.T) {
				t.Parallel()
				o := twoApps()
				for i := range o.apps {
					o.apps[i].artifact = hello(t, "v1", c.incumbent)
					o.apps[i].lines = append(o.apps[i].lines, `hold_drain = "20s"`, `stop_timeout = "4s"`)
				}
				u := start(t, o)
				first := u.pid(name)
				build := hello(t, "v2", c.successor)
				if c.held {
					u.inside(name, 15*time.Second) // until usher is killed
				}
				deploy := u.cliAsync("deploy", name, build)
				u.awaitStatus(name, 10*time.Second, c.name, c.until)
				u.kill()
				if name == "port" && !alive(first) {
					t.Error("the incumbent died with usher")
				}
				u.serve()
				st := u.awaitStatus(name, 15*time.Second, "moved", func(s admin.AppStatus) bool {
					return s.State == admin.Awake && s.Revision == 2 && s.Reported == 2 && len(s.Generations) == 1
				})
				if pid := u.only(name); pid != st.PID || pid == first {
					t.Errorf("pid %d is there, status says %d, the old one was %d", pid, st.PID, first)
				}
				if body := ok(t, u.get(name, "/version")).body; body != "v2\n" {
					t.Errorf("it serves %q", body)
				}
				if r := <-deploy; r.code != 0 {
					t.Errorf("the deploy that waited through it: exit code %d\n%s", r.code, r.stderr)
				}
			})
		}
	}
}

func TestAStopIsFinishedAfterUsherWasKilledInIt(t *testing.T) {
	t.Parallel()
	stubborn := hello(t, "v7", "ignore-term")
	u := start(t, options{apps: []app{{name: "port", artifact: stubborn, lines: []string{`stop_timeout = "4s"`}}}})
	pid := u.pid("port")
	u.idle("port") // or it does not sleep
	sleep := u.cliAsync("sleep", "port")
	u.awaitStatus("port", 5*time.Second, "stopping", hasStage("stopping", ""))
	u.kill()
	if !alive(pid) {
		t.Fatal("it was gone already: the test is too slow")
	}
	u.serve()
	u.awaitStatus("port", 5*time.Second, "gone", func(s admin.AppStatus) bool { return len(s.Generations) == 0 })
	if alive(pid) {
		t.Errorf("pid %d lives on", pid)
	}
	<-sleep
	ok(t, u.get("port", "/"))
}

func TestAnAppThatLogsMuchDoesNotNoticeThatUsherIsGone(t *testing.T) {
	t.Parallel()
	const lines = "spam=10000" // 100 bytes each
	u := start(t, options{apps: []app{{artifact: hello(t, "v10", lines)}}})
	pid := u.pid("hello")
	st := u.status("hello")
	log := filepath.Join(u.state(), "logs", "hello", strconv.FormatUint(st.Generation, 10)+".log")
	u.kill()
	size := fileSize(t, log)
	for range 20 {
		ok(t, direct(st.Address, "/version")) // one that is blocked answers nothing
		pass(50 * time.Millisecond)
	}
	u.eventually(10*time.Second, "the app writes on without usher", func() error {
		if grown := fileSize(t, log) - size; grown < 100_000 {
			return fmt.Errorf("it wrote %d bytes", grown)
		}
		return nil
	})
	u.serve()
	if now := u.pid("hello"); now != pid {
		t.Errorf("pid %d became %d", pid, now)
	}
	follow := u.following("logs", "hello", "-f")
	for range 2000 {
		if !follow.Scan() || !strings.HasPrefix(follow.Text(), "spam ") && !strings.HasPrefix(follow.Text(), "hello ") {
			t.Fatalf("the log ends, or is torn: %q", follow.Text())
		}
	}
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return fi.Size()
}

// A record that names a process in a place that cannot be looked at is no proof
// that nothing runs.
func TestAnAppThatCannotBeLookedForIsNotStartedTwice(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{hold: true}}})
	if u.tree() == "" {
		t.Skip("there are no control groups here: sessions can always be looked at")
	}
	pid := u.pid("hello")
	u.kill()
	path, run := u.record("hello")
	group := run["cgroup"]
	run["cgroup"] = filepath.Join(filepath.Dir(u.tree()), "usher-ffffffffff", filepath.Base(fmt.Sprint(group)))
	writeRecord(t, path, run)
	u.serve()
	st := u.awaitState("hello", admin.Down, 5*time.Second)
	if want := fmt.Sprintf("stop unproven (pid %d)", pid); st.Reason != want {
		t.Errorf("reason %q, want %q", st.Reason, want)
	}
	if a := u.get("hello", "/"); a.status != http.StatusServiceUnavailable {
		t.Errorf("want 503, got %s", a)
	}
	if u.only("hello") != pid {
		t.Error("it was started beside the one that may run")
	}
	u.kill()
	run["cgroup"] = group
	writeRecord(t, path, run)
	u.serve()
	ok(t, u.get("hello", "/"))
}

func TestTakingControlGroupsAwayKeepsTheApp(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{name: "port"}}})
	if u.tree() == "" {
		t.Skip("there are no control groups here to take away")
	}
	pid := u.pid("port")
	u.kill()
	u.configure(options{server: []string{`cgroup = "off"`}, apps: []app{{name: "port"}}})
	u.serve()
	if now := u.pid("port"); now != pid {
		t.Errorf("pid %d became %d", pid, now)
	}
	u.sleep("port")
	if alive(pid) {
		t.Errorf("pid %d lives on", pid)
	}
}

func TestAnAppThatIsDownStaysDownAcrossARestart(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{hold: true}}})
	ok(t, u.get("hello", "/"))
	u.exits(1, "nothing served hello when it failed", "deploy", "hello", hello(t, "v6", "crash"))
	u.kill()
	u.serve()
	if a := u.get("hello", "/"); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("want 503 with Retry-After, got %s", a)
	}
	if left := u.processes(); len(left) > 0 {
		t.Errorf("it was started: %v", left)
	}
	u.exits(4, "usher restart hello --retry", "wake", "hello")
	u.must("rollback", "hello")
	if body := ok(t, u.get("hello", "/version")).body; body != "v1\n" {
		t.Errorf("it serves %q", body)
	}
}

func TestARestartThatUsherOwesIsRunOnce(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{artifact: hello(t, "v1", "slow-start=3s")}}})
	first := u.pid("hello")
	asked := u.cliAsync("restart", "hello")
	u.awaitStatus("hello", 5*time.Second, "booting", hasStage("checking", "successor"))
	u.kill()
	u.serve()
	st := u.awaitStatus("hello", 10*time.Second, "restarted", func(s admin.AppStatus) bool {
		return s.State == admin.Awake && s.PID != first && len(s.Generations) == 1
	})
	if r := <-asked; r.code != 0 || !strings.Contains(r.stdout, "hello: restart done") {
		t.Errorf("want exit code 0, got %d:\n%s%s", r.code, r.stdout, r.stderr)
	}
	pass(300 * time.Millisecond)
	if now := u.status("hello"); now.PID != st.PID || now.Generation != st.Generation || now.Revision != 1 || now.Restarts != 1 {
		t.Errorf("it was restarted again: %+v", now)
	}
}

// The run directory goes while usher is away, and with it all that is known of
// what runs: it is found by its control group or its marks, and does not run on
// unseen.
func TestAppsOfAWipedRunDirectoryAreFoundAndReplaced(t *testing.T) {
	t.Parallel()
	for _, cgroup := range []string{"auto", "off"} {
		t.Run("cgroup "+cgroup, func(t *testing.T) {
			t.Parallel()
			o := twoApps()
			o.server = []string{fmt.Sprintf("cgroup = %q", cgroup)}
			for i := range o.apps {
				o.apps[i].artifact = hello(t, "v1", "fork=1")
			}
			u := start(t, o)
			before := map[string]int{"port": u.pid("port"), "sock": u.pid("sock")}
			u.kill()
			if err := os.RemoveAll(u.run()); err != nil {
				t.Fatal(err)
			}
			u.serve()
			for name, pid := range before {
				if now := u.pid(name); now == pid || alive(pid) {
					t.Errorf("%s: pid %d serves, the one without a record, %d, lives: %v", name, now, pid, alive(pid))
				}
				u.eventually(5*time.Second, "one generation", func() error {
					if g := u.generationsOf(name); len(g) != 1 {
						return fmt.Errorf("there are %v", g)
					}
					return nil
				})
				if out := u.must("events", name).stdout; !strings.Contains(out, "has no record") {
					t.Errorf("%s: nobody is told of it:\n%s", name, out)
				}
			}
		})
	}
}
