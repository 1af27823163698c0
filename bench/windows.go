package bench

import (
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
	StartMS float64 `json:"start_ms"` // the change was asked for, the process was started
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

	cpu time.Duration
}

// Pinned says how swaps compare with what they are measured by.
type Pinned struct {
	Swaps int `json:"swaps"`
	// Overlap: figures of swap windows by those of the windows beside them.
	P99 *Pin `json:"p99,omitempty"`
	CPU *Pin `json:"cpu,omitempty"`
	// SwapCPUMS is usher's CPU time in a swap window beyond what as many requests
	// cost it in the window beside: the price of one swap, however long its window.
	SwapCPUMS *stats.Spread `json:"swap_cpu_ms,omitempty"`
	// Hold: how long requests were parked.
	Hold *HoldPin `json:"hold,omitempty"`
}

// Pin is a ratio with its bar. Swap and Beside are the figures of all windows of
// a kind together, ms or µs; the ratio is of pairs.
type Pin struct {
	Swap   float64 `json:"swap"`
	Beside float64 `json:"beside"`
	stats.Spread
	Bar     float64       `json:"bar"`
	Verdict stats.Verdict `json:"verdict"`
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
func (w *Window) measure(a *account, hold bool) []entry {
	var own []entry
	for _, e := range a.entries {
		at, end := e.due, w.EndMS
		if hold {
			e.due, at, end = e.taken, e.taken, w.SwitchMS
		}
		if at := milliseconds(at); at >= w.StartMS && at < end {
			own = append(own, e)
		}
	}
	s := summarise(own)
	w.Requests, w.P50MS, w.P99MS, w.MaxMS = s.Requests, s.Latency.P50MS, s.Latency.P99MS, s.Latency.MaxMS
	if w.Requests > 0 {
		w.CPUMicros = float64(w.cpu.Nanoseconds()) / 1000 / float64(w.Requests)
	}
	return own
}

// pin compares the windows of an account.
func (a *account) pin(windows []Window, hold bool) *Pinned {
	all := map[string][]entry{}
	cpu := map[string]time.Duration{}
	rounds := map[string]map[int]*Window{WindowSwap: {}, WindowBeside: {}}
	p := &Pinned{}
	for i := range windows {
		w := &windows[i]
		all[w.Kind] = append(all[w.Kind], w.measure(a, hold)...)
		cpu[w.Kind] += w.cpu
		rounds[w.Kind][w.Round] = w
	}
	p.Swaps = len(rounds[WindowSwap])
	if hold {
		p.Hold = pinHold(summarise(all[WindowSwap]), rounds[WindowSwap])
		return p
	}
	pooled := func(kind string) (p99, micros float64) {
		n := len(all[kind])
		return summarise(all[kind]).Latency.P99MS, float64(cpu[kind].Nanoseconds()) / 1000 / float64(max(n, 1))
	}
	swapP99, swapCPU := pooled(WindowSwap)
	besideP99, besideCPU := pooled(WindowBeside)
	p.P99 = newPin(swapP99, besideP99, barP99, pairs(rounds, func(w *Window) float64 { return w.P99MS }))
	p.CPU = newPin(swapCPU, besideCPU, barCPU, pairs(rounds, func(w *Window) float64 { return w.CPUMicros }))
	if p.CPU != nil {
		price := stats.Of(prices(rounds))
		p.SwapCPUMS = &price
	}
	return p
}

func newPin(swap, beside, bar float64, ratios []float64) *Pin {
	if len(ratios) == 0 {
		return nil
	}
	pin := &Pin{Swap: swap, Beside: beside, Spread: stats.Of(ratios), Bar: bar}
	pin.Verdict = pin.Against(bar)
	return pin
}

// pairs are the ratios of rounds whose both windows have the figure.
func pairs(rounds map[string]map[int]*Window, figure func(*Window) float64) (ratios []float64) {
	for round, swap := range rounds[WindowSwap] {
		if beside := rounds[WindowBeside][round]; beside != nil && figure(beside) > 0 && figure(swap) > 0 {
			ratios = append(ratios, figure(swap)/figure(beside))
		}
	}
	return ratios
}

// prices are what the swaps cost beyond their requests, ms of CPU time.
func prices(rounds map[string]map[int]*Window) (all []float64) {
	for round, swap := range rounds[WindowSwap] {
		if beside := rounds[WindowBeside][round]; beside != nil && beside.CPUMicros > 0 {
			all = append(all, milliseconds(swap.cpu)-beside.CPUMicros*float64(swap.Requests)/1000)
		}
	}
	return all
}

func pinHold(parked Summary, rounds map[int]*Window) *HoldPin {
	var perSwap, stops, starts, beyond []float64
	for _, w := range rounds {
		stops, starts = append(stops, w.OwnStopMS), append(starts, w.OwnStartMS)
		if w.Requests > 0 {
			perSwap, beyond = append(perSwap, w.P99MS), append(beyond, w.P99MS-w.OwnStopMS-w.OwnStartMS)
		}
	}
	h := &HoldPin{
		ParkedP99MS: parked.Latency.P99MS, PerSwap: stats.Of(perSwap),
		StopMS: stats.Of(stops), StartMS: stats.Of(starts), BeyondMS: stats.Of(beyond), Bar: barHold,
	}
	h.Verdict = h.BeyondMS.Against(barHold)
	return h
}
