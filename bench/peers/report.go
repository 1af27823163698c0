package peers

import (
	"encoding/json"
	"io"
	"time"

	"github.com/usher-edge/usher/bench/stats"
)

// Report is the account of one comparison.
type Report struct {
	StartedAt  time.Time    `json:"started_at"`
	Machine    string       `json:"machine"` // kernel, cores, model
	Origin     string       `json:"origin"`  // what served as one
	OriginConf []File       `json:"origin_config"`
	AccessLog  bool         `json:"access_log"` // all wrote one, or none did
	Rounds     int          `json:"rounds"`     // that were finished
	DurationMS float64      `json:"duration_ms"`
	Peers      []PeerReport `json:"peers"`
	Works      []WorkReport `json:"works"`
	// Cut says why the comparison ended early; empty: it did not.
	Cut string `json:"cut,omitempty"`
}

// PeerReport says what a peer was and how it was run.
type PeerReport struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Caches  bool   `json:"caches"`
	Note    string `json:"note,omitempty"`
	// Skipped says why it was left out; empty: it was not.
	Skipped  string   `json:"skipped,omitempty"`
	Commands []string `json:"commands,omitempty"`
	Files    []File   `json:"files,omitempty"`
}

// WorkReport is what one work cost.
type WorkReport struct {
	Work
	Peers  []PeerResult `json:"peers"`
	Ratios []Ratio      `json:"ratios"`
}

// PeerResult is what one peer did with one work. Figures are medians of its
// rounds.
type PeerResult struct {
	Peer string `json:"peer"`
	// Figures by measure: CPU in µs, latencies in ms, requests/s.
	Figures  map[Measure]stats.Spread `json:"figures"`
	Failures int                      `json:"failures"`
	// Problem is the first failure, or why a round has no figures.
	Problem string   `json:"problem,omitempty"`
	Samples []Sample `json:"samples"`
}

// Sample is one measurement. Without a request that was answered right there
// are no figures, only failures.
type Sample struct {
	Round     int     `json:"round"`
	Requests  int     `json:"requests"`
	Failures  int     `json:"failures"`
	PerSecond float64 `json:"per_second"`
	CPUMicros float64 `json:"cpu_us_per_request"`
	P50MS     float64 `json:"p50_ms"`
	P99MS     float64 `json:"p99_ms"`
	P999MS    float64 `json:"p99_9_ms"`
}

// Ratio is usher's figure by a peer's, within rounds.
type Ratio struct {
	Peer    string  `json:"against"`
	Measure Measure `json:"measure"`
	stats.Spread
	Bar     *Bar          `json:"bar,omitempty"`
	Verdict stats.Verdict `json:"verdict,omitempty"`
}

func (s Sample) figure(m Measure) float64 {
	switch m {
	case CPU:
		return s.CPUMicros
	case P50:
		return s.P50MS
	case P99:
		return s.P99MS
	case P999:
		return s.P999MS
	default:
		return s.PerSecond
	}
}

// measures are those that a peer's figures have.
func measures() []Measure { return []Measure{PerSecond, CPU, P50, P99, P999} }

// sum fills in figures and ratios from the samples.
func (r *Report) sum() {
	for i := range r.Works {
		w := &r.Works[i]
		for j := range w.Peers {
			w.Peers[j].sum()
		}
		w.compare()
	}
}

func (p *PeerResult) sum() {
	p.Figures = map[Measure]stats.Spread{}
	for _, m := range measures() {
		var values []float64
		for _, s := range p.Samples {
			if s.Requests > 0 {
				values = append(values, s.figure(m))
			}
		}
		if len(values) > 0 {
			p.Figures[m] = stats.Of(values)
		}
	}
	for _, s := range p.Samples {
		p.Failures += s.Failures
	}
}

// compare makes the ratios of usher to each peer.
func (w *WorkReport) compare() {
	w.Ratios = []Ratio{}
	var usher *PeerResult
	for i := range w.Peers {
		if w.Peers[i].Peer == Usher {
			usher = &w.Peers[i]
		}
	}
	if usher == nil {
		return
	}
	for i := range w.Peers {
		p := &w.Peers[i]
		if p.Peer == Usher {
			continue
		}
		for _, m := range []Measure{CPU, P99, PerSecond} {
			pairs := paired(usher.Samples, p.Samples, m)
			if len(pairs) == 0 {
				continue
			}
			ratio := Ratio{Peer: p.Peer, Measure: m, Spread: stats.Of(pairs)}
			for _, b := range w.bars {
				if b.Against == p.Peer && b.Measure == m {
					ratio.Bar, ratio.Verdict = &b, ratio.Against(b.Most)
				}
			}
			w.Ratios = append(w.Ratios, ratio)
		}
	}
}

// paired are the ratios of the rounds that both have.
func paired(usher, peer []Sample, m Measure) (ratios []float64) {
	of := map[int]float64{}
	for _, s := range peer {
		of[s.Round] = s.figure(m)
	}
	for _, s := range usher {
		if other := of[s.Round]; other > 0 && s.Requests > 0 {
			ratios = append(ratios, s.figure(m)/other)
		}
	}
	return ratios
}

// Failures are usher's failed requests.
func (r *Report) Failures() int {
	n := 0
	for _, w := range r.Works {
		for _, p := range w.Peers {
			if p.Peer == Usher {
				n += p.Failures
			}
		}
	}
	return n
}

// Missed counts the bars that were missed.
func (r *Report) Missed() int {
	n := 0
	for _, w := range r.Works {
		for _, ratio := range w.Ratios {
			if ratio.Verdict == stats.Missed {
				n++
			}
		}
	}
	return n
}

// WriteJSON writes the report as indented JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}
