package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/usher-edge/usher/cmd/internal/config"
)

// validate runs usher validate over a file with this text.
func validate(t *testing.T, text string, flags ...string) (path string, code int, stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	path = filepath.Join(dir, "usher.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env := func() config.Env {
		e := config.System()
		e.EUID, e.EGID, e.XDGStateHome, e.XDGRuntimeDir = 1000, 1000, dir, filepath.Join(dir, "run")
		e.LookupUser = func(string) (config.Account, error) { return config.Account{Name: "me", UID: 1000, GID: 1000}, nil }
		return e
	}
	var out, errs bytes.Buffer
	w := world{stdout: &out, stderr: &errs, uid: 1000, getenv: func(string) string { return "" }}
	code = run(t.Context(), newRoot(w, validateCommand(w, env)), append([]string{"validate", "--config", path}, flags...))
	return path, code, out.String(), errs.String()
}

const validFile = `[server]
listen = ["127.0.0.1:8080"]
[apps.api]
hosts = ["api.localhost"]
target = "127.0.0.1:3000"
`

func TestAValidFileIsOK(t *testing.T) {
	path, code, out, errs := validate(t, validFile)
	if code != exitOK || out != path+": ok (1 app)\n" || errs != "" {
		t.Errorf("exit %d, stdout %q, stderr %q", code, out, errs)
	}
}

func TestEveryProblemOfAFileIsShownWithItsPlace(t *testing.T) {
	path, code, out, errs := validate(t, strings.Replace(validFile, "hosts", "park_timeout = \"soon\"\ncolour = 1\nhosts", 1))
	lines := strings.Split(strings.TrimSuffix(errs, "\n"), "\n")
	if code != exitConfig || out != "" || len(lines) != 3 {
		t.Fatalf("exit %d, stdout %q, stderr %q", code, out, errs)
	}
	for i, want := range []string{"usher: " + path + ": 2 problems", path + ":4:16: ", path + ":5:1: "} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d: %s, want %s", i, lines[i], want)
		}
	}
}

func TestWarningsAreShownAndLeaveAFileValid(t *testing.T) {
	text := validFile + "[apps.api.health]\ntimeout = \"10m\"\n"
	text = strings.Replace(text, "target = \"127.0.0.1:3000\"", "swap = \"hold\"\nsingle_writer = \"best-effort\"\npark_timeout = \"1s\"", 1)
	path, code, out, errs := validate(t, text)
	if code != exitOK || out != path+": ok (1 app)\n" || !strings.HasPrefix(errs, "warning: "+path+":") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, out, errs)
	}
	_, code, out, errs = validate(t, text, "--json")
	var v validation
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != exitOK || errs != "" {
		t.Fatalf("%v: exit %d, stdout %q, stderr %q", err, code, out, errs)
	}
	if !v.Valid || v.Apps != 1 || len(v.Problems) != 0 || len(v.Warnings) == 0 || v.Warnings[0].Line == 0 {
		t.Errorf("got %+v", v)
	}
}

func TestProblemsAsJSONAreOnStdoutOnly(t *testing.T) {
	path, code, out, errs := validate(t, validFile+"colour = 1\n", "--json")
	var v validation
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != exitConfig || errs != "usher: "+path+": 1 problem\n" {
		t.Fatalf("%v: exit %d, stdout %q, stderr %q", err, code, out, errs)
	}
	if v.Valid || v.File != path || len(v.Problems) != 1 || v.Problems[0].Line != 6 || v.Problems[0].Column != 1 || v.Problems[0].File != path {
		t.Errorf("got %+v", v)
	}
	if !strings.Contains(out, `"warnings": []`) {
		t.Errorf("no empty list: %s", out)
	}
}

func TestAFileThatIsNotThereIsAProblem(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "gone.toml")
	_, code, _, errs := validate(t, "", "--config", gone)
	if code != exitConfig || !strings.Contains(errs, gone+": there is no such file") {
		t.Errorf("exit %d, stderr %q", code, errs)
	}
}

func TestValidateTakesNoArguments(t *testing.T) {
	if _, code, _, errs := validate(t, validFile, "usher.toml"); code != exitUsage || !strings.Contains(errs, "validate takes the file as a flag: --config usher.toml") {
		t.Errorf("exit %d, stderr %q", code, errs)
	}
}

func TestAnErrorThatIsNoProblemKeepsItsCode(t *testing.T) {
	other := errors.New("disk on fire")
	if err := invalid("x", other, true); !errors.Is(err, other) || exitCode(err) != exitFailed {
		t.Error(err)
	}
}
