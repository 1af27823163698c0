package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/usher-edge/usher/activator/store"
)

func aside(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "usher.db.corrupt-*"))
	must(t, err)
	return found
}

// filled makes a state directory with apps app-0 to app-(n-1) and returns the
// bytes of its database. Records are large enough for several pages.
func filled(t *testing.T, dir string, n int) []byte {
	t.Helper()
	s, err := store.Open(dir, store.Options{NoSync: true})
	must(t, err)
	for i := range n {
		_, err := s.Update(fmt.Sprintf("app-%d", i), 0, func(a *store.App) error {
			a.FileValue = strings.Repeat("v", 900)
			a.Desired, a.Releases = 1, []store.Release{{Revision: 1, Kind: store.KindTarget, Target: "127.0.0.1:1"}}
			return nil
		})
		must(t, err)
	}
	_, err = s.Generations(500)
	must(t, err)
	must(t, s.Close())
	data, err := os.ReadFile(filepath.Join(dir, "usher.db"))
	must(t, err)
	return data
}

func TestDamagedDatabaseIsSetAsideAndReplaced(t *testing.T) {
	whole := filled(t, t.TempDir(), 20)
	for name, data := range map[string][]byte{
		"empty":                  {},
		"one byte":               {0},
		"garbage":                bytes.Repeat([]byte("garbage!"), 4096),
		"zeros":                  make([]byte, len(whole)),
		"half":                   whole[:len(whole)/2],
		"headers only":           whole[:2*os.Getpagesize()],
		"cut in the first page":  whole[:100],
		"text that looks like a": []byte(`{"apps":{}}`),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "usher.db")
			must(t, os.WriteFile(path, data, 0o600))
			s := openBolt(t, dir, store.Options{NoSync: true})
			var damage *store.DamageError
			if !errors.As(s.Damage(), &damage) {
				t.Fatalf("damage is %v", s.Damage())
			}
			evidence, err := os.ReadFile(damage.Aside)
			must(t, err)
			if !bytes.Equal(evidence, data) {
				t.Error("the evidence is not what was found")
			}
			if msg := damage.Error(); !strings.Contains(msg, damage.Aside) || !strings.Contains(msg, "config file") {
				t.Errorf("message is %q", msg)
			}
			usable(t, s)
			must(t, s.Close())
			again := openBolt(t, dir, store.Options{NoSync: true})
			if again.Damage() != nil || len(aside(t, dir)) != 1 {
				t.Errorf("second open: damage %v, set aside %q", again.Damage(), aside(t, dir))
			}
		})
	}
}

// usable checks that a store that replaced a damaged one works, and that its
// generation numbers are above all that the old one can have given out.
func usable(t *testing.T, s *store.Bolt) {
	t.Helper()
	first, err := s.Generations(1)
	must(t, err)
	if first < uint64(time.Now().Add(-time.Hour).Unix()) {
		t.Errorf("generations start over at %d", first)
	}
	_, err = s.Update("new", 0, func(a *store.App) error { a.Paused = true; return nil })
	must(t, err)
	must(t, s.Check())
}

func TestOneDamagedRecordDoesNotCostTheOthers(t *testing.T) {
	for name, spoil := range store.Damages() {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			filled(t, dir, 5)
			spoil(t, filepath.Join(dir, "usher.db"))
			s := openBolt(t, dir, store.Options{NoSync: true})
			var damage *store.DamageError
			if !errors.As(s.Damage(), &damage) {
				t.Fatalf("damage is %v", s.Damage())
			}
			want := []string{"app-0", "app-1", "app-2", "app-4"}
			names, err := s.Apps()
			must(t, err)
			if !slices.Equal(names, want) || !slices.Equal(damage.Kept, want) {
				t.Errorf("apps are %q, kept %q", names, damage.Kept)
			}
			a, err := s.Update("app-3", 0, func(a *store.App) error { a.Paused = true; return nil })
			must(t, err)
			if a.Version < 1000 {
				t.Errorf("version %d of the lost record may have been used before", a.Version)
			}
			usable(t, s)
		})
	}
}

func TestLostNumberIsDamage(t *testing.T) {
	for _, key := range []string{"generation", "floor", "format", "sum"} {
		dir := t.TempDir()
		filled(t, dir, 3)
		store.DropNumber(t, filepath.Join(dir, "usher.db"), key)
		s := openBolt(t, dir, store.Options{NoSync: true})
		if names, err := s.Apps(); s.Damage() == nil || err != nil || len(names) != 3 {
			t.Errorf("%s: damage is %v, apps are %q, %v", key, s.Damage(), names, err)
		}
		usable(t, s)
	}
}

// A page that is its own child would be followed for ever.
func TestLoopBetweenPagesIsDamage(t *testing.T) {
	page := os.Getpagesize()
	dir := t.TempDir()
	data := filled(t, dir, 40)
	loops := 0
	for at := 2 * page; at < len(data); at += page {
		if binary.NativeEndian.Uint16(data[at+8:]) == 1 { // a branch
			copy(data[at+16+8:], data[at:at+8]) // its first child is itself
			loops++
		}
	}
	if loops == 0 {
		t.Fatal("the test data has no branch page")
	}
	must(t, os.WriteFile(filepath.Join(dir, "usher.db"), data, 0o600))
	s := openBolt(t, dir, store.Options{NoSync: true})
	if s.Damage() == nil {
		t.Error("no damage was reported")
	}
	usable(t, s)
}

// A torn last write is what the format is made for: the commit before it
// stands, and nothing is set aside.
func TestTornLastHeaderLeavesTheCommitBefore(t *testing.T) {
	page := os.Getpagesize()
	for _, header := range []int{0, 1} {
		dir := t.TempDir()
		data := filled(t, dir, 4)
		for i := 20; i < 80; i++ {
			data[header*page+i] ^= 0xA5
		}
		must(t, os.WriteFile(filepath.Join(dir, "usher.db"), data, 0o600))
		s := openBolt(t, dir, store.Options{NoSync: true})
		if s.Damage() != nil {
			t.Errorf("header %d: %v", header, s.Damage())
		}
		if names, err := s.Apps(); err != nil || len(names) != 4 {
			t.Errorf("header %d: apps are %q, %v", header, names, err)
		}
		must(t, s.Check())
	}
}

func TestInterruptedCreationIsFinishedOrRepeated(t *testing.T) {
	whole := filled(t, t.TempDir(), 3)
	for name, c := range map[string]struct {
		fresh []byte
		apps  int
	}{
		"complete": {whole, 3},
		"half":     {whole[:3*os.Getpagesize()], 0},
		"empty":    {[]byte{}, 0},
	} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "usher.db.new"), c.fresh, 0o600))
		s := openBolt(t, dir, store.Options{NoSync: true})
		names, err := s.Apps()
		if err != nil || len(names) != c.apps || s.Damage() != nil {
			t.Errorf("%s: apps %q, %v, damage %v", name, names, err, s.Damage())
		}
		must(t, s.Close())
		if _, err := os.Stat(filepath.Join(dir, "usher.db.new")); !os.IsNotExist(err) {
			t.Errorf("%s: the temporary file is still there (%v)", name, err)
		}
	}
}

func TestTemporaryFileBesideADatabaseIsRemoved(t *testing.T) {
	dir := t.TempDir()
	data := filled(t, dir, 2)
	must(t, os.WriteFile(filepath.Join(dir, "usher.db.new"), data[:100], 0o600))
	s := openBolt(t, dir, store.Options{NoSync: true})
	if names, err := s.Apps(); err != nil || len(names) != 2 {
		t.Errorf("apps %q, %v", names, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "usher.db.new")); !os.IsNotExist(err) {
		t.Errorf("the temporary file is still there (%v)", err)
	}
}

func TestDatabaseMissingBesideASetAsideOneIsReported(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "usher.db.corrupt-20260101T000000"), []byte("x"), 0o600))
	s := openBolt(t, dir, store.Options{NoSync: true})
	if s.Damage() == nil || !strings.Contains(s.Damage().Error(), "missing") {
		t.Errorf("damage is %v", s.Damage())
	}
	usable(t, s)
}

// Whatever is wrong with the bytes, opening neither panics nor loops, and
// every record is either as it was or reported as lost.
func TestNoDamageCrashesOpen(t *testing.T) {
	whole := filled(t, t.TempDir(), 12)
	page := os.Getpagesize()
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		data := bytes.Clone(whole)
		for range rapid.IntRange(1, 4).Draw(rt, "spots") {
			at := rapid.IntRange(0, len(data)/page-1).Draw(rt, "page") * page
			if rapid.Bool().Draw(rt, "header") {
				at += rapid.IntRange(0, 95).Draw(rt, "offset")
			} else {
				at += rapid.IntRange(0, page-1).Draw(rt, "offset")
			}
			data[at] = rapid.Byte().Draw(rt, "value")
		}
		if rapid.IntRange(0, 9).Draw(rt, "cut") == 0 {
			data = data[:rapid.IntRange(0, len(data)).Draw(rt, "length")]
		}
		path := filepath.Join(dir, "usher.db")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			rt.Fatal(err)
		}
		s, err := store.Open(dir, store.Options{NoSync: true})
		if err != nil {
			if strings.Contains(err.Error(), "has format") {
				return // the format number was hit, and its checksum with it
			}
			rt.Fatal(err)
		}
		defer s.Close()
		if err := s.Check(); err != nil {
			rt.Fatalf("after opening: %v", err)
		}
		names, err := s.Apps()
		if err != nil {
			rt.Fatal(err)
		}
		if len(names) != 12 && s.Damage() == nil {
			rt.Fatalf("only %q are left, and nothing was reported", names)
		}
		for _, name := range names {
			a, err := s.Get(name)
			if err != nil || a.Version != 1 || len(a.FileValue) != 900 {
				rt.Fatalf("record of %s: %+v, %v", name, a, err)
			}
		}
	})
}

// asOther runs fn as a user that may not write dir: the current one after
// chmod, or another file-system identity for this thread when it is root.
func asOther(t *testing.T, dir string, fn func()) {
	t.Helper()
	must(t, os.Chmod(dir, 0o555))
	defer func() { must(t, os.Chmod(dir, 0o755)) }()
	if os.Geteuid() != 0 {
		fn()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Setfsuid(65534); err != nil {
		t.Skipf("cannot become another user: %v", err)
	}
	defer func() { must(t, unix.Setfsuid(0)) }()
	fn()
}

func TestReadOnlyDirectoryIsAnErrorAndTouchesNothing(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T, string){
		"new":      func(*testing.T, string) {},
		"existing": func(t *testing.T, dir string) { filled(t, dir, 2) },
		"damaged": func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "usher.db"), []byte("garbage"), 0o644))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, os.Chmod(filepath.Dir(dir), 0o755))
			prepare(t, dir)
			before, err := os.ReadDir(dir)
			must(t, err)
			asOther(t, dir, func() {
				_, err := store.Open(dir, store.Options{})
				if err == nil && os.Geteuid() != 0 && name == "existing" {
					t.Skip("the owner may write the files in a read-only directory")
				}
				if err == nil || !strings.Contains(err.Error(), "write permission") {
					t.Errorf("error is %v", err)
				}
				if _, err := store.Lock(dir); err == nil || !strings.Contains(err.Error(), "write permission") {
					t.Errorf("lock: error is %v", err)
				}
			})
			after, err := os.ReadDir(dir)
			must(t, err)
			if len(after) != len(before) {
				t.Errorf("directory has %v, had %v", after, before)
			}
		})
	}
}
