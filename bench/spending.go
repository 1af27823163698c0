package bench

import (
	"sync"
	"time"
)

// followEvery is how often a CPU time is looked at: a swap has a few dozen
// milliseconds until its process is executed.
const followEvery = 2 * time.Millisecond

// spending is a CPU time as it grows.
type spending struct {
	take  func() (time.Duration, error) // nil: not known
	begun time.Time
	at    []time.Duration // since begun
	used  []time.Duration // by then
	err   error
	quit  chan struct{}
	done  sync.WaitGroup
}

// follow looks at a CPU time until stop.
func follow(take func() (time.Duration, error)) *spending {
	s := &spending{take: take, begun: time.Now(), quit: make(chan struct{})}
	if take == nil {
		return s
	}
	s.look()
	s.done.Go(func() {
		tick := time.NewTicker(followEvery)
		defer tick.Stop()
		for s.err == nil {
			select {
			case <-s.quit:
				return
			case <-tick.C:
				s.look()
			}
		}
	})
	return s
}

func (s *spending) look() {
	used, err := s.take()
	if err != nil {
		s.err = err
		return
	}
	s.at, s.used = append(s.at, time.Since(s.begun)), append(s.used, used)
}

// stop looks for the last time.
func (s *spending) stop() error {
	close(s.quit)
	s.done.Wait()
	if s.take != nil && s.err == nil {
		s.look()
	}
	return s.err
}

// since is what was used from an instant until stop. Between two looks it grows
// evenly.
func (s *spending) since(t time.Time) time.Duration {
	if len(s.at) == 0 {
		return 0
	}
	at, last := t.Sub(s.begun), s.used[len(s.used)-1]
	for i := len(s.at) - 1; i > 0; i-- {
		if from := s.at[i-1]; at >= from {
			share := float64(s.at[i]-min(at, s.at[i])) / float64(max(s.at[i]-from, 1))
			return last - s.used[i] + time.Duration(share*float64(s.used[i]-s.used[i-1]))
		}
	}
	return last - s.used[0]
}
