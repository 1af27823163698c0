package activator

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/usher-edge/usher/activator/store"
)

// Every story, cut short after every single effect and durable write, and then
// the recovery from that cut short after every one of its own.
func TestACrashAnywhereIsRecoveredFrom(t *testing.T) {
	total, twice := 0, 0
	for _, s := range stories() {
		t.Run(s.name, func(t *testing.T) {
			shop := newShop(t)
			n := 1
			for ; !t.Failed(); n++ {
				c := crash{shop: shop, story: s, first: n}
				done, again := c.run(t)
				if done {
					break
				}
				for c.second = 1 + n%everyNth(); c.second <= again && !t.Failed(); c.second += everyNth() {
					c.run(t)
					twice++
				}
			}
			t.Logf("%d crash points", n-1)
			total += n - 1
		})
	}
	t.Logf("%d crash points, and %d of a second crash in the recovery", total, twice)
}

// everyNth is how dense the second crashes are. All of them take minutes, so that
// is for `make explore`.
func everyNth() int {
	switch {
	case os.Getenv("USHER_EXPLORE") == "full":
		return 1
	case raced:
		return 11
	}
	return 5
}

// crash is where usher dies: right after its first-th effect, and right after
// the second-th effect of its next life (0: it lives).
type crash struct {
	shop          *shop
	story         story
	first, second int
}

// run plays a story with its crashes and looks at what is left. done says that
// the story has no such point, again how many the recovery has.
func (c crash) run(t *testing.T) (done bool, again int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := c.shop.rig(t)
		defer r.close()
		r.crash()
		r.start(c.first)
		c.story.begin(r)
		done = c.story.tell(r)
		lives := r.history()
		if c.story.then != nil {
			r.apps = c.story.then
		}
		again = r.revive(c.second)
		if c.second != 0 {
			lives += " then\n" + r.history()
			r.revive(0)
		}
		if r.checkRecovered(c.story); !c.story.gone {
			r.checkReceipts(c.story.name)
		}
		if t.Failed() {
			t.Logf("%s: crash after effect %d, and after %d of the recovery:\n%s then\n%s", c.story.name, c.first, c.second, lives, r.history())
		}
	})
	return done, again
}

// revive crashes usher, starts it again, and lets what is owed happen; it tells
// how many effects that took. What is promised at a start is looked at.
func (r *rig) revive(limit int) (effects int) {
	r.t.Helper()
	r.crash()
	promised := r.promised()
	r.start(limit)
	if r.act == nil {
		return 0
	}
	if _, err := r.act.Apply(context.Background(), r.apps); err != nil && !r.l.gone() {
		r.t.Errorf("apply: %v", err)
	}
	if !r.l.gone() {
		r.checkAdopted(promised)
		r.checkSeen()
	}
	for range 4 {
		settle(5 * time.Second)
	}
	return len(r.l.seen())
}

// promised is the generation that the next start must adopt: the last that was
// switched to, if it lives and nothing newer was reported.
func (r *rig) promised() (gen uint64) {
	if len(r.apps) == 0 {
		return 0
	}
	rec, _ := r.w.state.Get("hello")
	runs, _ := r.w.runs.List()
	for _, run := range runs {
		switchedTo := run.Phase == store.PhaseSwitching || run.Phase == store.PhaseSwitched
		if p := r.w.byAddress(run.Address); p != nil && p.gen == run.Generation && switchedTo && run.Revision >= rec.Reported {
			gen = run.Generation
		}
	}
	return gen
}

// checkAdopted: I10. The first thing that the edge is told is who serves.
func (r *rig) checkAdopted(promised uint64) {
	r.t.Helper()
	if promised == 0 {
		return
	}
	r.edge.mu.Lock()
	h := r.edge.slot("hello").history
	r.edge.mu.Unlock()
	if rec, _ := r.w.state.Get("hello"); rec.Paused {
		return // nobody is told of it until it is resumed
	}
	if len(h) == 0 || h[0].Generation != promised {
		r.t.Errorf("I10: generation %d serves and the next start places %+v", promised, h)
	}
}

// checkSeen: I8. Whatever runs is looked after. It looks when nothing moves: what
// is started between two looks would seem to be nobody's.
func (r *rig) checkSeen() {
	r.t.Helper()
	synctest.Wait()
	known := map[uint64]bool{}
	for _, name := range r.act.Names() {
		s, err := r.act.Status(name)
		for _, g := range s.Generations {
			known[g.Number] = err == nil
		}
	}
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	for _, p := range r.w.procs {
		if !p.dead() && p.gen != 0 && !known[p.gen] && !r.l.gone() {
			r.t.Errorf("I8: generation %d runs and nobody looks after it", p.gen)
		}
	}
}

// checkRecovered looks at what a story has come to after its last start.
func (r *rig) checkRecovered(s story) {
	r.t.Helper()
	if s.gone {
		r.checkNothingLeft()
		if _, err := r.w.state.Get("hello"); !errors.Is(err, store.ErrNotFound) {
			r.t.Errorf("the removed app is on record: %v", err)
		}
		return
	}
	r.checkSeen()
	if r.status().State == "paused" {
		r.wantOp(r.must(r.act.Resume(context.Background(), Change{App: "hello"})), OpDone)
	}
	rec, _ := r.w.state.Get("hello")
	want := s.serves(rec)
	settle(20 * time.Second) // a back-off, a resumed deploy
	build, err := r.request()
	if errors.Is(err, errRefused) && s.sick && rec.Good != 0 && !s.lifts { // it may have been the first that the sick build was started for
		settle(20 * time.Second)
		build, err = r.request()
	}
	if errors.Is(err, errRefused) && s.sick && rec.Good == 0 && rec.Desired == 2 {
		build = want // nothing ever served
	} else if errors.Is(err, errRefused) && s.lifts && rec.Desired == 2 {
		build = want
		r.wantState("down")
		r.ended(r.must(r.act.Restart(context.Background(), Change{App: "hello"}, true)))
	} else if err != nil {
		r.t.Errorf("a request after it all: %v", err)
	}
	if build != want {
		r.t.Errorf("%q serves, want %q", build, want)
	}
	if err == nil {
		r.checkRestarts()
	}
	r.checkMovesOn()
}

// checkMovesOn: whatever has happened, the next deploy works, and afterwards the
// app falls asleep and leaves nothing. A target does not sleep: it alone is left.
func (r *rig) checkMovesOn() {
	r.t.Helper()
	if r.apps[0].Target != "" {
		r.wantOp(r.must(r.act.Deploy(context.Background(), DeployRequest{Change: Change{App: "hello"}, Target: otherTarget})), OpDone)
		r.get("t2")
		synctest.Wait() // a deploy is done at its switch: that the old one drains and leaves comes after it, and takes no time
		r.checkLeft(1)
		return
	}
	r.wantOp(r.deploy(storyThird), OpDone)
	r.get("v3")
	r.checkSeen()
	settle(5 * time.Minute)
	r.wantState("asleep")
	r.checkNothingLeft()
	if rec, _ := r.w.state.Get("hello"); rec.RestartsDone != rec.Restarts {
		r.t.Errorf("%d of %d restarts are done", rec.RestartsDone, rec.Restarts)
	}
}

func (r *rig) checkNothingLeft() {
	r.t.Helper()
	settle(time.Minute)
	if n := r.w.running(); n != 0 {
		r.t.Errorf("%d processes are left", n)
	}
	if left, _ := r.w.runs.List(); len(left) != 0 {
		r.t.Errorf("records are left: %+v", left)
	}
	r.checkLeft(0)
}

// checkLeft: nothing is under way, and there are so many generations of each app.
func (r *rig) checkLeft(gens int) {
	r.t.Helper()
	for _, run := range r.act.apps {
		run.box.call(func() {
			if len(run.ops) != 0 || len(run.gens) != gens || run.receipt != nil {
				r.t.Errorf("%d operations, %d generations and the receipt %+v are left", len(run.ops), len(run.gens), run.receipt)
			}
		})
	}
}

// checkRestarts: a restart that was acknowledged is carried out, once.
func (r *rig) checkRestarts() {
	r.t.Helper()
	rec, _ := r.w.state.Get("hello")
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	n := uint64(0)
	for _, run := range r.w.switched {
		if uint64(run.Restart) == rec.Restarts {
			n++
		}
	}
	if rec.Restarts > 0 && (n == 0 || n > 1 && !r.slept) {
		r.t.Errorf("%d restarts are on record, %d generations were switched to for the last", rec.Restarts, n)
	}
}

func (r *rig) must(op Operation, err error) Operation {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
	return op
}

// request is one that may be refused.
func (r *rig) request() (build string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return r.edge.get(ctx, "hello", 0)
}

func TestARestartOfUsherAdoptsWhatServes(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		was := r.status()
		r.restart()
		is := r.wantState("awake")
		if is.PID != was.PID || is.Generation != was.Generation || is.Version < was.Version {
			t.Errorf("before %+v\nafter %+v", was, is)
		}
		r.get("v1")
		settle(2 * time.Hour)
		r.wantState("asleep")
	})
}

func TestAPortOfAnAdoptedGenerationIsGivenBack(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		r.restart()
		g := r.act.apps["hello"].gens[1]
		if g == nil || g.port == 0 {
			t.Errorf("adopted generation %+v", g)
		}
	})
}

func TestWhatCannotBeAdoptedIsNotTakenForGone(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1", hold))
		r.get("v1")
		r.crash()
		r.w.adoptErr = errors.New("open cgroup: permission denied")
		r.start(0)
		r.apply(r.apps...)
		settle(10 * time.Second)
		s := r.wantState("down")
		if !strings.Contains(s.Reason, "unproven") || r.w.running() != 1 {
			t.Errorf("reason %q, %d processes", s.Reason, r.w.running())
		}
		r.w.mu.Lock()
		r.w.adoptErr = nil
		r.w.mu.Unlock()
		settle(20 * time.Second)
		r.get("v1")
		if n := r.w.running(); n != 1 {
			t.Errorf("%d processes", n)
		}
	})
}

// Usher begins with all its apps at once, and may have no descriptor left for one of
// them just then. That app serves, and is not stopped for it.
func TestWhatCannotBeLookedAtForAMomentIsAdopted(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1", hold))
		r.get("v1")
		was := r.status()
		r.crash()
		r.w.adoptErr = errors.New("read stat of pid 7: too many open files")
		r.start(0)
		go func() {
			time.Sleep(adoptPause + adoptPause/2)
			r.w.mu.Lock()
			defer r.w.mu.Unlock()
			r.w.adoptErr = nil
		}()
		r.apply(r.apps...)
		settle(10 * time.Second)
		if is := r.wantState("awake"); is.PID != was.PID || is.Generation != was.Generation {
			t.Errorf("before %+v\nafter %+v", was, is)
		}
		r.get("v1")
	})
}

func TestARestartThatIsOwedIsDoneOnceAfterACrash(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1 last=5s", hold))
		r.get("v1")
		was := r.status()
		go r.edge.get(context.Background(), "hello", time.Minute) // holds the drain
		synctest.Wait()
		if _, err := r.act.Restart(context.Background(), Change{App: "hello"}, false); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := r.act.Shutdown(ctx, false); err != nil {
			t.Fatal(err)
		}
		if rec, _ := r.w.state.Get("hello"); rec.Restarts != 1 || rec.RestartsDone != 0 {
			t.Errorf("a restart that was abandoned counts as done: %d of %d", rec.RestartsDone, rec.Restarts)
		}
		r.restart()
		settle(time.Minute)
		is := r.wantState("awake")
		if is.PID == was.PID {
			t.Error("the restart that was owed was not done")
		}
		r.restart()
		settle(time.Minute)
		if again := r.wantState("awake"); again.PID != is.PID {
			t.Error("the restart was done twice")
		}
	})
}

func TestShutdownInAnyStageKeepsTheAppRunning(t *testing.T) {
	for _, mode := range []string{"overlap", "hold"} {
		for _, after := range []time.Duration{0, time.Second, 2500 * time.Millisecond, 4 * time.Second, 8 * time.Second} {
			t.Run(mode+"/"+after.String(), func(t *testing.T) {
				inBubble(t, func(r *rig) {
					a := r.app("v1 last=2s")
					if mode == "hold" {
						hold(&a)
					}
					r.apply(a)
					r.get("v1")
					op := r.deploy("v2 boot=3s")
					settle(after)
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					defer cancel()
					if err := r.act.Shutdown(ctx, false); err != nil {
						t.Fatal(err)
					}
					o := r.ended(op)
					if o.State != OpDone && o.State != OpAbandoned {
						t.Errorf("operation is %s", o.State)
					}
					if _, err := r.act.Deploy(ctx, DeployRequest{Change: Change{App: "hello"}, Digest: r.build("v3")}); !errors.Is(err, ErrClosing) {
						t.Errorf("deploy while usher ends: %v", err)
					}
					if _, err := r.act.Apply(ctx, r.apps); !errors.Is(err, ErrClosing) {
						t.Errorf("apply while usher ends: %v", err)
					}
					begin := time.Now()
					r.act.Close()
					r.act.Close()
					if took := time.Since(begin); took > time.Second {
						t.Errorf("close took %v", took)
					}
					if mode == "overlap" && len(r.w.alive("hello")) == 0 {
						t.Error("no process is left")
					}
					r.restart()
					settle(time.Minute)
					r.get("v2")
					if n := r.w.running(); n != 1 {
						t.Errorf("%d processes", n)
					}
				})
			})
		}
	}
}

func TestCloseWithoutShutdownTouchesNoProcess(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		r.deploy("v2 boot=5s")
		settle(time.Second)
		r.act.Close()
		if n := len(r.w.alive("hello")); n != 2 {
			t.Errorf("%d processes run after close, want both", n)
		}
		settle(time.Minute)
		if n := len(r.w.alive("hello")); n != 2 {
			t.Errorf("%d processes run a minute after close, want both", n)
		}
		if got := r.l.seen(); strings.Contains(strings.Join(got, "\n"), "term") {
			t.Errorf("a process was told to end: %v", got)
		}
		r.restart()
		settle(time.Minute)
		r.get("v2")
		if n := r.w.running(); n != 1 {
			t.Errorf("%d processes", n)
		}
	})
}

func TestShutdownWithItsAppsStopsThem(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1 last=1s"))
		r.get("v1")
		r.deploy("v2 boot=5s")
		settle(time.Second)
		if err := r.act.Shutdown(context.Background(), true); err != nil {
			t.Fatal(err)
		}
		if n := r.w.running(); n != 0 {
			t.Errorf("%d processes", n)
		}
		r.restart()
		r.get("v2")
	})
}

func TestStatusAfterCloseStillAnswers(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		r.act.Close()
		r.wantState("awake")
		r.act.Wanted("hello")
		if _, err := r.act.Sleep(context.Background(), Change{App: "hello"}); !errors.Is(err, ErrClosing) {
			t.Errorf("sleep after close: %v", err)
		}
	})
}

// The database is lost: what was restarted once is not restarted again, and nobody
// says that a window was open which was not.
func TestAnAppThatWasRestartedOnceServesOnThoughItsRecordIsLost(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		r.wantOp(r.must(r.act.Restart(context.Background(), Change{App: "hello"}, false)), OpDone)
		settle(time.Minute)
		was := r.status()
		r.crash()
		rec, _ := r.w.state.Get("hello")
		if err := r.w.mem.Delete("hello", rec.Version); err != nil {
			t.Fatal(err)
		}
		r.start(0)
		r.apply(r.apps...)
		settle(time.Minute)
		if is := r.wantState("awake"); is.PID != was.PID || r.w.running() != 1 {
			t.Errorf("pid %d became %d, %d processes", was.PID, is.PID, r.w.running())
		}
		list, err := r.act.Receipts("hello")
		if err != nil || len(list) != 1 || !strings.Contains(list[0].Incomplete, "record was lost") {
			t.Errorf("receipts %+v, %v", list, err)
		}
		r.wantOp(r.must(r.act.Restart(context.Background(), Change{App: "hello"}, false)), OpDone)
		if is := r.wantState("awake"); is.PID == was.PID {
			t.Error("the next restart does nothing")
		}
		r.get("v1")
	})
}

// The run directory is gone, or a record in it is damaged: what runs is found all
// the same, and never runs on unseen beside what is started.
func TestWhatRunsWithoutARecordIsStoppedAndSaid(t *testing.T) {
	for name, change := range map[string]func(*App){"overlap": func(*App) {}, "hold": hold} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.apply(r.app("v1 last=3s", change))
				r.get("v1")
				was := r.status()
				r.crash()
				if err := r.w.runs.Delete(was.Generation); err != nil {
					t.Fatal(err)
				}
				r.start(0)
				r.apply(r.apps...)
				r.checkSeen()
				r.get("v1")
				is := r.wantState("awake")
				if is.PID == was.PID || is.Generation <= was.Generation || r.w.running() != 1 {
					t.Errorf("generation %d with pid %d became %d with %d; %d processes", was.Generation, was.PID, is.Generation, is.PID, r.w.running())
				}
				said := false
				for _, e := range r.w.state.EventsSince(0, 0) {
					said = said || e.Kind == "recovery" && e.Generation == was.Generation && strings.Contains(e.Text, "no record")
				}
				if !said || len(is.Recovery) != 1 || !strings.Contains(is.Recovery[0], "no record") {
					t.Errorf("told in events: %v, in status: %q", said, is.Recovery)
				}
			})
		})
	}
}

func TestAnAppThatLeftTheFileAndHasNoRecordIsStopped(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		r.crash()
		if err := r.w.runs.Delete(r.w.alive("hello")[0].gen); err != nil {
			t.Fatal(err)
		}
		r.start(0)
		r.apply()
		settle(time.Minute)
		if n := r.w.running(); n != 0 {
			t.Errorf("%d processes run on", n)
		}
	})
}

// What was recorded against what is there: the difference is in the events and in
// the status, and where there is none, status says nothing.
func TestStatusTellsWhatWasNotFoundAsItWasRecorded(t *testing.T) {
	for name, c := range map[string]struct {
		until func(r *rig)
		want  string // empty: nothing differs
	}{
		"it lives":                 {until: func(*rig) {}},
		"it ended meanwhile":       {until: func(r *rig) { r.crash(); r.crashProcs() }, want: "pid 101 (switched) is not there any more"},
		"a successor was starting": {until: func(r *rig) { r.deploy("v2 boot=10s"); settle(time.Second) }, want: "generation 2: pid 102 was still on its way up"},
		"the old one was retiring": {
			until: func(r *rig) {
				go func() { _, _ = r.edge.get(context.Background(), "hello", 20*time.Second) }()
				synctest.Wait()
				r.wantOp(r.deploy("v2"), OpDone)
			},
			want: "generation 1: pid 101 (retiring) still runs and is not to serve any more",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.apply(r.app("v1"))
				r.get("v1")
				settle(time.Second) // the switch is recorded after those who waited are let go
				c.until(r)
				r.restart()
				settle(time.Minute)
				got := r.status().Recovery
				told := 0
				for _, e := range r.w.mem.EventsSince(0, 0) {
					if e.Kind == "recovery" && !strings.HasPrefix(e.Text, "adopted") {
						told++
					}
				}
				if n := min(1, len(c.want)); len(got) != n || told != n || n == 1 && !strings.Contains(got[0], c.want) {
					t.Errorf("status %q, %d events; want %q", got, told, c.want)
				}
				r.restart()
				if got := r.status().Recovery; len(got) != 0 {
					t.Errorf("after another start: %q", got)
				}
			})
		})
	}
}
