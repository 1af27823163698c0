package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/activator/store"
)

// held is a state directory as usher has it: locked and open.
func held(t *testing.T, o store.Options) (dir string, s *store.Bolt) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "state")
	must(t, os.Mkdir(dir, 0o700))
	lock, err := store.Lock(dir)
	must(t, err)
	t.Cleanup(func() { must(t, lock.Unlock()) })
	o.Lock = lock
	s = openBolt(t, dir, o)
	commit(t, s)
	return dir, s
}

func commit(t *testing.T, s store.Commits) {
	t.Helper()
	must(t, restartIn(s))
}

func restartIn(s store.Commits) error {
	_, err := s.Update("web", 0, func(a *store.App) error { a.Restarts++; return nil })
	return err
}

// Whatever is done with the directory so that its paths name something else, the
// next write is refused, and a look is enough to see it.
func TestWhoeverTakesTheStateAwayFencesTheStore(t *testing.T) {
	copied := func(t *testing.T, dir, name string) {
		data, err := os.ReadFile(filepath.Join(dir, name))
		must(t, err)
		must(t, os.Remove(filepath.Join(dir, name)))
		must(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	for name, take := range map[string]func(t *testing.T, dir string){
		"moved":         func(t *testing.T, dir string) { must(t, os.Rename(dir, dir+".old")) },
		"removed":       func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)) },
		"emptied":       func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "usher.db"))) },
		"restored":      func(t *testing.T, dir string) { copied(t, dir, "usher.db") },
		"lock removed":  func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "lock"))) },
		"lock replaced": func(t *testing.T, dir string) { copied(t, dir, "lock") },
		"a file in its place": func(t *testing.T, dir string) {
			must(t, os.Rename(dir, dir+".old"))
			must(t, os.WriteFile(dir, nil, 0o600))
		},
		"another in its place": func(t *testing.T, dir string) {
			must(t, os.Rename(dir, dir+".old"))
			must(t, os.CopyFS(dir, os.DirFS(dir+".old")))
		},
		"a link that is turned": func(t *testing.T, dir string) {
			must(t, os.Rename(dir, dir+".old"))
			must(t, os.Symlink(t.TempDir(), dir))
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, looks := range []bool{false, true} {
				dir, s := held(t, store.Options{NoSync: true})
				must(t, s.Owned())
				take(t, dir)
				if looks {
					wantFenced(t, s, s.Owned())
				}
				wantFenced(t, s, restartIn(s))
				_, err := s.Generations(1)
				wantFenced(t, s, err)
				wantFenced(t, s, s.Delete("web", 0))
				wantFenced(t, s, s.PutReceipt("web", store.Receipt{Attempt: 1}))
				if a, err := s.Get("web"); err != nil || a.Restarts != 1 {
					t.Errorf("what was committed reads %d restarts (%v)", a.Restarts, err)
				}
			}
		})
	}
}

func wantFenced(t *testing.T, s store.Commits, err error) {
	t.Helper()
	if !errors.Is(err, store.ErrFenced) || !strings.Contains(err.Error(), "start usher again") {
		t.Errorf("error is %v", err)
	}
	select {
	case <-s.Fenced():
	default:
		t.Error("nobody is told")
	}
}

func TestWhatWentToAStateThatWasTakenAwayIsNotAcknowledged(t *testing.T) {
	dir, s := held(t, store.Options{NoSync: true})
	_, err := s.Update("web", 0, func(a *store.App) error {
		a.Restarts++
		return os.Rename(dir, dir+".old")
	})
	wantFenced(t, s, err)
	if a, gerr := s.Get("web"); gerr != nil || a.Restarts != 1 || errors.Is(err, store.ErrMayHold) {
		t.Errorf("%d restarts are recorded (%v), want 1, and the write is answered with %v", a.Restarts, gerr, err)
	}
	dir, s = held(t, store.Options{NoSync: true})
	err = s.CommitThen(func() { must(t, os.Rename(dir, dir+".old")) })
	wantFenced(t, s, err)
	if !errors.Is(err, store.ErrMayHold) {
		t.Errorf("it was written, and the answer does not say so: %v", err)
	}
}

// Who has put the directory back may have used it in between.
func TestAStateThatWasLostStaysLostUntilItIsOpenedAgain(t *testing.T) {
	dir, s := held(t, store.Options{NoSync: true})
	must(t, os.Rename(dir, dir+".old"))
	wantFenced(t, s, s.Owned())
	must(t, os.Rename(dir+".old", dir))
	wantFenced(t, s, restartIn(s))
	must(t, s.Close())
	again := openBolt(t, dir, store.Options{NoSync: true})
	commit(t, again)
	if a, err := again.Get("web"); err != nil || a.Restarts != 2 {
		t.Errorf("%d restarts are recorded (%v), want 2: nothing was written in between", a.Restarts, err)
	}
}

// A directory that may not be read, or that moves with its path, is nobody else's.
func TestOnlyProofFences(t *testing.T) {
	dir, s := held(t, store.Options{NoSync: true})
	must(t, os.Chmod(dir, 0))
	err := s.Owned()
	must(t, os.Chmod(dir, 0o700))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "usher.db.new"), nil, 0o600))
	must(t, os.Remove(filepath.Join(dir, "events.jsonl")))
	commit(t, s)
}

func eventually(t *testing.T, what func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !what() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("it never happens")
		}
	}
}

// The event log is shortened by replacing it: that must not hit what another has
// put there.
func TestAFencedLogLeavesTheNewOneAlone(t *testing.T) {
	dir, s := held(t, store.Options{NoSync: true, Events: 4})
	must(t, os.Rename(dir, dir+".old"))
	must(t, os.Mkdir(dir, 0o700))
	theirs := filepath.Join(dir, "events.jsonl")
	must(t, os.WriteFile(theirs, []byte("theirs\n"), 0o600))
	wantFenced(t, s, s.Owned())
	ours := filepath.Join(dir+".old", "events.jsonl")
	for n := 1; n <= 20; n++ { // more than make it short
		s.AppendEvent(store.Event{Kind: "state"})
		eventually(t, func() bool {
			data, err := os.ReadFile(ours)
			return err == nil && strings.Count(string(data), "\n") == n
		})
	}
	must(t, s.Close())
	if got, err := os.ReadFile(theirs); err != nil || string(got) != "theirs\n" {
		t.Errorf("their log reads %q (%v)", got, err)
	}
}
