package bench

import (
	"testing"
	"time"
)

func TestWhoHasABacklogIsNotWokenForEachRequest(t *testing.T) {
	for _, c := range []struct {
		wait    time.Duration
		backlog int
		want    time.Duration
	}{
		{50 * time.Microsecond, 0, 50 * time.Microsecond},
		{50 * time.Microsecond, enough - 1, 50 * time.Microsecond},
		{50 * time.Microsecond, enough, napTime},
		{3 * time.Millisecond, enough, 3 * time.Millisecond},
		{0, enough, 0},
		{-time.Millisecond, enough, -time.Millisecond}, // it is late already
	} {
		if got := nap(c.wait, c.backlog); got != c.want {
			t.Errorf("nap(%s, %d) = %s, want %s", c.wait, c.backlog, got, c.want)
		}
	}
}
