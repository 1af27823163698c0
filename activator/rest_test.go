package activator

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/usher-edge/usher/activator/store"
)

func (r *rig) rests(app string) (rests bool) {
	run := r.act.apps[app]
	run.box.call(func() {
		run.rest()
		rests = run.motion == nil
		run.stir()
	})
	return rests
}

func TestAnAppThatSleepsKeepsNoRecordAndStatusTellsAllTheSame(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1", func(a *App) { a.Policy.IdleTimeout = 10 * time.Minute }))
		r.get("v1")
		r.wantOp(r.deploy("v2"), OpDone)
		if r.rests("hello") {
			t.Fatal("an app that is awake rests")
		}
		settle(time.Minute)
		awake := r.wantState("awake")
		settle(time.Hour)
		asleep := r.wantState("asleep")
		if !r.rests("hello") {
			t.Error("an app that sleeps does not rest")
		}
		if !reflect.DeepEqual(awake.Last, asleep.Last) || asleep.Version != awake.Version || asleep.Build != awake.Build || asleep.Good != 2 {
			t.Errorf("awake it was %+v, asleep it is %+v", awake, asleep)
		}
		r.get("v2")
		op, err := r.act.Rollback(t.Context(), Change{App: "hello", IfVersion: r.status().Version}, 0, "")
		if err != nil {
			t.Fatal(err)
		}
		r.wantOp(op, OpDone)
		r.get("v1")
		r.restart()
		settle(time.Hour)
		if s := r.wantState("asleep"); s.Last.Cause != "release" || s.Last.Revision != 3 {
			t.Errorf("after a restart the last attempt is %+v", s.Last)
		}
	})
}

// unreadable is a store that cannot be read.
type unreadable struct{ store.Commits }

func (unreadable) Get(string) (store.App, error) { return store.App{}, errors.New("the disk is gone") }

func TestARecordThatCannotBeReadAgainIsAnErrorAndNoEmptyApp(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.wantState("asleep")
		commits := r.act.commits
		r.act.commits = unreadable{commits}
		if s, err := r.act.Status("hello"); err == nil {
			t.Errorf("status tells %+v", s)
		}
		if _, err := r.act.Rollback(t.Context(), Change{App: "hello"}, 0, ""); err == nil || errors.Is(err, ErrConflict) {
			t.Errorf("a rollback is refused with %v", err)
		}
		r.act.commits = commits
		r.get("v1")
		r.wantState("awake")
	})
}

func TestAStartOfManySleepingAppsIsNoNewsAndStagesWhatTheyShareOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		var apps []App
		shared := r.app("v1")
		for _, name := range []string{"a", "b", "c"} {
			shared.Name = name
			apps = append(apps, shared)
		}
		r.apply(apps...)
		if events, _ := r.act.Events(0, 0); len(events) != 0 {
			t.Errorf("apps that sleep are told of: %+v", events)
		}
		for _, a := range apps {
			if s, err := r.act.Status(a.Name); err != nil || s.State != "asleep" || s.Desired != 1 {
				t.Errorf("app %s: %+v, %v", a.Name, s, err)
			}
		}
	})
}

func TestBlocksOfNumbersGrow(t *testing.T) {
	var last, writes uint64
	n := &numbers{reserve: func(block uint64) (uint64, error) {
		first := last + 1
		last += block
		writes++
		return first, nil
	}}
	const many = 100_000
	for want := uint64(1); want <= many; want++ {
		if v, err := n.take(); err != nil || v != want {
			t.Fatalf("number %d, %v; want %d", v, err, want)
		}
	}
	if writes > 12 {
		t.Errorf("%d numbers took %d writes", many, writes)
	}
}

func TestAnAppThatWasWokenAndPutToSleepKeepsNothingThatTheRecordTells(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		settle(time.Second)
		awake := r.wantState("awake")
		op, err := r.act.Sleep(t.Context(), Change{App: "hello"}) // long before its idle time
		if err != nil {
			t.Fatal(err)
		}
		r.wantOp(op, OpDone)
		settle(time.Second)
		asleep := r.wantState("asleep")
		if !r.rests("hello") || r.act.apps["hello"].last != nil {
			t.Errorf("it holds %+v, and of its last attempt %+v", r.act.apps["hello"].motion, r.act.apps["hello"].last)
		}
		if asleep.Last.Attempt == 0 || !asleep.Last.At.Equal(awake.Last.At) || asleep.Last.Outcome != "done" {
			t.Errorf("awake its last attempt was %+v, asleep %+v", awake.Last, asleep.Last)
		}
	})
}

func TestAReloadLooksAtTheRecordsOfWhatChangedOnly(t *testing.T) {
	inBubble(t, func(r *rig) {
		apps := []App{r.app("v1"), r.app("v1"), r.app("v1")}
		apps[1].Name, apps[2].Name = "other", "third"
		r.apply(apps...)
		reload := func(when string, changed, looked []string) {
			t.Helper()
			ch := r.apply(apps...)
			r.w.mu.Lock()
			defer r.w.mu.Unlock()
			if !slices.Equal(ch.Changed, changed) || len(ch.Changed)+len(ch.Unchanged) != len(apps) || !slices.Equal(r.w.looked, looked) {
				t.Errorf("%s: changes %+v, looked at %q", when, ch, r.w.looked)
			}
		}
		reload("nothing changed", nil, nil)
		apps[1].Policy.IdleTimeout = time.Minute
		reload("a policy", []string{"other"}, []string{"other"})
		apps[2].Process.Env = map[string]string{"A": "b"}
		reload("a process", []string{"third"}, []string{"third"})
		settle(time.Minute)
		reload("after its outcome was recorded", nil, []string{"third"})
		r.get("v1")
		r.wantOp(r.deploy("v2"), OpDone)
		settle(time.Minute)
		reload("after a deploy", nil, []string{"hello"})
		reload("once more", nil, nil)
		apps[0].Artifact, apps[0].FileValue = r.shop.artifact(t, "v3"), "file:v3"
		reload("an artifact", []string{"hello"}, []string{"hello"})
		settle(time.Minute)
		r.get("v3")
	})
}
