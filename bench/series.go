package bench

import (
	"slices"
	"time"
)

// Buckets are 50 ms wide unless that makes more than maxBuckets.
const (
	bucketBase = 50 * time.Millisecond
	maxBuckets = 600
)

func bucketWidth(elapsed time.Duration) time.Duration {
	width := bucketBase
	for _, factor := range []time.Duration{2, 4, 10, 20, 40, 100, 200, 400, 1200, 12000} {
		if elapsed/width < maxBuckets {
			break
		}
		width = bucketBase * factor
	}
	return width
}

// buckets sums up entries, which are in order of due time, by slices of time.
// Slices without requests are left out.
func buckets(entries []entry, width time.Duration) []Bucket {
	out := []Bucket{}
	var latencies []time.Duration
	for len(entries) > 0 {
		at := entries[0].due / width * width
		n := 0
		for n < len(entries) && entries[n].due < at+width {
			n++
		}
		b := Bucket{AtMS: milliseconds(at), Requests: n}
		latencies = latencies[:0]
		for i := range entries[:n] {
			e := &entries[i]
			if e.kind != Cut {
				latencies = append(latencies, e.latency())
			}
			b.count(e)
		}
		if slices.Sort(latencies); len(latencies) > 0 {
			b.P50MS = milliseconds(quantile(latencies, 0.50))
			b.P99MS = milliseconds(quantile(latencies, 0.99))
			b.MaxMS = milliseconds(latencies[len(latencies)-1])
		}
		out = append(out, b)
		entries = entries[n:]
	}
	return out
}

func (b *Bucket) count(e *entry) {
	if e.kind.Failed() {
		b.Failed++
	}
	if e.status == 0 {
		return
	}
	if b.Generations == nil {
		b.Generations = map[uint64]int{}
	}
	b.Generations[e.generation]++
}

// quantile is the smallest value that at least the share q of sorted values
// does not exceed.
func quantile(sorted []time.Duration, q float64) time.Duration {
	i := int(q * float64(len(sorted)))
	if float64(i) == q*float64(len(sorted)) && i > 0 {
		i--
	}
	return sorted[min(i, len(sorted)-1)]
}

// dot is one request in the picture.
type dot struct {
	atMS, latencyMS float64
	failed          bool
}

// maxDots bounds the picture's size. Failures (up to the bound) and the slowest
// of each step are always among them.
const maxDots = 5000

func dots(entries []entry) []dot {
	step := (len(entries) + maxDots - 1) / maxDots
	if step == 0 {
		return nil
	}
	out := make([]dot, 0, min(len(entries), 2*maxDots))
	failures := 0
	for len(entries) > 0 {
		n := min(step, len(entries))
		slowest := -1
		for i := range entries[:n] {
			e := &entries[i]
			switch {
			case e.kind == Cut:
			case e.kind.Failed() && failures < maxDots:
				failures++
				out = append(out, newDot(e))
			case slowest < 0 || e.latency() > entries[slowest].latency():
				slowest = i
			}
		}
		if slowest >= 0 {
			out = append(out, newDot(&entries[slowest]))
		}
		entries = entries[n:]
	}
	return out
}

func newDot(e *entry) dot {
	return dot{atMS: milliseconds(e.due), latencyMS: milliseconds(e.latency()), failed: e.kind.Failed()}
}
