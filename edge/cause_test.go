package edge

import (
	"testing"
	"time"
)

func TestEveryCauseHasAStatusAndALabelOfItsOwn(t *testing.T) {
	labels := map[string]Cause{}
	for c := CauseNone + 1; c < causeCount; c++ {
		v := c.Verdict()
		if v.Status < 400 || v.Status > 599 || v.Label == "" || v.Label == "none" {
			t.Errorf("cause %d: %+v", c, v)
		}
		if other, taken := labels[v.Label]; taken {
			t.Errorf("causes %d and %d share the label %s", c, other, v.Label)
		}
		labels[v.Label] = c
		if v.Status == 503 && !v.Retry {
			t.Errorf("%s: a 503 without Retry-After", v.Label)
		}
		if c.Ending() == Served {
			t.Errorf("%s: a cause that ends well", v.Label)
		}
	}
}

func TestCausesHaveTheStatusesOfTheDesign(t *testing.T) {
	for c, want := range map[Cause]int{
		CauseNoSuchHost: 404, CauseNoRelease: 503, CauseWakeFailed: 503, CauseParkFull: 503, CauseParkTimeout: 504,
		CauseConnectRefused: 502, CauseDiedBeforeResponse: 502, CauseFirstByteTimeout: 504, CauseClientGone: 499,
		CauseDraining: 503, CauseMaintenance: 503, CauseBodyTooLarge: 413, CauseLoop: 508,
	} {
		if got := c.Verdict().Status; got != want {
			t.Errorf("%s: %d, want %d", c, got, want)
		}
	}
}

func TestRetryAfterIsWholeSecondsAndNeverZero(t *testing.T) {
	for d, want := range map[time.Duration]int{
		0: 5, -1: 5, 1: 1, time.Second: 1, time.Second + 1: 2, 90 * time.Second: 90,
	} {
		if got := RetryAfter(d); got != want {
			t.Errorf("RetryAfter(%v) = %d, want %d", d, got, want)
		}
	}
}
