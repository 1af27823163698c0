package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/admin"
)

// Where the machine has the controllers, the kernel holds the app and each of its
// generations; where it has not, status says so and the app runs.
func TestLimitsOfAnAppAreInEffectOrStatusSaysThatTheyAreNot(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{lines: []string{`limits = { memory = "256MiB", pids = 200 }`, `drain_timeout = "1s"`}}}})
	ok(t, u.get("hello", "/"))
	l := u.status("hello").Limits
	if l == nil || l.Memory != 256<<20 || l.PIDs != 200 {
		t.Fatalf("status does not show the limits: %+v", l)
	}
	u.deploy("hello", hello(t, "v2"))
	if a := ok(t, u.get("hello", "/version")); a.body != "v2\n" {
		t.Errorf("want v2, got %s", a)
	}
	if l.Level == "none" {
		if out := u.cli("status", "hello"); !strings.Contains(out.stdout, "not in effect: ") || l.Problem == "" {
			t.Errorf("status does not say why:\n%s", out.stdout)
		}
		t.Skipf("the kernel is not asked to hold anything here: %s", l.Problem)
	}
	u.awaitStatus("hello", 10*time.Second, "one generation", func(s admin.AppStatus) bool { return len(s.Generations) == 1 })
	_, run := u.record("hello")
	group := fmt.Sprint(run["cgroup"])
	for _, dir := range []string{group, filepath.Dir(group)} {
		for file, want := range map[string]string{"memory.max": "268435456", "pids.max": "200"} {
			if raw, err := os.ReadFile(filepath.Join(dir, file)); err != nil || strings.TrimSpace(string(raw)) != want {
				t.Errorf("%s of %s is %q (%v), want %s", file, dir, raw, err, want)
			}
		}
	}
}
