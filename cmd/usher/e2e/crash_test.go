package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// inside has a request for some time inside the app.
func (u *usher) inside(name string) <-chan answer {
	u.t.Helper()
	done := make(chan answer, 1)
	go func() { done <- u.get(name, "/sleep?d=1500ms") }()
	u.awaitStatus(name, 5*time.Second, "busy", func(s admin.AppStatus) bool { return s.InFlight == 1 })
	return done
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
		u.must("sleep", name)
		if left := u.generationsOf(name); len(left) > 0 {
			t.Errorf("the adopted %s sleeps and left %v", name, left)
		}
		if body := ok(t, u.get(name, "/version")).body; body != "v2\n" {
			t.Errorf("%s woke as %q", name, body)
		}
	}
}

func TestAnAdoptedAppFallsAsleepByItself(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{lines: []string{`idle_timeout = "1s"`}}}})
	pid := u.pid("hello")
	u.kill()
	u.serve()
	u.awaitStatus("hello", 5*time.Second, "asleep", func(s admin.AppStatus) bool {
		return s.State == admin.Asleep && len(s.Generations) == 0
	})
	if alive(pid) {
		t.Errorf("pid %d lives on", pid)
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

// A pid that was given to somebody else while usher was away, even with the
// recorded start time, is not the app.
func TestARecycledPIDIsLeftAlone(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"port", "sock"} {
		u := start(t, twoApps())
		innocent := exec.Command("sleep", "300")
		innocent.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
		if err := innocent.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = innocent.Process.Kill() // it ends here at the latest
			_ = innocent.Wait()
		})
		app := u.pid(name)
		u.kill()
		if err := syscall.Kill(app, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		path, run := u.record(name)
		run["pid"], run["start_time"] = innocent.Process.Pid, startTime(t, innocent.Process.Pid)
		writeRecord(t, path, run)
		u.serve()
		if got := u.status(name); got.State != admin.Asleep {
			t.Errorf("%s is %s, want asleep", name, got.State)
		}
		ok(t, u.get(name, "/"))
		u.deploy(name, hello(t, "v2"))
		u.must("sleep", name)
		if !alive(innocent.Process.Pid) {
			t.Errorf("the process that got the pid of %s was killed", name)
		}
	}
}

func startTime(t *testing.T, pid int) uint64 {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	const afterName = 19 // field 22 of proc(5), counted from the state
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	n, err := strconv.ParseUint(fields[afterName], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// killCases are the moments of a deploy at which usher is killed: until says
// from the status that the moment has come.
var killCases = []struct {
	name, successor string
	behaviour       []string // of the successor
	held            bool     // a request stays inside the incumbent
	until           func(admin.AppStatus) bool
}{
	{"while the successor boots", "v2", []string{"slow-start=1200ms"}, false, hasStage("checking", "successor")},
	{"while the successor is unhealthy", "v2", []string{"boot503=1200ms"}, false, hasStage("checking", "successor")},
	{"while the predecessor drains", "v2", nil, true, hasStage("draining", "")},
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
					o.apps[i].lines = append(o.apps[i].lines, `hold_drain = "20s"`)
				}
				u := start(t, o)
				first := u.pid(name)
				if c.held {
					u.inside(name)
				}
				build := hello(t, c.successor, c.behaviour...)
				deploy := u.cliAsync("deploy", name, build)
				u.awaitStatus(name, 10*time.Second, c.name, c.until)
				u.kill()
				if name == "port" && !alive(first) {
					t.Error("the incumbent died before the switch")
				}
				u.serve()
				st := u.awaitStatus(name, 15*time.Second, "moved", func(s admin.AppStatus) bool {
					return s.State == admin.Awake && s.Revision == 2 && s.Reported == 2 && len(s.Generations) == 1
				})
				if pid := u.only(name); pid != st.PID || pid == first {
					t.Errorf("pid %d is there, status says %d, the old one was %d", pid, st.PID, first)
				}
				if body := ok(t, u.get(name, "/version")).body; body != c.successor+"\n" {
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
	u := start(t, options{apps: []app{{name: "port", artifact: stubborn, lines: []string{`stop_timeout = "1s"`}}}})
	pid := u.pid("port")
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
		a := ok(t, direct(st.Address, "/version"))
		if a.took > 500*time.Millisecond {
			t.Errorf("the app answered after %s", a.took)
		}
		pass(50 * time.Millisecond)
	}
	if grown := fileSize(t, log) - size; grown < 100_000 {
		t.Errorf("the app wrote %d bytes in a second without usher", grown)
	}
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

func TestDamageToTheDatabaseStopsNoApp(t *testing.T) {
	t.Parallel()
	for how, damage := range map[string]func(path string) error{
		"empty":     func(path string) error { return os.Truncate(path, 0) },
		"truncated": func(path string) error { return os.Truncate(path, 10_000) },
		"garbage":   func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("no db", 5000)), 0o600) },
		"missing":   os.Remove,
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			u := start(t, twoApps())
			u.deploy("port", hello(t, "v2"))
			u.deploy("sock", hello(t, "v2"))
			port, sock := u.only("port"), u.pid("sock")
			u.kill()
			if err := damage(filepath.Join(u.state(), "usher.db")); err != nil {
				t.Fatal(err)
			}
			u.serve()
			pass(200 * time.Millisecond) // in which it could do harm
			if u.pid("port") != port || u.only("port") != port || u.pid("sock") != sock || u.only("sock") != sock {
				t.Error("an app that ran was replaced")
			}
			for _, name := range []string{"port", "sock"} {
				if st := u.status(name); st.Revision != 2 || st.Reported != 2 || st.Build == "" {
					t.Errorf("%s has lost what it is: %+v", name, st)
				}
				if body := ok(t, u.get(name, "/version")).body; body != "v2\n" {
					t.Errorf("%s serves %q", name, body)
				}
			}
			if how != "missing" {
				u.wantAside()
			}
			if st := u.deploy("port", hello(t, "v3")); st.Revision != 3 {
				t.Errorf("the next deploy is revision %d, want 3", st.Revision)
			}
		})
	}
}

// wantAside expects that the damaged database was kept and told of.
func (u *usher) wantAside() {
	u.t.Helper()
	kept, _ := filepath.Glob(filepath.Join(u.state(), "usher.db.corrupt-*"))
	if len(kept) != 1 {
		u.t.Errorf("set aside: %v, want one file", kept)
	}
	var server admin.ServerStatus
	if err := u.getJSON("/v1/server", &server); err != nil {
		u.t.Fatal(err)
	}
	told := func(text string) bool {
		return strings.Contains(text, "damaged") && strings.Contains(text, "usher.db.corrupt-")
	}
	if !slices.ContainsFunc(server.Warnings, told) || !told(u.must("status").stderr) || !told(u.logTail(1000)) {
		u.t.Errorf("the warning is missing in status or log: %v", server.Warnings)
	}
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
	u.must("sleep", "port")
	if alive(pid) {
		t.Errorf("pid %d lives on", pid)
	}
}

// ---- the end of usher -------------------------------------------------------

// endings are the states in which usher is asked to end. begin brings the app
// "port" there.
var endings = []struct {
	name  string
	begin func(u *usher)
	runs  bool // the app runs on by the policy "keep"
}{
	{"ready", func(u *usher) { ok(u.t, u.get("port", "/")) }, true},
	{"starting", func(u *usher) {
		u.deploy("port", hello(u.t, "v8", "slow-start=1500ms"))
		u.must("sleep", "port")
		go u.get("port", "/")
		u.awaitState("port", admin.Waking, 5*time.Second)
	}, false},
	{"swapping", func(u *usher) {
		ok(u.t, u.get("port", "/"))
		u.cliAsync("deploy", "port", hello(u.t, "v8", "slow-start=1500ms"))
		u.awaitStatus("port", 5*time.Second, "swapping", hasStage("checking", "successor"))
	}, true},
	{"draining", func(u *usher) {
		ok(u.t, u.get("port", "/"))
		u.open("port", "/sse")
		u.deploy("port", hello(u.t, "v2"))
		u.awaitStatus("port", 5*time.Second, "draining", hasStage("draining", "retiring"))
	}, true},
	{"holding", func(u *usher) {
		ok(u.t, u.get("port", "/"))
		u.cliAsync("deploy", "port", "--mode", "hold", hello(u.t, "v8", "slow-start=1500ms"))
		u.awaitStatus("port", 5*time.Second, "holding", hasStage("checking", "successor"))
		go u.get("port", "/")
	}, false},
}

func TestUsherEndsPromptlyInEveryState(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"keep", "stop"} {
		for _, c := range endings {
			t.Run(policy+" while "+c.name, func(t *testing.T) {
				t.Parallel()
				o := options{apps: []app{{name: "port", lines: []string{`drain_timeout = "2s"`, `close_spread = "500ms"`}}}}
				if policy == "stop" {
					o.args = []string{"--stop-apps"}
				}
				u := start(t, o)
				c.begin(u)
				before := u.status("port").PID
				begun := time.Now()
				if code := u.terminate(15 * time.Second); code != 0 {
					t.Errorf("exit code %d", code)
				}
				if took := time.Since(begun); took > 4*time.Second {
					t.Errorf("it took %s", took)
				}
				left := u.processes()
				switch {
				case policy == "stop" || !c.runs:
					if len(left) > 0 {
						t.Errorf("processes %v are left", left)
					}
				case !slices.Contains(left, before):
					t.Errorf("pid %d is gone: %v", before, left)
				}
				u.serve()
				st := u.awaitStatus("port", 10*time.Second, "at rest", func(s admin.AppStatus) bool {
					return s.Revision == s.Desired && len(s.Generations) <= 1 && (s.State == admin.Awake || s.State == admin.Asleep)
				})
				if c.name == "ready" && policy == "keep" && st.PID != before {
					t.Errorf("pid %d became %d", before, st.PID)
				}
				ok(t, u.get("port", "/"))
			})
		}
	}
}

// ---- sockets and neighbours -------------------------------------------------

// refused starts a usher that must not come up, and returns what it said.
func (u *usher) refused(want int) string {
	u.t.Helper()
	u.launch()
	select {
	case <-u.exited:
	case <-time.After(10 * time.Second):
		u.t.Fatal("it runs")
	}
	if code := u.cmd.ProcessState.ExitCode(); code != want {
		u.t.Errorf("exit code %d, want %d", code, want)
	}
	u.unchecked = "it never ran"
	return u.logTail(40)
}

// listenAlso adds an address to the file.
func (u *usher) listenAlso(address string) {
	u.t.Helper()
	u.writeConfig(strings.Replace(readFile(u.t, u.config()), `listen = [`, fmt.Sprintf("listen = [%q, ", address), 1))
}

func TestStaleSocketsAreReplaced(t *testing.T) {
	t.Parallel()
	u := prepare(t, options{})
	front := filepath.Join(u.dir, "http.sock")
	u.listenAlso("unix:" + front)
	u.serve()
	u.base = u.vitals()
	u.kill()
	for _, path := range []string{front, u.admin} {
		if fi, err := os.Lstat(path); err != nil || fi.Mode()&os.ModeSocket == 0 {
			t.Fatalf("%s is no stale socket: %v", path, err)
		}
	}
	u.serve()
	ok(t, u.get("hello", "/"))
}

func TestWhatLiesAtASocketPathIsLeftAlone(t *testing.T) {
	t.Parallel()
	first := start(t, options{})
	pid := first.pid("hello")

	file := prepare(t, options{})
	if err := os.WriteFile(file.admin, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if told := file.refused(1); !strings.Contains(told, file.admin) || !strings.Contains(told, "regular file") {
		t.Errorf("a regular file: it says %q", told)
	}
	if data, err := os.ReadFile(file.admin); err != nil || string(data) != "precious" {
		t.Errorf("the file was touched: %q, %v", data, err)
	}

	live := prepare(t, options{})
	live.admin = first.admin
	live.configure(options{})
	if told := live.refused(1); !strings.Contains(told, "another process listens there") {
		t.Errorf("a live socket: it says %q", told)
	}
	if first.pid("hello") != pid || first.only("hello") != pid {
		t.Error("the usher whose socket it is was harmed")
	}
}

func TestASecondUsherHarmsNothing(t *testing.T) {
	t.Parallel()
	first := start(t, twoApps())
	port, sock := first.pid("port"), first.pid("sock")
	config := readFile(t, first.config())
	for what, change := range map[string]func(u *usher, text string) string{
		"the same file": func(_ *usher, text string) string { return text },
		"the same state": func(u *usher, text string) string {
			return replaceAll(text, first.run(), u.run(), first.admin, u.admin, first.listen, u.listen)
		},
		"the same run directory": func(u *usher, text string) string {
			return replaceAll(text, first.state(), u.state(), first.admin, u.admin, first.listen, u.listen)
		},
	} {
		second := prepare(t, options{})
		second.writeConfig(change(second, config))
		told := second.refused(1)
		if want := fmt.Sprintf("in use by another usher (pid %d)", first.cmd.Process.Pid); !strings.Contains(told, want) {
			t.Errorf("%s: it says %q, want %q", what, told, want)
		}
	}
	if first.pid("port") != port || first.only("port") != port || first.pid("sock") != sock || first.only("sock") != sock {
		t.Error("an app was harmed")
	}
	first.kill()
	first.serve()
	if first.pid("port") != port || first.pid("sock") != sock {
		t.Error("an app is not adopted any more")
	}
}

func replaceAll(text string, pairs ...string) string {
	return strings.NewReplacer(pairs...).Replace(text)
}

func TestATakenPortStartsNothing(t *testing.T) {
	t.Parallel()
	first := start(t, options{})
	second := prepare(t, options{apps: []app{{lines: []string{`start = "eager"`}}}})
	second.writeConfig(strings.Replace(readFile(t, second.config()), second.listen, first.listen, 1))
	if told := second.refused(1); !strings.Contains(told, first.listen) || !strings.Contains(told, "address already in use") {
		t.Errorf("it says %q", told)
	}
	if left := second.processes(); len(left) > 0 {
		t.Errorf("it started %v", left)
	}
}

// ---- disks ------------------------------------------------------------------

// disk mounts a file system of that size over the state directory of the usher
// that is made next. It is unmounted after the leak check.
func disk(t *testing.T, option string) (mount func(u *usher)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small disk needs root")
	}
	var dir string
	t.Cleanup(func() {
		if dir != "" {
			_ = syscall.Unmount(dir, syscall.MNT_DETACH)
			_ = os.RemoveAll(filepath.Dir(dir)) // what could not go while it was mounted
		}
	})
	return func(u *usher) {
		t.Helper()
		if err := os.MkdirAll(u.state(), 0o711); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("tmpfs", u.state(), "tmpfs", 0, option); err != nil {
			t.Skipf("no file system can be mounted here: %v", err)
		}
		dir = u.state()
	}
}

func TestAFullDiskFailsADeployAndNothingElse(t *testing.T) {
	t.Parallel()
	mount := disk(t, "size=40m,mode=711")
	u := prepare(t, options{})
	mount(u)
	u.serve()
	u.base = u.vitals()
	pid := u.pid("hello")
	filler := filepath.Join(u.state(), "filler")
	fill(t, filler)
	r := u.cli("deploy", "hello", hello(t, "v2"))
	if r.code != 1 || !strings.Contains(r.stderr, "no space left on device") {
		t.Errorf("deploy: exit code %d, %s", r.code, r.stderr)
	}
	if now := u.pid("hello"); now != pid || u.status("hello").State != admin.Awake {
		t.Errorf("the incumbent was harmed: pid %d became %d", pid, now)
	}
	u.kill()
	u.serve() // on the full disk
	if now := u.pid("hello"); now != pid {
		t.Errorf("not adopted on a full disk: pid %d became %d", pid, now)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	u.deploy("hello", hello(t, "v2"))
	if body := ok(t, u.get("hello", "/version")).body; body != "v2\n" {
		t.Errorf("it serves %q", body)
	}
}

func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for chunk := make([]byte, 1<<20); len(chunk) > 0; {
		n, err := f.Write(chunk)
		if err != nil {
			chunk = chunk[:min(n, len(chunk)/2)]
		}
	}
}

func TestAStateDirectoryThatCannotBeWrittenIsTold(t *testing.T) {
	t.Parallel()
	var u *usher
	if os.Geteuid() == 0 {
		mount := disk(t, "ro")
		u = prepare(t, options{})
		mount(u)
	} else {
		u = prepare(t, options{})
		if err := os.Mkdir(u.state(), 0o500); err != nil {
			t.Fatal(err)
		}
	}
	told := u.refused(1)
	if !regexp.MustCompile(`read-only file system|permission denied`).MatchString(told) || !strings.Contains(told, u.state()) {
		t.Errorf("it says %q", told)
	}
	if left := u.processes(); len(left) > 0 {
		t.Errorf("it started %v", left)
	}
}

// following runs the command line and gives its lines; it ends with the test.
func (u *usher) following(args ...string) *lines {
	u.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, theLab.usher, append([]string{"--admin", "unix:" + u.admin}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		u.t.Fatal(err)
	}
	l := newLines(out)
	u.t.Cleanup(func() {
		cancel()
		l.rest()
		_ = cmd.Wait() // it was interrupted
		if code := cmd.ProcessState.ExitCode(); code != 0 {
			u.t.Errorf("usher %s: exit code %d when interrupted", strings.Join(args, " "), code)
		}
	})
	return l
}
