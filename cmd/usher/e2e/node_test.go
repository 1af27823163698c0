package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestANodeAppRunsFromADirectoryAndIsSwapped(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not installed: apt-get install nodejs")
	}
	src := filepath.Join(theLab.root, "examples", "node")
	for _, listen := range []string{"port", "socket"} {
		u := start(t, options{apps: []app{{
			name: "node", artifact: src,
			lines: []string{`command = ["node", "server.js"]`, `listen = "` + listen + `"`},
		}}})
		if body := ok(t, u.get("node", "/")).body; body != "hello from node 1.0.0\n" {
			t.Fatalf("%s: it says %q", listen, body)
		}
		if os.Geteuid() == 0 {
			wantOwner(t, u.only("node"), "nobody")
		}
		next := scratch(t)
		for _, name := range []string{"server.js", "package.json"} {
			text := readFile(t, filepath.Join(src, name))
			write(t, filepath.Join(next, name), strings.Replace(text, `"1.0.0"`, `"2.0.0"`, 1), 0o644)
		}
		load := u.loadOf(plain(u, "node", "/"))
		u.deploy("node", next)
		if body := ok(t, u.get("node", "/")).body; body != "hello from node 2.0.0\n" {
			t.Errorf("%s: after the swap it says %q", listen, body)
		}
		lossless(t, load)
		body := strings.Repeat("a body of some size. ", 10_000)
		if a := ok(t, send(u.client, "POST", "node", "/echo", body)); a.body != body {
			t.Errorf("%s: an echo of %d bytes has %d", listen, len(body), len(a.body))
		}
	}
}
