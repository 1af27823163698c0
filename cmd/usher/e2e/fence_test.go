package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/admin"
)

// The state directory is moved away under load, in the middle of a deploy: what
// serves goes on, everything else is refused and said, and a start of usher, on the
// old directory or on a copy of it, goes on from there.
func TestAStateDirectoryThatIsMovedAwayFencesUsher(t *testing.T) {
	t.Parallel()
	for how, next := range map[string]func(u *usher, away string){
		"a copy in its place": func(u *usher, away string) {
			if out, err := exec.Command("cp", "-a", away, u.state()).CombinedOutput(); err != nil {
				u.t.Fatalf("%v: %s", err, out)
			}
			u.wantRefused()
			if code := u.terminate(30 * time.Second); code != 0 {
				u.t.Errorf("exit code %d", code)
			}
		},
		"the old one back": func(u *usher, away string) {
			if err := os.Rename(away, u.state()); err != nil {
				u.t.Fatal(err)
			}
			if r := u.cli("deploy", "port", hello(u.t, "v3")); r.code != 4 {
				u.t.Errorf("a state that came back is taken for usher's own: exit code %d, %s", r.code, r.stderr)
			}
			u.kill()
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			u := start(t, twoApps())
			pid := u.pid("port")
			u.sleep("sock")
			u.moveAway()
			next(u, u.state()+".old")
			if !alive(pid) {
				t.Error("the app has ended with usher")
			}
			u.serve()
			if now := u.pid("port"); now != pid { // beside it the release that is owed is tried again
				t.Errorf("pid %d became %d: it was not adopted", pid, now)
			}
			ok(t, u.get("sock", "/version"))
			u.deploy("port", hello(t, "v3"))
			u.deploy("sock", hello(t, "v3"))
			for _, name := range []string{"port", "sock"} {
				if body := ok(t, u.get(name, "/version")).body; body != "v3\n" {
					t.Errorf("%s serves %q", name, body)
				}
			}
		})
	}
}

// moveAway moves the state directory while a deploy is under way, and looks at what
// usher makes of that.
func (u *usher) moveAway() {
	t := u.t
	t.Helper()
	load := u.load(100, "port")
	deploy := u.cliAsync("deploy", "port", hello(t, "v2", "boot503=1h"))
	u.awaitState("port", admin.Swapping, 20*time.Second)
	if err := os.Rename(u.state(), u.state()+".old"); err != nil {
		t.Fatal(err)
	}
	if r := <-deploy; r.code != 1 || !strings.Contains(r.stderr, "fenced") || !strings.Contains(r.stderr, "start usher again") {
		t.Errorf("the deploy under way: exit code %d, %s", r.code, r.stderr)
	}
	for _, args := range [][]string{{"deploy", "port", hello(t, "v3")}, {"restart", "port"}, {"wake", "sock"}, {"pause", "port"}, {"reload"}} {
		if r := u.cli(args...); r.code != 4 || !strings.Contains(r.stderr, "usher does not own its state any more") || !strings.Contains(r.stderr, u.state()) {
			t.Errorf("%v: exit code %d, %s", args, r.code, r.stderr)
		}
	}
	a := u.get("sock", "/version")
	if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") != "30" || !strings.Contains(a.header.Get("Proxy-Status"), "destination_unavailable") {
		t.Errorf("a request to an app that sleeps: %v, %v", a, a.header)
	}
	if st := u.status("sock"); st.State != admin.Fenced || !strings.Contains(st.Reason, u.state()) {
		t.Errorf("an app that sleeps: %s, because of %q", st.State, st.Reason)
	}
	if st := u.status("port"); st.State != admin.Awake || st.Reported != 1 || st.Failures != 0 || st.LastOutcome == nil || st.LastOutcome.Outcome != "abandoned" {
		t.Errorf("an app that serves: %+v, %+v", st, st.LastOutcome)
	}
	u.wantSaid()
	pass(300 * time.Millisecond) // under load
	lossless(t, load)
}

// wantSaid: that usher is fenced is told wherever people and machines look.
func (u *usher) wantSaid() {
	u.t.Helper()
	said := func(text string) bool { return strings.Contains(text, "usher does not own its state any more") }
	var server admin.ServerStatus
	if err := u.getJSON("/v1/server", &server); err != nil {
		u.t.Fatal(err)
	}
	if server.State != "fenced" || !slices.ContainsFunc(server.Warnings, said) {
		u.t.Errorf("the server is %q, with the warnings %q", server.State, server.Warnings)
	}
	if r := u.must("status"); !said(r.stderr) || !strings.Contains(r.stdout, "fenced") {
		u.t.Errorf("status says %s %s", r.stderr, r.stdout)
	}
	if r := u.must("events"); !said(r.stdout) {
		u.t.Errorf("events say %s", r.stdout)
	}
	if !said(u.logTail(1000)) {
		u.t.Error("the log says nothing of it")
	}
	resp, err := u.control.Get("http://usher/readyz")
	if err != nil {
		u.t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != http.StatusServiceUnavailable || !said(string(body)) {
		u.t.Errorf("/readyz: %s %s (%v)", resp.Status, body, err)
	}
	m, err := u.metrics()
	if err != nil || m.sum("usher_fenced") != 1 || m.sum("usher_request_causes_total", "app", "sock", "cause", "fenced") != 1 {
		u.t.Errorf("metrics: fenced %v, requests refused for it %v (%v)", m.sum("usher_fenced"), m.sum("usher_request_causes_total", "app", "sock", "cause", "fenced"), err)
	}
}

// wantRefused: while the fenced usher lives, a second one does not take its apps.
func (u *usher) wantRefused() {
	u.t.Helper()
	second := prepare(u.t, options{})
	second.writeConfig(replaceAll(readFile(u.t, u.config()), u.admin, second.admin, u.listen, second.listen))
	if told, want := second.refused(1), fmt.Sprintf("in use by another usher (pid %d)", u.cmd.Process.Pid); !strings.Contains(told, want) {
		u.t.Errorf("a second usher says %q, want %q", told, want)
	}
}
