package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// refused starts a usher that must not come up, and returns what it said.
func (u *usher) refused(want int) string {
	u.t.Helper()
	u.launch()
	select {
	case <-u.exited:
	case <-time.After(patience * 10 * time.Second):
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
