package bench

import "math"

// scale maps a value to a coordinate, linearly or by decades.
type scale struct {
	low, high  float64 // values at the two ends
	from, to   float64 // coordinates of the two ends
	logarithms bool
}

func (s scale) at(v float64) float64 {
	low, high := s.low, s.high
	if s.logarithms {
		v, low, high = math.Log10(max(v, s.low)), math.Log10(low), math.Log10(high)
	}
	return s.from + (v-low)/(high-low)*(s.to-s.from)
}

// latencyScale spans what there is, rounded outwards to 1, 2 or 5 times a
// power of ten, and at least one decade.
func latencyScale(low, high float64) scale {
	low = max(low, 0.02)
	high = max(high, low)
	lo, hi := roundDown125(low), roundUp125(high)
	if hi/lo < 10 {
		lo = roundDown125(low / 2)
		hi = max(hi, roundUp125(lo*10))
	}
	return scale{low: lo, high: hi, logarithms: true}
}

// tiny forgives what is lost in powers of ten.
const tiny = 1e-9

func roundDown125(v float64) float64 {
	decade := math.Pow(10, math.Floor(math.Log10(v)+tiny))
	for _, m := range []float64{5, 2} {
		if v*(1+tiny) >= m*decade {
			return m * decade
		}
	}
	return decade
}

func roundUp125(v float64) float64 {
	decade := math.Pow(10, math.Floor(math.Log10(v)+tiny))
	for _, m := range []float64{1, 2, 5} {
		if v*(1-tiny) <= m*decade {
			return m * decade
		}
	}
	return 10 * decade
}

// tick is one line of a grid.
type tick struct {
	value float64
	major bool // labelled
}

// logTicks are the 1, 2, 5 of each decade; all labelled if there are few.
func (s scale) logTicks() []tick {
	var ticks []tick
	few := s.high/s.low <= 1000
	decade := math.Pow(10, math.Floor(math.Log10(s.low)+tiny))
	for ; decade <= s.high*(1+tiny); decade *= 10 {
		for _, m := range []float64{1, 2, 5} {
			v := m * decade
			if v >= s.low*(1-tiny) && v <= s.high*(1+tiny) {
				ticks = append(ticks, tick{value: v, major: m == 1 || few})
			}
		}
	}
	return ticks
}

// linearTicks are about n round values.
func (s scale) linearTicks(n int) []tick {
	step := roundUp125((s.high - s.low) / float64(n))
	var ticks []tick
	for v := math.Ceil(s.low/step) * step; v <= s.high*(1+tiny); v += step {
		ticks = append(ticks, tick{value: v, major: true})
	}
	return ticks
}
