package peers

import (
	"math"
	"slices"
)

// Spread is a median and how sure one may be of it.
type Spread struct {
	Median float64 `json:"median"`
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

// spread sums up values; none make the zero Spread.
func spread(values []float64) Spread {
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
