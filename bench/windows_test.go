package bench

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/usher-edge/usher/bench/stats"
)

// evenAccount has a request each millisecond, whose latency is what f says.
func evenAccount(n int, f func(ms int) time.Duration) account {
	a := account{elapsed: time.Duration(n) * time.Millisecond}
	for i := range n {
		at := time.Duration(i) * time.Millisecond
		a.entries = append(a.entries, entry{due: at, record: record{kind: Served, status: 200, free: at, taken: at, ended: at + f(i)}})
	}
	return a
}

func windowOf(kind string, round int, start, end float64, cpu time.Duration) Window {
	return Window{Kind: kind, Round: round, StartMS: start, LiveMS: start, SwitchMS: (start + end) / 2, EndMS: end, cpu: cpu, liveCPU: cpu}
}

// The bars are for the time in which two processes live; what usher does before it
// executes the second one is told beside them.
func TestTheBarsCountFromWhenTwoProcessesLive(t *testing.T) {
	a := evenAccount(2000, func(ms int) time.Duration {
		if ms%400 < 20 {
			return 8 * time.Millisecond
		}
		return 2 * time.Millisecond
	})
	var windows []Window
	for round := range 5 {
		at := float64(round * 400)
		w := windowOf(WindowSwap, round+1, at, at+100, 3*time.Millisecond)
		w.LiveMS, w.liveCPU = at+20, 1600*time.Microsecond
		windows = append(windows, w, windowOf(WindowBeside, round+1, at+200, at+300, 2*time.Millisecond))
	}
	p := a.pin(windows, false)
	if p.P99.Median != 1 || p.P99.Requests != 400 || p.CPU.Median != 1 || p.CPU.Verdict != stats.Met {
		t.Errorf("while two live: p99 %+v, CPU %+v", p.P99, p.CPU)
	}
	if p.P99Asked.Median != 4 || p.P99Asked.Requests != 500 || p.CPUAsked.Median != 1.5 || p.CPUAsked.Verdict != "" || p.SwapCPUMS.Median != 1 {
		t.Errorf("from the request: p99 %+v, CPU %+v, the swap itself %+v", p.P99Asked, p.CPUAsked, p.SwapCPUMS)
	}
	if r := (Result{Pinned: p}); r.Missed() != 0 {
		t.Errorf("%d missed: what has no bar cannot miss it", r.Missed())
	}
	var text strings.Builder
	p.lines(&text)
	mustContain(t, "text", text.String(), "from the request: p99 ms", "8.00", "none")
}

func TestSpendingIsToldFromAnyInstant(t *testing.T) {
	begun := time.Now()
	s := &spending{
		begun: begun, at: []time.Duration{0, 10 * time.Millisecond, 20 * time.Millisecond},
		used: []time.Duration{time.Second, 1004 * time.Millisecond, 1005 * time.Millisecond},
	}
	for at, want := range map[int]time.Duration{-5: 5000, 0: 5000, 5: 3000, 10: 1000, 15: 500, 20: 0, 30: 0} {
		if got := s.since(begun.Add(time.Duration(at) * time.Millisecond)); got != want*time.Microsecond {
			t.Errorf("from %d ms: %s, want %d µs", at, got, want)
		}
	}
	calls, broken := 0, errors.New("gone")
	s = follow(func() (time.Duration, error) { calls++; return 0, broken })
	if err := s.stop(); !errors.Is(err, broken) || calls != 1 {
		t.Errorf("after %d looks: %v", calls, err)
	}
}

func TestAnOverlapIsPinnedByPairsOfWindows(t *testing.T) {
	// Twice as slow in swaps, and nothing of what is between windows counts.
	a := evenAccount(2000, func(ms int) time.Duration {
		switch ms % 400 {
		case 350:
			return time.Second
		default:
			if ms%400 < 150 {
				return 4 * time.Millisecond
			}
			return 2 * time.Millisecond
		}
	})
	var windows []Window
	for round := range 5 {
		at := float64(round * 400)
		windows = append(windows, windowOf(WindowSwap, round+1, at, at+100, 3*time.Millisecond),
			windowOf(WindowBeside, round+1, at+200, at+300, 2*time.Millisecond))
	}
	p := a.pin(windows, false)
	if p.Swaps != 5 || p.Hold != nil || p.P99 == nil || p.CPU == nil {
		t.Fatalf("%+v", p)
	}
	if p.P99.Median < 1.99 || p.P99.Median > 2.01 || p.P99.Verdict != stats.Missed || p.P99.Swap < 3.99 || p.P99.Beside > 2.01 {
		t.Errorf("p99 %+v", p.P99)
	}
	if p.CPU.Median != 1.5 || p.CPU.Swap != 30 || p.CPU.Beside != 20 || p.CPU.Of != 5 || p.CPU.Verdict != stats.Missed {
		t.Errorf("CPU %+v", p.CPU)
	}
	// Each of 100 requests costs 20 µs, so of 3 ms one is the swap's.
	if p.SwapCPUMS == nil || p.SwapCPUMS.Median != 1 || p.SwapCPUMS.Of != 5 {
		t.Errorf("the swap itself %+v", p.SwapCPUMS)
	}
	if windows[0].Requests != 100 || windows[0].CPUMicros != 30 {
		t.Errorf("window %+v", windows[0])
	}
	r := Result{Pinned: p}
	if r.Missed() != 2 {
		t.Errorf("%d missed", r.Missed())
	}
}

// A window is too short for a p99 of its own: it would be its slowest request.
func TestTheSlowestRequestsOfOneWindowDecideNothing(t *testing.T) {
	slow := map[int]bool{10: true, 11: true} // two of the hundred of one window, of the five hundred of all
	a := evenAccount(2000, func(ms int) time.Duration {
		if slow[ms] {
			return time.Second
		}
		return 2 * time.Millisecond
	})
	for i := range a.entries[:50] {
		a.entries[i].taken += 7 * time.Millisecond // the load tool was late
	}
	var windows []Window
	for round := range 5 {
		at := float64(round * 400)
		windows = append(windows, windowOf(WindowSwap, round+1, at, at+100, 0), windowOf(WindowBeside, round+1, at+200, at+300, 0))
	}
	windows = append(windows, windowOf(WindowSwap, 6, 0, 100, 0)) // its pair was cut short
	p := a.pin(windows, false)
	if p.P99 == nil || p.P99.Median != 1 || p.P99.Verdict != stats.Met || p.P99.Most < 100 || p.P99.Requests != 500 {
		t.Errorf("p99 %+v", p.P99)
	}
	if p.CPU != nil || p.Lag == nil || *p.Lag != (Lag{Swap: 7, Beside: 0}) {
		t.Errorf("CPU %+v, lag %+v", p.CPU, p.Lag)
	}
	for i := range a.entries {
		if i%50 < 2 { // now in every window
			a.entries[i].ended = a.entries[i].due + time.Second
		}
	}
	if p := a.pin(windows, false); p.P99.Swap < 999 || p.P99.Beside < 999 {
		t.Errorf("p99 %+v", p.P99)
	}
}

func TestAHoldIsJudgedByTheAppsOwnTimesInTheSameRound(t *testing.T) {
	for _, tc := range []struct {
		beyond time.Duration
		want   stats.Verdict
	}{{0, stats.Met}, {19 * time.Millisecond, stats.Met}, {22 * time.Millisecond, stats.Missed}} {
		// Each round takes the machine longer than the one before.
		own := func(round int) time.Duration { return time.Duration(50*(round+1)) * time.Millisecond }
		a := evenAccount(6*300, func(ms int) time.Duration { return own(ms/300) + tc.beyond })
		for i := range a.entries {
			// Waiting in the load tool is not being parked.
			a.entries[i].due -= time.Second
		}
		var windows []Window
		for round := range 6 {
			w := windowOf(WindowSwap, round+1, float64(round*300), float64(round*300+200), 0)
			w.OwnStopMS, w.OwnStartMS = 10, milliseconds(own(round))-10
			windows = append(windows, w)
		}
		p := a.pin(windows, true)
		if h := p.Hold; p.P99 != nil || p.SwapCPUMS != nil || h == nil || h.Verdict != tc.want || h.BeyondMS.Of != 6 ||
			math.Abs(h.BeyondMS.Median-milliseconds(tc.beyond)) > 1 || h.StopMS.Median != 10 || h.StartMS.Most != 290 {
			t.Errorf("%s: %+v", tc.beyond, h)
		}
		if windows[0].Requests != 100 {
			t.Errorf("%d requests of the window: those until the report count", windows[0].Requests)
		}
	}
}

func TestBeforeEachHoldTheProcessIsStartedAlone(t *testing.T) {
	u := newFakeUsher(30 * time.Millisecond)
	plan := swapPlan(t, u)
	plan.Lead, plan.Tail, plan.Swaps = 30*time.Millisecond, 10*time.Millisecond, 3
	// Each hold parks a request that was sent in it: the only one of its connection.
	plan.Load.Connections = 1
	u.ripe = func() bool { return u.parked == 1 }
	var alone time.Duration
	plan.Alone = func(context.Context) (OwnTimes, error) {
		alone += time.Millisecond
		return OwnTimes{Start: 10 * alone, Stop: alone}, nil
	}
	result, err := Swap(testContext(t), u, plan)
	if err != nil {
		t.Fatal(err)
	}
	wantFailures(t, result, nil)
	for i, w := range result.Windows {
		if n := float64(i + 1); w.Kind != WindowSwap || w.OwnStopMS != n || w.OwnStartMS != 10*n {
			t.Errorf("window %d: %+v", i, w)
		}
	}
	if h := result.Pinned.Hold; h == nil || h.BeyondMS.Of != 3 || h.StartMS.Most != 30 || h.Verdict == "" {
		t.Errorf("hold %+v", h)
	}
	var text bytes.Buffer
	if err := result.WriteText(&text); err != nil {
		t.Error(err)
	}
	mustContain(t, "text", text.String(), "3 swaps by hold", "parked p99 ms", "beyond stop + start", "≤ 20")
}

func TestManySwapsAreComparedWithWindowsBesideThem(t *testing.T) {
	u := newFakeUsher(30 * time.Millisecond)
	plan := swapPlan(t, u)
	plan.Lead, plan.Tail = 50*time.Millisecond, 30*time.Millisecond
	plan.Swaps = 3
	plan.Twin = findTwin(t, app(t, "serves", "PORT=0"))
	var cpu time.Duration
	plan.CPU = func() (time.Duration, error) { cpu += time.Millisecond; return cpu, nil }
	result, err := Swap(testContext(t), u, plan)
	if err != nil {
		t.Fatal(err)
	}
	wantFailures(t, result, nil)
	var order []string
	for i, w := range result.Windows {
		order = append(order, w.Kind)
		if w.Round != i/2+1 || w.EndMS <= w.StartMS || w.SwitchMS < w.StartMS || w.LiveMS < w.StartMS || w.LiveMS > w.EndMS || i > 0 && w.StartMS < result.Windows[i-1].EndMS || w.CPUMicros <= 0 {
			t.Errorf("window %d: %+v", i, w)
		}
	}
	if got := strings.Join(order, " "); got != "swap beside beside swap swap beside" {
		t.Errorf("windows: %s", got)
	}
	if p := result.Pinned; p == nil || p.Swaps != 3 || p.P99.Of != 3 || p.CPU.Of != 3 {
		t.Errorf("pinned %+v", p)
	}
	names := map[string]int{}
	sum := 0
	for _, p := range result.Phases {
		names[p.Name]++
		sum += p.Requests
	}
	if len(names) != 4 || names[PhaseBeside] != 1 || names[PhaseDuring] != 1 || sum != result.Total.Requests {
		t.Errorf("phases %v, %d requests of %d", names, sum, result.Total.Requests)
	}
	if result.Change.To != 4 {
		t.Errorf("change %+v", result.Change)
	}
	var text, page bytes.Buffer
	if err := result.WriteText(&text); err != nil {
		t.Error(err)
	}
	if err := result.WriteHTML(&page); err != nil {
		t.Error(err)
	}
	mustContain(t, "text", text.String(), "3 swaps, each with a window beside it", "p99 ms", "CPU µs/request", "≤ 1.05", "ms on a swap itself")
	mustContain(t, "page", page.String(), "Latency through 3 swaps", `class="window beside"`, "3 swaps, each with")
}

func TestAnAnswerFromAnEarlierRoundsGenerationIsAFailure(t *testing.T) {
	u := newFakeUsher(time.Millisecond)
	plan := swapPlan(t, u)
	plan.Lead, plan.Tail, plan.Swaps = 60*time.Millisecond, 10*time.Millisecond, 2
	plan.Load.Connections = 1 // so that requests are sent in the order in which they are due
	plan.Alone = func(context.Context) (OwnTimes, error) { return OwnTimes{}, nil }
	var swaps atomic.Int64
	change := plan.Change
	plan.Change = func(ctx context.Context, run *Run) error {
		if err := u.settled(ctx, run); err != nil {
			return err
		}
		if swaps.Add(1) == 2 {
			u.mu.Lock()
			u.stale = false
			u.mu.Unlock()
		}
		return change(ctx, run)
	}
	status := staleAfter{u, &swaps}
	result, err := Swap(testContext(t), status, plan)
	if err != nil {
		t.Fatal(err)
	}
	// The fake lies from its first swap on: to the rest of that round, and to the
	// second one before its swap.
	if p := result.Phases[0]; p.Name != PhaseBefore || p.Failures["wrong_generation"] == 0 {
		t.Errorf("%s: %v", p.Name, p.Failures)
	}
}

// staleAfter makes the fake answer by the old name once its first swap is over.
type staleAfter struct {
	*fakeUsher
	swaps *atomic.Int64
}

func (s staleAfter) Status(ctx context.Context, app string) (State, error) {
	state, err := s.fakeUsher.Status(ctx, app)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale = s.swaps.Load() == 1
	return state, err
}

func TestSaturationIsWhatIsAnsweredAndNotWhatIsAsked(t *testing.T) {
	const connections, takes = 4, 5 * time.Millisecond
	rate, seen, err := saturate(t, connections, func(http.ResponseWriter, *http.Request) { <-time.After(takes) })
	most := connections / takes.Seconds()
	if err != nil || rate.perSecond > most || rate.answered > seen || rate.answered < seen-connections {
		t.Errorf("%+v, the server saw %d, want %g/s at most over %d connections whose answers take %s; %v", rate, seen, most, connections, takes, err)
	}
	if rate, _, err := saturate(t, connections, http.NotFound); err == nil || !strings.Contains(err.Error(), "status_404") {
		t.Errorf("%+v, %v", rate, err)
	}
}

type saturation struct {
	perSecond float64
	answered  int
}

// saturate gives a server more and more time until something was answered.
func saturate(t *testing.T, connections int, h http.HandlerFunc) (rate saturation, seen int, err error) {
	t.Helper()
	for d := time.Second / 2; d < limit; d *= 2 {
		var n atomic.Int64
		target := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { n.Add(1); h(w, r) }))
		rate.perSecond, err = Saturation(t.Context(), Load{Targets: []Target{target}, Connections: connections}, d)
		if err == nil || !strings.Contains(err.Error(), "no request was answered") {
			return saturation{rate.perSecond, int(math.Round(rate.perSecond * d.Seconds()))}, int(n.Load()), err
		}
	}
	return rate, 0, err
}
