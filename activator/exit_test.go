package activator

import (
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/activator/cgroup"
)

func TestAnExitSaysWhatTheKernelKilledAndNothingElseWhereItKilledNothing(t *testing.T) {
	over := cgroup.OOM{Kills: 1, Limit: 64 * mib}
	for _, c := range []struct {
		exit Exit
		want string
	}{
		{Exit{Code: 3}, "exit status 3"},
		{Exit{Signal: "killed"}, "signal: killed"},
		{Exit{Unknown: true}, "exit status unknown"},
		{Exit{Signal: "killed", OOM: over}, "killed by the kernel: out of memory (limit 64 MiB)"},
		{Exit{Signal: "killed", OOM: cgroup.OOM{Kills: 2}}, "killed by the kernel: out of memory (not for a limit of the app)"},
		{Exit{Code: 1, OOM: over}, "exit status 1; the kernel killed a process of it: out of memory (limit 64 MiB)"},
		{Exit{Signal: "terminated", OOM: cgroup.OOM{Kills: 3, Limit: mib}}, "signal: terminated; the kernel killed 3 processes of it: out of memory (limit 1 MiB)"},
		{Exit{Unknown: true, OOM: over}, "exit status unknown; the kernel killed a process of it: out of memory (limit 64 MiB)"},
	} {
		if got := c.exit.String(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.exit, got, c.want)
		}
	}
}

// wantKills says how often events told of kills for want of memory, and how many
// there were in all.
func (r *rig) wantKills(events int, kills uint64) {
	r.t.Helper()
	all, _ := r.act.Events(0, 10_000)
	told := 0
	for _, e := range all {
		if e.Kind == "oom" && strings.Contains(e.Text, "out of memory (limit 100 MiB)") {
			told++
		}
	}
	totals, err := r.act.Totals("hello")
	if err != nil || told != events || totals.OOMKills != kills {
		r.t.Errorf("%d events and %d kills, want %d and %d (%v)\n%s", told, totals.OOMKills, events, kills, err, r.history())
	}
}

const outOfMemory = "killed by the kernel: out of memory (limit 100 MiB)"

func TestABuildThatDiesForWantOfMemorySaysSo(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1", limited(100*mib)))
		r.get("v1")
		op := r.wantOp(r.deploy("v2 boot=10s oom=2s"), OpFailed)
		if op.Reason != "the process ended before it was healthy: "+outOfMemory || op.Exit == nil || op.Exit.OOM.Kills != 1 {
			t.Errorf("the operation says %q, %+v", op.Reason, op.Exit)
		}
		if s := r.status(); s.LastExit == nil || s.LastExit.String() != outOfMemory || s.Last.Reason != op.Reason {
			t.Errorf("status says %+v, %q", s.LastExit, s.Last.Reason)
		}
		settle(time.Second)
		r.wantKills(1, 1)
		r.get("v1")
	})
}

func TestACheckThatFailsTellsOfTheWorkersThatDiedForWantOfMemory(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1", limited(100*mib)))
		r.get("v1")
		op := r.wantOp(r.deploy("v2 sick worker=1s"), OpFailed)
		if !strings.HasPrefix(op.Reason, "not healthy within") || !strings.HasSuffix(op.Reason, "; the kernel killed a process of it: out of memory (limit 100 MiB)") {
			t.Errorf("the operation says %q", op.Reason)
		}
		settle(time.Minute)
		r.wantKills(1, 1)
	})
}

func TestACrashForWantOfMemoryIsToldAndTheNextRequestWakesTheApp(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1 oom=5s", limited(100*mib)))
		r.get("v1")
		settle(6 * time.Second)
		if s := r.status(); s.LastExit == nil || s.LastExit.String() != outOfMemory {
			t.Errorf("status says %+v", s.LastExit)
		}
		r.wantKills(1, 1)
		r.get("v1")
		settle(6 * time.Second)
		r.wantKills(2, 2)
		settle(time.Second)
		if s := r.status(); s.State != "down" || !strings.Contains(s.Reason, outOfMemory) {
			t.Errorf("it is %s: %q", s.State, s.Reason)
		}
	})
}

func TestWorkersThatDiedForWantOfMemoryAreToldWhenTheirMainProcessEnds(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1 worker=5s", limited(100*mib)))
		r.get("v1")
		settle(6 * time.Second)
		r.wantKills(0, 0)
		r.wantOp(r.deploy("v2"), OpDone)
		settle(time.Minute)
		r.wantKills(1, 1)
		if s := r.status(); s.LastExit != nil {
			t.Errorf("a swap that was done tells of an exit: %+v", s.LastExit)
		}
	})
}
