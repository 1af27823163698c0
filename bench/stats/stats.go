// Package stats says how sure one may be of a figure that was measured several
// times on a noisy machine, and whether it keeps a bar.
package stats

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
)

// Spread is a median and how sure one may be of it.
type Spread struct {
	Median float64 `json:"median"` // of Resampled: the figure itself
	// Low and High are the confidence bounds of the median by order statistics,
	// which asks nothing of the distribution. With few rounds they are the
	// smallest and the largest value, and Confidence says what that is worth.
	Low        float64 `json:"low"`
	High       float64 `json:"high"`
	Confidence float64 `json:"confidence"` // of Low to High, 0 to 1
	// Least and Most are the smallest and the largest value.
	Least float64 `json:"least"`
	Most  float64 `json:"most"`
	Of    int     `json:"of"` // values
}

// wanted is the confidence that bounds are made for, if there are rounds enough.
const wanted = 0.95

// Of sums up values; none make the zero Spread.
func Of(values []float64) Spread {
	n := len(values)
	if n == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	k := 0 // how many values are cut off at each end
	for k+1 <= (n-1)/2 && confidence(n, k+1) >= wanted {
		k++
	}
	return Spread{
		Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Low: sorted[k], High: sorted[n-1-k],
		Confidence: confidence(n, k), Least: sorted[0], Most: sorted[n-1], Of: n,
	}
}

// resamples is how often Resampled draws. More do not move its bounds by what
// they are printed with.
const resamples = 2000

// Resampled is a figure of n rounds together, such as a percentile of all their
// requests, that cannot be had of each round and averaged. figure gets how often
// each round is to count. Its bounds are those of the bootstrap: rounds are drawn
// with replacement, n of them, again and again, and the figure taken of each draw.
// What was measured in one round stays together, so a slow moment of the machine
// is one piece of evidence however many requests it caught. Equal rounds make
// equal bounds. Least and Most are left to the caller.
func Resampled(n int, figure func(times []int) float64) Spread {
	if n == 0 {
		return Spread{}
	}
	times := make([]int, n)
	for i := range times {
		times[i] = 1
	}
	s := Spread{Median: figure(times), Of: n, Confidence: min(wanted, confidence(n, 0))}
	random := rand.New(rand.NewPCG(uint64(n), resamples))
	drawn := make([]float64, resamples)
	for d := range drawn {
		clear(times)
		for range n {
			times[random.IntN(n)]++
		}
		drawn[d] = figure(times)
	}
	slices.Sort(drawn)
	tail := (1 - wanted) / 2
	s.Low, s.High = drawn[int(tail*resamples)], drawn[int((1-tail)*resamples)-1]
	return s
}

// confidence is the probability that the median of what n values were drawn
// from lies between the k+1st smallest and the k+1st largest of them: it lies
// outside if at most k of n throws of a coin come up heads, or tails.
func confidence(n, k int) float64 {
	outside, ways := 0.0, 1.0
	for i := 0; i <= k; i++ {
		outside += ways
		ways = ways * float64(n-i) / float64(i+1)
	}
	return max(0, 1-2*outside*math.Pow(0.5, float64(n)))
}

// Verdict says how a ratio stands to its bar.
type Verdict string

// Verdicts. Only Missed is a failure: Unclear has its median above the bar, but
// its lower bound not, or too few rounds for a bound.
const (
	Met     Verdict = "met"
	Unclear Verdict = "unclear"
	Missed  Verdict = "missed"
)

// enough is the confidence below which no bar is missed: it takes five rounds.
const enough = 0.9

// Against judges a ratio by the most that it may be.
func (s Spread) Against(most float64) Verdict {
	switch {
	case s.Low > most && s.Confidence >= enough:
		return Missed
	case s.Median > most:
		return Unclear
	}
	return Met
}

// Bounds are the confidence bounds with what they are worth.
func (s Spread) Bounds() string {
	if s.Of < 2 {
		return "-"
	}
	return fmt.Sprintf("%s–%s (%.0f %%)", Number(s.Low), Number(s.High), s.Confidence*100)
}

// Range is the smallest and the largest value.
func (s Spread) Range() string { return Number(s.Least) + "–" + Number(s.Most) }

// Number prints three significant digits or so.
func Number(v float64) string {
	switch {
	case v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}
