package edge

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer counts how often it was cut.
type peer struct{ cuts atomic.Int32 }

func (p *peer) Cut() { p.cuts.Add(1) }

// waker counts wakes.
type waker struct{ n atomic.Int32 }

func (w *waker) Wake(string) { w.n.Add(1) }

// one makes an edge with the app "app" on any host.
func one(t testing.TB, opt Options, cfg AppConfig) (*Edge, *App) {
	t.Helper()
	e := New(opt)
	t.Cleanup(e.Close)
	cfg.Name, cfg.Hosts = "app", []string{"*"}
	if err := e.SetApps([]AppConfig{cfg}); err != nil {
		t.Fatal(err)
	}
	return e, e.App("app")
}

// open makes a lane with a request on it.
func open(e *Edge) *Request {
	r := e.Open(&peer{})
	begin(r)
	return r
}

func begin(r *Request) {
	r.Begin(time.Now())
	r.Method, r.Host, r.Path, r.Target = []byte("GET"), []byte("app.test"), []byte("/"), []byte("/")
	r.Minor = 1
}

func serving(generation uint64) Placement {
	return Placement{Revision: generation, Generation: generation, State: Serving, Network: "unix", Address: "/nowhere"}
}

func end(e *Edge, r *Request, ending Ending) bool {
	return e.Finish(r, Result{Ending: ending, Status: 200})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestDecideFollowsTheState(t *testing.T) {
	e, a := one(t, Options{}, AppConfig{})
	for _, c := range []struct {
		place Placement
		kind  Kind
		cause Cause
	}{
		{Placement{State: Empty}, Reply, CauseNoRelease},
		{Placement{State: Asleep}, Park, CauseNone},
		{Placement{State: Waking}, Park, CauseNone},
		{serving(1), Proxy, CauseNone},
		{Placement{State: Serving}, Park, CauseNone},
		{Placement{State: Holding}, Park, CauseNone},
		{Placement{State: Paused}, Park, CauseNone},
		{Placement{State: Paused, Generation: 1, Network: "unix", Address: "/nowhere"}, Park, CauseNone},
		{Placement{State: Maintenance}, Reply, CauseMaintenance},
		{Placement{State: Down}, Reply, CauseWakeFailed},
		{Placement{State: Fenced}, Reply, CauseFenced},
		{Placement{State: Removed}, Reply, CauseNoSuchHost},
	} {
		a.Place(c.place)
		r := open(e)
		d := e.Decide(r)
		if d.Kind != c.kind || d.Cause != c.cause || (d.Target != nil) != (c.kind == Proxy) {
			t.Errorf("%s: %+v", c.place.State, d)
		}
		end(e, r, Served)
		r.Close()
	}
}

func TestDecideRefusesBodiesBeyondTheLimitBeforeTheyWakeAnything(t *testing.T) {
	e, a := one(t, Options{}, AppConfig{MaxBody: 10})
	a.Place(Placement{State: Asleep})
	r := open(e)
	r.Length = 11
	if d := e.Decide(r); d.Kind != Reply || d.Cause != CauseBodyTooLarge {
		t.Fatalf("%+v", d)
	}
	end(e, r, Refused)
	begin(r)
	r.Length = 10
	if d := e.Decide(r); d.Kind != Park {
		t.Fatalf("%+v", d)
	}
}

func TestDecideHandsUpgradesOverAsDetached(t *testing.T) {
	e, a := one(t, Options{}, AppConfig{})
	a.Place(serving(1))
	r := open(e)
	r.Upgrade = true
	if d := e.Decide(r); d.Kind != Detach || d.Target == nil {
		t.Fatalf("%+v", d)
	}
	end(e, r, Served)
}

func TestDecideHoldsTheInFlightLimit(t *testing.T) {
	e, a := one(t, Options{}, AppConfig{MaxInFlight: 1})
	a.Place(serving(1))
	r, q := open(e), open(e)
	e.Decide(r)
	if d := e.Decide(q); d.Kind != Reply || d.Cause != CauseAtCapacity {
		t.Fatalf("%+v", d)
	}
	end(e, q, Refused)
	end(e, r, Served)
	begin(q)
	if d := e.Decide(q); d.Kind != Proxy {
		t.Fatalf("%+v", d)
	}
	end(e, q, Served)
}

func TestSwitchSendsNewRequestsToTheSuccessorAndDrainsTheIncumbent(t *testing.T) {
	e, a := one(t, Options{}, AppConfig{})
	a.Place(serving(1))
	old := open(e)
	if d := e.Decide(old); d.Target.Generation() != 1 {
		t.Fatal("wrong generation")
	}
	a.Place(serving(2))
	drained := a.Drained(1)
	r := open(e)
	if d := e.Decide(r); d.Target.Generation() != 2 {
		t.Fatal("a request after the switch met the incumbent")
	}
	if isClosed(drained) || a.Activity().InFlight != 2 {
		t.Fatal("drained with a request inside")
	}
	end(e, old, Served)
	if !isClosed(drained) || !isClosed(a.Drained(1)) || isClosed(a.Drained(2)) {
		t.Fatal("drained is wrong")
	}
	end(e, r, Served)
	if isClosed(a.Drained(2)) {
		t.Fatal("idle is not drained")
	}
	if !isClosed(a.Drained(99)) {
		t.Fatal("an unknown generation must be drained already")
	}
}

func TestPlaceKeepsATargetThatIsNamedAgain(t *testing.T) {
	e, a := one(t, Options{}, AppConfig{})
	a.Place(serving(1))
	r := open(e)
	first := e.Decide(r).Target
	p := serving(1)
	p.Revision, p.State = 5, Paused
	a.Place(p)
	if first.Retired() {
		t.Fatal("pausing retired the target")
	}
	a.Place(serving(1))
	q := open(e)
	if e.Decide(q).Target != first {
		t.Fatal("resuming made another target")
	}
	end(e, q, Served)
	end(e, r, Served)
}

func TestAGenerationThatIsSwitchedBackToDrainsAsAWhole(t *testing.T) {
	e, a := one(t, Options{}, AppConfig{})
	a.Place(serving(1))
	r := open(e)
	e.Decide(r)
	a.Place(Placement{State: Holding})
	a.Place(serving(1)) // a fresh gate
	q := open(e)
	e.Decide(q)
	a.Place(Placement{State: Holding})
	drained := a.Drained(1)
	end(e, r, Served)
	if isClosed(drained) {
		t.Fatal("drained with a request inside the second target")
	}
	end(e, q, Served)
	if !isClosed(drained) {
		t.Fatal("not drained")
	}
}

func TestSleepIsOffWhileARequestIsInside(t *testing.T) {
	e, a := one(t, Options{}, AppConfig{})
	a.Place(serving(1))
	r := open(e)
	e.Decide(r)
	asleep := Placement{State: Asleep}
	if a.TrySleep(1, asleep) {
		t.Fatal("slept with a request inside")
	}
	if end(e, r, Served); a.TrySleep(2, asleep) {
		t.Fatal("slept on another generation's word")
	}
	if a.Activity().LastRelease.IsZero() {
		t.Fatal("no time of the last release")
	}
	if !a.TrySleep(1, asleep) || a.Placed().State != Asleep || !isClosed(a.Drained(1)) {
		t.Fatal("did not sleep")
	}
	if a.TrySleep(1, asleep) {
		t.Fatal("slept twice")
	}
}

func TestDecideParksInsteadOfSpinningWhileTheTargetIsBeingPutToSleep(t *testing.T) {
	e, a := one(t, Options{}, AppConfig{})
	a.Place(serving(1))
	target := a.slot.Load().target
	target.gate.retireIfIdle() // TrySleep has come this far
	r := open(e)
	if d := e.Decide(r); d.Kind != Park {
		t.Fatalf("%+v", d)
	}
	a.Place(serving(1))
	if c := r.Park(t.Context()); c != CauseNone {
		t.Fatal(c)
	}
	if d := e.Decide(r); d.Kind != Proxy || d.Target == target {
		t.Fatalf("%+v", d)
	}
	end(e, r, Served)
	a.crowds.empty(target)
}

// W16: requests race with the app's falling asleep. Every one of them is either
// inside the target, which then does not sleep, or parks and is woken for.
func TestRequestsThatRaceWithSleepAreNeverLost(t *testing.T) {
	var starts atomic.Uint64
	w := make(chan struct{}, 1)
	e, a := one(t, Options{Waker: wakeFunc(func() {
		select {
		case w <- struct{}{}:
		default:
		}
	})}, AppConfig{})
	ctx, cancel := context.WithCancel(context.Background())
	a.Place(Placement{State: Asleep})
	var wg sync.WaitGroup
	wg.Go(func() { // the activator: wakes, and sleeps whenever it can
		gen := uint64(0)
		for {
			select {
			case <-ctx.Done():
				return
			case <-w:
				if a.Placed().State == Asleep {
					gen = starts.Add(1)
					a.Place(serving(gen))
				}
			default:
				a.TrySleep(gen, Placement{State: Asleep})
				runtime.Gosched()
			}
		}
	})
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			r := e.Open(&peer{})
			defer r.Close()
			for range 2000 {
				begin(r)
				if err := answer(ctx, e, r); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	clients.Wait()
	cancel()
	wg.Wait()
	if s := a.Stats(); s.Served != 8000 || s.Accepted != 8000 || s.Open() != 0 || s.Parked != 0 {
		t.Fatalf("%+v", s)
	}
	t.Logf("%d starts", starts.Load())
}

type wakeFunc func()

func (f wakeFunc) Wake(string) { f() }

// answer is what a front does with a request.
func answer(ctx context.Context, e *Edge, r *Request) error {
	for {
		switch d := e.Decide(r); d.Kind {
		case Proxy:
			end(e, r, Served)
			return nil
		case Park:
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			c := r.Park(ctx)
			cancel()
			if c != CauseNone {
				e.Finish(r, Result{Ending: Refused, Cause: c})
				return errors.New("parked and refused: " + c.String())
			}
		default:
			e.Finish(r, Result{Ending: Refused, Cause: d.Cause})
			return errors.New("refused: " + d.Cause.String())
		}
	}
}

func TestCutHitsTheGenerationAndNothingElse(t *testing.T) {
	e, a := one(t, Options{}, AppConfig{})
	a.Place(serving(1))
	p1, p2 := &peer{}, &peer{}
	r1, r2 := e.Open(p1), e.Open(p2)
	begin(r1)
	e.Decide(r1)
	a.Place(serving(2))
	begin(r2)
	e.Decide(r2)
	a.Cut(1)
	a.Cut(1)
	if p1.cuts.Load() != 1 || p2.cuts.Load() != 0 {
		t.Fatalf("cut %d and %d times", p1.cuts.Load(), p2.cuts.Load())
	}
	if !end(e, r1, Served) {
		t.Fatal("a cut request was finished as if nothing had been")
	}
	if end(e, r2, Served) {
		t.Fatal("an innocent request was called cut")
	}
	if s := a.Stats(); s.DrainCut != 1 || s.Failed != 1 || s.Served != 1 || s.Open() != 0 {
		t.Fatalf("%+v", s)
	}
	if !isClosed(a.Drained(1)) {
		t.Fatal("a cut request still counts")
	}
}

func TestStreamsAreEndedSpreadOverTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{}, AppConfig{})
		a.Place(serving(1))
		began := time.Now()
		var mu sync.Mutex
		var ended []time.Duration
		var lanes []*Request
		stream := func() {
			r := open(e)
			e.Decide(r)
			r.Streaming(func(Haste) {
				mu.Lock()
				defer mu.Unlock()
				ended = append(ended, time.Since(began))
			})
			lanes = append(lanes, r)
		}
		for range 4 {
			stream()
		}
		if s := a.Stats(); s.Streams != 4 || s.InFlight != 4 {
			t.Fatalf("%+v", s)
		}
		a.Place(serving(2))
		a.CloseStreams(1, 5*time.Second)
		time.Sleep(1500 * time.Millisecond) // synctest: no real time passes
		stream()                            // on generation 2: not meant
		synctest.Wait()
		mu.Lock()
		if len(ended) != 2 {
			t.Errorf("%d streams ended after 1.5 of 5 s, want 2: %v", len(ended), ended)
		}
		mu.Unlock()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(ended) < 4 || ended[3] > 5*time.Second {
			t.Errorf("ended at %v", ended)
		}
		for i, r := range lanes {
			if cut := end(e, r, Served); cut {
				t.Errorf("stream %d was cut", i)
			}
		}
		if s := a.Stats(); s.Streams != 0 || s.InFlight != 0 {
			t.Fatalf("%+v", s)
		}
	})
}

// S01: a change of other apps, or of an app's settings, touches no connection.
func TestSetAppsKeepsTargetsOfAppsThatStay(t *testing.T) {
	e := New(Options{})
	t.Cleanup(e.Close)
	set := func(cfgs ...AppConfig) {
		t.Helper()
		if err := e.SetApps(cfgs); err != nil {
			t.Fatal(err)
		}
	}
	set(AppConfig{Name: "app", Hosts: []string{"app.test"}}, AppConfig{Name: "b", Hosts: []string{"b.test"}})
	a, b := e.App("app"), e.App("b")
	a.Place(serving(1))
	b.Place(serving(7))
	r, q := open(e), open(e)
	q.Host = []byte("b.test")
	target := e.Decide(r).Target
	e.Decide(q)
	set(AppConfig{Name: "app", Hosts: []string{"other.test"}, MaxBody: 5})
	if e.App("app") != a || e.App("b") != nil || target.Retired() {
		t.Fatal("an app that stays was touched, or one that left is still there")
	}
	if isClosed(b.Drained(7)) {
		t.Fatal("a removed app must drain")
	}
	end(e, q, Served)
	if !isClosed(b.Drained(7)) {
		t.Fatal("a removed app does not drain")
	}
	end(e, r, Served)
	begin(r)
	if d := e.Decide(r); d.Cause != CauseNoSuchHost {
		t.Fatalf("the old host is still routed: %+v", d)
	}
	end(e, r, Refused)
	begin(r)
	r.Host = []byte("other.test")
	if d := e.Decide(r); d.Target != target || r.Config().MaxBody != 5 {
		t.Fatal("the target was not kept, or the settings did not change")
	}
	end(e, r, Served)
}

func TestRemoveTakesTheAppOutAndLetsWhatIsInsideFinish(t *testing.T) {
	e, a := one(t, Options{}, AppConfig{})
	a.Place(serving(1))
	r := open(e)
	e.Decide(r)
	a.Remove()
	q := open(e)
	if d := e.Decide(q); d.Cause != CauseNoSuchHost || e.App("app") != nil {
		t.Fatalf("%+v", d)
	}
	end(e, q, Refused)
	a.Place(serving(2))
	if a.Placed().State != Removed {
		t.Fatal("a removed app was placed again")
	}
	if end(e, r, Served); !isClosed(a.Drained(1)) {
		t.Fatal("not drained")
	}
}

func TestRetryGivesTheTargetBack(t *testing.T) {
	e, a := one(t, Options{}, AppConfig{})
	a.Place(serving(1))
	r := open(e)
	e.Decide(r)
	if !r.Retry() || a.Activity().InFlight != 0 || r.Retries() != 1 {
		t.Fatal("the target was not given back")
	}
	a.Place(serving(2))
	if d := e.Decide(r); d.Target.Generation() != 2 {
		t.Fatal("the retry did not decide from the top")
	}
	end(e, r, Served)
	if s := a.Stats(); s.Accepted != 1 || s.Served != 1 || s.Retries != 1 {
		t.Fatalf("a retry is no second request: %+v", s)
	}
}

func TestARetryWaitsForNewsOfItsApp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{}, AppConfig{})
		a.Place(serving(1))
		r := open(e)
		e.Decide(r)
		r.Retry()
		time.AfterFunc(30*time.Millisecond, func() { a.Place(Placement{State: Waking}) })
		began := time.Now()
		r.AwaitChange(t.Context(), 100*time.Millisecond)
		if d := time.Since(began); d != 30*time.Millisecond {
			t.Fatalf("waited %v", d)
		}
		e.Decide(r)
		began = time.Now()
		r.AwaitChange(t.Context(), 100*time.Millisecond)
		if d := time.Since(began); d != 100*time.Millisecond {
			t.Fatalf("waited %v", d)
		}
		end(e, r, Refused)
	})
}

func TestLogHearsEveryRequestOnce(t *testing.T) {
	var got []Entry
	e, a := one(t, Options{Log: func(n *Entry) { got = append(got, *n) }}, AppConfig{})
	a.Place(Placement{State: Down, Revision: 3, Reason: "exit status 1"})
	r := open(e)
	d := e.Decide(r)
	res := Result{Ending: Refused, Cause: d.Cause, Status: 503}
	e.Finish(r, res)
	e.Finish(r, res)
	r.Begin(time.Now())
	e.Finish(r, Result{Ending: Refused, Cause: CauseBadRequest, Status: 400})
	if len(got) != 2 {
		t.Fatalf("%d entries", len(got))
	}
	if n := got[0]; n.App != "app" || n.Reason != "exit status 1" || n.Revision != 3 || n.Result.Cause != CauseWakeFailed {
		t.Errorf("%+v", n)
	}
	if n := got[1]; n.App != "" || n.Result.Status != 400 {
		t.Errorf("%+v", n)
	}
	if u := e.Unrouted(); u.Accepted != 1 || u.Refused != 1 || e.Accepted() != 2 {
		t.Errorf("%+v, %d accepted", u, e.Accepted())
	}
}

// A lane keeps the entry, so a field that nobody sets would be the last request's.
func TestAnEntryHasNothingOfTheOneBefore(t *testing.T) {
	var got *Entry
	e, _ := one(t, Options{Log: func(n *Entry) { got = n }}, AppConfig{})
	r := open(e)
	r.Begin(time.Now())
	e.Finish(r, Result{})
	fields := reflect.ValueOf(got).Elem()
	for i := range fields.NumField() {
		switch f := fields.Field(i); f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Slice:
			f.Set(reflect.ValueOf([]byte("x")))
		case reflect.Int, reflect.Int64:
			f.SetInt(1)
		case reflect.Uint8, reflect.Uint64:
			f.SetUint(1)
		}
	}
	r = &Request{edge: e, entry: *got}
	r.entry.Time, r.entry.Header, r.entry.Result = time.Now(), headerOf("x"), Result{Status: 200}
	r.Begin(time.Time{})
	e.log(r, Result{}, 0)
	if !reflect.DeepEqual(r.entry, Entry{}) {
		t.Errorf("%+v", r.entry)
	}
}

type headerOf string

func (h headerOf) Get(string) []byte              { return []byte(h) }
func (h headerOf) Each(string, func([]byte) bool) {}

var (
	benchGet  = []byte("GET")
	benchHost = []byte("app.test")
	benchPath = []byte("/")
)

// begin2 is begin without allocations.
func begin2(r *Request) {
	r.Begin(time.Now())
	r.Method, r.Host, r.Path, r.Target = benchGet, benchHost, benchPath, benchPath
}

func BenchmarkDecideFinish(b *testing.B) {
	e, a := one(b, Options{}, AppConfig{})
	a.Place(serving(1))
	r := open(e)
	end(e, r, Served)
	b.ReportAllocs()
	for b.Loop() {
		begin2(r)
		e.Decide(r)
		e.Finish(r, Result{Ending: Served, Status: 200})
	}
}
