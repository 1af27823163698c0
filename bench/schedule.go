package bench

import (
	"math"
	"math/rand/v2"
	"time"
)

// schedule lists when each request is due, counted from the start of the run,
// in order. It depends on rate, duration, arrivals and seed alone.
func (l Load) schedule() []time.Duration {
	gap := float64(time.Second) / l.Rate
	due := make([]time.Duration, 0, int(float64(l.Duration)/gap)+1)
	if l.Arrivals == Constant {
		for i := 0; ; i++ {
			at := time.Duration(math.Round(float64(i) * gap))
			if at >= l.Duration {
				return due
			}
			due = append(due, at)
		}
	}
	random := rand.New(rand.NewPCG(l.Seed, 0x5ced))
	for at := random.ExpFloat64() * gap; at < float64(l.Duration); at += random.ExpFloat64() * gap {
		due = append(due, time.Duration(at))
	}
	return due
}

// choice is what one request does.
type choice struct {
	target  int
	post    bool
	newConn bool
}

// choose decides request i, the same way in every run with this seed,
// whichever connection takes it.
func (l *Load) choose(i int) choice {
	random := rand.NewPCG(l.Seed, uint64(i))
	return choice{
		target:  int(random.Uint64() % uint64(len(l.Targets))),
		post:    chance(random, l.Posts),
		newConn: chance(random, l.NewConnections),
	}
}

func chance(random *rand.PCG, p float64) bool {
	return float64(random.Uint64()>>11)/(1<<53) < p
}
