package peers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// builtIn names the directory of the program that builtUsher makes.
const builtIn = "USHER_TEST_BUILT_IN"

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "usher-")
	if err == nil {
		err = os.Setenv(builtIn, dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// builtUsher is the path of the real program, built once.
func builtUsher(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and starts real programs: run without -short")
	}
	path, err := theUsher()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var theUsher = sync.OnceValues(func() (string, error) {
	path := filepath.Join(os.Getenv(builtIn), "usher")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, "../../cmd/usher").CombinedOutput()
	if err != nil {
		return "", &exec.Error{Name: string(out), Err: err}
	}
	return path, nil
})

// shortTemp makes TMPDIR a directory whose sockets have short paths, and fails
// the test if anything is left in it, or runs from it, at the end.
func shortTemp(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "ub")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dir)
	t.Cleanup(func() {
		left, _ := filepath.Glob(dir + "/usher-bench-*")
		if len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
		own := processesOf(dir)
		for end := time.Now().Add(5 * time.Second); len(own) > 0 && time.Now().Before(end); own = processesOf(dir) {
			<-time.After(10 * time.Millisecond) // what was killed has its name for a moment yet
		}
		if len(own) > 0 {
			t.Errorf("still running: %v", own)
		}
		os.RemoveAll(dir)
	})
}

// processesOf are the command lines that name a directory.
func processesOf(dir string) (all []string) {
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err == nil && strings.Contains(string(text), dir) {
			all = append(all, strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
	return all
}
