package storetest

import (
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/usher-edge/usher/activator/store"
)

// Runs runs the suite of runtime records. open returns a new, empty store of
// the boot "boot-1", and a function that returns the same records as seen in
// another boot.
func Runs(t *testing.T, open func(t *testing.T) (runs store.Runs, boot func(id string) store.Runs)) {
	for name, test := range map[string]func(*testing.T, store.Runs, func(string) store.Runs){
		"a record is read back whole":                runReadBack,
		"records come by generation":                 runOrder,
		"a second delete is no error":                runDelete,
		"a record of an earlier boot is discarded":   runOtherBoot,
		"a record without its key fields is refused": runRefused,
		"parallel puts leave one whole record":       runParallel,
	} {
		t.Run(name, func(t *testing.T) {
			runs, boot := open(t)
			test(t, runs, boot)
		})
	}
}

func someRun(generation uint64) store.Run {
	at := time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)
	return store.Run{
		Generation: generation, App: "web", Revision: 3, Build: "aa", Digest: "sha256:aa", Mode: "overlap",
		Phase: store.PhaseSwitching, AttemptID: 7, PID: 4711, StartTime: 123456, BootID: "ignored",
		Network: "tcp", Address: "127.0.0.1:20001", Cgroup: "/sys/fs/cgroup/usher/web/7", LogPath: "/logs/7",
		Healthy: &store.Evidence{At: at, Status: 204}, Retiring: 6, UpdatedAt: at,
	}
}

func listed(t *testing.T, runs store.Runs) []store.Run {
	t.Helper()
	got, notes := runs.List()
	if len(notes) != 0 {
		t.Errorf("notes: %v", notes)
	}
	return got
}

func runReadBack(t *testing.T, runs store.Runs, _ func(string) store.Runs) {
	r := someRun(8)
	must(t, runs.Put(r))
	r.Phase = store.PhaseSwitched
	must(t, runs.Put(r)) // replaces the first
	r.Healthy.Status = 500
	want := someRun(8)
	want.Phase, want.BootID = store.PhaseSwitched, "boot-1"
	if got := listed(t, runs); !reflect.DeepEqual(got, []store.Run{want}) {
		t.Errorf("listed %+v, want %+v", got, want)
	}
}

func runOrder(t *testing.T, runs store.Runs, _ func(string) store.Runs) {
	for _, g := range []uint64{10, 9, 100, 1} {
		must(t, runs.Put(someRun(g)))
	}
	var order []uint64
	for _, r := range listed(t, runs) {
		order = append(order, r.Generation)
	}
	if !reflect.DeepEqual(order, []uint64{1, 9, 10, 100}) {
		t.Errorf("order is %v", order)
	}
}

func runDelete(t *testing.T, runs store.Runs, _ func(string) store.Runs) {
	must(t, runs.Put(someRun(1)))
	must(t, runs.Delete(1))
	must(t, runs.Delete(1))
	if got := listed(t, runs); len(got) != 0 {
		t.Errorf("a deleted record is listed: %+v", got)
	}
}

func runOtherBoot(t *testing.T, runs store.Runs, boot func(string) store.Runs) {
	must(t, runs.Put(someRun(1)))
	runs = boot("boot-2")
	must(t, runs.Put(someRun(2)))
	got, notes := runs.List()
	if len(got) != 1 || got[0].Generation != 2 {
		t.Errorf("listed %+v", got)
	}
	if len(notes) != 1 || !strings.Contains(notes[0].Error(), "web generation 1") {
		t.Errorf("notes are %v", notes)
	}
	if got, _ := boot("boot-1").List(); len(got) != 0 {
		t.Errorf("a discarded record came back: %+v", got)
	}
}

func runRefused(t *testing.T, runs store.Runs, _ func(string) store.Runs) {
	for _, clear := range []func(*store.Run){
		func(r *store.Run) { r.Generation = 0 },
		func(r *store.Run) { r.App = "" },
		func(r *store.Run) { r.Phase = "" },
	} {
		r := someRun(1)
		clear(&r)
		wantErr(t, runs.Put(r), store.ErrInvalid)
	}
	if got := listed(t, runs); len(got) != 0 {
		t.Errorf("a refused record is listed: %+v", got)
	}
}

func runParallel(t *testing.T, runs store.Runs, _ func(string) store.Runs) {
	var wg sync.WaitGroup
	for writer := range 4 {
		wg.Go(func() {
			for range 25 {
				r := someRun(5)
				r.PID, r.StartTime = writer, uint64(writer)
				if err := runs.Put(r); err != nil {
					t.Error(err)
				}
				for _, got := range listed(t, runs) {
					if uint64(got.PID) != got.StartTime {
						t.Errorf("a record is mixed from two: %+v", got)
					}
				}
			}
		})
	}
	wg.Wait()
}
