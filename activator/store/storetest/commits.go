// Package storetest is the conformance suite of package store: an
// implementation of Commits or Runs that passes it may stand in for any
// other.
package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/usher-edge/usher/activator/store"
)

// Opened is one store under test.
type Opened struct {
	store.Commits

	// Reopen closes the store and opens what it has left behind, as a start
	// after a crash would.
	Reopen func(t *testing.T) Opened

	// Fence takes the state away from the store.
	Fence func(t *testing.T)
}

// Commits runs the suite; open returns a new, empty store each time.
func Commits(t *testing.T, open func(t *testing.T) Opened) {
	for name, test := range map[string]func(*testing.T, Opened){
		"an unknown app is not found":                       unknownApp,
		"an update is read back whole, also after a reopen": readBack,
		"an update that leaves nothing creates nothing":     emptyUpdate,
		"what was read shares nothing with the store":       nothingShared,
		"a version that is not current conflicts":           versionConflicts,
		"an error of the callback writes nothing":           callbackError,
		"several records change together or not at all":     together,
		"a panic of the callback writes nothing":            callbackPanic,
		"a version never comes back after a delete":         versionsAfterDelete,
		"rules of a record are kept":                        rules,
		"history is bounded but keeps what pointers name":   boundedHistory,
		"generation numbers are never reused":               generations,
		"receipts are kept whole, in order and bounded":     receipts,
		"eight writers that retry on conflict all finish":   writers,
		"events are numbered, bounded and followed":         events,
		"a store that lost its state writes nothing more":   fenced,
		"a closed store refuses":                            closed,
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			test(t, s)
			consistent(t, s)
			must(t, s.Close())
		})
	}
}

// consistent is the check that every test ends with.
func consistent(t *testing.T, s Opened) {
	t.Helper()
	if c, ok := s.Commits.(interface{ Check() error }); ok {
		if err := c.Check(); err != nil && !errors.Is(err, store.ErrClosed) {
			t.Errorf("consistency check: %v", err)
		}
	}
	names, err := s.Apps()
	if errors.Is(err, store.ErrClosed) {
		return
	}
	must(t, err)
	if !slices.IsSorted(names) {
		t.Errorf("apps are not sorted: %q", names)
	}
	for _, name := range names {
		a, err := s.Get(name)
		must(t, err)
		if a.Name != name || a.Version == 0 || a.Reported > a.Good || a.Good > a.Desired {
			t.Errorf("record of %s is inconsistent: %+v", name, a)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("error is %v, want %v", got, want)
	}
}

// release makes the next revision desired.
func release(a *store.App) error {
	a.Desired++
	a.Releases = append(a.Releases, store.Release{
		Revision: a.Desired, Kind: store.KindArtifact, Digest: fmt.Sprintf("sha256:%064d", a.Desired), ArtifactKind: "file",
	})
	return nil
}

func update(t *testing.T, s store.Commits, app string, fn func(*store.App) error) store.App {
	t.Helper()
	a, err := s.Update(app, 0, fn)
	must(t, err)
	return a
}

func unknownApp(t *testing.T, s Opened) {
	_, err := s.Get("web")
	wantErr(t, err, store.ErrNotFound)
	wantErr(t, s.Delete("web", 0), store.ErrNotFound)
	names, err := s.Apps()
	must(t, err)
	if len(names) != 0 {
		t.Errorf("a new store has apps %q", names)
	}
}

func readBack(t *testing.T, s Opened) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)
	want := store.App{
		Name: "web", Version: 1, Desired: 2, Good: 1, Reported: 1,
		Releases: []store.Release{
			{Revision: 1, Kind: store.KindArtifact, Digest: "sha256:aa", Build: "aa", ArtifactKind: "file", Spec: []byte(`{"user":"web"}`), DemandHold: true, Cause: "install", CreatedAt: at, By: "uid 0", Ran: true, Restarts: 2, WasGood: true},
			{Revision: 2, Kind: store.KindTarget, Target: "127.0.0.1:3000"},
		},
		FileValue: "bin/web",
		DownHeld:  1,
		Failures:  map[uint64]store.Failure{2: {Count: 3, Last: at, Reason: "exit 1", HeldDown: true}},
		Restarts:  4, RestartsDone: 3, Paused: true, Maintenance: true, Removed: true,
		Outcomes: []store.Outcome{{Attempt: 9, Revision: 1, Generation: 7, Cause: "release", Mode: "hold", Canary: true, Outcome: "done", Reason: "-", Executed: true, At: at, Drain: time.Second}},
	}
	got, err := s.Update("web", 0, func(a *store.App) error {
		if a.Name != "web" {
			t.Errorf("callback sees name %q", a.Name)
		}
		*a = want
		a.Name, a.Version = "other", 99 // not the callback's to set
		return nil
	})
	must(t, err)
	check := func(got store.App) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("record is\n%+v, want\n%+v", got, want)
		}
	}
	check(got)
	update(t, s, "api", release)
	s = s.Reopen(t)
	got, err = s.Get("web")
	must(t, err)
	check(got)
	names, err := s.Apps()
	must(t, err)
	if !slices.Equal(names, []string{"api", "web"}) {
		t.Errorf("apps are %q", names)
	}
	must(t, s.Close())
}

func emptyUpdate(t *testing.T, s Opened) {
	a := update(t, s, "web", func(*store.App) error { return nil })
	if a.Name != "web" || a.Version != 0 {
		t.Errorf("answer is %+v", a)
	}
	_, err := s.Get("web")
	wantErr(t, err, store.ErrNotFound)
	_, err = s.Update("", 0, release)
	wantErr(t, err, store.ErrInvalid)
}

func nothingShared(t *testing.T, s Opened) {
	var kept *store.App
	a := update(t, s, "web", func(a *store.App) error {
		kept = a
		a.Failures = map[uint64]store.Failure{1: {Count: 1}}
		return release(a)
	})
	kept.Releases[0].Digest = "changed"
	kept.Failures[1] = store.Failure{Count: 8}
	a.Releases[0].Digest = "changed"
	a.Failures[1] = store.Failure{Count: 9}
	got, err := s.Get("web")
	must(t, err)
	if got.Releases[0].Digest == "changed" || got.Failures[1].Count != 1 {
		t.Errorf("a reader changed the stored record: %+v", got)
	}
}

func versionConflicts(t *testing.T, s Opened) {
	_, err := s.Update("web", 1, release)
	wantErr(t, err, store.ErrConflict) // a missing record has version 0
	first := update(t, s, "web", release)
	second, err := s.Update("web", first.Version, release)
	must(t, err)
	if second.Version != first.Version+1 {
		t.Errorf("versions %d and %d do not follow each other", first.Version, second.Version)
	}
	called := false
	_, err = s.Update("web", first.Version, func(*store.App) error { called = true; return nil })
	wantErr(t, err, store.ErrConflict)
	if called {
		t.Error("the callback of a conflicting update was called")
	}
	wantErr(t, s.Delete("web", first.Version), store.ErrConflict)
	got, err := s.Get("web")
	must(t, err)
	if got.Desired != 2 || got.Version != second.Version {
		t.Errorf("a conflicting write took effect: %+v", got)
	}
}

func together(t *testing.T, s Opened) {
	update(t, s.Commits, "a", release)
	update(t, s.Commits, "b", release)
	refused := errors.New("refused")
	_, err := s.UpdateAll([]string{"a", "c", "b"}, func(a *store.App) (bool, error) {
		if a.Name == "b" {
			return true, refused
		}
		a.Restarts++
		return true, nil
	})
	wantErr(t, err, refused)
	for _, name := range []string{"a", "b"} {
		a, err := s.Get(name)
		must(t, err)
		if a.Restarts != 0 || a.Version != 1 {
			t.Errorf("after an error of the last: %+v", a)
		}
	}
	if _, err := s.Get("c"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("after an error of the last: %v", err)
	}
	all, err := s.UpdateAll([]string{"a", "c", "b", "d"}, func(a *store.App) (bool, error) {
		if a.Name != "a" && a.Name != "c" { // b stays as it is, and d empty
			return a.Name == "d", nil
		}
		a.Restarts++
		return true, nil
	})
	must(t, err)
	s = s.Reopen(t)
	for i, want := range []store.App{{Name: "a", Version: 2, Restarts: 1}, {Name: "c", Version: 1, Restarts: 1}, {Name: "b", Version: 1}} {
		a, err := s.Get(want.Name)
		must(t, err)
		if a.Version != want.Version || a.Restarts != want.Restarts || all[i].Version != a.Version || all[i].Name != a.Name {
			t.Errorf("%s is %+v, and was answered %+v", want.Name, a, all[i])
		}
	}
	if a, err := s.Get("d"); !errors.Is(err, store.ErrNotFound) || len(all) != 4 || all[3].Name != "d" || all[3].Version != 0 {
		t.Errorf("an empty record was made: %+v (%v)", a, err)
	}
	must(t, s.Close())
}

func callbackError(t *testing.T, s Opened) {
	update(t, s, "web", release)
	own := errors.New("own error")
	got, err := s.Update("web", 0, func(a *store.App) error {
		a.Paused = true
		return own
	})
	if err != own { //nolint:errorlint // it is passed on as it is
		t.Errorf("error is %v, want the callback's own", err)
	}
	if got.Name != "" {
		t.Errorf("a failed update answers %+v", got)
	}
	after, err := s.Get("web")
	must(t, err)
	if after.Paused || after.Version != 1 {
		t.Errorf("a failed update wrote %+v", after)
	}
}

func callbackPanic(t *testing.T, s Opened) {
	update(t, s, "web", release)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic of a callback was swallowed")
			}
		}()
		_, _ = s.Update("web", 0, func(a *store.App) error {
			a.Paused = true
			panic("callback")
		})
	}()
	after := update(t, s, "web", release) // the store is usable
	if after.Paused || after.Version != 2 {
		t.Errorf("a panicking update wrote %+v", after)
	}
}

func versionsAfterDelete(t *testing.T, s Opened) {
	for range 3 {
		update(t, s, "web", release)
	}
	old, err := s.Get("web")
	must(t, err)
	must(t, s.Delete("web", old.Version))
	_, err = s.Get("web")
	wantErr(t, err, store.ErrNotFound)
	s = s.Reopen(t)
	again := update(t, s, "web", release)
	if again.Version <= old.Version {
		t.Errorf("version %d after version %d was deleted", again.Version, old.Version)
	}
	_, err = s.Update("web", old.Version, release)
	wantErr(t, err, store.ErrConflict)
	must(t, s.Close())
}

func generations(t *testing.T, s Opened) {
	var last uint64
	take := func(n uint64) {
		t.Helper()
		first, err := s.Generations(n)
		must(t, err)
		if first <= last {
			t.Fatalf("block starts at %d, %d was handed out before", first, last)
		}
		last = first + n - 1
	}
	take(1)
	take(64)
	s = s.Reopen(t)
	take(2)
	must(t, s.RaiseGenerations(1000))
	last = 1000
	take(1)
	must(t, s.RaiseGenerations(10)) // lower: no effect
	take(1)
	_, err := s.Generations(0)
	wantErr(t, err, store.ErrInvalid)
	_, err = s.Generations(1<<64 - 1)
	wantErr(t, err, store.ErrInvalid)
	parallelGenerations(t, s, last)
	must(t, s.Close())
}

func parallelGenerations(t *testing.T, s Opened, last uint64) {
	var mu sync.Mutex
	seen := map[uint64]bool{}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 10 {
				first, err := s.Generations(3)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				for g := first; g < first+3; g++ {
					if seen[g] || g <= last {
						t.Errorf("generation %d was handed out twice", g)
					}
					seen[g] = true
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func writers(t *testing.T, s Opened) {
	const writers, each = 8, 1000
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				if err := increment(s); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	s = s.Reopen(t)
	consistent(t, s)
	a, err := s.Get("web")
	must(t, err)
	if a.Restarts != writers*each || a.Version != writers*each {
		t.Errorf("%d writes at version %d, want %d", a.Restarts, a.Version, writers*each)
	}
	must(t, s.Close())
}

// increment counts Restarts up by compare-and-swap, as often as it takes.
func increment(s store.Commits) error {
	for {
		a, err := s.Get("web")
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if a.Version == 0 {
			_, err = s.Update("web", 0, func(now *store.App) error { now.Restarts++; return nil })
			return err
		}
		_, err = s.Update("web", a.Version, func(now *store.App) error { now.Restarts = a.Restarts + 1; return nil })
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

func fenced(t *testing.T, s Opened) {
	before := update(t, s, "web", release)
	must(t, s.Owned())
	select {
	case <-s.Fenced():
		t.Error("it is fenced from the start")
	default:
	}
	s.Fence(t)
	wantErr(t, s.Owned(), store.ErrFenced)
	<-s.Fenced()
	_, err := s.Update("web", 0, release)
	wantErr(t, err, store.ErrFenced)
	_, err = s.UpdateAll([]string{"web"}, func(a *store.App) (bool, error) { return true, release(a) })
	wantErr(t, err, store.ErrFenced)
	wantErr(t, s.Delete("web", 0), store.ErrFenced)
	_, err = s.Generations(1)
	wantErr(t, err, store.ErrFenced)
	wantErr(t, s.RaiseGenerations(1000), store.ErrFenced)
	wantErr(t, s.PutReceipt("web", store.Receipt{Attempt: 1}), store.ErrFenced)
	if a, err := s.Get("web"); err != nil || a.Version != before.Version {
		t.Errorf("what was committed reads %+v (%v)", a, err)
	}
	if seq := s.AppendEvent(store.Event{Kind: "fenced"}); seq == 0 {
		t.Error("nobody can be told of it")
	}
}

func closed(t *testing.T, s Opened) {
	update(t, s, "web", release)
	changed := s.EventsChanged()
	must(t, s.Close())
	select {
	case <-changed:
	default:
		t.Error("followers of events are not woken by Close")
	}
	_, err := s.Apps()
	wantErr(t, err, store.ErrClosed)
	_, err = s.Get("web")
	wantErr(t, err, store.ErrClosed)
	_, err = s.Update("web", 0, release)
	wantErr(t, err, store.ErrClosed)
	wantErr(t, s.Delete("web", 0), store.ErrClosed)
	_, err = s.Generations(1)
	wantErr(t, err, store.ErrClosed)
	wantErr(t, s.RaiseGenerations(1), store.ErrClosed)
	wantErr(t, s.PutReceipt("web", store.Receipt{Attempt: 1}), store.ErrClosed)
	_, err = s.Receipts("web")
	wantErr(t, err, store.ErrClosed)
	if seq := s.AppendEvent(store.Event{Kind: "late"}); seq != 0 {
		t.Errorf("a closed log took an event as number %d", seq)
	}
}
