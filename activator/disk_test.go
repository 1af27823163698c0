package activator

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/usher-edge/usher/activator/store"
)

// A disk fails at every write of every story: once, once after the write has
// taken place all the same, or from there on until it is mended.
func TestAnyWriteMayFailAndNothingIsLost(t *testing.T) {
	total := 0
	for name, x := range map[string]badDisk{"once": {}, "after it took place": {late: true}, "from there on": {full: true}} {
		t.Run(name, func(t *testing.T) {
			for _, s := range stories() {
				t.Run(s.name, func(t *testing.T) {
					shop := newShop(t)
					n := 0
					for fired := true; fired && !t.Failed(); {
						n++
						fired = badDisk{shop: shop, story: s, late: x.late, full: x.full, at: n}.run(t)
					}
					total += n - 1
					t.Logf("%d writes", n-1)
				})
			}
		})
	}
	t.Logf("%d writes failed", total)
}

// badDisk is a disk that fails at the at-th write of a story.
type badDisk struct {
	shop       *shop
	story      story
	late, full bool
	at         int
}

// run plays the story; false if it has fewer writes.
func (b badDisk) run(t *testing.T) (fired bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := b.shop.rig(t)
		defer r.close()
		r.crash()
		x := &faults{late: b.late, full: b.full}
		r.w.mem.Fail, r.w.runs.Fail = x.fail, x.fail
		r.start(0)
		b.story.begin(r)
		x.start(b.at, x.late)
		r.badDisk.Store(true)
		b.story.tell(r)
		if b.at%2 == 0 && x.full { // every other one meets a start, too
			r.restartOnAFullDisk()
		}
		if fired = x.fired(); !fired {
			return
		}
		x.mend()
		r.badDisk.Store(false)
		lives := r.history()
		if b.story.then != nil {
			r.apps = b.story.then
		}
		r.apply(r.apps...) // the file as it is, for a first one that failed
		settle(2 * time.Minute)
		r.slept = true
		r.checkSlot()
		r.liftIfDown()
		if r.checkRecovered(b.story); t.Failed() {
			t.Logf("%s, the disk fails at write %d:\n%s, mended:\n%s", b.story.name, b.at, lives, r.history())
		}
	})
	return fired
}

// restartOnAFullDisk: what serves is adopted, though nothing can be written.
func (r *rig) restartOnAFullDisk() {
	r.t.Helper()
	r.crash()
	promised := r.promised()
	r.start(0)
	if _, err := r.act.Apply(context.Background(), r.apps); err != nil && !errors.Is(err, errDisk) {
		r.t.Errorf("apply on a full disk: %v", err)
	} else if err == nil {
		r.checkAdopted(promised)
	}
	settle(30 * time.Second)
	if promised != 0 {
		r.checkSlot()
	}
}

// checkSlot: what the edge sends requests to is there to take them.
func (r *rig) checkSlot() {
	r.t.Helper()
	if p := r.w.placement("hello"); p.Generation != 0 {
		if pr := r.w.byAddress(p.Address); pr == nil || pr.gen != 0 && pr.gen != p.Generation {
			r.t.Errorf("the slot names generation %d at %s, where it does not listen", p.Generation, p.Address)
		}
	}
}

// liftIfDown does what status tells the owner of an app that is held down.
func (r *rig) liftIfDown() {
	r.t.Helper()
	if len(r.apps) == 0 {
		return
	}
	if s := r.status(); s.State != "down" || !s.NextRetry.IsZero() {
		return
	}
	rec, err := r.w.state.Get("hello")
	if err != nil {
		r.t.Fatal(err)
	}
	op := r.ended(r.must(r.act.Restart(context.Background(), Change{App: "hello"}, true)))
	if rel, ok := rec.Release(rec.Desired); ok && rel.Kind == store.KindArtifact && op.State != OpDone && !r.w.faulty(&rec, rec.Desired) {
		r.t.Errorf("the retry of a good build is %s: %s", op.State, op.Reason)
	}
	settle(time.Minute)
}

// A reload that changes several apps changes all of them or none, whatever write
// fails and whether or not it has taken place.
func TestAReloadIsCommittedForAllAppsOrForNone(t *testing.T) {
	for _, late := range []bool{false, true} {
		fired := true
		for n := 1; fired && !t.Failed(); n++ {
			withFaults(t, func(r *rig, x *faults) {
				x.late = late
				fired = r.reloadWithFault(x, n)
			})
		}
	}
}

func (r *rig) reloadWithFault(x *faults, n int) (fired bool) {
	r.t.Helper()
	names := []string{"hello", "other", "third"}
	file := func(script string, idle time.Duration) (apps []App) {
		for _, name := range names {
			a := r.app(script)
			a.Name, a.Policy.IdleTimeout = name, idle
			apps = append(apps, a)
		}
		return apps
	}
	r.apply(file("v1", time.Hour)...)
	r.get("v1")
	settle(time.Second)
	x.start(n, x.late)
	_, err := r.act.Apply(context.Background(), file("v2", 2*time.Hour))
	fired = x.fired()
	settle(5 * time.Second)
	x.mend()
	if !fired {
		return false
	}
	settle(time.Minute)
	moved := map[uint64]int{}
	idle := map[time.Duration]int{}
	for _, name := range names {
		rec, gerr := r.w.state.Get(name)
		s, serr := r.act.Status(name)
		if gerr != nil || serr != nil {
			r.t.Fatal(gerr, serr)
		}
		moved[rec.Desired]++
		idle[s.IdleTimeout]++
		if rec.Desired != s.Desired {
			r.t.Errorf("write %d: %s: %d is on record and status says %d", n, name, rec.Desired, s.Desired)
		}
	}
	if len(moved) != 1 || len(idle) != 1 {
		r.t.Errorf("write %d: the reload (%v) left revisions %v and idle times %v", n, err, moved, idle)
	}
	if err == nil != (moved[2] == len(names)) && !x.late {
		r.t.Errorf("write %d: the reload says %v and left revisions %v", n, err, moved)
	}
	r.apply(file("v2", 2*time.Hour)...)
	settle(time.Minute)
	r.get("v2")
	return true
}
