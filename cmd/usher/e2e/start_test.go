package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/usher-edge/usher/admin"
)

// While usher starts, probes are told so at once. What is about apps waits until
// all have their places, and is then answered truly. Staging a large artifact takes
// usher a while; should the test be too slow to see it, it is given another one.
func TestProbesAreAnsweredWhileUsherStarts(t *testing.T) {
	t.Parallel()
	u := start(t, options{})
	ok(t, u.get("hello", "/"))
	pid := u.pid("hello")
	for round := range 5 {
		u.configure(options{apps: []app{{}, {name: "late", artifact: u.padded(hello(t, "v1"), int64(round))}}})
		u.kill()
		u.launch()
		seen := false
		u.eventually(30*time.Second, "usher is ready", func() error {
			status := u.probed("/readyz")
			if status == http.StatusServiceUnavailable && !seen {
				seen = true
				u.starting(pid)
			}
			if status != http.StatusOK {
				return fmt.Errorf("/readyz: %d", status)
			}
			return nil
		})
		if s := u.status("late"); s.Desired != uint64(round)+1 {
			t.Errorf("usher was ready before the app late had its place: %+v", s)
		}
		if seen {
			ok(t, u.get("late", "/"))
			return
		}
	}
	t.Error("nobody was told that usher starts")
}

// starting looks at a usher that was starting a moment ago.
func (u *usher) starting(pid int) {
	u.t.Helper()
	for _, path := range []string{"/livez", "/metrics", "/v1/version", "/v1/server"} {
		if got := u.probed(path); got != http.StatusOK {
			u.t.Errorf("GET %s while usher starts: %d", path, got)
		}
	}
	if a := u.status("hello"); a.PID != pid || a.State != admin.Awake {
		u.t.Errorf("the app that ran is %s with pid %d, want awake with %d", a.State, a.PID, pid)
	}
}

// padded copies an executable to a file that is much longer, by so many bytes more.
func (u *usher) padded(from string, more int64) string {
	u.t.Helper()
	const much = 192 << 20
	path := filepath.Join(u.dir, fmt.Sprintf("padded-%d", more))
	data, err := os.ReadFile(from)
	if err == nil {
		err = errors.Join(os.WriteFile(path, data, 0o755), os.Truncate(path, much+more))
	}
	if err != nil {
		u.t.Fatal(err)
	}
	return path
}

// What usher finds at its start that is not as it was recorded is told.
func TestStatusTellsOfAnAppThatEndedWhileUsherWasNotThere(t *testing.T) {
	t.Parallel()
	u := start(t, options{})
	ok(t, u.get("hello", "/"))
	pid := u.pid("hello")
	u.eventually(10*time.Second, "the switch is recorded", func() error { // the answer may be a moment earlier
		if st := u.status("hello"); st.LastOutcome == nil || st.LastOutcome.Outcome != "done" {
			return fmt.Errorf("last outcome %+v", st.LastOutcome)
		}
		return nil
	})
	u.kill()
	u.serve()
	if out := u.must("status", "hello").stdout; strings.Contains(out, "not as it was recorded") {
		t.Errorf("it lives, and status says:\n%s", out)
	}
	u.kill()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	u.serve()
	want := fmt.Sprintf("pid %d (switched) is not there any more", pid)
	if out := u.must("status", "hello").stdout; !strings.Contains(out, "found when usher started, not as it was recorded:\n  generation 1: "+want) {
		t.Errorf("status does not say so:\n%s", out)
	}
	if got := u.status("hello").Recovery; len(got) != 1 || !strings.Contains(got[0], want) {
		t.Errorf("recovery: %q", got)
	}
	u.eventually(10*time.Second, "the events say so", func() error {
		if out := u.must("events", "hello").stdout; !strings.Contains(out, want) {
			return errors.New(out)
		}
		return nil
	})
	ok(t, u.get("hello", "/"))
}

// probed is what the admin API answers at once; 0: nothing.
func (u *usher) probed(path string) int {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://usher"+path, nil)
	if err != nil {
		u.t.Fatal(err)
	}
	resp, err := u.control.Do(req)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}
