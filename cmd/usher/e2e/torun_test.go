package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/admin"
)

// A build without the file that `command` names is the build's own fault: deploy says
// which file, the build that serves serves on, and nothing is tried again.
func TestADeployOfABuildWithoutItsCommandFailsAndSaysWhatToDo(t *testing.T) {
	t.Parallel()
	whole := filepath.Join(t.TempDir(), "whole")
	program, err := os.ReadFile(hello(t, "v1"))
	if err != nil {
		t.Fatal(err)
	}
	files(t, whole, map[string]os.FileMode{"server": 0o755}, program)
	u := start(t, options{apps: []app{{artifact: whole, lines: []string{`command = ["./server"]`}}}})
	ok(t, u.get("hello", "/"))
	for _, c := range []struct {
		name, reason string
		modes        map[string]os.FileMode
	}{
		{"missing", "not found; check `command` in the app's spec against the files of the build", map[string]os.FileMode{"readme": 0o644}},
		{"plain", "it is not executable; run chmod +x on it and deploy again", map[string]os.FileMode{"server": 0o644}},
	} {
		dir := filepath.Join(t.TempDir(), c.name)
		files(t, dir, c.modes, program)
		res := u.cli("deploy", "hello", dir)
		if res.code != 1 || !strings.Contains(res.stderr, "/server: "+c.reason) {
			t.Errorf("%s: exit %d, %s", c.name, res.code, res.stderr)
		}
		s := u.awaitState("hello", admin.Awake, 10*time.Second)
		if o := s.LastOutcome; o == nil || o.Outcome != "failed" || o.Executed {
			t.Errorf("%s: last outcome %+v", c.name, o)
		}
		ok(t, u.get("hello", "/"))
	}
}

// files makes a directory with files of these modes, all with the same content.
func files(t *testing.T, dir string, modes map[string]os.FileMode, content []byte) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, mode := range modes {
		if err := os.WriteFile(filepath.Join(dir, name), content, mode); err != nil {
			t.Fatal(err)
		}
	}
}
