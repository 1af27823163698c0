package bench

import (
	"encoding/json"
	"io"
	"time"
)

// Names of phases. A run begins in Load.Phase; Run.Begin opens the others.
const (
	PhaseSteady = "steady"
	PhaseBefore = "before"
	PhaseDuring = "during"
	PhaseAfter  = "after"
	PhaseWake   = "wake"
	PhaseBeside = "beside"
)

// Result is the account of one run. Times named at_ms count from the start of
// the run; a request is placed at its scheduled time. Latency counts from the
// scheduled time to the last byte of the answer, or to the failure.
type Result struct {
	Scenario  string      `json:"scenario"`   // steady, wake or swap
	StartedAt time.Time   `json:"started_at"` // wall clock
	ElapsedMS float64     `json:"elapsed_ms"` // to the end of the last request
	Load      LoadSummary `json:"load"`
	Total     Summary     `json:"total"`
	// Phases are in order of their first start. Their requests add up to the
	// total's. One that comes again is counted on, and ends with its last end.
	Phases []Phase `json:"phases"`
	Marks  []Mark  `json:"marks"`
	// Generations are those that answered, by the Usher-Generation header, in
	// order of their first answer. Generation 0 stands for answers without it.
	Generations []GenerationCount `json:"generations"`
	// FailureSamples are the first failures in detail, at most 20.
	FailureSamples []FailureSample `json:"failure_samples"`
	// BucketMS is the width of a bucket of Series.
	BucketMS float64  `json:"bucket_ms"`
	Series   []Bucket `json:"series"`
	// Lag is how late requests were taken up although a connection was free:
	// the load tool's own share of the latency.
	Lag Latency `json:"lag"`
	// Change is what a swap scenario did, the last time; nil in the others.
	Change *Change `json:"change,omitempty"`
	// Windows and Pinned are those of swaps that were compared.
	Windows []Window `json:"windows,omitempty"`
	Pinned  *Pinned  `json:"pinned,omitempty"`
	// Rounds are a wake scenario's wakes; empty in the others.
	Rounds []WakeRound `json:"rounds,omitempty"`

	// dots are single requests for the picture; absent after JSON.
	dots []dot
}

// LoadSummary says what was asked for.
type LoadSummary struct {
	Targets        []string `json:"targets"`
	Rate           float64  `json:"rate_per_s"`      // 0 in a wake scenario
	Burst          int      `json:"burst,omitempty"` // requests that come together in each round of a wake scenario
	Arrivals       Arrivals `json:"arrivals"`
	Connections    int      `json:"connections"`
	NewConnections float64  `json:"new_connections_share"`
	Posts          float64  `json:"posts_share"`
	BodyBytes      int      `json:"body_bytes"`
	TimeoutMS      float64  `json:"timeout_ms"`
	Seed           uint64   `json:"seed"`
}

// Summary counts requests by how they ended: served + failed + cut = requests.
type Summary struct {
	Requests int `json:"requests"`
	Posts    int `json:"posts"` // of requests
	Served   int `json:"served"`
	Failed   int `json:"failed"`
	Cut      int `json:"cut"` // the run was ended before they did
	// Failures counts by kind: dial, reset, short_body, timeout, protocol,
	// status_NNN, wrong_body, wrong_generation, check.
	Failures map[string]int `json:"failures"`
	// Latency is of all requests that were served or failed.
	Latency Latency `json:"latency"`
}

// Latency is a distribution in milliseconds, from an HdrHistogram of three
// significant digits (1 µs at best). All zero if there was nothing to measure.
type Latency struct {
	MeanMS float64 `json:"mean_ms"`
	P50MS  float64 `json:"p50_ms"`
	P90MS  float64 `json:"p90_ms"`
	P99MS  float64 `json:"p99_ms"`
	P999MS float64 `json:"p99_9_ms"`
	MaxMS  float64 `json:"max_ms"`
}

// Phase is the account of the requests scheduled in one stretch of the run.
type Phase struct {
	Name    string  `json:"name"`
	StartMS float64 `json:"start_ms"`
	EndMS   float64 `json:"end_ms"`
	Summary
}

// Mark is a labelled instant.
type Mark struct {
	AtMS  float64 `json:"at_ms"`
	Label string  `json:"label"`
}

// GenerationCount says which answers came from one generation.
type GenerationCount struct {
	Generation uint64  `json:"generation"`
	Answers    int     `json:"answers"`
	FirstMS    float64 `json:"first_ms"` // end of the first answer
	LastMS     float64 `json:"last_ms"`  // end of the last one
}

// FailureSample is one failure in words.
type FailureSample struct {
	AtMS      float64 `json:"at_ms"`
	LatencyMS float64 `json:"latency_ms"`
	Kind      string  `json:"kind"`
	Detail    string  `json:"detail"`
}

// Bucket is a slice of time. Percentiles are exact, over the requests that
// were scheduled in it and were served or failed.
type Bucket struct {
	AtMS        float64        `json:"at_ms"` // its start
	Requests    int            `json:"requests"`
	Failed      int            `json:"failed"`
	P50MS       float64        `json:"p50_ms"`
	P99MS       float64        `json:"p99_ms"`
	MaxMS       float64        `json:"max_ms"`
	Generations map[uint64]int `json:"generations,omitempty"` // answers by generation
}

// Change is what was done in the middle of a swap scenario.
type Change struct {
	StartMS        float64 `json:"start_ms"`
	EndMS          float64 `json:"end_ms"`          // when it was reported done
	From           uint64  `json:"from_generation"` // 0 = unknown
	To             uint64  `json:"to_generation"`   // 0 = unknown
	ParkedSeen     int     `json:"parked_seen"`     // most parked requests that a look at the status saw
	StatusProblems int     `json:"status_problems"` // looks that failed
	Error          string  `json:"error,omitempty"`

	executed time.Time // the process of To; zero: not known
}

// Failures is the number of failed requests, what a caller's exit status
// should hang on.
func (r *Result) Failures() int { return r.Total.Failed }

// WriteJSON writes the result as indented JSON.
func (r *Result) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
