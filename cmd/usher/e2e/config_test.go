package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/usher-edge/usher/admin"
)

func TestEveryMistakeIsToldAtOnceAndNothingIsStarted(t *testing.T) {
	t.Parallel()
	u := prepare(t, options{})
	user := ""
	if os.Geteuid() == 0 {
		user = `user = "nobody"`
	}
	u.writeConfig(fmt.Sprintf(`[server]
listen = ["%s"]
admin  = "unix:%s"
state  = "%s"
run    = "%s"
trusted = 1

[apps.one]
hosts        = ["one.localhost"]
artifact     = "%s"
start        = "eager"
idle_timeout = "15 minutes"
%s

[apps.two]
hosts    = ["two.localhost", "ONE.localhost"]
artifact = "there/is/none"
swap     = "sideways"
colour   = "red"
%s
`, u.listen, u.admin, u.state(), u.run(), hello(t, "v1"), user, user))
	told := u.refused(5)
	for _, want := range []string{
		"6:1: server.trusted: unknown key",
		`12:16: apps.one.idle_timeout: "15 minutes" is no duration`,
		"16:30: apps.two.hosts: host one.localhost belongs to apps.one already",
		"17:12: apps.two.artifact: ",
		`18:12: apps.two.swap: "sideways" is not known`,
		"19:1: apps.two.colour: unknown key",
		"nothing was started",
	} {
		if !strings.Contains(told, want) {
			t.Errorf("it does not say %q:\n%s", want, told)
		}
	}
	for _, path := range []string{u.admin, u.state(), u.run()} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s was made", path)
		}
	}
	r := u.cli("validate", "--config", u.config())
	if r.code != 5 || !strings.Contains(r.stderr, "18:12: ") {
		t.Errorf("validate: exit code %d, %s", r.code, r.stderr)
	}
}

func TestAReloadTouchesOnlyWhatChanged(t *testing.T) {
	t.Parallel()
	same := app{name: "same"}
	u := start(t, options{apps: []app{same, {name: "changes"}, {name: "leaves", cache: true}}})
	same1, changes1, leaves1 := u.pid("same"), u.pid("changes"), u.pid("leaves")
	ws := u.webSocket("same")
	if err := echo(ws, "before"); err != nil {
		t.Fatal(err)
	}
	inside := u.inside("leaves", 1500*time.Millisecond)

	port := portRange(t, u)
	u.configure(options{apps: []app{
		same,
		{name: "changes", env: map[string]string{"GREETING": "changed"}},
		{name: "arrives", artifact: hello(t, "v2")},
	}})
	setPortRange(t, u, port)
	r := u.must("reload")
	if want := "added: arrives\nchanged: changes\nremoved: leaves\nunchanged: 1\n"; r.stdout != want {
		t.Errorf("reload says %q, want %q", r.stdout, want)
	}
	if body := ok(t, u.get("arrives", "/")).body; body != "hello from v2\n" {
		t.Errorf("the new app says %q", body)
	}
	if a := u.get("leaves", "/"); a.status != http.StatusNotFound {
		t.Errorf("the app that left: want 404, got %s", a)
	}
	st := u.awaitStatus("changes", 10*time.Second, "swapped", func(s admin.AppStatus) bool { return s.Revision == 2 && s.Reported == 2 })
	if body := ok(t, u.get("changes", "/")).body; st.PID == changes1 || body != "changed from v1\n" {
		t.Errorf("the changed app says %q with pid %d", body, st.PID)
	}
	if err := echo(ws, "after"); err != nil || u.pid("same") != same1 || u.status("same").Revision != 1 {
		t.Errorf("the app that did not change was touched: pid %d became %d, WebSocket: %v", same1, u.pid("same"), err)
	}
	if a := <-inside; a.err != nil || a.status != http.StatusOK {
		t.Errorf("the request inside the app that left: %s", a)
	}
	u.eventually(5*time.Second, "the app is gone", func() error {
		if alive(leaves1) {
			return fmt.Errorf("pid %d lives on", leaves1)
		}
		if r := u.cli("status", "leaves"); r.code != 3 {
			return fmt.Errorf("status: exit code %d: %s", r.code, r.stdout)
		}
		m, err := u.metrics()
		for sample := range m {
			if strings.Contains(sample, `app="leaves"`) {
				return fmt.Errorf("metric %s is still there", sample)
			}
		}
		return err
	})
}

// portRange and setPortRange keep [server] as it was when the rest of a file is
// written anew: a running usher cannot change it.
func portRange(t *testing.T, u *usher) string {
	t.Helper()
	for line := range strings.Lines(readFile(t, u.config())) {
		if strings.HasPrefix(line, "port_range") {
			return strings.TrimSpace(line)
		}
	}
	t.Fatal("the file has no port_range")
	return ""
}

func setPortRange(t *testing.T, u *usher, line string) {
	t.Helper()
	u.writeConfig(strings.Replace(readFile(t, u.config()), portRange(t, u), line, 1))
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// reconfigure gives a running usher other apps.
func (u *usher) reconfigure(apps ...app) {
	u.t.Helper()
	line := portRange(u.t, u)
	u.configure(options{apps: apps})
	setPortRange(u.t, u, line)
}

func TestAnInvalidFileKeepsTheOldOneInForce(t *testing.T) {
	t.Parallel()
	u := start(t, options{})
	pid := u.pid("hello")
	good := readFile(t, u.config())
	for what, c := range map[string]struct {
		text, told string
	}{
		"unknown keys":     {good + "\nfoolish = 2\nnonsense = 1\n", "hello.nonsense: unknown key"},
		"no file any more": {"", "the [server] table is missing"},
		"another listener": {strings.Replace(good, u.listen, freeAddress(t), 1), "[server] listen cannot change while usher runs"},
		"missing artifact": {good + "\n[apps.more]\nhosts = [\"more.localhost\"]\nartifact = \"none\"\nuser = \"nobody\"\n", "more.artifact"},
	} {
		u.writeConfig(c.text)
		r := u.cli("reload")
		if r.code == 0 || !strings.Contains(r.stderr, c.told) {
			t.Errorf("%s: exit code %d, it says %q, want %q", what, r.code, r.stderr, c.told)
		}
		if what != "another listener" && r.code != 5 {
			t.Errorf("%s: exit code %d, want 5", what, r.code)
		}
		u.signal(syscall.SIGHUP)
		u.eventually(5*time.Second, "the log tells of it", func() error {
			if log := u.logTail(3); !strings.Contains(log, "the old configuration stays") || !strings.Contains(log, c.told) {
				return fmt.Errorf("the log ends with %s", log)
			} else if strings.Contains(log, `\n`) {
				return fmt.Errorf("several faults are one record: %s", log)
			}
			return nil
		})
		if now := u.pid("hello"); now != pid {
			t.Errorf("%s: pid %d became %d", what, pid, now)
		}
	}
	u.writeConfig(good)
}

func TestSIGHUPAppliesTheFile(t *testing.T) {
	t.Parallel()
	u := start(t, options{})
	u.reconfigure(app{}, app{name: "more"})
	u.signal(syscall.SIGHUP)
	u.eventually(5*time.Second, "the new app serves", func() error {
		if a := u.get("more", "/"); a.status != http.StatusOK {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
}

func TestAnAppThatComesBackWhileItIsRemovedServes(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{name: "stays"}, {name: "back"}}})
	first := u.pid("back")
	inside := u.inside("back", 1500*time.Millisecond)
	u.reconfigure(app{name: "stays"})
	u.must("reload")
	u.reconfigure(app{name: "stays"}, app{name: "back", artifact: hello(t, "v2")})
	if r := u.must("reload"); !strings.Contains(r.stdout, "added: back") {
		t.Errorf("reload says %q", r.stdout)
	}
	if body := ok(t, u.get("back", "/version")).body; body != "v2\n" {
		t.Errorf("it serves %q", body)
	}
	if a := <-inside; a.err != nil || a.status != http.StatusOK {
		t.Errorf("the request inside the one that was removed: %s", a)
	}
	if u.only("back") == first {
		t.Error("the removed process came back")
	}
}

func TestAnAppUnderANewNameTakesOverItsHostsWithoutAGap(t *testing.T) {
	t.Parallel()
	const hosts = `hosts = ["site.localhost"]`
	u := start(t, options{apps: []app{{name: "old", lines: []string{hosts}}}})
	ok(t, u.get("site", "/"))
	inside := make(chan answer, 1)
	go func() { inside <- u.get("site", "/sleep?d=1s") }()
	u.awaitStatus("old", 5*time.Second, "busy", func(s admin.AppStatus) bool { return s.InFlight == 1 })
	load := u.load(100, "site")
	pass(200 * time.Millisecond)
	u.reconfigure(app{name: "new", artifact: hello(t, "v2"), lines: []string{hosts}})
	u.must("reload")
	if body := ok(t, u.get("site", "/version")).body; body != "v2\n" {
		t.Errorf("it serves %q", body)
	}
	lossless(t, load)
	if a := <-inside; a.err != nil || a.status != http.StatusOK {
		t.Errorf("the request inside the old one: %s", a)
	}
}

func TestEverySpellingOfAHostIsRouted(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{name: "hello"}, {name: "wild", lines: []string{`hosts = ["*.wild.localhost"]`}}}})
	for _, c := range []struct {
		head string
		want int
	}{
		{"GET /version HTTP/1.1\r\nHost: HELLO.Localhost\r\n\r\n", 200},
		{"GET /version HTTP/1.1\r\nHost: hello.localhost.\r\n\r\n", 200},
		{"GET /version HTTP/1.1\r\nHost: hello.localhost:8080\r\n\r\n", 200},
		{"GET /version HTTP/1.1\r\nHost: hello.localhost.:8080\r\n\r\n", 200},
		{"GET http://hello.localhost/version HTTP/1.1\r\nHost: hello.localhost\r\n\r\n", 200},
		{"GET /version HTTP/1.1\r\nHost: A.b.wild.LOCALHOST\r\n\r\n", 200},
		{"GET /version HTTP/1.1\r\nHost: wild.localhost\r\n\r\n", 404},
		{"GET /version HTTP/1.1\r\nHost: other.localhost\r\n\r\n", 404},
		{"GET /version HTTP/1.1\r\n\r\n", 400},
		{"GET /version HTTP/1.1\r\nHost: hello.localhost\r\nHost: hello.localhost\r\n\r\n", 400},
	} {
		conn := u.raw()
		status := rawStatus(t, conn, c.head)
		conn.Close()
		if status != c.want {
			t.Errorf("%q: status %d, want %d", c.head, status, c.want)
		}
	}
}

func rawStatus(t *testing.T, conn net.Conn, head string) int {
	t.Helper()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second)) // a failure shows in the read
	if _, err := io.WriteString(conn, head); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%q: %v", head, err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // only the status matters
	return resp.StatusCode
}

// ---- targets ----------------------------------------------------------------

// stranger starts an app that usher does not own and returns its address.
func stranger(t *testing.T, build string) (address string, cmd *exec.Cmd) {
	t.Helper()
	address = freeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	cmd = exec.Command(build)
	cmd.Env = []string{"PORT=" + port}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	err := poll(10*time.Second, func() error {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err
	})
	if err != nil {
		t.Fatalf("%s does not listen: %v", build, err)
	}
	return address, cmd
}

func TestATargetIsSwappedByItsAddress(t *testing.T) {
	t.Parallel()
	one, _ := stranger(t, hello(t, "v1"))
	two, _ := stranger(t, hello(t, "v2"))
	sick, _ := stranger(t, hello(t, "v4", "never-healthy"))
	u := start(t, options{})
	text := readFile(t, u.config()) + fmt.Sprintf("\n[apps.api]\nhosts = [\"api.localhost\"]\ntarget = %q\n[apps.api.health]\ntimeout = \"1s\"\n", one)
	u.writeConfig(text)
	u.must("reload")
	if body := ok(t, u.get("api", "/version")).body; body != "v1\n" {
		t.Errorf("it serves %q", body)
	}
	if s := u.status("api"); !s.External || s.Isolation.Level != "external" || s.Isolation.User != "" || s.Proof != "" {
		t.Errorf("what keeps a target apart: %+v, proof %q", s.Isolation, s.Proof)
	}

	begun := time.Now()
	inside := u.inside("api", 4*time.Second)
	load := u.load(100, "api")
	pass(100 * time.Millisecond)
	u.must("deploy", "api", "--target", two, "--wait", "drained")
	if took := time.Since(begun); took < 4*time.Second {
		t.Errorf("--wait drained came back %s after a request of 4s began, before the old target was empty", took)
	}
	if body := ok(t, u.get("api", "/version")).body; body != "v2\n" {
		t.Errorf("after the deploy it serves %q", body)
	}
	lossless(t, load)
	if a := <-inside; a.status != http.StatusOK || !strings.Contains(a.body, "v1") {
		t.Errorf("what was inside the old target: %s", a)
	}

	nobody := freeAddress(t)
	for address, why := range map[string]string{sick: "answered 503", nobody: "connection refused"} {
		r := u.cli("deploy", "api", "--target", address)
		if r.code != 1 || !strings.Contains(r.stderr, why) || !strings.Contains(r.stderr, "is still serving") || strings.Contains(r.stderr, "usher logs") {
			t.Errorf("target %s: exit code %d, %s", address, r.code, r.stderr)
		}
		if body := ok(t, u.get("api", "/version")).body; body != "v2\n" {
			t.Errorf("after a refused target it serves %q", body)
		}
	}
	for _, c := range []struct {
		code int
		args []string
	}{
		{1, []string{"deploy", "api", "--target", "nonsense"}},
		{2, []string{"deploy", "api"}},
		{4, []string{"deploy", "api", hello(t, "v1")}},
		{4, []string{"deploy", "hello", "--target", two}},
		{4, []string{"sleep", "api"}},
		{0, []string{"wake", "api"}},
		{0, []string{"restart", "api"}},
		{0, []string{"rollback", "api"}}, // to one, past those that never served
	} {
		if r := u.cli(c.args...); r.code != c.code {
			t.Errorf("usher %v: exit code %d, want %d: %s", c.args, r.code, c.code, r.stderr)
		}
	}
	if body := ok(t, u.get("api", "/version")).body; body != "v2\n" && body != "v1\n" {
		t.Errorf("after the rollback it serves %q", body)
	}
	u.kill()
	u.serve()
	ok(t, u.get("api", "/version"))
	u.writeConfig(strings.Replace(text, one, two, 1))
	u.must("reload")
	u.eventually(5*time.Second, "the file's new target serves", func() error {
		if body := u.get("api", "/version").body; body != "v2\n" {
			return fmt.Errorf("it serves %q", body)
		}
		return nil
	})
}

func TestATargetThatIsGoneIsToldAndCanBeReplaced(t *testing.T) {
	t.Parallel()
	one, process := stranger(t, hello(t, "v1"))
	two, _ := stranger(t, hello(t, "v2"))
	u := prepare(t, options{})
	u.writeConfig(readFile(t, u.config()) + "\n[apps.api]\nhosts = [\"api.localhost\"]\ntarget = " + strconv.Quote(one) + "\n")
	u.serve()
	u.base = u.vitals()
	ok(t, u.get("api", "/version"))
	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	u.eventually(5*time.Second, "its end is seen", func() error {
		if a := u.get("api", "/version"); a.status != http.StatusBadGateway {
			return fmt.Errorf("want 502, got %s", a)
		}
		return nil
	})
	u.must("deploy", "api", "--target", two)
	ok(t, u.get("api", "/version"))
}
