package activator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/usher-edge/usher/activator/store"
)

func TestARepeatedRequestIDReturnsTheFirstOperation(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		id := func(d *DeployRequest) { d.RequestID = "abc" }
		first := r.deploy("v2", id)
		again := r.deploy("v2", id)
		if first.ID != again.ID {
			t.Errorf("operations %s and %s", first.ID, again.ID)
		}
		r.wantOp(first, OpDone)
		if later := r.deploy("v2", id); later.ID != first.ID || later.State != OpDone {
			t.Errorf("later %+v", later)
		}
		if s := r.status(); s.Desired != 2 {
			t.Errorf("desired %d", s.Desired)
		}
		if _, err := r.act.Restart(context.Background(), Change{App: "hello", RequestID: "abc"}, false); !errors.Is(err, ErrConflict) {
			t.Errorf("a restart with the request id of a deploy: %v", err)
		}
	})
}

func TestAChangeOfAnOldVersionIsRefused(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		v := r.status().Version
		r.wantOp(r.deploy("v2", func(d *DeployRequest) { d.IfVersion = v }), OpDone)
		req := DeployRequest{Change: Change{App: "hello", IfVersion: v}, Digest: r.build("v3")}
		if _, err := r.act.Deploy(context.Background(), req); !errors.Is(err, ErrVersion) {
			t.Errorf("deploy: %v", err)
		}
		if _, err := r.act.Pause(context.Background(), Change{App: "hello", IfVersion: v}, false); !errors.Is(err, ErrVersion) {
			t.Errorf("pause: %v", err)
		}
		ops, err := r.act.Operations("hello")
		if err != nil || len(ops) != 1 {
			t.Errorf("refused changes left operations: %+v (%v)", ops, err)
		}
	})
}

func TestEveryOperationEndsOnceInTheEvents(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		ctx, c := context.Background(), Change{App: "hello"}
		var ops []Operation
		add := func(op Operation, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			ops = append(ops, op)
			settle(30 * time.Millisecond)
		}
		for i := range 4 {
			ops = append(ops, r.deploy(fmt.Sprintf("v%d boot=50ms", i+2)))
			settle(30 * time.Millisecond)
		}
		add(r.act.Restart(ctx, c, false))
		add(r.act.Pause(ctx, c, false))
		add(r.act.Restart(ctx, c, false))
		add(r.act.Resume(ctx, c))
		settle(time.Minute)
		add(r.act.Rollback(ctx, c, 2, "me"))
		settle(time.Minute)
		add(r.act.Sleep(ctx, c))
		settle(time.Minute)
		add(r.act.Wake(ctx, c))
		settle(time.Minute)
		add(r.act.Remove(ctx, c))
		settle(time.Minute)
		for _, op := range ops {
			if o := r.ended(op); o.EndedAt.IsZero() || o.Draining {
				t.Errorf("%s: %+v", o.Kind, o)
			}
		}
		ends := map[string]int{}
		events, _ := r.act.Events(0, 0)
		for _, e := range events {
			for _, st := range []OpState{OpDone, OpCommitted, OpFailed, OpAbandoned, OpSuperseded, OpDown} {
				if e.Kind == "operation" && endText(e, st) {
					ends[string(e.Data)]++
				}
			}
		}
		if len(ends) != len(ops) {
			t.Errorf("%d operations ended in the events, want %d", len(ends), len(ops))
		}
		for op, n := range ends {
			if n != 1 {
				t.Errorf("%s ended %d times", op, n)
			}
		}
	})
}

// endText says that an event tells of an end: "deploy: done", perhaps with why.
func endText(e store.Event, st OpState) bool {
	for _, kind := range []string{KindDeploy, KindRollback, KindRestart, KindWake, KindSleep, KindPause, KindResume, KindRemove} {
		end := kind + ": " + string(st)
		if e.Text == end || len(e.Text) > len(end) && e.Text[:len(end)] == end && (e.Text[len(end)] == ' ' || e.Text[len(end)] == ',') {
			return e.Text != kind+": committed restart" && !isCommitStep(e.Text, kind)
		}
	}
	return false
}

// isCommitStep tells the step "committed" from the end of that name.
func isCommitStep(text, kind string) bool {
	return text == kind+": committed" || len(text) > len(kind)+20 && text[:len(kind)+20] == kind+": committed revision"
}

func TestSleepAndWakeAsOperations(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1 last=2s"))
		ctx, c := context.Background(), Change{App: "hello"}
		op, err := r.act.Wake(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		r.wantOp(op, OpDone)
		r.wantState("awake")
		go r.edge.get(ctx, "hello", 10*time.Second)
		synctest.Wait()
		if _, err := r.act.Sleep(ctx, c); !errors.Is(err, ErrConflict) {
			t.Errorf("sleep of a busy app: %v", err)
		}
		settle(11 * time.Second)
		if op, err = r.act.Sleep(ctx, c); err != nil {
			t.Fatal(err)
		}
		if op.State != OpRunning {
			t.Errorf("sleep is %s before the process has ended", op.State)
		}
		r.wantOp(op, OpDone)
		if n := r.w.running(); n != 0 {
			t.Errorf("%d processes", n)
		}
	})
}

func TestASleepThatIsRefusedIsNotToldOf(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		ctx, c := context.Background(), Change{App: "hello"}
		op, err := r.act.Pause(ctx, c, false)
		if err != nil {
			t.Fatal(err)
		}
		r.wantOp(op, OpDone)
		before, _ := r.act.Events(0, 0)
		if _, err := r.act.Sleep(ctx, c); !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "usher resume hello") {
			t.Errorf("sleep of a paused app: %v", err)
		}
		if after, _ := r.act.Events(0, 0); len(after) != len(before) {
			t.Errorf("events tell of it: %+v", after[len(before):])
		}
	})
}

func TestRollbackIsANewRevisionWithTheOlderBuild(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		c := Change{App: "hello"}
		if _, err := r.act.Rollback(context.Background(), c, 0, ""); !errors.Is(err, ErrConflict) {
			t.Errorf("rollback with nothing to go back to: %v", err)
		}
		r.wantOp(r.deploy("v2"), OpDone)
		op, err := r.act.Rollback(context.Background(), c, 0, "")
		if err != nil {
			t.Fatal(err)
		}
		op = r.wantOp(op, OpDone)
		if op.Revision != 3 {
			t.Errorf("revision %d", op.Revision)
		}
		r.get("v1")
		if _, err := r.act.Rollback(context.Background(), c, 77, ""); !errors.Is(err, ErrNotFound) || errors.Is(err, ErrNoApp) {
			t.Errorf("rollback to what never was: %v", err)
		}
	})
}

// What the one who rolls back wants is what worked: not the deploy before the last
// that did not work either, and was perhaps superseded before that could be known.
func TestARollbackGoesBackToWhatHasServed(t *testing.T) {
	inBubble(t, func(r *rig) {
		back := func(build string, to uint64) {
			t.Helper()
			op, err := r.act.Rollback(context.Background(), Change{App: "hello"}, to, "")
			if err != nil {
				t.Fatal(err)
			}
			r.wantOp(op, OpDone)
			r.get(build)
		}
		r.apply(r.app("v1"))
		r.get("v1")
		r.wantOp(r.deploy("v2"), OpDone)
		r.wantOp(r.deploy("bad1 boot=1s exit=10ms"), OpFailed)
		superseded := r.deploy("bad2 boot=1s hang")
		r.wantOp(r.deploy("bad3 noexec"), OpFailed)
		r.wantOp(superseded, OpSuperseded)
		back("v2", 0)
		r.restart() // what has served is durable
		r.wantOp(r.deploy("bad4 boot=1s exit=10ms"), OpFailed)
		r.wantOp(r.deploy("v3"), OpDone)
		back("v2", 0)
		back("v1", 1)
	})
}

// Where nothing else has served, as before the first request of a new app, there is
// still what came before.
func TestARollbackGoesBackToWhatWasNeverTried(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.wantOp(r.deploy("v2"), OpDone)
		op, err := r.act.Rollback(context.Background(), Change{App: "hello"}, 0, "")
		if err != nil {
			t.Fatal(err)
		}
		r.wantOp(op, OpDone)
		r.get("v1")
	})
}

// A build that has failed and never served is nothing to go back to, least of all for an
// app that serves and would be stopped for it.
func TestARollbackDoesNotGoBackToWhatHasOnlyFailed(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*App)
	}{{"hold", hold}, {"overlap", func(*App) {}}} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.apply(r.app("v1 sick", c.change))
				if _, err := r.edge.get(context.Background(), "hello", 0); err == nil {
					t.Fatal("a sick build serves")
				}
				r.wantOp(r.deploy("v2"), OpDone)
				r.get("v2")
				if _, err := r.act.Rollback(context.Background(), Change{App: "hello"}, 0, ""); !errors.Is(err, ErrConflict) {
					t.Errorf("rolled back to a build that has only failed: %v", err)
				}
				r.get("v2")
			})
		})
	}
}

// A rollback is about the build: the file owns the spec, and had it not been taken
// from there the next reload, or start of usher, would move the app once more.
func TestARollbackHasTheSpecOfTheFile(t *testing.T) {
	inBubble(t, func(r *rig) {
		a := r.app("v1")
		r.apply(a)
		r.get("v1")
		a.Process.Env = map[string]string{"GREETING": "hi"}
		r.apply(a)
		settle(time.Minute)
		r.wantOp(r.deploy("v2"), OpDone)
		op, err := r.act.Rollback(context.Background(), Change{App: "hello"}, 1, "")
		if err != nil {
			t.Fatal(err)
		}
		op = r.wantOp(op, OpDone)
		r.get("v1")
		rec, err := r.w.state.Get("hello")
		if err != nil {
			t.Fatal(err)
		}
		rel, _ := rec.Release(rec.Desired)
		if p, err := decodeProcess(rel.Spec); err != nil || p.Env["GREETING"] != "hi" {
			t.Errorf("it was rolled back to the environment %v (%v)", p.Env, err)
		}
		if ch := r.apply(a); len(ch.Unchanged) != 1 {
			t.Errorf("a reload of the same file: %+v", ch)
		}
		r.restart()
		settle(time.Minute)
		if s := r.status(); s.Desired != 4 || s.Generation != op.Generation {
			t.Errorf("desired %d, generation %d after a restart with the same file", s.Desired, s.Generation)
		}
	})
}

func TestARollbackStaysWithinTheKindThatTheFileNames(t *testing.T) {
	inBubble(t, func(r *rig) {
		ctx, c := context.Background(), Change{App: "hello"}
		a := r.app("")
		toTarget(&a)
		r.w.target(storyTarget, "t1")
		r.apply(a)
		r.wantState("awake")
		r.apply(r.app("v1"))
		settle(time.Minute)
		r.get("v1")
		for _, to := range []uint64{0, 1} {
			if _, err := r.act.Rollback(ctx, c, to, ""); !errors.Is(err, ErrConflict) {
				t.Errorf("rollback of a process to %d, when it was a target: %v", to, err)
			}
		}
		r.wantOp(r.deploy("v2"), OpDone)
		op, err := r.act.Rollback(ctx, c, 0, "")
		if err != nil {
			t.Fatal(err)
		}
		r.wantOp(op, OpDone)
		r.get("v1")
	})
}

func TestTheBuildThatARollbackGoesBackToIsKept(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		r.wantOp(r.deploy("v2"), OpDone)
		for i := range 2 * keptBuilds { // as if of other apps
			settle(time.Second)
			r.shop.depot.Unpin(r.build(fmt.Sprint("other", i)))
		}
		r.apply(r.apps...) // which cleans up
		op, err := r.act.Rollback(context.Background(), Change{App: "hello"}, 0, "")
		if err != nil {
			t.Fatal(err)
		}
		r.wantOp(op, OpDone)
		r.get("v1")
	})
}

func TestTheFileMakesARevisionOnlyWhenItsValueChanges(t *testing.T) {
	inBubble(t, func(r *rig) {
		a := r.app("v1")
		r.apply(a)
		r.get("v1")
		r.wantOp(r.deploy("v2"), OpDone)
		if ch := r.apply(a); len(ch.Unchanged) != 1 {
			t.Errorf("changes %+v", ch)
		}
		settle(time.Minute)
		r.get("v2") // the file did not change, the deploy stands
		a.Process.Env = map[string]string{"GREETING": "hi"}
		if ch := r.apply(a); len(ch.Changed) != 1 {
			t.Errorf("changes %+v", ch)
		}
		settle(time.Minute)
		r.get("v2")
		if s := r.status(); s.Desired != 3 || s.Revision != 3 {
			t.Errorf("a changed environment made desired %d, serving %d", s.Desired, s.Revision)
		}
		b := r.app("v4")
		r.apply(b)
		settle(time.Minute)
		r.get("v4")
		r.restart()
		if s := r.status(); s.Desired != 4 {
			t.Errorf("desired %d after a restart with the same file", s.Desired)
		}
	})
}

func TestBadRequestsAreRefusedWithoutATrace(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("", hold))
		ctx, c := context.Background(), Change{App: "hello"}
		version := r.status().Version
		digest := r.build("v1")
		for name, req := range map[string]DeployRequest{
			"nothing":     {Change: c},
			"both":        {Change: c, Digest: digest, Target: "127.0.0.1:1"},
			"no digest":   {Change: c, Digest: "sha256:abcd"},
			"bad mode":    {Change: c, Digest: digest, Mode: "fast"},
			"bad target":  {Change: c, Target: "nowhere"},
			"held target": {Change: c, Target: "127.0.0.1:1", Mode: "hold"},
		} {
			_, err := r.act.Deploy(ctx, req)
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		_, err := r.act.Deploy(ctx, DeployRequest{Change: c, Digest: "sha256:" + hex64})
		if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "deploy the artifact itself") {
			t.Errorf("unknown digest: %v", err)
		}
		for name, req := range map[string]DeployRequest{
			"overlap of a hold app": {Change: c, Digest: digest, Mode: "overlap"},
			"a target for a build":  {Change: c, Target: "127.0.0.1:1"},
		} {
			if _, err := r.act.Deploy(ctx, req); !errors.Is(err, ErrConflict) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := r.act.Restart(ctx, c, false); !errors.Is(err, ErrConflict) {
			t.Errorf("restart without a release: %v", err)
		}
		if _, err := r.act.Wake(ctx, c); !errors.Is(err, ErrConflict) {
			t.Errorf("wake without a release: %v", err)
		}
		if _, err := r.act.Wake(ctx, Change{App: "other"}); !errors.Is(err, ErrNotFound) {
			t.Errorf("wake of an unknown app: %v", err)
		}
		if s := r.wantState("empty"); s.Version != version {
			t.Errorf("version went from %d to %d", version, s.Version)
		}
	})
}

const hex64 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// What a person reads says what is the matter; the kind is for whoever branches on
// it.
func TestARefusalDoesNotBeginWithItsKind(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		ctx, c := context.Background(), Change{App: "hello"}
		for _, x := range []struct {
			kind error
			do   func() error
		}{
			{ErrNoApp, func() error { _, err := r.act.Wake(ctx, Change{App: "nobody"}); return err }},
			{ErrConflict, func() error { _, err := r.act.Rollback(ctx, c, 0, ""); return err }},
			{ErrNotFound, func() error { _, err := r.act.Rollback(ctx, c, 9, ""); return err }},
			{ErrInvalid, func() error { _, err := r.act.Deploy(ctx, DeployRequest{Change: c}); return err }},
			{ErrInvalid, func() error {
				_, err := r.act.Deploy(ctx, DeployRequest{Change: c, Digest: "sha256:none"})
				return err
			}},
			{ErrVersion, func() error {
				_, err := r.act.Pause(ctx, Change{App: "hello", IfVersion: 99}, false)
				return err
			}},
		} {
			err := x.do()
			if !errors.Is(err, x.kind) || strings.Contains(err.Error(), x.kind.Error()) {
				t.Errorf("%v is to be of the kind %q and not to say so", err, x.kind)
			}
		}
	})
}
