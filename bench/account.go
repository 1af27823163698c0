package bench

import (
	"cmp"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// entry is one scheduled request with its end, both on the account's clock.
type entry struct {
	due time.Duration
	record
}

func (e *entry) latency() time.Duration { return e.ended - e.due }

// account is everything a run noted, before it is summed up. Several can be
// joined on one clock.
type account struct {
	scenario string
	load     Load
	started  time.Time
	elapsed  time.Duration
	entries  []entry // by due time
	phases   []phaseStart
	marks    []Mark
	samples  []FailureSample
}

// account reads the run's notes; only after finished.
func (r *Run) account() account {
	a := account{scenario: PhaseSteady, load: r.load, started: r.start, entries: make([]entry, r.queued)}
	for i := range a.entries {
		a.entries[i] = entry{due: r.due[i], record: r.records[i]}
		a.elapsed = max(a.elapsed, a.entries[i].due, a.entries[i].ended)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a.phases = slices.Clone(r.phases)
	a.marks = slices.Clone(r.marks)
	a.samples = slices.Clone(r.samples)
	return a
}

func (r *Run) result() *Result {
	a := r.account()
	return a.result()
}

func (a *account) result() *Result {
	res := &Result{
		Scenario: a.scenario, StartedAt: a.started, ElapsedMS: milliseconds(a.elapsed),
		Load: a.load.summary(), Total: summarise(a.entries),
		Phases: a.phaseSummaries(), Marks: orEmpty(a.marks),
		Generations: generations(a.entries), FailureSamples: orEmpty(a.samples),
		Lag: a.lag(),
	}
	width := bucketWidth(a.elapsed)
	res.BucketMS = milliseconds(width)
	res.Series = buckets(a.entries, width)
	res.dots = dots(a.entries)
	return res
}

// orEmpty keeps null out of the JSON.
func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func (l Load) summary() LoadSummary {
	s := LoadSummary{
		Rate: l.Rate, Arrivals: l.Arrivals, Connections: l.Connections,
		NewConnections: l.NewConnections, Posts: l.Posts, BodyBytes: l.BodyBytes,
		TimeoutMS: milliseconds(l.Timeout), Seed: l.Seed,
	}
	for _, t := range l.Targets {
		name := "http://" + t.Host + t.Path
		if t.Network == "unix" || t.Host != t.Address {
			name += " at " + t.Address
		}
		s.Targets = append(s.Targets, name)
	}
	return s
}

// phaseSummaries splits the entries where phases begin, and counts phases of one
// name together.
func (a *account) phaseSummaries() []Phase {
	phases := make([]Phase, 0, len(a.phases))
	parts := make([][]entry, 0, len(a.phases))
	rest := a.entries
	for i, p := range a.phases {
		end := a.elapsed
		n := len(rest)
		if i+1 < len(a.phases) {
			end = a.phases[i+1].at
			n, _ = slices.BinarySearchFunc(rest, end, func(e entry, at time.Duration) int { return cmp.Compare(e.due, at) })
		}
		k := slices.IndexFunc(phases, func(known Phase) bool { return known.Name == p.name })
		if k < 0 {
			k = len(phases)
			phases = append(phases, Phase{Name: p.name, StartMS: milliseconds(p.at)})
			parts = append(parts, nil)
		}
		phases[k].EndMS = milliseconds(end)
		parts[k] = append(parts[k], rest[:n]...)
		rest = rest[n:]
	}
	for k := range phases {
		phases[k].Summary = summarise(parts[k])
	}
	return phases
}

func summarise(entries []entry) Summary {
	s := Summary{Requests: len(entries), Failures: map[string]int{}}
	var h distribution
	for i := range entries {
		e := &entries[i]
		if e.post {
			s.Posts++
		}
		switch {
		case e.kind == Cut:
			s.Cut++
			continue
		case e.kind.Failed():
			s.Failed++
			s.Failures[failureName(e.kind, e.status)]++
		default:
			s.Served++
		}
		h.add(e.latency())
	}
	s.Latency = h.latency()
	return s
}

func (a *account) lag() Latency {
	var h distribution
	for i := range a.entries {
		if e := &a.entries[i]; e.kind != Cut {
			h.add(e.taken - e.free)
		}
	}
	return h.latency()
}

func generations(entries []entry) []GenerationCount {
	at := map[uint64]int{}
	out := []GenerationCount{}
	for i := range entries {
		e := &entries[i]
		if e.status == 0 {
			continue
		}
		k, known := at[e.generation]
		if !known {
			k = len(out)
			at[e.generation] = k
			out = append(out, GenerationCount{Generation: e.generation, FirstMS: milliseconds(e.ended)})
		}
		g := &out[k]
		g.Answers++
		g.FirstMS = min(g.FirstMS, milliseconds(e.ended))
		g.LastMS = max(g.LastMS, milliseconds(e.ended))
	}
	slices.SortFunc(out, func(a, b GenerationCount) int { return cmp.Compare(a.FirstMS, b.FirstMS) })
	return out
}

// distribution is an HdrHistogram of microseconds up to ten minutes, made when
// it is first needed.
type distribution struct{ h *hdrhistogram.Histogram }

const longest = 10 * time.Minute

func (d *distribution) add(v time.Duration) {
	if d.h == nil {
		d.h = hdrhistogram.New(1, longest.Microseconds(), 3)
	}
	// In range by construction, so it cannot be refused.
	_ = d.h.RecordValue(min(max(v, 0), longest).Microseconds())
}

func (d *distribution) latency() Latency {
	if d.h == nil {
		return Latency{}
	}
	at := func(q float64) float64 { return float64(d.h.ValueAtQuantile(q)) / 1000 }
	return Latency{
		MeanMS: d.h.Mean() / 1000, P50MS: at(50), P90MS: at(90), P99MS: at(99), P999MS: at(99.9),
		MaxMS: float64(d.h.Max()) / 1000,
	}
}
