package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/usher-edge/usher/activator/store"
	"github.com/usher-edge/usher/activator/store/storetest"
)

func openBolt(t *testing.T, dir string, o store.Options) *store.Bolt {
	t.Helper()
	s, err := store.Open(dir, o)
	must(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func boltUnderTest(t *testing.T, dir string) storetest.Opened {
	s := openBolt(t, dir, store.Options{NoSync: true})
	if s.Damage() != nil {
		t.Errorf("damage: %v", s.Damage())
	}
	return storetest.Opened{Commits: s, Reopen: func(t *testing.T) storetest.Opened {
		must(t, s.Close())
		return boltUnderTest(t, dir)
	}, Fence: func(t *testing.T) { must(t, os.Remove(filepath.Join(dir, "usher.db"))) }}
}

func memoryUnderTest(m *store.Memory) storetest.Opened {
	return storetest.Opened{Commits: m, Reopen: func(*testing.T) storetest.Opened {
		return memoryUnderTest(m.Reopen())
	}, Fence: func(*testing.T) { m.Fence() }}
}

func TestBoltConforms(t *testing.T) {
	storetest.Commits(t, func(t *testing.T) storetest.Opened { return boltUnderTest(t, t.TempDir()) })
}

func TestMemoryConforms(t *testing.T) {
	storetest.Commits(t, func(*testing.T) storetest.Opened { return memoryUnderTest(store.NewMemory()) })
}

func TestMemoryFailsWhereItIsTold(t *testing.T) {
	m := store.NewMemory()
	injected := errors.New("injected")
	var failing string
	var asked []string
	m.Fail = func(op string) error {
		asked = append(asked, op)
		if op == failing {
			return injected
		}
		return nil
	}
	pause := func() error {
		_, err := m.Update("web", 0, func(a *store.App) error { a.Restarts++; return nil })
		return err
	}
	for _, c := range []struct {
		op   string
		do   func() error
		took bool // the operation took effect although it failed
	}{
		{"update", pause, false},
		{"update.done", pause, true},
		{"apps", func() error { _, err := m.Apps(); return err }, false},
		{"get", func() error { _, err := m.Get("web"); return err }, false},
		{"generations", func() error { _, err := m.Generations(1); return err }, false},
		{"generations.done", func() error { _, err := m.Generations(1); return err }, false},
		{"generations.done", func() error { return m.RaiseGenerations(100) }, false},
		{"delete", func() error { return m.Delete("web", 0) }, false},
	} {
		before, _ := m.Get("web")
		failing = c.op
		if err := c.do(); !errors.Is(err, injected) {
			t.Errorf("%s: error is %v", c.op, err)
		}
		failing = ""
		after, _ := m.Get("web")
		if took := after.Version != before.Version; took != c.took {
			t.Errorf("%s: took effect is %v, want %v", c.op, took, c.took)
		}
	}
	failing = "delete.done"
	if err := m.Delete("web", 0); !errors.Is(err, injected) {
		t.Errorf("delete.done: error is %v", err)
	}
	if _, err := m.Get("web"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the failed delete did not take effect: %v", err)
	}
	if len(asked) == 0 {
		t.Error("the hook was never asked")
	}
}

// A commit that was acknowledged is there after kill -9, and no number was
// lost on the way.
func TestAcknowledgedCommitsSurviveKill(t *testing.T) {
	dir := t.TempDir()
	var said uint64
	for round := range 3 {
		cmd := childCmd(t, "commit", dir)
		out := lines(t, cmd)
		for range 20 + 7*round {
			if !out.Scan() {
				t.Fatal("the helper ended by itself")
			}
			n, err := strconv.ParseUint(out.Text(), 10, 64)
			must(t, err)
			said = n
		}
		must(t, cmd.Process.Kill())
		for out.Scan() { // what it had said before it died
			if n, err := strconv.ParseUint(out.Text(), 10, 64); err == nil {
				said = n
			}
		}
		_ = cmd.Wait() // killed
		s := openBolt(t, dir, store.Options{})
		if s.Damage() != nil {
			t.Fatalf("damage after kill: %v", s.Damage())
		}
		a, err := s.Get("web")
		must(t, err)
		if a.Restarts < said || a.Restarts > said+1 {
			t.Errorf("round %d: store has %d, the helper said %d", round, a.Restarts, said)
		}
		must(t, s.Check())
		must(t, s.Close())
	}
}

func TestFullDiskFailsCommitsAndLosesNothing(t *testing.T) {
	must(t, childCmd(t, "full", t.TempDir()).Run())
}

func TestNewerFormatIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	s := openBolt(t, dir, store.Options{})
	must(t, s.Close())
	path := filepath.Join(dir, "usher.db")
	store.SetFormat(t, path, 2)
	before, err := os.ReadFile(path)
	must(t, err)
	if _, err := store.Open(dir, store.Options{}); err == nil || !bytes.Contains([]byte(err.Error()), []byte("format 2")) {
		t.Errorf("error is %v", err)
	}
	after, err := os.ReadFile(path)
	must(t, err)
	if !bytes.Equal(before, after) || len(aside(t, dir)) != 0 {
		t.Error("the database of a newer usher was touched")
	}
}

func TestOpenErrorsSayWhatToDo(t *testing.T) {
	notADir := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(notADir, nil, 0o600))
	dirAtPath := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dirAtPath, "usher.db"), 0o700))
	for want, dir := range map[string]string{
		"create the directory first": filepath.Join(t.TempDir(), "missing"),
		"not a directory":            notADir,
		"not a regular file":         dirAtPath,
	} {
		if _, err := store.Open(dir, store.Options{}); err == nil || !bytes.Contains([]byte(err.Error()), []byte(want)) {
			t.Errorf("open %s: %v, want %q", dir, err, want)
		}
	}
}

func TestEventsSurviveARestartAndNumbersGoOn(t *testing.T) {
	dir := t.TempDir()
	var last uint64
	for round := range 3 {
		s := openBolt(t, dir, store.Options{Events: 10})
		for i := range 25 + round {
			seq := s.AppendEvent(store.Event{Kind: "step", Text: fmt.Sprint(i)})
			if seq <= last {
				t.Fatalf("number %d after %d", seq, last)
			}
			last = seq
		}
		must(t, s.Close())
		s = openBolt(t, dir, store.Options{Events: 10})
		got := s.EventsSince(0, 0)
		if len(got) != 10 || got[9].Seq != last || got[9].Text != fmt.Sprint(24+round) {
			t.Errorf("read back %+v", got)
		}
		must(t, s.Close())
	}
	info, err := os.Stat(filepath.Join(dir, "events.jsonl"))
	must(t, err)
	if info.Size() > 4<<10 {
		t.Errorf("the event log has grown to %d bytes", info.Size())
	}
}

func TestEventLogSkipsTornLines(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "events.jsonl")
	must(t, os.WriteFile(path, []byte("{\"seq\":1,\"kind\":\"a\"}\ngarb\x00age\n\n{\"seq\":2,\"kind\":\"b\"}\n{\"seq\":2,\"kind\":\"b\"}\n{\"seq\":3,\"ki"), 0o600))
	s := openBolt(t, dir, store.Options{})
	next := s.AppendEvent(store.Event{Kind: "c"})
	must(t, s.Close())
	s = openBolt(t, dir, store.Options{})
	var kinds string
	for _, e := range s.EventsSince(0, 0) {
		kinds += e.Kind
	}
	// Events that never reached the file may have had the numbers up to there.
	if kinds != "abc" || next <= 3+store.DefaultEvents {
		t.Errorf("events are %q, next number %d", kinds, next)
	}
}

// A start on a full disk must not fail for a number that is high enough already.
func TestRaisingToWhatIsReservedWritesNothing(t *testing.T) {
	dir := t.TempDir()
	s := openBolt(t, dir, store.Options{})
	_, err := s.Generations(64)
	must(t, err)
	read := func() []byte {
		data, err := os.ReadFile(filepath.Join(dir, "usher.db"))
		must(t, err)
		return data
	}
	before := read()
	must(t, s.RaiseGenerations(64))
	if !bytes.Equal(before, read()) {
		t.Error("the database was written to")
	}
	must(t, s.RaiseGenerations(65))
	if bytes.Equal(before, read()) {
		t.Error("a number that was too low was not raised")
	}
}
