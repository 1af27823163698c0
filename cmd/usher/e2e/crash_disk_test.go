package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/usher-edge/usher/admin"
)

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
	if status := u.upload("hello", hello(t, "v2")); status != http.StatusInsufficientStorage {
		t.Errorf("the admin API answers %d to an upload that does not fit, want 507", status)
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

// upload sends a file as a build of the app, as a script would, and returns the
// status of the answer.
func (u *usher) upload(name, path string) int {
	u.t.Helper()
	f, err := os.Open(path)
	if err != nil {
		u.t.Fatal(err)
	}
	defer f.Close()
	req, err := http.NewRequest(http.MethodPut, "http://usher/v1/apps/"+name+"/builds", f)
	if err != nil {
		u.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	resp, err := u.control.Do(req)
	if err != nil {
		u.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
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
