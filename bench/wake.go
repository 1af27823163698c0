package bench

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// WakePlan says how often an app is put to sleep and woken.
type WakePlan struct {
	App string
	// Load says where and what to send; its Rate, Duration, Arrivals and
	// Connections are not used.
	Load Load
	// Rounds is how many times; 0 means 10.
	Rounds int
	// Burst is how many requests come together in each round, each on its own
	// connection; 0 means 1.
	Burst int
	// SleepLimit is the longest that falling asleep may take; 0 means 30 s.
	SleepLimit time.Duration
}

// WakeRound is one sleep and the requests that ended it.
type WakeRound struct {
	AtMS       float64 `json:"at_ms"`
	FirstMS    float64 `json:"first_ms"`   // latency of the request that ended first
	SlowestMS  float64 `json:"slowest_ms"` // and of the one that ended last
	Failed     int     `json:"failed"`
	Generation uint64  `json:"generation"` // that answered; 0 = none or unknown
	// ParkedSeen is the most parked requests that a look at the status saw
	// during the wake, every 10 ms.
	ParkedSeen int `json:"parked_seen"`
}

func (p WakePlan) withDefaults() WakePlan {
	if p.Rounds == 0 {
		p.Rounds = 10
	}
	if p.Burst == 0 {
		p.Burst = 1
	}
	if p.SleepLimit == 0 {
		p.SleepLimit = 30 * time.Second
	}
	p.Load.Phase = PhaseWake
	p.Load.Connections = p.Burst
	// A burst is due at once; these only describe it.
	p.Load.Rate = float64(p.Burst)
	p.Load.Duration = time.Second
	return p
}

// Wake puts an app to sleep and wakes it with a request, or a burst of them,
// again and again. The latency of the result is that of the waking requests.
// An error means that a round could not be begun (the app would not sleep) or
// that ctx ended; the rounds before it are in the result.
func Wake(ctx context.Context, admin Admin, plan WakePlan) (*Result, error) {
	plan = plan.withDefaults()
	load := plan.Load.withDefaults()
	if err := load.validate(); err != nil {
		return nil, err
	}
	if plan.Rounds < 1 || plan.Burst < 1 {
		return nil, fmt.Errorf("wake: %d rounds of %d requests: want at least 1 of each", plan.Rounds, plan.Burst)
	}
	total := account{
		scenario: PhaseWake, load: load, started: time.Now(),
		phases: []phaseStart{{name: PhaseWake}},
	}
	var rounds []WakeRound
	var err error
	for i := 0; i < plan.Rounds && err == nil; i++ {
		var round WakeRound
		if round, err = wakeOnce(ctx, admin, plan, &total); err == nil {
			rounds = append(rounds, round)
		}
	}
	result := total.result()
	result.Rounds = rounds
	result.Load.Rate, result.Load.Burst = 0, plan.Burst
	return result, err
}

func wakeOnce(ctx context.Context, admin Admin, plan WakePlan, total *account) (WakeRound, error) {
	if err := fallAsleep(ctx, admin, plan); err != nil {
		return WakeRound{}, err
	}
	watch := &watcher{admin: admin, app: plan.App}
	stopWatching := watch.start(ctx)
	defer stopWatching()
	run, err := startSchedule(ctx, total.load, make([]time.Duration, plan.Burst))
	if err != nil {
		return WakeRound{}, err
	}
	if _, err := run.Wait(context.WithoutCancel(ctx)); err != nil {
		return WakeRound{}, err
	}
	stopWatching()
	part := run.account()
	part.shift(part.started.Sub(total.started))
	total.join(part)
	round := newWakeRound(part)
	round.ParkedSeen = int(watch.parked.Load())
	return round, ctx.Err()
}

// fallAsleep asks for sleep and looks until the status says so.
func fallAsleep(ctx context.Context, admin Admin, plan WakePlan) error {
	ctx, cancel := context.WithTimeout(ctx, plan.SleepLimit)
	defer cancel()
	if err := admin.Sleep(ctx, plan.App); err != nil {
		return fmt.Errorf("put %s to sleep: %w", plan.App, err)
	}
	for {
		state, err := admin.Status(ctx, plan.App)
		switch {
		case err != nil:
			return fmt.Errorf("status of %s: %w", plan.App, err)
		case state.Phase == StateAsleep:
			return nil
		}
		if err := pause(ctx, watchEvery); err != nil {
			return fmt.Errorf("put %s to sleep: still %s after %s (stop other clients of it first): %w",
				plan.App, state.Phase, plan.SleepLimit, err)
		}
	}
}

func newWakeRound(part account) WakeRound {
	ended := slices.SortedFunc(slices.Values(part.entries), func(a, b entry) int { return cmp.Compare(a.ended, b.ended) })
	round := WakeRound{}
	for i := range ended {
		e := &ended[i]
		if e.kind.Failed() {
			round.Failed++
		}
		round.Generation = max(round.Generation, e.generation)
	}
	if len(ended) > 0 {
		round.AtMS = milliseconds(ended[0].due)
		round.FirstMS = milliseconds(ended[0].latency())
		round.SlowestMS = milliseconds(ended[len(ended)-1].latency())
	}
	return round
}

// shift moves an account to a clock that started by earlier.
func (a *account) shift(by time.Duration) {
	for i := range a.entries {
		e := &a.entries[i]
		e.due += by
		if e.kind != Cut {
			e.free, e.taken, e.ended = e.free+by, e.taken+by, e.ended+by
		}
	}
	for i := range a.samples {
		a.samples[i].AtMS += milliseconds(by)
	}
	for i := range a.phases {
		a.phases[i].at += by
	}
	for i := range a.marks {
		a.marks[i].AtMS += milliseconds(by)
	}
	a.elapsed += by
}

// join appends a later account that is already on this one's clock.
func (a *account) join(b account) {
	a.entries = append(a.entries, b.entries...)
	a.elapsed = max(a.elapsed, b.elapsed)
	a.samples = append(a.samples, b.samples...)
	if len(a.samples) > sampleLimit {
		a.samples = a.samples[:sampleLimit]
	}
}
