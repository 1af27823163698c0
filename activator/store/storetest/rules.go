package storetest

import (
	"testing"

	"github.com/usher-edge/usher/activator/store"
)

// ruleStart is a record that each case of rules breaks in one way.
func ruleStart(a *store.App) error {
	*a = store.App{Desired: 3, Good: 2, Reported: 2, Restarts: 5, RestartsDone: 4}
	for r := uint64(1); r <= 3; r++ {
		a.Releases = append(a.Releases, store.Release{Revision: r, Kind: store.KindArtifact, Digest: "sha256:aa", Ran: r == 2})
	}
	return nil
}

func rules(t *testing.T, s Opened) {
	update(t, s, "web", ruleStart)
	for name, breakIt := range map[string]func(*store.App){
		"good above desired":             func(a *store.App) { a.Good = 4 },
		"reported above good":            func(a *store.App) { a.Reported = 3 },
		"desired goes back":              func(a *store.App) { a.Desired, a.Releases = 2, a.Releases[:2] },
		"reported goes back":             func(a *store.App) { a.Reported = 1 },
		"restarts go back":               func(a *store.App) { a.Restarts = 4 },
		"more restarts done than asked":  func(a *store.App) { a.RestartsDone = 6 },
		"desired without a release":      func(a *store.App) { a.Desired = 4 },
		"good without a release":         func(a *store.App) { a.Releases = append(a.Releases[:1:1], a.Releases[2]) },
		"release above desired":          func(a *store.App) { a.Releases[2].Revision = 4 },
		"release without a revision":     func(a *store.App) { a.Releases = append(a.Releases, store.Release{Kind: store.KindTarget}) },
		"two releases of one revision":   func(a *store.App) { a.Releases = append(a.Releases, a.Releases[0]) },
		"release of an unknown kind":     func(a *store.App) { a.Releases[0].Kind = "image" },
		"release that changes its bytes": func(a *store.App) { a.Releases[1].Digest = "sha256:bb" },
		"release that changes its kind":  func(a *store.App) { a.Releases[1].Kind = store.KindTarget },
		"release that changes its hold":  func(a *store.App) { a.Releases[1].DemandHold = true },
		"release that moves":             func(a *store.App) { a.Releases[1].Target = "127.0.0.1:1" },
		"release that has not run":       func(a *store.App) { a.Releases[1].Ran = false },
		"spec that is not JSON":          func(a *store.App) { a.Releases[1].Spec = []byte("{") },
	} {
		_, err := s.Update("web", 0, func(a *store.App) error { breakIt(a); return nil })
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		wantErr(t, err, store.ErrInvalid)
	}
	got, err := s.Get("web")
	must(t, err)
	if got.Version != 1 {
		t.Errorf("a refused update left version %d", got.Version)
	}
	// What the rules allow: good may go back, and a release may run.
	got = update(t, s, "web", func(a *store.App) error {
		a.Good, a.Reported, a.Releases[2].Ran = 3, 2, true
		return nil
	})
	if got.Good != 3 || !got.Releases[2].Ran {
		t.Errorf("record is %+v", got)
	}
	update(t, s, "web", func(a *store.App) error { a.Good = 2; return nil })
}

func boundedHistory(t *testing.T, s Opened) {
	const total = 50
	update(t, s, "web", func(a *store.App) error {
		a.Good, a.Reported = 1, 1
		return release(a)
	})
	for range total - 1 {
		update(t, s, "web", func(a *store.App) error {
			if a.Failures == nil {
				a.Failures = map[uint64]store.Failure{}
			}
			a.Failures[a.Desired] = store.Failure{Count: 1}
			a.Outcomes = append(a.Outcomes, store.Outcome{Attempt: a.Desired, Outcome: "failed"})
			return release(a)
		})
	}
	got, err := s.Get("web")
	must(t, err)
	if len(got.Releases) != store.KeepReleases+1 || got.Releases[0].Revision != 1 || got.Releases[1].Revision != total-store.KeepReleases+1 {
		t.Errorf("kept %d releases, from %+v", len(got.Releases), got.Releases[:2])
	}
	if len(got.Outcomes) != store.KeepOutcomes || got.Outcomes[store.KeepOutcomes-1].Attempt != total-1 {
		t.Errorf("kept outcomes %+v", got.Outcomes)
	}
	for revision := range got.Failures {
		if _, ok := got.Release(revision); !ok {
			t.Errorf("failure of revision %d has outlived its release", revision)
		}
	}
	if _, ok := got.Failures[1]; !ok {
		t.Error("failure of a revision that a pointer names is lost")
	}
}

func events(t *testing.T, s Opened) {
	changed := s.EventsChanged()
	const total = store.DefaultEvents + 100
	var first, last uint64
	for i := range total {
		data := []byte(`{"n":1}`)
		if i%2 == 1 {
			data = []byte("not json")
		}
		seq := s.AppendEvent(store.Event{Kind: "step", App: "web", Generation: uint64(i), Data: data})
		if seq <= last {
			t.Fatalf("event %d after %d", seq, last)
		}
		if first == 0 {
			first = seq
		}
		last = seq
		data[0] = 'x' // the log has its own copy
	}
	select {
	case <-changed:
	default:
		t.Error("an append does not wake followers")
	}
	all := s.EventsSince(0, 0)
	if len(all) != store.DefaultEvents || all[len(all)-1].Seq != last {
		t.Fatalf("log holds %d events up to %d", len(all), all[len(all)-1].Seq)
	}
	for i := 1; i < len(all); i++ {
		if all[i].Seq != all[i-1].Seq+1 || all[i].Generation != all[i-1].Generation+1 {
			t.Fatalf("events %d and %d do not follow each other", all[i-1].Seq, all[i].Seq)
		}
	}
	if d := string(all[0].Data); d != `{"n":1}` && d != `"not json"` {
		t.Errorf("data is %s", d)
	}
	some := s.EventsSince(last-10, 3)
	if len(some) != 3 || some[0].Seq != last-9 {
		t.Errorf("a page of events is %+v", some)
	}
	if none := s.EventsSince(last, 0); len(none) != 0 {
		t.Errorf("events above the last: %+v", none)
	}
}
