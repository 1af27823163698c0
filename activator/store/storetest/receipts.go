package storetest

import (
	"reflect"
	"testing"
	"time"

	"github.com/usher-edge/usher/activator/store"
)

func wholeReceipt(attempt uint64) store.Receipt {
	at := time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)
	return store.Receipt{
		Attempt: attempt, Operation: "op-1", Revision: 3, Cause: "release", Mode: "hold", Outcome: "done", Reason: "-", Executed: true,
		Build: "aa", Digest: "sha256:aa", From: store.Predecessor{Generation: 4, Revision: 2, Build: "bb"}, CacheFrom: "2.0", CacheTo: "3.0",
		Opened: at, Closed: at.Add(time.Second), Incomplete: "-", Proof: "cgroup",
		Health: &store.HealthProof{Tries: 3, Passed: time.Second, Status: 200, Last: "GET / answered 200"},
		Steps:  []store.ReceiptStep{{Name: "health", Took: time.Second}},
		Counts: &store.Counts{
			Accepted: 9, Served: 1, Cached: 2, Refused: 3, Failed: 4, Gone: 5, Own: 6, Open: 7, Incumbent: 8, Successor: 9, Parked: 10,
			RefusedBy: map[string]uint64{"draining": 3}, FailedBy: map[string]uint64{"drain-cut": 4},
			ParkP50: 1, ParkP99: 2, ParkMax: 3, Upgrades: store.Upgrades{Before: 1, Opened: 2, Client: 3, App: 4, Usher: 5, Cut: 6, Open: 7},
			Mismatch: []string{"9 accepted"},
		},
	}
}

func receipts(t *testing.T, s Opened) {
	wantErr(t, s.PutReceipt("web", wholeReceipt(1)), store.ErrNotFound)
	update(t, s, "web", release)
	update(t, s, "web2", release) // a name that begins with another one
	must(t, s.PutReceipt("web2", wholeReceipt(7)))
	for n := uint64(store.KeepReceipts + 5); n > 0; n-- { // in any order
		must(t, s.PutReceipt("web", store.Receipt{Attempt: 10 * n}))
		must(t, s.PutReceipt("web", wholeReceipt(10*n)))
	}
	s = s.Reopen(t)
	list, err := s.Receipts("web")
	must(t, err)
	if len(list) != store.KeepReceipts {
		t.Fatalf("%d are kept, want %d", len(list), store.KeepReceipts)
	}
	for i, got := range list {
		if want := wholeReceipt(10 * uint64(6+i)); !reflect.DeepEqual(got, want) {
			t.Errorf("receipt %d is\n%+v, want\n%+v", i, got, want)
		}
	}
	again := store.Receipt{Attempt: 10 * (store.KeepReceipts + 6), Tries: store.Tries{N: 3, First: 10 * (store.KeepReceipts + 4)}}
	must(t, s.PutReceipt("web", again)) // in the place of the last two
	if all, err := s.Receipts("web"); err != nil || len(all) != store.KeepReceipts-1 || !reflect.DeepEqual(all[len(all)-1], again) || all[len(all)-2].Attempt != again.Tries.First-10 {
		t.Errorf("%d receipts, the last ones %+v (%v)", len(all), all[len(all)-2:], err)
	}
	list[0].Counts.RefusedBy["draining"] = 99
	if again, err := s.Receipts("web"); err != nil || again[0].Counts.RefusedBy["draining"] != 3 {
		t.Errorf("a reader changed what is stored: %v", err)
	}
	must(t, s.Delete("web", 0))
	for app, want := range map[string]int{"web": 0, "web2": 1, "nobody": 0} {
		if list, err := s.Receipts(app); err != nil || len(list) != want {
			t.Errorf("app %s has %d receipts (%v), want %d", app, len(list), err, want)
		}
	}
	must(t, s.Close())
}
