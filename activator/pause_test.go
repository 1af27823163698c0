package activator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestPauseParksAndResumeReleases(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		ctx := context.Background()
		op, err := r.act.Pause(ctx, Change{App: "hello"}, false)
		if err != nil {
			t.Fatal(err)
		}
		r.wantOp(op, OpDone)
		r.wantState("paused")
		got := make(chan error, 1)
		go func() {
			_, err := r.edge.get(ctx, "hello", 0)
			got <- err
		}()
		synctest.Wait()
		deploy := r.wantOp(r.deploy("v2 boot=3s"), OpCommitted)
		if !strings.Contains(deploy.Reason, "paused") {
			t.Errorf("reason %q", deploy.Reason)
		}
		r.restart() // a pause survives usher
		r.wantState("paused")
		if err := <-got; !errors.Is(err, errDead) {
			t.Errorf("the parked request got %v", err)
		}
		if op, err = r.act.Resume(ctx, Change{App: "hello"}); err != nil {
			t.Fatal(err)
		}
		op = r.wantOp(op, OpDone)
		r.get("v2")
		var steps []string
		for _, s := range op.Steps {
			steps = append(steps, s.Name)
		}
		if op.Revision != 2 || op.Generation == 0 || op.Digest == "" || len(steps) < 4 || !slices.Equal(steps[:4], []string{StepCommitted, StepStarting, StepHealthy, StepSwitched}) {
			t.Errorf("the resume was %+v, by steps %q", op, steps)
		}
	})
}

// What was committed during a pause ends the resume as it would have ended the deploy.
// Whoever calls a start off has been told; that it did not come to its end is no
// error of anything.
func TestAStartThatIsCalledOffIsNoError(t *testing.T) {
	inBubble(t, func(r *rig) {
		var log bytes.Buffer
		r.act.log = slog.New(slog.NewTextHandler(&log, nil))
		r.apply(r.app("v1"))
		r.get("v1")
		op := r.deploy("v2 stuck")
		settle(time.Second)
		r.wantOp(r.must(r.act.Pause(context.Background(), Change{App: "hello"}, false)), OpDone)
		r.wantOp(op, OpAbandoned)
		if text := log.String(); strings.Contains(text, "level=ERROR") || !strings.Contains(text, "called off") {
			t.Errorf("the log says\n%s", text)
		}
	})
}

// A resume of an app that is not paused follows what is under way, and does not say
// that there was a pause.
func TestAResumeWithoutAPauseSpeaksOfNone(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		settle(2 * time.Hour)
		r.wantState("asleep")
		r.deploy("v2 boot=5s")
		settle(time.Second)
		op := r.ended(r.must(r.act.Resume(context.Background(), Change{App: "hello"})))
		if op.State != OpDone || op.Revision != 2 {
			t.Errorf("the resume: %s, revision %d, want done with revision 2", op.State, op.Revision)
		}
		for _, s := range op.Steps {
			if strings.Contains(s.Detail, "pause") {
				t.Errorf("step %s says %q", s.Name, s.Detail)
			}
		}
	})
}

func TestAResumeEndsAsWhatWasCommittedDuringThePause(t *testing.T) {
	for name, c := range map[string]struct {
		during func(r *rig)
		after  func(r *rig)
		want   OpState
		serves string
	}{
		"nothing":        {during: func(*rig) {}, want: OpDone, serves: "v1"},
		"a sick build":   {during: func(r *rig) { r.deploy("v2 sick") }, want: OpFailed, serves: "v1"},
		"a failed build": {during: func(r *rig) { r.deploy("v2 exit=1s boot=5s") }, want: OpFailed, serves: "v1"},
		"two builds":     {during: func(r *rig) { r.deploy("v2"); r.deploy("v3 boot=2s") }, want: OpDone, serves: "v3"},
		"a restart":      {during: func(r *rig) { r.must(r.act.Restart(context.Background(), Change{App: "hello"}, false)) }, want: OpDone, serves: "v1"},
		"superseded": {
			during: func(r *rig) { r.deploy("v2 boot=5s") }, after: func(r *rig) { r.deploy("v3") },
			want: OpSuperseded, serves: "v3",
		},
		"paused again": {
			during: func(r *rig) { r.deploy("v2 boot=5s") },
			after: func(r *rig) {
				r.must(r.act.Pause(context.Background(), Change{App: "hello"}, false))
				settle(time.Second)
				r.must(r.act.Resume(context.Background(), Change{App: "hello"}))
			},
			want: OpAbandoned, serves: "v2",
		},
	} {
		for _, asleep := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, asleep %v", name, asleep), func(t *testing.T) {
				inBubble(t, func(r *rig) {
					r.apply(r.app("v1"))
					r.get("v1")
					settle(time.Second)
					if asleep {
						settle(2 * time.Hour)
						r.wantState("asleep")
					}
					r.wantOp(r.must(r.act.Pause(context.Background(), Change{App: "hello"}, false)), OpDone)
					c.during(r)
					settle(time.Second)
					op := r.must(r.act.Resume(context.Background(), Change{App: "hello"}))
					if c.after != nil {
						settle(time.Second)
						c.after(r)
					}
					r.wantOp(op, c.want)
					settle(10 * time.Second)
					r.get(c.serves)
				})
			})
		}
	}
}
