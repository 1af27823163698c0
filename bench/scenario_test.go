package bench

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// fakeUsher is an app behind a door: it can sleep, and be swapped with its
// requests held meanwhile.
type fakeUsher struct {
	boot time.Duration

	// ripe says that enough has happened for a new generation to be ready, if its
	// boot is over too; nil: there is nothing else to wait for. It is called with the lock.
	ripe func() bool

	mu         sync.Mutex // guards what follows
	generation uint64
	asleep     bool
	stale      bool // answers keep the old generation's name after a swap
	insomnia   bool // never falls asleep
	parked     int
	shown      int // most parked that a status has told, of this hold
	booted     bool
	ready      chan struct{} // closed when requests may go on
	answered   int
	earlier    int // answered, of runs before this one
	run        *Run
}

func newFakeUsher(boot time.Duration) *fakeUsher {
	u := &fakeUsher{boot: boot, generation: 1, booted: true, ready: make(chan struct{})}
	close(u.ready)
	return u
}

func (u *fakeUsher) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	if u.asleep {
		u.asleep = false
		u.hold()
	}
	ready := u.ready
	u.parked++
	u.look()
	u.mu.Unlock()
	<-ready
	u.mu.Lock()
	u.parked--
	u.answered++
	generation := u.generation
	if u.stale {
		generation--
	}
	u.mu.Unlock()
	w.Header().Set("Usher-Generation", strconv.FormatUint(generation, 10))
	_, _ = io.WriteString(w, "hello")
}

// hold parks requests while a new generation boots. The lock must be held.
func (u *fakeUsher) hold() chan struct{} {
	ready := make(chan struct{})
	u.ready, u.booted, u.shown = ready, false, 0
	time.AfterFunc(u.boot, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.booted = true
		u.look()
	})
	return ready
}

// look ends a hold whose time has come. The lock must be held.
func (u *fakeUsher) look() {
	select {
	case <-u.ready:
	default:
		if u.booted && (u.ripe == nil || u.ripe()) {
			u.generation++
			close(u.ready)
		}
	}
}

// settled waits until as many requests of a run were answered as are due by now.
// With one connection these are all that are due by now.
func (u *fakeUsher) settled(ctx context.Context, run *Run) error {
	due, _ := slices.BinarySearch(run.due, run.elapsed())
	u.mu.Lock()
	if u.run != nil && u.run != run {
		u.earlier += u.run.queued
	}
	u.run = run
	u.mu.Unlock()
	for {
		u.mu.Lock()
		answered := u.answered - u.earlier
		u.mu.Unlock()
		if answered >= due {
			return nil
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

func (u *fakeUsher) Restart(ctx context.Context, _, _ string) error {
	u.mu.Lock()
	ready := u.hold()
	u.mu.Unlock()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (u *fakeUsher) Deploy(context.Context, string, string, string) error {
	return errors.New("the build does not start")
}

func (u *fakeUsher) Sleep(context.Context, string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asleep = true
	return nil
}

// Retired: the old generation takes as long to leave as the new one to come.
func (u *fakeUsher) Retired(ctx context.Context, _ string) error { return pause(ctx, u.boot) }

func (u *fakeUsher) Status(context.Context, string) (State, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := State{Phase: "awake", Generation: u.generation, Parked: u.parked}
	u.shown = max(u.shown, u.parked)
	u.look()
	if u.asleep && !u.insomnia {
		s.Phase = StateAsleep
	}
	return s, nil
}

func swapPlan(t *testing.T, u *fakeUsher) SwapPlan {
	return SwapPlan{
		App:  "hello",
		Load: Load{Targets: []Target{serveHTTP(t, u)}, Rate: 300, Connections: 60},
		Lead: 150 * time.Millisecond, Tail: 150 * time.Millisecond,
		Change: func(ctx context.Context, run *Run) error {
			if err := u.settled(ctx, run); err != nil {
				return err
			}
			run.Mark("restart is sent")
			return Restarting(u, "hello", "hold")(ctx, run)
		},
	}
}

func TestASwapIsReportedByPhase(t *testing.T) {
	u := newFakeUsher(400 * time.Millisecond)
	u.ripe = func() bool { return u.shown >= 5 }
	result, err := Swap(testContext(t), u, swapPlan(t, u))
	if err != nil {
		t.Fatal(err)
	}
	wantFailures(t, result, nil)
	if len(result.Phases) != 3 {
		t.Fatalf("phases %+v", result.Phases)
	}
	before, during, after := result.Phases[0], result.Phases[1], result.Phases[2]
	if before.Name != PhaseBefore || during.Name != PhaseDuring || after.Name != PhaseAfter {
		t.Errorf("phases %s, %s, %s", before.Name, during.Name, after.Name)
	}
	if n := before.Requests + during.Requests + after.Requests; n != result.Total.Requests || before.Requests < 40 || after.Requests < 40 {
		t.Errorf("requests %d + %d + %d of %d", before.Requests, during.Requests, after.Requests, result.Total.Requests)
	}
	if during.Latency.MaxMS < 380 || during.EndMS-during.StartMS < 395 {
		t.Errorf("during: slowest %g ms, took %g ms; requests were held for 400 ms", during.Latency.MaxMS, during.EndMS-during.StartMS)
	}
	c := result.Change
	if c.From != 1 || c.To != 2 || c.ParkedSeen < 5 || c.Error != "" {
		t.Errorf("change %+v", c)
	}
	if len(result.Marks) != 3 || len(result.Generations) != 2 {
		t.Errorf("marks %+v, generations %+v", result.Marks, result.Generations)
	}
}

func TestAnAnswerFromTheOldGenerationAfterTheReportIsAFailure(t *testing.T) {
	u := newFakeUsher(10 * time.Millisecond)
	plan := swapPlan(t, u)
	plan.Load.Connections = 1 // so that requests are sent in the order in which they are due
	change := plan.Change
	plan.Change = func(ctx context.Context, run *Run) error {
		err := change(ctx, run)
		u.mu.Lock()
		u.stale = true
		u.mu.Unlock()
		return err
	}
	result, err := Swap(testContext(t), u, plan)
	if err != nil {
		t.Fatal(err)
	}
	after := result.Phases[2]
	if n := after.Failures["wrong_generation"]; n != after.Requests || n == 0 {
		t.Errorf("%d of %d requests after the report failed, want all", n, after.Requests)
	}
	if before := result.Phases[0]; before.Failed != 0 {
		t.Errorf("failures before the swap: %v", before.Failures)
	}
}

func TestAFailedSwapKeepsItsResult(t *testing.T) {
	u := newFakeUsher(0)
	plan := swapPlan(t, u)
	plan.Change = Deploying(u, "hello", "x", "overlap")
	result, err := Swap(testContext(t), u, plan)
	if err == nil || result == nil {
		t.Fatalf("got %v and result %v, want both", err, result)
	}
	wantFailures(t, result, nil)
	if result.Change.Error != "the build does not start" || result.Phases[2].Requests < 40 {
		t.Errorf("change %+v, %d requests after it", result.Change, result.Phases[2].Requests)
	}
}

func TestASwapThatHangsEndsAtItsLimit(t *testing.T) {
	u := newFakeUsher(0)
	plan := swapPlan(t, u)
	plan.Limit = 50 * time.Millisecond
	plan.Change = func(ctx context.Context, _ *Run) error { <-ctx.Done(); return ctx.Err() }
	result, err := Swap(testContext(t), nil, plan)
	if !errors.Is(err, context.DeadlineExceeded) || result == nil {
		t.Errorf("got %v", err)
	}
}

func TestASwapEndsWithItsContext(t *testing.T) {
	u := newFakeUsher(0)
	plan := swapPlan(t, u)
	plan.Lead = time.Hour / 100
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	result, err := Swap(ctx, u, plan)
	if !errors.Is(err, context.DeadlineExceeded) || result == nil || result.Total.Failed != 0 {
		t.Errorf("got %v, result %+v", err, result)
	}
}

func TestWakesAreMeasuredFromTheRequestThatWoke(t *testing.T) {
	u := newFakeUsher(250 * time.Millisecond)
	u.ripe = func() bool { return u.shown == 5 }
	result, err := Wake(testContext(t), u, WakePlan{
		App: "hello", Load: Load{Targets: []Target{serveHTTP(t, u)}}, Rounds: 3, Burst: 5,
	})
	if err != nil {
		t.Fatal(err)
	}
	wantFailures(t, result, nil)
	if len(result.Rounds) != 3 || result.Total.Requests != 15 || result.Scenario != "wake" {
		t.Fatalf("rounds %+v, requests %d", result.Rounds, result.Total.Requests)
	}
	for i, round := range result.Rounds {
		if round.FirstMS < 245 || round.SlowestMS < round.FirstMS || round.Generation != uint64(i+2) || round.ParkedSeen != 5 {
			t.Errorf("round %d: %+v", i, round)
		}
		if i > 0 && round.AtMS < result.Rounds[i-1].AtMS+245 {
			t.Errorf("round %d is not after the one before it: %+v", i, result.Rounds)
		}
	}
	if result.Total.Latency.P50MS < 245 {
		t.Errorf("p50 %g ms, each boot takes 250 ms", result.Total.Latency.P50MS)
	}
}

func TestAnAppThatWillNotSleepEndsTheWakeScenario(t *testing.T) {
	u := newFakeUsher(0)
	u.insomnia = true
	result, err := Wake(testContext(t), u, WakePlan{
		App: "hello", Load: Load{Targets: []Target{serveHTTP(t, u)}}, SleepLimit: 50 * time.Millisecond,
	})
	if err == nil || len(result.Rounds) != 0 {
		t.Fatalf("got %v, rounds %+v", err, result.Rounds)
	}
	mustContain(t, "error", err.Error(), "put hello to sleep", "still awake")
}
