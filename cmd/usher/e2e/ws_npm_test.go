package e2e

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/usher-edge/usher/admin"
)

// wsPackage is the client of most of the JavaScript world.
const wsPackage = "ws@8.18.3"

// nodeWS returns node and a directory with the package ws.
func nodeWS(t *testing.T) (node, dir string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed: apt-get install nodejs")
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("npm is not installed: apt-get install npm")
	}
	dir = scratch(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "install", "--prefix", dir, "--no-audit", "--no-fund", "--ignore-scripts", wsPackage)
	if out, err := cmd.CombinedOutput(); err != nil {
		give := t.Skipf
		if os.Getenv("CI") != "" { // there it is what should be tested that is missing
			give = t.Fatalf
		}
		give("npm install %s: %v: %s", wsPackage, err, bytes.TrimSpace(out))
	}
	return node, dir
}

// A client that is no Go program: it echoes on through an overlap swap until the
// drain comes to its end, and is then told to come back.
func TestTheWSPackageEchoesThroughAnOverlapSwap(t *testing.T) {
	t.Parallel()
	node, modules := nodeWS(t)
	u := start(t, options{apps: []app{{lines: []string{`drain_timeout = "6s"`, `close_spread = "1s"`}}}})
	ok(t, u.get("hello", "/"))

	cmd := exec.Command(node, filepath.Join("testdata", "ws", "client.js"), u.listen, "hello.localhost")
	cmd.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(modules, "node_modules"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	defer func() {
		_ = cmd.Process.Kill() // mostly it has ended
		for range lines {
		}
		_ = cmd.Wait() // what it had to say has been read
	}()
	wantEchoes := func(n int, when string) {
		t.Helper()
		for range n {
			if line := within(t, lines, 20*time.Second); !strings.HasPrefix(line, "echo ") {
				t.Fatalf("%s the client says %q%s", when, line, &complaint)
			}
		}
	}

	wantEchoes(10, "before the swap")
	begun := time.Now()
	if g := roles(u.deploy("hello", hello(t, "v2")))["retiring"]; g != 1 {
		t.Fatalf("%d generations retire, want 1", g)
	}
	wantEchoes(20, "while it drains")
	last := ""
	for last = within(t, lines, 20*time.Second); strings.HasPrefix(last, "echo "); {
		last = within(t, lines, 20*time.Second)
	}
	if took := time.Since(begun); took < 5*time.Second {
		t.Errorf("closed %s after the swap began, with a drain of 6s and a spread of 1s", took)
	}
	if last != "closed 1012" {
		t.Errorf("at the end of the drain the client says %q%s", last, &complaint)
	}
	u.awaitStatus("hello", 10*time.Second, "rid of the old one", func(s admin.AppStatus) bool { return len(s.Generations) == 1 })
}

// within returns the next line, "" at the end of all.
func within(t *testing.T, lines <-chan string, limit time.Duration) string {
	t.Helper()
	select {
	case line := <-lines:
		return line
	case <-time.After(limit):
		t.Fatalf("no word within %s", limit)
		return ""
	}
}
