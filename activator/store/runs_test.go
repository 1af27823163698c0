package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/usher-edge/usher/activator/store"
	"github.com/usher-edge/usher/activator/store/storetest"
)

func openRuns(t *testing.T, dir, boot string) *store.FileRuns {
	t.Helper()
	r, err := store.OpenRuns(dir, boot)
	must(t, err)
	return r
}

func TestFileRunsConform(t *testing.T) {
	storetest.Runs(t, func(t *testing.T) (store.Runs, func(string) store.Runs) {
		dir := filepath.Join(t.TempDir(), "runs")
		return openRuns(t, dir, "boot-1"), func(boot string) store.Runs { return openRuns(t, dir, boot) }
	})
}

func TestMemoryRunsConform(t *testing.T) {
	storetest.Runs(t, func(*testing.T) (store.Runs, func(string) store.Runs) {
		m := store.NewMemoryRuns("boot-1")
		return m, func(boot string) store.Runs { m.Reboot(boot); return m }
	})
}

func TestMemoryRunsFailWhereTheyAreTold(t *testing.T) {
	m := store.NewMemoryRuns("boot-1")
	injected := errors.New("injected")
	failing := ""
	m.Fail = func(op string) error {
		if op == failing {
			return injected
		}
		return nil
	}
	run := store.Run{Generation: 1, App: "web", Phase: store.PhaseIntent}
	for _, c := range []struct {
		op   string
		do   func() error
		left int
	}{
		{"put", func() error { return m.Put(run) }, 0},
		{"put.done", func() error { return m.Put(run) }, 1},
		{"delete", func() error { return m.Delete(1) }, 1},
		{"delete.done", func() error { return m.Delete(1) }, 0},
	} {
		failing = c.op
		if err := c.do(); !errors.Is(err, injected) {
			t.Errorf("%s: error is %v", c.op, err)
		}
		if runs, _ := m.List(); len(runs) != c.left {
			t.Errorf("%s: %d records left, want %d", c.op, len(runs), c.left)
		}
	}
}

func TestUnreadableRunRecordsAreSetAside(t *testing.T) {
	dir := t.TempDir()
	r := openRuns(t, dir, "boot-1")
	must(t, r.Put(store.Run{Generation: 7, App: "web", Phase: store.PhaseSwitched}))
	good, err := os.ReadFile(filepath.Join(dir, "7.json"))
	must(t, err)
	bad := map[string][]byte{
		"1.json": {},
		"2.json": good[:len(good)/2],
		"3.json": []byte("garbage"),
		"4.json": []byte("{}"),
		"5.json": good, // says 7
		"6.json": make([]byte, 64),
	}
	for name, data := range bad {
		must(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	must(t, os.WriteFile(filepath.Join(dir, "notes.json"), []byte("not ours"), 0o600))
	runs, notes := r.List()
	if len(runs) != 1 || runs[0].Generation != 7 {
		t.Errorf("runs are %+v", runs)
	}
	if len(notes) != len(bad) {
		t.Errorf("notes are %v", notes)
	}
	for name, data := range bad {
		found, err := filepath.Glob(filepath.Join(dir, name+".unreadable-*"))
		must(t, err)
		if len(found) != 1 {
			t.Errorf("%s was set aside as %q", name, found)
			continue
		}
		kept, err := os.ReadFile(found[0])
		must(t, err)
		if string(kept) != string(data) {
			t.Errorf("%s was changed when it was set aside", name)
		}
	}
	if runs, notes := r.List(); len(runs) != 1 || len(notes) != 0 {
		t.Errorf("second list: %v, %v", runs, notes)
	}
	if _, err := os.Stat(filepath.Join(dir, "notes.json")); err != nil {
		t.Error(err)
	}
}

func TestInterruptedPutLeavesTheRecordBefore(t *testing.T) {
	dir := t.TempDir()
	must(t, openRuns(t, dir, "boot-1").Put(store.Run{Generation: 1, App: "web", Phase: store.PhaseIntent}))
	must(t, os.WriteFile(filepath.Join(dir, ".put-123"), []byte(`{"generation":2`), 0o600))
	runs, notes := openRuns(t, dir, "boot-1").List()
	if len(runs) != 1 || len(notes) != 0 {
		t.Errorf("runs %+v, notes %v", runs, notes)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".put-*")); len(left) != 0 {
		t.Errorf("temporary files are left: %q", left)
	}
}

func TestRunDirectoryErrorsSayWhatToDo(t *testing.T) {
	if _, err := store.OpenRuns(t.TempDir(), ""); err == nil {
		t.Error("a run directory without a boot id was opened")
	}
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	r := openRuns(t, dir, "boot-1")
	run := store.Run{Generation: 1, App: "web", Phase: store.PhaseIntent}
	must(t, r.Put(run))
	asOther(t, dir, func() {
		run.Phase = store.PhaseStarted
		for op, err := range map[string]error{"put": r.Put(run), "delete": r.Delete(1)} {
			if err == nil || !strings.Contains(err.Error(), "write permission") {
				t.Errorf("%s: error is %v", op, err)
			}
		}
	})
	if runs, _ := r.List(); len(runs) != 1 || runs[0].Phase != store.PhaseIntent {
		t.Errorf("a failed put changed the record: %+v", runs)
	}
	must(t, os.RemoveAll(dir))
	if runs, notes := r.List(); len(runs) != 0 || len(notes) != 1 {
		t.Errorf("without a directory: %v, %v", runs, notes)
	}
}

func TestBootIDIsStable(t *testing.T) {
	a, err := store.BootID()
	must(t, err)
	b, err := store.BootID()
	must(t, err)
	if a != b || len(a) < 32 {
		t.Errorf("boot ids %q and %q", a, b)
	}
}

// Records are renamed into place, but a file system may lose what was never
// synced: whatever is left of one is either the whole record or set aside.
func TestARecordThatIsTornAtAnyByteIsSetAside(t *testing.T) {
	dir := t.TempDir()
	r := openRuns(t, dir, "boot-1")
	run := store.Run{Generation: 7, App: "web", Revision: 3, Phase: store.PhaseSwitched, PID: 4711, StartTime: 12345, Address: "127.0.0.1:20001"}
	must(t, r.Put(run))
	path := filepath.Join(dir, "7.json")
	whole, err := os.ReadFile(path)
	must(t, err)
	for n := range whole {
		must(t, os.WriteFile(path, whole[:n], 0o600))
		runs, notes := r.List()
		isWhole := n == len(whole)-1 // the line break says nothing
		switch {
		case isWhole && (len(runs) != 1 || runs[0].PID != run.PID || len(notes) != 0):
			t.Errorf("without its line break: %+v, %v", runs, notes)
		case !isWhole && (len(runs) != 0 || len(notes) != 1):
			t.Errorf("cut to %d bytes: %+v, %v", n, runs, notes)
		}
	}
	if aside, _ := filepath.Glob(path + ".unreadable-*"); len(aside) != len(whole)-1 {
		t.Errorf("%d records were set aside, want %d", len(aside), len(whole)-1)
	}
}
