package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestConfidenceIsThatOfCoinThrows(t *testing.T) {
	for _, tc := range []struct {
		n, k int
		want float64
	}{{1, 0, 0}, {2, 0, 0.5}, {5, 0, 0.9375}, {6, 0, 0.96875}, {9, 1, 0.9609375}, {15, 3, 0.96484375}} {
		if got := confidence(tc.n, tc.k); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("confidence(%d, %d) = %g, want %g", tc.n, tc.k, got, tc.want)
		}
	}
}

func TestASpreadLeavesOutWildRoundsOnlyWithRoundsEnough(t *testing.T) {
	nine := Of([]float64{9, 1, 5, 4, 6, 3, 7, 2, 100})
	if nine.Median != 5 || nine.Low != 2 || nine.High != 9 || nine.Least != 1 || nine.Most != 100 || nine.Of != 9 {
		t.Errorf("of nine: %+v", nine)
	}
	four := Of([]float64{4, 1, 3, 2})
	if four.Median != 2.5 || four.Low != 1 || four.High != 4 || four.Confidence != 0.875 {
		t.Errorf("of four: %+v", four)
	}
	if one := Of([]float64{3}); one.Median != 3 || one.Low != 3 || one.Confidence != 0 {
		t.Errorf("of one: %+v", one)
	}
	if none := Of(nil); none != (Spread{}) {
		t.Errorf("of none: %+v", none)
	}
}

// The bounds hold what they promise for a skewed distribution, too.
func TestBoundsHoldTheMedianAsOftenAsTheySay(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{5, 9, 15, 30} {
		const trials = 4000
		inside, promised := 0, 0.0
		for range trials {
			values := make([]float64, n)
			for i := range values {
				values[i] = random.ExpFloat64()
			}
			s := Of(values)
			promised = s.Confidence
			if s.Low <= math.Ln2 && math.Ln2 <= s.High {
				inside++
			}
		}
		if got := float64(inside) / trials; math.Abs(got-promised) > 0.015 {
			t.Errorf("%d values: bounds of %.3f hold the median in %.3f of all trials", n, promised, got)
		}
	}
}

// mean is a figure of rounds together.
func mean(values []float64) func(times []int) float64 {
	return func(times []int) float64 {
		sum, n := 0.0, 0
		for i, v := range values {
			sum += float64(times[i]) * v
			n += times[i]
		}
		return sum / float64(n)
	}
}

func TestResampledBoundsHoldTheFigureAboutAsOftenAsTheySay(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	const n, trials = 12, 150
	inside := 0
	for range trials {
		values := make([]float64, n)
		for i := range values {
			values[i] = random.NormFloat64()
		}
		if s := Resampled(n, mean(values)); s.Low <= 0 && 0 <= s.High {
			inside++
		}
	}
	// The bootstrap is known to be a little narrow with few rounds.
	if got := float64(inside) / trials; got < 0.85 || got > 0.98 {
		t.Errorf("bounds of 0.95 hold the figure in %.3f of all trials", got)
	}
}

func TestResampledIsTheFigureOfAllAndNothingIsMissedByFewRounds(t *testing.T) {
	s := Resampled(6, mean([]float64{1, 2, 3, 4, 5, 9}))
	if s.Median != 4 || s.Of != 6 || s.Low <= 1 || s.Low >= 4 || s.High <= 4 || s.High >= 9 || s.Confidence != 0.95 {
		t.Errorf("of six: %+v", s)
	}
	if again := Resampled(6, mean([]float64{1, 2, 3, 4, 5, 9})); again != s {
		t.Errorf("the same rounds: %+v, then %+v", s, again)
	}
	four := Resampled(4, mean([]float64{2, 2, 2, 2}))
	if four.Low != 2 || four.Confidence != 0.875 || four.Against(1) != Unclear {
		t.Errorf("of four: %+v, %s", four, four.Against(1))
	}
	if none := Resampled(0, nil); none != (Spread{}) {
		t.Errorf("of none: %+v", none)
	}
}

func TestABarIsMissedOnlyIfTheLowerBoundIsBeyondIt(t *testing.T) {
	for _, tc := range []struct {
		values []float64
		most   float64
		want   Verdict
	}{
		{[]float64{1.2, 1.1, 1.2, 1.3, 1.2, 1.2}, 1.0, Missed},
		{[]float64{1.2, 0.9, 1.2, 1.3, 1.2, 1.2}, 1.0, Unclear},
		{[]float64{1.2, 0.9, 0.9, 0.9, 0.9, 1.2}, 1.0, Met},
		{[]float64{2, 2, 2, 2}, 1.0, Unclear}, // no bound of four is worth that
		{[]float64{2, 2, 2, 2, 2}, 1.0, Missed},
		{[]float64{1, 1, 1, 1, 1}, 1.0, Met},
		{nil, 1.0, Met},
	} {
		if got := Of(tc.values).Against(tc.most); got != tc.want {
			t.Errorf("%v against %g: %s, want %s", tc.values, tc.most, got, tc.want)
		}
	}
}
