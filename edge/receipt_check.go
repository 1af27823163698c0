package edge

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"
)

// check finds the sums that do not match.
func (t *Tally) check() {
	t.sum("accepted", t.Accepted,
		part{"served", t.Served}, part{"cached", t.Cached}, part{"refused", t.Refused}, part{"failed", t.Failed},
		part{"client gone", t.Gone}, part{"own", t.Own}, part{"still open", t.Open})
	t.sum("served", t.Served,
		part{"by the incumbent", t.ByIncumbent}, part{"by the successor", t.BySuccessor}, part{"after parking", t.AfterParking})
	t.sum("refused", t.Refused, part{"by reason", total(t.RefusedBy)})
	t.sum("failed", t.Failed, part{"by reason", total(t.FailedBy)})
	t.sum("after parking", t.AfterParking, part{"park times", t.Parked.Count})
	u := &t.Upgrades
	t.sum("upgraded before and since", u.Before+u.Opened,
		part{"ended by the client", u.Client}, part{"by the app", u.App}, part{"by usher", u.Usher},
		part{"cut", u.Cut}, part{"still open", u.Open})
}

// part is one summand.
type part struct {
	what string
	n    uint64
}

func (t *Tally) sum(what string, whole uint64, parts ...part) {
	var sum uint64
	text := ""
	for i, p := range parts {
		sum += p.n
		if i > 0 {
			text += " + "
		}
		text += fmt.Sprintf("%d %s", p.n, p.what)
	}
	if sum != whole {
		t.Mismatch = append(t.Mismatch, fmt.Sprintf("%d %s, but %s = %d", whole, what, text, sum))
	}
}

func total(by map[string]uint64) (n uint64) {
	for _, v := range by {
		n += v
	}
	return n
}

// Waits are park times: percentiles are at most an eighth too long, never longer
// than Max.
type Waits struct {
	Count         uint64
	P50, P99, Max time.Duration
}

// waits is a histogram of durations in microseconds: eight steps for each
// doubling, so that it fits any wait.
type waits struct {
	buckets [waitBuckets]atomic.Uint64
	max     atomic.Int64
}

const (
	waitSteps   = 8  // for each doubling
	waitDoubles = 36 // up to 19 hours, which no wait exceeds
	waitBuckets = waitSteps * waitDoubles
)

func (w *waits) observe(d time.Duration) {
	w.buckets[waitBucket(d)].Add(1)
	for {
		was := w.max.Load()
		if int64(d) <= was || w.max.CompareAndSwap(was, int64(d)) {
			return
		}
	}
}

// waitBucket: values below waitSteps have a bucket each, above that the three
// bits behind the first one choose the step.
func waitBucket(d time.Duration) int {
	v := uint64(max(d, 0) / time.Microsecond)
	if v < waitSteps {
		return int(v)
	}
	const stepBits = 3
	double := bits.Len64(v) - 1 - stepBits // how often it was doubled beyond the first steps
	return min((double+1)*waitSteps+int(v>>double)-waitSteps, waitBuckets-1)
}

// waitBound is the longest wait of a bucket.
func waitBound(i int) time.Duration {
	if i < waitSteps {
		return time.Duration(i+1) * time.Microsecond
	}
	double := i/waitSteps - 1
	return time.Duration((uint64(i%waitSteps)+waitSteps+1)<<double) * time.Microsecond
}

func (w *waits) read() Waits {
	var counts [waitBuckets]uint64
	out := Waits{Max: time.Duration(w.max.Load())}
	for i := range counts {
		counts[i] = w.buckets[i].Load()
		out.Count += counts[i]
	}
	out.P50, out.P99 = percentile(&counts, out, 50), percentile(&counts, out, 99)
	return out
}

// percentile is the wait that p of 100 did not exceed.
func percentile(counts *[waitBuckets]uint64, w Waits, p uint64) time.Duration {
	rank := (w.Count*p + 99) / 100
	var seen uint64
	for i, n := range counts {
		if seen += n; n > 0 && seen >= rank {
			return min(waitBound(i), w.Max)
		}
	}
	return w.Max
}
