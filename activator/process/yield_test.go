package process

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/usher-edge/usher/activator/cgroup"
)

func TestAProcessYieldsAtTheCPUFromItsFirstInstructionUntilItClaims(t *testing.T) {
	if _, err := os.Stat("/proc/self/autogroup"); err != nil {
		t.Skip("this kernel knows no autogroups")
	}
	g := onSessions(t)
	for _, yields := range []bool{true, false} {
		l := script(t, "cat /proc/self/autogroup; exec sleep 600")
		l.Yields = yields
		l.Group = cgroup.NewSession(nil)
		p, err := mustPrepare(t, g, l).Go(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { mustStop(t, p, l.Group, 0) })
		want := "nice 0"
		if yields {
			want = "nice 10"
		}
		eventually(t, "it has said what it is", func() bool {
			said, err := os.ReadFile(l.LogPath)
			return err == nil && strings.Contains(string(said), want)
		})
		if err := p.Claim(); err != nil {
			t.Fatal(err)
		}
		now, err := os.ReadFile("/proc/" + strconv.Itoa(p.Identity().PID) + "/autogroup")
		if err != nil || !strings.Contains(string(now), "nice 0") {
			t.Errorf("%q, %v", now, err)
		}
	}
}
