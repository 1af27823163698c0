package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestScriptedPeers runs the scripts in testdata/varnishtest: each plays a
// client and an app against the real usher. In a script ${usher} is where usher
// listens, ${host} the host of the script's app and ${origin} the socket that
// its app must listen on.
func TestScriptedPeers(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("varnishtest")
	if err != nil {
		t.Skip("varnishtest is not installed: apt-get install varnish")
	}
	scripts, err := filepath.Glob("testdata/varnishtest/*.vtc")
	if err != nil || len(scripts) < 20 {
		t.Fatalf("%d scripts: %v", len(scripts), err)
	}
	u := prepare(t, options{})
	origin := func(i int) string { return filepath.Join(u.dir, fmt.Sprintf("%d.sock", i)) }
	var b strings.Builder
	fmt.Fprintf(&b, "[server]\nlisten = [%q]\nadmin = %q\nstate = %q\nrun = %q\n", u.listen, "unix:"+u.admin, u.state(), u.run())
	for i := range scripts {
		fmt.Fprintf(&b, "[apps.app%d]\nhosts = [\"app%d.localhost\"]\ntarget = %q\n[apps.app%d.cache]\nenabled = true\n", i, i, "unix:"+origin(i), i)
	}
	u.writeConfig(b.String())
	u.begin()
	for i, script := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(script), ".vtc"), func(t *testing.T) {
			cmd := exec.Command(program, "-v", "-b", "8M", "-t", "30", "-D", "usher="+u.listen,
				"-D", fmt.Sprintf("host=app%d.localhost", i), "-D", "origin="+origin(i), script)
			cmd.Env = append(cmd.Environ(), "TMPDIR="+u.dir)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", script, err, out)
			}
		})
	}
}
