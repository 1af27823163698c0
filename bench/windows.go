package bench

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/usher-edge/usher/bench/stats"
)

// Kinds of windows.
const (
	WindowSwap   = "swap"   // two generations lived, or requests were held
	WindowBeside = "beside" // the same process was started beside the app, and nothing switched
)

// Window is a stretch of the run in which something lived beside the app.
type Window struct {
	Kind    string  `json:"kind"`
	Round   int     `json:"round"`    // from 1
	StartMS float64 `json:"start_ms"` // the change was asked for, the process was wanted
	LiveMS  float64 `json:"live_ms"`  // the new process was executed
	// SwitchMS is when the change was reported, or the process was told to stop.
	SwitchMS float64 `json:"switch_ms"`
	EndMS    float64 `json:"end_ms"` // the old generation, or the process, was gone
	Requests int     `json:"requests"`
	P50MS    float64 `json:"p50_ms"`
	P99MS    float64 `json:"p99_ms"`
	MaxMS    float64 `json:"max_ms"`
	// CPUMicros is usher's CPU time per request; 0: not known.
	CPUMicros float64 `json:"cpu_us_per_request,omitempty"`
	// OwnStopMS and OwnStartMS are what the app's process took by itself just
	// before a hold.
	OwnStopMS  float64 `json:"own_stop_ms,omitempty"`
	OwnStartMS float64 `json:"own_start_ms,omitempty"`

	own     []entry       // its requests
	cpu     time.Duration // usher's, all of it
	liveCPU time.Duration // since LiveMS
}

// Pinned says how swaps compare with what they are measured by.
type Pinned struct {
	Swaps int `json:"swaps"`
	// Overlap: figures of swap windows by those of the windows beside them, from
	// when two processes live.
	P99 *Pin `json:"p99,omitempty"`
	CPU *Pin `json:"cpu,omitempty"`
	// The same from when the swap was asked for, which have no bar.
	P99Asked *Pin `json:"p99_from_request,omitempty"`
	CPUAsked *Pin `json:"cpu_from_request,omitempty"`
	// SwapCPUMS is usher's CPU time in a swap window beyond what as many requests
	// cost it in the window beside: the price of one swap, however long its window.
	SwapCPUMS *stats.Spread `json:"swap_cpu_ms,omitempty"`
	// Lag is how late the load tool itself was in both kinds of windows, p99 in ms:
	// its own share of the latencies.
	Lag *Lag `json:"lag,omitempty"`
	// Hold: how long requests were parked.
	Hold *HoldPin `json:"hold,omitempty"`
}

// Lag compares the load tool's own share of latencies, ms.
type Lag struct {
	Swap   float64 `json:"swap"`
	Beside float64 `json:"beside"`
}

// Pin is a ratio with its bar. Swap and Beside are the figures of all windows of
// a kind together, ms or µs, and the ratio is one by the other: a window has a few
// hundred requests, so the p99 of one is little more than its slowest request.
// Bounds draw pairs of windows, and the spread is that of single pairs.
type Pin struct {
	Swap     float64 `json:"swap"`
	Beside   float64 `json:"beside"`
	Requests int     `json:"requests"` // of the swap windows
	stats.Spread
	Bar     float64       `json:"bar,omitempty"`     // 0: none
	Verdict stats.Verdict `json:"verdict,omitempty"` // empty: no bar
}

// HoldPin compares the wait of requests with what the app itself takes.
type HoldPin struct {
	ParkedP99MS float64       `json:"parked_p99_ms"` // from the sending to the answer, all swaps together
	PerSwap     stats.Spread  `json:"per_swap"`      // p99 of single windows, ms
	StopMS      stats.Spread  `json:"own_stop_ms"`   // of the app's process alone, once before each swap
	StartMS     stats.Spread  `json:"own_start_ms"`
	BeyondMS    stats.Spread  `json:"beyond_ms"` // p99 of a window beyond stop + start of its round
	Bar         float64       `json:"bar"`       // of it, ms
	Verdict     stats.Verdict `json:"verdict"`
}

// The bars of the overlap and the hold.
const (
	barP99  = 1.10
	barCPU  = 1.05
	barHold = 20 // ms beyond the app's own stop + start
)

// Missed counts the bars that a result misses.
func (r *Result) Missed() int {
	n := 0
	if p := r.Pinned; p != nil {
		for _, pin := range []*Pin{p.P99, p.CPU} {
			if pin != nil && pin.Verdict == stats.Missed {
				n++
			}
		}
		if p.Hold != nil && p.Hold.Verdict == stats.Missed {
			n++
		}
	}
	return n
}

// measure fills in what the account knows of a window's requests: those that
// were due in it. Of a hold it is those that were sent before it was reported,
// and their latency counts from there: what waited in the load tool for a
// connection was not parked.
func (w *Window) measure(a *account, hold bool) {
	w.own = nil
	for _, e := range a.entries {
		at, end := e.due, w.EndMS
		if hold {
			e.due, at, end = e.taken, e.taken, w.SwitchMS
		}
		if at := milliseconds(at); at >= w.StartMS && at < end {
			w.own = append(w.own, e)
		}
	}
	s := summarise(w.own)
	w.Requests, w.P50MS, w.P99MS, w.MaxMS = s.Requests, s.Latency.P50MS, s.Latency.P99MS, s.Latency.MaxMS
	if w.Requests > 0 {
		w.CPUMicros = micros(w.cpu) / float64(w.Requests)
	}
}

// pin compares the windows of an account.
func (a *account) pin(windows []Window, hold bool) *Pinned {
	var swaps []*Window
	for i := range windows {
		w := &windows[i]
		if w.measure(a, hold); w.Kind == WindowSwap {
			swaps = append(swaps, w)
		}
	}
	p := &Pinned{Swaps: len(swaps)}
	if hold {
		p.Hold = pinHold(swaps)
		return p
	}
	asked, live := pair(windows, (*Window).whole), pair(windows, (*Window).live)
	p.P99Asked, p.CPUAsked = asked.pin(0, pooledP99((*side).latency)), asked.pin(0, pooledCPU)
	p.P99, p.CPU = live.pin(barP99, pooledP99((*side).latency)), live.pin(barCPU, pooledCPU)
	if p.P99 != nil {
		lag, once := pooledP99((*side).lag), slices.Repeat([]int{1}, len(live.swaps))
		p.Lag = &Lag{Swap: lag(live.swaps)(once), Beside: lag(live.besides)(once)}
	}
	if p.CPUAsked != nil {
		price := stats.Of(prices(asked))
		p.SwapCPUMS = &price
	}
	return p
}

// side is what counts of one window of a pair.
type side struct {
	own      []entry // none that was cut
	requests int
	cpu      time.Duration
}

// whole is all of a window.
func (w *Window) whole() *side { return w.from(w.StartMS, w.cpu) }

// live is the part of a window in which two processes lived.
func (w *Window) live() *side { return w.from(w.LiveMS, w.liveCPU) }

func (w *Window) from(start float64, cpu time.Duration) *side {
	s := &side{cpu: cpu}
	for _, e := range w.own {
		if milliseconds(e.due) < start {
			continue
		}
		if s.requests++; e.kind != Cut {
			s.own = append(s.own, e)
		}
	}
	return s
}

func (s *side) latency(i int) time.Duration { return s.own[i].latency() }
func (s *side) lag(i int) time.Duration     { return s.own[i].taken - s.own[i].free }

// pairing holds the rounds whose both windows have requests.
type pairing struct{ swaps, besides []*side }

func pair(windows []Window, of func(*Window) *side) (p pairing) {
	swaps, besides := map[int]*side{}, map[int]*side{}
	for i := range windows {
		w := &windows[i]
		if w.Kind == WindowSwap {
			swaps[w.Round] = of(w)
		} else {
			besides[w.Round] = of(w)
		}
	}
	for _, round := range slices.Sorted(maps.Keys(swaps)) {
		s, b := swaps[round], besides[round]
		if b != nil && len(s.own) > 0 && len(b.own) > 0 {
			p.swaps, p.besides = append(p.swaps, s), append(p.besides, b)
		}
	}
	return p
}

// pooling makes a figure of windows of one kind together: it gets how often each
// of them is to count.
type pooling func([]*side) func(times []int) float64

// pin is nil if there is nothing to compare.
func (p pairing) pin(bar float64, figure pooling) *Pin {
	n := len(p.swaps)
	swap, beside := figure(p.swaps), figure(p.besides)
	ratio := func(times []int) float64 { return swap(times) / beside(times) }
	once := slices.Repeat([]int{1}, n)
	if n == 0 || beside(once) == 0 {
		return nil
	}
	pin := &Pin{Swap: swap(once), Beside: beside(once), Spread: stats.Resampled(n, ratio), Bar: bar}
	pin.Least, pin.Most = p.singles(ratio)
	for _, s := range p.swaps {
		pin.Requests += s.requests
	}
	if bar > 0 {
		pin.Verdict = pin.Against(bar)
	}
	return pin
}

// singles are the least and the most that the ratio is in single pairs.
func (p pairing) singles(ratio func(times []int) float64) (least, most float64) {
	times := make([]int, len(p.swaps))
	for i := range times {
		clear(times)
		times[i] = 1
		r := ratio(times)
		if i == 0 {
			least, most = r, r
		}
		least, most = min(least, r), max(most, r)
	}
	return least, most
}

// pooledP99 is the 99th percentile of that of all requests, ms.
func pooledP99(of func(s *side, i int) time.Duration) pooling {
	type slow struct {
		took time.Duration
		side int
	}
	return func(sides []*side) func(times []int) float64 {
		var all []slow // slowest first
		for i, s := range sides {
			for k := range s.own {
				all = append(all, slow{of(s, k), i})
			}
		}
		slices.SortFunc(all, func(a, b slow) int { return cmp.Compare(b.took, a.took) })
		return func(times []int) float64 {
			total, beyond := 0, 0
			for i, s := range sides {
				total += times[i] * len(s.own)
			}
			for _, s := range all {
				if beyond += times[s.side]; 100*beyond > total {
					return milliseconds(s.took)
				}
			}
			return 0
		}
	}
}

// pooledCPU is usher's CPU time per request, µs.
func pooledCPU(sides []*side) func(times []int) float64 {
	return func(times []int) float64 {
		var cpu time.Duration
		requests := 0
		for i, s := range sides {
			cpu += time.Duration(times[i]) * s.cpu
			requests += times[i] * s.requests
		}
		return micros(cpu) / float64(max(requests, 1))
	}
}

// prices are what the swaps cost beyond their requests, ms of CPU time.
func prices(p pairing) (all []float64) {
	for i, swap := range p.swaps {
		beside := p.besides[i]
		all = append(all, milliseconds(swap.cpu)-milliseconds(beside.cpu)*float64(swap.requests)/float64(beside.requests))
	}
	return all
}

func pinHold(swaps []*Window) *HoldPin {
	var perSwap, stops, starts, beyond []float64
	var parked []entry
	for _, w := range swaps {
		parked = append(parked, w.own...)
		stops, starts = append(stops, w.OwnStopMS), append(starts, w.OwnStartMS)
		if w.Requests > 0 {
			perSwap, beyond = append(perSwap, w.P99MS), append(beyond, w.P99MS-w.OwnStopMS-w.OwnStartMS)
		}
	}
	h := &HoldPin{
		ParkedP99MS: summarise(parked).Latency.P99MS, PerSwap: stats.Of(perSwap),
		StopMS: stats.Of(stops), StartMS: stats.Of(starts), BeyondMS: stats.Of(beyond), Bar: barHold,
	}
	h.Verdict = h.BeyondMS.Against(barHold)
	return h
}
