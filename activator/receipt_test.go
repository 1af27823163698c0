package activator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/usher-edge/usher/activator/store"
)

// receipts are those of the app, newest first.
func (r *rig) receipts() []Receipt {
	r.t.Helper()
	list, err := r.act.Receipts("hello")
	if err != nil {
		r.t.Fatal(err)
	}
	return list
}

// receipt is the newest one.
func (r *rig) receipt() Receipt {
	r.t.Helper()
	list := r.receipts()
	if len(list) == 0 {
		r.t.Fatalf("no receipt\n%s", r.history())
	}
	return list[0]
}

// took is how long the step of a receipt took; below 0: it has none.
func took(rc Receipt, step string) time.Duration {
	for _, s := range rc.Steps {
		if s.Name == step {
			return s.Took
		}
	}
	return -1
}

func (r *rig) wantTook(rc Receipt, want map[string]time.Duration) {
	r.t.Helper()
	for _, step := range []string{TookCommitted, TookStaged, TookSpawn, TookHealth, TookSettle, TookPark, TookDrain, TookStop, TookSwitch, TookProof} {
		w, ok := want[step]
		if !ok {
			w = -1
		}
		if got := took(rc, step); got.Round(100*time.Millisecond) != w.Round(100*time.Millisecond) {
			r.t.Errorf("step %s took %v, want %v; all: %+v", step, got, w, rc.Steps)
		}
	}
}

func adds(t *testing.T, rc Receipt) store.Counts {
	t.Helper()
	if rc.Counts == nil {
		t.Fatalf("no counts: %+v", rc)
	}
	c := *rc.Counts
	if len(c.Mismatch) > 0 || c.Accepted != c.Served+c.Cached+c.Refused+c.Failed+c.Gone+c.Own+c.Open || c.Served != c.Incumbent+c.Successor+c.Parked {
		t.Errorf("does not add up: %+v", c)
	}
	return c
}

func (r *rig) totals() Totals {
	r.t.Helper()
	t, err := r.act.Totals("hello")
	if err != nil {
		r.t.Fatal(err)
	}
	return t
}

func TestAnOverlapSwapLeavesAReceiptOfItsWindow(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1 last=2s"))
		r.get("v1")
		if got := r.receipts(); len(got) != 0 {
			t.Fatalf("a wake has a receipt: %+v", got)
		}
		stop := r.load(300 * time.Millisecond)
		settle(time.Second)
		begun := time.Now()
		go func() { _, _ = r.edge.get(context.Background(), "hello", 5*time.Second) }() // what the drain waits for
		synctest.Wait()
		op := r.wantOp(r.deploy("v2 boot=1s"), OpDone)
		if rc := r.receipt(); !rc.Open || rc.Attempt != 2 || rc.Counts == nil || rc.Counts.Accepted == 0 || rc.Outcome != "done" {
			t.Errorf("while it drains: %+v", rc)
		}
		for op.Draining {
			settle(10 * time.Millisecond)
			op = r.ended(op)
		}
		rc := r.receipt() // it is there no later than the operation says so
		stop()
		if rc.Open || rc.Operation != op.ID || rc.Outcome != "done" || rc.Revision != 2 || rc.Cause != "release" || rc.Mode != "overlap" ||
			rc.CacheFrom != "1.0" || rc.CacheTo != "2.0" || rc.From != (store.Predecessor{Generation: 1, Revision: 1, Build: rc.From.Build}) ||
			rc.Digest != op.Digest || rc.Build == "" || rc.Proof != "cgroup" || rc.Incomplete != "" || !rc.Executed {
			t.Errorf("%+v", rc)
		}
		if h := rc.Health; h == nil || h.Tries < 5 || h.Status != 200 || h.Passed < time.Second || h.Passed > 1300*time.Millisecond {
			t.Errorf("health %+v", h)
		}
		health := took(rc, TookHealth)
		r.wantTook(rc, map[string]time.Duration{TookCommitted: 0, TookStaged: 0, TookSpawn: 0, TookHealth: health, TookSwitch: 0, TookDrain: 5*time.Second - health, TookProof: 2 * time.Second})
		if !rc.Opened.Equal(begun) || rc.Closed.Sub(rc.Opened).Round(100*time.Millisecond) != 5*time.Second {
			t.Errorf("the window was open from %v to %v", rc.Opened.Sub(begun), rc.Closed.Sub(begun))
		}
		c := adds(t, rc)
		if c.Incumbent == 0 || c.Successor == 0 || c.Failed != 0 || c.Refused != 0 || c.Open == 0 {
			t.Errorf("%+v", c)
		}
		if got := r.totals(); got.Receipts != 1 || got.Mismatches != 0 {
			t.Errorf("totals %+v", got)
		}
		if stored, err := r.w.mem.Receipts("hello"); err != nil || len(stored) != 1 {
			t.Errorf("stored: %+v, %v", stored, err)
		}
	})
}

func TestTheReceiptOfAHoldCountsThoseWhoParked(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1 last=1s", hold))
		r.get("v1")
		stop := r.load(300 * time.Millisecond)
		settle(time.Second)
		r.wantOp(r.deploy("v2 boot=1s"), OpDone)
		settle(time.Second)
		stop()
		rc := r.receipt()
		c := adds(t, rc)
		if rc.Open || rc.Mode != "hold" || c.Parked == 0 || c.Failed != 0 || c.Refused != 0 || rc.Proof != "cgroup" {
			t.Errorf("%+v, %+v", rc, c)
		}
		r.wantTook(rc, map[string]time.Duration{
			TookCommitted: 0, TookStaged: 0, TookSpawn: 0, TookHealth: took(rc, TookHealth), TookSwitch: 0,
			TookPark: took(rc, TookHealth) + took(rc, TookDrain) + time.Second, TookDrain: took(rc, TookDrain), TookStop: time.Second,
		})
		// Open until those who had parked are answered.
		if d := rc.Closed.Sub(rc.Opened); d < took(rc, TookPark)+300*time.Millisecond {
			t.Errorf("the window was open for %v", d)
		}
	})
}

func TestAWindowWaitsOnlySoLongForThoseWhoParked(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1 last=1s", hold))
		r.get("v1")
		op := r.deploy("v2 boot=1s")
		settle(500 * time.Millisecond)
		go func() { _, _ = r.edge.get(context.Background(), "hello", time.Hour) }() // parks
		r.wantOp(op, OpDone)
		settle(29 * time.Second)
		if rc := r.receipt(); !rc.Open {
			t.Errorf("closed too early: %+v", rc)
		}
		settle(5 * time.Second)
		rc := r.receipt()
		if c := adds(t, rc); rc.Open || rc.Incomplete != "" || c.Open != 1 || c.Accepted != 1 {
			t.Errorf("%+v, %+v", rc, c)
		}
		op = r.deploy("v3")
		settle(2 * time.Second) // held by the endless one for hold_drain
		r.crashProcs()
		r.wantOp(op, OpDone)
	})
}

// crashProcs ends every process that runs, so that what is inside ends too.
func (r *rig) crashProcs() {
	for _, p := range r.w.alive("hello") {
		p.die(Exit{Code: 1})
	}
	synctest.Wait()
}

func TestTheNextAttemptClosesAWindowThatIsStillOpen(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1 last=1s", hold))
		r.get("v1")
		op := r.deploy("v2 boot=1s")
		settle(500 * time.Millisecond)
		go func() { _, _ = r.edge.get(context.Background(), "hello", time.Hour) }()
		r.wantOp(op, OpDone)
		r.wantOp(r.deploy("v3 sick", func(q *DeployRequest) {}), OpDown)
		list := r.receipts()
		if len(list) != 2 || list[1].Attempt != 2 || list[1].Open || adds(t, list[1]).Open != 1 || list[0].Outcome != "down" {
			t.Errorf("%+v", list)
		}
	})
}

func TestAnAttemptThatComesToNothingLeavesAShortReceipt(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		stop := r.load(100 * time.Millisecond)
		settle(time.Second)
		op := r.wantOp(r.deploy("v2 exit=1s boot=1h"), OpFailed)
		rc := r.receipt()
		c := adds(t, rc)
		if rc.Open || rc.Outcome != "failed" || rc.Operation != op.ID || !strings.Contains(rc.Reason, "exit status 3") || !rc.Executed || rc.CacheTo != "1.0" ||
			c.Incumbent == 0 || c.Successor+c.Failed+c.Parked != 0 || took(rc, TookSwitch) >= 0 || took(rc, TookDrain) >= 0 || rc.Proof != "" {
			t.Errorf("failed: %+v, %+v", rc, c)
		}
		r.wantOp(r.deploy("v2 sick"), OpFailed)
		if h := r.receipt().Health; h == nil || h.Tries < 80 || h.Passed != 0 || h.Status != 0 || !strings.Contains(h.Last, "answered 500") {
			t.Errorf("health %+v", h)
		}
		first := r.deploy("v3 boot=10s")
		settle(2 * time.Second)
		r.wantOp(r.deploy("v4"), OpDone)
		r.wantOp(first, OpSuperseded)
		settle(5 * time.Second)
		stop()
		list := r.receipts()
		if len(list) != 4 || list[1].Outcome != "abandoned" || list[1].Reason != "superseded" || list[0].Outcome != "done" {
			t.Errorf("%+v", list)
		}
		for _, rc := range list {
			adds(t, rc)
		}
	})
}

// However an attempt ends, its receipt has what its health check came to by then.
func TestAReceiptHasTheHealthEvidenceThereIs(t *testing.T) {
	canary := func(d *DeployRequest) { d.Canary = true }
	for script, c := range map[string]struct {
		as     func(*DeployRequest)
		none   bool
		passed bool
		last   string
		exit   string
	}{
		"v2 deaf exit=1s":            {last: "it exited before it answered", exit: "exit status 3"},
		"v2 boot=1h exit=1s":         {last: "it exited before it answered", exit: "exit status 3"},
		"v2 hang exit=1s":            {last: "it exited before it answered", exit: "exit status 3"},
		"v2 sick exit=1s":            {last: "GET / answered 500", exit: "exit status 3"},
		"v2 sick":                    {last: "GET / answered 500"},
		"v2 deaf":                    {last: "connection refused"},
		"v2 noexec":                  {none: true},
		"v2 canary boot=1s exit=2s":  {as: canary, passed: true, last: "GET / answered 200", exit: "exit status 3"},
		"v2 boot=1s canary and good": {as: canary, passed: true, last: "GET / answered 200"},
	} {
		t.Run(script, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.apply(r.app("v1"))
				r.get("v1")
				as := c.as
				if as == nil {
					as = func(*DeployRequest) {}
				}
				r.ended(r.deploy(script, as))
				settle(time.Minute)
				h := r.receipt().Health
				switch {
				case c.none != (h == nil):
					t.Errorf("health %+v", h)
				case h == nil:
				case h.Tries < 1 || (h.Passed > 0) != c.passed || (h.Status > 0) != c.passed || !strings.Contains(h.Last, c.last) || h.Exit != c.exit:
					t.Errorf("health %+v", h)
				}
			})
		})
	}
	inBubble(t, func(r *rig) { // one that is called off, and one that is under way
		r.apply(r.app("v1"))
		r.get("v1")
		r.deploy("v2 sick")
		settle(3 * time.Second)
		if h := r.receipt().Health; h == nil || h.Tries < 5 || h.Last != "GET / answered 500" {
			t.Errorf("under way: %+v", h)
		}
		r.wantOp(r.deploy("v3"), OpDone)
		settle(time.Minute)
		if h := r.receipts()[1].Health; h == nil || h.Tries < 5 || h.Last != "GET / answered 500" || h.Exit != "" {
			t.Errorf("called off: %+v", h)
		}
	})
}

func TestAFailedHoldCountsThoseItTurnsAway(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1 last=1s", hold))
		r.get("v1")
		stop := r.load(100 * time.Millisecond)
		settle(time.Second)
		r.wantOp(r.deploy("v2 exit=1s boot=1h"), OpDown)
		rc := r.receipt()
		stop()
		c := adds(t, rc)
		if rc.Outcome != "down" || c.Refused == 0 || c.Failed != 0 {
			t.Errorf("%+v, %+v", rc, c)
		}
	})
}

func TestARestartAndATargetHaveReceiptsToo(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		op, err := r.act.Restart(context.Background(), Change{App: "hello"}, false)
		if err != nil {
			t.Fatal(err)
		}
		r.wantOp(op, OpDone)
		settle(time.Second)
		if rc := r.receipt(); rc.Open || rc.Cause != "restart" || rc.CacheFrom != "1.0" || rc.CacheTo != "1.1" || took(rc, TookCommitted) >= 0 {
			t.Errorf("%+v", rc)
		}
	})
	inBubble(t, func(r *rig) {
		a := r.app("", func(a *App) { a.Target, a.FileValue = "127.0.0.1:3000", "127.0.0.1:3000" })
		r.apply(a)
		other := &proc{app: "other", script: []string{"theirs"}, address: "127.0.0.1:3001", done: make(chan struct{})}
		r.w.mu.Lock()
		r.w.procs[1] = other
		r.w.mu.Unlock()
		other.run()
		op, err := r.act.Deploy(context.Background(), DeployRequest{Change: Change{App: "hello"}, Target: "127.0.0.1:3001"})
		if err != nil {
			t.Fatal(err)
		}
		r.wantOp(op, OpDone)
		settle(time.Second)
		rc := r.receipt()
		if adds(t, rc); rc.Open || rc.Outcome != "done" || rc.Digest != "" || rc.Build != "127.0.0.1:3001" || rc.From.Build != "127.0.0.1:3000" {
			t.Errorf("%+v", rc)
		}
	})
}

// Whatever keeps the app from its release, a retry is one decision: one attempt,
// one outcome, one receipt.
func TestARetryIsOneAttempt(t *testing.T) {
	for name, c := range map[string]struct {
		app func(*App)
		end OpState
	}{
		"after a failed overlap": {app: func(*App) {}, end: OpFailed},
		"after a failed hold":    {app: hold, end: OpDown},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.apply(r.app("v1", c.app))
				r.get("v1")
				r.wantOp(r.deploy("v2 sick"), c.end)
				settle(time.Minute)
				before, _ := r.w.state.Get("hello")
				op, err := r.act.Restart(context.Background(), Change{App: "hello"}, true)
				if err != nil {
					t.Fatal(err)
				}
				r.wantOp(op, c.end)
				settle(time.Minute)
				after, _ := r.w.state.Get("hello")
				if n := len(after.Outcomes) - len(before.Outcomes); n != 1 {
					t.Errorf("%d outcomes: %+v", n, after.Outcomes)
				}
				if o := after.Outcomes[len(after.Outcomes)-1]; o.Cause != "retry" || o.Revision != 2 || o.Outcome != string(c.end) {
					t.Errorf("outcome %+v", o)
				}
				if list := r.receipts(); len(list) != 2 || list[0].Cause != "retry" || list[0].Operation != op.ID || list[0].Counts == nil {
					t.Errorf("receipts %+v", list)
				}
				if after.Restarts != 1 || after.Failures[2].Count != 1 || !after.Failures[2].HeldDown {
					t.Errorf("recorded: %d restarts, failures %+v", after.Restarts, after.Failures)
				}
			})
		})
	}
}

// What lifts an app is durable before anybody hears of it.
func TestARetryIsTakenUpThoughUsherCrashesRightAfterIt(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1", hold))
		r.get("v1")
		r.wantOp(r.deploy("v2 sick"), OpDown)
		if _, err := r.act.Restart(context.Background(), Change{App: "hello"}, true); err != nil {
			t.Fatal(err)
		}
		r.crash()
		if rec, _ := r.w.state.Get("hello"); rec.Failures[2].HeldDown || rec.Restarts != 1 || rec.DownHeld != 1 {
			t.Errorf("recorded: %+v", rec)
		}
		starts := len(r.w.procs)
		r.start(0)
		r.apply(r.apps...)
		settle(time.Minute)
		if len(r.w.procs) == starts {
			t.Error("the retry is forgotten")
		}
		r.wantState("down")
	})
}

func TestAReceiptThatDoesNotAddUpIsLoud(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		r.edge.mismatch = []string{"7 accepted, but 6 served = 6"}
		r.wantOp(r.deploy("v2"), OpDone)
		settle(time.Second)
		if rc := r.receipt(); rc.Counts == nil || !slices.Equal(rc.Counts.Mismatch, r.edge.mismatch) {
			t.Errorf("%+v", rc)
		}
		if got := r.totals(); got.Mismatches != 1 || got.Receipts != 1 {
			t.Errorf("totals %+v", got)
		}
		events, _ := r.act.Events(0, 0)
		if !slices.ContainsFunc(events, func(e store.Event) bool {
			return e.Kind == "receipt" && strings.Contains(e.Text, "DOES NOT ADD UP") && strings.Contains(e.Text, "7 accepted")
		}) {
			t.Errorf("no event says so: %+v", events)
		}
	})
}

// A crash takes the counts with it. The receipt says so, once, and raises no
// alarm.
func TestAWindowThatACrashCutsShortIsReportedWithoutNumbers(t *testing.T) {
	for name, at := range map[string]func(r *rig, op Operation){
		"while the successor boots": func(*rig, Operation) { settle(500 * time.Millisecond) },
		"while the old one drains":  func(r *rig, op Operation) { r.wantOp(op, OpDone) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.apply(r.app("v1"))
				r.get("v1")
				stop := r.load(2 * time.Second)
				settle(3 * time.Second)
				at(r, r.deploy("v2 boot=1s"))
				if rc := r.receipt(); !rc.Open {
					t.Fatalf("no window is open: %+v", rc)
				}
				r.restart()
				stop()
				settle(time.Minute)
				list := r.receipts()
				i := slices.IndexFunc(list, func(rc Receipt) bool { return rc.Attempt == 2 })
				if i < 0 {
					t.Fatalf("%+v", list)
				}
				if rc := list[i]; rc.Open || rc.Incomplete == "" || rc.Counts != nil || rc.Revision != 2 || rc.Digest == "" || rc.Cause != "release" {
					t.Errorf("%+v", rc)
				}
				if got := r.totals(); got.Mismatches != 0 {
					t.Errorf("totals %+v", got)
				}
				r.restart()
				settle(time.Minute)
				if again := r.receipts(); len(again) != len(list) {
					t.Errorf("another restart made receipts: %+v", again)
				}
			})
		})
	}
}

func TestARestartOfUsherInPeaceMakesNoReceipt(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		r.restart()
		settle(time.Minute)
		if got := r.receipts(); len(got) != 0 {
			t.Errorf("%+v", got)
		}
		r.wantOp(r.deploy("v2"), OpDone)
		settle(time.Minute)
		for range store.KeepOutcomes + 1 { // so many that its own outcome and receipt are no longer kept
			r.wantOp(r.deploy("v3 noexec"), OpFailed)
		}
		before := r.receipts()
		r.restart()
		settle(time.Minute)
		after := r.receipts()
		if len(after) != len(before) || after[0].Attempt != before[0].Attempt || after[0].Incomplete != "" {
			t.Errorf("before %+v\nafter %+v", before[0], after[0])
		}
	})
}

func TestAShutdownClosesTheWindowAsItStands(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		stop := r.load(2 * time.Second)
		settle(3 * time.Second)
		r.wantOp(r.deploy("v2"), OpDone)
		settle(100 * time.Millisecond) // the swap takes no time here, and the window is open
		if err := r.act.Shutdown(context.Background(), false); err != nil {
			t.Fatal(err)
		}
		rc := r.receipt()
		if c := adds(t, rc); rc.Open || !strings.Contains(rc.Incomplete, "shut down") || c.Accepted == 0 || c.Open == 0 {
			t.Errorf("%+v, %+v", rc, c)
		}
		stop()
		r.restart()
		settle(time.Minute)
		if list := r.receipts(); len(list) != 1 || list[0].Counts == nil {
			t.Errorf("%+v", list)
		}
	})
}

func TestAReceiptThatCannotBeStoredIsStoredWithTheNext(t *testing.T) {
	inBubble(t, func(r *rig) {
		var full atomic.Bool
		full.Store(true)
		r.w.mem.Fail = func(op string) error {
			if full.Load() && op == "receipt" {
				return errors.New("no space left on device")
			}
			return nil
		}
		r.apply(r.app("v1"))
		r.get("v1")
		for i := range 3 {
			r.wantOp(r.deploy(fmt.Sprintf("v%d", 2+i)), OpDone)
			settle(time.Minute)
			if list := r.receipts(); len(list) != i+1 || list[0].Open || list[0].Revision != uint64(i+2) {
				t.Errorf("after %d: %+v", i+1, list)
			}
		}
		full.Store(false)
		r.wantOp(r.deploy("v5"), OpDone)
		settle(time.Minute)
		if stored, err := r.w.mem.Receipts("hello"); err != nil || len(stored) != 4 {
			t.Errorf("%d are stored, %v", len(stored), err)
		}
	})
}

// checkReceipts holds for any app that is at rest.
func (r *rig) checkReceipts(when string) {
	r.t.Helper()
	rec, err := r.w.state.Get("hello")
	if err != nil {
		return // nothing was ever committed
	}
	list := r.receipts()
	known := map[uint64]bool{}
	for _, rc := range list {
		if rc.Open || known[rc.Attempt] || rc.Cause == "wake" || rc.Counts == nil && rc.Incomplete == "" || rc.Counts != nil && len(rc.Counts.Mismatch) > 0 {
			r.t.Errorf("%s\nreceipt %+v", when, rc)
		}
		known[rc.Attempt] = true
	}
	for _, o := range rec.Outcomes {
		if o.Receipt != known[o.Attempt] || o.Receipt == (o.Cause == "wake") {
			r.t.Errorf("%s\noutcome %+v; receipts %v", when, o, known)
		}
	}
	if got := r.totals(); got.Mismatches != 0 {
		r.t.Errorf("%s\n%d receipts do not add up", when, got.Mismatches)
	}
}

// That the old target is gone is its owner's to prove.
func TestTheReceiptOfATargetClaimsNoProofOfItsEnd(t *testing.T) {
	inBubble(t, func(r *rig) {
		a := r.app("")
		toTarget(&a)
		r.w.target(storyTarget, "t1")
		r.w.target("127.0.0.1:9002", "t2")
		r.apply(a)
		r.wantState("awake")
		op, err := r.act.Deploy(context.Background(), DeployRequest{Change: Change{App: "hello"}, Target: "127.0.0.1:9002"})
		if err != nil {
			t.Fatal(err)
		}
		r.wantOp(op, OpDone)
		settle(time.Minute)
		if rc := r.receipt(); rc.Proof != "" || rc.Build != "127.0.0.1:9002" || rc.Open {
			t.Errorf("%+v", rc)
		}
	})
}
