package lifecycle

import "testing"

// The classifier has no default arm: every way a step can end is listed for
// everything that can have become of its attempt.
func TestEveryWayAStepCanEndIsListed(t *testing.T) {
	contexts := map[Reason]end{ // what the lifecycle makes of any result
		ReasonNone: endUnlisted, ReasonSuperseded: endStale,
		ReasonPaused: endCancelled, ReasonRemoved: endCancelled, ReasonStopped: endCancelled, ReasonShutdown: endCancelled,
		ReasonFenced: endCancelled,
	}
	own := [...]end{OK: endOK, BuildFailed: endFailed, Refused: endRefused}
	if len(own) != int(Refused)+1 || len(verdicts[0]) != len(own) {
		t.Fatalf("there are %d results, and %d are listed", len(own), len(verdicts[0]))
	}
	for why := range Reason(len(verdicts)) {
		want, stale := contexts[why]
		for res := range verdicts[why] {
			switch got := verdicts[why][res]; {
			case !stale && got != endUnlisted:
				t.Errorf("%s is no reason for which an attempt is over, and a verdict is listed", why)
			case why == ReasonNone && got != own[res], stale && why != ReasonNone && got != want:
				t.Errorf("%s, result %d: got end %d", why, res, got)
			}
		}
	}
}

// Every reason for which stale calls an attempt over has its line in the table.
func TestEveryReasonThatEndsAnAttemptIsAContext(t *testing.T) {
	s := State{Desired: Release{Rev: 2}, Attempt: Attempt{Gen: 1, Desired: 2}, Next: Gen{ID: 1}}
	over := map[Reason]func(*State){
		ReasonNone:       func(*State) {},
		ReasonSuperseded: func(s *State) { s.Desired.Rev = 3 },
		ReasonPaused:     func(s *State) { s.Paused = true },
		ReasonRemoved:    func(s *State) { s.Halt = HaltRemove },
		ReasonStopped:    func(s *State) { s.Halt = HaltStop },
		ReasonShutdown:   func(s *State) { s.Halt = HaltShutdown },
		ReasonFenced:     func(s *State) { s.Halt = HaltFence },
	}
	for why, change := range over {
		m := machine{s: s}
		change(&m.s)
		if got := m.stale(); got != why {
			t.Errorf("got %s, want %s", got, why)
		}
		for res := OK; res <= Refused; res++ {
			if end, _ := m.classify(Event{Result: res}); end == endUnlisted {
				t.Errorf("%s with result %d is not listed", why, res)
			}
		}
		if cancels(why) != (why != ReasonNone) {
			t.Errorf("cancels(%s) is %v", why, cancels(why))
		}
	}
}
